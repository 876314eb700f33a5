import { connect } from 'node:net';
import { text } from 'node:stream/consumers';
import { describe, expect, it } from 'vitest';
import type { Deployment } from '../../operations/deployment.ts';
import { ask, messageOf, serve, Visitor } from './support.ts';

/** Visitors without access never come to it. */
const NO_DEPLOYMENT = { name: 'none', settings: { routes: [] } } as unknown as Deployment;

const served = async () => {
  const { url } = await serve(NO_DEPLOYMENT);
  const { origin, host, port, searchParams } = new URL(url);
  return { url, origin, host, port, key: searchParams.get('key') ?? '' };
};

/** A page, and the headers of a visitor who has opened it. */
const entered = async () => {
  const page = await served();
  const visitor = await Visitor.open(page.url);
  return { ...page, visitor, headers: visitor.headers };
};

describe('the address', () => {
  it('has a key of 256 random bits', async () => {
    const { key } = await served();
    expect(Buffer.from(key, 'base64url')).toHaveLength(32);
    expect((await served()).key).not.toBe(key);
  });

  it('becomes a cookie that no script reads, and an address without the key', async () => {
    const { origin, key } = await served();
    const { status, headers } = await ask(origin, `/?key=${key}`);
    expect(status).toBe(303);
    expect(headers.location).toBe('/');
    expect(headers['set-cookie']?.[0]).toMatch(/; HttpOnly; SameSite=Strict; Path=\/$/);
    expect(headers['referrer-policy']).toBe('no-referrer');
  });

  it.each(['/', '/?key=', '/?key=wrong', '/api/about', '/api/events', '/assets/app.js', '/nothing'])(
    'opens nothing without the key: %s',
    async (path) => {
      const { origin } = await served();
      const answer = await ask(origin, path);
      expect(answer.status).toBe(401);
      expect(answer.headers['set-cookie']).toBeUndefined();
      expect(answer.text).toContain('npm start');
      expect(answer.text).not.toContain('the page');
      expect(answer.headers['content-type']).toMatch(
        path.startsWith('/?') || path === '/' ? /^text\/html/ : /^application\/json/,
      );
    },
  );

  it('takes the key at the front page alone', async () => {
    const { origin, key } = await served();
    expect((await ask(origin, `/api/about?key=${key}`)).status).toBe(401);
    expect((await ask(origin, `/?key=${key}`, { method: 'POST' })).status).toBe(401);
  });

  it('can be given away for one visit', async () => {
    const { url, urlForOnce } = await serve(NO_DEPLOYMENT);
    const once = new URL(urlForOnce());
    expect(once.search).not.toBe(new URL(url).search);
    expect((await ask(once.origin, `/api/about${once.search}`)).status).toBe(401);
    expect((await ask(once.origin, once.search.replace('?', '/?'))).status).toBe(303);
    expect((await ask(once.origin, once.search.replace('?', '/?'))).status).toBe(401);
    expect((await ask(once.origin, new URL(url).search.replace('?', '/?'))).status).toBe(303);
  });

  it('is not opened by a cookie of another run', async () => {
    const { headers, port } = await entered();
    const other = await served();
    const cookie = String(headers.cookie).replace(port, other.port);
    expect((await ask(other.origin, '/', { headers: { cookie } })).status).toBe(401);
  });

  it('leaves the cookie of another page alone', async () => {
    const pages = [await entered(), await entered()];
    // A browser keeps one cookie of each name, whatever the port.
    const jar = new Map(pages.map(({ headers }) => [String(headers.cookie).split('=')[0], headers.cookie]));
    const cookie = [...jar.values()].join('; ');
    for (const { origin } of pages) expect((await ask(origin, '/', { headers: { cookie } })).status).toBe(200);
  });
});

