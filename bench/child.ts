import { type ChildProcess, spawn } from 'node:child_process';

/** What a child process does for its parent, by name. */
export type Calls = Readonly<Record<string, (argument: never) => unknown>>;

interface Question {
  readonly id: number;
  readonly name: string;
  readonly argument: unknown;
}

type Reply = { readonly id: number; readonly value: unknown } | { readonly id: number; readonly error: string };

/** In the child: answers its parent's calls, and ends with it. */
export function answerCalls(calls: Calls): void {
  process.on('message', async ({ id, name, argument }: Question) => {
    let reply: Reply;
    try {
      reply = { id, value: await calls[name]?.(argument as never) };
    } catch (error) {
      reply = { id, error: error instanceof Error ? (error.stack ?? error.message) : String(error) };
    }
    process.send?.(reply);
  });
  process.on('disconnect', () => process.exit());
}

/** What a child process threw, or how it ended. */
export class ChildError extends Error {
  override readonly name = 'ChildError';
}

export interface ChildOptions {
  readonly flags?: readonly string[];
  readonly env?: Readonly<Record<string, string>>;
}

/** A Node process of our own that answers calls. */
export class Child<C extends Calls> {
  readonly #process: ChildProcess;
  readonly #waiting = new Map<number, { resolve: (value: never) => void; reject: (error: Error) => void }>();
  readonly #closed: Promise<void>;
  #calls = 0;
  #said = '';

  /** Starts `module`, which calls {@link answerCalls}. It gets the environment given and nothing else. */
  constructor(module: string, { flags = [], env = {} }: ChildOptions = {}) {
    this.#process = spawn(process.execPath, [...flags, module], {
      env: { PATH: '/usr/local/bin:/usr/bin:/bin', ...env },
      // What a function logs is written as in Lambda, and read by nobody.
      stdio: ['ignore', 'ignore', 'pipe', 'ipc'],
    });
    this.#process.stderr?.setEncoding('utf8').on('data', (text: string) => {
      this.#said = `${this.#said}${text}`.slice(-2_000);
    });
    this.#process.on('message', (reply: Reply) => {
      const waiting = this.#waiting.get(reply.id);
      this.#waiting.delete(reply.id);
      if ('error' in reply) waiting?.reject(new ChildError(reply.error));
      else waiting?.resolve(reply.value as never);
    });
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#closed = promise;
    this.#process.once('close', (code, signal) => {
      for (const { reject } of this.#waiting.values()) {
        reject(new ChildError(`The process ended with ${signal ?? code}: ${this.#said}`));
      }
      resolve();
    });
  }

  call<N extends keyof C & string>(
    name: N,
    ...[argument]: Parameters<C[N]> extends [] ? [] : [Parameters<C[N]>[0]]
  ): Promise<Awaited<ReturnType<C[N]>>> {
    return new Promise((resolve, reject) => {
      this.#calls += 1;
      this.#waiting.set(this.#calls, { resolve, reject });
      this.#process.send({ id: this.#calls, name, argument }, (error) => {
        if (error) reject(new ChildError('The process does not listen any more', { cause: error }));
      });
    });
  }

  async end(): Promise<void> {
    this.#process.kill('SIGKILL');
    await this.#closed;
  }
}
