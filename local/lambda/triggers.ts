import type { Clock } from '../../functions/base/clock.ts';
import type { FunctionName } from '../../infra/bundle/bundle.ts';
import type { Queue } from '../aws/sqs.ts';
import { EventSource } from './event-source.ts';
import type { LocalFunction } from './function.ts';
import { FixedRate, type FixedRateOptions, Schedule } from './schedule.ts';

/** When ticks start, relative to the start of the pipeline. */
export type FixedTicks = Pick<FixedRateOptions, 'firstAfterMs' | 'intervalMs'>;

export interface TriggerOptions {
  readonly clock: Clock;
  readonly queue: Queue;
  readonly deadLetters: Queue;
  readonly functions: Readonly<Record<FunctionName, LocalFunction>>;
  /** Maximum number of create-flow invocations at the same time. */
  readonly createConcurrency: number;
  /** From the end of one tick to the start of the next, or ticks at a fixed rate. */
  readonly ticks: { readonly intervalMs: number } | FixedTicks;
  /** Called for every invocation that failed as a whole. */
  readonly onFault: (name: FunctionName, error: unknown) => void;
  /** Called with the body of every dead letter. Without it, dead letters stay in their queue. */
  readonly onDeadLetter: ((body: string) => void) | undefined;
}

/** What invokes the functions: the queue invokes create-flow, and a schedule invokes collect-outputs. */
export class Triggers {
  readonly #functions: TriggerOptions['functions'];
  readonly #schedule: Schedule | FixedRate;
  readonly #sources: readonly EventSource[];
  #isClosing = false;

  constructor(options: TriggerOptions) {
    const { clock, queue, deadLetters, functions, createConcurrency, ticks, onFault, onDeadLetter } = options;
    this.#functions = functions;
    const faultOf = (name: FunctionName) => (error: unknown) => {
      if (!this.#isClosing) onFault(name, error);
    };
    const uploads = new EventSource({
      queue,
      concurrency: createConcurrency,
      invoke: (event) => functions['create-flow'].invoke(event),
      onFault: faultOf('create-flow'),
    });
    const dead =
      onDeadLetter &&
      new EventSource({
        queue: deadLetters,
        concurrency: 1,
        invoke: async ({ Records }) => {
          for (const { body } of Records) onDeadLetter(body);
        },
        onFault: faultOf('create-flow'),
      });
    this.#sources = dead ? [uploads, dead] : [uploads];
    const collect = {
      clock,
      invoke: () => functions['collect-outputs'].invoke({}),
      onFault: faultOf('collect-outputs'),
    };
    this.#schedule =
      'firstAfterMs' in ticks ? new FixedRate({ ...collect, ...ticks }) : new Schedule({ ...collect, ...ticks });
  }

  /** Starts the next tick now. Ticks at a fixed rate keep their times. */
  tickNow(): void {
    if (this.#schedule instanceof Schedule) this.#schedule.wake();
  }

  /** Ends every running invocation and starts no more. */
  async close(): Promise<void> {
    this.#isClosing = true;
    const ended = [...this.#sources, this.#schedule].map((each) => each.close());
    await Promise.all(Object.values(this.#functions).map((each) => each.close()));
    await Promise.all(ended);
  }
}
