import { createHash, randomUUID } from 'node:crypto';
import { isJobFile } from '../../functions/uploads/job-keys.ts';
import { BUCKETS, FILE_ETAG, FILE_MODIFIED, FILE_VERSION, TOKEN } from '../names.ts';
import { file } from './bytes.ts';
import type { WireAnswer, WireRequest } from './wire.ts';

/** A stored object. The body of a large one is empty. */
interface StoredObject {
  readonly body: Buffer;
  readonly etag: string;
  readonly metadata: Readonly<Record<string, string>>;
  /** Milliseconds since the epoch. */
  readonly lastModified: number;
}

const PAGE_KEYS_MAX = 1_000;

/**
 * The operations of S3, SQS, Secrets Manager and EventBridge that the functions use, at the speed of the wire. Files of
 * any size are generated as they are read (`<bytes>/<name>` in the inbox); only a job file must have been put. Large bodies are counted and discarded.
 * Small ones are kept, with conditional writes.
 *
 * This is not the embedded S3 of `local/aws/s3`, because a server must cost little beside what is measured. A PUT of 64
 * MiB to the embedded S3, with its HTTP, checks and storage, takes about five times as long as here. So the server
 * would be the bottleneck of every transfer, and hide what the functions cost. Rows that count requests or run the
 * whole pipeline use the embedded S3.
 */
export class Aws {
  readonly #objects = new Map<string, Map<string, StoredObject>>();
  /** Sorted keys by bucket and first segment. Dropped when a key is added or removed. */
  readonly #listings = new Map<string, readonly string[]>();
  #counts: Record<string, number> = {};
  #messages: string[] = [];

  /** The messages that the functions have sent since the last call. */
  takeMessages(): readonly string[] {
    const messages = this.#messages;
    this.#messages = [];
    return messages;
  }

  /** Requests by operation since the last call. */
  takeCounts(): Readonly<Record<string, number>> {
    const counts = this.#counts;
    this.#counts = {};
    return counts;
  }

  put(bucket: string, key: string, body: Buffer, { metadata = {}, lastModified = Date.now() } = {}): StoredObject {
    const objects = this.#bucket(bucket, key);
    if (!objects.has(key)) this.#listings.delete(listingOf(bucket, key));
    const object = {
      body,
      etag: `"${createHash('md5').update(body).update(randomUUID()).digest('hex')}"`,
      metadata,
      lastModified,
    };
    objects.set(key, object);
    return object;
  }

  get(bucket: string, key: string): StoredObject | undefined {
    return this.#bucket(bucket, key).get(key);
  }

  clear(): void {
    this.#objects.clear();
    this.#listings.clear();
  }

  readonly handle = (request: WireRequest): WireAnswer => {
    const target = request.headers['x-amz-target'];
    if (target !== undefined) return this.#json(target.split('.').at(-1) ?? '', request);
    const [, bucket = '', ...segments] = request.url.pathname.split('/');
    const key = decodeURIComponent(segments.join('/'));
    return this.#s3(bucket, key, request);
  };

