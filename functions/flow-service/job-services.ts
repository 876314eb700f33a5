import type { ErrorsDescription, ServiceDescription } from './service-description.ts';

/*
 * Services that run a model or a process for each job. Each description is made from the service's public documentation,
 * as it stood in November 2026, and is untried against the real service. None of them lists its jobs with what the
 * caller attached to them, so none has a `list`: after a lost answer, `inDoubt` decides. None documents a header for an
 * idempotency key. Each has a stand-in of its shape in `local/flow-service/shapes.ts`, and a recipe.
 */

/** What the statuses mean at most services. */
export const STATUSES: Omit<ErrorsDescription, 'words'> = {
  outOfCredit: [402],
  tokenRefused: [401],
  throttled: [429],
  notReady: [409, 423, 425],
};

/**
 * Replicate (https://replicate.com/docs): reference/http, topics/predictions (lifecycle, input-files, data-retention,
 * rate-limits). The template is what `version` takes: `owner/model`, `owner/model:version` or a version. The file is the
 * input `image`. Inputs and outputs are removed after an hour. Base address: https://api.replicate.com/v1
 */
export const REPLICATE: ServiceDescription = {
  token: { header: 'Authorization', scheme: 'Bearer' },
  create: {
    path: '/predictions',
    body: { version: '{template}', input: { '...': '{parameters}', image: '{input}' } },
    id: '/id',
  },
  state: {
    path: '/predictions/{id}',
    word: '/status',
    completed: ['succeeded'],
    failed: ['failed'],
    aborted: ['canceled', 'aborted'],
    running: ['starting', 'processing'],
    error: '/error',
    createdAt: '/created_at',
  },
  outputs: { addresses: ['/output'], isWhole: true, keptHours: 1 },
  abort: { method: 'POST', path: '/predictions/{id}/cancel' },
  errors: { ...STATUSES, words: ['/detail', '/title'], mediaType: ['application/json', 'application/problem+json'] },
};

/**
 * fal (https://fal.ai/docs): the queue API, request errors, data retention. The template is the model: `owner/app`. A path
 * behind it, such as that of `fal-ai/flux/dev`, stands only in the path of a creation. A job that failed is `COMPLETED`
 * too: an error stands in place of its result. The documentation names no status for spent credit; public reports show a
 * 403 with these words. Base address: https://queue.fal.run
 */
export const FAL: ServiceDescription = {
  token: { header: 'Authorization', scheme: 'Key' },
  create: {
    path: '/{template}',
    body: { '...': '{parameters}', image_url: '{input}' },
    id: '/request_id',
  },
  state: {
    path: '/{template}/requests/{id}/status',
    word: '/status',
    completed: ['COMPLETED'],
    failed: [],
    running: ['IN_QUEUE', 'IN_PROGRESS'],
  },
  outputs: {
    path: '/{template}/requests/{id}',
    addresses: [''],
    failed: [400, 422, ...[499, 500, 502, 503, 504].map((status) => ({ status, says: '"error_type"' }))],
    isWhole: true,
  },
  abort: { method: 'PUT', path: '/{template}/requests/{id}/cancel' },
  errors: {
    ...STATUSES,
    words: '/detail',
    outOfCredit: [402, { status: 403, says: 'exhausted balance' }, { status: 403, says: 'reason: top_up' }],
  },
};

/**
 * Meshy (https://docs.meshy.ai): image to 3D, the lifecycle of a task, errors. The template is the kind of task:
 * `image-to-3d`. The texts of `text-to-3d` go to `/v2`. There is no way to abort a task. To delete it deletes what it
 * made. Results are kept for three days. Base address: https://api.meshy.ai/openapi
 */
export const MESHY: ServiceDescription = {
  token: { header: 'Authorization', scheme: 'Bearer' },
  create: {
    path: '/v1/{template}',
    body: { '...': '{parameters}', image_url: '{input}' },
    id: '/result',
  },
  state: {
    path: '/v1/{template}/{id}',
    word: '/status',
    completed: ['SUCCEEDED'],
    failed: ['FAILED'],
    aborted: ['CANCELED'],
    running: ['PENDING', 'IN_PROGRESS'],
    error: '/task_error/message',
    progress: '/progress',
    createdAt: '/created_at',
  },
  outputs: { addresses: ['/model_urls', '/texture_urls', '/thumbnail_url'], isWhole: true, keptHours: 72 },
  delete: { method: 'DELETE', path: '/v1/{template}/{id}' },
  errors: { ...STATUSES, words: '/message' },
};

