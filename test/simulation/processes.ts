import type { SecretsManagerClient } from '@aws-sdk/client-secrets-manager';
import { type Log, logTo } from '../../functions/base/telemetry.ts';
import type { CollectPorts } from '../../functions/collect-outputs/collect-outputs.ts';
import type { CollectorShare, LeftLease } from '../../functions/collect-outputs/collector.ts';
import { ClaimHeldError } from '../../functions/create-flow/delivery.ts';
import { downloadAsset } from '../../functions/flow-service/asset-download.ts';
import { createFlowService } from '../../functions/flow-service/client.ts';
import { Pacer } from '../../functions/flow-service/pacer.ts';
import { collectOutputsPorts } from '../../functions/lambda/ports.ts';
import { SecretToken } from '../../functions/lambda/token.ts';
import { collectorKey } from '../../functions/ledger/keys.ts';
import { ChainNotes } from '../../functions/publish/chain-notes.ts';
import { callAws } from './aws-calls.ts';
import { SECOND_FLOW_LINES } from './invariants/flows.ts';
import { Lambda } from './lambda.ts';
import { isOfChain, isOfHold } from './observations.ts';
import { s3ClientOf } from './s3.ts';
import { transportOf } from './service.ts';
import { SECOND } from './timeline.ts';
import type { World } from './world.ts';

export type Ports = ReturnType<typeof collectOutputsPorts>;

/** A process of a function with the ports that its code has. */
export interface Process {
  readonly lambda: Lambda;
  readonly ports: Ports;
  /** The deployment that the process is of. */
  readonly deployment: number;
}

/** The processes of both functions. Lambda may use an idle one again, or start another. */
export class Processes {
  readonly #world: World;
  readonly #idle: { readonly create: Process[]; readonly collect: Process[] } = { create: [], collect: [] };
  readonly #lambdas: Lambda[] = [];
  /** Number of the latest deployment. */
  #deployment = 0;

  constructor(world: World) {
    this.#world = world;
  }

  /** Number of processes that were ever started. */
  get count(): number {
    return this.#lambdas.length;
  }

  take(which: 'create' | 'collect'): Process {
    const idle = this.#idle[which];
    while (idle.length > 0 && this.#world.randoms.main.chance(0.8)) {
      const process = idle.pop() as Process;
      if (!process.lambda.isDead && process.deployment === this.#deployment) return process;
    }
    return this.#start(which);
  }

  giveBack(process: Process): void {
    this.#idle[process.lambda.function].push(process);
  }

  /** From now on, processes start with the settings of today. The busy ones end with those that they have. */
  replaceAll(): void {
    for (const { lambda } of [...this.#idle.create, ...this.#idle.collect]) lambda.kill();
    this.#deployment += 1;
  }

  /** Kills all processes, so that none of them keeps this world in memory. */
  close(): void {
    for (const lambda of this.#lambdas) lambda.kill();
  }

  #start(which: 'create' | 'collect'): Process {
    const { scenario, timeline, randoms } = this.#world;
    const { skewMs: skewMsMax, isSkewExtreme } = scenario;
    const skewMs = isSkewExtreme ? randoms.main.pick([-skewMsMax, skewMsMax]) : randoms.main.int(-skewMsMax, skewMsMax);
    const lambda = new Lambda(which, this.#lambdas.length + 1, timeline, skewMs);
    this.#lambdas.push(lambda);
    this.#world.holdWatch?.starts(lambda, this.#world.settings);
    return { lambda, ports: portsFor(this.#world, lambda, which), deployment: this.#deployment };
  }
}

function portsFor(world: World, lambda: Lambda, which: 'create' | 'collect'): Ports {
  const { observed, settings, timeline, orderChecker, notifications, randoms } = world;
  const secrets = {
    send: (_: unknown, options?: { abortSignal?: AbortSignal }) =>
      callAws(world, lambda, {
        kind: 'secret.read',
        signal: options?.abortSignal,
        effect: () => ({ SecretString: world.secret }),
      }),
  } as unknown as SecretsManagerClient;
  const token = new SecretToken(secrets, 'token', lambda.clock);
  const pacer = new Pacer(lambda.clock, settings.requestsPerSecond);
  const ports = collectOutputsPorts({
    settings,
    s3: s3ClientOf(world, lambda),
    flows: createFlowService({
      download: downloadAsset,
      ...settings,
      findPagesMax: world.scenario.findPagesMax,
      clock: lambda.clock,
      token,
      pacer,
      transport: transportOf(world, lambda),
    }),
    pacer,
    queue: {
      send: (message, signal) =>
        callAws(world, lambda, { kind: 'queue.send', signal, effect: () => notifications.send(message) }),
      waitingCount: (signal) =>
        callAws(world, lambda, { kind: 'queue.ask', signal, effect: () => world.queue.counts().visible }),
    },
    events: {
      send: (event, signal) =>
        callAws(world, lambda, {
          kind: 'event.send',
          signal,
          effect: () => {
            if (isOfHold(event)) return;
            if (!isOfChain(event)) orderChecker.seesEvent(event.detail);
            observed.notePublished(event, timeline.now());
          },
        }),
    },
    clock: lambda.clock,
    nonce: () => randoms.ids.hex(16),
    telemetry: {
      log: logOf(world, lambda),
      metrics: { add: (metric, value = 1) => observed.noteMetric(metric, value) },
    },
  });
  if (which === 'collect') {
    const nextRound: CollectPorts['nextRound'] = async (event, delaySeconds, signal) => {
      const { invocations } = world;
      const { collector, left } = event as { collector: CollectorShare; left?: LeftLease };
      if (left !== undefined) orderChecker.leavesLease(collectorKey(collector.index));
      const at = timeline.now() + delaySeconds * SECOND;
      const effect = (): void => {
        const come = () => void invocations.startCollect(event);
        timeline.schedule(at, come);
        // SQS promises to deliver at least once.
        if (randoms.network.chance(world.scenario.againEarly))
          timeline.schedule(at + randoms.network.int(0, 100), come);
      };
      await callAws(world, lambda, { kind: 'queue.send', signal, effect });
    };
    return { ...ports, nextRound };
  }
  // create-flow may not send to the queue. What it begins is sent by the next tick.
  return { ...ports, chainNotes: new ChainNotes({ ...ports, queue: undefined }) };
}

/** A log whose lines the world keeps, and that tells the order checker of messages that a claim turned away. */
const logOf = (world: World, lambda: Lambda): Log =>
  logTo((level, message, fields) => {
    world.observed.logged.push({ level, message, fields, at: world.timeline.now() });
    const { error, ...rest } = fields;
    if (message.startsWith(SECOND_FLOW_LINES.resent)) {
      const id = String(rest.uploadId);
      const isAsked = world.observed.asked.some(({ retry }) => retry?.includes(id));
      world.orderChecker.seesResent(id, isAsked || world.observed.releasedByHand.has(id));
    }
    if (error instanceof ClaimHeldError) {
      world.orderChecker.seesTurnedAway(lambda.invocationName, String(rest.uploadId), String(rest.key));
    }
    world.onTrace?.(`    ${level}: ${message} ${JSON.stringify(rest)} ${error ?? ''}`);
  });
