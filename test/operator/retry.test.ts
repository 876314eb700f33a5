import { DeleteObjectCommand } from '@aws-sdk/client-s3';
import { describe, expect, it } from 'vitest';
import { LEDGER_FORMAT } from '../../functions/ledger/entry-schema.ts';
import { retryUploads } from '../../functions/operator/retry.ts';
import type { Settings } from '../../functions/settings/environment.ts';
import type { GivenOverrides } from '../../functions/uploads/route-snapshot.ts';
import { messageFor } from '../../functions/uploads/upload-event.ts';
import type { Fault } from '../../local/flow-service/fault.ts';
import { act } from '../../operations/act.ts';
import { upload } from '../ledger/support.ts';
import { dyingAt, ECHO, INBOX, LEDGER, MINUTE, start, world } from '../support/world.ts';

const expectResubmitted = async (given?: GivenOverrides) => expect(await world.retry(given)).toBe('resubmitted');
const retryAndSettle = async () => {
  await expectResubmitted();
  await world.settle();
};

/** Uploads a file that fails because the service refuses its template. */
async function rejected(body: Uint8Array | string = 'x', metadata: Record<string, string> = {}): Promise<void> {
  world.fault('createFlow', { status: 422, body: '{}' });
  await world.send('a', body, { Metadata: metadata });
  world.service.intercept = undefined;
  expect(await world.entry()).toMatchObject({ state: 'failed' });
}

/** The same, by a template that the route of today may correct. */
async function startRejected(...upload: Parameters<typeof rejected>): Promise<void> {
  await start({ routes: [{ ...ECHO, template: 'typo' }] });
  await rejected(...upload);
}

/** The embedded S3 has no archive. From now on its answers are those of S3 for an archived object. */
function archive(): void {
  world.beforeS3((call, { Bucket }) => {
    if (call !== 'GetObject' || Bucket !== INBOX) return;
    throw Object.assign(new Error('archived'), { name: 'InvalidObjectState', $metadata: { httpStatusCode: 403 } });
  });
}

const corrected = { routes: [{ ...ECHO, name: 'corrected', parameters: { copies: 2 } }] };

