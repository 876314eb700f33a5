import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { firstClaim, running } from '../functions/ledger/entry.ts';
import { entryKey, runningKey } from '../functions/ledger/keys.ts';
import type { Env } from '../functions/settings/environment.ts';
import type { PipelineSettings } from '../functions/settings/settings.ts';
import { type Upload, uploadId } from '../functions/uploads/upload.ts';
import type { FunctionName } from '../infra/bundle/bundle.ts';
import { type Bundles, makeBundles } from './bundles.ts';
import { selfSigned } from './certificate.ts';
import { Child } from './child.ts';
import { BUCKETS, CREDENTIALS, FILE_ETAG, FILE_MODIFIED, FILE_VERSION, PIPELINE, TOKEN_SECRET } from './names.ts';
import type { AwsCalls } from './servers/aws-process.ts';
import { doneFlow } from './servers/flow-service.ts';
import type { FlowServiceCalls } from './servers/flow-service-process.ts';
import type { SubjectCalls } from './subject.ts';

export type Transport = 'plain' | 'tls';
export type Maker = 'ours' | 'naive';
export type Subject = Child<SubjectCalls>;

/** Memory of the functions, in MiB. The naive ones get Lambda's maximum, because they would crash with less. */
const MEMORY_MIB = { ours: 512, naive: 10_240 } as const;

const here = (path: string): string => fileURLToPath(new URL(path, import.meta.url));

type Ports = Readonly<Record<'aws' | 'service', Readonly<Record<Transport, number>>>>;

interface StageParts {
  readonly aws: Child<AwsCalls>;
  readonly service: Child<FlowServiceCalls>;
  readonly bundles: Bundles;
  readonly directory: string;
  readonly ports: Ports;
  readonly certificatePath: string;
}

/** The servers, each in a process of its own, and what a process under test needs to find them. */
export class Stage {
  readonly #parts: StageParts;
  #made = 0;

  static async start(): Promise<Stage> {
    const directory = await mkdtemp(join(tmpdir(), 'flowdrop-bench-'));
    const bundles = makeBundles(directory);
    const certificate = await selfSigned();
    const certificatePath = join(directory, 'authority.pem');
    await writeFile(certificatePath, certificate.certificate);
    const aws = new Child<AwsCalls>(here('servers/aws-process.ts'));
    const service = new Child<FlowServiceCalls>(here('servers/flow-service-process.ts'));
    try {
      const ports = { aws: await aws.call('listen', certificate), service: await service.call('listen', certificate) };
      return new Stage({ directory, bundles, certificatePath, aws, service, ports });
    } catch (error) {
      await Promise.all([aws[Symbol.asyncDispose](), service[Symbol.asyncDispose]()]);
      throw error;
    }
  }

  private constructor(parts: StageParts) {
    this.#parts = parts;
  }

  get aws(): Child<AwsCalls> {
    return this.#parts.aws;
  }

  get service(): Child<FlowServiceCalls> {
    return this.#parts.service;
  }

  get bundles(): Bundles {
    return this.#parts.bundles;
  }

