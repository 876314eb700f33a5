import { randomBytes } from 'node:crypto';
import { systemClock } from '../functions/base/clock.ts';
import { counted, quoted } from '../functions/base/printable.ts';
import { wordsOfError } from '../functions/flow-service/answers.ts';
import {
  FlowServiceError,
  InDoubtError,
  JobFailedError,
  LedOnError,
  NotFoundError,
  NotReadyError,
  NotServedError,
  ThrottledError,
  UnauthorisedError,
  UnavailableError,
} from '../functions/flow-service/errors.ts';
import { PAGE_BYTES_MAX, parseJson } from '../functions/flow-service/json-answer.ts';
import { redact } from '../functions/flow-service/redact.ts';
import { ANSWER_DEPTH_MAX, type StateDescription } from '../functions/flow-service/service-description.ts';
import type { Transport } from '../functions/flow-service/transport.ts';
import type { CreateRequest, FlowService, Output } from '../functions/flow-service/types.ts';
import { keyOf } from '../functions/ledger/entry.ts';
import { listingAnswer } from '../functions/operator/questions.ts';
import type { PipelineSettings } from '../functions/settings/settings.ts';
import type { Route } from '../functions/uploads/route.ts';
import { fitsType } from '../functions/uploads/route-conditions.ts';
import type { Outcome } from './checks.ts';
import { clientOf, outcomeOfListing, outcomeOfLostAnswer, outcomeOfWords } from './flow-listing.ts';
import { type Part, readingOf } from './sample.ts';
import { type Service, shownTokenHeader } from './service-check.ts';

/** Longest time of a trial, in minutes. */
export const TRIAL_MINUTES_MAX = 10;

/** Time between two questions for a flow, in milliseconds. */
const POLL_MS = 2_000;

/** Questions for a new flow that may be answered with 404: a replica may not know it yet. */
const UNKNOWN_MAX = 5;

/** Time for which the outputs of a completed flow may be missing, in milliseconds. */
const NO_OUTPUTS_MS = 60_000;

/** The file that a trial sends. */
export interface TrialFile {
  readonly name: string;
  readonly mediaType: string;
  readonly content: Uint8Array;
  /** The route that takes it. */
  readonly route: Route;
}

export interface Trial {
  readonly service: Service;
  readonly settings: PipelineSettings;
  readonly file: TrialFile;
  /** Gets each line. They hold the service's words. */
  readonly print: (line: string) => void;
  /** Default: {@link TRIAL_MINUTES_MAX}, in milliseconds. */
  readonly trialMs?: number | undefined;
  /** Default: {@link POLL_MS} */
  readonly pollMs?: number | undefined;
}

/** Asks what costs nothing, the listings and an unknown flow, and prints what they show. @throws the signal's reason. */
export async function tryListings({ service, settings, print }: Trial, signal: AbortSignal): Promise<void> {
  const flows = clientOf(service, settings);
  const { templates, list } = service.speaks;
  const told = (what: string, outcome: Outcome): void => {
    print(
      `${what}: ${typeof outcome === 'string' ? outcome : 'notChecked' in outcome ? outcome.notChecked : ''}`.trim(),
    );
    if (typeof outcome === 'object' && 'good' in outcome) indented(outcome.good).forEach(print);
    if (typeof outcome === 'object' && 'what' in outcome)
      indented(`${outcome.what}\n${outcome.todo}`.trimEnd()).forEach(print);
  };
  if (templates !== undefined) told('templates', await templatesOf(flows, signal));
  if (list !== undefined) {
    const answer = await listingAnswer(flows, signal);
    told('listing', outcomeOfListing(list.order, answer));
    if (answer.issue === undefined) told('words and pages', outcomeOfWords(answer.listing));
  }
  told('errors', await errorsOf(service, settings, signal));
  told('a lost answer', outcomeOfLostAnswer({ service: service.speaks, settings }));
}

