import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { beforeEach, describe, expect, it, onTestFinished, vi } from 'vitest';
import { systemClock } from '../../functions/base/clock.ts';
import type { TransportResponse } from '../../functions/flow-service/transport.ts';
import { XRay } from '../../functions/lambda/xray.ts';
import { PATIENCE } from '../support/patience.ts';
import { INBOX, LEDGER, openWorld, RESULTS, type World } from '../support/world.ts';

const ROOT = '1-6955b900-c0e7f0fdeaf01945de8599ab';
const PARENT = '53995c3f42cd8ad8';
const TRACED = `Root=${ROOT};Parent=${PARENT};Sampled=1;Lineage=1:a87bd80c:0`;

interface Subsegment {
  readonly id: string;
  readonly name: string;
  readonly start_time: number;
  readonly end_time: number;
  readonly aws?: { readonly operation: string; readonly bucket_name?: string; readonly key: string };
  readonly http: { readonly request?: { readonly url: string }; readonly response?: { readonly status: number } };
  readonly annotations?: { readonly uploadId: string };
}

/** What the daemon got. Each datagram is a head and a document. */
const received: Subsegment[] = [];
const env: Record<string, string> = {};
let xray: XRay;

beforeEach(async () => {
  received.length = 0;
  const daemon = createSocket('udp4').bind(0, '127.0.0.1');
  daemon.on('message', (message) => {
    const [head = '', document = ''] = message.toString().split('\n');
    expect(JSON.parse(head)).toEqual({ format: 'json', version: 1 });
    received.push(JSON.parse(document));
  });
  await once(daemon, 'listening');
  onTestFinished(() => void daemon.close());
  env.AWS_XRAY_DAEMON_ADDRESS = `127.0.0.1:${daemon.address().port}`;
  env._X_AMZN_TRACE_ID = TRACED;
  xray = new XRay(env, systemClock);
});

/** A world whose calls are traced, and the number of its calls. */
async function tracedWorld(): Promise<{ readonly world: World; readonly count: () => number }> {
  let calls = 0;
  const world = await openWorld({
    transport: (direct) =>
      xray.transport((request, signal) => {
        calls += 1;
        return direct(request, signal);
      }),
  });
  await world.upload('a.png');
  xray.s3(world.s3, LEDGER);
  world.beforeS3(() => {
    calls += 1;
  });
  return { world, count: () => calls };
}

const arrived = (count: number) => vi.waitFor(() => expect(received).toHaveLength(count), PATIENCE);

describe('while Lambda traces an invocation', () => {
  it('each call to S3 and to the service is a subsegment of it, with the upload that it names', async () => {
    const { world, count } = await tracedWorld();
    await world.settle();
    await world.entry();
    expect(count()).toBeGreaterThan(15);
    await arrived(count());
    for (const subsegment of received) {
      expect(subsegment).toMatchObject({ type: 'subsegment', trace_id: ROOT, parent_id: PARENT });
      expect(subsegment.id).toMatch(/^[0-9a-f]{16}$/);
      expect(subsegment.end_time).toBeGreaterThanOrEqual(subsegment.start_time);
      expect(Math.abs(subsegment.end_time - Date.now() / 1000)).toBeLessThan(60);
    }
    expect(new Set(received.map(({ id }) => id)).size).toBe(received.length);
    const { id } = (await world.entry()).upload;
    const annotated = (wanted: (each: Subsegment) => boolean) =>
      new Set(received.filter(wanted).map(({ annotations }) => annotations?.uploadId));
    const ofUpload = ({ aws }: Subsegment) => aws?.bucket_name === LEDGER && aws.key.includes(id);
    expect(annotated(ofUpload)).toEqual(new Set([id]));
    const isWritten = ({ aws }: Subsegment) => aws?.bucket_name === RESULTS && aws.operation === 'PutObject';
    expect(annotated(isWritten)).toEqual(new Set([id]));
    expect(annotated(({ http }) => /\/flows\/./.test(http.request?.url ?? ''))).toEqual(new Set([id]));
    expect(received).toContainEqual(
      expect.objectContaining({
        name: '127.0.0.1',
        namespace: 'remote',
        http: { request: { method: 'POST', url: expect.stringMatching(/\/flows$/) }, response: { status: 201 } },
        annotations: { uploadId: id },
        error: false,
      }),
    );
    expect(received).toContainEqual(
      expect.objectContaining({
        name: 'S3',
        namespace: 'aws',
        aws: { operation: 'GetObject', bucket_name: INBOX, key: 'a.png' },
        http: { response: { status: 200 } },
      }),
    );
  });

  it('a call that fails says how, and its error is the same', async () => {
    const answers: (() => Promise<TransportResponse>)[] = [
      async () => ({ status: 429 }) as TransportResponse,
      async () => ({ status: 503 }) as TransportResponse,
      () => Promise.reject(new Error('no connection')),
    ];
    const transport = xray.transport(() => (answers.shift() as () => Promise<TransportResponse>)());
    const request = { method: 'GET', url: new URL('https://flows.example/flows/f?key=secret'), headers: {} } as const;
    const signal = new AbortController().signal;
    await transport(request, signal);
    await transport(request, signal);
    await expect(transport({ ...request, reach: 'public' }, signal)).rejects.toThrow('no connection');
    await arrived(3);
    const http = (url: string, status?: number) => ({
      request: { method: 'GET', url },
      ...(status && { response: { status } }),
    });
    expect(received).toEqual([
      expect.objectContaining({ http: http('https://flows.example/flows/f', 429), error: true, throttle: true }),
      expect.objectContaining({ http: http('https://flows.example/flows/f', 503), fault: true }),
      // The path of a foreign address may be a signature.
      expect.objectContaining({ http: http('https://flows.example'), fault: true }),
    ]);
  });

  it('a key that S3 does not have is an error of its call', async () => {
    const { world } = await tracedWorld();
    await expect(world.object(RESULTS, 'absent')).rejects.toMatchObject({ name: 'NoSuchKey' });
    await arrived(1);
    expect(received[0]).toMatchObject({ aws: { key: 'absent' }, http: { response: { status: 404 } }, error: true });
  });

  it('an id in the key of a file of the inbox is not taken for its upload', async () => {
    const { world } = await tracedWorld();
    await world.upload(`${'a'.repeat(40)}.png`);
    await arrived(1);
    expect(received[0]).not.toHaveProperty('annotations');
  });
});

it.each([
  ['it does not sample the invocation', { _X_AMZN_TRACE_ID: TRACED.replace('Sampled=1', 'Sampled=0') }],
  ['it gives no trace', { _X_AMZN_TRACE_ID: '' }],
  ['it gives only a parent', { _X_AMZN_TRACE_ID: `Parent=${PARENT}` }],
])('nothing is sent if %s', async (_, more) => {
  const { world } = await tracedWorld();
  Object.assign(env, more);
  await world.settle();
  env._X_AMZN_TRACE_ID = TRACED;
  await world.upload('last');
  await arrived(1);
  expect(received[0]?.aws?.key).toBe('last');
});

it('without a daemon, calls go on as they are', async () => {
  env.AWS_XRAY_DAEMON_ADDRESS = '';
  const { world } = await tracedWorld();
  expect((await world.settled('a.png')).status).toBe('succeeded');
});
