import { describe, expect, it } from 'vitest';
import type { TickSummary } from '../../functions/collect-outputs/collect-outputs.ts';
import type { CollectorState, LeftLease } from '../../functions/collect-outputs/collector.ts';
import type { Operation } from '../../local/flow-service/call.ts';
import type { Fault } from '../../local/flow-service/fault.ts';
import {
  answer,
  DAY,
  ECHO,
  HOUR,
  LEDGER,
  MINUTE,
  RESULTS,
  SECOND,
  start,
  type WorldOptions,
  world,
} from '../support/world.ts';

const begin = async (options?: WorldOptions) => {
  await start(options);
  world.remainingMs = 10 * MINUTE;
};

/** Uploads files, and has a flow made of each. Returns the flows' ids in the order of the keys. */
async function flowsOf(keys: readonly string[], body: Buffer | string = 'x'): Promise<string[]> {
  const before = world.service.flows.length;
  for (const key of keys) await world.upload(key, body);
  await world.deliverAll();
  const [flows, made] = [world.service.flows.slice(before), world.sentKeys.slice(before)];
  return keys.map((key) => {
    const flow = flows[made.indexOf(key)];
    if (flow === undefined) throw new Error(`No flow of ${key}`);
    return flow.id;
  });
}

const named = (count: number, prefix = 'file'): string[] =>
  Array.from({ length: count }, (_, index) => `${prefix}-${String(index).padStart(3, '0')}`);

/** Makes all requests about these flows fail, or only those of some operations. */
function poison(flowIds: readonly string[], fault: Fault, operations?: readonly Operation[]): void {
  world.service.intercept = ({ url }, { operation }) =>
    flowIds.some((flowId) => url.includes(flowId)) && (operations?.includes(operation) ?? true) ? fault : undefined;
}

/** Records the flow of each poll that is answered. */
function recording(polls: string[]): NonNullable<WorldOptions['transport']> {
  return (direct) => async (request, signal) => {
    const response = await direct(request, signal);
    const [, flowId] = /^\/flows\/([^/]+)$/.exec(request.url.pathname) ?? [];
    if (request.method === 'GET' && flowId !== undefined) polls.push(flowId);
    return response;
  };
}

const state = () => world.json<CollectorState>(LEDGER, 'state/collector-0.json');
const receiptKeys = async () => (await world.keys(RESULTS)).filter((key) => key.endsWith('receipt.json'));

describe('a tick that the service does not let poll all running flows in time', () => {
  it.each([
    // Fourteen flows are polled within 20 seconds, the poll interval, or not.
    [2, 2],
    [0.2, 1],
  ])('lets no extra uploads leave the line (%f requests a second)', async (requestsPerSecond, extra) => {
    await begin({ service: { flowMs: HOUR }, settings: { pollIntervalSeconds: 20 } });
    await flowsOf(named(14));
    world.fault('createFlow', { status: 429 }, Number.POSITIVE_INFINITY);
    await world.send('throttled');
    world.service.intercept = undefined;
    world.clock.advance(10 * MINUTE);
    world.ports.pacer.resume({ requestsPerSecond, throttledAt: world.clock.now() });
    await world.tick();
    const { line } = await world.json<CollectorState>(LEDGER, 'state/collector-0.json');
    expect(Object.values(line?.sent ?? {}).flatMap(({ ids }) => ids)).toHaveLength(1);
    expect(line?.extra).toBe(extra);
  });
});

