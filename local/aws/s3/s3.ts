import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { authenticate } from './authentication.ts';
import { type Bodies, type CloneFile, FileBodies, MemoryBodies, type Segment } from './bodies.ts';
import { addBucket } from './buckets.ts';
import { type Call, EMPTY, type S3Access, type S3Request, type S3Response, type Service } from './call.ts';
import { Catalog, opaqueId, type Version, type Versioning } from './catalog.ts';
import { S3Error } from './errors.ts';
import { eventRecord, type S3EventName, type S3EventRecord } from './events.ts';
import { KEYS_MAX } from './listing.ts';
import { unquoted } from './objects.ts';
import { operationOf } from './operations.ts';
import { type XmlElement, xmlDocument } from './xml.ts';

export interface S3Options {
  /** @default the system's clock */
  readonly clock?: { now(): number };
  /** Folder that keeps buckets and objects across restarts, for one S3 at a time. @default everything in memory */
  readonly dir?: string;
  /**
   * Called for every object created or removed, after the commit, whatever the bucket's notification configuration
   * says. The answer waits for it. If it rejects, the request fails although it took effect, which can happen with S3
   * too.
   */
  readonly onEvent?: (event: S3EventRecord) => void | Promise<void>;
  /**
   * Called for every permission that a request needs. `false` answers 403 AccessDenied. As in S3, a missing key is
   * answered with 404 only if `s3:ListBucket` is allowed. @default everything is allowed
   */
  readonly authorize?: (access: S3Access) => boolean;
  /** Called for every conditional write. `true` answers 409 ConditionalRequestConflict. @default never */
  readonly conflict?: () => boolean;
  /** Maximum number of keys on a page of a listing. A small one gives a short listing several pages. @default 1,000 */
  readonly keysMax?: number;
  /** Makes the clones of {@link EmbeddedS3.shareBlocks}. @default the file system's own */
  readonly cloneFile?: CloneFile;
}

/** An object whose content a file has: one of its versions, or the current one if it has this ETag. */
export type SharedObject = { readonly bucket: string; readonly key: string } & (
  | { readonly versionId: string }
  | { readonly etag: string }
);

/** The second id of every request. In S3 it names the host that answered. */
const HOST_ID = 'embedded';

/**
 * The part of Amazon S3's protocol that Flowdrop and common clients use, without a network. `http.ts` serves it on a
 * socket, and verifies signatures. `request-handler.ts` connects it to an SDK client in this process, which needs none.
 *
 * One difference is deliberate: S3 adds a CRC64NVME to an object that was uploaded without a checksum. Here such an
 * object has none, because computing it in JavaScript would cost more than everything else.
 */
export class EmbeddedS3 {
  readonly #service: Service;
  #requests = 0;