  #json(operation: string, { body }: WireRequest): WireAnswer {
    this.#count(operation);
    if (operation === 'SendMessage') return this.#send(JSON.parse(body.toString()).MessageBody);
    const answers: Record<string, object> = {
      GetSecretValue: { Name: 'token', SecretString: TOKEN },
      PutEvents: { FailedEntryCount: 0, Entries: [{ EventId: randomUUID() }] },
    };
    return json(answers[operation]);
  }

  #send(message: string): WireAnswer {
    this.#messages.push(message);
    return json({ MessageId: randomUUID(), MD5OfMessageBody: createHash('md5').update(message).digest('hex') });
  }

  #s3(bucket: string, key: string, request: WireRequest): WireAnswer {
    const { method } = request;
    const query = request.url.searchParams;
    if (method === 'GET' && query.has('versions')) return this.#listVersions(query.get('prefix') ?? '');
    if (method === 'GET' && query.has('list-type')) return this.#list(bucket, query);
    if (query.has('uploads') || query.has('uploadId')) return this.#multipart(bucket, key, request);
    switch (method) {
      case 'PUT':
        return this.#put(bucket, key, request);
      case 'DELETE':
        this.#count('DeleteObject');
        if (this.#bucket(bucket, key).delete(key)) this.#listings.delete(listingOf(bucket, key));
        return { status: 204 };
      case 'GET':
      case 'HEAD':
        this.#count(method === 'GET' ? 'GetObject' : 'HeadObject');
        return this.#read(bucket, key);
    }
    return fault(501, 'NotImplemented');
  }

  #multipart(bucket: string, key: string, { method, url, headers }: WireRequest): WireAnswer {
    if (method === 'POST' && url.searchParams.has('uploads')) {
      this.#count('CreateMultipartUpload');
      return xml(`<InitiateMultipartUploadResult><UploadId>${randomUUID()}</UploadId></InitiateMultipartUploadResult>`);
    }
    if (method === 'PUT') {
      this.#count('UploadPart');
      const crc = headers['x-amz-checksum-crc32'];
      return {
        status: 200,
        headers: { ETag: '"part"', ...(crc === undefined ? {} : { 'x-amz-checksum-crc32': crc }) },
      };
    }
    if (method === 'DELETE') {
      this.#count('AbortMultipartUpload');
      return { status: 204 };
    }
    this.#count('CompleteMultipartUpload');
    const refusal = refused(headers, this.get(bucket, key));
    if (refusal !== undefined) return refusal;
    const { etag } = this.put(bucket, key, Buffer.alloc(0));
    return xml(
      `<CompleteMultipartUploadResult><ETag>${etag.replaceAll('"', '&quot;')}</ETag></CompleteMultipartUploadResult>`,
    );
  }

  #put(bucket: string, key: string, { headers, body }: WireRequest): WireAnswer {
    this.#count('PutObject');
    const refusal = refused(headers, this.get(bucket, key));
    if (refusal !== undefined) return refusal;
    const metadata = Object.fromEntries(
      Object.entries(headers).filter((header): header is [string, string] => header[0].startsWith('x-amz-meta-')),
    );
    return { status: 200, headers: { ETag: this.put(bucket, key, body, { metadata }).etag } };
  }

  #read(bucket: string, key: string): WireAnswer {
    if (bucket === BUCKETS.inbox) {
      const headers = {
        ETag: `"${FILE_ETAG}"`,
        'x-amz-version-id': FILE_VERSION,
        'Last-Modified': FILE_MODIFIED,
        'Content-Type': 'application/octet-stream',
      };
      if (!isJobFile(key)) return { status: 200, headers, body: file(Number(key.split('/')[0])) };
      const job = this.get(bucket, key);
      return job === undefined ? fault(404, 'NoSuchKey') : { status: 200, headers, body: job.body };
    }
    const object = this.get(bucket, key);
    if (object === undefined) return fault(404, 'NoSuchKey');
    return { status: 200, headers: { ETag: object.etag, ...object.metadata }, body: object.body };
  }

  /** The only version of a file of the inbox. Nothing lists more than that. */
  #listVersions(key: string): WireAnswer {
    this.#count('ListObjectVersions');
    const modified = new Date(FILE_MODIFIED).toISOString();
    return xml(
      `<ListVersionsResult><EncodingType>url</EncodingType><IsTruncated>false</IsTruncated><Version><Key>${encodeURIComponent(key)}</Key><VersionId>${FILE_VERSION}</VersionId><IsLatest>true</IsLatest><LastModified>${modified}</LastModified><ETag>&quot;${FILE_ETAG}&quot;</ETag><Size>0</Size></Version></ListVersionsResult>`,
    );
  }

  #list(bucket: string, query: URLSearchParams): WireAnswer {
    this.#count('ListObjectsV2');
    const prefix = query.get('prefix') ?? '';
    const after = query.get('continuation-token') ?? query.get('start-after') ?? '';
    const listing = listingOf(bucket, prefix);
    let keys = this.#listings.get(listing);
    if (keys === undefined) {
      // S3 sorts by UTF-8 bytes. All keys here are ASCII, so sort() by UTF-16 units gives the same order.
      keys = [...this.#bucket(bucket, prefix).keys()].sort();
      this.#listings.set(listing, keys);
    }
    const from = indexAfter(keys, after);
    const page = keys.slice(from, from + PAGE_KEYS_MAX).filter((key) => key.startsWith(prefix));
    const isCut = from + PAGE_KEYS_MAX < keys.length;
    const objects = this.#bucket(bucket, prefix);
    const contents = page.map((key) => {
      const modified = new Date(objects.get(key)?.lastModified ?? 0).toISOString();
      return `<Contents><Key>${key}</Key><LastModified>${modified}</LastModified><ETag>&quot;0&quot;</ETag><Size>0</Size><StorageClass>STANDARD</StorageClass></Contents>`;
    });
    const next = isCut ? `<NextContinuationToken>${page.at(-1)}</NextContinuationToken>` : '';
    return xml(`<ListBucketResult><IsTruncated>${isCut}</IsTruncated>${contents.join('')}${next}</ListBucketResult>`);
  }

  #bucket(bucket: string, key: string): Map<string, StoredObject> {
    const name = listingOf(bucket, key);
    let objects = this.#objects.get(name);
    if (objects === undefined) {
      objects = new Map();
      this.#objects.set(name, objects);
    }
    return objects;
  }

  #count(operation: string): void {
    this.#counts[operation] = (this.#counts[operation] ?? 0) + 1;
  }
}

/** The index of the first of the sorted keys that comes after a key. */
function indexAfter(keys: readonly string[], after: string): number {
  let from = 0;
  for (let to = keys.length; from < to; ) {
    const middle = (from + to) >> 1;
    if ((keys[middle] as string) > after) to = middle;
    else from = middle + 1;
  }
  return from;
}

/** Objects are kept by bucket and first segment of the key, because every listing asks for one of these. */
const listingOf = (bucket: string, key: string): string => `${bucket}/${key.split('/')[0]}`;

function refused(headers: WireRequest['headers'], object: StoredObject | undefined): WireAnswer | undefined {
  if (headers['if-none-match'] !== undefined && object !== undefined) return fault(412, 'PreconditionFailed');
  const match = headers['if-match'];
  if (match === undefined) return undefined;
  if (object === undefined) return fault(404, 'NoSuchKey');
  return object.etag === match ? undefined : fault(412, 'PreconditionFailed');
}

const json = (value: object | undefined): WireAnswer => ({
  status: 200,
  headers: { 'Content-Type': 'application/x-amz-json-1.1' },
  body: JSON.stringify(value),
});

const xml = (body: string, status = 200): WireAnswer => ({
  status,
  headers: { 'Content-Type': 'application/xml' },
  body: `<?xml version="1.0" encoding="UTF-8"?>${body}`,
});

const fault = (status: number, code: string): WireAnswer =>
  xml(`<Error><Code>${code}</Code><Message>${code}</Message></Error>`, status);