/** What is found in an error of the service: an unknown flow is asked for. */
async function errorsOf(service: Service, settings: PipelineSettings, signal: AbortSignal): Promise<Outcome> {
  const tap = new Tap();
  const nobody = randomBytes(12).toString('hex');
  const { errors, answerDepthMax = ANSWER_DEPTH_MAX } = service.speaks;
  try {
    await clientOf(service, settings, (transport) => tap.on(transport)).get(nobody, signal, { template: nobody });
    return { notChecked: 'the service answers for a flow that does not exist' };
  } catch (error) {
    if (!(error instanceof FlowServiceError)) throw error;
    const { misread: issue } = wordsOfError(undefined, redact(tap.error ?? '', service.token), errors, answerDepthMax);
    const isDown = error instanceof UnavailableError && error.status !== 500;
    if (isDown && service.speaks.list === undefined) {
      const what = `An unknown flow is answered with ${error.message}. After a lost answer, a file waits for a day, because the service seems to be down.`;
      return { severity: 'warning', what, todo: 'Have the service answer 404.' };
    }
    if (issue === undefined) return { good: `An unknown flow is answered with ${error.message}` };
    return { severity: 'warning', what: `The answer for an unknown flow has ${issue}.`, todo: '' };
  }
}

async function templatesOf(flows: FlowService, signal: AbortSignal): Promise<Outcome> {
  try {
    return { good: `It offers ${counted((await flows.templates(signal)).length, 'template')}.` };
  } catch (error) {
    if (!(error instanceof FlowServiceError)) throw error;
    return { notChecked: error.message };
  }
}

/**
 * Sends one file to a service as its description says, and prints what is understood of each answer. The flow may be paid
 * for. What it makes is fetched, and not kept. The client is that of the functions.
 * @returns true if a result came.
 * @throws the signal's reason.
 */
export async function tryService(trial: Trial, signal: AbortSignal): Promise<boolean> {
  const { trialMs = TRIAL_MINUTES_MAX * 60_000 } = trial;
  const limit = AbortSignal.timeout(trialMs);
  const attempt = new Attempt(trial, AbortSignal.any([signal, limit]));
  try {
    return await attempt.run();
  } catch (error) {
    if (!signal.aborted && !limit.aborted) throw error;
    if (!signal.aborted) trial.print(`No result came within ${Math.ceil(trialMs / 60_000)} minutes.`);
    attempt.lastLines.forEach(trial.print);
    signal.throwIfAborted();
    return false;
  }
}

/** What ends a trial without a result. */
class NoResultError extends Error {}

class Attempt {
  readonly #trial: Trial;
  readonly #signal: AbortSignal;
  readonly #flows: FlowService;
  readonly #tap = new Tap();
  readonly #uploadId = randomBytes(20).toString('hex');
  readonly #tag = { pipeline: 'check-service', upload: this.#uploadId, generation: 1 };
  readonly #begunAt = Date.now();
  #isSent = false;
  #id: string | undefined;
  #hasEnded = false;
  /** What was not understood of the state of the flow. */
  #unread: string | undefined;
  /** What was printed last of each answer. */
  readonly #shown = new Map<Part, readonly string[]>();

  constructor(trial: Trial, signal: AbortSignal) {
    this.#trial = trial;
    this.#signal = signal;
    this.#flows = clientOf(trial.service, trial.settings, (transport) => this.#tap.on(transport));
  }