  constructor(options: S3Options = {}) {
    const { clock = Date, dir, onEvent, authorize = () => true, conflict = () => false, keysMax = KEYS_MAX } = options;
    if (dir !== undefined) mkdirSync(dir, { recursive: true, mode: 0o700 });
    const catalog = new Catalog(dir === undefined ? ':memory:' : join(dir, 'catalog.sqlite'));
    this.#service = {
      catalog,
      bodies: dir === undefined ? new MemoryBodies() : fileBodies(join(dir, 'bodies'), catalog, options.cloneFile),
      notifications: new Map(),
      now: () => clock.now(),
      conflict,
      keysMax,
      allows: (call, action, { bucket, key = '' }) =>
        authorize({
          accessKeyId: call.accessKeyId ?? claimedAccessKeyId(call),
          action,
          resource: `arn:aws:s3:::${bucket}${key === '' ? '' : `/${key}`}`,
          context: conditionsOf(call),
          request: call,
        }),
      async publish(eventName: S3EventName, version: Version, { requestId }: Call, sequence = version.sequence) {
        const versioned = catalog.bucket(version.bucket).versioning !== undefined;
        await onEvent?.(eventRecord({ eventName, version, versioned, timeMs: clock.now(), requestId, sequence }));
      },
    };
  }

  /** Throws an S3Error: BucketAlreadyOwnedByYou, InvalidBucketName. */
  createBucket(name: string, { versioning }: { versioning?: Versioning } = {}): void {
    addBucket(this.#service, name, versioning);
  }

  /** Answers a request. Rejects only if the request's body, `onEvent` or the disk fails. */
  async handle(request: S3Request): Promise<S3Response> {
    this.#requests += 1;
    const requestId = opaqueId('request', this.#requests).slice(0, 16).toUpperCase();
    const response = await this.#answer(request, requestId);
    const headers: Record<string, string> = {
      ...response.headers,
      'x-amz-request-id': requestId,
      'x-amz-id-2': HOST_ID,
      server: 'AmazonS3',
    };
    if (response.body instanceof Uint8Array && response.status !== 204 && response.status !== 304) {
      headers['content-length'] ??= String(response.body.byteLength); // A HEAD already has that of the GET.
    }
    return { ...response, headers };
  }

  /**
   * Keeps an object as a clone of a file that has its content, where the file system can. Otherwise nothing changes.
   * @param isSame tells, after the clone was made, whether the file still had that content. Default: nobody changes it.
   */
  async shareBlocks(object: SharedObject, path: string, isSame = async (): Promise<boolean> => true): Promise<void> {
    const { catalog, bodies } = this.#service;
    const clone = bodies.clone(path);
    if (clone === undefined) return;
    let unused: readonly Segment[] = [clone];
    try {
      if (!(await isSame())) return;
      const { bucket, key } = object;
      const version =
        'versionId' in object ? catalog.version(bucket, key, object.versionId) : catalog.latest(bucket, key);
      const isRight = 'versionId' in object || version?.etag === unquoted(object.etag);
      if (version === undefined || !isRight || version.deleteMarker || version.bytes !== clone.bytes) return;
      catalog.updateVersion({ ...version, segments: [clone] });
      unused = version.segments;
    } finally {
      bodies.remove(unused);
    }
  }

  close(): void {
    this.#service.catalog.close();
  }

  async #answer(request: S3Request, requestId: string): Promise<S3Response> {
    let isStranger = true;
    try {
      const parsed = parseCall(request, requestId);
      const call = request.verifier ? authenticate(parsed, request.url, request.verifier) : parsed;
      isStranger = false;
      return await operationOf(call)(this.#service, call);
    } catch (error) {
      if (!(error instanceof S3Error)) throw error;
      return { ...errorResponse(error, request, requestId), isStranger };
    }
  }
}

function fileBodies(dir: string, catalog: Catalog, cloneFile: CloneFile | undefined): Bodies {
  const known = catalog.bodyIds();
  return new FileBodies(dir, (id) => known.has(id), cloneFile);
}

function errorResponse(error: S3Error, request: S3Request, requestId: string): S3Response {
  const { status, code, message, details, headers } = error;
  if (request.method === 'HEAD') return { status, headers, body: EMPTY };
  const resource = request.url.split('?')[0] ?? '';
  const root: XmlElement = [
    'Error',
    [
      ['Code', code],
      ['Message', message],
      ...Object.entries(details),
      ['Resource', resource],
      ['RequestId', requestId],
      ['HostId', HOST_ID],
    ],
  ];
  return { status, headers: { 'content-type': 'application/xml', ...headers }, body: xmlDocument(root) };
}

function parseCall({ method, url, headers, body }: S3Request, requestId: string): Call {
  const [path = '', query = ''] = url.split(/\?(.*)/s);
  const [, bucket = '', key = ''] = /^\/([^/]*)\/?(.*)$/s.exec(path) ?? [];
  try {
    return {
      method,
      bucket: decodeURIComponent(bucket),
      key: decodeURIComponent(key),
      query: parseQuery(query),
      headers,
      body,
      requestId,
    };
  } catch (cause) {
    throw new S3Error('InvalidURI', { cause }); // Not percent-encoded UTF-8.
  }
}

/** Headers that a policy may demand. The name of the condition is that of the header. */
const CONDITION_HEADERS = ['x-amz-server-side-encryption', 'x-amz-server-side-encryption-aws-kms-key-id'];

/** What a policy may look at. @see https://docs.aws.amazon.com/service-authorization/latest/reference/list_amazons3.html */
function conditionsOf({ query, headers }: Call): Record<string, string> {
  const all = [['prefix', query.get('prefix')], ...CONDITION_HEADERS.map((name) => [name, headers[name]])];
  return Object.fromEntries(all.flatMap(([name, value]) => (value === undefined ? [] : [[`s3:${name}`, value]])));
}

/** The access key of a client in this process, whose signature is not verified. */
function claimedAccessKeyId({ headers, query }: Call): string | undefined {
  const credential = /Credential=([^/,]+)/.exec(headers.authorization ?? '')?.[1];
  return credential ?? query.get('X-Amz-Credential')?.split('/')[0];
}

function parseQuery(query: string): Map<string, string> {
  const decode = (text: string) => decodeURIComponent(text.replaceAll('+', ' '));
  return new Map(
    query
      .split('&')
      .filter((pair) => pair !== '')
      .map((pair) => {
        const [name = '', value = ''] = pair.split(/=(.*)/s);
        return [decode(name), decode(value)];
      }),
  );
}
