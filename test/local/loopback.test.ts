import { connect, type Socket } from 'node:net';
import { text } from 'node:stream/consumers';
import { afterAll, beforeAll, beforeEach, describe, expect, it, onTestFinished, vi } from 'vitest';
import { closeAfter, type Listening, listenOnLoopback } from '../../local/loopback.ts';
import { PATIENCE } from '../support/patience.ts';
import { send } from '../support/raw-request.ts';

/** Longer than the rest of a refused request is read, in milliseconds. */
const DROPPED_MS = 2_001;

let server: Listening;
let host: string;
let port: number;
let answered: number;
beforeAll(async () => {
  const refusing = (_: unknown, response: Parameters<typeof closeAfter>[0]) => {
    answered += 1;
    closeAfter(response);
    response.writeHead(200).end('answered');
  };
  server = await listenOnLoopback(refusing, { proves: [] });
  host = new URL(server.url).host;
  port = Number(new URL(server.url).port);
});
beforeEach(() => {
  answered = 0;
});
afterAll(() => server.close());

describe('a server of the local run answers', () => {
  it.each<[string, Record<string, string>]>([
    ['a program', {}],
    ['a user who typed an address', { 'sec-fetch-site': 'none' }],
    ['what it has answered itself', { 'sec-fetch-site': 'same-origin' }],
  ])('%s', async (_, headers) => {
    expect((await send(server.url, 'GET', '/', { headers })).body).toBe('answered');
  });

  it('nobody who uses another address of this machine', async () => {
    const socket = connect(port, '127.0.0.2');
    expect(await new Promise((resolve) => socket.once('error', ({ message }) => resolve(message)))).toMatch('REFUSED');
  });
});

describe('a server of the local run refuses a web page', () => {
  it.each<[string, Record<string, string>, string]>([
    ['through DNS rebinding', { host: 'evil.example' }, 'Only requests to 127.0.0.1'],
    ['through a name without a port', { host: 'localhost' }, 'Only requests to 127.0.0.1'],
    ['through another port', { host: '127.0.0.1:1' }, 'Only requests to 127.0.0.1'],
    ['with a script', { origin: 'http://evil.example', 'sec-fetch-site': 'cross-site' }, 'Origin'],
    ['with a script that hides where it is from', { origin: 'null' }, 'Origin'],
    ['with an image', { 'sec-fetch-site': 'cross-site', 'sec-fetch-mode': 'no-cors' }, 'Sec-Fetch-Site'],
    ['that waits with its body', { origin: 'http://evil.example', expect: '100-continue' }, 'Origin'],
    ['from another site of this machine', { 'sec-fetch-site': 'same-site' }, 'Sec-Fetch-Site'],
  ])('%s', async (_, headers, message) => {
    expect(await send(server.url, 'POST', '/', { headers, body: 'x' })).toMatchObject({
      status: 403,
      body: expect.stringContaining(message),
    });
    expect(answered).toBe(0);
  });

  it.each([
    ['a second host', 'GET / HTTP/1.1\r\nHost: HERE\r\nHost: evil.example'],
    ['a target with a host of its own', 'GET http://evil.example/ HTTP/1.1\r\nHost: HERE'],
  ])('with %s', async (_, head) => {
    const socket = connect(port, '127.0.0.1');
    socket.write(`${head.replace('HERE', host)}\r\nConnection: close\r\n\r\n`);
    expect(await text(socket)).toMatch(/^HTTP\/1\.1 403 [\s\S]*Only requests to 127\.0\.0\.1/);
  });
});

describe('the connection of a refused visitor', () => {
  function visit(head: string, body = ''): Socket {
    const socket = connect({ port, host: '127.0.0.1', allowHalfOpen: true });
    onTestFinished(() => void socket.destroy());
    socket.on('error', () => {}); // A reset is an end too.
    socket.write(`${head}\r\n\r\n${body}`);
    return socket;
  }

  it('is closed after a whole request', async () => {
    const socket = visit(`POST / HTTP/1.1\r\nhost: ${host}\r\ncontent-length: 2`, '{}');
    expect(await text(socket)).toMatch(/^HTTP\/1.1 200 /);
  });

  it.each([
    ['the rest of its body does not come', false],
    ['it keeps sending', true],
  ])('is closed after a while, although %s', async (_, isSending) => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
    onTestFinished(() => void vi.useRealTimers());
    const socket = visit(`POST / HTTP/1.1\r\nhost: ${host}\r\ncontent-length: ${2 ** 40}`, 'the first bytes');
    const sending = isSending && setInterval(() => socket.write(Buffer.alloc(65_536)), 10);
    onTestFinished(() => void (sending && clearInterval(sending)));
    const [answer] = await new Promise<[Buffer]>((resolve) => socket.once('data', (...data) => resolve(data)));
    expect(answer.toString()).toMatch(/^HTTP\/1.1 200 /);
    const closed = new Promise((resolve) => socket.once('end', resolve).once('close', resolve).resume());
    vi.advanceTimersByTime(DROPPED_MS);
    await closed;
  });

  it('is closed after it asked for another protocol, although it leaves its end open', async () => {
    const socket = visit(`GET / HTTP/1.1\r\nHost: ${host}\r\nConnection: upgrade\r\nUpgrade: flowdrop-proof`);
    const failed = vi.fn();
    socket.once('error', failed);
    expect(await text(socket)).toMatch(/^HTTP\/1.1 400 /);
    // Only a write shows whether the server has closed its end, too.
    await vi.waitFor(() => {
      socket.write('x');
      expect(failed).toHaveBeenCalled();
    }, PATIENCE);
  });
});
