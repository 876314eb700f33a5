import type { JsonObject } from '../../functions/base/json.ts';
import type { Call, ServiceRequest, ServiceResponse } from '../../local/flow-service/call.ts';
import { inOneChunk } from '../support/in-process-transport.ts';
import type { Fault } from './faults.ts';
import type { Random } from './random.ts';
import { MINUTE } from './timeline.ts';
import type { World } from './world.ts';

/** How the job API speaks, as changes of the description `flows`. The body of a creation stays as it is. */
export const JOB_API: JsonObject = {
  create: { path: '/jobs', id: '/job', idempotency: { header: 'X-Once' } },
  state: {
    ...{ path: '/jobs/{id}', word: '/phase', error: '/problem', progress: '/percent' },
    ...{ additional: '/note', createdAt: '/made' },
    completed: ['finished'],
    failed: ['crashed'],
    aborted: ['stopped'],
    running: ['queued', 'working'],
  },
  outputs: { path: '/jobs/{id}/files', addresses: [''], isWhole: true },
  list: { path: '/jobs', items: '/jobs', id: '/job' },
  templates: null,
  abort: { method: 'POST', path: '/jobs/{id}/stop', body: null },
  errors: { words: '/error/message', outOfCredit: [{ status: 403, says: 'balance' }] },
};

/** The words of the job API for the states of the stand-in. */
const WORDS: Readonly<Record<string, string>> = {
  ...{ created: 'queued', starting: 'queued', running: 'working', aborting: 'working' },
  ...{ completed: 'finished', failed: 'crashed', aborted: 'stopped' },
};

/** A word that the description does not declare. */
const UNDECLARED = 'polishing';

/** Share of the flows that are shown with that word, from the middle of their time on. */
const UNDECLARED_SHARE = 0.3;

/** Longest time for which an ended flow is still shown with it, in milliseconds. */
const UNDECLARED_MS_MAX = 10 * MINUTE;

/** Share of the addresses that have expired before they can be used, until the storm is over. */
const EXPIRED_SHARE = 0.3;

/** How long any other address is valid, in milliseconds: during the storm, and after it. */
const ADDRESS_MS = 5 * MINUTE;
const CALM_ADDRESS_MS = 60 * MINUTE;

/** Where the files of jobs are. It is not below the base address, so it gets no token. */
const FILES = 'https://files.example';

/** The address of a file. */
interface Address {
  /** The path of the asset at the stand-in. */
  readonly path: string;
  readonly until: number;
  wasRefused: boolean;
}

type Members = Readonly<Record<string, unknown>>;

/**
 * A service with jobs in place of flows, in front of the stand-in flow service: another vocabulary, keys in a header of its
 * own, files at addresses that expire, a worded 403 for spent credit, and now and then a word that nobody has declared.
 */
export class JobApi {
  readonly #world: World;
  readonly #random: Random;
  readonly #addresses = new Map<string, Address>();
  /** For how long each flow is shown with the undeclared word after its end, in milliseconds. */
  readonly #undeclaredMs = new Map<string, number | undefined>();

  constructor(world: World, random: Random) {
    this.#world = world;
    this.#random = random;
  }

  /** The request to the stand-in that a request of the job API stands for. */
  understood(request: ServiceRequest, { origin, pathname }: URL): ServiceRequest {
    if (origin === FILES) return this.#fileRequest(request, pathname);
    const { 'x-once': key, ...others } = request.headers;
    const headers = key === undefined ? others : { ...others, 'idempotency-key': key };
    const url = request.url.replace(/^\/jobs/, '/flows').replace(/\/files$/, '/outputs');
    if (!url.endsWith('/stop')) return { ...request, headers, url };
    const body = Buffer.from('{"action":"abort"}');
    return {
      ...request,
      method: 'PATCH',
      url: url.replace(/\/stop$/, ''),
      headers: { ...headers, 'content-type': 'application/json', 'content-length': String(body.byteLength) },
      body: inOneChunk(body),
    };
  }

