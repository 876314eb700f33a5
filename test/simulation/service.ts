import {
  type Sent,
  TRANSPORT_LIMITS,
  type Transport,
  TransportError,
  type TransportRequest,
  type TransportResponse,
} from '../../functions/flow-service/transport.ts';
import { callOf, type Operation, type ServiceRequest, type ServiceResponse } from '../../local/flow-service/call.ts';
import { ConnectionLostError } from '../../local/flow-service/fault.ts';
import { inOneChunk, serviceRequestOf } from '../support/in-process-transport.ts';
import type { Fault, ServiceCallKind } from './faults.ts';
import { tagInRequest } from './flow-tag.ts';
import type { Post } from './hold-watch.ts';
import type { Lambda } from './lambda.ts';
import { scriptOf } from './service-faults.ts';
import { type ServiceCall, ServiceWatch } from './service-watch.ts';
import { type LateFlow, lateFlowOf } from './storm-late-flows.ts';
import { type Scheduled, SECOND, type Timeline } from './timeline.ts';
import type { World } from './world.ts';

/** Time that the server waits for the next byte of a request, in milliseconds. */
const SERVER_IDLE_MS = 60_000;

/** A public address for the server. */
const ADDRESS = '93.184.215.14';

const KINDS: Partial<Record<Operation, ServiceCallKind>> = {
  createFlow: 'flow.create',
  getFlow: 'flow.get',
  listOutputs: 'flow.outputs',
  getAsset: 'flow.asset',
  changeFlow: 'flow.abort',
  deleteFlow: 'flow.delete',
  listFlows: 'flows.list',
  // Asked for only if a 403 may be about the token.
  listTemplates: 'flows.list',
};

/** The transport of one process to the stand-in service. On its network everything takes time and may go wrong. */
export function transportOf(world: World, lambda: Lambda): Transport {
  const watch = new ServiceWatch(world, lambda);
  return (request, signal) => new Exchange({ world, lambda, watch }, request, signal).response;
}

interface Client {
  readonly world: World;
  readonly lambda: Lambda;
  readonly watch: ServiceWatch;
}

/** One request and its answer. */
class Exchange {
  readonly response: Promise<TransportResponse>;
  readonly #world: World;
  readonly #lambda: Lambda;
  readonly #watch: ServiceWatch;
  readonly #request: TransportRequest;
  readonly #signal: AbortSignal;
  readonly #gone = new AbortController();
  readonly #toServer = new Pipe();
  readonly #begunAt: number;
  /** The upload and the generation of which it asks for a flow. */
  #tag: ReturnType<typeof tagInRequest>;
  /** What the hold watch knows of it. */
  #post: Post | undefined;
  #sent: Sent = 'nothing';
  /** When the latest chunk reaches the service. */
  #arrivesAt = 0;
  #isAnswered = false;
  #failure: TransportError | undefined;
  #reject: (error: unknown) => void = () => {};
  #failReading: (error: unknown) => void = () => {};
  #timeLimit: Scheduled | undefined;
  #answerLimit: Scheduled | undefined;
  /** When the last byte of a creation was sent. */
  #sentAt: number | undefined;
  /** Stops listening to the signal and to the process's death. */
  #forget: () => void = () => {};

  constructor({ world, lambda, watch }: Client, request: TransportRequest, signal: AbortSignal) {
    this.#world = world;
    this.#lambda = lambda;
    this.#watch = watch;
    this.#request = request;
    this.#signal = signal;
    this.#begunAt = world.timeline.now();
    this.response = new Promise((resolve, reject) => {
      this.#reject = reject;
      this.#begin(resolve);
    });
  }

