import { describe, expect, it, onTestFinished } from 'vitest';
import { retryUploads } from '../../functions/resubmit/retry.ts';
import type { Settings } from '../../functions/settings/environment.ts';
import { ECHO, INBOX, World, type WorldOptions } from '../support/world.ts';

const MINUTE = 60_000;
const signal = new AbortController().signal;

let world: World;
const start = async (options?: WorldOptions) => {
  const started = await World.start(options);
  onTestFinished(() => started.close());
  world = started;
};

const retry = async () => {
  const { id } = (await world.entry()).upload;
  expect(await retryUploads([id], world.ports, signal)).toEqual([{ upload: id, result: 'resubmitted' }]);
};

/** Uploads a file that fails because the service does not know its template. */
async function rejected(body: Uint8Array | string = 'x', metadata: Record<string, string> = {}): Promise<void> {
  world.service.intercept = (_, { operation }) =>
    operation === 'createFlow' ? { status: 404, body: '{}' } : undefined;
  await world.upload('a', body, { Metadata: metadata });
  await world.deliver();
  world.service.intercept = undefined;
  expect(await world.entry()).toMatchObject({ state: 'failed' });
}

/** The embedded S3 has no archive. From now on its answers are those of S3 for an archived object. */
function archive(): void {
  world.s3.middlewareStack.add(
    (next, { commandName }) =>
      async (args) => {
        if (commandName !== 'GetObjectCommand') return next(args);
        if ((args.input as { Bucket?: string }).Bucket !== INBOX) return next(args);
        throw Object.assign(new Error('archived'), { name: 'InvalidObjectState', $metadata: { httpStatusCode: 403 } });
      },
    { step: 'initialize' },
  );
}

const corrected = { routes: [{ ...ECHO, name: 'corrected', parameters: { copies: 2 } }] };

describe('a retried failure', () => {
  it('takes the route of today’s configuration', async () => {
    await start({ routes: [{ ...ECHO, template: 'typo' }] });
    await rejected();
    world.redeploy(corrected);
    await retry();
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
    await start({ routes: [{ ...ECHO, template: 'typo' }] });
    await rejected('x', { 'flow-parameters': '{"copies":3}' });
    world.redeploy({ routes: [{ ...ECHO, parameters: { copies: 2 }, overrides }] });
    await retry();
    await world.settle();
    expect(world.service.flows).toMatchObject([{ parameters: { copies } }]);
  });

  it('takes other parameters that the operator gives, once, as the route allows it', async () => {
    await start({ routes: [{ ...ECHO, template: 'typo' }] });
    await rejected('x', { 'flow-parameters': 'no JSON' });
    world.redeploy({ routes: [{ ...ECHO, parameters: { copies: 2 }, overrides: true }] });
    const { id } = (await world.entry()).upload;
    const given = { parameters: { copies: 3 } };
    expect(await retryUploads([id], world.ports, signal, given)).toEqual([{ upload: id, result: 'resubmitted' }]);
    expect(await world.entry()).toMatchObject({ state: 'waiting', reroute: given });
    await world.settle();
    expect(world.service.flows).toMatchObject([{ parameters: { copies: 3 } }]);
    const ended = await world.entry();
    expect(ended).toMatchObject({ state: 'succeeded', generation: 2, route: { parameters: { copies: 3 } } });
    expect(ended.reroute).toBeUndefined();
  });

  it('keeps them while it waits, and another retry of the wait does too', async () => {
    await start({ routes: [{ ...ECHO, template: 'typo' }] });
    await rejected();
    world.redeploy({ routes: [{ ...ECHO, overrides: true }] });
    const { id } = (await world.entry()).upload;
    await retryUploads([id], world.ports, signal, { parameters: { copies: 3 } });
    // A waiting upload may have been sent with the parameters that it has.
    expect(await retryUploads([id], world.ports, signal, { parameters: { copies: 4 } })).toEqual([
      { upload: id, result: 'under way' },
    ]);
    await retry();
    await world.settle();
    expect(world.service.flows).toMatchObject([{ parameters: { copies: 3 } }]);
  });

  it('is left as it is if its route does not allow other parameters', async () => {
    await start({ routes: [{ ...ECHO, template: 'typo' }] });
    await rejected();
    const { id } = (await world.entry()).upload;
    expect(await retryUploads([id], world.ports, signal, { parameters: null })).toEqual([
      { upload: id, result: 'overrides not allowed' },
    ]);
    expect(await world.entry()).toMatchObject({ state: 'failed', generation: 1 });
  });

  it('fails, and is not sent, if its route stopped to allow them before it was claimed', async () => {
    await start({ routes: [{ ...ECHO, template: 'typo', overrides: true }] });
    await rejected();
    const { id } = (await world.entry()).upload;
    await retryUploads([id], world.ports, signal, { parameters: null });
    world.redeploy({ routes: [ECHO] });
    await world.settle();
    expect(world.service.flows).toEqual([]);
    expect(await world.receipt('a')).toMatchObject({
      failure: { code: 'invalid-override', message: expect.stringContaining('came with other parameters') },
    });
  });

  it('takes that route although its first claim died before anything was sent', async () => {
    await start({ routes: [{ ...ECHO, template: 'typo' }] });
    await rejected();
    world.redeploy(corrected);
    await retry();
    const { open } = world.ports.inbox;
    world.ports.inbox.open = () => Promise.reject(new Error('killed'));
    await world.deliver();
    world.ports.inbox.open = open;
    expect(await world.entry()).toMatchObject({ state: 'claimed', generation: 2 });
    world.clock.advance(10 * MINUTE);
    await world.settle();
    expect(world.service.flows).toMatchObject([{ template: 'bytes_echo' }]);
    expect((await world.receipt('a')).route).toBe('corrected');
  });

  it('has the tag of the pipeline’s name of today', async () => {
    await start({ routes: [{ ...ECHO, template: 'typo' }] });
    await rejected();
    world.redeploy({ ...corrected, pipeline: 'renamed' });
    await retry();
    await world.deliver();
    expect(world.service.flows[0]?.additional).toMatchObject({ flowdrop: { pipeline: 'renamed', generation: 2 } });
    expect(await world.entry()).toMatchObject({ state: 'running', pipeline: 'renamed' });
  });

  it('keeps the route that was written down, once a request may have been sent with it', async () => {
    await start({ routes: [{ ...ECHO, template: 'typo' }] });
    await rejected();
    world.redeploy(corrected);
    await retry();
    world.service.intercept = (_, { operation }) => (operation === 'createFlow' ? { status: 503 } : undefined);
    await world.deliver();
    world.service.intercept = undefined;
    expect(await world.entry()).toMatchObject({ state: 'waiting', route: { name: 'corrected' } });
    world.redeploy({ routes: [{ ...ECHO, name: 'later' }] });
    await world.settle();
    expect((await world.receipt('a')).route).toBe('corrected');
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
      await world.upload('a', body);
      await world.deliver();
    } else await rejected(body, metadata);
    world.redeploy(change);
    await retry();
    await world.settle();
    expect(await world.receipt('a')).toMatchObject({ status: 'failed', generation: 2, failure: { code } });
    expect(world.service.flows).toEqual([]);
  });

  it('that is still archived fails again, and sends no empty body', async () => {
    await start();
    await world.upload('a', 'x');
    archive();
    await world.deliver();
    expect((await world.receipt('a')).failure?.code).toBe('input-archived');
    await retry();
    await world.settle();
    expect(await world.receipt('a')).toMatchObject({ generation: 2, failure: { code: 'input-archived' } });
    expect(world.service.flows).toEqual([]);
    expect(world.count('UploadsFailed')).toBe(2);
  });
});