describe('a retried failure', () => {
  it('takes the route of today’s configuration', async () => {
    await startRejected();
    expect(await world.keys(LEDGER, 'failed/')).toHaveLength(1);
    world.redeploy(corrected);
    await expectResubmitted();
    expect(await world.keys(LEDGER, 'failed/')).toEqual([]);
    await world.settle();
    expect(world.service.flows).toMatchObject([{ template: 'bytes_echo', parameters: { copies: 2 } }]);
    expect(await world.receipt('a')).toMatchObject({
      status: 'succeeded',
      generation: 2,
      route: 'corrected',
      template: 'bytes_echo',
    });
  });

  it.each([
    [true, 3],
    [undefined, 2],
  ])('takes its own overrides as the route of today allows them: %s', async (overrides, copies) => {
    await startRejected('x', { 'flow-parameters': '{"copies":3}' });
    world.redeploy({ routes: [{ ...ECHO, parameters: { copies: 2 }, overrides }] });
    await retryAndSettle();
    expect(world.service.flows).toMatchObject([{ parameters: { copies } }]);
  });

  it('takes other parameters that the operator gives, once, as the route allows it', async () => {
    await startRejected('x', { 'flow-parameters': 'no JSON' });
    world.redeploy({ routes: [{ ...ECHO, parameters: { copies: 2 }, overrides: true }] });
    const given = { parameters: { copies: 3 } };
    await expectResubmitted(given);
    expect(await world.entry()).toMatchObject({ state: 'waiting', reroute: true, given });
    await world.settle();
    expect(world.service.flows).toMatchObject([{ parameters: { copies: 3 } }]);
    const ended = await world.entry();
    expect(ended).toMatchObject({ state: 'succeeded', generation: 2, route: { parameters: { copies: 3 } } });
    expect([ended.reroute, ended.given]).toEqual([undefined, undefined]);
  });

  it('keeps them while it waits, and another retry of the wait does too', async () => {
    await startRejected();
    world.redeploy({ routes: [{ ...ECHO, overrides: true }] });
    await expectResubmitted({ parameters: { copies: 3 } });
    // A waiting upload may have been sent with the parameters that it has.
    expect(await world.retry({ parameters: { copies: 4 } })).toBe('under way');
    await retryAndSettle();
    expect(world.service.flows).toMatchObject([{ parameters: { copies: 3 } }]);
  });

  it('is left as it is if its route does not allow other parameters', async () => {
    await startRejected();
    expect(await world.retry({ parameters: null })).toBe('overrides not allowed');
    expect(await world.entry()).toMatchObject({ state: 'failed', generation: 1 });
  });

  it('fails, and is not sent, if its route stopped to allow them before it was claimed', async () => {
    await start({ routes: [{ ...ECHO, template: 'typo', overrides: true }] });
    await rejected();
    await expectResubmitted({ parameters: null });
    world.redeploy({ routes: [ECHO] });
    await world.settle();
    expect(world.service.flows).toEqual([]);
    expect(await world.receipt('a')).toMatchObject({
      failure: { code: 'invalid-override', message: expect.stringContaining('came with other parameters') },
    });
  });

  it('takes that route although its first claim died before anything was sent', async () => {
    await startRejected();
    world.redeploy(corrected);
    await expectResubmitted();
    const revive = dyingAt(world.ports.inbox, 'open');
    await world.deliver();
    revive();
    expect(await world.entry()).toMatchObject({ state: 'claimed', generation: 2 });
    world.clock.advance(10 * MINUTE);
    await world.settle();
    expect(world.service.flows).toMatchObject([{ template: 'bytes_echo' }]);
    expect((await world.receipt('a')).route).toBe('corrected');
  });

  it('has the tag of the pipeline’s name of today', async () => {
    await startRejected();
    world.redeploy({ ...corrected, pipeline: 'renamed' });
    await expectResubmitted();
    await world.deliver();
    expect(world.service.flows[0]?.additional).toMatchObject({ flowdrop: { pipeline: 'renamed', generation: 2 } });
    expect(await world.entry()).toMatchObject({ state: 'running', pipeline: 'renamed' });
  });

  it('keeps the route that was written down, once a request may have been sent with it', async () => {
    await startRejected();
    world.redeploy(corrected);
    await expectResubmitted();
    world.fault('createFlow', { status: 503 });
    await world.deliver();
    world.service.intercept = undefined;
    expect(await world.entry()).toMatchObject({ state: 'waiting', route: { name: 'corrected' } });
    world.redeploy({ routes: [{ ...ECHO, name: 'later' }] });
    expect((await world.settled('a')).route).toBe('corrected');
  });

  it.each<[string, Uint8Array | string, Record<string, string>, Partial<Settings>]>([
    ['input-empty', '', {}, {}],
    ['input-too-large', 'four', {}, { inputBytesMax: 3 }],
    ['input-too-large', 'four', {}, { textBytesMax: 3, routes: [{ ...ECHO, input: 'text' }] }],
    ['invalid-override', 'x', { 'flow-parameters': '{' }, { routes: [{ ...ECHO, overrides: true }] }],
    ['unrouted', 'x', {}, { routes: [{ ...ECHO, suffixes: ['.png'] }] }],
    ['unrouted', 'x', {}, { routes: [{ ...ECHO, mediaTypes: ['image/png'] }] }],
  ])('that does not pass today’s checks ends failed again: %s', async (code, body, metadata, change) => {
    await start({ routes: [{ ...ECHO, template: 'typo' }] });
    if (body === '') {
      await world.send('a', body);
    } else await rejected(body, metadata);
    world.redeploy(change);
    await retryAndSettle();
    expect(await world.receipt('a')).toMatchObject({ status: 'failed', generation: 2, failure: { code } });
    expect(world.service.flows).toEqual([]);
  });

  it('that is still archived fails again, and sends no empty body', async () => {
    await start();
    await world.upload('a', 'x');
    archive();
    await world.deliver();
    expect((await world.receipt('a')).failure?.code).toBe('input-archived');
    await retryAndSettle();
    expect(await world.receipt('a')).toMatchObject({ generation: 2, failure: { code: 'input-archived' } });
    expect(world.service.flows).toEqual([]);
    expect(world.count('UploadsFailed')).toBe(2);
  });
});

