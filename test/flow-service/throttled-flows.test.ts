import { beforeEach, describe, expect, it } from 'vitest';
import { ThrottledError } from '../../functions/flow-service/errors.ts';
import type { TransportResponse } from '../../functions/flow-service/transport.ts';
import type { FlowService } from '../../functions/flow-service/types.ts';
import { VirtualTime } from '../support/virtual-time.ts';
import { collect, streamed } from './chunks.ts';
import { clientOf, never, requestOf, sourceOf, TAG } from './scripted.ts';

const SECOND = 1_000;

let time: VirtualTime;
beforeEach(() => {
  time = new VirtualTime();
});

/** The path of a request (of a creation: its template) that is throttled, and how often. All others are answered. */
type Throttled = Readonly<Record<string, number>>;

const templateOf = async (body: AsyncIterable<Uint8Array>): Promise<string> =>
  JSON.parse(String(await collect(body))).template;

/** Creates a flow of an upload that has the name of its template. */
const create = (flows: FlowService, template: string, startBy?: number) =>
  flows.create({ ...requestOf(sourceOf('hi')), template, tag: { ...TAG, upload: template }, startBy }, never);

/**
 * A service that throttles single requests. It redirects the assets of flows whose id begins with `moved`.
 * @param sent gets the path or the template of each request.
 */
function serviceWith(throttled: Throttled, sent: string[] = []): FlowService {
  const left = new Map(Object.entries(throttled));
  const answerOf = (path: string): Pick<TransportResponse, 'status' | 'headers'> & { body?: string } => {
    const count = left.get(path) ?? 0;
    left.set(path, count - 1);
    if (count > 0) return { status: 429, headers: {} };
    const [, asset] = /^\/flows\/(moved.*)$/.exec(path) ?? [];
    if (asset !== undefined) return { status: 302, headers: { location: `/files/${asset}` } };
    const body = path.endsWith('/outputs') ? '{"outputs":[]}' : '{"id":"x","state":"running"}';
    return { status: 200, headers: { 'content-type': 'application/json' }, body };
  };
  return clientOf(new URL('https://flows.test'), {
    clock: time,
    outputsPath: 'flows',
    transport: async (request) => {
      const name = request.body === undefined ? request.url.pathname : await templateOf(request.body.chunks);
      sent.push(name);
      await time.sleep(10);
      const { status, headers, body = '' } = answerOf(name);
      return {
        status,
        headers: { 'content-length': String(body.length), ...headers },
        body: streamed([Buffer.from(body)]),
        destroy() {},
      };
    },
  });
}

/** Sends requests of one kind while the service answers for another flow every second. */
function among<T>(flows: FlowService, body: () => Promise<T>): Promise<T> {
  return time.during(async () => {
    let isDone = false;
    const others = async (): Promise<void> => {
      while (!isDone) {
        await Promise.all([flows.get('another', never), create(flows, 'another'), time.sleep(SECOND)]);
      }
    };
    const done = () => {
      isDone = true;
    };
    const [outcome] = await Promise.all([body().finally(done), others()]);
    return outcome;
  });
}

const asset = (flows: FlowService, flowId: string, assetId: string) => async () =>
  collect((await flows.asset(flowId, assetId, never)).chunks);

describe('a redirected asset that is throttled for ever', () => {
  const throttled = { '/files/moved-1/outputs/a': 1_000 };

  it('does not make the assets of other flows suspects', async () => {
    const flows = serviceWith({ ...throttled, '/files/moved-2/outputs/a': 1 });
    await expect(among(flows, asset(flows, 'moved-1', 'a'))).rejects.toThrow(ThrottledError);
    await expect(among(flows, asset(flows, 'moved-2', 'a'))).resolves.toBeDefined();
  });

  it('makes the other assets of its flow suspects', async () => {
    const flows = serviceWith({ ...throttled, '/files/moved-1/outputs/b': 1 });
    await expect(among(flows, asset(flows, 'moved-1', 'a'))).rejects.toThrow(ThrottledError);
    await expect(among(flows, asset(flows, 'moved-1', 'b'))).rejects.toThrow(ThrottledError);
  });

  it('stays a suspect although its redirect is answered at each attempt', async () => {
    const sent: string[] = [];
    const flows = serviceWith(throttled, sent);
    await expect(among(flows, asset(flows, 'moved-1', 'a'))).rejects.toThrow(ThrottledError);
    expect(flows.learntPace).toBeUndefined();
    sent.length = 0;
    await time.during(() => time.sleep(60 * SECOND));
    await expect(among(flows, asset(flows, 'moved-1', 'a'))).rejects.toThrow(ThrottledError);
    expect(sent.filter((path) => !path.endsWith('another'))).toEqual([
      '/flows/moved-1/outputs/a',
      '/files/moved-1/outputs/a',
    ]);
    expect(flows.learntPace).toBeUndefined();
  });
});

describe('a flow that is throttled for ever, and whose id holds a slash', () => {
  const operations: readonly (readonly [string, string, (flows: FlowService, flowId: string) => Promise<unknown>])[] = [
    ['poll', '', (flows, flowId) => flows.get(flowId, never)],
    ['listing of outputs', '/outputs', (flows, flowId) => flows.outputs(flowId, never)],
  ];
  it.each(operations)('does not make other flows suspects: %s', async (_, suffix, ask) => {
    const flows = serviceWith({ [`/flows/f%2F1${suffix}`]: 1_000, [`/flows/f%2F2${suffix}`]: 1 });
    await expect(among(flows, () => ask(flows, 'f/1'))).rejects.toThrow(ThrottledError);
    await expect(among(flows, () => ask(flows, 'f/2'))).resolves.toBeDefined();
  });
});

describe('a creation that is throttled again and again while others are answered', () => {
  it('gets as many tries again when its upload is resubmitted', async () => {
    const sent: string[] = [];
    const flows = serviceWith({ unlucky: 5 }, sent);
    const tryAll = () => among(flows, () => create(flows, 'unlucky', time.now() + 60 * SECOND));
    await expect(tryAll()).rejects.toThrow(ThrottledError);
    expect(sent.filter((name) => name === 'unlucky')).toHaveLength(3);
    await time.during(() => time.sleep(60 * SECOND));
    await expect(tryAll()).resolves.toBeDefined();
  });
});
