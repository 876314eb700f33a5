import { describe, expect, it } from 'vitest';
import { systemClock } from '../../functions/base/clock.ts';
import { httpTransport } from '../../functions/flow-service/http-transport.ts';
import { TRANSPORT_LIMITS, TransportError, type TransportRequest } from '../../functions/flow-service/transport.ts';
import { collect, streamed } from './chunks.ts';
import { bodyOf, never, StillClock, scripted, scriptedRaw, until } from './scripted.ts';

const transport = httpTransport({ clock: systemClock });

const get = (url: URL): TransportRequest => ({ method: 'GET', url, headers: {} });

const post = (url: URL, chunks: AsyncIterable<Uint8Array>, bytes: number): TransportRequest => ({
  method: 'POST',
  url,
  headers: {},
  body: { bytes, chunks },
});

const postAbc = (url: URL) => post(url, streamed([Buffer.from('abc')]), 3);

const text = async (body: AsyncIterable<Uint8Array>): Promise<string> => (await collect(body)).toString();

/** Two buffers that are filled in turn, like the encoder's. */
async function* alternating(blocks: number, size: number): AsyncGenerator<Uint8Array> {
  const buffers = [Buffer.alloc(size), Buffer.alloc(size)];
  for (let index = 0; index < blocks; index += 1) {
    const block = buffers[index % 2] ?? Buffer.alloc(0);
    block.fill(index);
    yield block;
  }
}

describe('a request', () => {
  it('sends a body at its exact length and returns status, headers and body of the response', async () => {
    await using server = await scripted(async (request, response) => {
      response.writeHead(201, { 'X-Told': request.headers['content-length'] });
      response.end(await bodyOf(request));
    });
    const response = await transport(
      post(server.url, streamed([Buffer.from('a'), Buffer.alloc(0), Buffer.from('bc')]), 3),
      never,
    );
    expect(response).toMatchObject({ status: 201, sent: 'all', address: '127.0.0.1', headers: { 'x-told': '3' } });
    expect(await text(response.body)).toBe('abc');
  });

  it('returns a buffer only when the connection is done with it', async () => {
    const size = 1024 * 1024;
    await using server = await scripted((request, response) => {
      // Pauses between reads, so that the client and its buffers have to wait.
      let at = 0;
      let isRight = true;
      request.on('data', (chunk: Buffer) => {
        for (let index = 0; index < chunk.byteLength; index += 4096) {
          isRight &&= chunk[index] === Math.floor((at + index) / size);
        }
        at += chunk.byteLength;
        request.pause();
        setImmediate(() => request.resume());
      });
      request.on('end', () => response.end(String(isRight)));
    });
    const response = await transport(post(server.url, alternating(24, size), 24 * size), never);
    expect(await text(response.body)).toBe('true');
  });

  it.each([
    ['shorter', [Buffer.from('ab')]],
    ['longer', [Buffer.from('abc'), Buffer.from('d')]],
    ['longer by all at once', [Buffer.from('abcd')]],
  ])('with a body %s than announced never completes', async (_, chunks) => {
    let isAborted = false;
    let received = '';
    await using server = await scripted((request) => {
      request.on('data', (chunk: Buffer) => {
        received += chunk;
      });
      request.on('error', () => {
        isAborted = true;
      });
    });
    const unhurried = async function* () {
      for (const chunk of chunks) {
        yield chunk;
        await systemClock.sleep(20); // Lets the written bytes go out.
      }
    };
    const sending = transport(post(server.url, unhurried(), 3), never);
    await expect(sending).rejects.toThrow(TransportError);
    const error = await sending.catch((reason: TransportError) => reason);
    expect(error).toMatchObject({ timedOut: false });
    expect((error as TransportError).sent).not.toBe('all');
    await until(() => server.open.size === 0);
    expect(received.length).toBeLessThan(3);
    expect(isAborted || server.requests.length === 0).toBe(true);
  });

  it('accepts a response that comes before the body was sent, and sends no more of it', async () => {
    await using server = await scripted((_, response) => {
      response.writeHead(413, { 'content-length': '9' });
      response.end('too large');
    });
    let isClosed = false;
    const endless = async function* () {
      try {
        for (;;) yield Buffer.alloc(65_536);
      } finally {
        isClosed = true;
      }
    };
    const response = await transport(post(server.url, endless(), 1e12), never);
    await until(() => isClosed);
    expect(response).toMatchObject({ status: 413, sent: 'part' });
    expect(await text(response.body)).toBe('too large');
    await until(() => server.open.size === 0);
  });

  it('without a listening server is certainly not sent', async () => {
    const closed = await scripted(() => {});
    await closed[Symbol.asyncDispose]();
    const sending = transport(postAbc(closed.url), never);
    await expect(sending).rejects.toMatchObject({ sent: 'nothing', message: expect.stringContaining('ECONNREFUSED') });
  });

  it('whose connection breaks is sent in part, or wholly once its last byte was sent', async () => {
    await using server = await scriptedRaw((socket, index) => {
      let received = '';
      socket.on('data', (data) => {
        received += data;
        if (index === 0 || received.endsWith('abc')) socket.resetAndDestroy();
      });
    });
    const { promise: isReset, resolve } = Promise.withResolvers<void>();
    const stopping = async function* () {
      yield Buffer.from('ab');
      await isReset;
      yield Buffer.from('c');
    };
    const partly = transport(post(server.url, stopping(), 3), never);
    await expect(partly).rejects.toMatchObject({ sent: 'part' });
    resolve();
    const slowly = async function* () {
      yield Buffer.from('ab');
      yield Buffer.from('c');
    };
    await expect(transport(post(server.url, slowly(), 3), never)).rejects.toMatchObject({ sent: 'all' });
  });
});

