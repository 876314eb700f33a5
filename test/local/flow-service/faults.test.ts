import { once } from 'node:events';
import { request as httpRequest, type IncomingMessage } from 'node:http';
import { connect } from 'node:net';
import { describe, expect, it } from 'vitest';
import type { Operation } from '../../../local/flow-service/call.ts';
import type { Fault } from '../../../local/flow-service/fault.ts';
import { echo, standIn, TOKEN } from './support.ts';

async function faulty(operation: Operation, fault: Fault) {
  const stand = await standIn();
  stand.service.intercept = (_, call) => (call.operation === operation ? fault : undefined);
  return stand;
}

/** A stand-in with a finished flow. The download of its asset has the fault. */
async function faultyAsset(fault: Fault, bytes = 500_000) {
  const stand = await faulty('getAsset', fault);
  const id = await stand.create(echo('x', { bytes }));
  const assetId = stand.service.flows[0]?.outputs[0]?.assetId ?? '';
  return { ...stand, get: () => stand.download(id), content: stand.service.asset(id, assetId).content };
}

/** The bytes that arrive until the answer ends or breaks. */
async function received(response: Response): Promise<{ bytes: number; broke: boolean }> {
  let bytes = 0;
  try {
    for await (const chunk of response.body ?? []) bytes += chunk.length;
    return { bytes, broke: false };
  } catch {
    return { bytes, broke: true };
  }
}

/** Reads so many bytes of an answer. What follows is left. */
async function readUpTo({ body }: Response, wanted: number): Promise<ReadableStreamDefaultReader<Uint8Array>> {
  const reader = (body as ReadableStream<Uint8Array>).getReader();
  for (let bytes = 0; bytes < wanted; ) bytes += (await reader.read()).value?.length ?? 0;
  return reader;
}

describe('a call with a fault', () => {
  it('the interceptor gets the operation and its number', async () => {
    const { service, call, create } = await standIn();
    const seen: unknown[] = [];
    service.intercept = ({ method, url, headers }, { operation, n }) => {
      seen.push([method, url, headers.authorization, operation, n]);
      return undefined;
    };
    const id = await create();
    await call('GET', `/${id}/outputs?a=b`);
    await call('GET', `/flows/${id}/outputs`);
    expect(seen).toEqual([
      ['POST', '/flows', `Bearer ${TOKEN}`, 'createFlow', 1],
      ['GET', `/${id}/outputs?a=b`, `Bearer ${TOKEN}`, 'listOutputs', 1],
      ['GET', `/flows/${id}/outputs`, `Bearer ${TOKEN}`, 'listOutputs', 2],
    ]);
  });

  const BUSY = { status: 503, headers: { 'retry-after': '7' }, body: 'busy' } as const;
  it.each<[Fault, outcome: string, flows: number]>([
    [{ ...BUSY, at: 'before-body' }, '503 7 busy', 0],
    [{ ...BUSY, at: 'after-body' }, '503 7 busy', 0],
    [{ ...BUSY, at: 'after-effect' }, '503 7 busy', 1],
    [{ reset: 'before-body' }, 'fetch failed', 0],
    [{ reset: 'mid-body' }, 'fetch failed', 0],
    [{ reset: 'after-effect' }, 'fetch failed', 1],
    [{ hang: true }, 'Enough.', 0],
    [{ hang: 'mid-body' }, 'Enough.', 0],
    [{ hang: 'after-effect' }, 'Enough.', 1],
  ])('of %o ends so: %s', async (fault, outcome, flows) => {
    const { request, service } = await faulty('createFlow', fault);
    const ours = new AbortController();
    const body = JSON.stringify(echo('x'.repeat(100_000)));
    const ended = request('POST', '/flows', { body, signal: ours.signal }).then(
      async (answer) => `${answer.status} ${answer.headers.get('retry-after')} ${await answer.text()}`,
      (error: Error) => error.message,
    );
    if (fault.hang) {
      await expect.poll(() => service.counts.createFlow).toBe(1);
      if (flows === 1) await expect.poll(() => service.flows.length).toBe(1);
      ours.abort(new Error('Enough.'));
    }
    expect(await ended).toBe(outcome);
    expect(service.flows).toHaveLength(flows);
  });

  it('can get an endless answer', async () => {
    let hasEnded = false;
    async function* endless() {
      try {
        for (;;) yield Buffer.alloc(64 * 1024, '[');
      } finally {
        hasEnded = true;
      }
    }
    const { request } = await faulty('listOutputs', { status: 200, body: endless() });
    const reader = await readUpTo(await request('GET', '/flows/x/outputs'), 5_000_000);
    expect(hasEnded).toBe(false);
    await reader.cancel();
    await expect.poll(() => hasEnded).toBe(true);
  });

  it('can get a late answer', async () => {
    const slept: number[] = [];
    const { service, call } = await standIn({ clock: { now: () => 0, sleep: async (ms) => void slept.push(ms) } });
    service.intercept = () => ({ delayMs: 250 });
    expect((await call('GET', '/flows')).status).toBe(200);
    expect(slept).toEqual([250]);
  });

  it('that hangs ends when the service is closed', async () => {
    const { call, service } = await faulty('getFlow', { hang: true });
    const outcome = expect(call('GET', '/flows/x')).rejects.toThrow('fetch failed');
    await expect.poll(() => service.counts.getFlow).toBe(1);
    service.close();
    await outcome;
  });
});

