import { Readable } from 'node:stream';
import { S3Client } from '@aws-sdk/client-s3';
import { onTestFinished } from 'vitest';
import { FLOWS } from '../../functions/flow-service/services.ts';
import { type Entry, ended, firstClaim, running, runningMarkerOf } from '../../functions/ledger/entry.ts';
import { entryKey, runningKey } from '../../functions/ledger/keys.ts';
import { Ledger } from '../../functions/ledger/store.ts';
import { SETTINGS_DEFAULT } from '../../functions/settings/settings.ts';
import { Inbox } from '../../functions/uploads/inbox.ts';
import { uploadId } from '../../functions/uploads/upload.ts';
import { serveS3 } from '../../local/aws/s3/http.ts';
import { EmbeddedS3 } from '../../local/aws/s3/s3.ts';
import type { Deployment } from '../../operations/deployment.ts';
import { serve, Visitor } from './support.ts';

export const MINUTE_MS = 60_000;
export const DAY_MS = 24 * 60 * MINUTE_MS;
const CREDENTIALS = { accessKeyId: 'fake', secretAccessKey: 'obviously-fake' };
const LEDGER = 'ledger';
const ROUTE = { name: 'echo', input: 'file', template: 'bytes_echo' } as const;
const TERMS = { claimedAt: 0, deadline: 0, pipeline: 'test', keyScope: '' };

/** A ledger on a real S3, without a pipeline that changes it. */
export class World {
  readonly now = Date.now();
  /** Reads of entries. */
  reads = 0;
  lists = 0;
  /** Reads of the costs of a day. */
  costReads = 0;
  /** Answers every request with an error while it is true. */
  isDown = false;
  /** While it is set, S3 reads nothing of a file. */
  gate: Promise<void> | undefined;
  readonly deployment: Deployment;
  readonly #embedded: EmbeddedS3;

  /** @param atEnd is given what closes the world. Default: at the end of the test. */
  static async start(atEnd: (close: () => Promise<void>) => unknown = onTestFinished): Promise<World> {
    let world: World | undefined;
    const embedded = new EmbeddedS3({
      authorize: ({ action, resource, accessKeyId }) => {
        if (world === undefined || accessKeyId !== CREDENTIALS.accessKeyId) return true;
        if (action === 's3:GetObject' && resource.includes('/uploads/')) world.reads += 1;
        if (action === 's3:GetObject' && resource.includes('/state/costs/')) world.costReads += 1;
        if (action === 's3:ListBucket') world.lists += 1;
        return !world.isDown;
      },
    });
    for (const name of ['inbox', 'results', LEDGER]) embedded.createBucket(name);
    const handle: EmbeddedS3['handle'] = async (request) => {
      if (request.method === 'PUT') await world?.gate;
      return embedded.handle(request);
    };
    const served = await serveS3({ handle } as EmbeddedS3, { credentials: [CREDENTIALS] });
    atEnd(() => served.close());
    world = new World(embedded, served.endpoint);
    return world;
  }

  private constructor(embedded: EmbeddedS3, endpoint: string) {
    const region = 'us-east-1';
    this.#embedded = embedded;
    const s3 = new S3Client({ region, credentials: CREDENTIALS, endpoint });
    const clock = { now: () => this.now, sleep: async () => {} };
    const settings = {
      ...SETTINGS_DEFAULT,
      ...{ pipeline: 'test', inboxBucket: 'inbox', resultsBucket: 'results', ledgerBucket: LEDGER, routes: [] },
      ...{ baseUrl: new URL('https://flows.example.com'), service: FLOWS, proxies: {} },
    };
    this.deployment = {
      ...{ name: 'a test', isLocal: true, areRoutesKnown: true, settings, s3, clock, access: {} },
      ledger: new Ledger(s3, LEDGER, () => 'nonce'),
      aliases: { read: async () => undefined },
      inbox: new Inbox(s3, clock),
      queueDepth: async () => ({ visible: 0, inFlight: 0 }),
      deadLetterCount: async () => 0,
      close: () => s3.destroy(),
    } as unknown as Deployment;
  }

  /** An upload that came some time ago, in milliseconds. */
  claimed(key: string, age = 0): Extract<Entry, { state: 'claimed' }> {
    const lastModified = Math.floor((this.now - age) / 1_000) * 1_000;
    const facts = { bucket: 'inbox', key, etag: 'e', lastModified };
    const upload = { ...facts, id: uploadId(facts), bytes: 1, mediaType: 'image/png' };
    return firstClaim(upload, ROUTE, { ...TERMS, arrivedAt: lastModified });
  }

  async put(entry: Entry): Promise<string> {
    await this.putObject(entryKey(entry.upload.id), JSON.stringify(entry));
    return entry.upload.id;
  }

  putObject(key: string, body = '', bucket = LEDGER): Promise<void> {
    return this.#send('PUT', `${bucket}/${key}`, Buffer.from(body));
  }

  remove(key: string): Promise<void> {
    return this.#send('DELETE', `${LEDGER}/${key}`, Buffer.alloc(0));
  }

  /** Without a socket, because there are many, and uncounted. */
  async #send(method: string, path: string, body: Buffer): Promise<void> {
    const url = `/${path.split('/').map(encodeURIComponent).join('/')}`;
    const headers = { host: 's3.test', 'content-length': String(body.length) };
    const { status } = await this.#embedded.handle({ method, url, headers, body: Readable.from([body]) });
    if (status >= 300) throw new Error(`S3 answered ${status}`);
  }

  /** An upload that ran before the window, and is retried. */
  async putOld(key: string): Promise<{ id: string; end(): Promise<void> }> {
    const flow = { id: 'f', createdAt: this.now };
    const entry = running({ ...this.claimed(key, 30 * DAY_MS), arrivedAt: this.now }, flow);
    const marker = runningKey(runningMarkerOf(entry.upload, flow));
    const id = await this.put(entry);
    await this.putObject(marker);
    return {
      id,
      end: async () => {
        await this.put(ended(entry, {}, this.now));
        await this.remove(marker);
      },
    };
  }
}

/** A page without a pipeline behind it, for what no function takes part in, and a visitor of the page. */
export async function visitWorld(): Promise<{ world: World; visitor: Visitor }> {
  const world = await World.start();
  const { url } = await serve(world.deployment);
  return { world, visitor: await Visitor.open(url) };
}
