import { connect } from 'node:net';
import { text } from 'node:stream/consumers';
import { describe, expect, it } from 'vitest';
import type { Deployment } from '../../operations/deployment.ts';
import type { ServeOptions } from '../../page/server/serve-page.ts';
import { ask, keyOf, messageOf, proofOf, serve, Visitor } from './support.ts';

/** Visitors without access never come to it. */
const NO_DEPLOYMENT = { name: 'none', settings: { routes: [] } } as unknown as Deployment;

const served = async (options: ServeOptions = {}) => {
  const page = await serve(NO_DEPLOYMENT, options);
  const { origin, host, port } = new URL(page.url);
  return { ...page, origin, host, port, key: keyOf(page.url) };
};

/** A page, and the headers of a visitor who has opened it. */
const entered = async () => {
  const page = await served();
  const visitor = await Visitor.open(page.url);
  return { ...page, visitor, headers: visitor.headers };
};

const NONCE = 'n'.repeat(43);

describe('the address', () => {
  it('has a key of 256 random bits, in the part that a browser does not send', async () => {
    const { key, url } = await served();
    expect(Buffer.from(key, 'base64url')).toHaveLength(32);
    expect(new URL(url).search).toBe('');
    expect(keyOf((await served()).url)).not.toBe(key);
  });

  it('has another key after a restart at the same port, and the key before opens nothing', async () => {
    const before = await entered();
    await before.close();
    const { origin, key } = await served({ port: Number(before.port) });
    expect(origin).toBe(before.origin);
    expect(key).not.toBe(before.key);
    expect((await ask(origin, '/api/about', { headers: before.headers })).status).toBe(401);
    expect((await ask(origin, '/api/enter', { method: 'POST', headers: before.headers })).status).toBe(401);
    await expect(Visitor.open(before.url)).rejects.toThrow('The server proves nothing.');
  });

  it('sets no cookie, which a browser would send to the ports of other users', async () => {
    const { visitor } = await entered();
    for (const path of ['/', '/assets/app.js', '/api/about']) {
      expect((await visitor.ask(path)).headers['set-cookie']).toBeUndefined();
    }
  });

  it('can be given away for one visit', async () => {
    const { url, urlForOnce } = await serve(NO_DEPLOYMENT);
    const once = urlForOnce();
    expect(keyOf(once)).not.toBe(keyOf(url));
    const direct = new Visitor(new URL(url).origin, keyOf(once));
    expect((await direct.ask('/api/about')).status).toBe(401);
    const { key } = await Visitor.open(once);
    expect(key).toBe(keyOf(url));
    await expect(Visitor.open(once)).rejects.toThrow('The server proves nothing.');
    expect((await Visitor.open(url)).key).toBe(key);
  });
});

describe('the server', () => {
  it('proves to everybody who asks that it has the key, and that it has this port', async () => {
    const { origin, port, key } = await served();
    const { json } = await ask(origin, `/api/proof?nonce=${NONCE}`);
    expect(json).toEqual({ proofs: [proofOf(key, `server ${NONCE} ${port}`)] });
    const other = await ask(origin, `/api/proof?nonce=${'o'.repeat(43)}`);
    expect(other.json.proofs).not.toEqual(json.proofs);
  });

  it.each(['', 'short', `${NONCE} 1`, 'n'.repeat(65), '%00'.repeat(30)])('takes no nonce %j', async (nonce) => {
    const { origin } = await served();
    const answer = await ask(origin, `/api/proof?nonce=${encodeURIComponent(nonce)}`);
    expect(answer.status).toBe(400);
    expect(messageOf(answer)).toContain('22 to 64 characters');
  });

  it('shows the app to everybody, and connects to nothing for it', async () => {
    let connections = 0;
    const { url } = await serve(async () => {
      connections += 1;
      throw new Error('There is no such stack.');
    });
    for (const path of ['/', '/assets/app.js']) expect((await ask(url, path)).status).toBe(200);
    expect((await ask(url, '/nothing')).status).toBe(404);
    expect((await ask(url, '/', { method: 'POST' })).status).toBe(405);
    expect(connections).toBe(0);
  });
});

