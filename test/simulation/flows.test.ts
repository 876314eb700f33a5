import { describe, expect, it } from 'vitest';
import { FLOWS } from '../../functions/flow-service/services.ts';
import type { Entry } from '../../functions/ledger/entry.ts';
import { checkFlows, SECOND_FLOW_LINES } from './invariants/flows.ts';
import { Observations } from './observations.ts';
import { MINUTE } from './timeline.ts';
import type { World } from './world.ts';

const UPLOAD = 'a'.repeat(40);
const UNSETTLED = 'a doubt was not settled although flows are listed';

/**
 * A world whose service lists its flows: those given, of another client, and ours. Our upload was sent again for that
 * reason.
 */
function worldWith(why: string, others: readonly object[], pageSize = 2, paging = 'page'): World {
  const at = 60 * MINUTE;
  const observed = new Observations();
  const fields = { uploadId: UPLOAD, why };
  observed.logged.push({ level: 'info', message: SECOND_FLOW_LINES.decided, fields, at });
  observed.logged.push({ level: 'warn', message: SECOND_FLOW_LINES.resent, fields, at });
  observed.noteExpired(UPLOAD, at);
  const ours = { flowdrop: { pipeline: 'simulated', upload: UPLOAD, generation: 1 } };
  return {
    observed,
    scenario: {
      variation: { listFlows: 'served', pageSize, paging },
      settings: { inDoubt: 'retry' },
    },
    settings: { service: FLOWS },
    service: { flows: [...others, { createdAt: at, deleted: false, additional: ours, inputs: [] }] },
  } as unknown as World;
}

describe('an upload that was sent again because the listing showed no flow of Flowdrop', () => {
  const world = worldWith('the listing shows no flow of Flowdrop although some may have been made', []);
  const other = (generation: number) => [{ upload: { id: 'b'.repeat(40) }, generation }] as unknown as readonly Entry[];

  it('is excused if another upload was retried, which may have had a flow', () => {
    expect(() => checkFlows(world, other(2))).not.toThrow();
  });

  it('is excused if there are more entries than are read', () => {
    expect(() => checkFlows(world, Array(21).fill(other(1)).flat())).not.toThrow();
  });

  it('is not excused if no upload was', () => {
    expect(() => checkFlows(world, other(1))).toThrow(UNSETTLED);
  });
});

describe('an upload that was sent again because the listing is long', () => {
  const worldOf = (count: number, paging: string): World =>
    worldWith(
      'the listing has more than 96 entries',
      Array(count).fill({ createdAt: 0, deleted: false, additional: undefined, inputs: [{ bytes: 3 }] }),
      2,
      paging,
    );

  // Ours is one flow more. A search reads 50 pages. Of numbered pages it reads the first one twice, and an empty last one.
  it.each([
    ['numbered', 'page', 96],
    ['named by the page before', 'cursor', 100],
  ])('is excused if the flows fill more pages than one search reads: pages that are %s', (_, paging, count) => {
    expect(() => checkFlows(worldOf(count, paging), [])).not.toThrow();
  });

  it.each([
    ['numbered', 'page', 95],
    ['named by the page before', 'cursor', 99],
  ])('is not excused if they do not: pages that are %s', (_, paging, count) => {
    expect(() => checkFlows(worldOf(count, paging), [])).toThrow(UNSETTLED);
  });
});

describe('an upload that was sent again because the listing showed no additional data', () => {
  const tag = { flowdrop: { pipeline: 'another', upload: '', generation: 1 } };
  const worldOf = (additional: unknown): World =>
    worldWith('the listing shows no additional data of flows, so the tag cannot be seen', [
      { createdAt: 0, deleted: false, additional, inputs: [{ bytes: 3 }] },
    ]);

  it.each([
    ['has none', undefined],
    ['is empty', {}],
  ])('is excused if the additional of every listed flow %s', (_, additional) => {
    expect(() => checkFlows(worldOf(additional), [])).not.toThrow();
  });

  it('is not excused if a listed flow has some', () => {
    expect(() => checkFlows(worldOf(tag), [])).toThrow(UNSETTLED);
  });
});

