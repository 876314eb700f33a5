import type { IncomingMessage, ServerResponse } from 'node:http';
import {
  DeleteObjectCommand,
  GetObjectCommand,
  HeadObjectCommand,
  PutObjectCommand,
  type S3Client,
  type S3ClientConfig,
} from '@aws-sdk/client-s3';
import { HttpResponse } from '@smithy/core/protocols';
import { StandardRetryStrategy } from '@smithy/core/retry';
import { afterEach, beforeEach, describe, expect, it, onTestFinished, vi } from 'vitest';
import { s3Client } from '../../functions/s3/client.ts';
import { basicTime } from '../../local/aws/sent-signature.ts';
import { web } from '../support/servers.ts';

const MINUTE_MS = 60_000;
const CREDENTIALS = { accessKeyId: 'fake', secretAccessKey: 'fake', sessionToken: 'fake-session' };

/** Headers that differ from request to request, and those that only the SDK's own attempts have. */
const VARYING = ['amz-sdk-invocation-id', 'amz-sdk-request', 'authorization', 'x-amz-date'];

type Answer = (request: IncomingMessage, response: ServerResponse) => void;

const ok: Answer = ({ method }, response) => {
  if (method === 'DELETE') response.writeHead(204).end();
  else if (method === 'GET')
    response.writeHead(200, { ETag: '"e"', 'Content-Length': 4, 'x-amz-meta-a': 'b' }).end('text');
  else response.writeHead(200, { ETag: '"e"', 'Content-Length': 0 }).end();
};
const refuse =
  (status: number, code: string): Answer =>
  (_request, response) =>
    void response
      .writeHead(status, { 'Content-Type': 'application/xml' })
      .end(`<Error><Code>${code}</Code><Message>${code}</Message></Error>`);

let endpoint: string;
let requests: IncomingMessage[];
/** The next answers. Then all requests succeed. */
let answers: Answer[];
beforeEach(async () => {
  requests = [];
  answers = [];
  const { origin } = await web(async (request, response) => {
    for await (const _ of request);
    requests.push(request);
    (answers.shift() ?? ok)(request, response);
  });
  endpoint = origin;
});
afterEach(() => void vi.unstubAllEnvs());

function clientWith(config: S3ClientConfig = {}): S3Client {
  const client = s3Client({
    endpoint,
    forcePathStyle: true,
    region: 'us-east-1',
    credentials: CREDENTIALS,
    maxAttempts: 3,
    ...config,
  });
  onTestFinished(() => client.destroy());
  return client;
}

const address = { Bucket: 'bucket', Key: 'a key/with ä' };
const commands = {
  'put of a text': () =>
    new PutObjectCommand({ ...address, Body: 'text', ContentType: 'text/plain', IfNoneMatch: '*' }),
  'put of bytes': () => new PutObjectCommand({ ...address, Body: Buffer.from('text'), Metadata: { a: 'b' } }),
  'put of nothing': () => new PutObjectCommand({ ...address, Body: new Uint8Array() }),
  get: () => new GetObjectCommand({ ...address, IfMatch: '"e"', VersionId: 'v' }),
  delete: () => new DeleteObjectCommand(address),
};
const put = commands['put of a text'];

/** A client whose first put has gone the SDK's way. */
async function warm(config?: S3ClientConfig): Promise<S3Client> {
  const client = clientWith(config);
  await client.send(put());
  requests.length = 0;
  return client;
}

/** True if a request was sent without the SDK's middleware. */
const isDirect = ({ headers }: IncomingMessage) => headers['amz-sdk-request'] === undefined;

