import { randomBytes } from 'node:crypto';
import { tmpdir } from 'node:os';
import { systemClock } from '../../functions/base/clock.ts';
import { type Answer, Refusal } from './answer.ts';
import { BlobFolder } from './blob.ts';
import type { ServiceRequest, ServiceResponse } from './call.ts';
import { ConnectionLostError, spoiled } from './fault.ts';
import { Job } from './job.ts';
import { type Body, inputData, readBody } from './request-body.ts';
import { type JobRequest, type Links, SHAPES, type Shape, type ShapeName } from './shapes.ts';
import type { Made } from './templates.ts';

/** How long an address of a result is valid, in milliseconds. */
const ADDRESS_MS = 3_600_000;

const JOB_MS_DEFAULT = 1_000;

export interface JobServiceOptions {
  readonly shape: ShapeName;
  readonly token: string;
  /** How long a job takes, in milliseconds. Default 1,000. */
  readonly jobMs?: number | undefined;
  /** Default: the machine's clock. */
  readonly clock?: { now(): number };
  /** Parent of the folder that keeps large inputs until `close`. Default: the system's temporary folder. */
  readonly dir?: string;
}

/**
 * A stand-in for a service that runs one job for one input, in the shape of a public service. Results are at addresses of
 * another server, {@link results}, which expire and take no token. It has no transport of its own: `http.ts` serves both.
 */
export class StandInJobService {
  readonly jobs: Job[] = [];
  /** How long each new job takes, in milliseconds. */
  jobMs: number;
  /** The account has no credit: no job is made. */
  isOutOfCredit = false;
  /** So many of the next jobs fail. */
  jobsToFail = 0;
  /** So many of the next creations make their job, and lose their answer. */
  answersToLose = 0;
  /** So many of the next downloads find that their address has expired. */
  addressesToExpire = 0;
  /** Where {@link results} is served. Set it before the first request. */
  resultsOrigin = '';
  readonly #shape: Shape;
  readonly #token: string;
  readonly #clock: { now(): number };
  readonly #blobs: BlobFolder;
  readonly #addresses = new Map<string, { readonly made: Made; readonly until: number }>();

  constructor({ shape, token, jobMs = JOB_MS_DEFAULT, clock = systemClock, dir = tmpdir() }: JobServiceOptions) {
    this.#shape = SHAPES[shape];
    this.#token = token;
    this.jobMs = jobMs;
    this.#clock = clock;
    this.#blobs = new BlobFolder(dir);
  }

  /** Removes the inputs on disk. */
  close(): void {
    this.#blobs.remove();
  }

  /** @throws {ConnectionLostError} the connection must break. @throws the errors of the request's body. */
  async handle(request: ServiceRequest): Promise<ServiceResponse> {
    const before = this.jobs.length;
    const answer = await this.#answer(request);
    if (this.jobs.length > before && this.answersToLose > 0) {
      this.answersToLose -= 1;
      throw new ConnectionLostError('reset');
    }
    return spoiled(answer, {}, neverGone);
  }

  async #answer(request: ServiceRequest): Promise<Answer> {
    const { token, answer, refusal } = this.#shape;
    if (request.headers.authorization !== `${token} ${this.#token}`) return refusal('token');
    const [path = ''] = request.url.split('?');
    try {
      return (await answer(this.#request(request, path))) ?? refusal('unknown');
    } catch (error) {
      if (!(error instanceof Refusal)) throw error;
      return refusal('invalid', typeof error.detail === 'string' ? error.detail : JSON.stringify(error.detail));
    }
  }

  #request(request: ServiceRequest, path: string): JobRequest {
    const now = this.#clock.now();
    return {
      ...{
        method: request.method,
        path: path.split('/').slice(1).map(decodeURIComponent),
        headers: request.headers,
        now,
      },
      job: (id) => this.jobs.find((job) => job.id === id && !job.isDeleted),
      links: (job) => this.#links(job),
      make: (template, inputOf) => this.#make(request, template, inputOf),
    };
  }

  /** Makes a job, unless the request or the account is at fault. */
  async #make(
    request: ServiceRequest,
    template: string,
    inputOf: (body: Readonly<Record<string, unknown>>) => unknown,
  ): Promise<Job | Answer> {
    const body: Body = await readBody(request, this.#blobs);
    const given = inputOf(body.value);
    const read = typeof given === 'string' ? inputData(given, body) : 'The input is missing';
    if (typeof read === 'string' || this.isOutOfCredit) {
      body.discard();
      return typeof read === 'string' ? this.#shape.refusal('invalid', read) : this.#shape.refusal('credit');
    }
    const parts = { id: randomBytes(12).toString('hex'), template, createdAt: this.#clock.now() };
    const isToFail = this.jobsToFail > 0;
    if (isToFail) this.jobsToFail -= 1;
    const job = new Job({ ...parts, input: { ...read, additional: undefined } }, { durationMs: this.jobMs, isToFail });
    this.jobs.push(job);
    return job;
  }

  /** New addresses of what a job made. */
  #links(job: Job): Links {
    const { result, preview } = job.files;
    return { result: this.#link(job, 'result', result), preview: this.#link(job, 'preview', preview) };
  }

  #link(job: Job, name: string, made: Made): Links['result'] {
    const until = this.#clock.now() + ADDRESS_MS;
    const path = `/files/${job.id}/${name}?signature=${randomBytes(16).toString('hex')}&expires=${until}`;
    this.#addresses.set(path, { made, until });
    return { url: `${this.resultsOrigin}${path}`, mediaType: made.mediaType, bytes: made.content.bytes };
  }

  /** The server of the results. Like a bucket, it refuses a token. */
  readonly results = async ({ method, url, headers }: ServiceRequest): Promise<ServiceResponse> => {
    const address = method === 'GET' ? this.#addresses.get(url) : undefined;
    if (headers.authorization !== undefined) return xmlError(400, 'InvalidArgument', 'Only one auth mechanism allowed');
    const isExpired = address === undefined || address.until < this.#clock.now() || this.addressesToExpire > 0;
    if (isExpired) {
      this.addressesToExpire = Math.max(0, this.addressesToExpire - 1);
      return xmlError(403, 'AccessDenied', 'Request has expired');
    }
    const { mediaType, content } = address.made;
    const answer = { status: 200, headers: { 'content-type': mediaType }, body: content };
    return spoiled(answer, {}, neverGone);
  };
}

const neverGone = (): AbortSignal => new AbortController().signal;

function xmlError(status: number, code: string, message: string): ServiceResponse {
  const body = Buffer.from(`<?xml version="1.0"?>\n<Error><Code>${code}</Code><Message>${message}</Message></Error>`);
  return { status, headers: { 'content-type': 'application/xml', 'content-length': String(body.length) }, body };
}