describe('connections', () => {
  it('are kept and shared by requests without a body', async () => {
    await using server = await scripted((_, response) => response.end('ok'));
    for (let times = 0; times < 3; times += 1) await text((await transport(get(server.url), never)).body);
    expect(server).toMatchObject({ connections: 1, requests: { length: 3 } });
  });

  it('are not shared by requests with a body, which a dead connection would leave in doubt', async () => {
    await using server = await scripted(async (request, response) => response.end(await bodyOf(request)));
    await text((await transport(get(server.url), never)).body);
    await text((await transport(postAbc(server.url), never)).body);
    await text((await transport(postAbc(server.url), never)).body);
    expect(server).toMatchObject({ connections: 3 });
  });

  it('that turn out to be dead are replaced once', async () => {
    const requests: number[] = [];
    await using server = await scriptedRaw((socket, index) => {
      requests.push(0);
      socket.on('data', () => {
        requests[index] = (requests[index] ?? 0) + 1;
        if (index === 0 && requests[0] === 2) socket.resetAndDestroy();
        else if (index === 2) socket.resetAndDestroy();
        else socket.write('HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok');
      });
    });
    expect(await text((await transport(get(server.url), never)).body)).toBe('ok');
    // The first connection dies under the second request; its replacement answers, and is not kept.
    expect(await text((await transport(get(server.url), never)).body)).toBe('ok');
    // A new connection that dies is not replaced.
    await expect(transport(get(server.url), never)).rejects.toMatchObject({ name: 'TransportError' });
    expect(requests).toEqual([2, 1, 1]);
  });

  it('are closed when a response is discarded, or left in the middle', async () => {
    await using server = await scripted((_, response) => {
      response.write('x'.repeat(1000));
    });
    (await transport(get(server.url), never)).destroy();
    for await (const _ of (await transport(get(server.url), never)).body) break;
    await until(() => server.open.size === 0);
  });
});

