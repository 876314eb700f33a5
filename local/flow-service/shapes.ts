import { isDeepStrictEqual } from 'node:util';
import type { ServiceDescription } from '../../functions/flow-service/service-description.ts';
import { SERVICES } from '../../functions/flow-service/services.ts';
import { type Answer, json } from './answer.ts';
import type { Job, JobState } from './job.ts';

/*
 * How public services answer, for the stand-in that takes their place. Each shape is written from the service's public
 * documentation (see `functions/flow-service/job-services.ts`) and not from the description that Flowdrop has of it:
 * otherwise a test could not find a mistake in the description.
 */

/** A file that a job made. */
interface Link {
  /** An address that expires. Each answer has a new one. */
  readonly url: string;
  readonly mediaType: string;
  readonly bytes: number;
}

export interface Links {
  readonly result: Link;
  readonly preview: Link;
}

/** A request with a valid token. */
export interface JobRequest {
  readonly method: string;
  /** The segments of the path. */
  readonly path: readonly string[];
  /** Names in lower case. */
  readonly headers: Readonly<Record<string, string | undefined>>;
  /** Milliseconds since the epoch. */
  readonly now: number;
  job(id: string | undefined): Job | undefined;
  links(job: Job): Links;
  /**
   * Makes a job, or answers why not.
   * @param inputOf finds the input in the body: a data URI or a text.
   */
  make(template: string, inputOf: (body: Readonly<Record<string, unknown>>) => unknown): Promise<Job | Answer>;
}

/** Why a request is refused. */
type Cause = 'token' | 'credit' | 'invalid' | 'unknown';

export interface Shape {
  /** What the service calls a flow. */
  readonly flow: string;
  /** The word before the token in `Authorization`. */
  readonly token: string;
  /** Undefined for a path that is not served, and for a job that is not known. */
  readonly answer: (request: JobRequest) => Promise<Answer | undefined> | Answer | undefined;
  readonly refusal: (cause: Cause, words?: string) => Answer;
}

const member = (value: unknown, name: string): unknown =>
  typeof value === 'object' && value !== null ? (value as Readonly<Record<string, unknown>>)[name] : undefined;

const isAnswer = (made: Job | Answer): made is Answer => 'status' in made;

const iso = (ms: number): string => new Date(ms).toISOString();

/** A word for each state. */
type WordsOfStates = Readonly<Record<JobState, string>>;

const STATUS: Readonly<Record<Cause, number>> = { token: 401, credit: 402, invalid: 422, unknown: 404 };

const WORDS: Readonly<Record<Cause, string>> = {
  token: 'The token is not valid',
  credit: 'There is not enough credit',
  invalid: 'The request is not valid',
  unknown: 'Not found',
};

/** https://replicate.com/docs/reference/http */
const replicate: Shape = {
  flow: 'a prediction',
  token: 'Bearer',
  async answer({ method, path, now, make, job, links }) {
    const words: WordsOfStates = {
      ...{ queued: 'starting', running: 'processing', done: 'succeeded', failed: 'failed', cancelled: 'canceled' },
    };
    const prediction = (each: Job) => {
      const state = each.state(now);
      return {
        ...{ id: each.id, model: each.template, version: 'hidden', input: {}, logs: '', source: 'api' },
        status: words[state],
        created_at: iso(each.createdAt),
        data_removed: false,
        error: state === 'failed' ? each.error : null,
        output: state === 'done' ? [links(each).result.url] : null,
        urls: { get: `/v1/predictions/${each.id}`, cancel: `/v1/predictions/${each.id}/cancel` },
      };
    };
    if (path[0] !== 'predictions') return undefined;
    if (method === 'POST' && path.length === 1) {
      const made = await make('', (body) => {
        if (typeof body.version !== 'string') return undefined;
        return member(body.input, 'image') ?? member(body.input, 'prompt');
      });
      return isAnswer(made) ? made : json(201, prediction(made));
    }
    const known = job(path[1]);
    if (known === undefined) return undefined;
    if (method === 'GET' && path.length === 2) return json(200, prediction(known));
    if (method !== 'POST' || path[2] !== 'cancel') return undefined;
    known.cancel(now);
    return json(200, prediction(known));
  },
  refusal(cause, words = WORDS[cause]) {
    const titles = { token: 'Unauthenticated', credit: 'Insufficient credit', invalid: 'Input validation failed' };
    const title = cause === 'unknown' ? undefined : titles[cause];
    return json(
      STATUS[cause],
      { title, detail: words, status: STATUS[cause] },
      { 'content-type': 'application/problem+json' },
    );
  },
};