describe('a retried wait', () => {
  const waits = async (reason: string) => expect(await world.entry()).toMatchObject({ state: 'waiting', reason });
  const isSentNow = async () => {
    const from = world.clock.now();
    await expectResubmitted();
    await world.deliver();
    expect(await world.entry()).toMatchObject({ state: 'running' });
    expect(world.clock.now() - from).toBeLessThan(5_000);
  };

  it.each<[string, Fault]>([
    ['the account was spent', { status: 402 }],
    ['the service asked for ten minutes', { status: 429, headers: { 'retry-after': '600' } }],
  ])('is sent at once, although %s, and this process remembers it', async (_, fault) => {
    await start();
    world.fault('createFlow', fault);
    for (const key of ['others 1', 'others 2', 'others 3']) await world.send(key);
    for (const id of await world.keys(LEDGER, 'uploads/')) await world.remove(id, LEDGER);
    await world.send('a');
    await waits('throttled');
    world.service.intercept = undefined;
    await isSentNow();
  });

  it('is sent at once although a request for it may have made a flow, and that is counted', async () => {
    await start();
    world.fault('createFlow', { status: 500 }, 1);
    await world.send('a');
    await waits('in-doubt');
    await isSentNow();
    expect(world.count('DoubtsRetried')).toBe(1);
  });

  it.each(['retry', 'ask'] as const)('leaves a doubt of its own to the setting: %s', async (inDoubt) => {
    await start({ settings: { inDoubt }, routes: [{ ...ECHO, template: 'typo' }] });
    await rejected();
    world.redeploy({ inDoubt, routes: [ECHO] });
    world.fault('createFlow', { status: 500 }, 2); // Its first creation was the refused one.
    await expectResubmitted();
    await world.deliver();
    await waits('in-doubt');
    expect(world.count('DoubtsRetried')).toBe(0);
    expect(world.service.counts.createFlow).toBe(2);
  });

  it('has the flow of that request, if it is listed by now', async () => {
    await start();
    world.service.intercept = (_, { operation }) =>
      operation === 'createFlow' ? { status: 500, at: 'after-effect' } : { status: 500 };
    await world.send('a');
    await waits('in-doubt');
    world.service.intercept = undefined;
    await isSentNow();
    expect(world.service.flows).toHaveLength(1);
    expect(world.count('DoubtsRetried')).toBe(0);
  });
});

