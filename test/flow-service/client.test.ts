import type { ServerResponse } from 'node:http';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { inspect } from 'node:util';
import { brotliCompressSync, gzipSync } from 'node:zlib';
import { describe, expect, it } from 'vitest';
import { systemClock } from '../../functions/base/clock.ts';
import type { Json } from '../../functions/base/json.ts';
import type { Reach } from '../../functions/flow-service/addresses.ts';
import { OUTPUT_PAGES_MAX, OUTPUTS_MAX } from '../../functions/flow-service/client.ts';
import * as errors from '../../functions/flow-service/errors.ts';
import { httpTransport } from '../../functions/flow-service/http-transport.ts';
import { parsedJson } from '../../functions/flow-service/json-answer.ts';
import { needsTemplate } from '../../functions/flow-service/service-description.ts';
import { FLOWS } from '../../functions/flow-service/services.ts';
import { TRANSPORT_LIMITS, type Transport, TransportError } from '../../functions/flow-service/transport.ts';
import type { FlowService, InputSource } from '../../functions/flow-service/types.ts';
import { speaking } from '../support/speaking.ts';
import { collect, streamed } from './chunks.ts';
import {
  bodyOf,
  clientOf,
  HastyClock,
  json,
  largeSource,
  nested,
  never,
  type Page,
  PUBLIC_ORIGIN,
  paged,
  RENEWED,
  requestOf,
  StillClock,
  scripted,
  scriptedRaw,
  scriptedToken,
  sourceOf,
  TOKEN,
  UNUSABLE_IDS,
  until,
} from './scripted.ts';

const MIB = 1024 * 1024;

const failureOf = async (promise: Promise<unknown>): Promise<unknown> => {
  const outcome = await promise.then(
    (value) => ({ value }),
    (error: unknown) => ({ error }),
  );
  if ('value' in outcome) throw new Error(`Did not fail but gave ${inspect(outcome.value)}`);
  return outcome.error;
};

/** The operations that the tests try responses on. */
const operations = {
  // Without time to wait for a turn, so that a throttled request fails at once.
  create: (flows: FlowService) => flows.create({ ...requestOf(sourceOf('hi')), startBy: 0 }, never),
  get: (flows: FlowService) => flows.get('f1', never),
  outputs: (flows: FlowService) => flows.outputs('f1', never),
  asset: async (flows: FlowService) => collect((await flows.asset('f1', 'a1', never)).chunks),
};
type OperationName = keyof typeof operations;
const reads: readonly OperationName[] = ['get', 'outputs', 'asset'];

/** A transport that gives the same responses to all requests, and records the requests. */
function canned(
  ...answers: readonly {
    status: number;
    headers?: Record<string, string>;
    body?: string | Uint8Array;
    address?: string;
    sent?: 'part';
  }[]
) {
  const asked: { url: string; headers: Readonly<Record<string, string>>; reach: Reach | undefined }[] = [];
  const transport: Transport = async ({ url, headers, reach, body }) => {
    if (body !== undefined) await collect(body.chunks);
    const answer = answers[Math.min(asked.length, answers.length - 1)] ?? { status: 500 };
    asked.push({ url: url.href, headers, reach });
    const bytes = Buffer.from(answer.body ?? '');
    return {
      status: answer.status,
      headers: { 'content-length': String(bytes.byteLength), ...answer.headers },
      address: answer.address,
      sent: answer.sent,
      body: streamed([bytes]),
      destroy() {},
    };
  };
  return { asked, transport };
}

const PUBLIC = new URL('/api', PUBLIC_ORIGIN);

/** Ways in which listings name their next page. */
const ADDRESS = { by: 'address', at: '/next' };
const LINK = { by: 'link' };
const CURSOR = { by: 'cursor', at: '/next_cursor', parameter: 'cursor' };
const NUMBER = { by: 'number', parameter: 'page', total: '/total' };
const NONE = { by: 'none' };

describe('every request', () => {
  it('goes to the path of the interface, with the required headers', async () => {
    await using server = await scripted(async (request, response) => {
      if (request.url?.endsWith('/a%2F1')) return response.end('raw');
      if (request.url?.endsWith('/outputs')) return json(request, response, []);
      return json(request, response, { flow_id: 'f1', state: 'running' });
    });
    const flows = clientOf(new URL('/v1/', server.url));
    await flows.create(requestOf(sourceOf('hi')), never);
    await flows.get('f 1', never);
    await flows.outputs('f1', never);
    await collect((await flows.asset('f1', 'a/1', never)).chunks);
    await flows.abort('f1', never);
    expect(server.requests.map(({ method, url }) => `${method} ${url}`)).toEqual([
      'POST /v1/flows',
      'GET /v1/flows/f%201',
      'GET /v1/flows/f1/outputs',
      'GET /v1/flows/f1/outputs/a%2F1',
      'PATCH /v1/flows/f1',
    ]);
    for (const { headers } of server.requests) {
      expect(headers).toMatchObject({
        authorization: `Bearer ${TOKEN}`,
        'content-type': 'application/json',
        'accept-encoding': 'identity',
        'user-agent': 'flowdrop',
      });
    }
    expect(server.requests[3]?.headers.accept).toBe('*/*');
    // What changes must not come from a cache, and an asset may.
    const fresh = server.requests.map(({ headers }) => headers['cache-control']);
    expect(fresh).toEqual([undefined, 'no-cache', 'no-cache', undefined, undefined]);
  });

  it.each([
    ['below the base address', '/api/moved', true],
    ['elsewhere', 'https://cdn.example/a', false],
  ])('has the trace of its upload if it is redirected %s: %s %s', async (_, location, isTraced) => {
    const { asked, transport } = canned({ status: 302, headers: { location } }, { status: 200, body: 'x' });
    const uploadId = '6955b900c0e7f0fdeaf01945de8599abab81e07f';
    await collect((await clientOf(PUBLIC, { transport }).asset('f1', 'a1', never, { uploadId })).chunks);
    const ofUpload = asked.map(({ headers: { traceparent = '' } }) =>
      traceparent.startsWith(`00-${uploadId.slice(0, 32)}-`),
    );
    expect(ofUpload).toEqual([true, isTraced]);
    expect('traceparent' in (asked[1]?.headers ?? {})).toBe(isTraced);
  });

  it.each(['0'.repeat(40), 'an upload', 'A'.repeat(40)])(
    'has no trace if an upload id names none: %s',
    async (uploadId) => {
      const { asked, transport } = canned({ status: 200, body: '{"id":"f1","state":"running"}' });
      await clientOf(PUBLIC, { transport }).get('f1', never, { uploadId });
      expect(asked[0]?.headers).not.toHaveProperty('traceparent');
    },
  );

  it.each(['http://flows.example.com', 'https://user@example.com', 'https://:pass@example.com'])(
    'is forbidden to %s',
    (url) => expect(() => clientOf(new URL(url))).toThrow(errors.ForbiddenAddressError),
  );
});

describe('an error response', () => {
  const inDoubtAfter = (cause: object) => ({ isOwnRefusal: false, cause });
  const misaddressed = inDoubtAfter({ name: 'MisaddressedError' });
  const table: readonly (readonly [OperationName | 'reads', number, Record<string, string>, string, object?])[] = [
    ['create', 400, {}, 'RejectedError', { status: 400 }],
    ['create', 402, {}, 'ThrottledError'],
    ['create', 403, {}, 'InDoubtError', inDoubtAfter({ name: 'ForbiddenError' })],
    ['create', 404, {}, 'InDoubtError', misaddressed],
    ['create', 405, {}, 'InDoubtError', misaddressed],
    ['create', 408, {}, 'InDoubtError', inDoubtAfter({ name: 'UnavailableError', bodyStarted: true })],
    ['create', 409, {}, 'InDoubtError', inDoubtAfter({ name: 'RejectedError', status: 409 })],
    ['create', 410, {}, 'InDoubtError', inDoubtAfter({ name: 'RejectedError', status: 410 })],
    ['create', 413, {}, 'RejectedError', { status: 413 }],
    ['create', 415, { 'content-type': 'text/html' }, 'RejectedError', { status: 415 }],
    ['create', 422, {}, 'RejectedError', { status: 422 }],
    ['create', 425, {}, 'InDoubtError', inDoubtAfter({ name: 'UnavailableError', bodyStarted: true })],
    ['create', 451, {}, 'InDoubtError', inDoubtAfter({ name: 'RejectedError', status: 451 })],
    ['create', 429, {}, 'ThrottledError', { retryAfterMs: undefined }],
    ['create', 429, { 'retry-after': '700' }, 'ThrottledError', { retryAfterMs: 700_000 }],
    ['create', 300, {}, 'InDoubtError', misaddressed],
    ['create', 301, { location: '/elsewhere' }, 'InDoubtError', misaddressed],
    ['create', 302, { location: '/elsewhere' }, 'InDoubtError', misaddressed],
    ['create', 303, { location: '/elsewhere' }, 'InDoubtError', misaddressed],
    ['create', 304, {}, 'InDoubtError', misaddressed],
    ['create', 307, { location: '/elsewhere' }, 'InDoubtError', misaddressed],
    ['create', 308, { location: '/elsewhere' }, 'InDoubtError', misaddressed],
    ['create', 500, {}, 'InDoubtError'],
    ['create', 501, {}, 'InDoubtError', misaddressed],
    ['create', 502, {}, 'InDoubtError'],
    ['create', 503, {}, 'InDoubtError'],
    ['create', 503, { 'retry-after': '7' }, 'InDoubtError'],
    ['create', 504, {}, 'InDoubtError'],
    ['reads', 400, {}, 'RejectedError', { status: 400 }],
    ['reads', 403, {}, 'ForbiddenError'],
    ['reads', 404, {}, 'NotFoundError', { knownToBeServed: false }],
    ['reads', 405, {}, 'NotServedError'],
    ['reads', 408, {}, 'UnavailableError', { bodyStarted: false }],
    ['reads', 409, {}, 'NotReadyError'],
    ['reads', 410, {}, 'NotFoundError', { knownToBeServed: true }],
    ['reads', 425, {}, 'NotReadyError'],
    ['reads', 429, { 'retry-after': '700' }, 'ThrottledError', { retryAfterMs: 700_000 }],
    ['get', 429, { ratelimit: 'r=0;t=700' }, 'ThrottledError', { retryAfterMs: 700_000 }],
    ['reads', 500, {}, 'UnavailableError', { bodyStarted: false }],
    ['reads', 501, {}, 'NotServedError'],
    ['reads', 503, {}, 'UnavailableError'],
    ['reads', 503, { 'retry-after': '700' }, 'ThrottledError', { retryAfterMs: 700_000 }],
    ['get', 302, { location: '/elsewhere' }, 'MisaddressedError'],
    ['get', 400, { 'content-type': 'text/html' }, 'MisaddressedError'],
    ['get', 404, { 'content-type': 'text/html' }, 'NotFoundError'],
    ['asset', 302, {}, 'UnintelligibleAnswerError'],
    ['asset', 202, {}, 'NotReadyError'],
    ['asset', 204, {}, 'NotReadyError'],
    ['asset', 423, {}, 'NotReadyError'],
    ['asset', 206, {}, 'DamagedAssetError'],
    ['asset', 304, {}, 'UnintelligibleAnswerError'],
  ];

  for (const [operation, status, headers, name, more = {}] of table) {
    for (const each of operation === 'reads' ? reads : [operation]) {
      it(`to ${each}, ${status} ${JSON.stringify(headers)}, is ${name} ${JSON.stringify(more)}`, async () => {
        await using server = await scripted(async (request, response) => {
          await bodyOf(request);
          // Only this request is refused, and not the token.
          if (status === 403 && request.method === 'GET' && request.url?.endsWith('/flows'))
            return json(request, response, []);
          response.writeHead(status, headers);
          response.end(status === 204 || status === 304 ? undefined : 'the reason why');
        });
        const error = await failureOf(operations[each](clientOf(server.url)));
        expect(error).toMatchObject({ name, ...more });
        if (status >= 400) expect(String(error)).toContain('the reason why');
      });
    }
  }

  it.each(['create', 'get', 'outputs'] as const)('that redirects %s elsewhere is not followed', async (operation) => {
    const location = 'https://obviously-fake.login.example/?state=secret';
    const { transport, asked } = canned({ status: 307, headers: { location } });
    const token = { ...scriptedToken(), get: async () => 'obviously-fake' };
    const error = (await failureOf(operations[operation](clientOf(PUBLIC, { transport, token })))) as Error;
    // The address says where to look. Its query may be a secret.
    expect(error).toMatchObject({
      name: operation === 'create' ? 'InDoubtError' : 'MisaddressedError',
      message: expect.stringContaining('https://[token].login.example. '),
    });
    expect(inspect(error, { depth: 10 })).not.toContain('secret');
    expect(asked).toHaveLength(1);
  });

  it.each<[keyof typeof operations, string]>([
    ['get', '/api/flows/f1/'],
    ['get', 'f1/'],
    ['get', 'http://flows.example.com/api/flows/f1/'],
    ['outputs', '/api/flows/f1/outputs/?page=1'],
  ])('%s to the same path with a slash says so: %s', async (operation, location) => {
    const { transport } = canned({ status: 301, headers: { location } });
    const error = await failureOf(operations[operation](clientOf(PUBLIC, { transport })));
    expect(error).toMatchObject({ message: expect.stringContaining('wants a slash at the end of its paths') });
  });

  const unknown = '{"detail":"no such template"}';
  it.each<[status: number, type: string, body: string, nameElsewhere: string, name: string]>([
    [404, 'application/json', unknown, 'RejectedError', 'RejectedError'],
    [404, 'text/plain', 'no such template', 'MisaddressedError', 'RejectedError'],
    [404, 'text/html', unknown, 'RejectedError', 'RejectedError'],
    [403, 'text/html', '<html>', 'UnauthorisedError', 'ForbiddenError'],
    [400, 'text/html', '<html>', 'MisaddressedError', 'RejectedError'],
    [400, 'text/html', '{"detail":"too small"}', 'RejectedError', 'RejectedError'],
    [413, 'text/html', '<html>', 'RejectedError', 'RejectedError'],
    [422, 'text/html', '<html>', 'RejectedError', 'RejectedError'],
  ])('%i as %s: %s refuses a creation: %s if no listing is served either, otherwise %s', async (...row) => {
    const [status, type, body, nameElsewhere, name] = row;
    const refusal = { status, headers: { 'content-type': type }, body };
    for (const [listing, expected] of [
      [refusal, nameElsewhere],
      [{ status: 200, body: '[]' }, name],
    ] as const) {
      const { transport } = canned(refusal, listing);
      const error = (await failureOf(operations.create(clientOf(PUBLIC, { transport })))) as Error;
      expect(error.name === 'InDoubtError' ? error.cause : error).toMatchObject({ name: expected });
    }
  });

  it.each([
    [400, 'RejectedError'],
    [403, 'ForbiddenError'],
  ])('%i in JSON that is called HTML is about the flow', async (status, name) => {
    const refusal = { status, headers: { 'content-type': 'text/html; charset=UTF-8' }, body: '{"detail":"No"}' };
    const { transport } = canned(refusal, { status: 200, body: '[]' });
    expect(await failureOf(clientOf(PUBLIC, { transport }).get('f1', never))).toMatchObject({ name });
  });

  it.each([
    ['a detail', 403, 'application/json; charset=utf-8', '{"detail":"Not yours","code":7}', true],
    ['a list of details', 409, 'application/json', '{"detail":[{"msg":"Twice"}]}', true],
    ['a detail that is an object', 409, 'application/json', '{"detail":{"code":"twice"}}', true],
    ['a detail that is an object of nothing', 409, 'application/json', '{"detail":{"code":null}}', false],
    ['an empty detail', 409, 'application/json', '{"detail":""}', false],
    ['a detail that is cut', 409, 'application/json', '{"detail":"Twi', false],
    ['a message', 403, 'application/json', '{"message":"Forbidden"}', false],
    ['a problem', 404, 'application/problem+json', '{"title":"Not Found","detail":"No route"}', false],
    ['a page', 404, 'text/html', '{"detail":"No such template"}', false],
    ['nothing', 408, 'application/json', '', false],
    ['a detail of what took too long', 408, 'application/json', '{"detail":"Timeout"}', false],
    ['a detail of what came too early', 425, 'application/json', '{"detail":"Too early"}', true],
    ['a detail of what broke', 500, 'application/json', '{"detail":"Internal Server Error"}', false],
    ['a detail of a redirect', 307, 'application/json', '{"detail":"Elsewhere"}', false],
  ])('after the last byte of a creation is believed only in the form of the service: %s', async (...row) => {
    const [, status, type, body, isOwnRefusal] = row;
    const { transport } = canned({ status, headers: { 'content-type': type }, body }, { status: 200, body: '[]' });
    const error = await failureOf(operations.create(clientOf(PUBLIC, { transport })));
    expect(error).toMatchObject({ name: 'InDoubtError', isOwnRefusal });
  });

  it.each<[number, Record<string, string>, name: string, more?: object]>([
    [401, {}, 'UnauthorisedError'],
    [403, {}, 'ForbiddenError'],
    [404, {}, 'MisaddressedError'],
    [408, {}, 'UnavailableError'],
    [409, {}, 'RejectedError'],
    [413, {}, 'RejectedError', { status: 413 }],
    [429, { 'retry-after': '300' }, 'ThrottledError', { retryAfterMs: 300_000 }],
    [500, {}, 'UnavailableError', { bodyStarted: true }],
    [502, {}, 'UnavailableError'],
    [503, { 'retry-after': '300' }, 'ThrottledError', { retryAfterMs: 300_000 }],
  ])('%i %j before the last byte of a creation leaves nothing in doubt', async (status, headers, name, more) => {
    const listing = status === 403 ? [{ status: 200, body: '[]' }] : [];
    const { transport } = canned({ status, headers, sent: 'part' }, ...listing);
    expect(await failureOf(operations.create(clientOf(PUBLIC, { transport })))).toMatchObject({ name, ...more });
  });

  it.each([
    ['plain text', 'not today', 'not today'],
    ['a detail', '{"detail":"no such template"}', 'no such template'],
    [
      'a list of details',
      '{"detail":[{"loc":["body","inputs",0,"data"],"msg":"field required"},{"msg":"and more"}]}',
      'body.inputs.0.data: field required; and more',
    ],
    ['an error', '{"error":{"message":"out of credit"}}', 'out of credit'],
    ['nothing', '', 'create: 422'],
    ['too much', 'x'.repeat(5000), `${'x'.repeat(300)}…`],
    ['bytes that are not text', '\xff\xfe', 'create: 422: '],
    ['lists in lists', nested(30_000), 'create: 422: [[['],
    ['a detail of lists in lists', `{"detail":${nested(30_000)}}`, 'create: 422: {"detail":[[['],
    ['half a character', '{"detail":"\\ud800"}', '\ufffd'],
    ['a place that is not text', '{"detail":[{"loc":[{"toString":1},true],"msg":"Wrong"}]}', 'create: 422: Wrong'],
    [
      'a message that is not text',
      '{"detail":[{"msg":{"toString":1,"parsedJson":1}}]}',
      '{"toString":1,"parsedJson":1}',
    ],
    ['details that are null', '{"detail":[null]}', 'create: 422'],
    ['two thousand details', JSON.stringify({ detail: Array(2_000).fill({ msg: 'Wrong' }) }), 'Wrong; Wrong'],
    ['our token', `Who is ${TOKEN}?`, 'Who is [token]?'],
    ['our token in a URL', `/?of=${encodeURIComponent(TOKEN)}`, '/?of=[token]'],
    ['our token at the cut', `${'x'.repeat(290)}${TOKEN}`, `${'x'.repeat(290)}[token]`],
  ])('is quoted in the error: %s', async (_, body, quoted) => {
    await using server = await scripted((request, response) => {
      response.statusCode = 422;
      request.resume().on('end', () => response.end(Buffer.from(body, 'latin1')));
    });
    const error = (await failureOf(operations.create(clientOf(server.url)))) as Error;
    expect(error.message).toContain(quoted);
    expect(error.message.length).toBeLessThan(400);
  });

  it('fails by its status alone if its body never ends, is cut, or is compressed', async () => {
    const bodies = [
      'HTTP/1.1 400 Bad\r\nContent-Length: 999999999\r\n\r\n'.padEnd(200_000, 'x'),
      'HTTP/1.1 400 Bad\r\nContent-Length: 10\r\n\r\nabc',
      'HTTP/1.1 400 Bad\r\nContent-Length: 3\r\nContent-Encoding: gzip\r\n\r\nabc',
    ];
    for (const [index, body] of bodies.entries()) {
      await using server = await scriptedRaw((socket) =>
        socket.once('data', () => (index === 0 ? socket.write(body) : socket.end(body))),
      );
      // On this clock, a wait for the end of the body would never be over.
      const flows = clientOf(server.url, { clock: new StillClock() });
      await expect(operations.get(flows)).rejects.toThrow(errors.RejectedError);
      await until(() => server.open.size === 0);
    }
  });

  it.each([
    ['120', 120_000],
    ['0', 0],
    ['Thu, 01 Jan 2026 00:02:00 GMT', 120_000],
    ['Thursday, 01-Jan-26 00:02:00 GMT', 120_000],
    ['Wed, 31 Dec 2025 23:00:00 GMT', undefined],
    ['99999999999', 86_400_000],
    ['-5', undefined],
    ['1.5', 1_500],
    ['0.0001', 1],
    ['1.', undefined],
    ['1e9', undefined],
    ['0x10', undefined],
    ['600, 700', 600_000],
    ['2026-01-01T00:02:00Z', 120_000],
    ['2026-01-01T01:02:00.5+01:00', 120_500],
    ['2026-01-01 00:02:00', 120_000],
    ['2025-12-31T23:59:00Z', undefined],
    ['2026-13-01T00:02:00Z', undefined],
    ['2026-01-02', undefined],
    ['1767225720', 120_000],
    ['1767225720500', 120_500],
    ['1767225500', undefined],
    ['30s', 30_000],
    ['6m0s', 360_000],
    ['1h', 3_600_000],
    ['1m2.5s', 62_500],
    ['250ms', 250],
    ['30 s', undefined],
    ['s', undefined],
    ['5x', undefined],
    ['Sun, 06 Nov 1994 08:49:37 GMT', undefined],
    ['Sun, 99 Nov 2094 08:49:37 GMT', undefined],
    ['Fri, 31 Dec 9999 23:59:59 GMT', 86_400_000],
    ['soon', undefined],
    ['', undefined],
    ['Thu, 99 Foo', undefined],
  ])('with Retry-After %j asks for a wait only if the value makes sense', async (value, retryAfterMs) => {
    const { transport } = canned({ status: 429, headers: { 'retry-after': value } });
    const error = await failureOf(operations.get(clientOf(PUBLIC, { transport, clock: new HastyClock() })));
    expect(error).toMatchObject({ name: 'ThrottledError', retryAfterMs });
  });

  it.each([
    [400, 'API key not valid. Please pass a valid one', true],
    [422, 'You have insufficient credits', true],
    [422, 'Quota exceeded for this project', true],
    [400, 'The picture has no face', false],
    [422, 'Prompts have 100 tokens at most', false],
  ])('%i says what to do if the account may be meant: %s', async (status, detail, isOfAccount) => {
    const { transport } = canned({
      status,
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ detail }),
    });
    const error = await failureOf(operations.create(clientOf(PUBLIC, { transport })));
    expect(String(error).includes('declare it in "errors" of "service"')).toBe(isOfAccount);
    expect(String(error)).toContain(detail);
  });

  it.each([
    [{ 'retry-after-ms': '1500' }, 1_500],
    [{ 'x-ms-retry-after-ms': '1500' }, 1_500],
    [{ 'retry-after-ms': '1500', 'retry-after': '2' }, 1_500],
    [{ 'retry-after-ms': 'soon', 'retry-after': '2' }, 2_000],
  ])('with %j asks for a wait, also by 503', async (headers, retryAfterMs) => {
    for (const status of [429, 503]) {
      const { transport } = canned({ status, headers });
      const error = await failureOf(operations.get(clientOf(PUBLIC, { transport, clock: new HastyClock() })));
      expect(error).toMatchObject({ name: 'ThrottledError', retryAfterMs });
    }
  });
});

