import { CreateBucketCommand } from '@aws-sdk/client-s3';
import { describe, expect, it } from 'vitest';
import type { Json } from '../../functions/base/json.ts';
import type { Fault } from '../../local/flow-service/fault.ts';
import type { Variation } from '../../local/flow-service/variation.ts';
import { viewOf } from '../../operations/upload-view.ts';
import { speaking } from '../support/speaking.ts';
import { dyingAt, ECHO, LEDGER, MINUTE, start, type WorldOptions, world } from '../support/world.ts';

// A service that honours idempotency keys answers a repeated request with the flow of the first one. So a lost answer costs
// nothing, also if the service lists no flows.

const LOST: Fault = { reset: 'after-effect' };
const refused = (status: number, headers = {}): Fault => ({
  status,
  headers: { 'content-type': 'application/json', ...headers },
  body: '{"detail":"no"}',
});

interface Service {
  readonly hours?: number;
  readonly listFlows?: Variation['listFlows'];
  readonly settings?: WorldOptions['settings'];
  readonly routes?: WorldOptions['routes'];
}

/** Starts a world whose service honours keys and, unless the test says otherwise, lists no flows. */
async function startWithKeys({ hours = 24, listFlows = 404, ...options }: Service = {}): Promise<void> {
  const speaks: Json = listFlows === 404 ? { list: null } : {};
  const service = { variation: { idempotencyHours: hours, listFlows } };
  await start({ speaks, service, ...options });
  world.remainingMs = 10 * MINUTE;
}

/** Answers the creations with these faults, one after the other, and the later ones without. Returns their keys. */
function answerWith(...faults: readonly (Fault | undefined)[]): string[] {
  const keys: string[] = [];
  world.service.intercept = ({ headers }, { operation }) => {
    if (operation !== 'createFlow') return undefined;
    keys.push(headers['idempotency-key'] ?? 'none');
    return faults[keys.length - 1];
  };
  return keys;
}

/** The beginning of the SHA-256 of the ledger's name. */
const LEDGER_MARK = 'fe14010b';

/** The key of the upload of this world. */
const key = async (number: number, generation = 1): Promise<string> =>
  `${(await world.entry()).upload.id.slice(0, 24)}-${LEDGER_MARK}-${generation}-${number}`;

async function moveLedger(ledgerBucket: string): Promise<void> {
  await world.s3.send(new CreateBucketCommand({ Bucket: ledgerBucket }));
  for (const each of await world.keys(LEDGER)) {
    await world.put(ledgerBucket, each, (await world.object(LEDGER, each)).bytes.toString());
  }
  world.redeploy({ ledgerBucket });
}