  async close(): Promise<void> {
    await Promise.all([this.aws[Symbol.asyncDispose](), this.service[Symbol.asyncDispose]()]);
    await rm(this.#parts.directory, { recursive: true, force: true });
  }

  /** A new number with every call, for names. */
  next(): number {
    this.#made += 1;
    return this.#made;
  }

  /** Delays every answer of both servers from now on. */
  async setAnswerMs(answerMs: number): Promise<void> {
    for (const server of [this.aws, this.service]) await server.call('setAnswerMs', { answerMs });
  }

  port(of: 'aws' | 'service', transport: Transport): number {
    return this.#parts.ports[of][transport];
  }

  environment(transport: Transport, settings: Partial<PipelineSettings> = {}): Record<string, string> {
    const scheme = transport === 'tls' ? 'https' : 'http';
    const awsUrl = `${scheme}://127.0.0.1:${this.port('aws', transport)}`;
    const env: Env = {
      PIPELINE,
      FLOW_SERVICE_URL: `${scheme}://127.0.0.1:${this.port('service', transport)}`,
      TOKEN_SECRET_ID: TOKEN_SECRET,
      INBOX_BUCKET: BUCKETS.inbox,
      RESULTS_BUCKET: BUCKETS.results,
      LEDGER_BUCKET: BUCKETS.ledger,
      QUEUE_URL: `${awsUrl}/queue`,
      COLLECT_FUNCTION: 'collect-outputs',
      EVENT_BUS: 'default',
      ROUTES: JSON.stringify([{ name: 'all', input: 'file', template: 'bytes_echo' }]),
      // One round in a tick. A shorter interval would poll young flows several times.
      SETTINGS: JSON.stringify({ pollIntervalSeconds: 300, ...settings }),
    };
    return {
      ...env,
      ...(transport === 'tls' ? { NODE_EXTRA_CA_CERTS: this.#parts.certificatePath } : {}),
      AWS_REGION: 'us-east-1',
      AWS_ACCESS_KEY_ID: CREDENTIALS.accessKeyId,
      AWS_SECRET_ACCESS_KEY: CREDENTIALS.secretAccessKey,
      AWS_LAMBDA_FUNCTION_NAME: 'benchmark',
      // Lambda sets it for each invocation. It is in each line of the log.
      _X_AMZN_TRACE_ID: 'Root=1-00000000-000000000000000000000000;Parent=0000000000000000;Sampled=0',
      AWS_ENDPOINT_URL: awsUrl,
    };
  }

  /** A new process that has loaded a function and not called it. */
  async subject(maker: Maker, name: FunctionName, environment: Record<string, string>): Promise<Subject> {
    const subject = this.#process(maker, environment);
    await subject.call('load', { path: this.bundles[maker][name] });
    return subject;
  }

  /** A new process that only relays bytes. */
  relay(): Subject {
    return this.#process('ours', this.environment('tls'));
  }

  #process(maker: Maker, env: Record<string, string>): Subject {
    const memoryMiB = MEMORY_MIB[maker];
    return new Child<SubjectCalls>(this.bundles.subject, {
      // The flags that Lambda's bootstrap gives Node.js.
      flags: [
        `--max-semi-space-size=${Math.floor(memoryMiB * 0.05)}`,
        `--max-old-space-size=${Math.floor(memoryMiB * 0.9)}`,
      ],
      env,
    });
  }

  /** An event of the queue with `count` new files of this length. */
  uploads(bytes: number, count: number): object {
    return this.event(Array.from({ length: count }, () => this.message(this.upload(bytes).key, bytes)));
  }

  /** An event of the queue with these messages. */
  event(bodies: readonly string[]): object {
    return {
      Records: bodies.map((body) => ({ messageId: `message-${this.next()}`, eventSource: 'aws:sqs', body })),
    };
  }

  /** What S3 sends of a file. */
  message(key: string, bytes: number): string {
    const s3 = {
      bucket: { name: BUCKETS.inbox },
      object: { key, size: bytes, eTag: FILE_ETAG, versionId: FILE_VERSION },
    };
    return JSON.stringify({ Records: [{ eventSource: 'aws:s3', eventName: 'ObjectCreated:Put', s3 }] });
  }

  upload(bytes: number): Upload {
    const facts = {
      bucket: BUCKETS.inbox,
      key: `${bytes}/${this.next()}.bin`,
      versionId: FILE_VERSION,
      etag: FILE_ETAG,
      bytes,
      lastModified: Date.parse(FILE_MODIFIED),
      mediaType: 'application/octet-stream',
    };
    return { id: uploadId(facts), ...facts };
  }

  /** Adds `count` flows that have ended, each with one asset of this length in a data URI. */
  async addEnded(bytes: number, count: number, maker: Maker = 'ours'): Promise<void> {
    await this.addRunning(
      Array.from({ length: count }, () => doneFlow(bytes, this.next())),
      maker,
    );
  }

  /** Adds running flows to the ledger as create-flow does, or as the naive function does. */
  async addRunning(flowIds: readonly string[], maker: Maker): Promise<readonly Upload[]> {
    const now = Date.now();
    const uploads: Upload[] = [];
    const objects = flowIds.flatMap((flowId) => {
      const upload = this.upload(0);
      uploads.push(upload);
      const route = { name: 'all', input: 'file', template: 'bytes_echo' } as const;
      const entry = running(
        firstClaim(upload, route, { claimedAt: now, deadline: now, pipeline: 'bench', keyScope: '' }),
        {
          id: flowId,
          createdAt: now,
        },
      );
      const marker = runningKey({ ageFrom: now, uploadId: upload.id, flowId });
      const ours = [
        { bucket: BUCKETS.ledger, key: entryKey(upload.id), body: JSON.stringify({ ...entry, nonce: '' }) },
        { bucket: BUCKETS.ledger, key: marker, body: '' },
      ];
      const { bucket, key } = upload;
      const naive = [{ bucket: BUCKETS.ledger, key: `pending/${flowId}`, body: JSON.stringify({ bucket, key }) }];
      return maker === 'naive' ? naive : ours;
    });
    for (let from = 0; from < objects.length; from += 10_000) {
      await this.aws.call('put', objects.slice(from, from + 10_000));
    }
    return uploads;
  }
}