describe('a request of elsewhere', () => {
  it.each(['evil.example', 'evil.example:PORT', '127.0.0.1', '127.0.0.1:1', 'localhost', '[::1]:PORT', '0.0.0.0:PORT'])(
    'is not answered to the host %s',
    async (name) => {
      const { headers, origin, port, key } = await entered();
      const host = name.replace('PORT', port);
      for (const path of ['/', `/?key=${key}`, '/api/about']) {
        const answer = await ask(origin, path, { headers: { ...headers, host } });
        expect([path, answer.status]).toEqual([path, 421]);
        expect(answer.headers['set-cookie']).toBeUndefined();
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
    const { headers, origin, port, key } = await entered();
    const from = Object.fromEntries(Object.entries(more).map(([name, value]) => [name, value.replace('PORT', port)]));
    for (const path of ['/', '/api/about', `/?key=${key}`]) {
      const answer = await ask(origin, path, { headers: { ...headers, ...from } });
      expect([path, answer.status]).toEqual([path, 403]);
      expect(answer.headers['set-cookie']).toBeUndefined();
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

describe('what a page loads as a picture', () => {
  it.each(['image', 'script', 'style', 'font', 'video', 'iframe'])(
    'gets nothing of the API but the bytes of files: %s',
    async (use) => {
      const { headers, origin } = await entered();
      const own = { ...headers, 'sec-fetch-site': 'same-origin', 'sec-fetch-mode': 'no-cors', 'sec-fetch-dest': use };
      for (const path of [
        '/api/about',
        '/api/status',
        '/api/templates',
        '/api/events',
        '/api/uploads/x',
        '/api/uploads/x/inputs/0/y',
      ]) {
        expect([path, (await ask(origin, path, { headers: own })).status]).toEqual([path, 403]);
      }
      // There is no such upload.
      for (const path of ['/api/uploads/x/inputs/0', '/api/uploads/x/assets/0?download']) {
        expect([path, (await ask(origin, path, { headers: own })).status]).toEqual([path, 404]);
      }
      const scripted = { ...own, 'sec-fetch-mode': 'cors', 'sec-fetch-dest': 'empty' };
      expect((await ask(origin, '/api/about', { headers: scripted })).status).toBe(200);
    },
  );
});

describe('a change', () => {
  it.each([undefined, '', 'wrong'])('needs the token: not %s', async (token) => {
    const { headers, origin } = await entered();
    const { 'x-flowdrop-token': _, ...rest } = headers;
    const more = token === undefined ? rest : { ...rest, 'x-flowdrop-token': token };
    for (const [method, path] of [
      ['POST', '/api/plan'],
      ['POST', '/api/act'],
      ['PUT', '/api/files/x.png'],
      ['DELETE', '/api/uploads/x'],
      ['POST', '/'],
    ] as const) {
      const answer = await ask(origin, path, { method, headers: more, body: '{}' });
      expect([method, path, answer.status]).toEqual([method, path, 403]);
    }
  });

  it('finds the token in the page, which is the key of nothing else', async () => {
    const { headers, key } = await entered();
    expect(String(headers['x-flowdrop-token'])).toMatch(/^[\w-]{43}$/);
    expect(headers['x-flowdrop-token']).not.toBe(key);
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
      return new Map([
        ['/', { body: Buffer.from('<meta name="flowdrop-token" content="">'), contentType: 'text/html' }],
      ]);
    };
    const { url } = await serve(NO_DEPLOYMENT, { appFiles });
    const visitor = await Visitor.open(url);
    const broken = await visitor.ask('/');
    expect(broken.status).toBe(502);
    expect(messageOf(broken)).toContain('The app cannot be built.');
    expect((await visitor.ask('/')).status).toBe(200);
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
    const { origin, search } = new URL(url);
    const { headers } = await ask(origin, `/${search}`);
    expect(tries).toBe(0);
    const cookie = headers['set-cookie']?.[0]?.split(';')[0] ?? '';
    for (const each of [1, 2]) {
      const answer = await ask(origin, '/api/about', { headers: { cookie } });
      expect([answer.status, messageOf(answer), tries]).toEqual([503, 'There is no such stack.', each]);
    }
  });
});