describe('the token', () => {
  it('is read again once if the service rejects it, and the input is opened again', async () => {
    await using server = await scripted(async (request, response) => {
      const body = await bodyOf(request);
      response.statusCode = request.headers.authorization === `Bearer ${RENEWED}` ? 201 : 401;
      response.end(JSON.stringify({ flow_id: String(body.length) }));
    });
    const token = scriptedToken();
    const source = sourceOf('the input');
    const { flowId } = await clientOf(server.url, { token }).create(requestOf(source), never);
    expect(flowId).toBe(server.requests[1]?.headers['content-length']);
    expect({ renewals: token.renewals, opened: source.opened }).toEqual({ renewals: 1, opened: 2 });
  });

  it.each(['create', ...reads] as const)('that is rejected twice makes %s unauthorised', async (operation) => {
    await using server = await scripted((request, response) => json(request, response, {}, 401));
    const token = scriptedToken();
    await expect(operations[operation](clientOf(server.url, { token }))).rejects.toThrow(errors.UnauthorisedError);
    expect(token.renewals).toBe(1);
    expect(server.requests).toHaveLength(2);
  });

  it('that cannot be read, or that no header can carry, stops a request before it is sent', async () => {
    await using server = await scripted(() => {});
    const unreadable = new errors.UnauthorisedError('no secret');
    const failing = { ...scriptedToken(), get: () => Promise.reject(unreadable) };
    expect(await failureOf(operations.create(clientOf(server.url, { token: failing })))).toBe(unreadable);
    for (const bad of ['', 'two\nlines', 'ünicode', 'spa ce']) {
      const token = { ...scriptedToken(), get: async () => bad };
      const error = await failureOf(operations.get(clientOf(server.url, { token })));
      expect(error).toBeInstanceOf(errors.UnauthorisedError);
      if (bad !== '') expect(inspect(error, { depth: 10 })).not.toContain(bad);
    }
    expect(server.connections).toBe(0);
  });

  it('is in no error, whatever the service sends back or breaks', async () => {
    const secrets = [TOKEN, RENEWED, TOKEN.replace('/', '\\/'), RENEWED.replace('/', '\\/')];
    const hexOf = (secret: string): string => Buffer.from(secret).toString('hex');
    const echoes: ((told: string) => string)[] = [
      (told) => `HTTP/1.1 500 Bad\r\n\r\n${told}`,
      (told) => `HTTP/1.1 200 OK\r\n\r\n${told}`,
      (told) => `HTTP/1.1 200 OK\r\n\r\n${JSON.stringify({ told })}`,
      (told) => `HTTP/1.1 422 Bad\r\n\r\n${JSON.stringify({ detail: told })}`,
      (told) => `HTTP/1.1 401 Bad\r\n\r\n${JSON.stringify({ detail: told }).replaceAll('/', '\\/')}`,
      (told) => `HTTP/1.1 302 Found\r\nLocation: http://10.0.0.1/?t=${told.slice(-22)}\r\n\r\n`,
      (told) => `${told} is no HTTP\r\n\r\n`,
      (told) => `HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n${told}`,
      () => '',
    ];
    for (const echo of echoes) {
      await using server = await scriptedRaw((socket) => {
        socket.once('data', (data) => {
          const told = /authorization: (.*)\r\n/i.exec(String(data))?.[1] ?? '';
          socket.end(echo(told));
        });
      });
      for (const operation of Object.values(operations)) {
        const error = await failureOf(operation(clientOf(server.url)));
        const shown = inspect(error, { depth: 10, showHidden: true }) + String((error as Error).stack);
        for (const secret of secrets) {
          expect(shown).not.toContain(secret);
          expect(shown.replaceAll(' ', '')).not.toContain(hexOf(secret));
        }
      }
    }
  });

  it('is redacted from the errors of flows and outputs', async () => {
    const { transport } = canned(
      { status: 200, body: JSON.stringify({ id: 'f1', state: 'failed', error: `bad ${TOKEN}` }) },
      { status: 200, body: JSON.stringify([{ id: 'a1', error: { message: `bad ${TOKEN}` } }]) },
    );
    const flows = clientOf(PUBLIC, { transport });
    expect(await flows.get('f1', never)).toMatchObject({ error: 'bad [token]' });
    expect(await flows.outputs('f1', never)).toEqual([{ assetId: 'a1', status: 'failed', error: 'bad [token]' }]);
  });

  const ENCODED = Buffer.from(`Bearer ${TOKEN}`).toString('base64');

  it.each([TOKEN, `x${TOKEN}`, encodeURIComponent(TOKEN), ENCODED])(
    'is no part of an id: %s is unusable',
    async (id) => {
      const { transport } = canned({ status: 200, body: JSON.stringify({ id, outputs: [{ id }, { id: 'a1' }] }) });
      const flows = clientOf(PUBLIC, { transport });
      // The flow exists, and its tag finds it. Its redacted id would be that of no flow.
      expect(await failureOf(operations.create(flows))).toMatchObject({ name: 'InDoubtError' });
      expect(await failureOf(flows.get('f1', never))).toMatchObject({ name: 'UnintelligibleAnswerError' });
      const [unusable, usable] = await flows.outputs('f1', never);
      expect(unusable).toMatchObject({ status: 'failed', error: expect.stringContaining('unusable id') });
      expect(inspect(unusable)).not.toMatch(new RegExp(`${TOKEN}|${ENCODED.slice(12, -4)}`));
      expect(usable).toEqual({ assetId: 'a1', status: 'ready' });
    },
  );

  const IN_TYPE = 'obviously-fake-token';

  it.each([
    ['as a part of it', IN_TYPE, `application/x-${IN_TYPE}`],
    ['as the whole', TOKEN, TOKEN],
    ['in another case', IN_TYPE, `application/x-${IN_TYPE.toUpperCase()}`],
    ['in a parameter of a URL', TOKEN, `image/png;by=${encodeURIComponent(TOKEN)}`],
    ['in base64', TOKEN, `image/png;by=${ENCODED.replace(/=+$/, '')}`],
    ['around quotes that are taken off', IN_TYPE, `image/png;by="${IN_TYPE.slice(0, 9)}"${IN_TYPE.slice(9)}`],
  ])('is not in the media type of an asset, %s', async (_, secret, mediaType) => {
    const token = { ...scriptedToken(), get: async () => secret };
    const elsewhere = { status: 302, headers: { location: 'https://cdn.example/a' } };
    const raw = { status: 200, headers: { 'content-type': mediaType }, body: 'x' };
    const envelope = { status: 200, body: `{"data":${JSON.stringify(`data:${mediaType};base64,eA==`)}}` };
    for (const answers of [[raw], [envelope], [elsewhere, raw], [elsewhere, envelope]]) {
      const { transport } = canned(...answers);
      const asset = await clientOf(PUBLIC, { transport, token }).asset('f1', 'a1', never);
      expect(asset.mediaType).toBe('application/octet-stream');
      expect((await collect(asset.chunks)).toString()).toBe('x');
    }
  });

  it('is not quoted by a server that an asset was redirected to', async () => {
    const { transport } = canned(
      { status: 302, headers: { location: 'https://cdn.example/a' } },
      { status: 400, body: `Who is ${TOKEN}?` },
    );
    const error = await failureOf(operations.asset(clientOf(PUBLIC, { transport })));
    expect(error).toMatchObject({ name: 'RejectedError', message: 'asset: 400: Who is [token]?' });
  });

  it('is not in the name or the value of a header that a message tells', async () => {
    const [secret, body] = ['obviously-fake.token', '{"outputs":[{"id":"a"}]}'];
    const token = { ...scriptedToken(), get: async () => secret };
    const named: readonly Record<string, string>[] = [
      { [`${secret}.next`]: '1' },
      { pagination: `{"${secret}.next":1}` },
    ];
    for (const headers of named) {
      const { transport } = canned({ status: 200, headers: { 'content-type': 'application/json', ...headers }, body });
      const told = await clientOf(PUBLIC, { transport, token })
        .outputs('f1', never)
        .catch((error) => error);
      expect(inspect(told)).not.toContain(secret);
    }
  });

  it('is not in the words of a connection that fails, nor in their cause', async () => {
    for (const sent of ['nothing', 'all'] as const) {
      const transport: Transport = async () => {
        throw new TransportError(`Its certificate is for ${TOKEN}.example`, { sent });
      };
      const error = await failureOf(operations.create(clientOf(PUBLIC, { transport })));
      expect(error).toMatchObject({ message: 'create: Its certificate is for [token].example' });
      expect(inspect(error)).not.toContain(TOKEN);
    }
  });

  it.each([
    [400, 'text/plain', 64 * 1024, 'RejectedError'],
    [200, 'text/html', 4 * 1024, 'NotAnAssetError'],
  ])('is not quoted in part where no more is read of an answer with %i', async (status, mediaType, bytesRead, name) => {
    const body = TOKEN.padStart(bytesRead + TOKEN.length / 2) + ' '.repeat(bytesRead);
    const { transport } = canned({ status, headers: { 'content-type': mediaType }, body });
    const error = await failureOf(operations.asset(clientOf(PUBLIC, { transport })));
    expect(error).toMatchObject({ name });
    expect(inspect(error)).not.toContain(TOKEN.slice(0, TOKEN.length / 2 - 1));
  });

  it.each([
    ['the body', ADDRESS, (address: string): Page => ({ body: { flows: [{ id: 'f1' }], next: address } })],
    ['a Link header', LINK, (address: string): Page => ({ body: [{ id: 'f1' }], link: `<${address}>; rel="next"` })],
  ])('is not in the address of a next page, by %s', async (_, pages, page) => {
    const spellings = [TOKEN, encodeURIComponent(TOKEN), ENCODED, `${TOKEN.slice(0, 5)}\t${TOKEN.slice(5)}`];
    for (const spelling of spellings) {
      const { asked, transport } = paged(() => page(`/api/flows?by=${spelling}`));
      const flows = clientOf(PUBLIC, { transport, service: speaking({ list: { pages } }) });
      for await (const _page of flows.list(never));
      expect(asked).toEqual(['/api/flows']);
    }
  });
});

