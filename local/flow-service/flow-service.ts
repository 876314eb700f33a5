import { tmpdir } from 'node:os';
import { setTimeout as sleep } from 'node:timers/promises';
import { type Answer, empty, json, list, Refusal, requireServed } from './answer.ts';
import { assetJson } from './asset-json.ts';
import { BlobFolder, type Content, sha256Of } from './blob.ts';
import { ConnectionLostError, type Fault, garbled, upTo } from './fault.ts';
import { Flow, type Output, type State } from './flow.ts';
import type { JsonPath } from './json-reader.ts';
import { type Admitted, Limiter, type Limits } from './limiter.ts';
import { listingPage, outputsPage } from './paging.ts';
import {
  type Body,
  contentLength,
  inputOf,
  inputsOf,
  isDataOfInput,
  isDataOfInputs,
  type Problem,
  readBody,
} from './request-body.ts';
import { parameterProblems, TEMPLATES } from './templates.ts';
import type { ServiceRequest, ServiceResponse } from './transport.ts';
import { DEFAULT_VARIATION, type Variation } from './variation.ts';

const FLOW_MS_DEFAULT = 1_000;

export interface StandInOptions {
  /** Default: the machine's. `sleep` is needed for the fault `delayMs` only. */
  readonly clock?: { now(): number; sleep?(ms: number, signal?: AbortSignal): Promise<void> };
  /** 0 to 1, for ids. Default `Math.random`. */
  readonly random?: () => number;
  /** Ids of flows and assets. Default: 24 hexadecimal digits from `random`. */
  readonly newId?: () => string;
  /** The tokens that are accepted. Default: `stand-in-token` alone. */
  readonly tokens?: readonly string[];
  /** How long a flow takes from its start to its end, in milliseconds. Default 1,000. */
  readonly flowMs?: number | ((flow: { readonly id: string; readonly template: string }) => number);
  readonly variation?: Partial<Variation>;
  /** How many requests and flows the service allows. Default: no limit. */
  readonly limits?: Limits;
  /** Where large inputs are kept, in a folder of their own that `close` removes. Default: the system's. */
  readonly dir?: string;
  /** What comes before `/flows` in every path. Default: nothing. */
  readonly basePath?: string;
}

export type { ServiceRequest, ServiceResponse } from './transport.ts';

export type Operation =
  | 'createFlow'
  | 'listFlows'
  | 'getFlow'
  | 'changeFlow'
  | 'deleteFlow'
  | 'addInput'
  | 'listOutputs'
  | 'getAsset'
  | 'listTemplates'
  | 'download'
  | 'unknown';

/** What the service knows of a flow, for tests. Times are milliseconds since the epoch. */
export interface FlowView {
  readonly id: string;
  readonly template: string;
  readonly parameters: unknown;
  readonly additional: unknown;
  readonly inputs: readonly {
    readonly mediaType: string;
    readonly bytes: number;
    readonly sha256: string;
    readonly additional: unknown;
  }[];
  /** Those that there will be if the flow goes on as it is. */
  readonly outputs: readonly {
    readonly assetId: string;
    readonly mediaType: string;
    readonly bytes: number;
    readonly additional: unknown;
    readonly error: string | undefined;
  }[];
  readonly state: State;
  readonly createdAt: number;
  readonly startedAt: number | undefined;
  readonly finishedAt: number | undefined;
  readonly aborted: boolean;
  readonly deleted: boolean;
}

interface Call {
  readonly request: ServiceRequest;
  readonly path: string;
  readonly query: URLSearchParams;
  readonly isUnderFlows: boolean;
  readonly operation: Operation;
  readonly flowId: string;
  readonly assetId: string;
}

/**
 * A flow service to develop and test against: it speaks the specification, in every variation that is known or feared,
 * and answers with real assets. It knows of no transport: `http.ts` serves it over HTTP, a simulation calls `handle`.
 * It uses no timer of its own but for the fault `delayMs`; all that happens follows from clock, randomness and calls.
 */