describe('a retry of many', () => {
  /** Files that fail because the service refuses their template. */
  async function manyRejected(count: number): Promise<readonly string[]> {
    await start();
    world.fault('createFlow', { status: 422, body: '{}' });
    for (let n = 0; n < count; n += 1) await world.upload(`customer/${n}`);
    await world.deliverAll();
    world.service.intercept = undefined;
    return (await world.entries()).map(({ upload }) => upload.id);
  }

  const retry = async (ids: readonly string[]) =>
    new Set((await retryUploads(ids, world.ports, new AbortController().signal)).map(({ result }) => result));

  it('puts them into the line, behind live files, and not into the queue', async () => {
    const ids = await manyRejected(21);
    expect(await retry(ids)).toEqual(new Set(['resubmitted']));
    expect(world.queue.counts().visible).toBe(0);
    expect(await world.keys(LEDGER, 'waiting/turn/late/echo/customer/')).toHaveLength(21);
    await world.settle();
    for (let n = 0; n < 21; n += 1) expect((await world.receipt(`customer/${n}`)).status).toBe('succeeded');
    expect(await world.keys(LEDGER, 'waiting/')).toEqual([]);
  });

  it('puts a part of many into the line, too', async () => {
    const [id = ''] = await manyRejected(1);
    await expect(world.collect({ cancel: [id], late: true })).rejects.toThrow('late: expected late only with retry');
    await world.collect({ retry: [id], late: true });
    expect(world.queue.counts().visible).toBe(0);
    expect(await world.keys(LEDGER, 'waiting/turn/late/echo/customer/')).toHaveLength(1);
  });

  it('says that it is one, in each of the invocations that it takes', async () => {
    await start();
    const { s3, clock } = world;
    const asked: unknown[] = [];
    const collecting = { invoke: async (event: object) => asked.push(event) && [] };
    const ledger = { read: async () => undefined };
    const view = (n: number) => ({ id: `${n}`, key: `${n}` });
    const ask = async (plan: object) => {
      asked.length = 0;
      await act(
        { action: 'retry', uploads: [], ...plan },
        { collecting, ledger, s3, clock, settings: world.ports.settings } as never,
        new AbortController().signal,
      );
      return asked.map((event) => Object(event).late);
    };
    const many = Array.from({ length: 201 }, (_, n) => view(n)) as never;
    expect(await ask({ uploads: many })).toEqual([true, true]);
    expect(await ask({ uploads: many, action: 'cancel' })).toEqual([undefined, undefined]);
    expect(await ask({ uploads: [view(1)] })).toEqual([undefined]);
    const stage = (n: number) => ({
      ...view(n),
      generation: 0,
      begins: Array.from({ length: 11 }, (_, at) => view(at)),
    });
    expect(await ask({ from: 'two', stages: [stage(1), stage(2)] })).toEqual([true]);
    expect(await ask({ from: 'two', stages: [stage(1)] })).toEqual([undefined]);
  });

  it('makes a large stage anew in as many requests as it takes', async () => {
    const answers = [
      ['resubmitted', 'not begun yet', 'not begun yet'],
      ['resubmitted', 'not begun yet'],
      ['under way', 'not begun yet'],
    ];
    const collecting = {
      invoke: async () => {
        const results = answers.shift() ?? [];
        const from = 3 - results.length;
        return results.map((result, at) => ({ upload: `${Math.min(from, 1) + at}`, result }));
      },
    };
    await start();
    const begun = {
      generation: 2,
      uploads: [],
      closed: [],
      gathered: [],
      withheld: [],
      anew: [{ route: 'two', seen: 1 }],
    };
    const chain = { schema: LEDGER_FORMAT, first: upload, ...begun };
    await world.put(LEDGER, 'chains/9.json', JSON.stringify(chain));
    const stages = [{ id: '9', key: 'a', generation: 2, begins: ['0', '1', '2'].map((id) => ({ id, key: id })) }];
    const counts: number[] = [];
    const acted = await act(
      { action: 'again', uploads: [], from: 'two', stages },
      { collecting, s3: world.s3, settings: world.ports.settings, clock: world.clock } as never,
      new AbortController().signal,
      (count) => counts.push(count),
    );
    // The third answer did nothing more, so there is no fourth request.
    expect(answers).toEqual([]);
    expect(acted.map(({ id, result, isDone }) => [id, result, isDone])).toEqual([
      ['0', 'resubmitted', true],
      ['1', 'under way', false],
      ['2', 'not begun yet', false],
    ]);
    expect(counts.at(-1)).toBe(3);
  });

  it('puts up to twenty into the queue, and one that is retried alone leaves the line', async () => {
    const ids = await manyRejected(21);
    await retry(ids);
    const [id = ''] = ids;
    expect(await retry([id])).toEqual(new Set(['resubmitted']));
    expect(world.queue.counts().visible).toBe(1);
    expect(await retry(ids.slice(1))).toEqual(new Set(['resubmitted']));
    expect(world.queue.counts().visible).toBe(21);
    await world.settle();
    expect(world.service.flows).toHaveLength(21);
  });
});

it('what runs, succeeded or is unknown is not retried', async () => {
  await start();
  await world.send('a');
  const { id } = (await world.entry()).upload;
  const unknown = '0'.repeat(40);
  const retried = async () =>
    (await retryUploads([id, unknown], world.ports, new AbortController().signal)).map(({ result }) => result);
  expect(await retried()).toEqual(['under way', 'unknown']);
  await world.settle();
  expect(await retried()).toEqual(['succeeded already', 'unknown']);
  expect(world.service.flows).toHaveLength(1);
});

