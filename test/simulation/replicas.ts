import { demand } from './demand.ts';
import type { ServiceCallKind } from './faults.ts';
import type { Lambda } from './lambda.ts';
import type { Random } from './random.ts';
import { POISONED_BODY_BYTES_MIN, POISONED_PREFIX, type Scenario } from './scenario.ts';
import { runSteadily } from './steady.ts';
import { manySteps, steadyScenario } from './steady-scenario.ts';
import { MINUTE, SECOND } from './timeline.ts';
import type { World } from './world.ts';

/*
 * Worlds in which the service has replicas, and each of them knows only the flows that it has made. The answers to
 * one or two creations are lost, and most listings lack these flows. Each such listing also lacks the flow of a neighbour:
 * the files are put within half a minute, they are so few that a search looks at all of them, and each replica has made the
 * flow of one whose answer came. So no listing proves that there is no flow.
 */

/** Number of files. Half as many as a search looks at. */
const FILES = 10;

/** How long the world lasts at most, in milliseconds. A search that fails is repeated for an hour, and then every hour. */
const SPAN_MS = 12 * 60 * MINUTE;

export function replicasScenarioOf(random: Random): Scenario {
  const files = manySteps(random, FILES, 30 * SECOND, ['two/']);
  const lost = new Set([random.pick(files), random.pick(files)]);
  const steps = files.map((step, index) => {
    const content = Buffer.alloc(POISONED_BODY_BYTES_MIN + index);
    return lost.has(step) ? { ...step, key: `${POISONED_PREFIX}${index}.bin`, content } : step;
  });
  const steady = steadyScenario(random, steps);
  return {
    ...steady,
    kind: 'replicas',
    replicas: random.pick([2, 3, 3]),
    settings: { ...steady.settings, inDoubt: random.pick(['ask', 'retry']) },
    poison: {
      fault: random.pick(['lost', '500 after', 'hung after']),
      of: 'upload',
      count: lost.size,
      calls: ['flow.create'],
    },
  };
}

/**
 * Leads requests to the replicas of the service. Creations go round. All other requests of an invocation go through one
 * connection, and so to one replica.
 */
export class Balancer {
  readonly #world: World;
  #creations = 0;
  /** The replicas by the names of the invocations that are connected with them. */
  readonly #connected = new Map<string, number>();

  constructor(world: World) {
    this.#world = world;
  }

  /** The replica that a request of a process goes to. Undefined if there is one only. */
  replicaFor(kind: ServiceCallKind, { invocationName }: Lambda): number | undefined {
    const { scenario, randoms } = this.#world;
    const { replicas } = scenario;
    if (replicas === undefined) return undefined;
    if (kind === 'flow.create') {
      this.#creations += 1;
      return this.#creations % replicas;
    }
    const replica = this.#connected.get(invocationName) ?? randoms.replicas.int(0, replicas - 1);
    this.#connected.set(invocationName, replica);
    return replica;
  }
}

/** Runs until every upload has a receipt. How many flows each one has is checked as in every other world. */
export async function liveWithReplicas(world: World): Promise<void> {
  const { observed } = world;
  const tookMs = await runSteadily(world, SPAN_MS);
  observed.figures = { tookMs, replicas: world.scenario.replicas, flows: world.service.flows.length };
  demand(tookMs !== undefined, 'an upload came to no end at a service with replicas', observed.figures);
}
