import { FAL, MESHY, OGC_PROCESSES, REPLICATE, RUNPOD, STATUSES, TRIPO } from './job-services.ts';
import type { ServiceDescription } from './service-description.ts';

/**
 * The flow service: `POST /flows`, its outputs, its assets. The specification says the paths, the token and the four
 * members of the body. All else is what a public service with this interface documents (the Generio Flows API: its
 * documentation and its quickstart). Where a member has two pointers, its name is spelled in two ways there.
 */
export const FLOWS: ServiceDescription = {
  token: { header: 'Authorization', scheme: 'Bearer' },
  create: {
    path: '/flows',
    body: { template: '{template}', parameters: '{parameters}', additional: '{additional}', inputs: '{inputs}' },
    id: ['/flow_id', '/id'],
    answerSeconds: 60,
    idempotency: { header: 'Idempotency-Key', hours: 0 },
  },
  state: {
    path: '/flows/{id}',
    word: '/state',
    completed: ['completed'],
    failed: ['failed'],
    aborted: ['aborted'],
    running: ['created', 'starting', 'running', 'aborting'],
    error: '/error',
    progress: '/progress',
    additional: '/additional',
    createdAt: '/created_at',
  },
  outputs: {
    path: ['/flows/{id}/outputs', '/{id}/outputs'],
    items: ['/outputs', ''],
    id: ['/asset_id', '/id'],
    word: '/status',
    ready: ['ready', 'completed', null],
    failed: ['failed'],
    pending: ['pending', 'processing'],
    error: '/error',
    asset: '/flows/{id}/outputs/{asset}',
    data: '/data',
    isWhole: true,
  },
  list: {
    path: '/flows',
    items: ['/flows', ''],
    id: ['/flow_id', '/id'],
    order: 'any-order',
    pages: { by: 'number', parameter: 'page', first: 1, total: '/total' },
  },
  templates: { path: '/templates', items: ['/templates', ''] },
  abort: { method: 'PATCH', path: '/flows/{id}', body: { action: 'abort' } },
  delete: { method: 'DELETE', path: '/flows/{id}' },
  errors: { ...STATUSES, words: '/detail' },
};

/** The descriptions that ship with Flowdrop, by their names in the configuration. */
export const SERVICES: Readonly<Record<string, ServiceDescription>> = {
  flows: FLOWS,
  replicate: REPLICATE,
  fal: FAL,
  meshy: MESHY,
  runpod: RUNPOD,
  tripo: TRIPO,
  'ogc-processes': OGC_PROCESSES,
};