  /** What to say at the end: what was not understood of the state, and what may still cost money. */
  get lastLines(): readonly string[] {
    const unread = this.#unread === undefined ? [] : [this.#unread];
    if (!this.#isSent || this.#hasEnded) return unread;
    const flow = this.#id === undefined ? 'A flow that was asked for' : `The flow ${this.#id}`;
    return [...unread, `${flow} may still run at ${this.#trial.service.url}, and may be paid for.`];
  }

  async run(): Promise<boolean> {
    try {
      const id = await this.#create();
      await this.#end(id);
      await this.#search();
      return await this.#fetch(id, await this.#outputs(id));
    } catch (error) {
      if (!(error instanceof NoResultError)) throw error;
      this.#print(error.message);
      this.lastLines.forEach(this.#print);
      return false;
    }
  }

  async #create(): Promise<string> {
    const { service, file } = this.#trial;
    const { method = 'POST', path, idempotency } = service.speaks.create;
    this.#print(`creation: ${method} ${path}`);
    const { template, parameters, additional, input: as } = file.route;
    const { content, mediaType, name } = file;
    const source = {
      bytes: content.byteLength,
      open: async () => [content] as unknown as AsyncIterable<Uint8Array>,
    };
    const request: CreateRequest = {
      ...{ template, parameters, additional, isAsked: true },
      tag: this.#tag,
      inputs: [{ as, mediaType, source, additional: { key: name } }],
      beforeSending: async () => {
        this.#isSent = true;
        const key = keyOf({ upload: { id: this.#uploadId }, generation: 1, keyScope: this.#uploadId.slice(-8) });
        if (idempotency !== undefined) this.#print(`  sent with ${idempotency.header}: ${key}`);
        return key;
      },
    };
    const { flowId } = await this.#step('create', 'create.path", "create.body', async () => {
      try {
        return await this.#flows.create(request, this.#signal);
      } catch (error) {
        this.#isSent &&= error instanceof InDoubtError || this.#signal.aborted;
        throw error;
      }
    });
    this.#id = flowId;
    return flowId;
  }

  /** Waits for the end of the flow. If the service does not serve flows, its outputs tell. */
  async #end(flowId: string): Promise<void> {
    const { state } = this.#trial.service.speaks;
    this.#print(`state: ${requestText([state.path], state)}`);
    for (let unknown = 0; ; ) {
      let flow: Awaited<ReturnType<FlowService['get']>>;
      try {
        flow = await this.#step('state', 'state.path', () => this.#flows.get(flowId, this.#signal, this.#of));
      } catch (error) {
        const isUnserved = error instanceof NotFoundError || error instanceof NotServedError;
        if (error instanceof LedOnError) {
          this.#print('  The answer leads to another path. The outputs must tell when the flow has ended.');
          return;
        }
        if (!isUnserved) throw error;
        unknown += 1;
        if (unknown >= UNKNOWN_MAX || error instanceof NotServedError) {
          this.#print(`  ${error.message}. The outputs must tell when the flow has ended.`);
          this.#unread = 'No state was read. If the service shows the state of a flow, correct "state.path".';
          return;
        }
        await this.#pause();
        continue;
      }
      const unread =
        flow.isDeclared === false
          ? `The last word, ${quoted(flow.word)}, is not declared: add it to "state" in the description.`
          : undefined;
      if (unread !== undefined && unread !== this.#unread) {
        this.#print('  It is asked again, in case another word comes. Ctrl-C ends that.');
      }
      this.#unread = unread;
      this.#hasEnded = flow.state !== 'running';
      if (flow.state === 'completed') return;
      if (flow.state !== 'running') {
        const why = flow.error === undefined ? '' : `: ${flow.error}`;
        throw new NoResultError(`The flow counts as ${flow.state} ("state.${flow.state}")${why}.`);
      }
      await this.#pause();
    }
  }

  /** Looks for the flow in the listing, as after a lost answer. */
  async #search(): Promise<void> {
    const { list } = this.#trial.service.speaks;
    if (list === undefined) return;
    this.#print(`listing: GET ${list.path}`);
    const sought = { tag: this.#tag, since: this.#begunAt, mayBeAbsent: true };
    try {
      const known = { hadFlowBefore: async () => true, flowsMade: async () => [] };
      const [found] = await this.#flows.find([sought], this.#signal, known);
      const why = found?.result === 'unknown' ? ` (${found.why})` : '';
      this.#print(
        found?.result === 'found'
          ? '  The flow is found by what was attached to it.'
          : `  The flow is not found by what was attached to it${why}. If that stays so, "inDoubt" decides about a lost answer.`,
      );
    } catch (error) {
      if (!(error instanceof FlowServiceError)) throw error;
      this.#print(`  ${error.message}`);
    }
  }

