import { type FunctionDefinition, RuntimeProcess } from './runtime-process.ts';

interface Waiting {
  readonly event: unknown;
  readonly resolve: (payload: unknown) => void;
  readonly reject: (error: unknown) => void;
}

/**
 * A function as Lambda runs it: one process for each simultaneous invocation, up to `concurrency`. A process is reused
 * while it lives, most recently used first, and replaced after it was killed. Further invocations wait. (Lambda would
 * refuse them, but the triggers here never ask for more.)
 */
export class LocalFunction {
  readonly #definition: FunctionDefinition;
  readonly #concurrency: number;
  readonly #processes = new Set<RuntimeProcess>();
  readonly #idle: RuntimeProcess[] = [];
  readonly #waiting: Waiting[] = [];
  #busy = 0;
  #closed = false;

  constructor(definition: FunctionDefinition, { concurrency }: { readonly concurrency: number }) {
    this.#definition = definition;
    this.#concurrency = concurrency;
  }

  /** The function's own variables. Lambda's are not among them. */
  get environment(): Readonly<Record<string, string>> {
    return this.#definition.environment;
  }

  /**
   * Runs the handler once and resolves with its result, converted to JSON and back.
   * @throws {FunctionError} the handler threw; or the process could not start, timed out, or died.
   */
  invoke(event: unknown): Promise<unknown> {
    const { promise, resolve, reject } = Promise.withResolvers<unknown>();
    this.#waiting.push({ event, resolve, reject });
    this.#dispatch();
    return promise;
  }

  /** Ids of the live processes, oldest first. */
  get pids(): readonly number[] {
    return [...this.#processes].filter(({ alive }) => alive).map(({ pid }) => pid);
  }

  /** Ends every process. Running and waiting invocations reject. */
  async close(): Promise<void> {
    this.#closed = true;
    for (const { reject } of this.#waiting.splice(0)) reject(new Error('The function was closed'));
    await Promise.all([...this.#processes].map((process) => process.end()));
  }

  #dispatch(): void {
    while (this.#busy < this.#concurrency && !this.#closed) {
      const next = this.#waiting.shift();
      if (!next) return;
      this.#busy += 1;
      this.#serve(next)
        .catch(next.reject)
        .finally(() => {
          this.#busy -= 1;
          this.#dispatch();
        });
    }
  }

  async #serve({ event, resolve, reject }: Waiting): Promise<void> {
    const process = this.#takeIdle() ?? (await this.#start());
    const result = process.invoke(event);
    await result.then(resolve, reject);
    await process.settled;
    if (process.alive) this.#idle.push(process);
    else this.#processes.delete(process);
  }

  #takeIdle(): RuntimeProcess | undefined {
    let process = this.#idle.pop();
    while (process && !process.alive) {
      this.#processes.delete(process);
      process = this.#idle.pop();
    }
    return process;
  }

  async #start(): Promise<RuntimeProcess> {
    const process = await RuntimeProcess.start(this.#definition);
    this.#processes.add(process);
    if (this.#closed) await process.end();
    return process;
  }
}