/**
 * Runpod (https://docs.runpod.io): serverless, queue-based endpoints: operations, job states. The template is the id of
 * the endpoint. What a worker takes and gives is its own: here the file is the input `image`, and the output has
 * addresses or data URIs. Results are kept for half an hour. The documentation names no status for spent credit. Base
 * address: https://api.runpod.ai/v2
 */
export const RUNPOD: ServiceDescription = {
  token: { header: 'Authorization', scheme: 'Bearer' },
  create: {
    path: '/{template}/run',
    body: { input: { '...': '{parameters}', image: '{input}' } },
    id: '/id',
  },
  state: {
    path: '/{template}/status/{id}',
    word: '/status',
    completed: ['COMPLETED'],
    failed: ['FAILED', 'TIMED_OUT'],
    aborted: ['CANCELLED'],
    running: ['IN_QUEUE', 'IN_PROGRESS', 'RUNNING'],
    error: '/error',
  },
  outputs: { addresses: ['/output'], isWhole: true, keptHours: 0.5 },
  abort: { method: 'POST', path: '/{template}/cancel/{id}' },
  errors: { ...STATUSES, words: ['/error', '/message', '/detail', '/title'] },
};

/**
 * Tripo (https://platform.tripo3d.ai/docs, https://docs.tripo3d.ai): task, errors. The template is the type of the task:
 * `text_to_model`. The input is its prompt: a picture would have to be uploaded before its task. There is no way to abort
 * a task. Base address: https://api.tripo3d.ai/v2/openapi
 */
export const TRIPO: ServiceDescription = {
  token: { header: 'Authorization', scheme: 'Bearer' },
  create: {
    path: '/task',
    body: { '...': '{parameters}', type: '{template}', prompt: '{input}' },
    id: '/data/task_id',
  },
  state: {
    path: '/task/{id}',
    word: '/data/status',
    completed: ['success'],
    failed: ['failed', 'banned', 'expired'],
    aborted: ['cancelled'],
    running: ['queued', 'running'],
    error: '/data/error_code',
    progress: '/data/progress',
    createdAt: '/data/create_time',
  },
  outputs: { addresses: ['/data/output'], isWhole: true },
  errors: {
    ...STATUSES,
    words: ['/message', '/suggestion'],
    outOfCredit: [402, { status: 403, says: '2010' }, { status: 403, says: 'credit' }],
  },
};

/**
 * OGC API - Processes, Part 1: Core (https://docs.ogc.org/is/18-062r2/18-062r2.html), with the optional dismissal of jobs,
 * which cancels a running job, and removes what a finished one has made.
 * The template is the id of the process. The file is the input `image`, by a data URI as its `href`; results are those
 * with an `href`. The standard knows no tokens and no credit. Base address: that of the server.
 */
export const OGC_PROCESSES: ServiceDescription = {
  token: { header: 'Authorization', scheme: 'Bearer' },
  headers: { Prefer: 'respond-async' },
  create: {
    path: '/processes/{template}/execution',
    body: { inputs: { '...': '{parameters}', image: { href: '{input}' } } },
    id: '/jobID',
  },
  state: {
    path: '/jobs/{id}',
    word: '/status',
    completed: ['successful'],
    failed: ['failed'],
    aborted: ['dismissed'],
    running: ['accepted', 'running'],
    error: '/message',
    progress: '/progress',
    createdAt: '/created',
  },
  outputs: { path: '/jobs/{id}/results', addresses: [''], isWhole: true },
  abort: { method: 'DELETE', path: '/jobs/{id}' },
  delete: { method: 'DELETE', path: '/jobs/{id}' },
  errors: {
    ...STATUSES,
    words: ['/detail', '/title'],
    mediaType: ['application/problem+json', 'application/json'],
  },
};