describe('a flow that may have been created', () => {
  it('has no id where the description says: the error names the member to correct, and those of the answer', async () => {
    const { transport } = canned({ status: 200, body: '{"code":0,"data":{"task":"t1"}}' });
    const error = await failureOf(operations.create(clientOf(PUBLIC, { transport })));
    expect(error).toMatchObject({ name: 'InDoubtError', isAccepted: true });
    expect((error as Error).message).toContain(
      'no usable id at /flow_id or /id: correct "create.id" in the description; the answer has /code, /data/task)',
    );
  });

  it.each(['location', 'operation-location'])('has no id in an empty answer: the error names its %s', async (name) => {
    const { transport } = canned({
      status: 202,
      body: '',
      headers: { [name]: 'https://flows.example.com/jobs/7?k=v' },
    });
    const error = await failureOf(operations.create(clientOf(PUBLIC, { transport })));
    expect(error).toMatchObject({ name: 'InDoubtError', isAccepted: true });
    expect((error as Error).message).toMatch(
      new RegExp(`the answer is empty \\(status 202\\)\\. If its header ${name} names the flow, declare .*"${name}"`),
    );
  });

  const BALANCE = 'insufficient balance';
  const creationOf = (body: object, errors: object = {}) => {
    const { transport } = canned({ status: 200, body: JSON.stringify(body) });
    return operations.create(
      clientOf(PUBLIC, { transport, service: { ...FLOWS, errors: { ...FLOWS.errors, ...errors } } }),
    );
  };
  const REFUSALS: readonly object[] = [
    { id: 'req_8f2', detail: BALANCE },
    { id: 'req_8f2', detail: [{ msg: BALANCE }] },
    { id: 'req_8f2', error: { message: BALANCE } },
    { id: 'req_8f2', success: false, message: BALANCE },
    { id: 'req_8f2', state: 'refused', detail: BALANCE },
    { id: 'req_8f2', status: 'error', reason: BALANCE },
  ];

  it.each(REFUSALS)(
    'is in doubt if the id may be that of the request, because the answer has an error: %j',
    async (body) => {
      expect(await failureOf(creationOf(body))).toMatchObject({
        name: 'InDoubtError',
        isAccepted: true,
        message: expect.stringContaining(BALANCE),
      });
    },
  );

  it.each(REFUSALS)(
    'was not created if the description declares the words of the error beside an id: %j',
    async (body) => {
      const outOfCredit = [402, { status: 200, says: 'balance' }];
      expect(await failureOf(creationOf(body, { outOfCredit }))).toMatchObject({ name: 'ThrottledError' });
    },
  );

  it.each<[object, object?]>([
    [{ id: 'f1', state: 'running', detail: 'Third in the queue.' }],
    [{ id: 'f1', state: 'failed', error: BALANCE }],
    [{ id: 'f1', error: null, detail: '', success: true, errors: [], code: 0 }],
    [{ id: 'f1', success: true, message: 'The flow was created.' }, { words: '/message' }],
    [{ id: 'f1', parameters: { error: BALANCE, success: false }, template: 'balance' }],
    [{ id: 'f1', state: 'running', note: BALANCE }, { outOfCredit: [{ status: 200, says: 'balance' }] }],
    [{ id: 'f1', template: 'balance' }, { outOfCredit: [{ status: 200, says: 'balance' }] }],
  ])('is the one that an answer without an error names: %j, %j', async (body, errors) => {
    expect(await creationOf(body, errors)).toEqual({ flowId: 'f1' });
  });

  const afterTheRequest = (answer: string | null) =>
    scriptedRaw((socket) => {
      let received = '';
      socket.on('data', (data) => {
        received += data;
        if (!received.endsWith('}]}')) return;
        if (answer === null) socket.resetAndDestroy();
        else socket.end(answer);
      });
    });

  it.each([
    ['nothing, and the connection breaks', null],
    ['nothing, and the connection ends', ''],
    ['half a head', 'HTTP/1.1 201 Cre'],
    ['no HTTP', 'what?\r\n\r\n'],
    ['a success that is cut', 'HTTP/1.1 201 Created\r\nContent-Length: 20\r\n\r\n{"flow_id":"f1"'],
  ])('is in doubt if the response is %s', async (_, answer) => {
    await using server = await afterTheRequest(answer);
    const error = await failureOf(operations.create(clientOf(server.url)));
    expect(error).toMatchObject({ name: 'InDoubtError', cause: expect.any(Error) });
  });

  it.each([
    ['Content-Length: 20', '{"flow_id":"f1"}', 'end'],
    ['Content-Length: 20', '{"flow_id":"f1"}', 'resetAndDestroy'],
    ['Transfer-Encoding: chunked', '10\r\n{"flow_id":"f1"}\r\n', 'end'],
    ['Transfer-Encoding: chunked', '10\r\n{"flow_id":"f1"}\r\n', 'resetAndDestroy'],
  ] as const)(
    'is not in doubt if its JSON is whole, although the answer breaks off: %s, %s, %s',
    async (header, text, end) => {
      await using server = await scriptedRaw((socket) =>
        socket.on('data', async (data) => {
          if (!String(data).endsWith('}]}')) return;
          socket.write(`HTTP/1.1 201 Created\r\n${header}\r\n\r\n${text}`);
          await systemClock.sleep(50);
          socket[end]();
        }),
      );
      expect(await operations.create(clientOf(server.url))).toEqual({ flowId: 'f1' });
    },
  );

  it('is in doubt if the signal aborts the question whether a 403 is about the token', async () => {
    const controller = new AbortController();
    const transport: Transport = async ({ method, body }) => {
      if (body !== undefined) await collect(body.chunks);
      if (method === 'GET') {
        controller.abort(new Error('out of time'));
        throw controller.signal.reason;
      }
      return { status: 403, headers: {}, body: streamed([Buffer.from('{"message":"Forbidden"}')]), destroy() {} };
    };
    const creating = clientOf(PUBLIC, { transport }).create(requestOf(sourceOf('hi')), controller.signal);
    expect(await failureOf(creating)).toMatchObject({ name: 'InDoubtError' });
  });

  it('is in doubt if the signal aborts the wait for the response, and if no response comes in time', async () => {
    const reason = new Error('out of time');
    await using server = await scripted(() => {});
    const controller = new AbortController();
    const given = failureOf(clientOf(server.url).create(requestOf(sourceOf('hi')), controller.signal));
    await until(() => server.requests.length === 1);
    await systemClock.sleep(20);
    controller.abort(reason);
    expect(await given).toMatchObject({ name: 'InDoubtError', cause: { cause: reason } });

    const service = { ...FLOWS, create: { ...FLOWS.create, answerSeconds: 0.02 } };
    const late = await failureOf(operations.create(clientOf(server.url, { service })));
    expect(late).toMatchObject({ name: 'InDoubtError', cause: { timedOut: true } });
  });

  it('is known by its flow_id or its id, which may be a number', async () => {
    for (const [body, flowId] of [
      ['{"flow_id":"f1","id":"other"}', 'f1'],
      ['{"id":"f1"}', 'f1'],
      ['{"flow_id":7}', '7'],
      ['{"flow_id":-1}', '-1'],
      ['{"flow_id":9007199254740991}', '9007199254740991'],
      ['{"flow_id":0,"id":"other"}', '0'],
      ['{"flow_id":"a/../b?c#d"}', 'a/../b?c#d'],
    ]) {
      await using server = await scripted((request, response) => json(request, response, body, 202));
      expect(await operations.create(clientOf(server.url))).toEqual({ flowId });
    }
  });
});

describe('a flow that was certainly not created', () => {
  it('because no server listened is not the fault of the file', async () => {
    const closed = await scripted(() => {});
    await closed[Symbol.asyncDispose]();
    const source = sourceOf('hi');
    const error = await failureOf(clientOf(closed.url).create(requestOf(source), never));
    expect(error).toMatchObject({ name: 'UnavailableError', bodyStarted: false });
    expect(source.opened).toBe(0);
  });

  it('because the connection broke within the body is unavailable, and the input is released', async () => {
    await using server = await scriptedRaw((socket) => socket.once('data', () => socket.resetAndDestroy()));
    const source = largeSource(500 * MIB);
    const error = await failureOf(clientOf(server.url).create(requestOf(source), never));
    expect(error).toMatchObject({ name: 'UnavailableError', bodyStarted: true });
    await until(() => source.isClosed);
    expect(source.taken).toBeLessThan(500 * MIB);
  });

  it("because the input failed throws the input's own error, and the request never completes", async () => {
    let isWhole = false;
    await using server = await scripted((request) => {
      request
        .on('error', () => {})
        .on('end', () => {
          isWhole = true;
        });
      request.resume();
    });
    const failure = new Error('the object is gone');
    const failing = (after: number): InputSource => ({
      bytes: 300_000,
      async open() {
        if (after === 0) throw failure;
        return (async function* () {
          yield Buffer.alloc(after);
          throw failure;
        })();
      },
    });
    for (const after of [0, 10, 250_000, 300_000]) {
      expect(await failureOf(clientOf(server.url).create(requestOf(failing(after)), never))).toBe(failure);
    }
    await until(() => server.open.size === 0);
    expect(isWhole).toBe(false);
  });

  it('because the text is invalid fails before a connection is made', async () => {
    await using server = await scripted(() => {});
    const source = { bytes: 1, open: async () => streamed([Buffer.from([0xff])]) };
    const creating = clientOf(server.url).create(requestOf(source, 'text'), never);
    await expect(creating).rejects.toThrow(errors.InvalidTextError);
    expect(server.connections).toBe(0);
  });

  it('because the signal aborted before the last byte rejects with its reason', async () => {
    await using server = await scripted((request) => request.resume());
    const reason = new Error('out of time');
    const controller = new AbortController();
    const source = largeSource(10_000 * MIB);
    const creating = failureOf(clientOf(server.url).create(requestOf(source), controller.signal));
    await until(() => source.taken > MIB);
    controller.abort(reason);
    expect(await creating).toBe(reason);
    await until(() => source.isClosed && server.open.size === 0);
  });
});

describe('an input that stalls', () => {
  it('is released if the response comes first', async () => {
    await using server = await scripted((request, response) => {
      let received = 0;
      request.on('data', (chunk: Buffer) => {
        received += chunk.byteLength;
        if (received < 6 * MIB || response.headersSent) return;
        response.writeHead(413, { 'content-length': '2' });
        response.end('no');
      });
    });
    let isReleased = false;
    const stalled: InputSource = {
      bytes: 10 * MIB,
      open: async (signal) =>
        (async function* () {
          yield Buffer.alloc(5 * MIB);
          await systemClock.sleep(3_600_000, signal).finally(() => {
            isReleased = true;
          });
        })(),
    };
    await expect(clientOf(server.url).create(requestOf(stalled), never)).rejects.toThrow(errors.RejectedError);
    await until(() => isReleased && server.open.size === 0);
  });
});

