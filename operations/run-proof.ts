import { createHmac, randomBytes } from 'node:crypto';
import { Agent, type ClientRequestArgs, request } from 'node:http';
import type { Duplex } from 'node:stream';
import { NoLocalRunError, UntrustedRunError } from './local-run.ts';

/*
 * A command may outlive its run, and then any user of the machine can take the ports of the run. So a server of the run
 * proves itself at the beginning of each connection, before the command sends a request on it:
 *
 *   command                                                              server
 *   Upgrade: flowdrop-proof, with an access key and a nonce    ──▶
 *                                                              ◀──   101, with an HMAC that needs the secret key
 *   ordinary requests, on the same connection                  ──▶
 *
 * The secret key is never sent. The HMAC covers the port, so that nobody can pass on the proof of another port.
 */

/** The protocol's name in `Upgrade`. */
export const PROOF_PROTOCOL = 'flowdrop-proof';
/** Carries `<access key id> <nonce>`. */
export const CHALLENGE_HEADER = 'flowdrop-challenge';
/** Carries the proof: see {@link proofOf}. */
export const PROOF_HEADER = 'flowdrop-proof';

const NONCE_BYTES = 20;

/** Time for a proof, in milliseconds. A run that is busy answers late. */
const PROOF_MS_MAX = 30_000;

/** The connections of one client to one server: the SDK's default. */
const CONNECTIONS_MAX = 50;

interface Credentials {
  readonly accessKeyId: string;
  readonly secretAccessKey: string;
}

/** The answer to a nonce that only a server with the secret key can give. */
export const proofOf = (secretAccessKey: string, nonce: string, port: number): string =>
  createHmac('sha256', secretAccessKey).update(`${PROOF_PROTOCOL} ${nonce} ${port}`).digest('hex');

/** Makes connections to the servers of a local run. Each of them has proved itself before a request goes out. */
export class RunAgent extends Agent {
  readonly #credentials: Credentials;

  constructor({ credentials }: { readonly credentials: Credentials }) {
    super({ keepAlive: true, maxSockets: CONNECTIONS_MAX });
    this.#credentials = credentials;
  }

  override createConnection(
    { port, host }: ClientRequestArgs,
    callback?: (error: Error | null, stream: Duplex) => void,
  ): undefined {
    connectProven({ host: String(host), port: Number(port) }, this.#credentials).then(
      (stream) => callback?.(null, stream),
      // Nothing reads the stream beside an error.
      (error: Error) => callback?.(error, undefined as never),
    );
  }
}

/** @throws {NoLocalRunError} @throws {UntrustedRunError} */
function connectProven(
  { host, port }: { readonly host: string; readonly port: number },
  { accessKeyId, secretAccessKey }: Credentials,
): Promise<Duplex> {
  const { promise, resolve, reject } = Promise.withResolvers<Duplex>();
  const nonce = randomBytes(NONCE_BYTES).toString('hex');
  const headers = {
    connection: 'upgrade',
    upgrade: PROOF_PROTOCOL,
    [CHALLENGE_HEADER]: `${accessKeyId} ${nonce}`,
  };
  const asked = request({ host, port, headers, agent: false });
  const fail = (error: Error): void => {
    clearTimeout(limit);
    asked.destroy();
    reject(error);
  };
  const unproven = (): void =>
    fail(
      new UntrustedRunError(
        `The server at ${host}:${port} does not prove that it belongs to the local run, so nothing was sent to it. ` +
          'The run has ended, and another program has its port. Start a run with npm start.',
      ),
    );
  const limit = setTimeout(unproven, PROOF_MS_MAX);
  asked.on('error', (cause) => {
    fail(new NoLocalRunError(`The local run at ${host}:${port} has ended. Start one with npm start.`, { cause }));
  });
  asked.once('response', unproven);
  asked.once('upgrade', ({ headers: { [PROOF_HEADER]: proof } }, stream, head) => {
    if (proof === proofOf(secretAccessKey, nonce, port) && head.length === 0) {
      clearTimeout(limit);
      resolve(stream);
    } else {
      stream.destroy();
      unproven();
    }
  });
  asked.end();
  return promise;
}

/** `fetch`, as far as requests to AWS need it, through an agent. */
export async function fetchThrough(agent: Agent, asked: Request, signal: AbortSignal): Promise<Response> {
  const { promise, resolve, reject } = Promise.withResolvers<Response>();
  const headers = Object.fromEntries(asked.headers);
  const body = Buffer.from(await asked.arrayBuffer());
  const sent = request(asked.url, { method: asked.method, headers, agent, signal }, async (answer) => {
    try {
      const text = Buffer.concat(await answer.toArray());
      const known = Object.entries(answer.headers).map(([name, value]): [string, string] => [name, String(value)]);
      resolve(new Response(text, { status: answer.statusCode ?? 0, headers: known }));
    } catch (error) {
      reject(error);
    }
  });
  sent.once('error', reject);
  sent.end(body);
  return promise;
}
