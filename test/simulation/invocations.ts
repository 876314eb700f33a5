import { type Invocation, withinInvocation } from '../../functions/base/invocation.ts';
import { collect } from '../../functions/collect-outputs/collect-outputs.ts';
import { createFlows } from '../../functions/create-flow/batch.ts';
import { jobFilesFor } from '../../functions/uploads/job-routes.ts';
import { uploadsOf } from '../../functions/uploads/upload-event.ts';
import type { ReceivedMessage } from '../../local/aws/sqs.ts';
import { Violation } from './demand.ts';
import { isInputOnly } from './invariants/jobs.ts';
import { CREATES_MAX } from './names.ts';
import type { TickRecord } from './observations.ts';
import type { Ports, Process } from './processes.ts';
import { scheduleClockStep } from './storm-clocks.ts';
import { JOBS } from './storm-jobs.ts';
import { routeNameFor } from './storm-routes.ts';
import { MINUTE, SECOND } from './timeline.ts';
import type { World } from './world.ts';

/** Largest duration of any invocation, in milliseconds, with the longest freeze of its process. */
const INVOCATION_MS_MAX = 40 * MINUTE;

/** The event of an invocation of collect-outputs. */
interface CollectEvent {
  readonly collector?: { readonly index: number; readonly of: number };
  readonly sweep?: { readonly since?: string; readonly uploadsPerSecond?: number };
  readonly retry?: readonly string[];
  readonly again?: readonly string[];
  readonly from?: string;
  readonly cancel?: readonly string[];
  readonly approve?: readonly string[];
  readonly hold?: { readonly action: 'pause' | 'resume'; readonly route?: string | undefined };
}

interface InvocationRequest<T> {
  readonly which: 'create' | 'collect';
  readonly limitMs: number;
  /** Keys of the uploads that it is told of, each as often as it is told. */
  readonly keys: readonly string[];
  readonly body: (ports: Ports, invocation: Invocation) => Promise<T>;
}

interface Invoked<T> {
  /** Settles as Lambda answers the invoker. It never settles if the process is killed. */
  readonly answer: Promise<T>;
  readonly isOver: () => boolean;
}

/** Invokes both functions as Lambda, the queue's event source and the schedule do. */
export class Invocations {
  readonly #world: World;
  #runningCount = 0;
  /** Number of invocations of create-flow that the event source counts as running. */
  #createCount = 0;

  constructor(world: World) {
    this.#world = world;
  }

  get runningCount(): number {
    return this.#runningCount;
  }