describe('a flow', () => {
  it.each<[unknown, object]>([
    [
      { flow_id: 'f1', state: 'running' },
      { state: 'running', word: 'running', isDeclared: true },
    ],
    [{ id: 'f1', state: 'completed' }, { state: 'completed' }],
    [{ id: 'f1', state: 'running', progress: 0.25 }, { progress: 0.25 }],
    [{ id: 'f1', state: 'running', progress: 'half' }, { progress: undefined }],
    [
      { id: 'f1', state: 'failed', error: 'out of memory' },
      { state: 'failed', error: 'out of memory' },
    ],
    [
      { id: 'f1', state: 'failed', error: { code: 7 } },
      { state: 'failed', error: '{"code":7}' },
    ],
    [{ id: 'f1', state: 'failed', error: { message: 'no memory' } }, { error: 'no memory' }],
    [{ id: 'f1', state: 'failed', error: { message: { message: {} } } }, { error: undefined }],
    [{ id: 'f1', state: 'failed', error: { message: { message: 7 } } }, { error: '{"message":{"message":7}}' }],
    ...[0, '', 'None', { code: null }, { code: 0, message: '' }, [], [{ code: null }]].map(
      (error): [unknown, object] => [{ state: 'completed', error }, { error: undefined }],
    ),
    [{ id: 'f1', state: 'failed', error: ['no', 'memory'] }, { error: '["no","memory"]' }],
    [{ id: 'f1', state: 'failed', error: 'x'.repeat(100_000) }, { error: `${'x'.repeat(300)}…` }],
    [{ id: 'f1', state: 'failed', error: null }, { error: undefined }],
    [{ id: 'f1', state: 'aborted' }, { state: 'aborted' }],
    [{ state: 'running' }, { state: 'running' }],
    ...['done', 'Completed', 'succeed', 'canceled'].map((state): [unknown, object] => [
      { state },
      { state: 'running', word: state, isDeclared: false },
    ]),
    [{ id: 'f1', state: 'aborting' }, { state: 'running' }],
    [{ id: 'f1', state: 'created' }, { state: 'running' }],
    [
      { id: 'f1', state: 5 },
      { state: 'running', word: '5', isDeclared: false },
    ],
    [{ state: { toString: 1 } }, { state: 'running', word: '{"toString":1}', isDeclared: false }],
    [{ state: 'x'.repeat(10_000) }, { word: `${'x'.repeat(64)}…`, isDeclared: false }],
    [
      { id: 'f1', state: 'running', created_at: '2026-01-02T04:04:05.5+01:00' },
      { createdAt: Date.UTC(2026, 0, 2, 3, 4, 5, 500) },
    ],
    [
      { id: 'f1', state: 'running', created_at: '2026-01-02 03:04:05.123456' },
      { createdAt: Date.UTC(2026, 0, 2, 3, 4, 5, 123) },
    ],
    [{ id: 'f1', state: 'running', created_at: 1_767_323_045 }, { createdAt: 1_767_323_045_000 }],
    [{ id: 'f1', state: 'running', created_at: 1_767_323_045_000 }, { createdAt: 1_767_323_045_000 }],
    [{ id: 'f1', state: 'running', created_at: 'yesterday' }, { createdAt: undefined }],
    [
      { id: 'f1', state: 'running', created_at: 1e300 },
      { state: 'running', createdAt: 1e300 },
    ],
    [
      { id: 'f1', state: 'running', additional: { flowdrop: { pipeline: 'p', upload: 'u', generation: 3 }, more: [] } },
      { tag: { pipeline: 'p', upload: 'u', generation: 3 } },
    ],
    [{ id: 'f1', state: 'running', additional: { flowdrop: { pipeline: 'p' } } }, { tag: undefined }],
    [{ id: 'f1', state: 'running', additional: 'text' }, { tag: undefined }],
    [{ id: 'f1', state: 'running', additional: [[[]]] }, { tag: undefined }],
  ])('is read from %j', async (body, record) => {
    const { transport } = canned({ status: 200, body: JSON.stringify(body) });
    expect(await clientOf(PUBLIC, { transport }).get('f1', never)).toMatchObject({ flowId: 'f1', ...record });
  });

  it('may be an item of a list, and the error names its members if nothing is declared there', async () => {
    const { transport } = canned({ status: 200, body: '[{"id":"f1","state":"completed"}]' });
    const service = speaking({ create: { id: '/0/id' }, state: { word: '/0/state', completed: ['completed', null] } });
    const flows = clientOf(PUBLIC, { transport, service });
    expect(await operations.create(flows)).toEqual({ flowId: 'f1' });
    expect(await flows.get('f1', never)).toMatchObject({ state: 'completed', isDeclared: true });
    expect(await flows.show('f1', never)).toMatchObject({ word: 'completed' });
    const error = await failureOf(clientOf(PUBLIC, { transport }).get('f1', never));
    expect(error).toMatchObject({ message: expect.stringContaining('the answer has /0/id, /0/state') });
    const empty = clientOf(PUBLIC, { ...canned({ status: 200, body: '[]' }), service });
    expect(await failureOf(empty.get('f1', never))).toMatchObject({ name: 'UnintelligibleAnswerError' });
  });

  it.each([
    [204, ''],
    [200, ''],
    [200, ' \n'],
  ])('cannot be read from an empty answer, and the error says so: %i, %j', async (status, body) => {
    const error = await failureOf(clientOf(PUBLIC, canned({ status, body })).get('f1', never));
    expect(error).toMatchObject({ message: `get: the answer is empty (status ${status})` });
  });

  it.each(['[]', '{"id":"f1"}', '{"id":"f1","state":null}', '{"id":"f1","status":"completed"}', 'null'])(
    'cannot be read from %s, and the error says what is missing',
    async (body) => {
      const { transport } = canned({ status: 200, body });
      const error = await failureOf(clientOf(PUBLIC, { transport }).get('f1', never));
      const has = body.startsWith('{"id"') ? '/id' : 'no members';
      const correct = `(no word for the state at /state: correct "state.word" in the description; the answer has ${has}`;
      const message = expect.stringMatching(new RegExp(`${RegExp.escape(correct)}.*${RegExp.escape(body)}$`));
      expect(error).toMatchObject({ name: 'UnintelligibleAnswerError', message });
    },
  );

  it('is read by the words and pointers of its description', async () => {
    const body = '{"data":{"task":{"status":"SUCCEEDED","at":1767323045,"why":{"text":"none"}},"percent":40}}';
    const { transport } = canned({ status: 200, body });
    const state = {
      ...{ path: '/tasks/{id}', word: ['/status', '/data/task/status'], completed: ['SUCCEEDED'], failed: ['FAILED'] },
      ...{ error: '/data/task/why/text', progress: '/data/percent', createdAt: '/data/task/at' },
    };
    expect(await clientOf(PUBLIC, { transport, service: speaking({ state }) }).get('f1', never)).toMatchObject({
      ...{ state: 'completed', word: 'SUCCEEDED', progress: 40, error: undefined },
      createdAt: 1_767_323_045_000,
    });
  });

  it('is gone after a 404 only if the same operation has succeeded before', async () => {
    const { transport } = canned(
      { status: 404 },
      { status: 200, body: '{"state":"running"}' },
      { status: 404, headers: { age: '9' } }, // A cache has kept it, perhaps from before the flow was made.
      { status: 404 },
      { status: 404 },
      { status: 404 },
    );
    const flows = clientOf(PUBLIC, { transport });
    expect(await failureOf(flows.get('f1', never))).toMatchObject({ knownToBeServed: false });
    await flows.get('f2', never);
    expect(await failureOf(flows.get('f1', never))).toMatchObject({ knownToBeServed: false });
    expect(await failureOf(flows.get('f1', never))).toMatchObject({ knownToBeServed: true });
    expect(await failureOf(flows.outputs('f1', never))).toMatchObject({ knownToBeServed: false });
  });

  it.each(['', '.', '..', 'x'.repeat(257), '\ud800'])('cannot be requested by the id %j', async (id) => {
    const { transport, asked } = canned({ status: 200, body: '{}' });
    const flows = clientOf(PUBLIC, { transport });
    expect(await failureOf(flows.get(id, never))).toMatchObject({ name: 'NotFoundError' });
    expect(await failureOf(flows.outputs(id, never))).toMatchObject({ name: 'NotFoundError' });
    expect(await failureOf(flows.asset('f1', id, never))).toMatchObject({ name: 'NotFoundError' });
    expect(await flows.abort(id, never)).toMatchObject({ name: 'NotFoundError' });
    expect(asked).toEqual([]);
  });
});