/** https://fal.ai/docs/documentation/model-apis/inference/queue and .../request-errors */
const fal: Shape = {
  flow: 'a request',
  token: 'Key',
  async answer({ method, path, now, make, job, links }) {
    const [owner, app] = path;
    if (owner === undefined || app === undefined) return undefined;
    const requestsAt = `/${owner}/${app}/requests`;
    const queued = (each: Job) => ({
      ...{ request_id: each.id, response_url: `${requestsAt}/${each.id}` },
      status_url: `${requestsAt}/${each.id}/status`,
      cancel_url: `${requestsAt}/${each.id}/cancel`,
    });
    if (method === 'POST' && path[2] !== 'requests') {
      const made = await make(path.join('/'), (body) => body.image_url ?? body.prompt);
      return isAnswer(made) ? made : json(200, { status: 'IN_QUEUE', queue_position: 0, ...queued(made) });
    }
    const known = path[2] === 'requests' ? job(path[3]) : undefined;
    // The path behind the app stands in no request but the first.
    if (known === undefined || !`${known.template}/`.startsWith(`${owner}/${app}/`)) return undefined;
    const state = known.state(now);
    if (method === 'PUT' && path[4] === 'cancel') {
      if (state === 'done' || state === 'failed') return json(400, { status: 'ALREADY_COMPLETED' });
      known.cancel(now);
      return json(202, { status: 'CANCELLATION_REQUESTED' });
    }
    if (method !== 'GET') return undefined;
    const isOver = state !== 'queued' && state !== 'running';
    if (path[4] === 'status') {
      const status = state === 'queued' ? 'IN_QUEUE' : state === 'running' ? 'IN_PROGRESS' : 'COMPLETED';
      return json(200, { status, ...queued(known), ...(isOver && { metrics: { inference_time: 1.5 } }) });
    }
    if (path.length !== 4) return undefined;
    if (!isOver) return json(400, { detail: 'Request is still in progress' });
    if (state === 'cancelled') return json(499, { detail: 'Request was cancelled', error_type: 'client_cancelled' });
    if (state === 'failed') {
      return json(422, { detail: [{ loc: ['body', 'image_url'], msg: known.error, type: 'image_load_error' }] });
    }
    const { url, mediaType, bytes } = links(known).result;
    const file = { url, content_type: mediaType, file_name: 'model.glb', file_size: bytes };
    return json(200, { model_mesh: file, seed: 42, timings: { inference: 1.5 } });
  },
  refusal(cause, words = WORDS[cause]) {
    if (cause === 'credit') {
      const detail = 'User is locked. Reason: Exhausted balance. Top up your balance at fal.ai/dashboard/billing.';
      return json(403, { detail });
    }
    return json(STATUS[cause], {
      detail: cause === 'invalid' ? [{ loc: ['body'], msg: words, type: 'value_error' }] : words,
    });
  },
};