describe('without the proof', () => {
  const STRANGERS: readonly (readonly [string, (page: { key: string; port: string }) => Record<string, string>])[] = [
    ['no header', () => ({})],
    ['an empty one', () => ({ 'x-flowdrop-proof': '' })],
    ['the key itself', ({ key }) => ({ 'x-flowdrop-proof': key })],
    ['the key in a cookie', ({ key, port }) => ({ cookie: `flowdrop-page-${port}=${key}` })],
    ['a proof of the server', ({ key, port }) => ({ 'x-flowdrop-proof': proofOf(key, `server ${NONCE} ${port}`) })],
    ['the proof of an address', ({ key }) => ({ 'x-flowdrop-proof': proofOf(key, 'GET /api/about') })],
  ];

  it.each(STRANGERS)('nothing is answered, and nothing changed: %s', async (_, headersOf) => {
    const page = await served();
    const headers = headersOf(page);
    for (const [method, path] of [
      ['GET', '/api/about'],
      ['GET', '/api/events'],
      ['GET', `/api/about?key=${page.key}`],
      ['GET', '/api/uploads/x/assets/0'],
      ['POST', '/api/enter'],
      ['POST', '/api/plan'],
      ['POST', '/api/act'],
      ['PUT', '/api/files/x.png'],
      ['DELETE', '/api/uploads/x'],
    ] as const) {
      const answer = await ask(page.origin, path, { method, headers, body: method === 'GET' ? '' : '{}' });
      expect([method, path, answer.status]).toEqual([method, path, 401]);
      expect(messageOf(answer)).toContain('npm start');
    }
  });

  it('an address with its own proof can be read, and no other one', async () => {
    const { origin, visitor, key } = await entered();
    const { eventsUrl } = (await visitor.ask('/api/about')).json;
    expect(eventsUrl).toBe(`/api/events?proof=${proofOf(key, 'GET /api/events')}`);
    expect((await ask(origin, eventsUrl, { method: 'HEAD' })).status).toBe(200);
    expect((await ask(origin, `${eventsUrl}&after=x`, { method: 'HEAD' })).status).toBe(200);
    expect((await ask(origin, eventsUrl.replace('events', 'about'))).status).toBe(401);
    expect((await ask(origin, eventsUrl, { method: 'POST' })).status).toBe(401);
    const bytes = `/api/uploads/x/inputs/0?proof=${proofOf(key, 'GET /api/uploads/x/inputs/0')}`;
    // There is no such upload.
    expect((await ask(origin, bytes)).status).toBe(404);
    expect((await ask(origin, bytes.replace('/0?', '/1?'))).status).toBe(401);
  });
});

describe('a request of elsewhere', () => {
  it.each(['evil.example', 'evil.example:PORT', '127.0.0.1', '127.0.0.1:1', 'localhost', '[::1]:PORT', '0.0.0.0:PORT'])(
    'is not answered to the host %s',
    async (name) => {
      const { headers, origin, port } = await entered();
      const host = name.replace('PORT', port);
      for (const path of ['/', `/api/proof?nonce=${NONCE}`, '/api/about']) {
        const answer = await ask(origin, path, { headers: { ...headers, host } });
        expect([path, answer.status]).toEqual([path, 421]);
      }
    },
  );

  it.each([
    ['a second host', 'GET / HTTP/1.1\r\nHost: HERE\r\nHost: evil.example'],
    ['a target with a host of its own', 'GET http://evil.example/ HTTP/1.1\r\nHost: HERE'],
  ])('is not answered with %s', async (_, head) => {
    const { host, port } = await served();
    const socket = connect(Number(port), '127.0.0.1');
    socket.write(`${head.replace('HERE', host)}\r\nConnection: close\r\n\r\n`);
    expect(await text(socket)).toMatch(/^HTTP\/1\.1 421 /);
  });

  it('is answered to localhost', async () => {
    const { headers, origin, port } = await entered();
    const host = `localhost:${port}`;
    expect((await ask(origin, '/', { headers: { ...headers, host } })).status).toBe(200);
  });

  it.each<readonly [string, Record<string, string>]>([
    ['another origin', { origin: 'http://evil.example' }],
    ['another port', { origin: 'http://127.0.0.1:1' }],
    ['an opaque origin', { origin: 'null' }],
    ['the other name of this server', { origin: 'http://localhost:PORT' }],
    ['another site', { 'sec-fetch-site': 'cross-site', 'sec-fetch-mode': 'navigate' }],
    ['another port of this site', { 'sec-fetch-site': 'same-site', 'sec-fetch-mode': 'cors' }],
    ['a script without a site', { 'sec-fetch-site': 'none', 'sec-fetch-mode': 'cors' }],
  ])('is refused from %s', async (_, more) => {
    const { headers, origin, port } = await entered();
    const from = Object.fromEntries(Object.entries(more).map(([name, value]) => [name, value.replace('PORT', port)]));
    for (const path of ['/', '/api/about', `/api/proof?nonce=${NONCE}`]) {
      const answer = await ask(origin, path, { headers: { ...headers, ...from } });
      expect([path, answer.status]).toEqual([path, 403]);
    }
  });

  it('is taken from a person who typed the address, and from the page itself', async () => {
    const { headers, origin, host } = await entered();
    const typed = { 'sec-fetch-site': 'none', 'sec-fetch-mode': 'navigate' };
    expect((await ask(origin, '/', { headers: { ...headers, ...typed } })).status).toBe(200);
    const own = { 'sec-fetch-site': 'same-origin', 'sec-fetch-mode': 'cors', origin: `http://${host}` };
    expect((await ask(origin, '/assets/app.js', { headers: { ...headers, ...own } })).status).toBe(200);
  });
});