describe('a service that allows few requests', () => {
  /** Runs a tick a minute until no flow runs, which must take less than this. */
  async function collectsAllWithin(ms: number): Promise<void> {
    const since = world.clock.now();
    while ((await world.keys(LEDGER, 'running/')).length > 0) {
      const startedAt = world.clock.now();
      await world.tick();
      world.clock.advance(Math.max(0, startedAt + MINUTE - world.clock.now()));
      expect(world.clock.now() - since).toBeLessThan(ms);
    }
  }

  it('has everything collected, by short ticks', async () => {
    await begin();
    await flowsOf(named(20));
    world.service.limiter.change({ everything: { requestsPerSecond: 1, burst: 1 } });
    world.remainingMs = 40 * SECOND;
    world.clock.advance(20 * MINUTE);
    let ticks = 0;
    while ((await world.keys(LEDGER, 'running/')).length > 0) {
      await world.tickAfter(20 * SECOND); // Ticks begin a minute apart.
      ticks += 1;
      expect(ticks).toBeLessThanOrEqual(6);
    }
    expect(world.count('FlowsSucceeded')).toBe(20);
    expect(world.count('TicksCutShort')).toBe(0);
  });

  it('has everything collected, although it allows only two a minute', async () => {
    await begin();
    await flowsOf(named(2));
    world.service.limiter.change({ everything: { requestsPerSecond: 2 / 60, burst: 1 } });
    world.clock.advance(20 * MINUTE);
    // Two polls with the outputs and an asset each take six requests.
    await collectsAllWithin(2.5 * (6 / 2) * MINUTE);
    expect(world.count('FlowsSucceeded')).toBe(2);
  });

  it.each([
    ['at once', {}],
    ['in 15 seconds', { 'retry-after': '15' }],
  ])(
    'has everything collected, although an asset comes right after requests that use up the limit, %s',
    async (_, headers) => {
      await begin();
      await flowsOf(named(12));
      world.clock.advance(20 * MINUTE);
      let refillsAt = 0;
      world.service.intercept = () => {
        if (world.clock.now() < refillsAt) return { status: 429, headers };
        refillsAt = world.clock.now() + 15 * SECOND;
        return undefined;
      };
      // 36 requests take nine minutes, and a flow that was refused is polled again minutes later.
      await collectsAllWithin(90 * MINUTE);
    },
  );

  it('is asked at the learnt pace, which the next tick finds beside the lease', async () => {
    await begin();
    await flowsOf(named(10));
    world.service.limiter.change({ everything: { requestsPerSecond: 5, burst: 5 } });
    await world.tickAfter(20 * MINUTE);
    const { pace } = await state();
    expect(pace?.requestsPerSecond).toBeLessThan(10);
    expect(pace).toEqual(world.ports.pacer.learnt);

    const left = await state();
    await begin();
    await world.put(LEDGER, 'state/collector-0.json', JSON.stringify({ ...left, heldUntil: 0 }));
    await world.tickAfter(21 * MINUTE);
    expect(world.ports.pacer.learnt).toEqual(pace);
  });
});