  #fileRequest(request: ServiceRequest, pathname: string): ServiceRequest {
    const { observed, orderChecker } = this.#world;
    const { path: url = '/unknown' } = this.#addresses.get(pathname) ?? {};
    if (request.headers.authorization !== undefined) orderChecker.broken.push(`the token went to the file ${url}`);
    const headers = { ...request.headers, authorization: `Bearer ${observed.tokens.at(-1)}` };
    return { ...request, url, headers };
  }

  /** The refusal of an address that has expired. Undefined for any other. */
  refusalOf({ origin, pathname }: URL): ServiceResponse | undefined {
    const address = this.#addresses.get(pathname);
    const { timeline, observed, orderChecker } = this.#world;
    if (origin !== FILES || address === undefined || timeline.now() < address.until) return undefined;
    if (address.wasRefused) orderChecker.broken.push(`an expired address was asked for again: ${address.path}`);
    address.wasRefused = true;
    const path = decodeURIComponent(address.path);
    observed.incidents.push({ kind: 'flow.asset', path, fault: '403', keys: new Set() });
    return xmlError(403, 'Request has expired');
  }

  /** The answer of the job API for an answer of the stand-in that met a fault, or none. */
  async answerOf(call: Call, answer: ServiceResponse, fault: Fault | undefined): Promise<ServiceResponse> {
    if (fault === 'endless' || fault === 'trickled' || fault === 'gateway') return answer;
    if (call.operation === 'getAsset') {
      const { 'content-length': _, ...headers } = answer.headers;
      if (answer.status < 400) return answer;
      const error = xmlError(answer.status, 'This file cannot be had');
      return { ...error, headers: { ...headers, ...error.headers } };
    }
    const chunks: Uint8Array[] = [];
    try {
      for await (const chunk of answer.body instanceof Uint8Array ? inOneChunk(answer.body) : answer.body) {
        chunks.push(chunk);
      }
    } catch (error) {
      return { ...answer, body: broken(chunks, error) };
    }
    const bytes = Buffer.concat(chunks);
    const value = membersIn(bytes);
    if (value === undefined) return { ...answer, body: bytes };
    const status = answer.status === 402 ? 403 : answer.status;
    const told = Buffer.from(JSON.stringify(answer.status < 400 ? this.#told(call, value) : errorOf(answer, value)));
    const length = 'content-length' in answer.headers && { 'content-length': String(told.byteLength) };
    return { status, headers: { ...answer.headers, ...length }, body: told };
  }

  /** Until when a flow that has ended is shown with a word that is not declared. 0 if it never is. */
  undeclaredUntil(flowId: string): number {
    const ms = this.#undeclaredMs.get(flowId);
    const { finishedAt } = this.#world.service.flows.find(({ id }) => id === flowId) ?? {};
    return ms === undefined || finishedAt === undefined ? 0 : finishedAt + ms;
  }

  /** True if a flow is shown with a word that is not declared at some time. */
  isUndeclared(flowId: string): boolean {
    return this.#undeclaredMs.get(flowId) !== undefined;
  }

  #told({ operation, flowId }: Call, value: Members): Members {
    const id = value.flow_id ?? value.id;
    if (operation === 'createFlow') return id === undefined ? value : { job: id };
    if (operation === 'listFlows') {
      const { flows, ...page } = value;
      return Array.isArray(flows) ? { ...page, jobs: flows.map((each) => this.#jobOf(each)) } : value;
    }
    if (operation === 'listOutputs') {
      const outputs = Array.isArray(value) ? value : value.outputs;
      return Array.isArray(outputs) ? this.#filesOf(flowId, outputs) : value;
    }
    return id === undefined ? value : this.#jobOf(value);
  }

  #jobOf(record: Members): Members {
    const { progress, error, additional, created_at: made } = record;
    const job = String(record.flow_id ?? record.id);
    return { job, phase: this.#wordOf(job, record), percent: progress, problem: error, note: additional, made };
  }

  #wordOf(id: string, { state, progress, finished_at: finishedAt }: Members): string {
    if (!this.#undeclaredMs.has(id)) {
      const ms = this.#random.int(0, UNDECLARED_MS_MAX);
      this.#undeclaredMs.set(id, this.#random.chance(UNDECLARED_SHARE) ? ms : undefined);
    }
    const ms = this.#undeclaredMs.get(id);
    const isInTheMiddle = state === 'running' && Number(progress) > 0.5;
    const hasJustEnded =
      (state === 'completed' || state === 'failed') &&
      this.#world.timeline.now() < Date.parse(String(finishedAt)) + (ms ?? 0);
    return ms !== undefined && (isInTheMiddle || hasJustEnded) ? UNDECLARED : (WORDS[String(state)] ?? String(state));
  }

  /** New addresses of the files of a job. That of a file that could not be made leads nowhere. */
  #filesOf(flowId: string, outputs: readonly Members[]): Members {
    const { timeline, isHealing } = this.#world;
    const files = outputs.filter(({ status }) => status !== 'pending');
    return Object.fromEntries(
      files.map((output) => {
        const assetId = String(output.asset_id ?? output.id);
        const ids = [flowId, assetId].map(encodeURIComponent);
        const pathname = `/${this.#random.hex(24)}`;
        const ms = isHealing ? CALM_ADDRESS_MS : this.#random.chance(EXPIRED_SHARE) ? 0 : ADDRESS_MS;
        const address = { path: `/flows/${ids[0]}/outputs/${ids[1]}`, until: timeline.now() + ms, wasRefused: false };
        this.#addresses.set(pathname, address);
        return [assetId, `${FILES}${pathname}`];
      }),
    );
  }
}

function membersIn(bytes: Buffer): Members | undefined {
  try {
    const value: unknown = JSON.parse(bytes.toString());
    return typeof value === 'object' && value !== null ? (value as Members) : undefined;
  } catch {
    return undefined; // A fault has spoiled the answer.
  }
}

function errorOf({ status }: ServiceResponse, { detail }: Members): Members {
  const words = typeof detail === 'string' ? detail : JSON.stringify(detail);
  return { error: { message: status === 402 ? `Your balance is used up. ${words}` : words } };
}

async function* broken(chunks: readonly Uint8Array[], error: unknown): AsyncGenerator<Uint8Array> {
  yield* chunks;
  throw error;
}

function xmlError(status: number, message: string): ServiceResponse {
  const body = Buffer.from(`<Error><Code>AccessDenied</Code><Message>${message}</Message></Error>`);
  return { status, headers: { 'content-type': 'application/xml', 'content-length': String(body.byteLength) }, body };
}