describe('the outputs of a flow', () => {
  const outputsIn = async (body: unknown, service = FLOWS) => {
    const { transport } = canned({ status: 200, body: JSON.stringify(body) });
    return clientOf(PUBLIC, { transport, service }).outputs('f1', never);
  };

  it('are all there if they stand in the answer of its state, whatever a second word beside that says', async () => {
    const service = speaking({ outputs: { path: ['/flows/{id}', '/{id}/outputs'] } });
    const outputs = [{ id: 'a' }];
    const more = { assetId: '', status: 'pending', word: 'running', isDeclared: true };
    const ready = { assetId: 'a', status: 'ready' };
    expect(await outputsIn({ outputs, state: 'completed', phase: 'running' }, service)).toEqual([ready]);
    expect(await outputsIn({ outputs, state: 'running', phase: 'completed' }, service)).toEqual([ready, more]);
    expect(await outputsIn({ outputs, phase: 'running' }, service)).toEqual([ready, more]);
    // An output without a word is pending here. A flow without one is not.
    const wordless = speaking({ outputs: { path: '/flows/{id}', ready: ['ready'], pending: [null] } });
    expect(await outputsIn({ outputs: [{ id: 'a', status: 'ready' }] }, wordless)).toEqual([ready]);
  });

  it.each<[unknown, object]>([
    [{ outputs: [{ asset_id: 'a', id: 'b', status: 'ready' }] }, [{ assetId: 'a', status: 'ready' }]],
    [[{ id: 'b' }], [{ assetId: 'b', status: 'ready' }]],
    [[{ id: 5 }], [{ assetId: '5', status: 'ready' }]],
    [[{ id: 'b', status: 'completed' }], [{ assetId: 'b', status: 'ready' }]],
    [[{ id: 'b', status: 'processing' }], [{ assetId: 'b', status: 'pending', word: 'processing', isDeclared: true }]],
    ...['unheard of', 'Completed', 'generated'].map((status): [unknown, object] => [
      [{ id: 'b', status }],
      [{ assetId: 'b', status: 'pending', word: status, isDeclared: false }],
    ]),
    ...[
      ...[{ state: 'processing' }, { Status: 'done' }, { ready: false }, { is_available: false }, { uploaded: false }],
      ...[{ pending: true }, { isProcessing: true }, { progress: 0.4 }, { progress: 40 }, { percent_complete: '99 %' }],
      ...[{ is_ready: 0 }, { done: 'false' }, { pending: 1 }, { isProcessing: 'true' }, { progressPercentage: 40 }],
      ...[{ completion_percentage: 40 }, { percentCompleted: 40 }, { pctComplete: '39.0' }],
    ].map((member): [unknown, object] => {
      const word = Object.entries(member).flat().join(': ');
      return [[{ id: 'b', ...member }], [{ assetId: 'b', status: 'pending', word, isDeclared: false }]];
    }),
    ...[
      ...[{ state: 'completed' }, { ready: true }, { status: 'ready', progress: 0, done: false, pending: true }],
      ...[{ is_ready: 1 }, { done: 'true' }, { pending: 0 }, { isProcessing: 'false' }, { progressPercentage: 100 }],
      ...[{ completed: 40 }, { done: 3 }],
      ...[{ pending: false }, { progress: 100 }, { progress: 1 }, { progress: '100%' }, { progress: 'all' }],
    ].map((member): [unknown, object] => [[{ id: 'b', ...member }], [{ assetId: 'b', status: 'ready' }]]),
    [[{ asset_id: null, status: 'pending' }], [{ assetId: '', status: 'pending', word: 'pending', isDeclared: true }]],
    [{ outputs: null }, []],
    [[{ id: 'b', error: { code: null, message: null } }], [{ assetId: 'b', status: 'ready' }]],
    [[{ id: 'b', status: 'failed' }], [{ assetId: 'b', status: 'failed' }]],
    [[{ id: 'b', state: null, error: null }], [{ assetId: 'b', status: 'ready' }]],
    [[{ id: 'b', status: 'ready', error: false }], [{ assetId: 'b', status: 'ready' }]],
    ...['no error', 'N/A', { code: 0, message: 'success' }, { warning: 'low light' }].map(
      (error): [unknown, object] => [[{ id: 'b', status: 'ready', error }], [{ assetId: 'b', status: 'ready' }]],
    ),
    ...[{}, { status: 'pending' }, { status: 'failed' }, { status: 'unheard of' }].map((word): [unknown, object] => [
      [{ id: 'b', ...word, error: 'no' }],
      [{ assetId: 'b', status: 'failed', error: 'no' }],
    ]),
    [
      [{ id: 'b' }, { id: 'b', status: 'failed' }, { id: 'c' }],
      [
        { assetId: 'b', status: 'ready' },
        { assetId: 'c', status: 'ready' },
      ],
    ],
    [[{ id: 'b', status: 'failed', error: 'no memory' }, { id: 'b' }], [{ assetId: 'b', status: 'ready' }]],
    [
      [
        { id: 'b', status: 'failed' },
        { id: 'b', status: 'pending' },
      ],
      [{ assetId: 'b', status: 'pending', word: 'pending', isDeclared: true }],
    ],
    [
      [
        { id: 'b', node: 9 },
        { id: 'b', node: 9 },
        { id: 'b', node: 12 },
      ],
      [
        { assetId: 'b', status: 'ready' },
        { assetId: 'b (3)', status: 'failed', error: expect.stringContaining('another output under the id b too') },
      ],
    ],
    [{ flow_id: 'f1', outputs: [] }, []],
  ])('are read from %j', async (body, outputs) => {
    expect(await outputsIn(body)).toEqual(outputs);
  });

  it.each<[object, string, readonly string[] | undefined]>([
    [{ languages: ['es', 'fr'] }, '', ['es', 'fr']],
    [{ output_file_id: 'a', error_file_id: 'b' }, '', ['a', 'b']],
    [{ output_file_id: null, error_file_id: 'b' }, '', ['b']],
    [{ output_file_id: null, error_file_id: null }, '', []],
    [{ output_file_id: 7, error_file_id: {} }, '', undefined],
    [{ languages: ['es', 'fr'] }, '/id', undefined],
    [{ output_file_id: 'a' }, '/id', undefined],
  ])('may be ids alone: %j with the pointer %j to the id', async (body, id, ids) => {
    const outputs = { items: ['/languages', '/output_file_id', '/error_file_id'], id, word: null };
    const { transport } = canned({ status: 200, body: JSON.stringify(body) });
    const reading = clientOf(PUBLIC, { transport, service: speaking({ outputs }) }).outputs('f1', never);
    const read = await reading.catch(() => undefined);
    expect(read).toEqual(ids?.map((assetId) => ({ assetId, status: 'ready' })));
  });

  it.each(UNUSABLE_IDS.map((id) => ({ id })))('with the id $id have failed', async ({ id }) => {
    const [output, ...more] = await outputsIn([{ id, status: 'ready' }, { id: 'good' }]);
    expect(output).toMatchObject({
      status: 'failed',
      error: expect.stringMatching(/unusable id|no id at \/asset_id or/),
    });
    expect(output?.error?.length).toBeLessThan(200);
    expect(more).toEqual([{ assetId: 'good', status: 'ready' }]);
  });

  it.each([
    ...['"text"', '{}', '[1]', '[null]', '[[]]', '{"outputs":{}}', '{"outputs":[["a"]]}', 'null'],
    ...['<xml>', ''],
  ])('cannot be read from %j, which the error quotes', async (body) => {
    const { transport } = canned({ status: 200, body });
    const error = await failureOf(clientOf(PUBLIC, { transport }).outputs('f1', never));
    expect(error).toMatchObject({ name: 'UnintelligibleAnswerError', message: expect.stringContaining(body) });
  });

  /** Reads a listing whose pages come from `pageAt`. Returns the outcome and the requested paths. */
  const pagedOutputs = async (pageAt: (pathAndQuery: string) => Page, pages: Json = null) => {
    const { asked, transport } = paged(pageAt);
    const flows = clientOf(PUBLIC, { transport, service: speaking({ outputs: { pages } }) });
    const outcome = await flows.outputs('f1', never).then(
      (outputs) => ({ ids: outputs.map(({ assetId }) => assetId), error: undefined }),
      (error: unknown) => ({ ids: undefined, error }),
    );
    return { ...outcome, asked };
  };
  const OUTPUTS = '/api/flows/f1/outputs';
  const two = [{ id: 'a' }, { id: 'b' }];

  it.each<[string, Json, Page, string]>([
    ['a path', ADDRESS, { body: { outputs: two, next: `${OUTPUTS}?c=x` } }, '?c=x'],
    [
      'its address over http',
      ADDRESS,
      { body: { outputs: two, next: `http://flows.example.com${OUTPUTS}?c=x` } },
      '?c=x',
    ],
    ['a cursor', CURSOR, { body: { outputs: two, next_cursor: 'x/y' } }, '?cursor=x%2Fy'],
    [
      'a cursor further down',
      { by: 'cursor', at: '/meta/pages/after', parameter: 'after' },
      { body: { outputs: two, meta: { pages: { after: 7 } } } },
      '?after=7',
    ],
    ['a Link header', LINK, { body: two, link: `<${OUTPUTS}?c=x>; rel="next"` }, '?c=x'],
  ])('are read from all pages if the next one is named by %s', async (_, pages, first, query) => {
    const { ids, asked } = await pagedOutputs(
      (path) => (path === OUTPUTS ? first : { body: { outputs: [{ id: 'b' }, { id: 'c' }] } }),
      pages,
    );
    expect({ ids, asked }).toEqual({ ids: ['a', 'b', 'c'], asked: [OUTPUTS, `${OUTPUTS}${query}`] });
  });

  it.each<[string, number, object, Json]>([
    ['up to the number that the listing counts', 4, { total: 5 }, NUMBER],
    ['up to the first that is empty', 5, {}, NUMBER],
    ['that begin at 0', 5, {}, { ...NUMBER, first: 0 }],
  ])('are read from numbered pages, %s: %i', async (_, requests, more, pages) => {
    const first = typeof pages === 'object' && pages !== null && 'first' in pages ? 0 : 1;
    const listed = [two, [{ id: 'c' }, { id: 'd' }], [{ id: 'e' }]];
    const { ids, asked } = await pagedOutputs((path) => {
      const number = Number(/page=(\d+)/.exec(path)?.[1] ?? first);
      return { body: { outputs: listed[number - first] ?? [], ...more } };
    }, pages);
    expect(ids).toEqual(['a', 'b', 'c', 'd', 'e']);
    expect(asked).toHaveLength(requests);
  });

  it.each<[string, object]>([
    ['next_page_token', { next_page_token: 'x' }],
    ['nextPageToken', { nextPageToken: 'x' }],
    ['_links/next', { _links: { next: { href: '/x' }, self: { href: '/y' } } }],
    ['next', { next: { href: '/x' } }],
    ['page/totalPages', { page: { number: 0, totalPages: 3 } }],
    ['pages', { page: 1, pages: 3 }],
    ['has_more', { has_more: true }],
    ['pagination/hasMore', { pagination: { hasMore: true } }],
    ['meta/continuation', { meta: { continuation: 'x' } }],
    ['is_truncated', { is_truncated: true }],
    ['last', { number: 0, last: false }],
    ['page/isLast', { page: { isLast: false } }],
    ['of', { page: 1, of: 3 }],
    ['pages', { page: '1', pages: '3' }],
    ['@odata.nextLink', { '@odata.nextLink': 'https://flows.example.com/x' }],
    [
      'links',
      {
        links: [
          { rel: 'self', href: '/y' },
          { rel: 'next', href: '/x' },
        ],
      },
    ],
    ['meta/pagination/total_pages', { meta: { pagination: { total_pages: 3 } } }],
    ['meta/paging/cursors', { meta: { paging: { cursors: { after: 'x' } } } }],
    ['incomplete_results', { incomplete_results: true }],
    ['partial', { partial: true }],
    ['done', { done: false }],
    ['number_of_pages', { number_of_pages: 2 }],
    ['remaining', { remaining: 3 }],
    ['pagination/last', { pagination: { current: 1, last: 3 } }],
    ['LastEvaluatedKey', { LastEvaluatedKey: { id: { S: 'b' } } }],
    ['marker', { marker: 'b' }],
    ['scroll_id', { scroll_id: 'x' }],
    ['pageToken', { pageToken: 'x' }],
    ['paging/after', { paging: { after: 'b' } }],
    ['response_metadata/next_cursor', { response_metadata: { next_cursor: 'dXNlcg==' } }],
    ['resultInfo/cursor', { resultInfo: { cursor: 'x' } }],
    ['pageable/hasNext', { pageable: { hasNext: true } }],
    ['pager/pages', { pager: { page: 1, pages: 2 } }],
    ['bookmark', { bookmark: 'g1AAAA' }],
    ['resumptionToken', { resumptionToken: 'x' }],
    ['timed_out', { timed_out: true }],
    ['partialResults', { partialResults: true }],
    ['is_partial', { is_partial: true }],
    ['last', { last: false, total_pages: 1 }],
    ['end_cursor, /has_next_page', { end_cursor: 'x', has_next_page: true }],
    ['next', { next: '/x', has_more: false }],
    ['after', { after: 't3_b', before: null }],
    ['cursors/after, /cursors', { cursors: { after: 'b', before: 'a' } }],
    ['cursors/next, /cursors', { cursors: { next: 'b', previous: null } }],
    ['PaginationToken', { PaginationToken: 'x' }],
    ['offset', { offset: 'itrX/recY' }],
    ['nextPageStart', { nextPageStart: 2 }],
    ['hydra:view/hydra:next', { 'hydra:view': { '@id': '/y', 'hydra:next': '/x' } }],
    ['next_cursor', { next_cursor: 'x', next_page: 0, truncated: false }],
    ['has_more_before', { has_more_before: true }],
    ['limit, as many as are listed', { limit: 2, offset: 0 }],
    ['limit, as many as are listed', { limit: 2, next_check_at: null, cursor: null }],
    ['meta/per_page, as many as are listed', { meta: { per_page: '2' } }],
  ])('are not the whole if %s says that there is more and no form of it is declared', async (where, more) => {
    const { error, asked } = await pagedOutputs(() => ({ body: { outputs: two, ...more } }));
    expect(error).toMatchObject({
      name: 'UnintelligibleAnswerError',
      message: expect.stringContaining(`it says that there is more (/${where}), in a form that is not declared`),
    });
    expect(asked).toEqual([OUTPUTS]);
  });

  it.each<[string, Json, object]>([
    ['beside the list', { items: '/data/list' }, { code: 0, data: { list: two, has_more: true } }],
    ['beside what holds the list', { items: '/data/list' }, { data: { list: two }, paging: { next: 'x' } }],
    ['by a count beside the list', { items: '/data/list' }, { data: { list: two, total: '5' } }],
    ['by an address that is an object', { pages: ADDRESS }, { outputs: two, next: { href: `${OUTPUTS}?c=x` } }],
    ['by a cursor that is an object', { pages: CURSOR }, { outputs: two, next_cursor: { after: 'x' } }],
    [
      'by a cursor of any name that is an object',
      { pages: { ...CURSOR, at: '/position' } },
      { outputs: two, position: { id: 7 } },
    ],
    ...[
      ...[
        'total_outputs',
        'output_count',
        '@odata.count',
        'filesCount',
        'totalRows',
        'full_count',
        'nbHits',
        '__count',
      ],
      ...['odata.count', 'hydra:totalItems', 'opensearch:totalResults', 'num_rows_total', 'total_row_count'],
      ...['numTotalItems', 'record-count', 'hitCount', 'found'],
    ].map((name): [string, Json, object] => [...([`by ${name}`, {}, { outputs: two, [name]: 5 }] as const)]),
    ...['total_generations', 'generation_count'].map((name): [string, Json, object] => [
      ...([`by ${name}`, { items: '/generations' }, { generations: two, [name]: 5 }] as const),
    ]),
    ['by a total that is more than a count of the page', {}, { outputs: two, count: 2, total: 5 }],
    ['by a count beside totals of other things', {}, { outputs: two, count: 5, total_tokens: 2, constructor: 1 }],
    ['by a count in a summary', {}, { outputs: two, summary: { total_count: 5 } }],
    ['by a count that is an object', {}, { outputs: two, total: { value: 5, relation: 'eq' } }],
    ['by a count of what matched', {}, { outputs: two, numberMatched: 5, numberReturned: 2 }],
    ['by a cursor that only says so', { pages: CURSOR }, { outputs: two, next_cursor: true }],
    ['by more pages than were read', { pages: CURSOR }, { outputs: two, next_cursor: null, total_pages: 2 }],
  ])('are not the whole if the answer says that there is more %s', async (_, outputs, body) => {
    const { transport } = paged(() => ({ body }));
    const reading = clientOf(PUBLIC, { transport, service: speaking({ outputs }) }).outputs('f1', never);
    expect(await failureOf(reading)).toMatchObject({
      name: 'UnintelligibleAnswerError',
      message: expect.stringMatching(/it says that there is more|counts 5 entries but shows 2/),
    });
  });

  it.each<[number, Record<string, string>]>([
    [200, { 'x-next-page': '2' }],
    [200, { 'x-total-count': '5' }],
    [200, { 'x-total-pages': '3' }],
    [200, { 'x-wp-totalpages': '3' }],
    [200, { 'x-wp-total': '5' }],
    [200, { 'total-count': '5' }],
    [200, { 'x-pagination-total-count': '5' }],
    [200, { 'x-pagination-page-count': '3' }],
    [200, { 'x-result-count': '5' }],
    [200, { 'x-count': '5' }],
    [200, { 'x-number-of-pages': '3' }],
    [200, { 'x-marker': 'b' }],
    [200, { 'x-pagination': '{"TotalCount":5,"TotalPages":1}' }],
    [200, { 'x-pagination': '{"CurrentPage":1,"TotalPages":3}' }],
    [200, { 'x-ms-continuation': 'abc' }],
    [200, { 'x-ms-continuation-nextpartitionkey': '1!8' }],
    [200, { 'x-next-page-token': 'x' }],
    [200, { 'x-nomad-nexttoken': 'x' }],
    [200, { total_matches: '5' }],
    [200, { 'x-has-next-page': 'true' }],
    [200, { 'next-range': 'id a2..' }],
    [206, { 'content-range': 'items 0-1/5' }],
    [200, { 'content-range': 'items 0-1/5' }],
    [206, { 'content-range': '0-1/*' }],
  ])('are not the whole if the status %i and the headers %j say so', async (status, headers) => {
    const { error } = await pagedOutputs(() => ({ body: { outputs: two }, status, headers }));
    expect(error).toMatchObject({
      name: 'UnintelligibleAnswerError',
      message: expect.stringMatching(/\(the (?:header|status) [\w-]+(?:\/TotalPages)?\)|counts 5 entries but shows 2/),
    });
  });

  const FAILED = 'storage timeout: 3 of 5 outputs could not be listed';
  it.each<[string, object, Json]>([
    ['/error', { outputs: two, error: FAILED }, {}],
    ['/errors', { outputs: two, errors: [{ message: FAILED }] }, {}],
    ['/error_message', { outputs: two, error_code: 0, error_message: FAILED }, {}],
    ['/detail', { outputs: two, detail: FAILED }, {}],
    ['/detail', { outputs: null, detail: FAILED }, {}],
    ['/success', { outputs: two, success: false }, {}],
    ['/success', { outputs: two, success: '0' }, {}],
    ['/is_success', { outputs: two, is_success: 'False' }, {}],
    ['/ok', { outputs: [], ok: false }, {}],
    ['/ok', { outputs: [], ok: 'no' }, {}],
    ['/error', { data: { list: two }, error: FAILED }, { outputs: { items: '/data/list' } }],
    ['/data/success', { data: { list: two, success: false } }, { outputs: { items: '/data/list', pages: NONE } }],
    ['/msg', { outputs: two, code: 5001, msg: FAILED }, { errors: { words: '/msg' } }],
    ['/status', { outputs: two, status: 'error' }, {}],
    ['/code', { outputs: two, code: 503, message: FAILED }, {}],
  ])('cannot be read if their list says by %s that it failed: %j', async (place, body, changes) => {
    const reading = clientOf(PUBLIC, { ...paged(() => ({ body })), service: speaking(changes) }).outputs('f1', never);
    expect(await failureOf(reading)).toMatchObject({
      name: 'UnintelligibleAnswerError',
      isOwnError: true,
      message: expect.stringContaining(`the answer says that it failed (${place})`),
    });
  });

  it.each<[object, Json]>([
    [{ outputs: two, error: null, errors: [], success: true, ok: 1, detail: '' }, {}],
    [{ outputs: two, error: { code: 0, message: 'Success' }, errors: {}, err: 'ok' }, {}],
    [{ outputs: two, warnings: ['low light'], error_count: 0, failed: 1, status: 'completed' }, {}],
    [{ outputs: two, success: true, msg: 'Two files were found.' }, { errors: { words: '/msg' } }],
    [{ outputs: two, success: '1', msg: 'Two files were found.' }, { errors: { words: '/msg' } }],
    [{ outputs: two, ok: 'Yes', msg: 'Two files were found.' }, { errors: { words: '/msg' } }],
    [{ outputs: two, code: 0, msg: 'Two files were found.' }, { errors: { words: '/msg' } }],
    [{ outputs: [two[0]], errors: [two[1]] }, { outputs: { items: ['/outputs', '/errors'] } }],
    [{ list: { error: two } }, { outputs: { items: '/list/error' } }],
    [{ outputs: two, status: 'failed', code: 1, result: null }, {}],
  ])('are read from a list that says of no failure: %j', async (body, changes) => {
    const flows = clientOf(PUBLIC, { ...paged(() => ({ body })), service: speaking(changes) });
    expect(await flows.outputs('f1', never)).toHaveLength(2);
  });

  it.each(['running', 'processing'])('are not the whole if the list says that the flow is %s', async (status) => {
    const { transport } = paged(() => ({ body: { status, outputs: two } }));
    expect(await clientOf(PUBLIC, { transport }).outputs('f1', never)).toEqual([
      { assetId: 'a', status: 'ready' },
      { assetId: 'b', status: 'ready' },
      { assetId: '', status: 'pending', word: status, isDeclared: true },
    ]);
  });

  it('are those of all lists that are there, also if two of them have an output', async () => {
    const service = speaking({ outputs: { items: ['/outputs/images', '/outputs/videos', '/results'] } });
    const read = (body: object) => clientOf(PUBLIC, { ...paged(() => ({ body })), service }).outputs('f1', never);
    const outputs = { images: two, videos: [{ id: 'b' }, { id: 'c' }] };
    expect((await read({ outputs })).map(({ assetId }) => assetId)).toEqual(['a', 'b', 'c']);
    expect(await read({ outputs: { images: null, videos: two } })).toHaveLength(2);
    expect(await read({ results: two })).toHaveLength(2);
    expect(await failureOf(read({ outputs, total: 5 }))).toMatchObject({ message: expect.stringContaining('shows 4') });
  });

  it('may be one, in place of a list or as the flow itself', async () => {
    const read = (body: object, items: Json, more: object = {}) => {
      const service = speaking({ outputs: { items, ...more } });
      return clientOf(PUBLIC, { ...paged(() => ({ body })), service }).outputs('f1', never);
    };
    const video = { id: 'v1', object: 'video', status: 'completed', error: null, progress: 100 };
    expect(await read(video, '')).toEqual([{ assetId: 'v1', status: 'ready' }]);
    expect(await read({ data: { ...video, status: 'processing' } }, '/data')).toMatchObject([{ status: 'pending' }]);
    expect(await read({ id: 'v1' }, '', { word: null })).toEqual([{ assetId: 'v1', status: 'ready' }]);
    for (const [body, items] of [
      [{ status: 'completed' }, ''],
      [video, ['/outputs', '']],
      [{ error: 'Not now', id: 'request-7' }, ''],
      // Without the word that an output has, the id may be that of the request or of the flow.
      [{ data: { error: 'Not now', id: 'request-7' } }, '/data'],
      [{ id: 'f1', outputs: two }, ''],
    ] as const) {
      expect(await failureOf(read(body, items))).toMatchObject({ name: 'UnintelligibleAnswerError' });
    }
  });

  it('are one page if that is declared, whatever it says', async () => {
    const body = { outputs: two, next: 'Fetch the files.', total: 9, last: false };
    const { ids } = await pagedOutputs(() => ({ body, headers: { 'x-total-pages': '3' } }), { by: 'none' });
    expect(ids).toEqual(['a', 'b']);
  });

  it('are not the whole if a Link header leads on and none is declared', async () => {
    const { error } = await pagedOutputs(() => ({ body: two, link: `<${OUTPUTS}?c=x>; rel="next"` }));
    expect(error).toMatchObject({ message: expect.stringContaining('(the header Link)') });
  });

  it.each<[string, unknown]>([
    ['a list', two],
    ['an object', { outputs: two }],
    ['all that are counted', { outputs: two, total: 2 }],
    ['all that are counted, one of them twice', { outputs: [...two, { id: 'b' }], total: 3 }],
    ['the last of all pages', { outputs: two, last: true, page: 1, of: '1', pages: { next: '' }, total: '2' }],
    [
      'all that another count has',
      {
        outputs: two,
        output_count: 2,
        '@odata.count': '2',
        remaining: 0,
        marker: '',
        pagination: { last: 1, after: null },
      },
    ],
    ['the last page, with the cursor of its end', { outputs: two, pageInfo: { endCursor: 'x', hasNextPage: false } }],
    ['the last page, with a token and the number of pages', { outputs: two, last: true, total_pages: 1, marker: 'b' }],
    ['the last page, with a token', { outputs: two, last: true, page_token: 'x', limit: 2 }],
    ['a page that is not full', { outputs: two, limit: 3, offset: 0 }],
    ['a full page that counts them all', { outputs: two, limit: 2, total: 2 }],
    ['all that are counted, with the size of a page', { outputs: two, paging: { count: 100, total: 2, pages: 1 } }],
    [
      'all that are counted, with the numbers of the first and the last',
      { outputs: two, pagination: { first: 1, last: 2, page_count: 1, total_count: 2 } },
    ],
    ['a page with a price', { outputs: two, total: 12.5 }],
    ['a full page without a next one', { outputs: two, per_page: 2, next_page_url: null }],
    ['the last page, with ways back', { outputs: two, prev_cursor: 'x', previous_page_token: 'x', next_cursor: null }],
    ['the last page, with cursors back', { outputs: two, cursors: { next: null, previous: 'x' }, startCursor: 'x' }],
    ['the last page, with the words for none', { outputs: two, next_cursor: '0', hasNextPage: 'false', next_page: -1 }],
    ['the last page, with a cursor and a 0', { outputs: two, cursor: 162, has_more: 0 }],
    ['the last page, with a cursor and a word of Python', { outputs: two, cursor: 'x', has_more: 'False' }],
    ['the last page, with a cursor and an N', { outputs: two, cursor: 'x', hasMore: 'N' }],
    [
      'a page among counts of other things',
      { outputs: two, usage: { total: 9 }, info: { total_seconds: 9 }, steps: 9, matches: 9 },
    ],
    ['the last page', { outputs: two, next: null, has_more: false, _links: { next: null }, meta: { pages: 1 } }],
  ])('are complete if they come as %s, and no other page is requested', async (_, body) => {
    const { ids, asked } = await pagedOutputs(() => ({ body }));
    expect({ ids, asked }).toEqual({ ids: ['a', 'b'], asked: [OUTPUTS] });
  });

  it.each<Record<string, string>>([
    { 'x-has-more': '0', 'x-next-page': 'null' },
    { 'x-hits': '9', 'x-total-size': '9' },
    {
      'x-has-next': 'false',
      'x-nextjs-cache': 'HIT',
      'x-next-router-state': 'a',
      'x-ratelimit-remaining': '9',
      'x-retry-count': '9',
    },
  ])('are complete if the headers are %j', async (headers) => {
    expect((await pagedOutputs(() => ({ body: { outputs: two }, headers }))).ids).toEqual(['a', 'b']);
  });

  it('are complete if a partial content is all that it counts', async () => {
    const headers = { 'content-range': 'items 0-1/2' };
    const { ids } = await pagedOutputs(() => ({ body: { outputs: two }, status: 206, headers }));
    expect(ids).toEqual(['a', 'b']);
  });

  it.each([false, 0])('end where a page has nothing new, and says with %j that there is no more', async (has_more) => {
    const { ids, asked } = await pagedOutputs(
      (path) => ({ body: { outputs: path === OUTPUTS ? two : [], has_more, next_cursor: `${path.length}` } }),
      CURSOR,
    );
    expect({ ids, asked: asked.length }).toEqual({ ids: ['a', 'b'], asked: 2 });
  });

  it('are read, whatever is nested in a header', async () => {
    const headers = { 'content-type': 'image/png', pagination: `{"next":${nested(20_000)}}` };
    const listed = clientOf(PUBLIC, canned({ status: 200, headers, body: JSON.stringify({ outputs: two }) }));
    expect((await listed.outputs('f1', never)).map(({ assetId }) => assetId)).toEqual(['a', 'b']);
    const stored = clientOf(PUBLIC, canned({ status: 200, headers, body: 'x' }));
    expect(await stored.asset('f1', 'a', never)).toMatchObject({ mediaType: 'image/png' });
  });

  it('are read in linear time from a list beside many counts', async () => {
    const many = Object.fromEntries(Array.from({ length: 120_000 }, (_, index) => [`count${index}`, 1]));
    const from = process.cpuUsage();
    expect((await pagedOutputs(() => ({ body: { outputs: two, ...many } }))).ids).toEqual(['a', 'b']);
    const { user, system } = process.cpuUsage(from);
    // Far more than linear time takes of the processor, and far less than quadratic.
    expect((user + system) / 1_000).toBeLessThan(20_000);
  });

  it('end there too if it names itself by an address', async () => {
    const { ids } = await pagedOutputs(
      (path) => ({ body: { outputs: path === OUTPUTS ? two : [], last: true, next: `${OUTPUTS}?c=${path.length}` } }),
      ADDRESS,
    );
    expect(ids).toEqual(['a', 'b']);
  });

  it('are complete on a full page without a next one where pages are declared', async () => {
    const { ids } = await pagedOutputs(() => ({ body: { outputs: two, limit: 2 } }), CURSOR);
    expect(ids).toEqual(['a', 'b']);
  });

  it('end there too if a Link names the pages', async () => {
    const { ids } = await pagedOutputs(
      (path) => ({
        body: { outputs: path === OUTPUTS ? two : [], has_more: false },
        link: `<${OUTPUTS}?c=${path.length}>; rel="next"`,
      }),
      LINK,
    );
    expect(ids).toEqual(['a', 'b']);
  });

  it('are read to the end of the declared pages, whatever has_more says before', async () => {
    const { ids } = await pagedOutputs(
      (path) => ({
        body: path === OUTPUTS ? { outputs: two, has_more: false, next_cursor: 'x' } : { outputs: [{ id: 'c' }] },
      }),
      CURSOR,
    );
    expect(ids).toEqual(['a', 'b', 'c']);
  });

  it.each<[string, Json, object]>([
    ['a cursor back', CURSOR, { next_cursor: null, prev_cursor: 'w' }],
    ['cursors back', ADDRESS, { next: null, cursors: { next: null, previous: 'w' } }],
    [
      'another cursor back',
      { ...CURSOR, at: '/info/cursors/after' },
      { info: { cursors: { after: '', before: 'w' } } },
    ],
  ])('are complete after a last page with %s', async (_, pages, more) => {
    const start = { next_cursor: 'x', next: `${OUTPUTS}?c=x`, info: { cursors: { after: 'x', before: '' } } };
    const declared = Object.entries(start).filter(([name]) => name in more);
    const { ids } = await pagedOutputs(
      (path) => ({
        body:
          path === OUTPUTS ? { outputs: two, ...Object.fromEntries(declared) } : { outputs: [{ id: 'c' }], ...more },
      }),
      pages,
    );
    expect(ids).toEqual(['a', 'b', 'c']);
  });

  const thenRefused =
    (status: number) =>
    (path: string): Page =>
      path === OUTPUTS ? { body: { outputs: two, next_cursor: 2 } } : { status, body: 'no' };
  it.each<[string, Json, (path: string) => Page]>([
    ['are counted and not shown', null, () => ({ body: { outputs: two, total: 5 } })],
    ['are counted and not shown to the end', CURSOR, () => ({ body: { outputs: two, next_cursor: null, total: 5 } })],
    ['come again and again', CURSOR, () => ({ body: { outputs: two, next_cursor: 'x' } })],
    ['come again at each number', NUMBER, () => ({ body: { outputs: two } })],
    ['are on another origin', ADDRESS, () => ({ body: { outputs: two, next: 'https://other.example.com/api/flows' } })],
    ['are rejected', CURSOR, thenRefused(422)],
    ['are not found', CURSOR, thenRefused(404)],
  ])('that %s make reading fail', async (_, pages, pageAt) => {
    const { error, asked } = await pagedOutputs(pageAt, pages);
    expect(error).toMatchObject({
      name: 'UnintelligibleAnswerError',
      message: expect.stringContaining('not all outputs can be listed'),
    });
    expect(asked.every((path) => path.startsWith(OUTPUTS))).toBe(true);
    expect(asked.length).toBeLessThanOrEqual(6);
  });

  it('are read from a limited number of pages', async () => {
    let number = 0;
    const { error, asked } = await pagedOutputs(() => {
      number += 1;
      return { body: { outputs: [{ id: `a${number}` }], next_cursor: `c${number}` } };
    }, CURSOR);
    expect(error).toMatchObject({ name: 'UnintelligibleAnswerError' });
    expect(asked.length).toBe(OUTPUT_PAGES_MAX);
    const many = Array.from({ length: OUTPUTS_MAX + 1 }, (_, index) => ({ id: `a${index}` }));
    const crowd = await pagedOutputs(() => ({ body: { outputs: many, next_cursor: 'x' } }), CURSOR);
    expect(crowd.error).toMatchObject({ name: 'UnintelligibleAnswerError' });
  });

  it('that are throttled on a later page are throttled', async () => {
    const { error } = await pagedOutputs(
      (path) => (path === OUTPUTS ? { body: { outputs: two, next_cursor: 'x' } } : { status: 429, body: 'slower' }),
      CURSOR,
    );
    expect(error).toMatchObject({ name: 'ThrottledError' });
  });

  it('are requested at either path, and then at the one that succeeded', async () => {
    for (const [served, status] of [
      ['/flows/f1/outputs', 404],
      ['/f1/outputs', 404],
      ['/f1/outputs', 405],
    ] as const) {
      await using server = await scripted((request, response) => {
        const path = request.url?.replace(/f\d/, 'f1');
        return path === served && !request.url?.includes('f9')
          ? json(request, response, [{ id: 'a' }])
          : json(request, response, {}, status);
      });
      const flows = clientOf(server.url);
      expect(await flows.outputs('f1', never)).toHaveLength(1);
      const before = server.requests.length;
      expect(await flows.outputs('f2', never)).toHaveLength(1);
      expect(server.requests.length).toBe(before + 1);
      const gone = await failureOf(flows.outputs('f9', never));
      if (status === 404) expect(gone).toMatchObject({ name: 'NotFoundError', knownToBeServed: true });
    }
  });

  it('are not served only if both paths say so', async () => {
    const told = async (...statuses: number[]) => {
      const { transport, asked } = canned(...statuses.map((status) => ({ status })));
      const error = await failureOf(clientOf(PUBLIC, { transport }).outputs('f1', never));
      expect(asked.length).toBe(statuses.length);
      return error;
    };
    expect(await told(404, 404)).toMatchObject({ name: 'NotFoundError', knownToBeServed: false });
    expect(await told(405, 404)).toMatchObject({ name: 'NotFoundError', knownToBeServed: false });
    expect(await told(404, 501)).toMatchObject({ name: 'NotFoundError', knownToBeServed: false });
    expect(await told(405, 501)).toMatchObject({ name: 'NotServedError' });
    expect(await told(409)).toMatchObject({ name: 'NotReadyError' });
  });

  it('are requested at one path only if one is declared', async () => {
    for (const [declared, path] of [
      ['/flows/{id}/outputs', '/flows/f1/outputs'],
      ['/{id}/outputs', '/f1/outputs'],
    ] as const) {
      await using server = await scripted((request, response) => json(request, response, {}, 404));
      await failureOf(
        clientOf(server.url, { service: speaking({ outputs: { path: declared } }) }).outputs('f1', never),
      );
      expect(server.requests.map(({ url }) => url)).toEqual([path]);
    }
  });
});

