import { createHash } from 'node:crypto';
import { eventBridgeEvent, type S3EventRecord, testEvent } from '../../local/aws/s3/events.ts';
import { INBOX, NEXT_INBOX, RESULT_BUCKETS } from './names.ts';
import type { Put } from './observations.ts';
import { MINUTE, SECOND } from './timeline.ts';
import type { World } from './world.ts';

/** What S3 tells of an object. The embedded S3 knows no copies: the simulation puts the same content again. */
type Announced = Omit<S3EventRecord, 'eventName'> & {
  readonly eventName: S3EventRecord['eventName'] | 'ObjectCreated:Copy';
};

/** The same as an event of EventBridge. Undefined for a removal. */
function bridged(record: Announced): object | undefined {
  const isCopy = record.eventName === 'ObjectCreated:Copy';
  const event = eventBridgeEvent(isCopy ? { ...record, eventName: 'ObjectCreated:Put' } : (record as S3EventRecord));
  return isCopy && event !== undefined ? { ...event, detail: { ...event.detail, reason: 'CopyObject' } } : event;
}

/**
 * S3's notifications of the inbox on their way to the queue. In a storm they come late, more than once, or in another
 * order, and in a lossy world some never come.
 */
export class Notifications {
  readonly #world: World;
  #underwayCount = 0;
  /** All messages that ever went into the queue from outside. */
  readonly messages: string[] = [];

  constructor(world: World) {
    this.#world = world;
  }

  /** Number of notifications that have not reached the queue yet. */
  get underwayCount(): number {
    return this.#underwayCount;
  }

  /** Puts a message into the queue. */
  send(message: string): void {
    this.messages.push(message);
    this.#world.queue.send(message);
  }

  onS3Event(happened: S3EventRecord): void {
    const { bucket, object } = happened.s3;
    const key = decodeURIComponent(object.key.replaceAll('+', ' '));
    const isCreated = happened.eventName.startsWith('ObjectCreated');
    const isCopy = isCreated && this.#world.copying.has(key);
    const record: Announced = isCopy ? { ...happened, eventName: 'ObjectCreated:Copy' } : happened;
    const isResult = RESULT_BUCKETS.some((name) => name === bucket.name);
    if (isResult && isCreated) this.#world.observed.noteWrite(bucket.name, key);
    if (bucket.name !== INBOX && bucket.name !== NEXT_INBOX) return;
    this.#notify(record, isCreated ? this.#notePut(record, key) : undefined);
  }

  #notePut({ s3: { bucket, object } }: Announced, key: string): Put {
    const { scenario, timeline, observed } = this.#world;
    const step = scenario.steps.find(
      (one) => one.kind === 'put' && one.key === key && etagsOf(one.content).includes(object.eTag ?? ''),
    );
    // The object of a multipart upload bears the date of its beginning.
    const modifiedAt = this.#world.completing.get(key) ?? timeline.now();
    const put: Put = {
      bucket: bucket.name,
      key,
      versionId: object.versionId === 'null' ? undefined : object.versionId,
      etag: object.eTag ?? '',
      lastModified: Math.floor(modifiedAt / SECOND) * SECOND,
      content: step?.kind === 'put' ? step.content : Buffer.alloc(0),
      isCopy: this.#world.copying.has(key),
      isNotified: false,
      at: timeline.now(),
    };
    observed.puts.push(put);
    return put;
  }

  #notify(record: Announced, put: Put | undefined): void {
    const world = this.#world;
    const { scenario, timeline } = world;
    const random = world.randoms.main;
    if (scenario.kind === 'backfill' && !put?.key.startsWith('two/')) return;
    if (scenario.kind !== 'storm') {
      this.#sendLater(record, put, random.int(10, SECOND));
      return;
    }
    if (random.chance(0.05)) world.queue.send(JSON.stringify(testEvent(world.inbox, timeline.now())));
    if (scenario.isLossy && random.chance(scenario.backfillsAt.length > 0 ? 0.8 : 0.3)) {
      world.trace(`lost: the notification of ${record.s3.object.key}`);
      return;
    }
    const copies = random.chance(0.25) ? random.int(2, 3) : 1;
    for (let copy = 0; copy < copies; copy += 1) {
      this.#sendLater(record, put, random.chance(0.7) ? random.int(10, 3 * SECOND) : random.int(0, 8 * MINUTE));
    }
  }

  #sendLater(record: Announced, put: Put | undefined, delayMs: number): void {
    const { timeline, randoms } = this.#world;
    const event = randoms.main.chance(0.3) ? bridged(record) : undefined;
    this.#underwayCount += 1;
    timeline.schedule(timeline.now() + delayMs, () => {
      this.#underwayCount -= 1;
      if (put !== undefined) put.isNotified = true;
      this.send(JSON.stringify(event ?? { Records: [record] }));
    });
  }
}

/** The ETags that an object of this content can have: put at once, and by a multipart upload of one part. */
function etagsOf(content: Buffer): readonly string[] {
  const digest = createHash('md5').update(content).digest();
  return [digest.toString('hex'), `${createHash('md5').update(digest).digest('hex')}-1`];
}
