import { describe, expect, it } from 'vitest';
import { createFlows } from '../../functions/create-flow/batch.ts';
import { TransportError } from '../../functions/flow-service/transport.ts';
import type { WaitingEntry } from '../../functions/ledger/entry.ts';
import { INBOX, LEDGER, MINUTE, RESULTS, start, type WorldOptions, world } from '../support/world.ts';

describe('a file that kills its invocation', () => {
  /** A world in which `crasher` kills each invocation that sends it. Nothing that it asks for after that is done. */
  async function startMortal(options: WorldOptions) {
    await start(options);
    const life = { isOver: false, deaths: 0 };
    const demandLife = () => {
      if (life.isOver) throw new Error('killed');
    };
    world.beforeS3(demandLife);
    const { flows } = world.ports;
    const { create } = flows;
    flows.create = async (request, signal) => {
      // By then all files of a batch are claimed, and none has been sent.
      await world.clock.sleep(request.inputs[0]?.additional.key === 'crasher' ? 100 : 200, signal);
      if (request.inputs[0]?.additional.key === 'crasher') {
        life.isOver = true;
        life.deaths += 1;
      }
      demandLife();
      return create.call(flows, request, signal);
    };
    return life;
  }

  it('costs the other files of its batch one attempt and no more', async () => {
    const life = await startMortal({ settings: { attemptsMax: 2 } });
    const others = ['a', 'b', 'c', 'd'];
    for (const key of ['crasher', ...others]) await world.upload(key, key);
    for (let i = 0; i < 12; i += 1) {
      while ((await world.deliver()) !== undefined) life.isOver = false;
      await world.tickAfter(5 * MINUTE);
    }
    for (const key of others) expect((await world.receipt(key)).status).toBe('succeeded');
    expect((await world.receipt('crasher')).failure?.code).toBe('attempts-exhausted');
    expect(life.deaths).toBe(2);
    expect(world.service.flows).toHaveLength(others.length);
    expect(world.count('UploadsReceived')).toBeLessThanOrEqual(10);
    await world.tickAfter(61 * MINUTE);
    expect(await world.keys(LEDGER, 'waiting/')).toEqual([]);
  });
});

describe('large files that share a slow line', () => {
  it('are sent one after the other once their time ran out', async () => {
    /** The line carries one file in three minutes. Side by side, ten take longer than an invocation has. */
    const alone = 3 * MINUTE;
    let sending = 0;
    await start({
      transport: (direct) => async (request, signal) => {
        if (request.method !== 'POST') return direct(request, signal);
        sending += 1;
        try {
          for (let done = 0; done < alone; done += MINUTE / sending) await world.clock.sleep(MINUTE, signal);
        } catch (cause) {
          throw new TransportError('The request was given up', { sent: 'part', cause });
        } finally {
          sending -= 1;
        }
        return direct(request, signal);
      },
    });
    world.remainingMs = 15 * MINUTE;
    const keys = Array.from({ length: 10 }, (_, n) => `${n}.bin`);
    for (const key of keys) await world.upload(key, key);
    await world.settle();
    for (const key of keys) expect((await world.receipt(key)).status).toBe('succeeded');
  });
});

describe('an upload that the pace kept waiting past half of the time', () => {
  it('waits in the ledger as throttled, due at once if it was never sent', async () => {
    await start({ settings: { uploadConcurrency: 1 } });
    world.remainingMs = MINUTE;
    // The first upload is refused, then takes more than half of the time. All others are refused.
    world.service.intercept = (_, { operation, n }) => {
      if (operation !== 'createFlow') return undefined;
      if (n === 2) world.clock.advance(30_000);
      return n === 2 ? undefined : { status: 429, headers: { 'retry-after': '1' } };
    };
    for (const key of ['a', 'b', 'c', 'd']) await world.upload(key);
    const startedAt = world.clock.now();
    expect((await world.deliver())?.batchItemFailures).toEqual([]);
    const endedAt = world.clock.now();
    expect(endedAt - startedAt).toBeGreaterThan(MINUTE / 2);
    expect(world.queue.counts()).toMatchObject({ visible: 0, inFlight: 0 });
    // The second upload was sent and refused. After that the service was left alone.
    expect(world.service.counts.createFlow).toBe(3);
    expect(world.sentKeys).toEqual(['a']);
    expect(await world.keys(LEDGER, 'waiting/turn/live/echo/!/')).toHaveLength(3);
    for (const entry of await world.entries()) {
      if (entry.upload.key === 'a') continue;
      expect(entry).toMatchObject({ state: 'waiting', reason: 'throttled', attempts: 0 });
      if (entry.upload.key !== 'b') expect((entry as WaitingEntry).notBefore).toBeLessThanOrEqual(endedAt + 2_000);
    }
  });

  it('goes back unattempted if no creation was refused', async () => {
    await start({ settings: { uploadConcurrency: 1 } });
    world.remainingMs = MINUTE;
    world.service.intercept = (_, { operation }) => {
      if (operation === 'createFlow') world.clock.advance(30_000);
      return undefined;
    };
    for (const key of ['a', 'b', 'c']) await world.upload(key, 'x');
    expect((await world.deliver())?.batchItemFailures).toHaveLength(2);
    expect(world.service.flows).toHaveLength(1);
    expect(await world.keys(LEDGER, 'uploads/')).toHaveLength(1);
  });
});

describe('uploads that the service refuses for ever', () => {
  it('hold their invocation for little more than a minute', async () => {
    await start();
    world.remainingMs = 15 * MINUTE;
    world.fault('createFlow', { status: 429, headers: { 'retry-after': '5' } });
    for (let i = 0; i < 5; i += 1) await world.upload(`refused-${i}`, 'x');
    const startedAt = world.clock.now();
    await world.deliver();
    expect(world.clock.now() - startedAt).toBeLessThan(1.2 * MINUTE);
    expect(await world.keys(LEDGER, 'waiting/turn/live/echo/!/')).toHaveLength(5);
  });
});