it.each(['outputs', 'templates'] as const)(
  'no further page of %s is read after a minute of slow answers',
  async (what) => {
    const clock = new StillClock();
    const { asked, transport } = paged((_, index) => {
      clock.pass(19_000);
      return { body: { [what]: [{ id: `${index}` }], next_cursor: `${index}` } };
    });
    const flows = clientOf(PUBLIC, {
      transport,
      clock,
      service: speaking({ outputs: { pages: CURSOR }, templates: { pages: CURSOR } }),
    });
    const error = await failureOf(what === 'outputs' ? flows.outputs('f1', never) : flows.templates(never));
    expect(error).toBeInstanceOf(errors.TooSlowError);
    expect(asked).toHaveLength(4);
  },
);

describe('a JSON response', () => {
  it('may not be endless', async () => {
    await using server = await scripted((_, response) => {
      response.writeHead(200);
      const more = () => {
        while (!response.destroyed && response.write('['.repeat(65_536)));
        if (!response.destroyed) response.once('drain', more);
      };
      return more();
    });
    await expect(clientOf(server.url).get('f1', never)).rejects.toThrow(errors.UnintelligibleAnswerError);
    await until(() => server.open.size === 0);
  });

  it('may have as many lines of a log as a listing has entries, whatever it answers', async () => {
    const logs = Array.from({ length: 40_000 }, (_, line) => `step ${line} of 40000`);
    const { transport } = canned({ status: 200, body: JSON.stringify({ logs, flow_id: 'f1', state: 'completed' }) });
    const flows = clientOf(PUBLIC, { transport });
    expect(await operations.create(flows)).toEqual({ flowId: 'f1' });
    expect(await flows.get('f1', never)).toMatchObject({ state: 'completed' });
    expect(await flows.abort('f1', never)).toBeUndefined();
  });

  it('may be nested as deep as the description allows, and no deeper', async () => {
    const body = (levels: number) =>
      `{"state":"running","additional":${'['.repeat(levels - 1)}${']'.repeat(levels - 1)}}`;
    await using server = await scripted(({ url }, response) => response.end(body(url?.endsWith('deeper') ? 61 : 60)));
    const flows = clientOf(server.url, { service: speaking({ answerDepthMax: 60 }) });
    expect(await flows.get('f1', never)).toMatchObject({ flowId: 'f1' });
    await expect(flows.get('deeper', never)).rejects.toThrow(errors.UnintelligibleAnswerError);
  });

  it('may have brackets in its strings, and a byte order mark', async () => {
    const body = `\uFEFF{"id":"f1","state":"running","more":"${'['.repeat(500)}\\"[","deep":${'['.repeat(90)}${']'.repeat(90)}}`;
    await using server = await scripted((_, response) => response.end(body));
    expect(await clientOf(server.url).get('f1', never)).toMatchObject({ flowId: 'f1' });
  });

  it.each([
    '{"state":"completed","score":NaN,"all":[-Infinity,Infinity,NaN]}',
    '{"score":NaN,"name":"NaN: \\"NaN, \\\\","state":"completed"}',
    '{"state":"completed","seed":12345678901234567890,"score":NaN}',
  ])('may have what Python writes for numbers that JSON cannot say: %s', async (body) => {
    const { transport } = canned({ status: 200, body });
    expect(await clientOf(PUBLIC, { transport }).get('f1', never)).toMatchObject({ state: 'completed' });
  });

  it('has its texts as they are, also those that say NaN', async () => {
    const { transport } = canned({ status: 200, body: '{"state":"a NaN, \\"-Infinity","x":NaN}' });
    expect(await clientOf(PUBLIC, { transport }).get('f1', never)).toMatchObject({ word: 'a NaN, "-Infinity' });
  });

  it.each(['{"state":NaN}', '{"state":"running",NaN}', '{"state":"running","x":aNaN}', '{"state":"running","x":+NaN}'])(
    'is none if it is %s',
    async (body) => {
      const { transport } = canned({ status: 200, body });
      await expect(clientOf(PUBLIC, { transport }).get('f1', never)).rejects.toThrow(errors.UnintelligibleAnswerError);
    },
  );

  it.each(['"', '\\', '\\"', '"NaN', 'NaN', '-'])('that is 8 MiB of %s takes linear time', (piece) => {
    const text = piece.repeat((8 * MIB) / piece.length);
    const from = process.cpuUsage();
    expect(() => parsedJson(text)).toThrow(SyntaxError);
    const { user, system } = process.cpuUsage(from);
    // Far more than linear time takes of the processor, and far less than quadratic.
    expect((user + system) / 1_000).toBeLessThan(20_000);
  });

  it('may have bytes that are no UTF-8, but no id, address or cursor with one', async () => {
    const latin = (text: string) => canned({ status: 200, body: Buffer.from(text, 'latin1') });
    const named = latin('{"state":"completed","name":"caf\xe9"}');
    expect(await clientOf(PUBLIC, named).get('f1', never)).toMatchObject({ state: 'completed' });
    const created = operations.create(clientOf(PUBLIC, latin('{"flow_id":"caf\xe9"}')));
    expect(await failureOf(created)).toMatchObject({ name: 'InDoubtError', isAccepted: true });
    expect(await clientOf(PUBLIC, latin('[{"id":"caf\xe9"},{"id":"b"}]')).outputs('f1', never)).toMatchObject([
      { status: 'failed', error: expect.stringContaining('unusable id') },
      { assetId: 'b', status: 'ready' },
    ]);
    const service = speaking({ outputs: { addresses: ['/output'], isWhole: true } });
    const linked = clientOf(PUBLIC, { ...latin('{"output":"https://cdn.example/caf\xe9.png"}'), service });
    expect(await linked.outputs('f1', never)).toMatchObject([{ status: 'failed' }]);
    const more = latin('{"outputs":[{"id":"a"}],"next_cursor":"caf\xe9"}');
    const reading = clientOf(PUBLIC, { ...more, service: speaking({ outputs: { pages: CURSOR } }) }).outputs(
      'f1',
      never,
    );
    expect(await failureOf(reading)).toMatchObject({ message: expect.stringContaining('says that there is more') });
    expect(more.asked).toHaveLength(1);
  });

  it.each<[string, (plain: string) => Buffer]>([
    ['gzip', gzipSync],
    ['br', brotliCompressSync],
  ])('may have the Content-Encoding %s, also as an error', async (encoding, compress) => {
    const headers = { 'content-type': 'application/json', 'content-encoding': encoding };
    const { transport } = canned(
      { status: 200, headers, body: compress('{"state":"failed"}') },
      { status: 422, headers, body: compress('{"detail":"No such thing"}') },
    );
    const flows = clientOf(PUBLIC, { transport });
    expect(await flows.get('f1', never)).toMatchObject({ state: 'failed' });
    await expect(flows.get('f1', never)).rejects.toThrow('No such thing');
  });

  it.each(['utf-8', 'aws-chunked'])('may have the Content-Encoding %s, which is none', async (encoding) => {
    const { transport } = canned({
      status: 200,
      headers: { 'content-encoding': encoding },
      body: '{"state":"failed"}',
    });
    expect(await clientOf(PUBLIC, { transport }).get('f1', never)).toMatchObject({ flowId: 'f1' });
  });

  it('that breaks off is unavailable', async () => {
    await using server = await scriptedRaw((socket) =>
      socket.once('data', () => socket.end('HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{"state":"failed"')),
    );
    await expect(clientOf(server.url).get('f1', never)).rejects.toThrow(errors.UnavailableError);
  });
});