describe('flows for which the service answers with an error for ever', () => {
  /** One fault of each kind of trouble: throttled, unauthorised, unavailable. */
  const KINDS: readonly (readonly [string, Fault])[] = [
    ['429', { status: 429 }],
    ['401', { status: 401 }],
    ['502', { status: 502 }],
  ];

  it.each(KINDS)('delay no other flow: eight with %s', async (_, fault) => {
    await begin();
    const poisoned = await flowsOf(named(8, 'bad'));
    await flowsOf(named(12, 'good'));
    poison(poisoned, fault);
    expect(await world.tickAfter(20 * MINUTE)).toMatchObject({ result: 'completed', succeeded: 12, failed: 0 });
    expect(world.count('TicksCutShort')).toBe(0);
    expect(await world.keys(LEDGER, 'running/')).toHaveLength(8);
    // They are collected as soon as the service answers for them.
    world.service.intercept = undefined;
    expect(await world.tickAfter(20 * MINUTE)).toMatchObject({ succeeded: 8 });
  });

  it.each(KINDS)('end past their maximum age, if another flow was answered: %s', async (_, fault) => {
    await begin({ service: { flowMs: 100 * DAY }, settings: { flowAgeMaxSeconds: 2 * 3_600 } });
    const poisoned = await flowsOf(['bad']);
    poison(poisoned, fault, ['getFlow']);
    world.clock.advance(1.9 * HOUR);
    await flowsOf(['good']);
    await world.tick();
    expect(await receiptKeys()).toEqual([]);
    await world.tickAfter(0.3 * HOUR);
    expect(await receiptKeys()).toEqual(['bad/receipt.json']);
    expect(await world.receipt('bad')).toMatchObject({ status: 'failed', failure: { code: 'timed-out' } });
    expect(world.service.flows[0]?.aborted).toBe(true);
    expect(await world.keys(LEDGER, 'running/')).toHaveLength(1);
  });

  it.each<[Operation, Fault]>([
    ['getFlow', { status: 422 }],
    ['getFlow', { status: 302, headers: { location: 'http://169.254.169.254/' } }],
    ['listOutputs', { status: 403 }],
    ['listOutputs', { status: 200 }],
  ])('end past their maximum age, with a receipt that quotes the answer: %s, %j', async (operation, fault) => {
    await begin({ settings: { flowAgeMaxSeconds: 1_800 } });
    await flowsOf(['bad']);
    world.fault(operation, fault);
    const message = expect.stringMatching(/1800 seconds.*: \S/);
    expect(await world.settled('bad')).toMatchObject({ status: 'failed', failure: { code: 'timed-out', message } });
    expect(await receiptKeys()).toEqual(await world.keys(RESULTS));
  });

  it.each(KINDS)('end at twice their maximum age if the service answers for no flow: %s', async (_, fault) => {
    await begin({ service: { flowMs: 100 * DAY }, settings: { flowAgeMaxSeconds: 2 * 3_600 } });
    poison(await flowsOf(named(12)), fault);
    expect(await world.tickAfter(3.9 * HOUR)).toMatchObject({ failed: 0 });
    expect(await world.tickAfter(0.2 * HOUR)).toMatchObject({ failed: 12 });
  });

  it.each(KINDS)('end past their maximum age if an asset is refused at several attempts: %s', async (_, fault) => {
    await begin({
      routes: [{ ...ECHO, parameters: { copies: 2 } }],
      settings: { flowAgeMaxSeconds: 2 * 3_600, attemptsMax: 2 },
    });
    const [flowId = ''] = await flowsOf(['bad']);
    const [asset] = world.service.flows[0]?.outputs ?? [];
    world.service.intercept = ({ url }) => (url.endsWith(`/${asset?.assetId}`) ? fault : undefined);
    await world.tickAfter(1.9 * HOUR);
    await world.tick();
    expect(await receiptKeys()).toEqual([]);
    expect(await world.keys(RESULTS, `bad/${flowId}/`)).toHaveLength(1);
    // Once is not enough: a token that has just changed would look the same.
    await world.tickAfter(0.4 * HOUR);
    expect(await receiptKeys()).toEqual([]);
    await world.tickAfter(0.4 * HOUR);
    expect(await world.receipt('bad')).toMatchObject({
      status: 'succeeded',
      assets: [{}],
      failedOutputs: [{ id: asset?.assetId }],
    });
  });

  it('lose no asset past their maximum age to a token that changes while their assets are stored', async () => {
    await begin({
      routes: [{ ...ECHO, parameters: { copies: 2 } }],
      settings: { flowAgeMaxSeconds: 2 * 3_600, assetConcurrency: 2 },
    });
    await flowsOf(['late', 'other']);
    const [, asset] = world.service.flows[0]?.outputs ?? [];
    let isChanged = false;
    world.service.intercept = ({ url }) => {
      isChanged ||= url.endsWith(`/${asset?.assetId}`);
      return isChanged ? { status: 401 } : undefined;
    };
    await world.tickAfter(3 * HOUR);
    expect(isChanged).toBe(true);
    expect(await receiptKeys()).not.toContain('late/receipt.json');
    world.service.intercept = undefined;
    await world.tickAfter(20 * MINUTE);
    expect(await world.receipt('late')).toMatchObject({ status: 'succeeded', assets: [{}, {}], failedOutputs: [] });
  });
});

