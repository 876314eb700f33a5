import { type ChildProcess, spawn } from 'node:child_process';

/** The calls that a child process answers, by name. */
type Calls = Readonly<Record<string, (argument: never) => unknown>>;

interface Question {
  readonly id: number;
  readonly name: string;
  readonly argument: unknown;
}

type Reply = { readonly id: number; readonly value: unknown } | { readonly id: number; readonly error: string };

/** Called in the child. Answers its parent's calls, and exits with its parent. */
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

/** A child process threw an error, or ended. */
export class ChildError extends Error {
  override readonly name = 'ChildError';
}

interface ChildOptions {
  readonly flags?: readonly string[];
  readonly env?: Readonly<Record<string, string>>;
}

/** A Node.js process that answers calls. */
export class Child<C extends Calls> implements AsyncDisposable {
  readonly #process: ChildProcess;
  readonly #waiting = new Map<number, { resolve: (value: never) => void; reject: (error: Error) => void }>();
  readonly #closed: Promise<void>;
  #calls = 0;
  #stderrTail = '';

  /** Starts `module`, which must call {@link answerCalls}. It gets only the environment given, and a PATH. */
  constructor(module: string, { flags = [], env = {} }: ChildOptions = {}) {
    this.#process = spawn(process.execPath, [...flags, module], {
      env: { PATH: '/usr/local/bin:/usr/bin:/bin', ...env },
      // A function writes its log as in Lambda, and nothing reads it.
      stdio: ['ignore', 'ignore', 'pipe', 'ipc'],
    });
    this.#process.stderr?.setEncoding('utf8').on('data', (text: string) => {
      this.#stderrTail = `${this.#stderrTail}${text}`.slice(-2_000);
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
        reject(new ChildError(`The process ended with ${signal ?? code}: ${this.#stderrTail}`));
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
        if (error) reject(new ChildError('The process no longer answers calls', { cause: error }));
      });
    });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#process.kill('SIGKILL');
    await this.#closed;
  }
}
