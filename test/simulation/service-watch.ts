import type { Call } from '../../local/flow-service/call.ts';
import type { Fault, ServiceCallKind } from './faults.ts';
import { flowTagOf } from './flow-tag.ts';
import type { Lambda } from './lambda.ts';
import { POISONED_BODY_BYTES_MIN } from './scenario.ts';
import { seesFlowDeletion } from './storm-deletions.ts';
import { SECOND } from './timeline.ts';
import type { World } from './world.ts';

/** Time for which a `Retry-After` surely holds back all requests of a process and a kind, in milliseconds. */
const HELD_BACK_MS = 2 * SECOND;

/** A call of the service. */
export type ServiceCall = Call & { readonly kind: ServiceCallKind };

type Answer = { readonly status: number; readonly headers: Readonly<Record<string, string>> };

/** Watches the requests of one process to the service and the answers to them. */
export class ServiceWatch {
  readonly #world: World;
  readonly #lambda: Lambda;
  /** When the process may send creations again, and when other requests. */
  readonly #heldBackUntil = { creation: 0, other: 0 };

  constructor(world: World, lambda: Lambda) {
    this.#world = world;
    this.#lambda = lambda;
  }

  /** The fault of a request about something that is poisoned. @param bodyBytes size of the request's body. */
  poisonOf({ kind, flowId, assetId }: ServiceCall, bodyBytes = 0): Fault | undefined {
    const upload = bodyBytes >= POISONED_BODY_BYTES_MIN ? `${bodyBytes} bytes` : undefined;
    return this.#world.poisonOf(kind, { flow: flowId, asset: `${flowId}/${assetId}`, upload });
  }

  /** The process sends a request, which meets a fault. */
  sees({ kind, request, flowId }: ServiceCall, fault: Fault | undefined): void {
    const { observed, timeline, scenario, neighbours, orderChecker } = this.#world;
    const lambda = this.#lambda;
    const path = decodeURIComponent(request.url);
    if (fault !== undefined) observed.incidents.push({ kind, path, fault, keys: lambda.keys });
    if (timeline.now() < this.#heldBackUntil[paceOf(kind)]) observed.sentDespiteRefusal += 1;
    if (isPoll(kind)) observed.polledAt.set(flowId, timeline.now());
    if (kind === 'flow.create') orderChecker.seesCreation(lambda.invocationName, lambda.clock.now());
    if (kind === 'flow.abort' && lambda.function === 'create') this.#seesAbort(flowId);
    if (kind === 'flow.delete') seesFlowDeletion(this.#world, flowId);
    if (kind === 'flows.list' && scenario.doNeighboursDelete) neighbours.deleteSoon();
  }

  /** The process receives an answer. */
  seesAnswer({ kind, flowId }: ServiceCall, { status, headers }: Answer): void {
    const { observed, timeline } = this.#world;
    const now = timeline.now();
    const retryAt = retryAtIn(headers, now);
    if (this.#world.scenario.kind === 'limits') {
      if (status === 429 || status === 503) this.#holdBack(kind, Math.min(retryAt, now + HELD_BACK_MS));
      if (kind === 'flow.get' && status === 200) this.#seesEnd(flowId);
    }
    if (kind === 'flow.create' && status === 422 && this.#world.scenario.holds !== undefined) {
      observed.incidents.push({ kind, path: '', fault: '422', keys: this.#lambda.keys });
    }
    // The service is still at work on the first request with this key.
    if (kind === 'flow.create' && status === 409) observed.addBlame(this.#lambda);
    if (kind !== 'flow.create') observed.leftAloneUntil = Math.max(observed.leftAloneUntil, retryAt);
    if (kind === 'flows.list' && status === 200 && this.#lambda.function === 'collect') observed.listedAt = now;
    if (isPoll(kind)) observed.noteAnswer(flowId, { kind, status, at: now, by: this.#lambda.invocationName });
  }

  /** A refusal of one request holds back all requests of the same kind, if the service only has limits. */
  #holdBack(kind: ServiceCallKind, until: number): void {
    const pace = paceOf(kind);
    this.#heldBackUntil[pace] = Math.max(this.#heldBackUntil[pace], until);
  }

  #seesEnd(flowId: string): void {
    const { observed, service, timeline } = this.#world;
    if (observed.firstEndSeenAt !== undefined) return;
    const flow = service.flows.find(({ id }) => id === flowId);
    if (flow?.finishedAt !== undefined) observed.firstEndSeenAt = timeline.now();
  }

  #seesAbort(flowId: string): void {
    const { service, orderChecker } = this.#world;
    const flow = service.flows.find(({ id }) => id === flowId);
    const tag = flow && flowTagOf(flow);
    if (tag !== undefined) orderChecker.seesAbort(this.#lambda.invocationName, tag.upload, tag.generation);
  }
}

const paceOf = (kind: ServiceCallKind): 'creation' | 'other' => (kind === 'flow.create' ? 'creation' : 'other');

const isPoll = (kind: ServiceCallKind): boolean => kind === 'flow.get' || kind === 'flow.outputs';

/** When an answer asks the client to come again, in milliseconds since the epoch. 0 if it does not ask. */
function retryAtIn({ 'retry-after': text }: Answer['headers'], now: number): number {
  if (text === undefined) return 0;
  return /^\d+$/.test(text) ? now + Number(text) * SECOND : Date.parse(text);
}