describe('a round that is cut off', () => {
  it('is resumed by the next tick, so that no flow is polled twice before all were polled once', async () => {
    const polls: string[] = [];
    await begin({
      service: { flowMs: 100 * DAY, variation: { listFlows: 404 } },
      settings: { pollConcurrency: 2 },
      transport: recording(polls),
    });
    const flowIds = await flowsOf(named(30));
    world.fault('getFlow', { delayMs: 2 * SECOND });
    world.remainingMs = 16 * SECOND;
    let ticks = 0;
    while (polls.length < 30) {
      // At this age a flow is due every quarter of an hour. Those that were not reached are still due a minute later.
      expect(await world.tickAfter(ticks === 0 ? 5 * HOUR : MINUTE)).toMatchObject({
        result: polls.length < 30 ? 'out of time' : 'completed',
      });
      ticks += 1;
    }
    expect(ticks).toBeGreaterThan(1);
    expect(new Set(polls.slice(0, 30))).toEqual(new Set(flowIds));
    // The ticks worked for all of their time, so the alarm for ticks that do nothing stays silent.
    expect(world.count('TicksCutShort')).toBe(0);
  });

  it('is resumed at the flow that was turned away because flows before it were throttled', async () => {
    const polls: string[] = [];
    await begin({
      service: { flowMs: 100 * DAY, variation: { listFlows: 404 } },
      settings: { pollConcurrency: 1 },
      transport: recording(polls),
    });
    // Each throttled flow doubles the hold on all flows. After six, it is longer than a poll waits.
    poison(await flowsOf(named(6, 'bad')), { status: 402 }, ['getFlow']);
    world.clock.advance(SECOND);
    const [good = ''] = await flowsOf(['good']);
    await world.tickAfter(20 * MINUTE);
    expect(polls).toHaveLength(6);
    expect(polls).not.toContain(good);
    await world.tickAfter(20 * MINUTE);
    expect(polls[6]).toBe(good);
  });

  it('has its ended flows stored first by the next tick', async () => {
    const polls: string[] = [];
    await begin({ transport: recording(polls) });
    const flowIds = await flowsOf(named(6));
    const [last = ''] = flowIds.slice(-1);
    const runs = (url: string) => flowIds.find((flowId) => flowId !== last && url.endsWith(`/flows/${flowId}`));
    let delayMs = MINUTE;
    world.service.intercept = ({ url }, { operation }) => {
      const flowId = runs(url);
      if (flowId !== undefined) return answer({ flow_id: flowId, state: 'running' });
      return operation === 'getAsset' ? { delayMs } : undefined;
    };
    world.remainingMs = 20 * SECOND;
    expect(await world.tickAfter(20 * MINUTE)).toMatchObject({ result: 'out of time' });
    expect(Object.keys((await state()).ended ?? {})).toHaveLength(1);
    delayMs = 0;
    polls.length = 0;
    expect(await world.tickAfter(20 * MINUTE)).toMatchObject({ succeeded: 1 });
    expect(polls[0]).toBe(last);
    expect(polls).toHaveLength(6);
    expect((await state()).ended).toBeUndefined();
  });
});

describe('many flows that are due', () => {
  /** Makes the listing show all flows in one state. */
  const listAll = (flowIds: readonly string[], state: string) => {
    const flows = flowIds.map((flowId) => ({ flow_id: flowId, state }));
    world.fault('listFlows', answer({ flows }));
  };

  it('are polled through the listing, for far fewer requests than one for each', async () => {
    await begin({ service: { flowMs: 100 * DAY } });
    await flowsOf(named(60));
    const before = { ...world.service.counts };
    for (let i = 0; i < 8; i += 1) {
      expect(await world.tickAfter(20 * MINUTE)).toMatchObject({ result: 'completed', running: 60 });
    }
    // Two pages, and a request that tells where pages begin.
    expect(world.service.counts.listFlows - before.listFlows).toBeLessThanOrEqual(8 * 3);
    // The listing may be wrong, so each flow is polled in about every tenth round.
    const polls = world.service.counts.getFlow - before.getFlow;
    expect(polls).toBeGreaterThan((8 * 60) / 20);
    expect(polls).toBeLessThan((8 * 60) / 6);
  });

  it('are collected later if the listing calls them running for ever', async () => {
    await begin();
    listAll(await flowsOf(named(20)), 'running');
    for (let i = 0; i < 40 && world.count('FlowsSucceeded') < 20; i += 1) await world.tickAfter(20 * MINUTE);
    expect(world.count('FlowsSucceeded')).toBe(20);
  });

  it.each(['completed', 'failed', 'aborted'])('stay running if only the listing calls them %s', async (called) => {
    await begin({ service: { flowMs: 100 * DAY } });
    listAll(await flowsOf(named(20)), called);
    for (let i = 0; i < 3; i += 1) {
      expect(await world.tickAfter(20 * MINUTE)).toMatchObject({ running: 20, succeeded: 0, failed: 0, polled: 20 });
    }
  });

  /** A listing that is full of the flows of others. */
  const others = ({ url }: { readonly url: string }): Fault => {
    const page = Number(/page=(\d+)/.exec(url)?.[1] ?? 1);
    const flows = Array.from({ length: 50 }, (_, i) => ({ flow_id: `other-${page}-${i}`, state: 'running' }));
    return answer({ flows, total: 10_000 });
  };
  it.each<[string, number, WorldOptions, (request: { readonly url: string }) => Fault]>([
    ['is not declared', 0, { speaks: { list: null } }, others],
    ['is not served', 1, {}, () => ({ status: 404 })],
    ['is full of other flows', 3, {}, others],
  ])('are polled one by one if the listing %s; %i requests in ten minutes', async (_, requests, options, fault) => {
    await begin({ service: { flowMs: 100 * DAY }, ...options });
    await flowsOf(named(20));
    world.service.intercept = (request, { operation }) => (operation === 'listFlows' ? fault(request) : undefined);
    for (let round = 1; round <= 2; round += 1) {
      expect(await world.tickAfter(20 * MINUTE)).toMatchObject({ polled: 20 });
      expect(world.service.counts.listFlows).toBe(round * requests);
    }
    await world.tickAfter(5 * MINUTE);
    expect(world.service.counts.listFlows).toBe(2 * requests);
  });
});