describe('an upload that was sent again because the listing moved while it was read', () => {
  const worldOf = (createdAt: number, pageSize: number): World =>
    worldWith(
      'flows leave the listing, or move in it, while it is read',
      [{ createdAt, deleted: false, additional: undefined, inputs: [{ bytes: 3 }] }],
      pageSize,
    );

  it('is excused if a new flow fills a page', () => {
    expect(() => checkFlows(worldOf(59 * MINUTE, 1), [])).not.toThrow();
  });

  it('is not excused if no flow was made meanwhile', () => {
    expect(() => checkFlows(worldOf(57 * MINUTE, 1), [])).toThrow(UNSETTLED);
  });

  it('is not excused if a page has more flows', () => {
    expect(() => checkFlows(worldOf(59 * MINUTE, 2), [])).toThrow(UNSETTLED);
  });
});

describe('a flow of ours', () => {
  const check = (orphans: readonly string[], entry: object): void => {
    const ours = { flowdrop: { pipeline: 'simulated', upload: UPLOAD, generation: 1 } };
    const observed = new Observations();
    for (const flowId of orphans) {
      const fields = { uploadId: UPLOAD, flowId };
      observed.logged.push({ level: 'warn', message: SECOND_FLOW_LINES.orphaned, fields, at: 0 });
    }
    const world = {
      observed,
      scenario: { variation: { listFlows: 404 }, settings: { inDoubt: 'retry' } },
      settings: { service: FLOWS },
      service: { flows: [{ id: 'a', createdAt: 0, deleted: false, additional: ours, inputs: [] }] },
    };
    const entries = [{ upload: { id: UPLOAD }, generation: 1, ...entry }];
    checkFlows(world as unknown as World, entries as unknown as readonly Entry[]);
  };
  const failed = (message: string) => ({ state: 'failed', failure: { code: 'attempts-exhausted', message } });

  it('is collected, or an orphan, or the operator is told that there may be one', () => {
    expect(() => check([], { state: 'succeeded', flow: { id: 'a' } })).not.toThrow();
    expect(() => check(['a'], failed('Given up.'))).not.toThrow();
    expect(() => check([], failed('Given up. A request may have made a flow that is not known.'))).not.toThrow();
    expect(() => check([], failed('Given up.'))).toThrow('nobody is told of it');
  });

  it('is no orphan if it is collected', () => {
    expect(() => check(['a'], { state: 'succeeded', flow: { id: 'a' } })).toThrow('counts as an orphan');
  });
});

describe('two flows of one generation at a service that honours keys', () => {
  const check = (apartMs: number): void => {
    const ours = { flowdrop: { pipeline: 'simulated', upload: UPLOAD, generation: 1 } };
    const flows = [0, apartMs].map((createdAt) => ({ createdAt, deleted: false, additional: ours, inputs: [] }));
    const observed = new Observations();
    const line = { level: 'warn', message: SECOND_FLOW_LINES.resent, fields: { uploadId: UPLOAD }, at: 0 };
    observed.logged.push(line);
    const variation = { listFlows: 404, idempotencyHours: 1 };
    const world = {
      observed,
      scenario: { variation, settings: { inDoubt: 'retry' } },
      settings: { service: FLOWS },
      service: { flows },
    };
    checkFlows(world as unknown as World, [
      { upload: { id: UPLOAD }, generation: 1, state: 'waiting' } as unknown as Entry,
    ]);
  };

  it('are excused once the hours are over', () => {
    expect(() => check(61 * MINUTE)).not.toThrow();
  });

  it('are not excused within the hours, whatever was logged', () => {
    expect(() => check(50 * MINUTE)).toThrow('although the service honours keys');
  });
});