describe('frequent requests to S3', () => {
  it.each(Object.entries(commands))('look to S3 like those of the SDK: %s', async (_name, command) => {
    const client = clientWith();
    const bySdk = await client.send(command() as PutObjectCommand);
    const direct = await client.send(command() as PutObjectCommand);
    expect(requests.map(isDirect)).toEqual([false, true]);
    const [first, second] = requests.map(({ url, method, headers }) => {
      const signed = /Credential=\S+\/(\S+\/s3)\/\S+, SignedHeaders=(\S+),/.exec(headers.authorization ?? '')?.slice(1);
      // The SDK gives a GET the checksum of no body.
      const varying = method === 'GET' ? [...VARYING, 'x-amz-checksum-crc32'] : VARYING;
      const rest = Object.entries(headers).filter(([name]) => !varying.includes(name));
      const names = signed?.[1]?.split(';').filter((name) => !varying.includes(name));
      return { url, method, headers: Object.fromEntries(rest), region: signed?.[0], names };
    });
    expect(second).toEqual(first);
    const facts = ({ $metadata, Body: _, ...output }: Record<string, unknown>) => output;
    expect(facts({ ...direct })).toEqual(facts({ ...bySdk }));
    expect(second?.headers['x-amz-security-token']).toBe('fake-session');
  });

  it('give the body of an object', async () => {
    const client = clientWith();
    for (let n = 0; n < 2; n += 1) {
      const { Body, Metadata } = await client.send(commands.get());
      expect(await Body?.transformToString()).toBe('text');
      expect(Metadata).toEqual({ a: 'b' });
    }
  });

  it.each<[string, S3ClientConfig, string]>([
    ['of a region', { region: 'eu-central-1' }, 'bucket.s3.eu-central-1.amazonaws.com'],
    ['dual stack', { useDualstackEndpoint: true }, 'bucket.s3.dualstack.us-east-1.amazonaws.com'],
    ['FIPS', { useFipsEndpoint: true }, 'bucket.s3-fips.us-east-1.amazonaws.com'],
    ['of another partition', { region: 'cn-north-1' }, 'bucket.s3.cn-north-1.amazonaws.com.cn'],
  ])('go to the endpoint that the SDK has chosen: %s', async (_name, config, hostname) => {
    const sent: { hostname: string; headers: Record<string, string> }[] = [];
    const client = clientWith({
      endpoint: undefined as never,
      forcePathStyle: false,
      ...config,
      requestHandler: {
        handle: async (request: unknown) => {
          sent.push(request as (typeof sent)[number]);
          return { response: new HttpResponse({ statusCode: 200, headers: { 'content-length': '0' } }) };
        },
      },
    });
    await client.send(put());
    await client.send(put());
    expect(sent.map((request) => request.hostname)).toEqual([hostname, hostname]);
    expect(sent[1]?.headers.authorization).toContain(`/${config.region ?? 'us-east-1'}/s3/aws4_request`);
    expect(sent[1]?.headers['amz-sdk-request']).toBeUndefined();
  });

  it('go to the endpoint of their own bucket', async () => {
    const client = await warm();
    const other = { Bucket: 'other', Key: 'key', Body: 'text' };
    await client.send(new PutObjectCommand(other));
    await client.send(new PutObjectCommand(other));
    await client.send(put());
    expect(requests.map((request) => [request.url?.split('?')[0], isDirect(request)])).toEqual([
      ['/other/key', false],
      ['/other/key', true],
      ['/bucket/a%20key/with%20%C3%A4', true],
    ]);
  });

  it.each([
    [412, 'PreconditionFailed'],
    [409, 'ConditionalRequestConflict'],
    [404, 'NoSuchKey'],
    [403, 'AccessDenied'],
  ])('throw what the SDK throws at %i, after one request', async (httpStatusCode, name) => {
    const client = await warm();
    answers = [refuse(httpStatusCode, name)];
    await expect(client.send(put())).rejects.toMatchObject({ name, $metadata: { httpStatusCode } });
    expect(requests.map(isDirect)).toEqual([true]);
  });

  it('are retried by the SDK, with its own maximum of attempts', async () => {
    const client = await warm();
    answers = [refuse(503, 'SlowDown'), refuse(500, 'InternalError')];
    await client.send(put());
    expect(requests.map(isDirect)).toEqual([true, false, false]);
    answers = Array.from({ length: 9 }, () => refuse(503, 'SlowDown'));
    await expect(client.send(put())).rejects.toMatchObject({ name: 'SlowDown', $metadata: { attempts: 3 } });
    expect(requests).toHaveLength(6);
  });

  it('are retried after a broken connection', async () => {
    const client = await warm();
    answers = [(request) => request.socket.destroy()];
    await client.send(put());
    expect(requests.map(isDirect)).toEqual([true, false]);
  });

  it('are retried if a success contains an error', async () => {
    const client = await warm();
    answers = [refuse(200, 'InternalError')];
    await client.send(put());
    expect(requests).toHaveLength(2);
  });

  it('are signed for the time of S3 if the clocks differ', async () => {
    const client = await warm();
    const hourLater = () => new Date(Date.now() + 3_600_000);
    const later =
      (answer: Answer): Answer =>
      (request, response) =>
        answer(request, response.setHeader('Date', hourLater().toUTCString()));
    answers = [later(refuse(403, 'RequestTimeTooSkewed')), later(ok)];
    await client.send(put());
    await client.send(put());
    expect(requests.map(isDirect)).toEqual([true, false, true]);
    const signedAt = String(requests[2]?.headers['x-amz-date']);
    const expected = hourLater().getTime();
    // In this form, times sort as text.
    expect(signedAt > String(basicTime(expected - 10 * MINUTE_MS))).toBe(true);
    expect(signedAt < String(basicTime(expected + 10 * MINUTE_MS))).toBe(true);
  });

  it('refill the allowance for retries', async () => {
    const strategy = new StandardRetryStrategy(async () => 3);
    const client = await warm({ retryStrategy: strategy });
    const before = strategy.getCapacity();
    answers = Array.from({ length: 3 }, () => refuse(503, 'SlowDown'));
    await expect(client.send(put())).rejects.toThrow();
    const after = strategy.getCapacity();
    expect(after).toBeLessThan(before);
    await client.send(put());
    expect(strategy.getCapacity()).toBeGreaterThan(after);
  });

  it('stop when the signal aborts', async () => {
    const client = await warm();
    const abort = new AbortController();
    answers = [() => abort.abort()];
    await expect(client.send(put(), { abortSignal: abort.signal })).rejects.toMatchObject({ name: 'AbortError' });
    expect(requests).toHaveLength(1);
  });

  it("carry Lambda's trace of the present invocation", async () => {
    const client = await warm();
    vi.stubEnv('AWS_LAMBDA_FUNCTION_NAME', 'collect');
    for (const trace of ['Root=1-a', 'Root=1-b']) {
      vi.stubEnv('_X_AMZN_TRACE_ID', trace);
      await client.send(put());
    }
    expect(requests.map(({ headers }) => headers['x-amzn-trace-id'])).toEqual(['Root=1-a', 'Root=1-b']);
  });

  it('read an object whose Expires header is no date', async () => {
    const client = clientWith();
    await client.send(commands.get());
    const headers = { Expires: 'soon', 'Content-Length': 4 };
    answers = [(_request, response) => void response.writeHead(200, headers).end('text')];
    const { Body } = await client.send(commands.get());
    expect(await Body?.transformToString()).toBe('text');
  });

  it("leave everything else to the SDK: other operations, and members that need the SDK's work", async () => {
    const client = await warm();
    const customer = { SSECustomerAlgorithm: 'AES256', SSECustomerKey: Buffer.alloc(32) as never };
    for (let n = 0; n < 2; n += 1) {
      await client.send(new HeadObjectCommand(address));
      await client.send(new PutObjectCommand({ ...address, Body: 'text', ChecksumAlgorithm: 'SHA256' }));
      await client.send(new PutObjectCommand({ ...address, Body: 'text', ...customer }));
    }
    expect(requests.map(isDirect)).toEqual(Array(6).fill(false));
  });

  it('pass every middleware that is added to the client later', async () => {
    const client = await warm();
    await client.send(put());
    let seen = 0;
    client.middlewareStack.add((next) => (args) => {
      seen += 1;
      return next(args);
    });
    await client.send(put());
    expect([seen, ...requests.map(isDirect)]).toEqual([1, true, false]);
  });

  it('pass the middleware of their own command', async () => {
    const client = await warm();
    const command = put();
    let seen = 0;
    command.middlewareStack.add((next) => (args) => {
      seen += 1;
      return next(args);
    });
    await client.send(command);
    expect([seen, ...requests.map(isDirect)]).toEqual([1, false]);
  });

  it('keep the time limit of their own call', async () => {
    const client = await warm({ maxAttempts: 1, requestHandler: { throwOnRequestTimeout: true } });
    answers = [() => {}];
    await expect(client.send(put(), { requestTimeout: 50 })).rejects.toMatchObject({ name: 'TimeoutError' });
  });

  it('are signed with the present credentials', async () => {
    let issued = 0;
    // Credentials that are about to expire are asked for again.
    const credentials = async () => {
      issued += 1;
      return { ...CREDENTIALS, sessionToken: `fake-${issued}`, expiration: new Date(Date.now() + 1_000) };
    };
    const client = await warm({ credentials });
    await client.send(put());
    await client.send(put());
    const [one, two] = requests.map(({ headers }) => String(headers['x-amz-security-token']));
    expect(requests.map(isDirect)).toEqual([true, true]);
    expect(one).toMatch(/^fake-\d+$/);
    expect(two).not.toBe(one);
  });
});