describe('a flow that the service seems not to know', () => {
  it('is gone after two 404s in a row, if the service has answered for another flow, and is aborted', async () => {
    await begin({ service: { flowMs: 100 * DAY } });
    const [unknown = ''] = await flowsOf(['a']);
    world.service.intercept = ({ method, url }, { operation }) => {
      // A flow that is listed is not gone.
      if (operation === 'listFlows') return answer({ flows: [] });
      return method === 'GET' && url.includes(unknown) ? { status: 404 } : undefined;
    };
    for (let polls = 0; polls < 3; polls += 1) await world.tickAfter(20 * MINUTE);
    expect(await receiptKeys()).toEqual([]);
    await flowsOf(['b']);
    for (let polls = 0; polls < 3; polls += 1) await world.tickAfter(20 * MINUTE);
    expect(await world.receipt('a')).toMatchObject({ status: 'failed', failure: { code: 'flow-gone' } });
    expect(world.service.flows.map(({ aborted }) => aborted)).toEqual([true, false]);
  });

  it('and shows it in between, is believed only after a day', async () => {
    await begin({ service: { flowMs: 100 * DAY } });
    const [unknown = ''] = await flowsOf(['a']);
    const pollWith = async (...faults: readonly (Fault | undefined)[]) => {
      for (const fault of faults) {
        world.service.intercept = ({ method, url }, { operation }) => {
          // A flow that is listed is not gone.
          if (operation === 'listFlows') return answer({ flows: [] });
          return method === 'GET' && url.includes(unknown) ? fault : undefined;
        };
        await world.tickAfter(20 * MINUTE);
      }
    };
    const gone = { status: 404 };
    await pollWith(gone, gone, gone);
    await flowsOf(['b']);
    await pollWith(undefined, gone, undefined, gone, { status: 502 }, gone, undefined, gone);
    await pollWith(...Array.from({ length: 70 }, () => gone));
    expect(await receiptKeys()).toEqual([]);
    await pollWith(gone, gone, gone, gone);
    expect(await world.receipt('a')).toMatchObject({ status: 'failed', failure: { code: 'flow-gone' } });
    expect(world.service.flows.map(({ aborted }) => aborted)).toEqual([true, false]);
  });
});

describe('a service that aborts a flow by deleting it', () => {
  const deletedAfter = async (fault: Fault | undefined, isListed = true) => {
    await begin({
      service: { flowMs: 100 * DAY },
      settings: { flowAgeMaxSeconds: 3600 },
      speaks: { abort: { method: 'DELETE', body: null } },
    });
    const [flowId = ''] = await flowsOf(['a']);
    await flowsOf(['b']);
    await world.tick();
    let isDeleted = false;
    world.service.intercept = ({ method, url }, { operation }) => {
      isDeleted ||= method === 'DELETE' && url.includes(flowId);
      if (operation === 'listFlows' && !isListed) return answer({ flows: [] });
      if (method !== 'GET' || !url.includes(flowId)) return undefined;
      return fault?.status === 409 && !url.includes('/outputs') ? answer({ state: 'completed' }) : fault;
    };
    for (let n = 0; n < 12; n += 1) await world.tickAfter(15 * MINUTE).catch(() => {});
    const { failure } = await world.receipt('a');
    return { code: failure?.code, isDeleted };
  };

  it('is asked for it if the last poll saw the flow run', async () => {
    expect(await deletedAfter(undefined)).toEqual({ code: 'timed-out', isDeleted: true });
  });

  it.each<[string, string, Fault, boolean]>([
    ['failed', 'timed-out', { status: 502 }, true],
    ['was told that it is not ready', 'timed-out', { status: 423 }, true],
    ['found it unknown', 'flow-gone', { status: 404 }, false],
    ['found it unknown, although it is listed', 'timed-out', { status: 404 }, true],
    ['saw it completed without outputs that can be listed', 'timed-out', { status: 409 }, true],
  ])('keeps what the flow may have made if the last poll %s', async (_, code, fault, isListed) => {
    expect(await deletedAfter(fault, isListed)).toEqual({ code, isDeleted: false });
  });
});