  #begin(resolve: (response: TransportResponse) => void): void {
    const world = this.#world;
    const { faultPlan, timeline } = world;
    const random = world.randoms.network;
    const lambda = this.#lambda;
    if (lambda.isDead) return;
    if (this.#signal.aborted) {
      this.#reject(new TransportError('The request was given up', { sent: 'nothing', cause: this.#signal.reason }));
      return;
    }
    const chunks = this.#request.body === undefined ? inOneChunk(new Uint8Array()) : this.#toServer.chunks(timeline);
    const request = serviceRequestOf(this.#request, chunks, this.#gone.signal);
    const call = serviceCallOf(world.jobApi?.understood(request, this.#request.url) ?? request);
    const late = lateFlowOf(world, call.kind);
    const fault =
      late === undefined
        ? (this.#watch.poisonOf(call, this.#request.body?.bytes) ?? faultPlan.draw(call.kind))
        : undefined;
    if (late !== undefined) world.observed.addBlame(lambda);
    world.noteCall(lambda, `${call.kind} ${call.request.url}`, fault);
    this.#watch.sees(call, fault);
    if (fault === 'killed before') {
      lambda.kill();
      return;
    }
    const unheard = lambda.whenAborted(this.#signal, () => {
      this.#fail('The request was given up', this.#signal.reason);
    });
    const survived = lambda.onDeath(() => this.#disconnect());
    this.#forget = () => {
      unheard();
      survived();
    };
    this.#limit(TRANSPORT_LIMITS.connectMs, 'No connection');
    if (world.scenario.kind === 'slow counterpart' && this.#request.body === undefined) this.#limitAnswer();
    if (fault === 'refused') {
      this.#reach(() => this.#fail(`connect ECONNREFUSED`));
      return;
    }
    const travelMs = fault === 'slow' ? random.int(3_000, 9_000) : random.int(1, random.chance(0.1) ? 2_000 : 60);
    const arrive = (): void => {
      if (this.#failure !== undefined) return;
      void this.#serve(call, { fault, late }, resolve);
      this.#reach(() => this.#connected());
    };
    // What a machine had no time to send before it fell asleep leaves it when it wakes up.
    if (fault === 'frozen' && world.scenario.clockSteps?.areAsleep) lambda.after(travelMs, 'answer', arrive);
    else timeline.schedule(timeline.now() + travelMs, arrive);
  }

  /** Serves the request at the other end. */
  async #serve(
    call: ServiceCall,
    { fault, late }: { readonly fault: Fault | undefined; readonly late: LateFlow | undefined },
    resolve: (response: TransportResponse) => void,
  ): Promise<void> {
    const world = this.#world;
    const { service, jobApi, timeline } = world;
    const random = world.randoms.network;
    const script = scriptOf(fault, this.#request, random, timeline);
    let answer: ServiceResponse;
    let told: ServiceResponse;
    const body = late === undefined ? call.request.body : this.#endingLate(call.request.body, late);
    const served = { ...call.request, body, replica: world.balancer.replicaFor(call.kind, this.#lambda) };
    try {
      service.intercept = () => script;
      const answering = (fault === undefined && jobApi?.refusalOf(this.#request.url)) || service.handle(served);
      service.intercept = undefined;
      answer = await answering;
      told = (await jobApi?.answerOf(call, answer, fault)) ?? answer;
    } catch (error) {
      if (!(error instanceof ConnectionLostError)) throw error;
      if (fault === 'killed after') this.#lambda.kill();
      world.trace(`${this.#lambda.name} ${call.kind} -> ${error.message}`);
      this.#reach(() => this.#fail('read ECONNRESET'));
      return;
    }
    world.trace(`${this.#lambda.name} ${call.kind} -> ${answer.status}`);
    if (fault === 'killed after') {
      this.#lambda.kill();
      return;
    }
    // A service that has rejected file after file may be slow too, and its answer may outlast the invocation.
    const isRouteSlow =
      fault !== 'slow' && world.holdWatch?.isOfFailingRoute(this.#post) === true && random.chance(0.5);
    if (isRouteSlow) world.observed.addBlame(this.#lambda);
    this.#lambda.after(
      fault === 'slow' || isRouteSlow ? random.int(5_000, 50_000) : random.int(1, 200),
      'answer',
      () => {
        if (this.#failure !== undefined) return;
        this.#isAnswered = true;
        if (this.#post !== undefined) this.#post.status = answer.status;
        // An answer without ids looks like an error of the service, which says that there is no flow.
        if (this.#tag !== undefined && answer.status < 300 && fault !== 'no ids') {
          world.orderChecker.seesAccepted(this.#lambda.invocationName, this.#tag.upload, this.#tag.generation);
        }
        this.#timeLimit?.cancel();
        if (this.#request.body !== undefined && this.#sent !== 'all') this.#limitAnswer();
        this.#watch.seesAnswer(call, answer);
        resolve({
          status: told.status,
          headers: {
            ...('content-length' in told.headers ? {} : { 'transfer-encoding': 'chunked' }),
            ...told.headers,
          },
          sent: this.#sent,
          address: ADDRESS,
          body: this.#receive(told.body),
          destroy: () => this.#fail('The answer was let go of'),
        });
      },
    );
  }

  /**
   * The body of a creation whose connection breaks some time after the last byte. The service goes on, and makes the flow
   * later.
   */
  async *#endingLate(body: ServiceRequest['body'], { breakMs, lateMs }: LateFlow): ServiceRequest['body'] {
    const world = this.#world;
    const { timeline } = world;
    yield* body;
    await new Promise<void>((resolve) => {
      timeline.schedule(timeline.now() + breakMs, () => {
        this.#reach(() => this.#fail('read ECONNRESET'));
        resolve();
      });
      this.#gone.signal.addEventListener('abort', () => resolve());
    });
    world.trace(`${this.#lambda.name}: the service makes a flow in ${lateMs / SECOND} s, and nobody hears of it`);
    await new Promise<void>((resolve) => timeline.schedule(timeline.now() + lateMs, resolve));
  }

  #connected(): void {
    if (this.#failure !== undefined || this.#isAnswered) return;
    if (this.#request.body === undefined) this.#limit(TRANSPORT_LIMITS.firstByteMs, 'No answer');
    else void this.#send(this.#request.body);
  }

  /** Sends the body. Like the real transport, it keeps the last chunk until the body has ended. */
  async #send({ bytes, chunks }: NonNullable<TransportRequest['body']>): Promise<void> {
    const isStopped = (): boolean => this.#failure !== undefined || this.#isAnswered;
    let left = bytes;
    let last: Uint8Array | undefined;
    try {
      this.#limit(TRANSPORT_LIMITS.idleMs, 'Nothing could be sent');
      for await (const chunk of chunks) {
        if (isStopped()) return;
        if (chunk.byteLength === 0) continue;
        left -= chunk.byteLength;
        if (left < 0) throw new Error('The body is longer than announced');
        if (left === 0) last = chunk;
        else {
          this.#sent = 'part';
          await this.#wire(chunk);
          if (isStopped()) return;
        }
        this.#limit(TRANSPORT_LIMITS.idleMs, 'Nothing could be sent');
      }
      if (left > 0) throw new Error('The body ended short of what was announced');
      if (isStopped()) return;
      this.#sent = 'all';
      if (this.#request.method === 'POST') this.#sentAt = this.#world.timeline.now();
      this.#limitAnswer();
      await this.#wire(last ?? new Uint8Array());
      if (!isStopped()) this.#limit(this.#request.headMs ?? TRANSPORT_LIMITS.firstByteMs, 'No answer');
    } catch (error) {
      if (!isStopped()) this.#fail((error as Error).message, error);
    }
  }

  /** Sends a chunk. It arrives even if the process dies. Resolves when the process learns that the chunk has left. */
  #wire(chunk: Uint8Array): Promise<void> {
    const { timeline, randoms, holdWatch } = this.#world;
    const copy = Buffer.from(chunk); // The producer uses its memory again.
    const isLast = this.#sent === 'all';
    if (this.#request.method === 'POST') this.#tag ??= tagInRequest(copy);
    if (this.#tag !== undefined) this.#post ??= holdWatch?.seesPost(this.#lambda, this.#tag, this.#begunAt);
    this.#arrivesAt = Math.max(this.#arrivesAt, timeline.now() + randoms.network.int(1, 30));
    timeline.schedule(this.#arrivesAt, () => {
      this.#toServer.push(copy);
      if (isLast) this.#toServer.end();
    });
    return new Promise((resolve) => this.#reach(resolve));
  }

  async *#receive(body: ServiceResponse['body']): AsyncGenerator<Uint8Array> {
    const chunks = (body instanceof Uint8Array ? inOneChunk(body) : body)[Symbol.asyncIterator]();
    const failed = new Promise<never>((_, reject) => {
      this.#failReading = reject;
    });
    failed.catch(() => {});
    // A process that died never takes the rest. The service lets go of it when the connection is gone.
    this.#gone.signal.addEventListener('abort', () => void chunks.return?.(undefined));
    try {
      for (;;) {
        if (this.#failure !== undefined) throw this.#failure;
        this.#limit(TRANSPORT_LIMITS.idleMs, 'Nothing was received');
        const next = await Promise.race([failed, chunks.next()]);
        await Promise.race([failed, new Promise<void>((resolve) => this.#reach(resolve))]);
        this.#timeLimit?.cancel();
        if (next.done === true) return;
        yield Buffer.from(next.value);
      }
    } catch (error) {
      if (error instanceof TransportError) throw error;
      throw new TransportError((error as Error).message, { sent: this.#sent, cause: error });
    } finally {
      this.#end();
    }
  }

  #reach(run: () => void): void {
    this.#lambda.after(this.#world.randoms.network.int(1, 20), 'answer', run);
  }

  #limit(ms: number, what: string): void {
    this.#timeLimit?.cancel();
    this.#timeLimit = this.#lambda.after(ms, 'timer', () => this.#fail(`${what} within ${ms} ms`, undefined, true));
  }

  /**
   * Limits the answer to a request with a body, and in slow worlds to any. Elsewhere polls may be slower than the real
   * transport allows.
   */
  #limitAnswer(): void {
    const { answerMs } = this.#request;
    if (answerMs === undefined) return;
    this.#answerLimit = this.#lambda.after(answerMs, 'timer', () =>
      this.#fail(`No whole answer within ${answerMs} ms`, undefined, true),
    );
  }

  #fail(message: string, cause?: unknown, timedOut = false): void {
    if (this.#failure !== undefined) return;
    this.#failure = new TransportError(message, { sent: this.#sent, cause, timedOut });
    this.#end();
    this.#reject(this.#failure);
    this.#failReading(this.#failure);
  }

  #end(): void {
    const { observed, timeline } = this.#world;
    if (this.#post !== undefined) this.#post.endedAt ??= timeline.now();
    if (this.#sentAt !== undefined) {
      observed.creationAnswerMsMax = Math.max(observed.creationAnswerMsMax, timeline.now() - this.#sentAt);
      this.#sentAt = undefined;
    }
    this.#timeLimit?.cancel();
    this.#answerLimit?.cancel();
    this.#forget();
    this.#disconnect();
  }

  /** Closes the connection. The service first receives everything that was sent before. */
  #disconnect(): void {
    const { timeline } = this.#world;
    timeline.schedule(Math.max(this.#arrivesAt, timeline.now() + 1), () => {
      this.#gone.abort();
      this.#toServer.fail(new ConnectionLostError('reset'));
    });
  }
}

/** The bytes on the wire to the service. */
class Pipe {
  readonly #chunks: Uint8Array[] = [];
  #isEnded = false;
  #error: Error | undefined;
  #changed: () => void = () => {};

  push(chunk: Uint8Array): void {
    this.#chunks.push(chunk);
    this.#changed();
  }

  end(): void {
    this.#isEnded = true;
    this.#changed();
  }

  /** Breaks the wire. Chunks that were pushed before still arrive. */
  fail(error: Error): void {
    if (!this.#isEnded) this.#error ??= error;
    this.#changed();
  }

  async *chunks(timeline: Timeline): AsyncGenerator<Uint8Array> {
    for (;;) {
      const chunk = this.#chunks.shift();
      if (chunk !== undefined) yield chunk;
      else if (this.#error !== undefined) throw this.#error;
      else if (this.#isEnded) return;
      else {
        await new Promise<void>((resolve) => {
          const timeLimit = timeline.schedule(timeline.now() + SERVER_IDLE_MS, () =>
            this.fail(new ConnectionLostError('reset')),
          );
          this.#changed = () => {
            timeLimit.cancel();
            resolve();
          };
        });
      }
    }
  }
}

function serviceCallOf(request: ServiceRequest): ServiceCall {
  const call = callOf(request);
  const kind = KINDS[call.operation];
  if (kind !== undefined) return { ...call, kind };
  throw new Error(`A call of the service that the simulation does not know: ${request.method} ${request.url}`);
}