describe('an answer that was lost', () => {
  it('is asked for at once with the same key, and makes one flow and one entry', async () => {
    await startWithKeys();
    const keys = answerWith(LOST);
    await world.send('a', 'x');
    expect(keys).toEqual([await key(1), await key(1)]);
    expect(world.service.flows).toHaveLength(1);
    expect(await world.entry()).toMatchObject({
      state: 'running',
      isSentAgain: true,
      flow: { id: world.service.flows[0]?.id },
    });
    expect((await world.settled('a')).status).toBe('succeeded');
    expect(viewOf(await world.entry(), world.ports.settings)).toMatchObject({ state: 'succeeded', isSentAgain: true });
    expect(world.count('DoubtsRetried')).toBe(0);
  });

  it('is asked for in the next invocation, if this one has no time left', async () => {
    await startWithKeys();
    world.remainingMs = 20_000;
    const keys = answerWith(LOST);
    await world.send('a', 'x');
    expect(await world.entry()).toMatchObject({ state: 'waiting', reason: 'in-doubt', doubt: {} });
    expect((await world.settled('a')).status).toBe('succeeded');
    expect(keys).toEqual([await key(1), await key(1)]);
    expect(world.service.flows).toHaveLength(1);
  });

  it('is asked for as soon as the claim of an invocation that died is over', async () => {
    await startWithKeys({ settings: { inDoubt: 'ask' } });
    const keys = answerWith();
    const revive = dyingAt(world.ports.ledger, 'replace');
    await world.send('a', 'x');
    revive();
    expect(await world.entry()).toMatchObject({ state: 'claimed' });
    world.clock.advance(12 * MINUTE);
    await world.deliverAll();
    expect(await world.entry()).toMatchObject({ state: 'running', isSentAgain: true });
    expect(keys).toEqual([await key(1), await key(1)]);
    expect(world.service.flows).toHaveLength(1);
  });

  it('is found first if the service lists the flow, so that the file is not sent twice', async () => {
    await startWithKeys({ listFlows: 'served' });
    const keys = answerWith(LOST);
    await world.send('a', 'x');
    expect(keys).toHaveLength(1);
    expect(await world.entry()).toMatchObject({ state: 'running' });
    expect((await world.entry()).isSentAgain).toBeUndefined();
  });

  it('is asked for with the bytes of the first request, although its route has changed since', async () => {
    const additional = { b: 1, a: { 10: true, 2: false } };
    await startWithKeys({ routes: [{ ...ECHO, parameters: { copies: 2 }, additional }] });
    world.remainingMs = 20_000;
    answerWith(LOST);
    await world.send('a', 'x');
    world.redeploy({ pipeline: 'renamed', routes: [{ ...ECHO, parameters: { copies: 1 } }] });
    expect((await world.settled('a')).assets).toHaveLength(2);
    expect(world.service.flows).toHaveLength(1);
  });

  it('counts as one flow in a budget', async () => {
    await startWithKeys({ settings: { budget: { flows: 1, per: 'day', timezone: 'UTC' } } });
    world.remainingMs = 20_000;
    answerWith(LOST);
    await world.send('a', 'x');
    expect((await world.settled('a')).status).toBe('succeeded');
    expect((await world.ports.holds.read(new AbortController().signal)).pipeline.spent?.flows).toBe(1);
  });

  it('is not asked for beyond the time for which the service honours a key', async () => {
    await startWithKeys({ hours: 1, settings: { inDoubt: 'ask', attemptsMax: 100 } });
    const keys = answerWith(...Array<Fault>(50).fill(refused(500)));
    await world.upload('a', 'x');
    await world.deliverAndTick(11, 5 * MINUTE);
    const within = keys.length;
    expect(within).toBeGreaterThan(2);
    await world.deliverAndTick(20, 20 * MINUTE);
    expect(keys).toHaveLength(within);
    expect(new Set(keys).size).toBe(1);
    expect(await world.entry()).toMatchObject({ state: 'waiting', reason: 'undecided' });
  });

  it('waits for the operator once the attempts are used up', async () => {
    await startWithKeys({ settings: { inDoubt: 'ask', attemptsMax: 3 } });
    const keys = answerWith(...Array<Fault>(50).fill(refused(500)));
    await world.upload('a', 'x');
    await world.waitOutDoubt();
    expect(keys).toHaveLength(3);
    expect(await world.entry()).toMatchObject({ state: 'waiting', reason: 'undecided' });
  });
});

describe('a refusal of a request that is sent again', () => {
  it('does not end the upload, because the first request may have made a flow', async () => {
    await startWithKeys({ settings: { inDoubt: 'ask' } });
    const keys = answerWith(LOST, refused(422));
    await world.upload('a', 'x');
    await world.waitOutDoubt();
    expect(await world.entry()).toMatchObject({ state: 'waiting', reason: 'undecided', doubt: { isKeySpent: true } });
    expect(keys).toHaveLength(2);
  });

  it('is waited out if the service still works at the first request', async () => {
    await startWithKeys({ settings: { inDoubt: 'ask' } });
    const keys = answerWith(LOST, refused(409), refused(429, { 'retry-after': '1' }));
    await world.upload('a', 'x');
    expect((await world.settled('a')).status).toBe('succeeded');
    expect(new Set(keys)).toEqual(new Set([await key(1)]));
    expect(world.service.flows).toHaveLength(1);
  });

  it('does not give back what is counted in a budget', async () => {
    await startWithKeys({ settings: { inDoubt: 'ask', budget: { flows: 1, per: 'day', timezone: 'UTC' } } });
    answerWith(LOST, refused(422));
    await world.send('a', 'x');
    expect((await world.ports.holds.read(new AbortController().signal)).pipeline.spent?.flows).toBe(1);
  });
});

it('a file that is gone by then ends its upload only after a search for its flow', async () => {
  await startWithKeys({ listFlows: 'served' });
  world.service.variation.listingDelayMs = 4 * MINUTE;
  world.remainingMs = 20_000;
  answerWith(LOST);
  await world.upload('a', 'x');
  await world.deliverAll();
  const { upload } = await world.entry();
  world.beforeS3((call, { Bucket, Key }) => {
    if (call === 'GetObject' && Bucket === upload.bucket && Key === 'a') {
      throw Object.assign(new Error('gone'), { name: 'NoSuchVersion', $metadata: { httpStatusCode: 404 } });
    }
  });
  expect((await world.settled('a')).status).toBe('succeeded');
  expect(world.service.flows).toHaveLength(1);
});