describe('the completion event', () => {
  const ends = () =>
    world.events.map(({ detail }) => JSON.parse(detail)).map(({ generation, status }) => `${generation} ${status}`);

  /** The next event is lost, and its invocation with it. */
  function loseEvent(): void {
    const { send } = world.ports.events;
    world.ports.events.send = async () => {
      world.ports.events.send = send;
      throw new Error('killed');
    };
  }

  it('of a failure without a flow is sent by the retry if it was lost', async () => {
    await start();
    loseEvent();
    await rejected();
    expect(ends()).toEqual([]);
    await retry();
    await world.settle();
    expect(ends()).toEqual(['1 failed', '2 succeeded']);
  });

  it('of a failed flow is sent by the retry if it was lost', async () => {
    await start({ routes: [{ ...ECHO, parameters: { fail: true } }] });
    await world.upload('a', 'x');
    await world.deliver();
    world.clock.advance(5 * MINUTE);
    loseEvent();
    await expect(world.tick()).rejects.toThrow();
    expect(await world.entry()).toMatchObject({ state: 'failed' });
    world.redeploy({ routes: [ECHO] });
    await retry();
    await world.settle();
    expect(ends()).toEqual(['1 failed', '2 succeeded']);
  });

  it('is not sent again by a retry if it was not lost', async () => {
    await start();
    await rejected();
    await retry();
    await world.settle();
    expect(ends()).toEqual(['1 failed', '2 succeeded']);
  });

  it('that was lost with the last delivery of its message is sent by the sweep', async () => {
    await start();
    await world.sweep(); // The deployment's first day.
    loseEvent();
    await rejected();
    for (const { receiptHandle } of world.queue.receive({ max: 10 })) world.queue.delete(receiptHandle);
    world.clock.advance(60 * MINUTE);
    for (const { receiptHandle } of world.queue.receive({ max: 10 })) world.queue.delete(receiptHandle);
    for (let i = 0; i < 3; i += 1) {
      await world.sweep();
      world.clock.advance(60 * MINUTE);
    }
    expect(ends()).toEqual(['1 failed']);
  });
});

describe('a retried doubt', () => {
  it('that was held keeps its route and its generation', async () => {
    await start({ settings: { inDoubt: 'hold' }, service: { variation: { listFlows: 404 } } });
    world.service.intercept = (_, { operation, n }) =>
      operation === 'createFlow' && n === 1 ? { status: 500 } : undefined;
    await world.upload('a', 'x');
    await world.waitOutDoubt();
    expect(await world.entry()).toMatchObject({ state: 'waiting', reason: 'held' });
    world.redeploy(corrected);
    await retry();
    await world.settle();
    expect(await world.receipt('a')).toMatchObject({ status: 'succeeded', route: 'echo', generation: 1 });
  });
});