describe('an answer', () => {
  it.each<[Fault, 'content-length' | 'chunked', length: string | null, bytes: number, broke: boolean]>([
    [{ truncate: 100_001 }, 'content-length', '500000', 100_001, true],
    [{ truncate: 100_001 }, 'chunked', null, 100_001, true],
    [{ truncate: 0 }, 'content-length', '500000', 0, true],
    [{ truncateCleanly: 0 }, 'content-length', '0', 0, false],
    [{ truncateCleanly: 100_001 }, 'content-length', '100001', 100_001, false],
    [{ truncateCleanly: 100_001 }, 'chunked', null, 100_001, false],
  ])('of %o by %s comes so', async (fault, assetLength, length, bytes, broke) => {
    const { get, service } = await faultyAsset(fault);
    service.variation.assetLength = assetLength;
    const answer = await get();
    expect([answer.status, answer.headers.get('content-length')]).toEqual([200, length]);
    expect(await received(answer)).toEqual({ bytes, broke });
  });

  it.each(['content-length', 'chunked'] as const)('can lose its connection in the middle, %s', async (assetLength) => {
    const { get, service } = await faultyAsset({ reset: 'mid-body' });
    service.variation.assetLength = assetLength;
    const { broke, bytes } = await received(await get());
    expect(broke).toBe(true);
    expect(bytes).toBeLessThanOrEqual(250_000);
  });

  it('can hang in the middle', async () => {
    const { get } = await faultyAsset({ hang: 'mid-body' });
    const reader = await readUpTo(await get(), 250_000);
    const next = reader.read().then(() => 'more');
    expect(await Promise.race([next, new Promise((resolve) => setImmediate(resolve, 'nothing'))])).toBe('nothing');
    await reader.cancel();
  });

  it('can have a garbled byte in its middle', async () => {
    const { get, content } = await faultyAsset({ garble: true });
    const got = Buffer.from(await (await get()).arrayBuffer());
    const right = Buffer.concat(await Array.fromAsync(content.open()));
    expect(got.length).toBe(right.length);
    // Not by a method of arrays: half a million bytes would take a second.
    expect([got.subarray(0, 250_000), got.subarray(250_001)].map((part) => right.indexOf(part))).toEqual([0, 250_001]);
    expect(got[250_000]).toBe(1);
  });
});

describe('over HTTP', () => {
  it('a body shorter than its Content-Length creates no flow', async () => {
    const { url, service } = await standIn();
    const body = JSON.stringify(echo('x'));
    const socket = connect(Number(new URL(url).port), '127.0.0.1');
    socket.write(
      `POST /flows HTTP/1.1\r\nHost: ${new URL(url).host}\r\nAuthorization: Bearer ${TOKEN}\r\nContent-Type: application/json\r\n` +
        `Content-Length: ${body.length + 1}\r\n\r\n${body}`,
    );
    await expect.poll(() => service.counts.createFlow).toBe(1);
    socket.end();
    await once(socket.resume(), 'close');
    expect(service.flows).toEqual([]);
  });

  it('a client that waits for 100 Continue learns of a wrong token before it sends the body', async () => {
    const { url } = await standIn();
    const post = (token: string) => {
      const about = { authorization: `Bearer ${token}`, 'content-type': 'application/json', 'content-length': 2 };
      const headers = { ...about, expect: '100-continue' };
      const request = httpRequest(`${url}/flows`, { method: 'POST', headers });
      request.flushHeaders();
      return request;
    };
    const refused = post('other');
    const [answer] = (await once(refused, 'response')) as [IncomingMessage];
    expect(answer.statusCode).toBe(401);
    refused.destroy();

    const accepted = post(TOKEN);
    await once(accepted, 'continue');
    accepted.end('{}');
    const [other] = (await once(accepted, 'response')) as [IncomingMessage];
    expect(other.statusCode).toBe(422);
    other.resume();
  });

  it('a client that is still sending gets an early refusal', async () => {
    const { url } = await standIn();
    const answer = await fetch(`${url}/flows`, { method: 'POST', body: Buffer.alloc(20_000_000, ' ') });
    expect(answer.status).toBe(401);
  });
});