describe('the page', () => {
  it('forbids everything that it does not need', async () => {
    const { visitor } = await entered();
    const { headers } = await visitor.ask('/');
    const policy = String(headers['content-security-policy']);
    expect(policy).toContain("default-src 'none'");
    expect(policy).toContain("frame-ancestors 'none'");
    expect(policy).not.toMatch(/unsafe-inline|'unsafe-eval'|\*|https?:/);
    expect(headers).toMatchObject({
      'x-content-type-options': 'nosniff',
      'referrer-policy': 'no-referrer',
      'cross-origin-opener-policy': 'same-origin',
      'cross-origin-resource-policy': 'same-origin',
      'cache-control': 'no-store',
    });
  });

  it('answers an unknown address with a sentence', async () => {
    const { visitor } = await entered();
    for (const path of ['/nothing', '/api/nothing', '/api/uploads/../about', '/%2e%2e/etc/passwd', '/assets/..%2fx']) {
      const answer = await visitor.ask(path);
      expect([path, answer.status]).toEqual([path, 404]);
      expect(messageOf(answer)).toMatch(/^[A-Z].*\.$/);
    }
    expect((await visitor.ask('/api/%ff')).status).toBe(400);
    const wrong = await visitor.ask('/api/about', { method: 'DELETE' });
    expect([wrong.status, wrong.headers.allow]).toEqual([405, 'GET']);
  });

  it('says why it cannot be built, and tries again', async () => {
    let tries = 0;
    const appFiles = async () => {
      tries += 1;
      if (tries < 3) throw new Error('The app cannot be built.');
      return new Map([['/', { body: Buffer.from('the page'), contentType: 'text/html' }]]);
    };
    const { url } = await serve(NO_DEPLOYMENT, { appFiles });
    for (const _ of [1, 2]) {
      const broken = await ask(url, '/');
      expect(broken.status).toBe(502);
      expect(messageOf(broken)).toContain('The app cannot be built.');
    }
    expect((await ask(url, '/')).status).toBe(200);
  });

  it('is prepared after a time if that is asked for', async () => {
    const { promise, resolve } = Promise.withResolvers<void>();
    const appFiles = async () => {
      resolve();
      return new Map();
    };
    await serve(NO_DEPLOYMENT, { appFiles, prepareAfterMs: 1 });
    await promise;
  });

  it('is not connected before the first visit, and connects again after a failure', async () => {
    let tries = 0;
    const { url } = await serve(async () => {
      tries += 1;
      throw new Error('There is no such stack.');
    });
    const visitor = await Visitor.open(url);
    expect(tries).toBe(0);
    for (const each of [1, 2]) {
      const answer = await visitor.ask('/api/about');
      expect([answer.status, messageOf(answer), tries]).toEqual([503, 'There is no such stack.', each]);
    }
  });
});