/** https://docs.meshy.ai/api/image-to-3d, .../task-lifecycle and .../errors */
const meshy: Shape = {
  flow: 'a task',
  token: 'Bearer',
  async answer({ method, path, now, make, job, links }) {
    const [version, kind, id] = path;
    if (version !== 'v1' || kind === undefined) return undefined;
    if (method === 'POST' && id === undefined) {
      const made = await make(kind, (body) => body.image_url);
      return isAnswer(made) ? made : json(202, { result: made.id });
    }
    const known = job(id);
    if (known?.template !== kind) return undefined;
    if (method === 'DELETE') {
      known.isDeleted = true;
      return json(200, {});
    }
    if (method !== 'GET') return undefined;
    const state = known.state(now);
    const words: WordsOfStates = {
      ...{ queued: 'PENDING', running: 'IN_PROGRESS', done: 'SUCCEEDED', failed: 'FAILED', cancelled: 'CANCELED' },
    };
    const made = state === 'done' ? links(known) : undefined;
    return json(200, {
      ...{ id: known.id, type: kind, status: words[state], progress: known.progress(now) },
      model_urls: made === undefined ? {} : { glb: made.result.url },
      thumbnail_url: made?.preview.url ?? '',
      texture_urls: [],
      preceding_tasks: 0,
      created_at: known.createdAt,
      started_at: state === 'queued' ? 0 : known.createdAt,
      finished_at: made === undefined ? 0 : now,
      task_error: { message: state === 'failed' ? known.error : '' },
    });
  },
  refusal: (cause, words = WORDS[cause]) => json(cause === 'invalid' ? 400 : STATUS[cause], { message: words }),
};

/** https://docs.runpod.io/serverless/endpoints/operations and .../job-states */
const runpod: Shape = {
  flow: 'a job',
  token: 'Bearer',
  async answer({ method, path, now, make, job, links }) {
    const [endpoint = '', operation, id] = path;
    const words: WordsOfStates = {
      ...{ queued: 'IN_QUEUE', running: 'IN_PROGRESS', done: 'COMPLETED', failed: 'FAILED', cancelled: 'CANCELLED' },
    };
    if (method === 'POST' && operation === 'run') {
      const made = await make(endpoint, (body) => member(body.input, 'image') ?? member(body.input, 'prompt'));
      return isAnswer(made) ? made : json(200, { id: made.id, status: 'IN_QUEUE' });
    }
    const known = job(id);
    if (known?.template !== endpoint) return undefined;
    if (method === 'POST' && operation === 'cancel') {
      known.cancel(now);
      return json(200, { id: known.id, status: 'CANCELLED' });
    }
    if (method !== 'GET' || operation !== 'status') return undefined;
    const state = known.state(now);
    return json(200, {
      ...{ id: known.id, status: words[state], delayTime: 20, executionTime: 1_500 },
      ...(state === 'failed' && { error: known.error }),
      // What a worker returns is its own. This one has an address and a small picture as a data URI.
      ...(state === 'done' && { output: { model_url: links(known).result.url, preview: TRANSPARENT, seed: 42 } }),
    });
  },
  refusal: (cause, words = WORDS[cause]) => json(cause === 'invalid' ? 400 : STATUS[cause], { error: words }),
};

/** A picture of one pixel. */
const TRANSPARENT = 'data:image/gif;base64,R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7';

/** https://platform.tripo3d.ai/docs and https://docs.tripo3d.ai/get-started/errors-and-error-handling.html */
const tripo: Shape = {
  flow: 'a task',
  token: 'Bearer',
  async answer({ method, path, now, make, job, links }) {
    if (path[0] !== 'task') return undefined;
    if (method === 'POST' && path.length === 1) {
      const made = await make('', (body) => (typeof body.type === 'string' ? body.prompt : undefined));
      return isAnswer(made) ? made : json(200, { code: 0, data: { task_id: made.id } });
    }
    const known = job(path[1]);
    if (method !== 'GET' || known === undefined) return undefined;
    const state = known.state(now);
    const words: WordsOfStates = {
      ...{ queued: 'queued', running: 'running', done: 'success', failed: 'failed', cancelled: 'cancelled' },
    };
    const made = state === 'done' ? links(known) : undefined;
    return json(200, {
      code: 0,
      data: {
        ...{ task_id: known.id, type: 'text_to_model', status: words[state], input: {} },
        output: made === undefined ? {} : { pbr_model: made.result.url, rendered_image: made.preview.url },
        progress: known.progress(now),
        create_time: Math.floor(known.createdAt / 1000),
        ...(state === 'failed' && { error_code: 1001 }),
      },
    });
  },
  refusal(cause, words = WORDS[cause]) {
    const codes = { token: [401, 1002], credit: [403, 2010], invalid: [400, 1004], unknown: [404, 2001] } as const;
    const [status, code] = codes[cause];
    return json(status, { code, message: words, suggestion: 'Refer to the documentation' });
  },
};

