import { describe, expect, it } from 'vitest';
import { checkFlows, SECOND_FLOW_LINES } from './invariants/flows.ts';
import { Observations } from './observations.ts';
import { MINUTE } from './timeline.ts';
import type { World } from './world.ts';

describe('an upload that was sent again because the listing showed no additional data', () => {
  const tag = { flowdrop: { pipeline: 'another', upload: '', generation: 1 } };

  /** A world whose service lists its flows: one of another client with that `additional`, and ours, made later. */
  function worldWith(additional: unknown): World {
    const at = 60 * MINUTE;
    const upload = 'a'.repeat(40);
    const observed = new Observations();
    const fields = {
      uploadId: upload,
      why: 'the listing shows no additional data of flows, so the tag cannot be seen',
    };
    observed.logged.push({ level: 'warn', message: SECOND_FLOW_LINES.resent, fields, at });
    observed.noteExpired(upload);
    const neighbours = { createdAt: 0, deleted: false, additional, inputs: [{ bytes: 3 }] };
    const ours = { flowdrop: { pipeline: 'simulated', upload, generation: 1 } };
    return {
      observed,
      scenario: {
        variation: { listFlows: 'served', listSort: 'created', listAdditional: 'object' },
        settings: { inDoubt: 'retry' },
      },
      service: { flows: [neighbours, { createdAt: at, deleted: false, additional: ours, inputs: [] }] },
    } as unknown as World;
  }

  it.each([
    ['has none', undefined],
    ['is empty', {}],
  ])('is excused if the additional of every listed flow %s', (_, additional) => {
    expect(() => checkFlows(worldWith(additional), [])).not.toThrow();
  });

  it('is not excused if a listed flow has some', () => {
    expect(() => checkFlows(worldWith(tag), [])).toThrow('a doubt was not settled although flows are listed');
  });
});