describe('the completion event', () => {
  const ends = () =>
    world.events.map(({ detail }) => JSON.parse(detail)).map(({ generation, status }) => `${generation} ${status}`);

  it.each([true, false])('of a failure without a flow is sent by the retry if it was lost: %s', async (isLost) => {
    await start();
    const revive = isLost ? dyingAt(world.ports.events, 'send') : () => {};
    await rejected();
    revive();
    expect(ends()).toEqual(isLost ? [] : ['1 failed']);
    await retryAndSettle();
    expect(ends()).toEqual(['1 failed', '2 succeeded']);
  });

  it('of a failed flow is sent by the retry if it was lost', async () => {
    await start({ routes: [{ ...ECHO, parameters: { fail: true } }] });
    await world.send('a');
    world.clock.advance(5 * MINUTE);
    const revive = dyingAt(world.ports.events, 'send');
    await expect(world.tick()).rejects.toThrow();
    revive();
    expect(await world.entry()).toMatchObject({ state: 'failed' });
    world.redeploy({ routes: [ECHO] });
    await retryAndSettle();
    expect(ends()).toEqual(['1 failed', '2 succeeded']);
  });

  it('that was lost with the last delivery of its message is sent by the sweep', async () => {
    await start();
    await world.sweep(); // The deployment's first day.
    const revive = dyingAt(world.ports.events, 'send');
    await rejected();
    revive();
    world.takeMessages();
    world.clock.advance(60 * MINUTE);
    world.takeMessages();
    for (let i = 0; i < 3; i += 1) {
      await world.sweep();
      world.clock.advance(60 * MINUTE);
    }
    expect(ends()).toEqual(['1 failed']);
  });
});

describe('a retry that died', () => {
  it.each([
    ['before its message was sent', () => dyingAt(world.ports.queue, 'send')],
    // The first marker is put before the entry is written.
    ['before its second marker was put', () => dyingAt(world.ports.ledger, 'putWaitingMarker', 2)],
  ])('%s is carried out by the ticks, although its upload is too old for the sweep', async (_, dying) => {
    await startRejected();
    world.redeploy(corrected);
    world.clock.advance(30 * 24 * 60 * MINUTE);
    const revive = dying();
    await expect(world.retry()).rejects.toThrow('killed');
    revive();
    world.clock.advance(60 * MINUTE);
    expect((await world.settled('a')).status).toBe('succeeded');
  });
});

describe('a retried doubt', () => {
  it('that was held keeps its route and its generation', async () => {
    await start({ settings: { inDoubt: 'ask' }, service: { variation: { listFlows: 404 } } });
    world.fault('createFlow', { status: 500 }, 1);
    await world.upload('a', 'x');
    await world.waitOutDoubt();
    expect(await world.entry()).toMatchObject({ state: 'waiting', reason: 'undecided' });
    expect(world.count('DoubtsHeld')).toBeGreaterThan(0);
    world.redeploy(corrected);
    await retryAndSettle();
    expect(await world.receipt('a')).toMatchObject({ status: 'succeeded', route: 'echo', generation: 1 });
  });
});

describe('a retried upload whose key got a newer upload', () => {
  const signal = new AbortController().signal;

  /** Two uploads at one key. The first fails, the second succeeds. Returns the first. */
  async function firstOfTwo() {
    await start();
    await rejected();
    const { upload } = await world.entry();
    world.clock.advance(MINUTE);
    await world.send('a', 'newer');
    expect(await world.settled('a')).toMatchObject({ status: 'succeeded' });
    world.clock.advance(60 * MINUTE);
    return upload;
  }

  const retry = async ({ id }: { readonly id: string }): Promise<void> => {
    expect(await retryUploads([id], world.ports, signal)).toEqual([{ upload: id, result: 'resubmitted' }]);
    await world.settle();
  };

  it('does not get the receipt', async () => {
    const first = await firstOfTwo();
    const { upload } = await world.receipt('a');
    await retry(first);
    expect((await world.receipt('a')).upload.id).toBe(upload.id);
  });

  it('gets the receipt if the newer one was deleted, and keeps it', async () => {
    const first = await firstOfTwo();
    const { upload } = await world.receipt('a');
    await world.s3.send(new DeleteObjectCommand({ Bucket: INBOX, Key: 'a', VersionId: upload.versionId }));
    await retry(first);
    expect(await world.receipt('a')).toMatchObject({ upload: { id: first.id }, generation: 2 });
    world.queue.send(messageFor({ ...upload, currentAt: undefined }));
    await world.deliver();
    expect((await world.receipt('a')).upload.id).toBe(first.id);
  });
});
