import type { Entry } from '../../../functions/ledger/entry.ts';
import type { FlowView } from '../../../local/flow-service/flow.ts';
import { demand } from '../demand.ts';
import { flowTagOf } from '../flow-tag.ts';
import type { Put } from '../observations.ts';
import { JOBS } from '../storm-jobs.ts';
import type { World } from '../world.ts';
import { failureCodeOf, putOf } from './facts.ts';

/** An input in a job file of the simulation. */
type Named = { readonly name: string; readonly optional: boolean } | { readonly text: string };

/** What a flow says of an input that was a file. */
interface Sent {
  readonly bucket: string;
  readonly key: string;
  readonly versionId?: string;
}

export const isJobFile = (key: string): boolean => key.startsWith(JOBS) && key.endsWith('/job.json');

/** A file below the prefix of jobs that is an upload by itself: none but the job files. */
export const isInputOnly = (key: string): boolean => key.startsWith(JOBS) && !isJobFile(key);

/** The folder of the key of a job file. */
export const folderOf = (key: string): string => key.slice(0, -'job.json'.length);

/** What a job file says. Undefined if it cannot be used. */
export function jobOf({ content }: Put): { readonly inputs: readonly Named[] } | undefined {
  const job = JSON.parse(content.toString());
  return Object.keys(job).some((name) => name.startsWith('wrong')) ? undefined : job;
}

/** Each flow of a job has the inputs that its file names, in that order, each in a version that was there then. */
export function checkJobs(world: World, entries: readonly Entry[]): void {
  for (const entry of entries.filter(({ upload }) => isJobFile(upload.key))) {
    const put = putOf(world, entry) as Put;
    // A neighbour's flow may bear the same upload in its tag.
    const flows = world.service.flows.filter((flow) => {
      const tag = flowTagOf(flow);
      return tag?.upload === entry.upload.id && tag.pipeline !== 'another';
    });
    const job = jobOf(put);
    demand(job !== undefined || flows.length === 0, 'a flow was made of a job file that cannot be used', entry, flows);
    if (job === undefined) continue;
    for (const flow of flows) checkInputs(world, put, job.inputs, flow);
    checkSameInputs(flows, world.observed.expired.get(entry.upload.id) ?? []);
    if (failureCodeOf(entry) === 'inputs-missing') checkMissing(world, put, entry);
  }
}

function checkInputs(world: World, put: Put, named: readonly Named[], flow: FlowView): void {
  const folder = folderOf(put.key);
  let next = 0;
  for (const input of named) {
    const sent = flow.inputs[next];
    const { key, versionId } = (sent?.additional ?? {}) as Partial<Sent>;
    if ('text' in input) {
      const isSent = key === undefined && sent?.bytes === Buffer.byteLength(input.text);
      demand(isSent, 'a flow lacks a text of its job', input, flow.inputs);
      next += 1;
    } else if (key === folder + input.name) {
      const version = world.observed.puts.find(
        (one) =>
          one.bucket === put.bucket && one.key === key && one.versionId === versionId && one.at <= flow.createdAt,
      );
      const isWhole = world.observed.puts.some(
        (one) => one.key === key && one.versionId === versionId && one.content.byteLength === sent?.bytes,
      );
      demand(version !== undefined && isWhole, 'a flow has an input that nobody had put', input, flow.inputs);
      next += 1;
    } else demand(input.optional, 'a flow began without an input of its job', input, flow.inputs);
  }
  demand(next === flow.inputs.length, 'a flow has inputs that its job does not name', named, flow.inputs);
}

/**
 * All requests of one generation send the same versions. If the entry expires, the job begins anew, in the same
 * generation. Then it takes what is there now, once.
 */
function checkSameInputs(flows: readonly FlowView[], expiredAt: readonly number[]): void {
  for (const same of Map.groupBy(flows, (flow) => flowTagOf(flow)?.generation).values()) {
    const inputsOf = (flow: FlowView) =>
      JSON.stringify(flow.inputs.map(({ additional, bytes }) => [additional, bytes]));
    const inputs = new Set<string>();
    const ofEachEntry = Map.groupBy(same, ({ createdAt }) => expiredAt.filter((at) => at <= createdAt).length);
    for (const its of ofEachEntry.values()) {
      // A request that was begun before the entry expired may still come.
      const others = new Set(its.map(inputsOf)).difference(inputs);
      demand(others.size <= 1, 'two requests of one job sent other inputs', same.map(inputsOf), { expiredAt });
      for (const other of others) inputs.add(other);
    }
  }
}

/** A job fails for want of inputs only if one that it needs was not there at its deadline. */
function checkMissing(world: World, put: Put, entry: Entry): void {
  const { deadline = 0 } = entry.job ?? {};
  const isMissing = missingOf(world, put, deadline - world.scenario.skewMs).length > 0;
  demand(isMissing, 'a job failed for want of inputs that were there', entry);
}

/** The inputs that a job needs, and that nobody had put by then. */
export const missingOf = ({ observed }: World, put: Put, by: number): readonly Named[] =>
  (jobOf(put)?.inputs ?? []).filter((input) => {
    if ('text' in input || input.optional) return false;
    const key = folderOf(put.key) + input.name;
    return !observed.puts.some((one) => one.bucket === put.bucket && one.key === key && one.at <= by);
  });