/** https://docs.ogc.org/is/18-062r2/18-062r2.html */
const ogcProcesses: Shape = {
  flow: 'a job',
  token: 'Bearer',
  async answer({ method, path, headers, now, make, job, links }) {
    const words: WordsOfStates = {
      ...{ queued: 'accepted', running: 'running', done: 'successful', failed: 'failed', cancelled: 'dismissed' },
    };
    const statusInfo = (each: Job) => ({
      ...{ jobID: each.id, processID: each.template, type: 'process', status: words[each.state(now)] },
      ...{ progress: each.progress(now), created: iso(each.createdAt) },
      ...(each.state(now) === 'failed' && { message: each.error }),
      links: [{ href: `/jobs/${each.id}`, rel: 'self', type: 'application/json' }],
    });
    const [collection, id, below] = path;
    if (method === 'POST' && collection === 'processes' && below === 'execution') {
      // Without this, the answer to the request is the result itself.
      if (headers.prefer !== 'respond-async') return undefined;
      const made = await make(id ?? '', ({ inputs }) => {
        const image = member(inputs, 'image');
        return member(image, 'href') ?? image;
      });
      return isAnswer(made) ? made : json(201, statusInfo(made), { location: `/jobs/${made.id}` });
    }
    const known = collection === 'jobs' ? job(id) : undefined;
    if (known === undefined) return undefined;
    if (method === 'DELETE' && path.length === 2) {
      known.isDeleted = known.state(now) === 'done' || known.state(now) === 'failed';
      known.cancel(now);
      return json(200, statusInfo(known));
    }
    if (method !== 'GET') return undefined;
    if (path.length === 2) return json(200, statusInfo(known));
    if (below !== 'results' || known.state(now) !== 'done') return undefined;
    const { result, preview } = links(known);
    const link = ({ url, mediaType }: Link) => ({ href: url, type: mediaType });
    return json(200, { model: link(result), preview: link(preview), triangles: { value: 12 } });
  },
  refusal(cause, words = WORDS[cause]) {
    const status = cause === 'invalid' ? 400 : STATUS[cause];
    const type = 'http://www.opengis.net/def/exceptions/ogcapi-processes-1/1.0/no-such-job';
    const problem = { ...(cause === 'unknown' && { type }), title: WORDS[cause], detail: words, status };
    return json(status, problem, { 'content-type': 'application/problem+json' });
  },
};

/** The shapes by the names of the descriptions. */
export const SHAPES = { replicate, fal, meshy, runpod, tripo, 'ogc-processes': ogcProcesses } as const;

export type ShapeName = keyof typeof SHAPES;

/**
 * The shape for a description that ships with Flowdrop, also if some of its members are changed. Undefined for any other:
 * the stand-in flow service takes its place.
 */
export const shapeFor = (service: ServiceDescription | undefined): ShapeName | undefined =>
  (Object.keys(SHAPES) as ShapeName[]).find((name) => isDeepStrictEqual(marks(SERVICES[name]), marks(service)));

/** What nobody changes of a description, because the service would be another one. */
const marks = (service: ServiceDescription | undefined) => [service?.state.path, service?.create.id];

/** How requests and answers look, without which no stand-in understands the other side. */
const interfaceOf = ({ token, create: { method, path, body, id }, state, outputs }: ServiceDescription) => {
  return { token, create: { method, path, body, id }, state, outputs };
};

/** Tells that the stand-in may not speak as a description says. Undefined if it does. */
export function issueOfStandIn(service: ServiceDescription): string | undefined {
  const name = shapeFor(service) ?? 'flows';
  const spoken = SERVICES[name];
  if (spoken === undefined || isDeepStrictEqual(interfaceOf(spoken), interfaceOf(service))) return undefined;
  return `The stand-in speaks as the description "${name}" says, and "service" in the configuration says something else. So files may wait or fail here. Try the service itself, with --service.`;
}