  async #outputs(flowId: string): Promise<readonly Output[]> {
    const { outputs: described, state } = this.#trial.service.speaks;
    this.#print(`outputs: ${requestText([described.path ?? state.path].flat(), state)}`);
    const since = Date.now();
    for (let before = ''; ; await this.#pause()) {
      const outputs = await this.#step('outputs', 'outputs.path', () =>
        this.#flows.outputs(flowId, this.#signal, this.#of),
      );
      const seen = JSON.stringify(outputs);
      const isWhole = (described.isWhole && this.#hasEnded) || seen === before;
      before = seen;
      if (outputs.length === 0) {
        if (this.#hasEnded && Date.now() - since > NO_OUTPUTS_MS) {
          const member = 'items' in described ? 'outputs.items' : 'outputs.addresses';
          throw new NoResultError(`The flow has no outputs. If it should have some, correct "${member}".`);
        }
      } else if (isWhole && outputs.every(({ status }) => status !== 'pending')) {
        this.#hasEnded = true;
        return outputs;
      }
    }
  }

  /** Fetches the outputs that are ready, and keeps none. */
  async #fetch(flowId: string, outputs: readonly Output[]): Promise<boolean> {
    const { makes } = this.#trial.file.route;
    const accepts = makes && ((mediaType: string) => makes.some((wanted) => fitsType(wanted, mediaType)));
    let results = 0;
    for (const { assetId, status, error } of outputs) {
      if (status === 'failed') {
        this.#print(`result ${assetId}: failed: ${error ?? 'the service says so ("outputs.failed")'}`);
        continue;
      }
      this.#tap.begin();
      try {
        const options = { ...this.#of, accepts };
        const { mediaType, chunks } = await this.#patient(() =>
          this.#flows.asset(flowId, assetId, this.#signal, options),
        );
        let bytes = 0;
        for await (const chunk of chunks) bytes += chunk.byteLength;
        this.#print(`result ${assetId}: ${mediaType}, ${counted(bytes, 'byte')}, ${this.#tap.way}`);
        results += 1;
      } catch (error) {
        if (!(error instanceof FlowServiceError)) throw error;
        this.#print(`result ${assetId}: ${error.message}`);
      }
    }
    const { abort } = this.#trial.service.speaks;
    if (abort !== undefined) this.#print(`abort: ${abort.method} ${abort.path} was not tried.`);
    if (results === 0) throw new NoResultError('No result came: correct "outputs" in the description of the service.');
    this.#print(
      `${counted(results, 'result')} of ${outputs.length} came, and ${results === 1 ? 'was' : 'were'} not kept.`,
    );
    this.lastLines.forEach(this.#print);
    return true;
  }

  /** Makes a request, and prints what is understood of its answer. @param member to correct if it fails. */
  async #step<T>(part: Part, member: string, ask: () => Promise<T>): Promise<T> {
    this.#tap.begin();
    let isTold = false;
    try {
      return await this.#patient(ask);
    } catch (error) {
      if (error instanceof JobFailedError) {
        this.#hasEnded = true;
        throw new NoResultError(`The flow counts as failed ("outputs.failed"): ${error.message}.`, { cause: error });
      }
      const isUnserved = error instanceof NotFoundError || error instanceof NotServedError;
      const { speaks } = this.#trial.service;
      const mayLeadOn = speaks.outputs.path !== undefined && error instanceof LedOnError;
      if (!(error instanceof FlowServiceError) || (part === 'state' && (isUnserved || mayLeadOn))) throw error;
      const { message } = error;
      const isToken = error instanceof UnauthorisedError;
      const sent = shownTokenHeader(speaks);
      const todo = isToken
        ? `Check the token in FLOWDROP_TOKEN. It was sent as ${sent}: if the service wants another form, correct "token"`
        : `Check "${error instanceof InDoubtError && error.isAccepted ? 'create.id' : member}"`;
      isTold = /correct "/.test(message);
      // Of an answer that is none of the service, the message says what else to check.
      const whole = isTold ? message : `${todo} in the description. ${message}`;
      throw new NoResultError(/\.$/.test(whole) ? whole : `${whole}.`, { cause: error });
    } finally {
      this.#show(part, isTold);
    }
  }

  /** @param isTold true if an error says already what to correct. */
  #show(part: Part, isTold: boolean): void {
    const { token, speaks } = this.#trial.service;
    const reading = this.#tap.json((text) =>
      readingOf(part, parseJson(redact(text, token), speaks.answerDepthMax ?? ANSWER_DEPTH_MAX), speaks),
    );
    if (reading === undefined) return;
    const { lines, issues, todo } = reading;
    const found = [...lines, ...(isTold || issues.length === 0 ? [] : [...issues, todo])];
    const before = this.#shown.get(part) ?? [];
    for (const line of found) if (!before.includes(line)) this.#print(`  ${line}`);
    this.#shown.set(part, found);
  }

  /** Asks again while the service is not ready, has too much to do, or cannot be reached. Each reason is printed once. */
  async #patient<T>(ask: () => Promise<T>): Promise<T> {
    for (let told = ''; ; await this.#pause()) {
      try {
        return await ask();
      } catch (error) {
        const mayPass =
          error instanceof NotReadyError || error instanceof ThrottledError || error instanceof UnavailableError;
        if (!mayPass || this.#signal.aborted) throw error;
        if (error.message !== told) this.#print(`  ${error.message}. It is asked again.`);
        told = error.message;
      }
    }
  }

  get #of() {
    return { uploadId: this.#uploadId, template: this.#trial.file.route.template };
  }

  #pause(): Promise<void> {
    return systemClock.sleep(this.#trial.pollMs ?? POLL_MS, this.#signal);
  }

  readonly #print = (line: string): void => this.#trial.print(line);
}

