import { randomBytes } from 'node:crypto';
import type { Socket } from 'node:dgram';
import type { S3Client } from '@aws-sdk/client-s3';
import type { Clock } from '../base/clock.ts';
import type { Transport } from '../flow-service/transport.ts';
import { UPLOAD_METADATA } from '../results/results-keys.ts';

/** The address of Lambda's X-Ray daemon. */
const DAEMON_ADDRESS = /^([\d.]+):(\d{1,5})$/;

/** An upload id as a part of a key of the ledger. */
const ID_IN_KEY = /(?:^|\/)([0-9a-f]{40})(?:[/.]|$)/;

/** Where a call goes to, in the words of X-Ray. */
interface Call {
  readonly name: string;
  readonly namespace: 'aws' | 'remote';
  readonly aws?: Readonly<Record<string, string | undefined>>;
  readonly http?: { readonly request: { readonly method: string; readonly url: string } };
}

/** The parts that we use of the input of a command of S3. */
interface S3Input {
  readonly Bucket?: string;
  readonly Key?: string;
  readonly Metadata?: Readonly<Record<string, string>>;
}

/**
 * Makes a subsegment of each call to S3 and to the flow service, while Lambda traces the invocation
 * (`deployment.tracing`). A call that names its upload is annotated with `uploadId`. Subsegments may get lost: nothing
 * waits for them.
 * @see https://docs.aws.amazon.com/xray/latest/devguide/xray-api-segmentdocuments.html
 * @see https://docs.aws.amazon.com/xray/latest/devguide/xray-api-sendingdata.html#xray-api-daemon
 */
export class XRay {
  /** The environment of the process. Lambda's runtime changes it with each invocation. */
  readonly #env: Readonly<Record<string, string | undefined>>;
  readonly #clock: Clock;
  #socket: Socket | undefined;

  constructor(env: Readonly<Record<string, string | undefined>>, clock: Clock) {
    this.#env = env;
    this.#clock = clock;
  }

  /** Traces the calls of a client. An attempt that the SDK repeats belongs to its call. */
  s3(client: S3Client, ledgerBucket: string): S3Client {
    client.middlewareStack.add(
      (next, { commandName = '' }) =>
        (args) => {
          const { Bucket, Key = '', Metadata } = args.input as S3Input;
          const uploadId = Bucket === ledgerBucket ? ID_IN_KEY.exec(Key)?.[1] : Metadata?.[UPLOAD_METADATA];
          const aws = { operation: commandName.replace(/Command$/, ''), bucket_name: Bucket, key: Key };
          return this.#traced({ name: 'S3', namespace: 'aws', aws }, uploadId, () => next(args));
        },
      { step: 'initialize', name: 'xray' },
    );
    return client;
  }

  /** Traces the requests of a transport. The rest of a foreign address may be a signature, and is left out. */
  transport(inner: Transport): Transport {
    return (request, signal) => {
      const { method, url, reach, uploadId } = request;
      const http = { request: { method, url: reach === undefined ? url.origin + url.pathname : url.origin } };
      const call = { name: url.hostname, namespace: 'remote', http } as const;
      return this.#traced(call, uploadId, () => inner(request, signal));
    };
  }

  async #traced<T>(call: Call, uploadId: string | undefined, send: () => Promise<T>): Promise<T> {
    const { _X_AMZN_TRACE_ID: trace = '', AWS_XRAY_DAEMON_ADDRESS: daemon = '' } = this.#env;
    const [, address, port] = DAEMON_ADDRESS.exec(daemon) ?? [];
    const { Root, Parent, Sampled } = Object.fromEntries(trace.split(';').map((part) => part.split('=')));
    if (address === undefined || Sampled !== '1' || Root === undefined || Parent === undefined) return send();
    const startedAt = this.#clock.now();
    const end = (status: number | undefined): void => {
      const subsegment = {
        ...{ type: 'subsegment', id: randomBytes(8).toString('hex'), trace_id: Root, parent_id: Parent, ...call },
        ...{ start_time: startedAt / 1000, end_time: this.#clock.now() / 1000 },
        http: { ...call.http, ...(status !== undefined && { response: { status } }) },
        ...(uploadId !== undefined && { annotations: { uploadId } }),
        ...(status === undefined || status >= 500 ? { fault: true } : { error: status >= 400 }),
        throttle: status === 429,
      };
      const text = `{"format": "json", "version": 1}\n${JSON.stringify(subsegment)}`;
      this.#openSocket().send(text, Number(port), address, () => {});
    };
    try {
      const answer = await send();
      end(Object(answer).status ?? Object(answer).output?.$metadata?.httpStatusCode);
      return answer;
    } catch (error) {
      end(Object(error).$metadata?.httpStatusCode);
      throw error;
    }
  }

  #openSocket(): Socket {
    // Not imported: a cold start without a trace need not load the module.
    this.#socket ??= process
      .getBuiltinModule('node:dgram')
      .createSocket('udp4')
      .on('error', () => {})
      .unref();
    return this.#socket;
  }
}