describe('one flow and several uploads', () => {
  /** Two uploads that the service gave one flow, and a sound one. */
  const sharedFlow = async (options?: WorldOptions) => {
    await begin(options);
    const [shared = ''] = await flowsOf(['a']);
    world.service.intercept = (_, { operation, n }) =>
      operation === 'createFlow' && n === 2 ? { ...answer({ flow_id: shared }), at: 'after-effect' } : undefined;
    await world.send('b', 'b');
    expect(await world.keys(LEDGER, 'running/')).toHaveLength(2);
    await flowsOf(['c']);
  };
  const SHARED = { status: 'failed', failure: { code: 'flow-shared' }, assets: [] };

  it('is collected for neither of the two uploads, and both end', async () => {
    await sharedFlow();
    expect(await world.tickAfter(20 * MINUTE)).toMatchObject({ succeeded: 1, failed: 2 });
    expect(world.count('FlowsShared')).toBe(2);
    for (const key of ['a', 'b']) expect(await world.receipt(key)).toMatchObject(SHARED);
    expect(await world.keys(LEDGER, 'running/')).toEqual([]);
  });

  it('is not collected for the second upload either, if the tick broke off when it had ended the first', async () => {
    let isBroken = true;
    await sharedFlow({ s3: { authorize: ({ resource }) => !(isBroken && resource.endsWith('/a/receipt.json')) } });
    await expect(world.tickAfter(20 * MINUTE)).rejects.toThrow('1 uploads could not be processed');
    // The marker of the first tells no longer that the flow is shared.
    const [first = ''] = await world.keys(LEDGER, 'running/');
    await world.remove(first, LEDGER);
    isBroken = false;
    expect(await world.tickAfter(20 * MINUTE)).toMatchObject({ failed: 1 });
    expect(await world.receipt('b')).toMatchObject(SHARED);
  });

  it('is not collected if it has the tag of another upload', async () => {
    await begin();
    const [flowId = '', other = ''] = await flowsOf(['a', 'b']);
    const theirs = world.service.flows.find(({ id }) => id === other);
    // The first tick of a collector finds no released lease, so it observes no loss.
    await world.tick();
    world.service.intercept = ({ url }) =>
      url.endsWith(`/flows/${flowId}`)
        ? answer({ flow_id: flowId, state: 'completed', additional: theirs?.additional })
        : undefined;
    for (let i = 0; i < 3; i += 1) await world.tickAfter(20 * MINUTE);
    expect(await world.receipt('a')).toMatchObject({ status: 'failed', failure: { code: 'flow-shared' }, assets: [] });
    expect(await world.receipt('b')).toMatchObject({ status: 'succeeded' });
    expect(await world.keys(RESULTS, `a/${flowId}`)).toEqual([]);
    const { upload } = await world.receipt('a');
    const lines = world.logged.filter(({ message }) => message.includes('with the flow of another upload'));
    // One for each of the two polls that saw it.
    expect(lines.map(({ level, fields }) => ({ level, fields }))).toEqual(
      Array(2).fill({ level: 'error', fields: { uploadId: upload.id, flowId } }),
    );
  });
});

describe('one of several collectors', () => {
  it('counts its own ticks, but none that the service cut short', async () => {
    await begin();
    const of = 3;
    for (const index of [0, 1, 1]) await world.tick({ index, of });
    await flowsOf(named(30)); // Each share has some.
    world.service.intercept = () => ({ status: 401 });
    for (const index of [0, 1]) await world.tickAfter(20 * MINUTE, { index, of }).catch(() => {});
    expect(world.count('TicksCutShort')).toBe(2);
    expect([0, 1, 2].map((index) => world.count(`TicksOfCollector${index}`))).toEqual([1, 2, 0]);
    expect(world.count('TicksCompleted')).toBe(3);
  });

  it('counts nothing of its own if it has no other', async () => {
    await begin();
    await world.tick();
    expect(world.counted.has('TicksOfCollector0')).toBe(false);
  });
});