export class StandInFlowService {
  /** May be changed at any time. */
  readonly variation: Variation;
  /** Refuses what is beyond the limits, and counts what was let in and what was refused. */
  readonly limiter: Limiter;
  /** Asked for every call as it arrives: what is to go wrong with it. `n` counts the calls of an operation from 1. */
  intercept: ((request: ServiceRequest, call: { operation: Operation; n: number }) => Fault | undefined) | undefined;
  readonly counts: Record<Operation, number> = {
    createFlow: 0,
    listFlows: 0,
    getFlow: 0,
    changeFlow: 0,
    deleteFlow: 0,
    addInput: 0,
    listOutputs: 0,
    getAsset: 0,
    listTemplates: 0,
    download: 0,
    unknown: 0,
  };
  readonly #flows = new Map<string, Flow>();
  readonly #clock: NonNullable<StandInOptions['clock']>;
  readonly #random: () => number;
  readonly #newId: () => string;
  readonly #flowMs: NonNullable<StandInOptions['flowMs']>;
  readonly #basePath: string;
  readonly #blobs: BlobFolder;
  readonly #closed = new AbortController();
  /** Downloads of assets that vary. */
  #downloads = 0;
  #tokens: ReadonlySet<string>;

  constructor(options: StandInOptions = {}) {
    this.#clock = options.clock ?? { now: () => Date.now() };
    this.#random = options.random ?? Math.random;
    this.#newId = options.newId ?? (() => this.#hexId());
    this.#tokens = new Set(options.tokens ?? ['stand-in-token']);
    this.#flowMs = options.flowMs ?? FLOW_MS_DEFAULT;
    this.#basePath = options.basePath ?? '';
    this.#blobs = new BlobFolder(options.dir ?? tmpdir());
    this.variation = { ...DEFAULT_VARIATION, ...options.variation };
    this.limiter = new Limiter(options.limits ?? {}, this.#clock);
  }

  /** From now on these tokens are accepted and no other. */
  setTokens(tokens: readonly string[]): void {
    this.#tokens = new Set(tokens);
  }

  /** Every flow that was ever created, in the order of creation. */
  get flows(): FlowView[] {
    return [...this.#flows.values()].map((flow) => this.#view(flow));
  }

  /** What an asset consists of, as one would download it. */
  asset(flowId: string, assetId: string): { mediaType: string; content: Content; sha256(): Promise<string> } {
    const made = this.#flows.get(flowId)?.outputs.find((output) => output.assetId === assetId);
    if (made === undefined) throw new Error(`There is no asset ${assetId} of a flow ${flowId}.`);
    return { mediaType: made.mediaType, content: made.content, sha256: () => sha256Of(made.content) };
  }

  /** Ends what hangs and removes what was kept on disk. */
  close(): void {
    this.#closed.abort(new ConnectionLostError('reset'));
    this.#blobs.remove();
  }

  /** @throws {ConnectionLostError} where the connection is to break. @throws whatever the request's body throws. */
  async handle(request: ServiceRequest): Promise<ServiceResponse> {
    const call = this.#route(request);
    const n = ++this.counts[call.operation];
    const fault = this.intercept?.(request, { operation: call.operation, n }) ?? {};

    if (fault.delayMs !== undefined) await this.#sleep(fault.delayMs, request.signal);
    if (fault.reset === 'before-body') throw new ConnectionLostError('reset');
    const admission = this.limiter.admit(call.operation);
    if (!admission.isAdmitted) {
      const refusal = json(admission.status, { detail: 'Too many requests' }, admission.headers);
      return this.#spoil(refusal, {}, request.signal);
    }
    try {
      const response = await this.#admitted(call, fault, admission);
      return { ...response, headers: { ...admission.headers, ...response.headers } };
    } finally {
      admission.settle(undefined);
    }
  }

  async #admitted(call: Call, fault: Fault, admission: Admitted): Promise<ServiceResponse> {
    const { request } = call;
    if (fault.status !== undefined && fault.at === 'before-body') return scripted(fault.status, fault);
    const hasBody = ['createFlow', 'addInput', 'changeFlow'].includes(call.operation);
    if (hasBody && (fault.reset === 'mid-body' || fault.hang === 'mid-body')) {
      await drain(upTo(contentLength(request) / 2, request.body));
      await this.#lose(fault, request.signal);
    }
    if (fault.hang === true || (fault.status !== undefined && fault.at !== 'after-effect')) {
      await drain(request.body);
      if (fault.status !== undefined) return scripted(fault.status, fault);
      await this.#lose(fault, request.signal);
    }

    const answer = await this.#answer(call, admission);
    if (fault.reset === 'after-effect' || fault.hang === 'after-effect') await this.#lose(fault, request.signal);
    if (fault.status !== undefined) return scripted(fault.status, fault);
    return this.#spoil(answer, fault, request.signal);
  }

  #route(request: ServiceRequest): Call {
    // Not parsed as a URL, which would take `..` for more than the id that it is here.
    const [path = '', query = ''] = request.url.split(/\?(.*)/s);
    const parts = path.startsWith(`${this.#basePath}/`) ? path.slice(this.#basePath.length + 1).split('/') : [];
    const [first = '', second = '', third = '', fourth = ''] = parts.map(decoded);
    const call = (operation: Operation, flowId = '', assetId = ''): Call => ({
      request,
      path,
      query: new URLSearchParams(query),
      isUnderFlows: first === 'flows',
      operation,
      flowId,
      assetId,
    });

    switch (`${request.method} ${parts.length}`) {
      case 'GET 1':
        if (first === 'flows') return call('listFlows');
        if (first === 'templates') return call('listTemplates');
        break;
      case 'POST 1':
        if (first === 'flows') return call('createFlow');
        break;
      case 'GET 2':
        if (first === 'flows') return call('getFlow', second);
        if (second === 'outputs') return call('listOutputs', first);
        break;
      case 'PATCH 2':
        if (first === 'flows') return call('changeFlow', second);
        break;
      case 'DELETE 2':
        if (first === 'flows') return call('deleteFlow', second);
        break;
      case 'GET 3':
        if (first === 'flows' && third === 'outputs') return call('listOutputs', second);
        if (first === 'downloads') return call('download', second, third);
        break;
      case 'POST 3':
        if (first === 'flows' && third === 'inputs') return call('addInput', second);
        break;
      case 'GET 4':
        if (first === 'flows' && third === 'outputs') return call('getAsset', second, fourth);
        break;
    }
    return call('unknown');
  }

  async #answer(call: Call, admission: Admitted): Promise<Answer> {
    try {
      if (call.operation !== 'download') this.#authorise(call.request);
      switch (call.operation) {
        case 'createFlow':
          return await this.#createFlow(call, admission);
        case 'addInput':
          return await this.#addInput(call);
        case 'listFlows':
          return this.#listFlows(call);
        case 'getFlow':
          requireServed(this.variation.getFlow);
          return json(200, this.#record(this.#flow(call)));
        case 'changeFlow':
          return await this.#changeFlow(call);
        case 'deleteFlow':
          return this.#deleteFlow(call);
        case 'listOutputs':
          return this.#listOutputs(call);
        case 'getAsset':
          return await this.#getAsset(call);
        case 'listTemplates':
          return this.#listTemplates();
        case 'download':
          return this.#download(call);
        case 'unknown':
          throw new Refusal(404, 'Not Found');
      }
    } catch (error) {
      if (!(error instanceof Refusal)) throw error;
      return json(error.status, { detail: error.detail }, error.headers);
    }
  }

  /** Before the body is read, so that whoever has no token is told so at once. */
  #authorise({ headers }: ServiceRequest): void {
    const token = /^Bearer (.+)$/i.exec(headers.authorization ?? '')?.[1];
    if (token !== undefined && this.#tokens.has(token)) return;
    throw new Refusal(this.variation.wrongTokenStatus, 'Not authenticated', { 'www-authenticate': 'Bearer' });
  }

  async #createFlow({ request }: Call, admission: Admitted): Promise<Answer> {
    return this.#withBody(request, isDataOfInputs, ({ value, data }, problem) => {
      const template = TEMPLATES.find(({ id, name }) => id === value.template || name === value.template);
      if (template === undefined) {
        problem(['template'], value.template === undefined ? 'Field required' : 'There is no such template');
        return undefined;
      }
      for (const { name, message } of parameterProblems(template, value.parameters)) {
        problem(['parameters', ...(name === undefined ? [] : [name])], message);
      }
      const inputs = inputsOf(value.inputs, template, data, problem);
      return () => {
        const now = this.#clock.now();
        const flow = new Flow({
          id: this.#unusedId(),
          template,
          parameters: value.parameters,
          additional: value.additional,
          createdAt: now,
          listedFrom: now + this.variation.listingDelayMs,
        });
        flow.inputs.push(...inputs);
        this.#flows.set(flow.id, flow);
        admission.settle(flow);
        if (inputs.length > 0) this.#start(flow);
        return json(this.variation.createStatus, {
          [this.variation.flowIdName]: flow.id,
          state: flow.state(now),
        });
      };
    });
  }

  async #addInput(call: Call): Promise<Answer> {
    requireServed(this.variation.addInput);
    const flow = this.#flow(call);
    return this.#withBody(call.request, isDataOfInput, ({ value, data }, problem) => {
      const input = inputOf(value, flow.template, data, problem);
      return () => {
        this.#requireState(flow, ['created']);
        if (input !== undefined) flow.inputs.push(input);
        return json(201, this.#record(flow));
      };
    });
  }

  async #changeFlow(call: Call): Promise<Answer> {
    requireServed(this.variation.changeFlow);
    const flow = this.#flow(call);
    return this.#withBody(
      call.request,
      () => false,
      ({ value }, problem) => {
        if (value.action !== 'start' && value.action !== 'abort') problem(['action'], 'must be start or abort');
        return () => {
          if (value.action === 'start') {
            this.#requireState(flow, ['created']);
            if (flow.inputs.length === 0) throw new Refusal(409, 'The flow has no inputs');
            this.#start(flow);
          } else {
            this.#requireState(flow, ['created', 'starting', 'running']);
            flow.abort(this.#clock.now());
          }
          return json(200, this.#record(flow));
        };
      },
    );
  }

  #deleteFlow(call: Call): Answer {
    requireServed(this.variation.deleteFlow);
    const flow = this.#flow(call);
    this.#requireState(flow, ['created', 'completed', 'aborted', 'failed']);
    flow.deleted = true;
    return empty(204);
  }

  #listFlows({ path, query }: Call): Answer {
    requireServed(this.variation.listFlows);
    const now = this.#clock.now();
    // A map keeps the order of insertion, which is that of creation.
    const { listSort, listActiveOnly, listAdditional } = this.variation;
    const visible = [...this.#flows.values()].filter(
      (flow) => !flow.deleted && flow.listedFrom <= now && !(listActiveOnly && flow.isTerminal(now)),
    );
    if (listSort === 'changed') visible.sort((a, b) => a.changedAt(now) - b.changedAt(now));
    return listingPage(visible, { path, query }, this.variation, (flow) => {
      const { additional, ...record } = this.#record(flow);
      if (listAdditional === 'none') return record;
      return { ...record, additional: listAdditional === 'string' ? JSON.stringify(additional) : additional };
    });
  }

  #listOutputs(call: Call): Answer {
    const { outputsPath, earlyOutputs, flowIdName } = this.variation;
    if (outputsPath !== 'both' && (outputsPath === 'flows') !== call.isUnderFlows) throw new Refusal(404, 'Not Found');
    const flow = this.#flow(call);
    const isTerminal = flow.isTerminal(this.#clock.now());
    if (!isTerminal && earlyOutputs === 'conflict') throw new Refusal(409, 'The flow is not in a terminal state');
    if (!isTerminal && earlyOutputs === 'not-found') throw new Refusal(404, 'There are no outputs yet');
    const outputs = !isTerminal && earlyOutputs === 'empty' ? [] : flow.outputs;
    const records = outputs.map((output) => this.#outputRecord(flow, output, isTerminal));
    return outputsPage(records, call.query, this.variation, { [flowIdName]: flow.id });
  }

  #outputRecord(flow: Flow, { assetId, additional, error }: Output, isTerminal: boolean): Record<string, unknown> {
    const { assetIdName, outputStatus } = this.variation;
    const status = isTerminal ? (error === undefined ? 'ready' : 'failed') : 'pending';
    return {
      [assetIdName]: assetId,
      ...(outputStatus && { status }),
      processed: isTerminal ? iso(flow.endsAt) : null,
      additional: additional ?? null,
      ...(isTerminal && error !== undefined && { error }),
    };
  }

  async #getAsset(call: Call): Promise<Answer> {
    const { assetRedirect } = this.variation;
    const output = this.#readyOutput(call);
    if (assetRedirect) {
      const location = assetRedirect(call.flowId, call.assetId);
      return empty(302, { location });
    }
    return this.#assetAnswer(output);
  }

  /** Where a redirect can lead: an address that, like a signed one, needs no token and suffers none. */
  #download(call: Call): Answer | Promise<Answer> {
    if (call.request.headers.authorization !== undefined) {
      throw new Refusal(400, 'Only one way of authorisation is allowed');
    }
    return this.#assetAnswer(this.#readyOutput(call));
  }

  #readyOutput(call: Call): Output {
    const flow = this.#flow(call);
    if (!flow.isTerminal(this.#clock.now())) {
      const status = this.variation.earlyOutputs === 'not-found' ? 404 : 409;
      throw new Refusal(status, 'The flow is not in a terminal state');
    }
    const output = flow.outputs.find(({ assetId }) => assetId === call.assetId);
    if (output === undefined) throw new Refusal(404, 'There is no such asset');
    if (output.error !== undefined) throw new Refusal(404, output.error);
    return output;
  }

  async #assetAnswer({ mediaType, content }: Output): Promise<Answer> {
    const { assetLength, ...form } = this.variation;
    const isJson = form.assetForm === 'json';
    const bytes = form.assetVaries ? ending(content, `#${++this.#downloads}`) : content;
    return {
      status: 200,
      headers: { 'content-type': isJson ? 'application/json' : mediaType },
      body: isJson ? await assetJson(mediaType, bytes, form) : bytes,
      isChunked: assetLength === 'chunked',
    };
  }

  #listTemplates(): Answer {
    requireServed(this.variation.listTemplates);
    const records = TEMPLATES.map(({ id, name, description, parameters, inputTypes, outputTypes }) => ({
      id,
      name,
      description,
      parameters,
      input_types: inputTypes.length === 0 ? ['*/*'] : inputTypes,
      output_types: outputTypes.length === 0 ? ['*/*'] : outputTypes,
    }));
    return list(this.variation.listShape, 'templates', records);
  }

  /** Lets `check` judge a body, and does what it gives back only if it found no problem; else the inputs are dropped. */
  async #withBody(
    request: ServiceRequest,
    isLong: (path: JsonPath) => boolean,
    check: (body: Body, problem: Problem) => (() => Answer) | undefined,
  ): Promise<Answer> {
    const body = await readBody(request, isLong, this.#blobs, this.variation);
    const detail: unknown[] = [];
    let answer: Answer | undefined;
    try {
      const act = check(body, (loc, msg) => detail.push({ loc: ['body', ...loc], msg, type: 'value_error' }));
      if (act === undefined || detail.length > 0) throw new Refusal(422, detail);
      answer = act();
      return answer;
    } finally {
      if (answer === undefined) body.discard();
    }
  }

  #start(flow: Flow): void {
    const durationMs =
      typeof this.#flowMs === 'number' ? this.#flowMs : this.#flowMs({ id: flow.id, template: flow.template.name });
    flow.start(this.#clock.now(), durationMs, () => this.#newId());
  }

  #flow({ flowId }: Call): Flow {
    const flow = this.#flows.get(flowId);
    if (flow === undefined || flow.deleted) throw new Refusal(404, 'There is no such flow');
    return flow;
  }

  #requireState(flow: Flow, states: readonly State[]): void {
    const state = flow.state(this.#clock.now());
    if (!states.includes(state)) throw new Refusal(409, `This is not possible in the state ${state}`);
  }

  #record(flow: Flow): Record<string, unknown> {
    const now = this.#clock.now();
    const state = flow.state(now);
    return {
      [this.variation.flowIdName]: flow.id,
      template: flow.template.name,
      state,
      progress: flow.progress(now),
      created_at: iso(flow.createdAt),
      started_at: iso(flow.startedAt),
      finished_at: flow.isTerminal(now) ? iso(flow.endsAt) : null,
      parameters: flow.parameters ?? null,
      additional: flow.additional ?? null,
      ...(state === 'failed' && { error: flow.error }),
    };
  }

  #view(flow: Flow): FlowView {
    const now = this.#clock.now();
    return {
      id: flow.id,
      template: flow.template.name,
      parameters: flow.parameters,
      additional: flow.additional,
      inputs: flow.inputs.map(({ mediaType, blob, additional }) => ({
        mediaType,
        bytes: blob.bytes,
        sha256: blob.sha256,
        additional,
      })),
      outputs: flow.outputs.map(({ assetId, mediaType, content, additional, error }) => ({
        assetId,
        mediaType,
        bytes: content.bytes,
        additional,
        error,
      })),
      state: flow.state(now),
      createdAt: flow.createdAt,
      startedAt: flow.startedAt,
      finishedAt: flow.isTerminal(now) ? flow.endsAt : undefined,
      aborted: flow.aborted,
      deleted: flow.deleted,
    };
  }

  #unusedId(): string {
    for (;;) {
      const id = this.#newId();
      if (!this.#flows.has(id)) return id;
    }
  }

  #hexId(): string {
    return Array.from({ length: 24 }, () => Math.floor(this.#random() * 16).toString(16)).join('');
  }

  async #sleep(ms: number, signal: AbortSignal | undefined): Promise<void> {
    const either = AbortSignal.any([this.#closed.signal, ...(signal ? [signal] : [])]);
    await (this.#clock.sleep ? this.#clock.sleep(ms, either) : sleep(ms, undefined, { signal: either }));
  }

  /** Breaks the connection at once, or, where it is to hang, when client or service give up. */
  async #lose(fault: Fault, signal: AbortSignal | undefined): Promise<never> {
    if (fault.hang === undefined) throw new ConnectionLostError('reset');
    const either = AbortSignal.any([this.#closed.signal, ...(signal ? [signal] : [])]);
    return new Promise((_, reject) => {
      const end = () => reject(new ConnectionLostError('reset'));
      if (either.aborted) end();
      else either.addEventListener('abort', end, { once: true });
    });
  }

  #spoil(answer: Answer, fault: Fault, signal: AbortSignal | undefined): ServiceResponse {
    const { status, isChunked = false } = answer;
    const body = fault.garble ? { bytes: answer.body.bytes, open: () => garbled(answer.body) } : answer.body;
    const length = Math.min(body.bytes, fault.truncateCleanly ?? body.bytes);
    const headers = { ...answer.headers, ...(!isChunked && status !== 204 && { 'content-length': String(length) }) };

    const cut = fault.truncateCleanly ?? fault.truncate;
    const isLost = fault.reset === 'mid-body' || fault.hang === 'mid-body';
    const lose = (broken: Fault) => this.#lose(broken, signal);
    async function* open(): AsyncGenerator<Uint8Array> {
      yield* upTo(isLost ? body.bytes / 2 : (cut ?? body.bytes), body.open());
      if (isLost) await lose(fault);
      if (fault.truncate !== undefined && fault.truncate < body.bytes) throw new ConnectionLostError('closed');
    }
    return { status, headers, body: open() };
  }
}

/** The same bytes, and then these. */
function ending({ bytes, open }: Content, text: string): Content {
  const end = Buffer.from(text);
  return {
    bytes: bytes + end.length,
    async *open() {
      yield* open();
      yield end;
    },
  };
}

function decoded(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

function iso(ms: number | undefined): string | null {
  return ms === undefined ? null : new Date(ms).toISOString();
}

function scripted(status: number, { headers = {}, body = '' }: Fault): ServiceResponse {
  if (typeof body !== 'string' && !(body instanceof Uint8Array)) return { status, headers: { ...headers }, body };
  const bytes = Buffer.from(body);
  return { status, headers: { 'content-length': String(bytes.length), ...headers }, body: bytes };
}

async function drain(chunks: AsyncIterable<Uint8Array>): Promise<void> {
  for await (const _ of chunks);
}
