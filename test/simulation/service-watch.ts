import type { CallKind, Fault, ServiceCallKind } from './faults.ts';
import { flowTagOf } from './flow-tag.ts';
import type { Lambda } from './lambda.ts';
import { START } from './names.ts';
import type { Poison } from './scenario.ts';
import { SECOND } from './timeline.ts';
import type { World } from './world.ts';

/** Time for which a `Retry-After` surely holds back all requests of a process and a kind, in milliseconds. */
const HELD_BACK_MS = 2 * SECOND;

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

  /** The fault of a request about a flow or an asset that is poisoned. It comes before the fault plan. */
  poisonOf(kind: ServiceCallKind, path: string): Fault | undefined {
    const { scenario, observed, timeline } = this.#world;
    const { poison } = scenario;
    if (poison?.calls.includes(kind) !== true) return undefined;
    const [, , flowId = '', , assetId = ''] = path.startsWith('/flows/')
      ? path.split('/')
      : ['', '', ...path.split('/').slice(1)];
    const id = poison.of === 'flow' ? flowId : `${flowId}/${assetId}`;
    if (observed.poisoned.size < poison.count) observed.poisoned.add(id);
    return observed.poisoned.has(id) && isMet(poison, timeline.now() - START) ? poison.fault : undefined;
  }

  /** The process sends a request, which meets a fault. */
  sees(kind: ServiceCallKind, encodedPath: string, fault: Fault | undefined): void {
    const { observed, timeline, scenario, neighbours } = this.#world;
    const lambda = this.#lambda;
    const path = decodeURIComponent(encodedPath);
    if (fault !== undefined) {
      observed.incidents.push({ kind, path, fault, keys: lambda.keys });
      observed.noteFault(lambda, fault);
    }
    if (timeline.now() < this.#heldBackUntil[paceOf(kind)]) observed.sentDespiteRefusal += 1;
    const flowId = polledFlow(kind, encodedPath);
    if (flowId !== undefined) observed.polledAt.set(flowId, timeline.now());
    if (kind === 'flow.abort' && lambda.function === 'create') this.#seesAbort(path);
    if (kind === 'flows.list' && scenario.doNeighboursDelete) neighbours.deleteSoon();
  }

  /** The process receives an answer. */
  seesAnswer(kind: ServiceCallKind, path: string, { status, headers }: Answer): void {
    const { observed, timeline } = this.#world;
    const now = timeline.now();
    const retryAt = retryAtIn(headers, now);
    const flowId = polledFlow(kind, path);
    if (this.#world.scenario.kind === 'limits') {
      if (status === 429 || status === 503) this.#holdBack(kind, Math.min(retryAt, now + HELD_BACK_MS));
      if (kind === 'flow.get' && status === 200) this.#seesEnd(flowId);
    }
    if (kind !== 'flow.create') observed.leftAloneUntil = Math.max(observed.leftAloneUntil, retryAt);
    if (flowId !== undefined) observed.noteAnswer(flowId, status, now);
  }

  /** A refusal of one request holds back all requests of the same kind, if the service only has limits. */
  #holdBack(kind: CallKind, until: number): void {
    const pace = paceOf(kind);
    this.#heldBackUntil[pace] = Math.max(this.#heldBackUntil[pace], until);
  }

  #seesEnd(flowId: string | undefined): void {
    const { observed, service, timeline } = this.#world;
    if (observed.firstEndSeenAt !== undefined) return;
    const flow = service.flows.find(({ id }) => id === flowId);
    if (flow?.finishedAt !== undefined) observed.firstEndSeenAt = timeline.now();
  }

  #seesAbort(path: string): void {
    const { service, orderChecker } = this.#world;
    const flow = service.flows.find(({ id }) => path === `/flows/${id}`);
    const tag = flow && flowTagOf(flow);
    if (tag !== undefined) orderChecker.seesAbort(this.#lambda.invocationName, tag.upload, tag.generation);
  }
}

const isMet = ({ spans }: Poison, at: number): boolean =>
  spans === undefined || spans.some(([from, to]) => from <= at && at < to);

const paceOf = (kind: CallKind): 'creation' | 'other' => (kind === 'flow.create' ? 'creation' : 'other');

/** The id of the flow that a request polls, from its path. */
function polledFlow(kind: CallKind, path: string): string | undefined {
  if (kind !== 'flow.get' && kind !== 'flow.outputs') return undefined;
  const id = /^\/(?:flows\/)?([^/?]+)(?:\/outputs)?(?:\?.*)?$/.exec(path)?.[1];
  return id === undefined ? undefined : decodeURIComponent(id);
}

/** When an answer asks the client to come again, in milliseconds since the epoch. 0 if it does not ask. */
function retryAtIn({ 'retry-after': text }: Answer['headers'], now: number): number {
  if (text === undefined) return 0;
  return /^\d+$/.test(text) ? now + Number(text) * SECOND : Date.parse(text);
}
