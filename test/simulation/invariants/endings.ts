import { ageFrom, type TerminalEntry } from '../../../functions/ledger/entry.ts';
import type { FlowView } from '../../../local/flow-service/flow.ts';
import { demand } from '../demand.ts';
import type { CallKind, Fault } from '../faults.ts';
import { DENIED_KEY } from '../names.ts';
import type { PollAnswer, Put } from '../observations.ts';
import { LOWERED_SETTINGS } from '../scenario.ts';
import { routeNameFor } from '../storm-routes.ts';
import type { World } from '../world.ts';
import { failureCodeOf, isInvalidText, isSuperseded, isTooLarge, newerPuts, putOf } from './facts.ts';
import { isJobFile, jobOf } from './jobs.ts';

/** Smallest time between two polls, in milliseconds. Requests within one poll are closer together. */
const POLLS_APART_MS = 5_000;

/** The process that polled, without the number of its invocation. */
const processOf = ({ by }: PollAnswer): string => by.split('#')[0] as string;

/** Every upload ended as it did for a real reason. */
export function checkEndings(world: World, entries: readonly TerminalEntry[]): void {
  for (const entry of entries) {
    const ending = new Ending(world, entry);
    ending.check();
    ending.checkOutputs();
  }
}

/** The end of one upload, with all that can be its reason. */
class Ending {
  readonly #world: World;
  readonly #entry: TerminalEntry;
  /** The put of the file, or of the first file of its chain. */
  readonly #put: Put;
  readonly #flow: FlowView | undefined;
  readonly #checks: Readonly<Record<string, () => void>> = {
    'flow-failed': () => this.#demand(this.#flow?.state === 'failed', 'a flow is called failed that is not'),
    'flow-aborted': () => {
      this.#demand(this.#flow?.aborted === true, 'a flow is called aborted that is not');
      this.#demand(false, 'a flow of ours was aborted, and the upload paid for it');
    },
    'input-empty': () => this.#demand(this.#isEmpty(), 'an upload is called empty that is not'),
    'invalid-text': () => this.#demand(isInvalidText(this.#put), 'a text is called invalid that is not'),
    rejected: () => this.#demand(this.#wasRefused(), 'an upload is called rejected that was not'),
    'upload-gone': () => this.#demand(this.#put.versionId === undefined, 'an upload is called gone that is there'),
    'outside-inbox': () =>
      this.#demand(this.#put.bucket !== this.#world.inbox, 'an upload is called outside of the inbox that is in it'),
    'input-too-large': () =>
      this.#demand(isTooLarge(this.#world, this.#put, this.#entry.inputs), 'an upload is called too large that is not'),
    'input-denied': () => this.#demand(this.#put.key === DENIED_KEY, 'an upload is called denied that is not'),
    'attempts-exhausted': () => this.#checkAttempts(),
    'flow-gone': () => this.#checkGone(),
    'timed-out': () => this.#demand(this.#isTooOld(), 'a flow timed out too early'),
    'undeclared-word': () => {
      this.#demand(this.#isTooOld(), 'a flow timed out too early');
      const { jobApi } = this.#world;
      this.#demand(jobApi?.isUndeclared(this.#flow?.id ?? '') === true, 'the service has no word that is not declared');
      this.#demand(this.#flow?.aborted !== true, 'a flow was aborted whose word is not declared');
    },
    'no-outputs': () => this.#demand(this.#flow?.outputs.length === 0, 'a flow has outputs, and is said to have none'),
    unrouted: () => this.#demand(this.#wasUnrouted(), 'an upload is called unrouted that a route always wanted'),
    cancelled: () => this.#demand(this.#wasCancelled(), 'an upload is called cancelled that no operator cancelled'),
    superseded: () => this.#checkSuperseded(),
    'invalid-job': () => this.#demand(jobOf(this.#put) === undefined, 'a job file is called invalid that is not'),
    // `checkJobs` looks at what was missing.
    'inputs-missing': () => this.#demand(isJobFile(this.#put.key), 'a file is said to lack inputs, and is no job'),
    'input-gone': () => this.#demand(this.#put.versionId === undefined, 'an input is called gone that is there'),
    'outputs-failed': () => this.#demand(this.#entry.assets.length === 0, 'all outputs failed, and there are some'),
  };

  constructor(world: World, entry: TerminalEntry) {
    this.#world = world;
    this.#entry = entry;
    this.#put = putOf(world, entry) as Put;
    this.#flow = world.service.flows.find(({ id }) => id === entry.flow?.id);
  }

  check(): void {
    const code = failureCodeOf(this.#entry);
    if (code === undefined) {
      const { variation, skewMs } = this.#world.scenario;
      const undeclaredUntil = this.#world.jobApi?.undeclaredUntil(this.#flow?.id ?? '') ?? 0;
      // If the service does not serve flows, or hides this one, only the outputs can tell how it ended.
      const until = this.#entry.endedAt + skewMs;
      const isHidden = variation.getFlow !== 'served' || this.#isGoneTwiceInARow(['flow.get'], until);
      const isDeclared = until >= undeclaredUntil || isHidden;
      this.#demand(isDeclared, 'a flow succeeded by a word that is not declared', undeclaredUntil);
      const isUnseen = this.#flow?.state === 'failed' && isHidden;
      this.#demand(this.#flow?.state === 'completed' || isUnseen, 'a flow succeeded that did not');
      return;
    }
    const check = this.#checks[code];
    if (check === undefined) this.#demand(false, 'an upload failed for an unknown reason');
    else check();
  }

  /** All outputs of the flow are stored or reported as failed. Outputs that the service made fail for a reason only. */
  checkOutputs(): void {
    const entry = this.#entry;
    const flow = this.#flow;
    const code = failureCodeOf(entry);
    if (flow === undefined || ['flow-gone', 'timed-out', 'undeclared-word', 'cancelled'].includes(code ?? '')) return;
    // The service may say that a failed flow has no outputs to list.
    if (code === 'flow-failed' && entry.assets.length === 0 && this.#metOnFlow('flow.outputs', '404')) return;
    // Or it refuses to list them, in two polls.
    if (entry.state === 'failed' && entry.failure.message.includes('its outputs cannot be listed')) {
      this.#demand(this.#faultsOnFlow('flow.outputs').length >= 2, 'outputs are called refused that were not');
      return;
    }
    const stored = new Set(entry.assets.map(({ id }) => id));
    const failed = new Set(entry.failedOutputs.map(({ id }) => id));
    const isOwn = (id: string): boolean => flow.outputs.some(({ assetId }) => assetId === id);
    demand([...stored, ...failed].every(isOwn), 'an entry has outputs that are not its flow’s', entry, flow);
    for (const { assetId, error } of flow.outputs) {
      if (error !== undefined) {
        demand(failed.has(assetId) && !stored.has(assetId), 'a failed output is not reported', assetId, entry);
      } else if (!stored.has(assetId)) {
        demand(failed.has(assetId) && this.#hadTrouble(assetId), 'an output is missing', assetId, entry, flow);
      }
    }
  }

  #demand(holds: boolean, what: string, ...values: readonly unknown[]): void {
    const flow = this.#flow && { ...this.#flow, inputs: undefined };
    demand(holds, what, ...values, failureCodeOf(this.#entry), { ...this.#entry, route: undefined }, flow);
  }

  #isEmpty(): boolean {
    const { inputs } = this.#entry;
    return inputs === undefined ? this.#put.content.byteLength === 0 : inputs.some(({ bytes }) => bytes === 0);
  }

  #wasUnrouted(): boolean {
    const { stage } = this.#entry.upload;
    return this.#world.observed.routings.some((routes) =>
      stage === undefined
        ? routeNameFor(routes, this.#put.key) === undefined
        : routes.every(({ name }) => name !== stage.route),
    );
  }

  #wasCancelled(): boolean {
    return this.#world.observed.asked.some(({ cancel = [] }) => cancel.includes(this.#entry.upload.id));
  }

  #checkSuperseded(): void {
    const { upload, endedAt } = this.#entry;
    const until = endedAt + this.#world.scenario.skewMs;
    const isOld = isSuperseded(this.#world, this.#put, until);
    // A file that must be still gives way to anything at its key, also to the same content that no route wants.
    const isChanged = newerPuts(this.#world, this.#put, until).length > 0;
    const isUnsentJob = isJobFile(upload.key) && this.#entry.inputs === undefined;
    // With versions, the older one is there, and is sent.

    const { settleSeconds, steps } = this.#world.scenario;
    const isSettling = settleSeconds !== undefined && upload.stage === undefined && this.#entry.flow === undefined;
    const mayGiveWay = upload.stage !== undefined || isUnsentJob || isSettling || this.#put.versionId === undefined;
    // If the entry of a success expires, `afterSuccess` may have deleted the file before the upload begins again.
    const wasEnded = this.#world.observed.expired.has(upload.id);
    const isDeleted =
      isSettling && (wasEnded || steps.some(({ kind, key }) => kind === 'delete' && key === this.#put.key));
    // Without the entry of the chain's first file, a copy of it counts as a newer file.
    const { stage } = upload;
    const isForgotten = stage !== undefined && this.#world.observed.expired.has(stage.first.id);
    this.#demand(
      mayGiveWay && (isOld || isDeleted || ((isSettling || isForgotten) && isChanged)),
      'an upload is called superseded whose file was not replaced',
    );
  }

  #checkAttempts(): void {
    if (this.#put.key === DENIED_KEY) return; // Each refusal by S3 is an attempt too, and no fault of the plan.
    const { scenario, observed, orderChecker } = this.#world;
    // An invocation whose claim was taken over counts as one that died.
    const takeovers = orderChecker.takeovers.get(this.#entry.upload.id) ?? 0;
    const blamed = (observed.blame.get(this.#put.key) ?? 0) + takeovers;
    const { attemptsMax } = observed.deployedAt.has('limits') ? LOWERED_SETTINGS : scenario.settings;
    this.#demand(blamed >= attemptsMax, 'an upload was given up without having failed so often', blamed);
  }

  #checkGone(): void {
    const met404 = this.#metOnFlow('flow.get', '404') || this.#metOnFlow('flow.outputs', '404');
    this.#demand(met404, 'a flow is called gone that the service knows');
    const { observed, orderChecker } = this.#world;
    const answers = observed.answers.get(this.#entry.flow?.id ?? '') ?? [];
    const { writer, at: writtenAt, leasedAt = 0 } = orderChecker.endWriteOf(this.#entry) ?? { at: 0 };
    // The tick that wrote the end knows its own answers, and those of every tick before it. Another tick may have taken
    // the lease since, and have seen the flow.
    const own = answers.filter(({ by, at }) => by === writer && at <= writtenAt).map(({ at }) => at);
    const until = Math.max(leasedAt, ...own);
    const what = 'a flow is called gone after a single 404, or after one that was followed by an answer';
    this.#demand(this.#isGoneTwiceInARow(['flow.get', 'flow.outputs'], until), what, answers, { until });
  }

  /** True if the service said in two polls in a row, in answer to these calls, that the flow does not exist. */
  #isGoneTwiceInARow(calls: readonly CallKind[], until: number): boolean {
    const answers = this.#world.observed.answers.get(this.#entry.flow?.id ?? '') ?? [];
    // Other statuses tell nothing about the flow: the cause is the account or the service.
    const telling = answers.filter(
      ({ kind, status, at }) =>
        calls.includes(kind) && at <= until && (status < 300 || [404, 409, 410].includes(status)),
    );
    const lastKnown = telling.findLastIndex(({ status }) => status !== 404 && status !== 410);
    const gone = telling.slice(lastKnown + 1);
    const [first, last] = [gone[0], gone.at(-1)];
    if (first === undefined || last === undefined || gone.length < 2) return false;
    // Each process tells the time of its poll by its own clock, which may step.
    const { scenario } = this.#world;
    const isOneClock = processOf(first) === processOf(last) && scenario.clockSteps === undefined;
    const skewMs = isOneClock ? 0 : 2 * scenario.skewMs;
    return last.at - first.at + skewMs >= POLLS_APART_MS;
  }

  #isTooOld(): boolean {
    const { flow, endedAt } = this.#entry;
    return endedAt - (flow === undefined ? 0 : ageFrom(flow)) > this.#world.scenario.settings.flowAgeMaxSeconds * 1000;
  }

  #wasRefused(): boolean {
    const { key } = this.#put;
    const wasRefused = this.#world.observed.incidents.some(
      ({ kind, fault, keys }) => kind === 'flow.create' && ['404', '422', 'gateway'].includes(fault) && keys.has(key),
    );
    return wasRefused || key.startsWith('bad/');
  }

  #metOnFlow(kind: 'flow.get' | 'flow.outputs', fault: Fault): boolean {
    return this.#faultsOnFlow(kind).includes(fault);
  }

  #faultsOnFlow(kind: 'flow.get' | 'flow.outputs'): readonly Fault[] {
    const flowId = this.#entry.flow?.id ?? '?';
    const { incidents } = this.#world.observed;
    return incidents.filter((one) => one.kind === kind && one.path.includes(flowId)).map(({ fault }) => fault);
  }

  /** True if an asset met a fault, or the time for it was over because of one. */
  #hadTrouble(assetId: string): boolean {
    const { faultPlan, jobApi, observed } = this.#world;
    const code = this.#entry.failedOutputs.find(({ id }) => id === assetId)?.code;
    if (code === 'out-of-time') return Object.keys(faultPlan.table).length + observed.poisoned.size > 0;
    // While a process is frozen, its time runs on, and it does not get what the service sends.
    if (code === 'too-slow' && observed.wasAnyFrozen) return true;
    // Each attempt first asks the job for a new address.
    const flowId = jobApi && this.#entry.flow?.id;
    return observed.incidents.some(
      ({ kind, path }) => path.includes(assetId) || (kind === 'flow.outputs' && path.includes(flowId ?? assetId)),
    );
  }
}