describe('a response', () => {
  it.each([
    ['at its announced length', 'HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabc'],
    ['in its chunks', 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n'],
  ])('that is cut %s fails', async (_, answer) => {
    await using server = await scriptedRaw((socket) => socket.once('data', () => socket.end(answer)));
    const { body } = await transport(get(server.url), never);
    await expect(text(body)).rejects.toMatchObject({ name: 'TransportError', timedOut: false });
  });

  it('that is cut before it is read fails, without an unhandled error', async () => {
    await using server = await scriptedRaw((socket) =>
      socket.once('data', () => socket.end('HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabc')),
    );
    const { body } = await transport(get(server.url), never);
    await until(() => server.open.size === 0);
    await systemClock.sleep(20);
    await expect(text(body)).rejects.toThrow(TransportError);
  });

  it('may have a head of 64 KiB, and no larger one', async () => {
    const answered = async (bytes: number) => {
      await using server = await scripted((_, response) => response.setHeader('policy', 'x'.repeat(bytes)).end());
      return await transport(get(server.url), never);
    };
    expect((await answered(60 * 1024)).status).toBe(200);
    const error = await answered(68 * 1024).catch((reason) => reason);
    expect(error).toBeInstanceOf(TransportError);
    expect(error.cause).toMatchObject({ code: 'HPE_HEADER_OVERFLOW' });
  });

  it('that is not HTTP fails without a quotation of the bytes', async () => {
    await using server = await scriptedRaw((socket) => socket.once('data', () => socket.end('secret nonsense\r\n')));
    const error = await transport(get(server.url), never).catch((reason) => reason);
    expect(error).toBeInstanceOf(TransportError);
    expect(error.cause).toMatchObject({ code: 'HPE_INVALID_CONSTANT' });
    expect(error.cause).not.toHaveProperty('rawPacket');
  });

  it('is not cut silently if the request is aborted while bytes wait to be read', async () => {
    let sendMore = (): unknown => undefined;
    await using server = await scripted((_, response) => {
      response.write('first');
      sendMore = () => response.end('second');
    });
    const controller = new AbortController();
    const { body } = await transport(get(server.url), controller.signal);
    const reading = body[Symbol.asyncIterator]();
    await reading.next();
    sendMore();
    await systemClock.sleep(20); // The rest has arrived by now, but was not read.
    const reason = new Error('enough');
    controller.abort(reason);
    await systemClock.sleep(5);
    const theRest = async () => {
      while ((await reading.next()).done !== true);
    };
    await expect(theRest()).rejects.toMatchObject({ name: 'TransportError', cause: reason });
  });
});

describe('an abort', () => {
  it('rejects at once, tells how much was sent, and closes the connection', async () => {
    await using server = await scripted(() => {});
    const reason = new Error('enough');
    const controller = new AbortController();
    const sending = transport(postAbc(server.url), controller.signal);
    await until(() => server.requests.length === 1);
    controller.abort(reason);
    await expect(sending).rejects.toMatchObject({ sent: 'all', cause: reason });
    await until(() => server.open.size === 0);
    await expect(transport(get(server.url), controller.signal)).rejects.toMatchObject({
      sent: 'nothing',
      cause: reason,
    });
    expect(server.connections).toBe(1);
  });
});

describe('a time limit', () => {
  const { connectMs, firstByteMs, idleMs } = TRANSPORT_LIMITS;

  it('ends the wait for a response', async () => {
    const clock = new StillClock();
    let received = '';
    await using server = await scripted((request) => {
      request.on('data', (data) => {
        received += data;
      });
    });
    const sending = httpTransport({ clock })(postAbc(server.url), never);
    const outcome = expect(sending).rejects.toMatchObject({ sent: 'all', timedOut: true });
    await until(() => received === 'abc');
    await systemClock.sleep(20);
    const isPending = Symbol();
    for (let passedMs = 0; passedMs < firstByteMs; passedMs += 1_000) {
      clock.pass(1_000 - 1);
      await systemClock.sleep(1);
      expect(await Promise.race([sending, Promise.resolve(isPending)])).toBe(isPending);
      clock.pass(1);
    }
    await outcome;
    expect(clock.sleepers.size).toBe(0);
    await until(() => server.open.size === 0);
  });

  it('ends the wait for a connection', async () => {
    const clock = new StillClock();
    // The TLS handshake never begins: the server accepts the connection and stays silent.
    await using server = await scriptedRaw(() => {});
    const url = new URL(server.url.href.replace('http:', 'https:'));
    const sending = httpTransport({ clock })(get(url), never);
    const outcome = expect(sending).rejects.toMatchObject({ sent: 'nothing', timedOut: true });
    await until(() => server.connections === 1);
    clock.pass(connectMs);
    await outcome;
    expect(clock.sleepers.size).toBe(0);
  });

  it('ends a request that the server does not read', async () => {
    const clock = new StillClock();
    await using server = await scriptedRaw((socket) => socket.pause());
    let taken = 0;
    const endless = async function* () {
      for (; ; taken += 1) yield Buffer.alloc(1024 * 1024);
    };
    const sending = httpTransport({ clock })(post(server.url, endless(), 1e12), never);
    const outcome = expect(sending).rejects.toMatchObject({ sent: 'part', timedOut: true });
    let before = -1;
    while (before !== taken || taken === 0) {
      before = taken;
      await systemClock.sleep(50);
    }
    clock.pass(idleMs);
    await outcome;
    expect(clock.sleepers.size).toBe(0);
  });

  it('ends the wait for the rest of a response, but does not count the time of its reader', async () => {
    const clock = new StillClock();
    let sendMore = (): unknown => undefined;
    await using server = await scripted((_, response) => {
      response.write('first');
      sendMore = () => response.write('second');
    });
    const { body } = await httpTransport({ clock })(get(server.url), never);
    const reading = body[Symbol.asyncIterator]();
    await reading.next();
    clock.pass(10 * idleMs);
    await systemClock.sleep(5);
    sendMore();
    expect(Buffer.from((await reading.next()).value ?? []).toString()).toBe('second');
    const outcome = expect(reading.next()).rejects.toMatchObject({ timedOut: true });
    await systemClock.sleep(5);
    clock.pass(idleMs);
    await outcome;
    expect(clock.sleepers.size).toBe(0);
  });

  it.each(['after the whole body', 'before the end of the body'])(
    'ends an answer that trickles, and begins %s',
    async (begins) => {
      const clock = new StillClock();
      const answerMs = 10_000;
      const isEarly = begins.startsWith('before');
      let trickle = (): void => {};
      await using server = await scripted((request, response) => {
        trickle = () => response.write(' ');
        if (isEarly) trickle();
        else request.resume().on('end', trickle);
      });
      const slowly = async function* () {
        yield Buffer.from('a');
        // The time for a large body does not count as time of the answer.
        clock.pass(idleMs - 1);
        yield Buffer.from('b');
        if (isEarly) await new Promise(() => {});
      };
      const { body } = await httpTransport({ clock })(
        { ...post(server.url, slowly(), 2 + Number(isEarly)), answerMs },
        never,
      );
      const outcome = expect(text(body)).rejects.toMatchObject({ sent: isEarly ? 'part' : 'all', timedOut: true });
      for (let passedMs = 0; passedMs < answerMs; passedMs += 1_000) {
        await systemClock.sleep(5);
        clock.pass(1_000);
        trickle();
      }
      await outcome;
      expect(clock.sleepers.size).toBe(0);
    },
  );

  it('leaves no timer behind after a success', async () => {
    const clock = new StillClock();
    await using server = await scripted((_, response) => response.end('ok'));
    const transport = httpTransport({ clock });
    await text((await transport(get(server.url), never)).body);
    (await transport(get(server.url), never)).destroy();
    await text((await transport(postAbc(server.url), never)).body);
    expect(clock.sleepers.size).toBe(0);
  });
});

// `redirects.test.ts` has the addresses that a request does not connect to.
it.each(['127.0.0.1', 'localhost'])('a request within this machine connects to %s', async (host) => {
  await using server = await scripted((_, response) => response.end('inside'));
  const url = new URL(server.url);
  url.hostname = host;
  const { body } = await transport({ ...get(url), reach: 'machine' }, never);
  expect(await text(body)).toBe('inside');
});