describe('a tick', () => {
  it('that fails for one upload still runs the sweep that was requested', async () => {
    let flowId = 'none yet';
    const isAsset = (resource: string) => resource.includes(`:::${RESULTS}/`) && resource.includes(flowId);
    await begin({
      s3: { authorize: ({ action, resource }) => !(action === 's3:PutObject' && isAsset(resource)) },
    });
    await world.sweep();
    [flowId = ''] = await flowsOf(['a']);
    await world.upload('missed');
    world.takeMessages();
    world.clock.advance(HOUR);
    await world.requestSweep();
    await expect(world.collect()).rejects.toThrow('1 uploads could not be processed');
    expect(world.count('UploadsMissed')).toBe(1);
  });

  it('stores many small assets of one flow side by side', async () => {
    await begin({ routes: [{ ...ECHO, parameters: { copies: 60 } }] });
    await flowsOf(['a'], Buffer.alloc(1_000, 7));
    world.fault('getAsset', { delayMs: SECOND });
    const from = world.clock.now();
    expect(await world.tickAfter(20 * MINUTE)).toMatchObject({ succeeded: 1 });
    expect((await world.receipt('a')).assets).toHaveLength(60);
    // 60 seconds one by one, and more than a second all at once.
    expect(world.clock.now() - from - 20 * MINUTE).toBeLessThan(20 * SECOND);
  });
});