describe('uploads that waited in the queue for longer than a minute', () => {
  it('do not wait in place for a limited service, so that the next file need not wait in the queue', async () => {
    await start();
    world.remainingMs = 15 * MINUTE;
    world.fault('createFlow', { status: 429, headers: { 'retry-after': '5' } });
    await world.send('refused');
    world.service.intercept = undefined;
    const placedAfter = async (queuedMs: number): Promise<number> => {
      for (let n = 0; n < 10; n += 1) await world.upload(`${queuedMs}-${n}`);
      const attributes = { SentTimestamp: `${world.clock.now() - queuedMs}` };
      const records = world.takeMessages().map((body, n) => ({ messageId: `${n}`, body, attributes }));
      const startedAt = world.clock.now();
      await world.invoke((invocation) => createFlows({ Records: records }, world.ports, invocation));
      return world.clock.now() - startedAt;
    };
    expect(await placedAfter(2 * MINUTE)).toBeLessThan(2_000);
    expect(await world.keys(LEDGER, 'waiting/turn/live/echo/!/')).not.toHaveLength(1);
    const sent = world.service.flows.length;
    expect(await placedAfter(0)).toBeGreaterThan(5_000);
    expect(world.service.flows).toHaveLength(sent + 10);
  });
});

describe('uploads that the ledger refuses', () => {
  it('are given back to the queue, counted, and named with the reason', async () => {
    await start({ s3: { authorize: ({ resource }) => !resource.includes(`:::${LEDGER}`) } });
    for (const key of ['a', 'b']) await world.upload(key, 'x');
    expect((await world.deliver())?.batchItemFailures).toHaveLength(2);
    expect(world.count('UploadsReturned')).toBe(2);
    const lines = world.logged.filter(({ message }) => message.startsWith('This delivery failed.'));
    expect(lines.map(({ fields }) => fields.key).sort()).toEqual(['a', 'b']);
    for (const { fields } of lines) expect(String(fields.error)).toContain('AccessDenied');
    expect(world.service.flows).toHaveLength(0);
  });
});

describe('a message', () => {
  const put = (object: object, bucket = INBOX, more: object = {}) =>
    JSON.stringify({
      Records: [{ eventName: 'ObjectCreated:Put', s3: { bucket: { name: bucket }, object }, ...more }],
    });

  /** A world with the file `there`, whose message is lost, and with another message. */
  async function startWith(body: string): Promise<void> {
    await start();
    await world.upload('there', 'x');
    world.takeMessages();
    world.queue.send(body);
  }

  // `test/uploads/upload-event.test.ts` has the other messages that cannot be parsed.
  it.each([
    ['that is not JSON', 'not JSON'],
    ['of lists in lists', '['.repeat(100_000) + ']'.repeat(100_000)],
    ['of a long object', JSON.stringify({ a: 'x'.repeat(200_000) })],
    ['of a version that S3 refuses', put({ key: 'there', versionId: 'a\r\nX-Evil: b' })],
  ])('%s becomes a dead letter, and harms no other message', async (_, body) => {
    await startWith(body);
    expect((await world.send('another'))?.batchItemFailures).toHaveLength(1);
    expect(world.sentKeys).toEqual(['another']);
    const errors = world.logged.filter(({ level }) => level === 'error').map(({ fields }) => fields.error as Error);
    expect(errors.length).toBeGreaterThan(0);
    for (const { message } of errors) expect(message.length).toBeLessThan(2_000);
    for (let i = 0; i < 6; i += 1) {
      world.clock.advance(3 * MINUTE);
      await world.deliver();
    }
    expect(world.deadLetters.counts().visible).toBe(1);
    expect(await world.keys(LEDGER, 'uploads/')).toHaveLength(1);
  });

  it.each([
    ['no records', '{"Records":[]}'],
    ['an object that is not there', put({ key: '__proto__' })],
    ['a version that is not there', put({ key: 'there', versionId: 'f'.repeat(32) })],
    ['the ETag of another object', put({ key: 'there', eTag: '0'.repeat(32) })],
    ['an object of the results bucket', put({ key: 'there' }, RESULTS)],
    ['a bucket called ..', put({ key: 'there' }, '..')],
  ])('of %s succeeds at once, without a flow', async (_, body) => {
    await startWith(body);
    await world.put(RESULTS, 'there', 'x');
    expect(await world.deliver()).toEqual({ batchItemFailures: [] });
    expect(world.service.counts.createFlow).toBe(0);
    expect(await world.keys(LEDGER, 'uploads/')).toEqual([]);
  });

  it('of an unknown upload id and a negative size is taken as an upload', async () => {
    await startWith(put({ key: 'there', size: -1 }, INBOX, { flowdrop: { uploadId: '0'.repeat(40) } }));
    expect(await world.deliver()).toEqual({ batchItemFailures: [] });
    expect((await world.settled('there')).status).toBe('succeeded');
  });

  it('of many records is worked on until the time is over, and comes again for the rest', async () => {
    const [record] = JSON.parse(put({ key: 'there' })).Records;
    await startWith(JSON.stringify({ Records: Array(500).fill(record) }));
    world.beforeS3(() => world.clock.sleep(50));
    world.remainingMs = 4_000;
    expect((await world.deliver())?.batchItemFailures).toHaveLength(1);
    expect(world.count('UploadsReceived')).toBeLessThan(500);
    expect(world.service.flows).toHaveLength(1);
  });
});