describe('an asset', () => {
  const read = async (flows: FlowService, signal = never) => {
    const asset = await flows.asset('f1', 'a1', signal);
    return { mediaType: asset.mediaType, text: (await collect(asset.chunks)).toString() };
  };

  it('comes as it is or from its envelope, with its media type', async () => {
    const answers = [
      { status: 200, headers: { 'content-type': 'model/gltf-binary' }, body: 'glTF' },
      { status: 200, body: 'glTF' },
      { status: 200, body: 'text' },
      { status: 200, headers: { 'content-type': 'application/json' }, body: '{"data":"data:image/png;base64,aGk="}' },
    ];
    const { transport } = canned(...answers);
    const flows = clientOf(PUBLIC, { transport });
    expect(await read(flows)).toEqual({ mediaType: 'model/gltf-binary', text: 'glTF' });
    expect(await read(flows)).toEqual({ mediaType: 'model/gltf-binary', text: 'glTF' });
    expect(await read(flows)).toEqual({ mediaType: 'application/octet-stream', text: 'text' });
    expect(await read(flows)).toEqual({ mediaType: 'image/png', text: 'hi' });
  });

  it.each<[string, (plain: Buffer) => Buffer]>([
    ['gzip', gzipSync],
    ['GZIP', gzipSync],
    ['x-gzip', gzipSync],
    ['gzip,aws-chunked', gzipSync],
    ['utf-8, br', brotliCompressSync],
    ['br', brotliCompressSync],
  ])('with the Content-Encoding %s comes without it, raw and in its envelope', async (encoding, compress) => {
    const sent = (type: string, plain: string, headers = {}) => ({
      status: 200,
      headers: { 'content-type': type, 'content-encoding': encoding, ...headers },
      body: compress(Buffer.from(plain)),
    });
    const { transport } = canned(
      sent('model/gltf-binary', 'glTF'.repeat(50_000)),
      sent('application/json', '{"data":"data:image/png;base64,aGk="}'),
      sent('application/octet-stream', ''),
    );
    const flows = clientOf(PUBLIC, { transport });
    const { mediaType, text } = await read(flows);
    expect([mediaType, text === 'glTF'.repeat(50_000)]).toEqual(['model/gltf-binary', true]);
    expect(await read(flows)).toEqual({ mediaType: 'image/png', text: 'hi' });
    await expect(read(flows)).rejects.toThrow(errors.NotAnAssetError);
  });

  it.each([
    ['application/gzip', 'gzip'],
    ['application/x-gzip; charset=binary', 'x-gzip'],
    ['application/x-tgz', 'gzip'],
  ])('of the type %s stays as it is, although a server calls that its Content-Encoding too', async (type, encoding) => {
    const body = gzipSync('a tar');
    const headers = { 'content-type': type, 'content-encoding': encoding };
    const wrapped = { ...headers, 'content-encoding': 'br' };
    const { transport } = canned(
      { status: 200, headers, body },
      { status: 200, headers: wrapped, body: brotliCompressSync(body) },
    );
    const flows = clientOf(PUBLIC, { transport });
    for (let n = 0; n < 2; n += 1)
      expect((await collect((await flows.asset('f1', 'a1', never)).chunks)).equals(body)).toBe(true);
  });

  it.each([
    ['that is none', Buffer.from('glTF'), 'gzip', 'DamagedAssetError'],
    ['in two codings', gzipSync(gzipSync('glTF')), 'gzip, gzip', 'DamagedAssetError'],
    ['that is not undone', Buffer.from('glTF'), 'zstd', 'DamagedAssetError'],
    ['of more bytes than an asset may have', gzipSync(Buffer.alloc(2_000_000)), 'gzip', 'AssetTooLargeError'],
  ])('with a Content-Encoding %s is refused, and its connection is closed', async (_, body, encoding, name) => {
    await using server = await scripted((_request, response) => {
      // More is still to come, so the connection cannot be used again.
      response.writeHead(200, { 'content-type': 'x/y', 'content-encoding': encoding, 'content-length': 3_000_000 });
      response.write(body);
    });
    const flows = clientOf(server.url, { assetBytesMax: 1_000_000 });
    await expect(read(flows)).rejects.toMatchObject({ name });
    await until(() => server.open.size === 0);
  });

  it.each([
    ['that is cut', gzipSync('glTF'.repeat(1_000)).subarray(0, 30), 'gzip'],
    ['that is none', Buffer.from('glTF'), 'br'],
  ])('with a Content-Encoding %s is damaged, if nothing more comes', async (_, body, encoding) => {
    const { transport } = canned({ status: 200, headers: { 'content-encoding': encoding }, body });
    await expect(read(clientOf(PUBLIC, { transport }))).rejects.toThrow(errors.DamagedAssetError);
  });

  it.each(['aws-chunked', 'utf-8', 'identity', 'base64'])(
    'with the Content-Encoding %s, which is none, comes as it is',
    async (encoding) => {
      const headers = { 'content-type': 'model/gltf-binary', 'content-encoding': encoding };
      const { transport } = canned({ status: 200, headers, body: 'glTF' });
      expect(await read(clientOf(PUBLIC, { transport }))).toEqual({ mediaType: 'model/gltf-binary', text: 'glTF' });
    },
  );

  it.each([
    ['gzip, chunked', true],
    ['gzip', false],
  ])('with the Transfer-Encoding %s comes without it', async (encoding, isChunked) => {
    const body = gzipSync('glTF');
    await using server = await scriptedRaw((socket) =>
      socket.once('data', () => {
        socket.write(`HTTP/1.1 200 OK\r\nContent-Type: model/gltf-binary\r\nTransfer-Encoding: ${encoding}\r\n\r\n`);
        if (isChunked) socket.write(`${body.byteLength.toString(16)}\r\n`);
        socket.write(body);
        socket.end(isChunked ? '\r\n0\r\n\r\n' : '');
      }),
    );
    expect(await read(clientOf(server.url))).toEqual({ mediaType: 'model/gltf-binary', text: 'glTF' });
  });

  it.each([
    ['ends with its connection', 'Transfer-Encoding: identity'],
    ['goes on behind its announced end', 'Content-Length: 3'],
    ['goes on behind its announced end, and ends with its connection', 'Content-Length: 3\r\nConnection: close'],
  ])('that %s may be a part of it, and is damaged', async (_, header) => {
    await using server = await scriptedRaw((socket) =>
      socket.once('data', () => socket.end(`HTTP/1.1 200 OK\r\nContent-Type: model/obj\r\n${header}\r\n\r\no ä\n`)),
    );
    await expect(read(clientOf(server.url))).rejects.toThrow(errors.DamagedAssetError);
  });

  it.each(['latin1', 'utf8'] as const)(
    'is fetched where a redirect in %s without percent signs leads',
    async (encoding) => {
      const asked: string[] = [];
      await using server = await scriptedRaw((socket) =>
        socket.once('data', (request) => {
          const [, path = ''] = String(request).split(' ');
          const isFirst = asked.push(path) === 1;
          const head = isFirst ? '302 Found\r\nLocation: /café 1.obj' : '200 OK\r\nContent-Type: model/obj';
          socket.end(Buffer.from(`HTTP/1.1 ${head}\r\nContent-Length: 4\r\n\r\no a\n`, encoding));
        }),
      );
      expect(await read(clientOf(server.url))).toEqual({ mediaType: 'model/obj', text: 'o a\n' });
      expect(asked[1]).toBe(encoding === 'utf8' ? '/caf%C3%A9%201.obj' : '/caf%E9%201.obj');
    },
  );

  it('named after its compression has the type of what is in it', async () => {
    const headers = { 'content-encoding': 'gzip', 'content-disposition': 'attachment; filename="seats.csv.gz"' };
    const { transport } = canned({ status: 200, headers, body: gzipSync('a,b\n1,2\n') });
    expect(await read(clientOf(PUBLIC, { transport }))).toEqual({ mediaType: 'text/csv', text: 'a,b\n1,2\n' });
  });

  it.each([
    ['attachment; filename="chair.obj"', 'a1', undefined],
    ['attachment; filename=chair.OBJ; size=4', 'a1', undefined],
    ['attachment; filename="chair"; filename*=UTF-8\'\'st%C3%BChl.obj', 'a1', undefined],
    ['attachment; filename=an oak chair.obj', 'a1', undefined],
    ["attachment; filename='an oak chair.obj'", 'a1', undefined],
    ['attachment; filename="the \\"oak\\" chair.obj "; size=4', 'a1', undefined],
    [undefined, 'chair.obj', undefined],
    [undefined, 'chairs/1.obj', undefined],
    ['inline', 'a.bin', '/blobs/65f0.obj?signature=1.png'],
  ])('whose type says nothing has the type of its name: %s, %s, %s', async (disposition, id, location) => {
    const headers = { 'content-type': 'application/octet-stream', 'content-disposition': disposition };
    await using server = await scripted(({ url = '' }, response) => {
      if (location !== undefined && !url.startsWith('/blobs')) response.writeHead(302, { location }).end();
      else response.writeHead(200, JSON.parse(JSON.stringify(headers))).end('o chair\n');
    });
    const { mediaType, chunks } = await clientOf(server.url).asset('f1', id, never);
    await collect(chunks);
    expect(mediaType).toBe('model/obj');
  });

  it.each([
    [201, undefined],
    [203, undefined],
    [206, 'bytes 0-3/4'],
    [200, 'bytes 0-3/4'],
    [200, 'bytes 0-4/4'],
    [206, 'bytes=0-3/4'],
    [200, 'bytes */4'],
    [200, 'bytes 0-3/*'],
  ])('that comes with the status %i and the Content-Range %s is whole', async (status, range) => {
    const headers = { 'content-type': 'model/gltf-binary', ...(range && { 'content-range': range }) };
    const { transport } = canned({ status, headers, body: 'glTF' });
    expect(await read(clientOf(PUBLIC, { transport }))).toEqual({ mediaType: 'model/gltf-binary', text: 'glTF' });
  });

  it.each([
    [206, undefined],
    [206, 'bytes 0-3/5'],
    [206, 'bytes 1-4/5'],
    [206, 'bytes 0-3/*'],
    [200, 'bytes 0-3/5'],
    [200, 'Bytes 4-7/8'],
    [201, 'bytes 0-3/9999'],
    [200, 'bytes=0-3/5'],
    [200, 'bytes 0 - 3 / 5'],
    [200, 'bytes 0-8/9'],
    [206, 'bytes 0-8/9'],
  ])('that comes with the status %i and the Content-Range %s is damaged', async (status, range) => {
    await using server = await scripted((_, response) =>
      response.writeHead(status, { 'content-type': 'image/png', ...(range && { 'content-range': range }) }).end('glTF'),
    );
    await expect(read(clientOf(server.url))).rejects.toThrow(errors.DamagedAssetError);
  });

  it('is fetched from the address that stands where its data would, without the token', async () => {
    await using store = await scripted((_, response) =>
      response.writeHead(200, { 'content-type': 'model/gltf-binary' }).end('glTF'),
    );
    const at = `${store.url}a.glb?signature=${'x'.repeat(2_000)}`;
    await using server = await scripted((request, response) => json(request, response, { id: 'a1', data: at }));
    expect(await read(clientOf(server.url))).toEqual({ mediaType: 'model/gltf-binary', text: 'glTF' });
    expect(store.requests).toMatchObject([{ url: new URL(at).pathname + new URL(at).search }]);
    expect(store.requests[0]?.headers).not.toHaveProperty('authorization');
  });

  it.each<[string, { data?: string; url?: string }, string]>([
    ['is not allowed', { data: 'http://169.254.169.254/a' }, 'This address is not allowed'],
    ['leads to another such answer', { data: '/api/flows/f1/outputs/a1' }, 'JSON came in place of the asset'],
    ['stands elsewhere', { url: 'https://a.example/a' }, 'JSON came in place of the asset'],
  ])('is told if its address %s', async (_, body, why) => {
    await using server = await scripted((request, response) =>
      json(request, response, body.data?.startsWith('/') ? { data: new URL(body.data, server.url) } : body),
    );
    await expect(read(clientOf(server.url))).rejects.toThrow(why);
  });

  it.each<Record<string, string>>([
    { link: '</a?page=2>; rel="next"' },
    { 'sforce-locator': 'MTAwMDA' },
    { 'x-ms-continuation': 'abc' },
    { 'x-next-page': '2' },
    { 'x-has-more': 'true' },
  ])('that leads to a next page of itself is damaged: %j', async (header) => {
    const { transport } = canned({ status: 200, headers: { 'content-type': 'text/csv', ...header }, body: 'a' });
    await expect(read(clientOf(PUBLIC, { transport }))).rejects.toThrow('only a part of the asset');
  });

  it.each<Record<string, string>>([
    { link: '</style.css>; rel="preload"' },
    { 'sforce-locator': 'null' },
    { 'x-ms-continuation': '' },
    { 'x-has-more': 'false' },
    { 'x-total-count': '7' },
    { 'x-nextjs-cache': 'HIT' },
    { 'x-amz-meta-next': 'step' },
    { 'content-locator': 's3://bucket/a.csv' },
    { 'last-modified': 'Mon, 02 Jan 2023 00:00:00 GMT' },
  ])('is whole with a header that leads nowhere: %j', async (header) => {
    const { transport } = canned({ status: 200, headers: { 'content-type': 'text/csv', ...header }, body: 'a' });
    expect((await read(clientOf(PUBLIC, { transport }))).text).toBe('a');
  });

  it.each([
    ['at its length', 'HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\nglTF'],
    ['without a stated length', 'HTTP/1.1 200 OK\r\n\r\nglTF'],
    ['within its envelope', 'HTTP/1.1 200 OK\r\n\r\n{"data":"data:image/png;base64,aGk='],
    ['by being compressed', 'HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\nglTF'],
  ])('that is cut %s is damaged', async (_, answer) => {
    await using server = await scriptedRaw((socket) => socket.once('data', () => socket.end(answer)));
    await expect(read(clientOf(server.url))).rejects.toThrow(errors.DamagedAssetError);
  });

  it.each([
    ['no HTTP', 'hello\r\n\r\n'],
    ['nothing at all', ''],
    ['a head that is cut', 'HTTP/1.1 200 OK\r\nContent-Ty'],
    ['a header of 100,000 bytes', `HTTP/1.1 200 OK\r\nX: ${'x'.repeat(100_000)}\r\nContent-Length: 1\r\n\r\nx`],
    ['a NUL in a header', 'HTTP/1.1 200 OK\r\nX: a\0b\r\nContent-Length: 1\r\n\r\nx'],
    ['two lengths', 'HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx'],
    ['a length that is none', 'HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\nx'],
    ['a negative length', 'HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\nx'],
    [
      'a length and chunks',
      'HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n',
    ],
    ['a status beyond all', 'HTTP/1.1 999 What\r\nContent-Length: 0\r\n\r\n'],
  ])('that comes as %s is unavailable', async (_, answer) => {
    await using server = await scriptedRaw((socket) => socket.once('data', () => socket.end(answer)));
    await expect(read(clientOf(server.url))).rejects.toThrow(errors.UnavailableError);
  });

  it('that stalls is too slow, and its connection is closed', async () => {
    await using server = await scripted((_, response) => response.write('glTF'));
    const transport = httpTransport({ clock: systemClock, limits: { ...TRANSPORT_LIMITS, idleMs: 20 } });
    await expect(read(clientOf(server.url, { transport }))).rejects.toThrow(errors.TooSlowError);
    await until(() => server.open.size === 0);
  });

  const escapes = (response: ServerResponse): void => {
    const more = () => {
      while (!response.destroyed && response.write('\\n'.repeat(32_768)));
      if (!response.destroyed) response.once('drain', more);
    };
    response.write('{"data":"data:a/b;base64,');
    more();
  };
  it.each<[string, (response: ServerResponse) => void]>([
    ['stalls', (response) => void response.write('x y'.repeat(30_000))],
    ['has escapes without end', escapes],
  ])('that %s and is aborted rejects with the reason, and its connection is closed', async (_, answer) => {
    await using server = await scripted((_request, response) => answer(response));
    const controller = new AbortController();
    const reason = new Error('out of time');
    const { chunks } = await clientOf(server.url).asset('f1', 'a1', controller.signal);
    const reading = failureOf(collect(chunks));
    await systemClock.sleep(10);
    controller.abort(reason);
    expect(await reading).toBe(reason);
    await until(() => server.open.size === 0);
  });

  it('that is redirected is fetched from there, with the token only on the same origin', async () => {
    await using elsewhere = await scripted((_, response) => response.end('from elsewhere'));
    await using server = await scripted((request, response) => {
      if (request.url === '/same') return response.end('from here');
      const isSecond = request.url?.includes('a2');
      response.writeHead(302, { location: isSecond ? new URL('/other?signature=1', elsewhere.url).href : '/same' });
      return response.end();
    });
    const flows = clientOf(server.url);
    expect(await read(flows)).toMatchObject({ text: 'from here' });
    expect(server.requests[1]?.headers.authorization).toBe(`Bearer ${TOKEN}`);
    const other = await flows.asset('f1', 'a2', never);
    expect((await collect(other.chunks)).toString()).toBe('from elsewhere');
    expect(elsewhere.requests[0]).toMatchObject({ url: '/other?signature=1' });
    expect(elsewhere.requests[0]?.headers).not.toHaveProperty('authorization');
    expect(elsewhere.requests[0]?.headers).not.toHaveProperty('content-type');
  });

  it('may be redirected no nearer to this machine than its service is', async () => {
    for (const [address, reach] of [
      ['8.8.8.8', 'public'],
      ['10.1.2.3', 'network'],
      ['fd12::1', 'network'],
      ['::ffff:10.1.2.3', 'network'],
      ['127.0.0.1', 'machine'],
      ['169.254.169.254', 'public'],
      ['0.0.0.0', 'public'],
      [undefined, 'public'],
    ] as const) {
      const answers = [
        { status: 307, headers: { location: 'https://storage.example.com/x' }, ...(address && { address }) },
      ];
      const { transport, asked } = canned(...answers, { status: 200, body: 'glTF' });
      expect(await read(clientOf(PUBLIC, { transport }))).toMatchObject({ text: 'glTF' });
      expect(asked[1]).toMatchObject({ url: 'https://storage.example.com/x', reach });
      expect(asked[1]?.headers).not.toHaveProperty('Authorization');
    }
  });

  it.each([301, 302, 303, 307, 308])('is redirected three times at most: %i', async (status) => {
    const redirect = { status, headers: { location: 'https://storage.example.com/x' } };
    const found = canned(redirect, redirect, redirect, { status: 200, body: 'glTF' });
    expect(await read(clientOf(PUBLIC, { transport: found.transport }))).toMatchObject({ text: 'glTF' });
    const { transport, asked } = canned(redirect);
    await expect(read(clientOf(PUBLIC, { transport }))).rejects.toThrow(errors.ForbiddenAddressError);
    expect(asked).toHaveLength(4);
  });

  it('gets no token back once a redirect has left its service, and each redirect is checked', async () => {
    const away = { status: 302, headers: { location: 'https://storage.example.com/x' } };
    for (const location of ['http://storage.example.com/y', 'https://user@storage.example.com/y', 'https://[::1]/y']) {
      const { transport, asked } = canned(away, { status: 302, headers: { location } });
      await expect(read(clientOf(PUBLIC, { transport }))).rejects.toThrow(errors.ForbiddenAddressError);
      expect(asked).toHaveLength(2);
    }
  });

  it.each(['https://', 'https://cdn.example:99999/'])('is never redirected to the invalid %s', async (location) => {
    const { transport } = canned({ status: 302, headers: { location } });
    await expect(read(clientOf(PUBLIC, { transport }))).rejects.toThrow(errors.UnintelligibleAnswerError);
  });

  it.each([401, 403])(
    'is refused if its signed address is not taken (%i), and the token is not suspected',
    async (status) => {
      const { transport } = canned({ status: 302, headers: { location: 'https://storage.example.com/x' } }, { status });
      const token = scriptedToken();
      const error = await failureOf(read(clientOf(PUBLIC, { transport, token })));
      expect(error).toBeInstanceOf(errors.AddressRefusedError);
      expect(error).toMatchObject({ message: expect.stringMatching(/: \d+\. No token .* not below baseUrl$/) });
      expect(token.renewals).toBe(0);
    },
  );

  it.each([
    [429, '600', 10],
    [503, '600', 10],
    [429, '86400', 15],
  ])(
    'that a store throttles (%i) is asked for again after its `Retry-After` (%s), and alone',
    async (status, retryAfter, minutes) => {
      const away = { status: 302, headers: { location: 'https://storage.example.com/x' } };
      const sound = { status: 200, body: 'x', headers: { 'content-type': 'model/obj' } };
      const { transport, asked } = canned(
        ...[away, { status, headers: { 'retry-after': retryAfter } }],
        ...[away, away, sound, away, sound],
      );
      const clock = new StillClock();
      const flows = clientOf(PUBLIC, { transport, clock });
      await expect(flows.asset('f1', 'a1', never)).rejects.toThrow(errors.ThrottledError);
      clock.pass(minutes * 60_000 - 1);
      await expect(flows.asset('f1', 'a1', never)).rejects.toThrow(errors.ThrottledError);
      expect(asked).toHaveLength(3);
      expect((await collect((await flows.asset('f1', 'a2', never)).chunks)).toString()).toBe('x');
      clock.pass(1);
      expect((await collect((await flows.asset('f1', 'a1', never)).chunks)).toString()).toBe('x');
    },
  );
});

