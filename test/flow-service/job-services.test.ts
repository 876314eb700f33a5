import { readFileSync } from 'node:fs';
import { beforeEach, describe, expect, it } from 'vitest';
import { SERVICES } from '../../functions/flow-service/services.ts';
import type { Transport } from '../../functions/flow-service/transport.ts';
import { parseContext } from '../../functions/settings/context.ts';
import type { Route } from '../../functions/uploads/route.ts';
import { StandInJobService } from '../../local/flow-service/job-service.ts';
import { SHAPES, type ShapeName } from '../../local/flow-service/shapes.ts';
import { inProcessTransport } from '../support/in-process-transport.ts';
import { DAY, HOUR, MINUTE, RESULTS, start, TOKEN, world } from '../support/world.ts';

const PICTURE = readFileSync(new URL('../../examples/robot.png', import.meta.url));

interface Case {
  readonly route: Pick<Route, 'template'> & Partial<Route>;
  readonly key?: string;
  readonly body?: Uint8Array | string;
  /** The ids of the assets of one job. */
  readonly assets: readonly string[];
  /** What a failed job says. */
  readonly says?: string;
  /** False if the service has no way to cancel a job. */
  readonly cancels?: boolean;
}

const FAILED = 'The job was asked to fail.';

const CASES: Readonly<Record<ShapeName, Case>> = {
  replicate: { route: { template: 'owner/model' }, assets: ['output-0'] },
  fal: { route: { template: 'fal-ai/hunyuan3d' }, assets: ['model_mesh-url'], says: `body.image_url: ${FAILED}` },
  meshy: { route: { template: 'image-to-3d' }, assets: ['model_urls-glb', 'thumbnail_url'], cancels: false },
  runpod: { route: { template: 'abc123' }, assets: ['output-model_url', 'output-preview'] },
  tripo: {
    route: { template: 'text_to_model', input: 'text' },
    key: 'a.txt',
    body: 'a small robot',
    assets: ['output-pbr_model', 'output-rendered_image'].map((id) => `data-${id}`),
    says: '1001',
    cancels: false,
  },
  'ogc-processes': { route: { template: 'model-from-image' }, assets: ['model-href', 'preview-href'] },
};

/** The stand-in, which keeps the time of the world. */
let service: StandInJobService;
/** True if the service knows no such model. */
let isUnknown: boolean;
/** The requests that went to the service itself. */
let requests: string[];

/** Both servers of the stand-in, without sockets. */
function serving(shape: ShapeName): Transport {
  service = new StandInJobService({ shape, token: TOKEN, jobMs: MINUTE, clock: { now: () => world.clock.now() } });
  service.resultsOrigin = 'https://files.test';
  const clock = {
    now: () => world.clock.now(),
    sleep: (ms: number, signal?: AbortSignal) => world.clock.sleep(ms, signal),
  };
  const toService = inProcessTransport(service, clock);
  const toResults = inProcessTransport({ handle: service.results }, clock);
  return (request, signal) => {
    if (request.url.host === 'files.test') return toResults(request, signal);
    requests.push(`${request.method} ${request.url.pathname}`);
    const url = isUnknown ? new URL('/unknown', request.url) : request.url;
    return toService({ ...request, url }, signal);
  };
}

beforeEach(() => {
  requests = [];
  isUnknown = false;
});

const NAMES = Object.keys(SHAPES) as ShapeName[];

it('each description that ships has a stand-in of its shape', () => {
  expect(['flows', ...NAMES]).toEqual(Object.keys(SERVICES));
});