  /** Gives one batch of messages to create-flow. Returns false if there is none, or no room for it. */
  deliver(): boolean {
    const { queue, faultPlan, timeline, scenario, randoms } = this.#world;
    if (this.#createCount >= CREATES_MAX) return false;
    const messages = queue.receive({ max: randoms.main.int(1, 10) });
    if (messages.length === 0) return false;
    this.#createCount += 1;
    const event = { Records: messages.map(({ messageId, body }) => ({ messageId, body, eventSource: 'aws:sqs' })) };
    if (!faultPlan.isClear) this.#deliverAgainEarly(messages);
    const since = timeline.now();
    const { answer, isOver } = this.#invoke({
      which: 'create',
      limitMs: scenario.createLimitMs,
      keys: keysIn(messages),
      body: (ports, invocation) => createFlows(event, ports, invocation),
    });
    void answer.then(
      ({ batchItemFailures }) => {
        const failed = new Set(batchItemFailures.map(({ itemIdentifier }) => itemIdentifier));
        this.#deleteMessages(
          messages.filter(({ messageId }) => !failed.has(messageId)),
          since,
        );
      },
      () => {},
    );
    // The event source waits for no machine that sleeps.
    const isGivenUp = (): boolean =>
      scenario.clockSteps?.areAsleep === true && timeline.now() >= since + scenario.createLimitMs;
    const wait = (): void => {
      if (isOver() || isGivenUp()) this.#createCount -= 1;
      else timeline.schedule(timeline.now() + SECOND, wait);
    };
    wait();
    return true;
  }

  /** Delivers until the queue has no visible message and no invocation of create-flow is running. */
  async deliverAll(): Promise<void> {
    const { timeline } = this.#world;
    for (;;) {
      const isDelivered = this.deliver();
      const isDone = await timeline.run(() => this.#createCount < CREATES_MAX, timeline.now() + INVOCATION_MS_MAX);
      if (!isDone) throw new Violation('an invocation does not end');
      if (!isDelivered && this.#createCount === 0) return;
      if (!isDelivered) await timeline.run(() => this.#createCount === 0, timeline.now() + INVOCATION_MS_MAX);
    }
  }

  /** Invokes collect-outputs. Resolves when it ends, also if it fails. */
  startCollect(event: CollectEvent): Promise<void> {
    const { timeline, observed, scenario } = this.#world;
    const tick: TickRecord = { startedAt: timeline.now() };
    const { sweep, retry, again, from, cancel, approve, hold } = event;
    const at = timeline.now();
    const isAsked = [retry, again, cancel, approve].some((ids) => ids !== undefined);
    if (isAsked) observed.asked.push({ retry, again, from, cancel, approve, at });
    else if (sweep === undefined && hold === undefined) observed.ticks.push(tick);
    const { answer } = this.#invoke({
      which: 'collect',
      limitMs: scenario.collectLimitMs,
      keys: [],
      body: (ports, invocation) => collect(event, ports, invocation),
    });
    return answer.then(
      (summary) => {
        if ('rounds' in summary) {
          Object.assign(tick, { endedAt: timeline.now(), result: summary.result, rounds: summary.rounds });
        }
      },
      () => {},
    );
  }

  /** Invokes collect-outputs, and lets time pass until it ends. */
  async collect(event: CollectEvent): Promise<void> {
    const { timeline } = this.#world;
    let isDone = false;
    void this.startCollect(event).then(() => {
      isDone = true;
    });
    if (!(await timeline.run(() => isDone, timeline.now() + INVOCATION_MS_MAX))) {
      throw new Violation('a tick does not end');
    }
  }

  /** One tick of each collector. */
  async tick(): Promise<void> {
    const of = this.#world.scenario.collectors;
    await Promise.all(Array.from({ length: of }, (_, index) => this.collect({ collector: { index, of } })));
  }

  /** SQS promises to deliver at least once. Now and then it delivers a hidden message again. */
  #deliverAgainEarly(messages: readonly ReceivedMessage[]): void {
    const { queue, scenario, randoms } = this.#world;
    for (const { receiptHandle } of messages) {
      if (randoms.main.chance(scenario.againEarly)) queue.changeVisibility(receiptHandle, randoms.main.int(0, 60));
    }
  }

  #deleteMessages(messages: readonly ReceivedMessage[], since: number): void {
    const { queue, orderChecker, inbox, observed } = this.#world;
    for (const { receiptHandle, body } of messages) {
      for (const upload of uploadsOf(JSON.parse(body))) {
        // S3's message of an upload outside of the present inbox does not lead to its entry. The sweep does.
        // Nor does the message of a file that no route wanted for a while.
        const leads = upload.bucket === inbox && observed.routings.every((routes) => routeNameFor(routes, upload.key));
        if (leads || upload.uploadId !== undefined) orderChecker.seesDeletion(upload, since);
      }
      queue.delete(receiptHandle);
    }
  }

  #invoke<T>({ which, limitMs, keys, body }: InvocationRequest<T>): Invoked<T> {
    const world = this.#world;
    const { observed, orderChecker, processes } = world;
    const process = processes.take(which);
    const { lambda, ports } = process;
    observed.stats.invocations += 1;
    world.trace(`${lambda.name} begins`);
    this.#runningCount += 1;
    lambda.invocation += 1;
    lambda.keys = new Set(keys);
    const name = lambda.invocationName;
    orderChecker.begins(name, lambda.clock.now() + limitMs, keys);
    let isOver = false;
    const over = (): void => {
      if (isOver) return;
      isOver = true;
      orderChecker.ends(name);
      this.#runningCount -= 1;
    };
    const fate = this.#scheduleFate(process, limitMs);
    scheduleClockStep(world, lambda, limitMs);
    const forget = lambda.onDeath(() => {
      observed.stats.kills += 1;
      fate.cancel();
      over();
    });
    const answer = withinInvocation(limitMs, lambda.clock, (invocation) => body(ports, invocation)).finally(() => {
      world.trace(`${lambda.name} ends`);
      forget();
      fate.cancel();
      over();
      processes.giveBack(process);
    });
    answer.catch((error: unknown) => observed.thrown.push(error));
    return { answer, isOver: () => isOver };
  }

  /** Schedules the moment at which the process stalls, and its hard end. */
  #scheduleFate({ lambda }: Process, limitMs: number): { cancel(): void } {
    const world = this.#world;
    const { timeline } = world;
    const { stallsAfterMs, diesAfterMs } = this.#drawFate(limitMs);
    const stall = timeline.schedule(timeline.now() + stallsAfterMs, () => lambda.stall());
    const hardEnd = timeline.schedule(timeline.now() + diesAfterMs, () => {
      if (lambda.wasFrozen) return;
      world.observed.addBlame(lambda);
      world.kill(lambda);
    });
    return {
      cancel(): void {
        stall.cancel();
        hardEnd.cancel();
      },
    };
  }

  /**
   * A process does not only die at a call. It can run out of memory at any moment, and its code can miss its time
   * limit. A healthy invocation ends by itself before the limit.
   */
  #drawFate(limitMs: number): { readonly stallsAfterMs: number; readonly diesAfterMs: number } {
    const { faultPlan, scenario, randoms } = this.#world;
    const random = randoms.main;
    if (faultPlan.isClear || !random.chance(scenario.suddenDeaths)) {
      return { stallsAfterMs: limitMs, diesAfterMs: limitMs };
    }
    const afterMs = random.int(1, random.pick([2 * SECOND, 20 * SECOND, limitMs]));
    return { stallsAfterMs: afterMs, diesAfterMs: random.chance(0.5) ? afterMs : limitMs };
  }
}

/** The keys that messages tell of, each as often as they tell of it. An input tells of the jobs that may wait for it. */
const keysIn = (messages: readonly ReceivedMessage[]): readonly string[] =>
  messages.flatMap(({ body }) =>
    uploadsOf(JSON.parse(body)).flatMap(({ key }) => (isInputOnly(key) ? jobFilesFor(key, JOBS) : [key])),
  );
