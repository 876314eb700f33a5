import { randomBytes } from 'node:crypto';
import { tmpdir } from 'node:os';
import { systemClock } from '../../functions/base/clock.ts';
import { type Answer, json, Refusal } from './answer.ts';
import { BlobFolder, type Content, sha256Of } from './blob.ts';
import { type Call, callOf, OPERATIONS, type Operation, type ServiceRequest, type ServiceResponse } from './call.ts';
import { ConnectionLostError, type Fault, type Gone, loseConnection, scripted, spoiled, upTo } from './fault.ts';
import type { FlowView } from './flow.ts';
import { type Admitted, Limiter, type Limits } from './limiter.ts';
import { Operations, type OperationsOptions } from './operations.ts';
import { contentLength } from './request-body.ts';
import { DEFAULT_VARIATION, type Variation } from './variation.ts';

const FLOW_MS_DEFAULT = 1_000;

export interface StandInOptions {
  /** Default: the machine's clock. Without `sleep`, the fault `delayMs` is ignored. */
  readonly clock?: { now(): number; sleep?(ms: number, signal?: AbortSignal): Promise<void> };
  /** Makes the ids of flows and assets. Default: 24 random hexadecimal digits. */
  readonly newId?: () => string;
  /** Accepted tokens. Default: only `stand-in-token`. */
  readonly tokens?: readonly string[];
  /** How long a flow takes from its start to its end, in milliseconds. Default 1,000. */
  readonly flowMs?: OperationsOptions['flowMs'];
  readonly variation?: Partial<Variation>;
  /** Limits on requests and flows. Default: none. */
  readonly limits?: Limits;
  /** Parent of the folder that keeps large inputs until `close`. Default: the system's temporary folder. */
  readonly dir?: string;
}

/**
 * A flow service to develop and test against. It follows the specification in every variation that is known, and answers
 * with real assets. It has no transport of its own: `http.ts` serves it, and a simulation calls `handle`. Its
 * only timer is that of the fault `delayMs`. Everything else follows from clock, randomness and calls.
 */
export class StandInFlowService {
  /** May be changed at any time. */
  readonly variation: Variation;
  /** Refuses requests above the limits, and counts accepted and refused requests. */
  readonly limiter: Limiter;
  /**
   * Called for every request as it arrives. Returns the fault to inject. `n` counts the calls of an operation from 1.
   */
  intercept: ((request: ServiceRequest, call: { operation: Operation; n: number }) => Fault | undefined) | undefined;
  readonly counts = Object.fromEntries([...OPERATIONS.map(([, , name]) => [name, 0]), ['unknown', 0]]) as Record<
    Operation,
    number
  >;
  readonly #clock: NonNullable<StandInOptions['clock']>;
  readonly #operations: Operations;
  readonly #blobs: BlobFolder;
  readonly #closed = new AbortController();
  #tokens: ReadonlySet<string>;

  constructor(options: StandInOptions = {}) {
    this.#clock = options.clock ?? systemClock;
    this.#tokens = new Set(options.tokens ?? ['stand-in-token']);
    this.#blobs = new BlobFolder(options.dir ?? tmpdir());
    this.variation = { ...DEFAULT_VARIATION, ...options.variation };
    this.limiter = new Limiter(options.limits ?? {}, this.#clock);
    this.#operations = new Operations({
      clock: this.#clock,
      newId: options.newId ?? (() => randomBytes(12).toString('hex')),
      flowMs: options.flowMs ?? FLOW_MS_DEFAULT,
      blobs: this.#blobs,
      variation: this.variation,
    });
  }

  /** Accepts these tokens from now on, and no others. */
  setTokens(tokens: readonly string[]): void {
    this.#tokens = new Set(tokens);
  }

  /** Every flow that was ever created, in the order of creation. */
  get flows(): FlowView[] {
    const now = this.#clock.now();
    return [...this.#operations.flows.values()].map((flow) => flow.view(now));
  }

  /** The content of an asset, as a download returns it. */
  asset(flowId: string, assetId: string): { mediaType: string; content: Content; sha256(): Promise<string> } {
    const output = this.#operations.flows.get(flowId)?.outputs.find((each) => each.assetId === assetId);
    if (output === undefined) throw new Error(`Flow ${flowId} has no asset ${assetId}.`);
    return { mediaType: output.mediaType, content: output.content, sha256: () => sha256Of(output.content) };
  }

  /** Ends the calls that hang, and removes the inputs on disk. */
  close(): void {
    this.#closed.abort(new ConnectionLostError('reset'));
    this.#blobs.remove();
  }

  /** @throws {ConnectionLostError} the connection must break. @throws the errors of the request's body. */
  async handle(request: ServiceRequest): Promise<ServiceResponse> {
    const call = callOf(request);
    const n = ++this.counts[call.operation];
    const fault = this.intercept?.(request, { operation: call.operation, n }) ?? {};
    const gone = () => AbortSignal.any([this.#closed.signal, ...(request.signal ? [request.signal] : [])]);

    if (fault.delayMs !== undefined) await this.#clock.sleep?.(fault.delayMs, gone());
    if (fault.reset === 'before-body') throw new ConnectionLostError('reset');
    const admission = this.limiter.admit(call.operation);
    if (!admission.isAdmitted) {
      return spoiled(json(admission.status, { detail: 'Too many requests' }, admission.headers), {}, gone);
    }
    try {
      const response = await this.#answerWithFault(call, admission, fault, gone);
      return { ...response, headers: { ...admission.headers, ...response.headers } };
    } finally {
      admission.settle(undefined);
    }
  }

  async #answerWithFault(call: Call, admission: Admitted, fault: Fault, gone: Gone): Promise<ServiceResponse> {
    const { request } = call;
    if (fault.status !== undefined && fault.at === 'before-body') return scripted(fault.status, fault);
    const hasBody = ['createFlow', 'changeFlow'].includes(call.operation);
    if (hasBody && (fault.reset === 'mid-body' || fault.hang === 'mid-body')) {
      await drain(upTo(contentLength(request) / 2, request.body));
      await loseConnection(fault, gone);
    }
    if (fault.hang === true || (fault.status !== undefined && fault.at !== 'after-effect')) {
      await drain(request.body);
      if (fault.status !== undefined) return scripted(fault.status, fault);
      await loseConnection(fault, gone);
    }

    const answer = await this.#answer(call, admission);
    if (fault.reset === 'after-effect' || fault.hang === 'after-effect') await loseConnection(fault, gone);
    if (fault.status !== undefined) return scripted(fault.status, fault);
    return spoiled(answer, fault, gone);
  }

  async #answer(call: Call, admission: Admitted): Promise<Answer> {
    try {
      this.#authorise(call.request);
      return await this.#operations.run(call, admission);
    } catch (error) {
      if (!(error instanceof Refusal)) throw error;
      return json(error.status, { detail: error.detail }, error.headers);
    }
  }

  /** Runs before the body is read, so that a client without a valid token learns that at once. */
  #authorise({ headers }: ServiceRequest): void {
    const token = /^Bearer (.+)$/i.exec(headers.authorization ?? '')?.[1];
    if (token !== undefined && this.#tokens.has(token)) return;
    throw new Refusal(401, 'Not authenticated', { 'www-authenticate': 'Bearer' });
  }
}

async function drain(chunks: AsyncIterable<Uint8Array>): Promise<void> {
  for await (const _ of chunks);
}