describe.each(NAMES)('%s', (name) => {
  const { route, key = 'a.png', body = PICTURE, assets, says = FAILED, cancels = true } = CASES[name];

  const begin = () =>
    start({
      describes: SERVICES[name],
      routes: [{ name: 'all', input: 'file', ...route }],
      settings: { inDoubt: 'ask' },
      transport: () => serving(name),
    });

  it('makes the assets of a file', async () => {
    await begin();
    await world.send(key, body);
    const receipt = await world.settled(key);
    expect(receipt).toMatchObject({ status: 'succeeded', failedOutputs: [] });
    expect(receipt.assets.map(({ id }) => id)).toEqual(assets);
    expect(service.jobs).toHaveLength(1);
    expect(Buffer.from(body).equals(service.jobs[0]?.input.blob.memory ?? Buffer.alloc(0))).toBe(true);
    const [model] = receipt.assets;
    expect(model?.mediaType).toBe('model/gltf-binary');
    const made: Buffer[] = [];
    for await (const chunk of service.jobs[0]?.files.result.content.open() ?? []) made.push(Buffer.from(chunk));
    expect((await world.object(RESULTS, model?.key ?? '')).bytes.equals(Buffer.concat(made))).toBe(true);
  });

  it('pays once for a file whose answer is lost, and waits for the operator', async () => {
    await begin();
    service.answersToLose = 1;
    await world.send(key, body);
    await world.waitOutDoubt();
    expect(await world.entry()).toMatchObject({ state: 'waiting', reason: 'undecided' });
    expect(service.jobs).toHaveLength(1);
    await world.retry();
    expect(await world.settled(key)).toMatchObject({ status: 'succeeded' });
    expect(service.jobs).toHaveLength(2);
  });

  it('asks for the address of a result again if it has expired', async () => {
    await begin();
    service.addressesToExpire = assets.length;
    await world.send(key, body);
    expect(await world.settled(key)).toMatchObject({ status: 'succeeded', failedOutputs: [] });
    expect(service.addressesToExpire).toBe(0);
    expect(service.jobs).toHaveLength(1);
  });

  it('says how long results are kept, if that is known and they cannot be fetched any more', async () => {
    await begin();
    service.addressesToExpire = Number.POSITIVE_INFINITY;
    await world.send(key, body);
    await world.deliverAndTick(20, DAY);
    const { failure, failedOutputs } = await world.receipt(key);
    // The preview of one service is in the answer itself.
    const told = [...(failure ? [failure.advice] : []), ...failedOutputs.map(({ message }) => message)];
    expect(told.length).toBeGreaterThanOrEqual(name === 'runpod' ? 1 : 1 + assets.length);
    const isKnown = SERVICES[name]?.outputs.keptHours !== undefined;
    for (const each of told)
      expect(/ The service keeps results for (?:1 h|3 d|30 min)\.$/.test(each ?? '')).toBe(isKnown);
  });

  it('lets a file wait while the credit is spent, and goes on then', async () => {
    await begin();
    service.isOutOfCredit = true;
    await world.send(key, body);
    await world.deliverAndTick(3, HOUR);
    expect(await world.entry()).toMatchObject({ state: 'waiting', reason: 'throttled' });
    expect(service.jobs).toEqual([]);
    service.isOutOfCredit = false;
    expect(await world.settled(key)).toMatchObject({ status: 'succeeded' });
    expect(service.jobs).toHaveLength(1);
  });

  it('tells why a job failed', async () => {
    await begin();
    service.jobsToFail = 1;
    await world.send(key, body);
    expect(await world.settled(key)).toMatchObject({
      status: 'failed',
      failure: { code: 'flow-failed', message: `The flow failed: ${says}` },
    });
    expect(service.jobs).toHaveLength(1);
  });

  it('cancels a job, if the service has a way', async () => {
    await begin();
    await world.send(key, body);
    const upload = (await world.entry()).upload.id;
    expect(await world.collect({ cancel: [upload] })).toEqual([{ upload, result: 'cancelled', isAborted: cancels }]);
    expect(service.jobs[0]?.state(world.clock.now()) === 'cancelled').toBe(cancels);
    expect(await world.receipt(key)).toMatchObject({ failure: { code: 'cancelled' } });
  });

  it('deletes an ended job, if the service has a way', async () => {
    await begin();
    await world.send(key, body);
    await world.settled(key);
    const upload = (await world.entry()).upload.id;
    const deletes = SERVICES[name]?.delete !== undefined;
    const results = [await world.collect({ delete: [upload] }), await world.collect({ delete: [upload] })];
    expect(results).toMatchObject(
      deletes ? [[{ result: 'deleted' }], [{ result: 'gone' }]] : Array(2).fill([{ result: 'not deleted' }]),
    );
    expect(service.jobs).toMatchObject([{ isDeleted: deletes }]);
  });

  it('tells that a job was cancelled at the service', async () => {
    await begin();
    await world.send(key, body);
    service.jobs[0]?.cancel(world.clock.now());
    const { failure } = await world.settled(key);
    expect(failure?.message).toMatch(name === 'fal' ? /failed: Request was cancelled/ : /^The flow was aborted/);
  });

  it('names the template if the service says that there is nothing', async () => {
    await begin();
    isUnknown = true;
    await world.send(key, body);
    expect(await world.entry()).toMatchObject({
      state: 'waiting',
      message: expect.stringMatching(/^create: 404: .*\. Check the template, baseUrl \(/),
    });
    isUnknown = false;
    expect(await world.settled(key)).toMatchObject({ status: 'succeeded' });
  });

  it('waits for a token that is not refused', async () => {
    await begin();
    world.token = 'another';
    await world.send(key, body);
    expect(await world.entry()).toMatchObject({ state: 'waiting', reason: 'unauthorised' });
    world.token = TOKEN;
    expect(await world.settled(key)).toMatchObject({ status: 'succeeded' });
  });
});

it('fal: a path behind the model stands only in the path of a creation', async () => {
  const { service: describes, routes } = parseContext({
    baseUrl: 'https://queue.fal.run',
    routes: [{ name: 'all', template: 'fal-ai/trellis' }],
    service: { from: 'fal', create: { path: '/{template}/image-to-model' } },
  });
  await start({
    ...{ describes, routes },
    transport: () => serving('fal'),
  });
  await world.send('a.png', PICTURE);
  expect(await world.settled('a.png')).toMatchObject({ status: 'succeeded' });
  const id = service.jobs[0]?.id;
  expect(requests).toEqual(
    expect.arrayContaining(['POST /fal-ai/trellis/image-to-model', `GET /fal-ai/trellis/requests/${id}/status`]),
  );
});
