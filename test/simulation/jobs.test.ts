import { describe, expect, it } from 'vitest';
import type { Entry } from '../../functions/ledger/entry.ts';
import { checkJobs } from './invariants/jobs.ts';
import { Observations, type Put } from './observations.ts';
import { MINUTE } from './timeline.ts';
import type { World } from './world.ts';

const KEY = 'jobs/x/job.json';
const UPLOAD = { id: 'a'.repeat(40), bucket: 'inbox', key: KEY, versionId: 'job' };
const OTHER_INPUTS = 'two requests of one job sent other inputs';

const putAt = (at: number, key: string, versionId: string, text: string): Put =>
  ({ bucket: 'inbox', key, versionId, at, content: Buffer.from(text) }) as Put;

/** A flow that was made after so many minutes, of the input in this version. */
const flowAt = (minutes: number, versionId: string): object => ({
  createdAt: minutes * MINUTE,
  additional: { flowdrop: { pipeline: 'simulated', upload: UPLOAD.id, generation: 1 } },
  inputs: [{ bytes: 4, additional: { bucket: 'inbox', key: 'jobs/x/a.bin', versionId } }],
});

/** Checks a job whose entry expired after 10 minutes, and again after 20 minutes. */
function check(...flows: readonly object[]): void {
  const observed = new Observations();
  observed.puts.push(putAt(0, KEY, 'job', JSON.stringify({ inputs: [{ name: 'a.bin', optional: false }] })));
  for (const versionId of ['v1', 'v2', 'v3']) observed.puts.push(putAt(0, 'jobs/x/a.bin', versionId, 'data'));
  for (const minutes of [10, 20]) observed.noteExpired(UPLOAD.id, minutes * MINUTE);
  const world = { observed, service: { flows } } as unknown as World;
  checkJobs(world, [{ upload: UPLOAD, state: 'running', generation: 1 } as unknown as Entry]);
}

describe('a job whose entry expired', () => {
  it('may take other inputs each time that it is made anew', () => {
    expect(() => check(flowAt(1, 'v1'), flowAt(11, 'v2'), flowAt(21, 'v3'))).not.toThrow();
  });

  it('may still get a request that was begun before', () => {
    expect(() => check(flowAt(1, 'v1'), flowAt(11, 'v1'), flowAt(12, 'v2'))).not.toThrow();
  });

  it('sends the same inputs until its entry expires', () => {
    expect(() => check(flowAt(1, 'v1'), flowAt(9, 'v2'), flowAt(11, 'v2'))).toThrow(OTHER_INPUTS);
    expect(() => check(flowAt(11, 'v2'), flowAt(12, 'v3'))).toThrow(OTHER_INPUTS);
    expect(() => check(flowAt(21, 'v1'), flowAt(22, 'v2'))).toThrow(OTHER_INPUTS);
  });
});