/** The request for the state of a flow, or for its outputs. */
const requestText = (paths: readonly string[], { path, body }: StateDescription): string =>
  `${body !== undefined && paths.includes(path) ? 'POST' : 'GET'} ${paths.join(' or ')}`;

const indented = (text: string): readonly string[] => text.split('\n').map((line) => `  ${line}`);

/** Looks at the answers that the client gets. */
class Tap {
  #requests = 0;
  #last:
    | { readonly url: URL; readonly status: number; readonly type: string; readonly chunks: Uint8Array[] }
    | undefined;

  begin(): void {
    this.#requests = 0;
    this.#last = undefined;
  }

  on(transport: Transport): Transport {
    return async (request, signal) => {
      this.#requests += 1;
      const response = await transport(request, signal);
      const chunks: Uint8Array[] = [];
      const { status, headers } = response;
      this.#last = { url: request.url, status, type: headers['content-type'] ?? '', chunks };
      const body = async function* (): AsyncGenerator<Uint8Array> {
        let bytes = 0;
        for await (const chunk of response.body) {
          bytes += chunk.byteLength;
          if (bytes <= PAGE_BYTES_MAX) chunks.push(chunk);
          yield chunk;
        }
      };
      return { ...response, body: body() };
    };
  }

  /** Reads the last success. Undefined if there is none, or if it is no JSON. */
  json<T>(read: (text: string) => T): T | undefined {
    if (this.#last === undefined || this.#last.status >= 300) return undefined;
    try {
      return read(Buffer.concat(this.#last.chunks).toString());
    } catch {
      return undefined; // The client's error tells.
    }
  }

  /** The last answer, if it is an error. */
  get error(): string | undefined {
    return this.#last === undefined || this.#last.status < 400
      ? undefined
      : Buffer.concat(this.#last.chunks).toString();
  }

  /** How an asset came. The rest of its address may hold a secret. */
  get way(): string {
    const { url, type } = this.#last ?? {};
    const form = /json/i.test(type ?? '') ? 'in JSON' : 'as bytes';
    const times = this.#requests > 1 ? ` by ${this.#requests} requests` : '';
    return `${form} from ${url === undefined ? 'nowhere' : quoted(url.origin).slice(1, -1)}${times}`;
  }
}