describe('aborting a flow', () => {
  it.each([
    [200, undefined],
    [204, undefined],
    [404, 'not-found'],
    [405, 'not-served'],
    [409, 'not-ready'],
    [500, 'unavailable'],
  ])('that is answered with %i returns why it was not aborted: %s', async (status, code) => {
    let body = '';
    await using server = await scripted(async (request, response) => {
      body = await bodyOf(request);
      response.writeHead(status).end();
    });
    expect((await clientOf(server.url).abort('f1', never))?.code).toBe(code);
    expect(JSON.parse(body)).toEqual({ action: 'abort' });
  });

  const JSON_TYPE = { 'content-type': 'application/json' };
  const HTML_TYPE = { 'content-type': 'text/html' };
  it.each([
    ['a page', HTML_TYPE, '<html>Sign in</html>', 'misaddressed'],
    [
      'no end',
      JSON_TYPE,
      function* () {
        for (;;) yield ' '.repeat(65_536);
      },
      'unintelligible-answer',
    ],
    ['words for throttling', JSON_TYPE, '{"error":{"code":"slow-down"}}', 'throttled'],
    ['nothing, called a page', HTML_TYPE, '', undefined],
    ['nothing, called gzip', { 'content-encoding': 'gzip' }, '', undefined],
    ['nothing, called br', { 'content-encoding': 'br' }, '', undefined],
    ['a word, called a page', HTML_TYPE, 'OK', undefined],
    ['a document', JSON_TYPE, '{"id":"f1"}', undefined],
    ['a word', { 'content-type': 'text/plain' }, 'OK', undefined],
  ])('or deleting it is judged by what comes with a 200: %s', async (_, headers, body, code) => {
    await using server = await scripted(async (request, response) => {
      request.resume();
      response.writeHead(200, headers);
      await pipeline(Readable.from(typeof body === 'string' ? [body] : body()), response).catch(() => undefined);
    });
    const errors = { ...FLOWS.errors, throttled: [{ status: 200, says: 'slow-down' }] };
    const flows = clientOf(server.url, { service: { ...FLOWS, errors } });
    expect((await flows.abort('f1', never))?.code).toBe(code);
    expect((await flows.delete('f1', never))?.code).toBe(code);
  });

  const NO = 'this flow cannot be deleted';
  it.each<[string, string, object, object?]>([
    [NO, '/success', { success: false, detail: NO }],
    [NO, '/ok', { ok: false, state: 'running', detail: NO }],
    [NO, '/detail', { id: 'f1', state: 'running', detail: NO }],
    [NO, '/error', { error: { message: NO } }],
    [NO, '/status', { status: 'error', message: NO }],
    [NO, '/message', { id: 'f1', message: NO }, { words: '/message' }],
  ])('or deleting it is not acknowledged by a 200 that says "%s" (%s): %j', async (words, place, body, errors = {}) => {
    const { transport } = canned({ status: 200, body: JSON.stringify(body) });
    const flows = clientOf(PUBLIC, { transport, service: { ...FLOWS, errors: { ...FLOWS.errors, ...errors } } });
    for (const change of ['abort', 'delete'] as const) {
      const error = await flows[change]('f1', never);
      expect(error).toMatchObject({ code: 'unintelligible-answer', isOwnError: true });
      expect(error?.message).toMatch(`${change}: the answer says that it failed (${place})`);
      expect(error?.message).toContain(words);
    }
  });

  it.each([
    { deleted: false },
    { deleted: 0 },
    { state: 'running', is_deleted: false },
    { deletedCount: 0 },
    { removed: 'No' },
  ])('is another request than to delete it, which is not acknowledged by %j', async (body) => {
    const { transport } = canned({ status: 200, body: JSON.stringify(body) });
    const flows = clientOf(PUBLIC, { transport });
    expect(await flows.abort('f1', never)).toBeUndefined();
    expect((await flows.delete('f1', never))?.message).toContain(JSON.stringify(body));
  });

  it.each<object>([
    { id: 'f1', state: 'aborted', error: 'It was aborted by its owner.' },
    { id: 'f1', state: 'failed', error: null },
    { success: true, detail: 'The flow was deleted.', deleted: 1 },
    { deleted: true, errors: [], ok: 1, code: 0, detail: 'OK' },
    ['error'],
  ])('or deleting it is acknowledged by %j', async (body) => {
    const { transport } = canned({ status: 200, body: JSON.stringify(body) });
    expect(await clientOf(PUBLIC, { transport }).abort('f1', never)).toBeUndefined();
    expect(await clientOf(PUBLIC, { transport }).delete('f1', never)).toBeUndefined();
  });

  it.each(['DELETE', 'PUT', 'POST'] as const)('names no type of a body if there is none: %s', async (method) => {
    let type: string | undefined = 'none yet';
    await using server = await scripted((request, response) => {
      type = request.headers['content-type'];
      response.writeHead(204).end();
    });
    const service = { ...FLOWS, abort: { method, path: '/flows/{id}/stop' } };
    expect(await clientOf(server.url, { service }).abort('f1', never)).toBeUndefined();
    expect(type).toBeUndefined();
  });

  it('may name it in the body', async () => {
    let sent: unknown;
    await using server = await scripted(async (request, response) => {
      sent = [request.method, request.url, JSON.parse(await bodyOf(request))];
      response.writeHead(200).end();
    });
    const body = { job: '{id}', of: ['{template}'], literal: '{{id}}' };
    const service = { ...FLOWS, abort: { method: 'POST', path: '/cancel', body } } as const;
    const flows = clientOf(server.url, { service });
    expect(await flows.abort('f/1', never, { template: 'a/b' })).toBeUndefined();
    expect(sent).toEqual(['POST', '/cancel', { job: 'f/1', of: ['a/b'], literal: '{id}' }]);
    expect(needsTemplate(service)).toBe(true);
  });
});

describe('templates', () => {
  const templatesOn = (pages: readonly object[], more: (number: number) => object) => {
    const { asked, transport } = paged((path) => {
      const number = Number(/page=(\d+)/.exec(path)?.[1] ?? 1);
      return { body: { templates: pages[number - 1] ?? [], ...more(number) } };
    });
    const service = speaking({ templates: { pages: { by: 'cursor', at: '/next_page', parameter: 'page' } } });
    return { asked, templates: clientOf(PUBLIC, { transport, service }).templates(never) };
  };
  const pages = [[{ id: 'a', input_types: ['image/png'] }, { name: 'b' }], [{ id: 'c' }]];

  it('are read on all pages, as the service writes them', async () => {
    const { templates, asked } = templatesOn(pages, (number) => ({ next_page: number < 2 ? number + 1 : null }));
    expect(await templates).toEqual(pages.flat());
    expect(asked).toEqual(['/api/templates', '/api/templates?page=2']);
    expect(await templatesOn(pages.slice(1), () => ({})).templates).toEqual([{ id: 'c' }]);
  });

  it('are not taken for all if some cannot be listed', async () => {
    const { templates } = templatesOn(pages.slice(0, 1), () => ({ total: 3, has_more: false }));
    await expect(templates).rejects.toThrow(
      'not all templates can be listed: the listing counts 3 entries but shows 2',
    );
  });
});