describe('the rounds of a tick that may leave them to messages', () => {
  interface Sent {
    readonly event: { readonly until: number; readonly left?: LeftLease };
    readonly delaySeconds: number;
  }

  /** The messages of the tick to itself, from now on. */
  function roundsSent(): Sent[] {
    const sent: Sent[] = [];
    const nextRound = async (event: object, delaySeconds: number) =>
      void sent.push({ event: event as Sent['event'], delaySeconds });
    world.ports = { ...world.ports, nextRound };
    return sent;
  }

  const comes = async ({ event }: Sent) =>
    (await world.collect({ Records: [{ messageId: 'm', body: JSON.stringify(event) }] })) as TickSummary;

  /** A tick and all its rounds. The messages come after their delays. */
  async function ticked(options: WorldOptions, prepare: () => Promise<unknown>) {
    await begin({ isVirtual: true, ...options });
    await prepare();
    const sent = roundsSent();
    const startedAt = world.clock.now();
    const summaries = [(await world.collect()) as TickSummary];
    for (const message of sent) {
      world.clock.advance(message.delaySeconds * SECOND);
      summaries.push(await comes(message));
    }
    return { sent, summaries, tookMs: world.clock.now() - startedAt };
  }

  /** A tick that has left its second round to the message that is returned. */
  async function left(prepare?: () => unknown): Promise<readonly [Sent, ...Sent[]]> {
    await begin({ isVirtual: true, ...running });
    await flowsOf(['a']);
    await prepare?.();
    const sent = roundsSent();
    await world.collect();
    expect(sent).toHaveLength(1);
    return sent as [Sent];
  }

  const running = { settings: { pollIntervalSeconds: 15 }, service: { flowMs: 10 * MINUTE } };

  it('come one by one until the minute is over, and poll as often as a tick that waits', async () => {
    const { sent, summaries, tookMs } = await ticked(running, () => flowsOf(['a']));
    // A flow below half a minute is polled every five seconds, and then every fifteen.
    expect(sent.map(({ delaySeconds }) => delaySeconds)).toEqual([5, 5, 5, 5, 5, 5, 15]);
    expect(summaries.map(({ rounds }) => rounds)).toEqual(summaries.map(() => 1));
    expect(summaries.reduce((sum, { polled }) => sum + polled, 0)).toBe(8);
    expect(tookMs).toBeLessThan(MINUTE);
    expect((await state()).heldUntil).toBe(0);
  });

  it('go on under one lease, which each takes by one write and only the last releases', async () => {
    let writes = 0;
    const { summaries } = await ticked(running, async () => {
      await flowsOf(['a']);
      world.beforeS3((call, { Key }) => {
        if (call === 'PutObject' && Key === 'state/collector-0.json') writes += 1;
      });
    });
    expect(writes).toBe(summaries.length + 1);
  });

  it('are done once, although a message comes twice', async () => {
    const sent = await left();
    world.clock.advance(5 * SECOND);
    const both = await Promise.all([comes(sent[0]), comes(sent[0])]);
    expect(both.map(({ result, polled }) => ({ result, polled }))).toEqual(
      expect.arrayContaining([
        { result: 'completed', polled: 1 },
        { result: 'lease taken', polled: 0 },
      ]),
    );
    expect(sent).toHaveLength(2);
    expect(await comes(sent[0])).toMatchObject({ result: 'lease taken' });
  });

  it('are done by the next tick if the message is lost, and not once more if it comes late', async () => {
    const sent = await left();
    world.clock.advance(55 * SECOND);
    expect(await world.collect()).toMatchObject({ result: 'completed', polled: 1 });
    expect(await comes(sent[0])).toMatchObject({ result: 'lease taken' });
  });

  it('may come late while there is no other tick', async () => {
    const sent = await left();
    world.clock.advance(HOUR);
    expect(await comes(sent[0])).toMatchObject({ result: 'completed', polled: 1 });
    expect(sent).toHaveLength(1);
    expect((await state()).heldUntil).toBe(0);
  });

  it('keep what the round before has seen, so two rounds in a row can tell that a flow is gone', async () => {
    const sent = await left(async () => {
      const [gone = ''] = await flowsOf(['b']);
      world.clock.advance(6 * MINUTE);
      await world.collect();
      world.clock.advance(MINUTE);
      world.service.intercept = ({ url }, { operation }) =>
        operation === 'listFlows' ? answer({ flows: [] }) : url.includes(gone) ? { status: 404 } : undefined;
    });
    world.clock.advance(2 * MINUTE);
    expect(await comes(sent[0])).toMatchObject({ polled: 2, failed: 1 });
  });

  it.each<readonly [what: string, prepare: () => unknown]>([
    [
      'would keep the next tick from its work if the message were lost',
      () => {
        let delayMs = 29 * SECOND;
        world.beforeS3(async (call) => {
          if (call !== 'ListObjectsV2') return;
          await world.clock.sleep(delayMs);
          delayMs = 0;
        });
      },
    ],
    [
      'has a state that is too long for a message',
      async () => {
        const live = { segments: { echo: 'x'.repeat(60_000) } };
        const turns = { count: 0, live, late: { segments: {} } };
        const line = { sent: {}, throughAt: 0, refused: {}, extra: 1, turns };
        await world.put(LEDGER, 'state/collector-0.json', JSON.stringify({ heldUntil: 0, line }));
      },
    ],
  ])('come without the lease if it %s', async (_, prepare) => {
    const sent = await left(prepare);
    expect(sent[0].event.left).toBeUndefined();
    expect((await state()).heldUntil).toBe(0);
    world.clock.advance(sent[0].delaySeconds * SECOND);
    expect(await comes(sent[0])).toMatchObject({ result: 'completed', polled: 1 });
  });

  it('are left to the next tick if the message cannot be sent', async () => {
    await begin({ isVirtual: true, ...running });
    await flowsOf(['a']);
    world.ports = { ...world.ports, nextRound: () => Promise.reject(new Error('no queue')) };
    await expect(world.collect()).rejects.toThrow('no queue');
    expect(await state()).toMatchObject({ heldUntil: 0, lastCompletedAt: expect.any(Number) });
  });

  it('end with the last young flow', async () => {
    const { sent } = await ticked({ ...running, service: { flowMs: 12 * SECOND } }, () => flowsOf(['a']));
    expect(sent.length).toBeLessThan(5);
    expect(await world.receipt('a')).toMatchObject({ status: 'succeeded' });
  });

  it('come in one invocation while the service limits requests, or uploads wait in the line', async () => {
    const { sent, summaries } = await ticked(running, async () => {
      await flowsOf(['a']);
      world.fault('createFlow', { status: 429, headers: { 'retry-after': '600' } });
      await world.upload('b', 'x');
      await world.deliver();
    });
    expect(sent).toEqual([]);
    expect(summaries[0]?.rounds).toBeGreaterThan(2);
  });
});