describe('a key', () => {
  it('is another one after a refusal, and is in the ledger before it is sent', async () => {
    await startWithKeys();
    const keys = answerWith(refused(429, { 'retry-after': '1' }), LOST);
    const revive = dyingAt(world.ports.ledger, 'replace', 3);
    await world.send('a', 'x');
    revive();
    expect(await world.entry()).toMatchObject({ state: 'claimed', keyNumber: 2 });
    world.clock.advance(12 * MINUTE);
    await world.deliverAll();
    expect((await world.settled('a')).status).toBe('succeeded');
    expect(new Set(keys.slice(1))).toEqual(new Set([await key(2)]));
    expect(keys[0]).toBe(await key(1));
    expect(world.service.flows).toHaveLength(1);
  });

  it('is another one after an attempt that certainly made no flow', async () => {
    await startWithKeys();
    const keys = answerWith({ ...refused(500), at: 'before-body' }, refused(401), refused(401), undefined);
    await world.upload('a', '.'.repeat(500_000));
    expect((await world.settled('a')).status).toBe('succeeded');
    expect(new Set(keys).size).toBe(keys.length);
  });

  it('is another one once a listing proves that no flow was made', async () => {
    await startWithKeys({ listFlows: 'served', hours: 0.1 });
    const keys = answerWith(undefined, { status: 500 });
    await world.upload('b', 'y');
    await world.settle();
    await world.upload('a', 'x');
    expect((await world.settled('a')).status).toBe('succeeded');
    const numbers = keys.map((each) => each.slice(34));
    expect(numbers).toEqual(['1-1', '1-1', '1-2']);
  });

  it('names the generation', async () => {
    await startWithKeys();
    const keys = answerWith(refused(422));
    await world.send('a', 'x');
    await world.settle();
    expect(await world.entry()).toMatchObject({ state: 'failed' });
    await world.retry();
    expect((await world.settled('a')).status).toBe('succeeded');
    expect(keys).toEqual([await key(1, 1), await key(2, 2)]);
  });

  it('tells pipelines apart that watch one inbox, also without declared hours, and has at most 40 characters', async () => {
    await startWithKeys();
    const keys = answerWith();
    await world.upload('a', 'x');
    const [message] = world.queue.receive();
    world.queue.delete(message?.receiptHandle ?? '');
    for (const hours of [24, 0]) {
      const ledgerBucket = `ledger-${hours}`;
      await world.s3.send(new CreateBucketCommand({ Bucket: ledgerBucket }));
      world.redeploy({ ledgerBucket, service: speaking({ list: null, create: { idempotency: { hours } } }) });
      world.queue.send(message?.body ?? '');
      await world.deliverAll();
    }
    expect(world.service.flows).toHaveLength(2);
    expect(new Set(keys).size).toBe(2);
    for (const each of keys) expect(each.length).toBeLessThanOrEqual(40);
  });

  it('stays the same in doubt if the ledger is moved', async () => {
    await startWithKeys();
    world.remainingMs = 20_000;
    const keys = answerWith(LOST);
    await world.send('a', 'x');
    expect(await world.entry()).toMatchObject({ state: 'waiting', doubt: {} });
    await moveLedger('moved');
    world.clock.advance(5 * MINUTE);
    await world.collect();
    await world.deliverAll();
    expect(keys[1]).toBe(keys[0]);
  });

  it('is sent to a service that honours none, and changes nothing there', async () => {
    await startWithKeys({ hours: 0, settings: { inDoubt: 'ask' } });
    const keys = answerWith(LOST);
    await world.upload('a', 'x');
    await world.waitOutDoubt();
    expect(keys).toEqual([await key(1)]);
    expect(await world.entry()).toMatchObject({ state: 'waiting', reason: 'undecided' });
  });
});

it.each([
  ['superseded', () => world.upload('a', 'other')],
  ['attempts-exhausted', () => world.fault('createFlow', refused(500))],
  ['outside-inbox', () => world.redeploy({ inboxPrefix: 'elsewhere/' })],
  ['cancelled', async () => world.collect({ cancel: [(await world.entry()).upload.id] })],
])('a failure of an upload in doubt says that a request may have made a flow: %s', async (code, act) => {
  await start({ speaks: { list: null }, versioning: undefined, settings: { inDoubt: 'retry', attemptsMax: 3 } });
  world.remainingMs = 20_000;
  world.fault('createFlow', { ...LOST }, 1);
  await world.send('a', 'x');
  const { upload } = await world.entry();
  await act();
  world.takeMessages();
  await world.deliverAndTick(30, 5 * MINUTE);
  const ended = (await world.entries()).find((entry) => entry.upload.id === upload.id);
  expect(ended).toMatchObject({ state: 'failed', failure: { code } });
  expect(ended).toMatchObject({
    failure: { message: expect.stringMatching(/\. A request may have made a flow .* before you retry\.$/) },
  });
});
