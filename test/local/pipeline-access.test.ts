import { mkdir, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { request as httpRequest } from 'node:http';
import { type AddressInfo, Server } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { ListObjectsV2Command, ListObjectVersionsCommand, PutObjectCommand } from '@aws-sdk/client-s3';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import {
  INBOX_BUCKET,
  LEDGER_BUCKET,
  type Pipeline,
  RESULTS_BUCKET,
  startPipeline,
  TOKEN_SECRET,
} from '../../local/pipeline.ts';
import { type KeyPair, presignedPath, type Signing, signedHeaders, type Unsigned } from '../support/sigv4.ts';

/** Functions that answer with their environment, so that the test knows every address that they get. */
const REVEALING = 'export const handler = async () => process.env;';

let dir: string;
let pipeline: Pipeline;
/** The environments of both functions. */
let env: Record<string, string>;
let collectEnv: Record<string, string>;
/** The ports of all servers that the pipeline started. */
let ports: number[];
beforeAll(async () => {
  const listen = vi.spyOn(Server.prototype, 'listen');
  dir = await mkdtemp(join(tmpdir(), 'flowdrop-access-'));
  for (const name of ['create-flow', 'collect-outputs']) {
    await mkdir(join(dir, name));
    await writeFile(join(dir, name, 'index.mjs'), REVEALING);
  }
  pipeline = await startPipeline({
    bundleDir: dir,
    stateDir: join(dir, 'state'),
    routes: [{ name: 'all', input: 'file', template: 'bytes_echo' }],
    tickIntervalMs: 3_600_000,
    standIn: { flowMs: 0 },
  });
  env = (await pipeline.functions['create-flow'].invoke({})) as Record<string, string>;
  collectEnv = (await pipeline.functions['collect-outputs'].invoke({})) as Record<string, string>;
  ports = listen.mock.contexts.map((server) => ((server as Server).address() as AddressInfo).port);
  listen.mockRestore();
  await put(LEDGER_BUCKET, 'uploads/abc.json', '{"entry":1}');
  await put(INBOX_BUCKET, 'private.txt', 'private');
});
afterAll(async () => {
  await pipeline.close();
  await rm(dir, { recursive: true, force: true });
});

const put = (Bucket: string, Key: string, Body: string) =>
  pipeline.s3.send(new PutObjectCommand({ Bucket, Key, Body, ContentLength: Body.length }));

interface Sent {
  readonly method?: string;
  readonly headers?: Record<string, string>;
  readonly body?: string | Uint8Array;
}

function send(url: string, { method = 'GET', headers = {}, body = '' }: Sent = {}) {
  return new Promise<{ status: number; body: string }>((resolve, reject) => {
    const { hostname, port, pathname, search } = new URL(url);
    const sent = httpRequest(
      { hostname, port, method, path: pathname + search, headers, timeout: 5_000, agent: false },
      (response) => {
        const chunks: Buffer[] = [];
        response.on('data', (chunk) => chunks.push(chunk));
        response.on('error', reject);
        response.on('end', () => resolve({ status: response.statusCode ?? 0, body: Buffer.concat(chunks).toString() }));
      },
    );
    sent.on('timeout', () => sent.destroy(new Error('No answer')));
    sent.on('error', reject);
    sent.end(body);
  });
}

async function keys(Bucket: string): Promise<(string | undefined)[]> {
  const { Contents = [] } = await pipeline.s3.send(new ListObjectsV2Command({ Bucket }));
  return Contents.map(({ Key }) => Key);
}

describe('another user of the machine', () => {
  it("cannot read the flow service's token", async () => {
    const answer = await send(env.AWS_ENDPOINT_URL_SECRETS_MANAGER ?? '', {
      method: 'POST',
      headers: { 'x-amz-target': 'secretsmanager.GetSecretValue' },
      body: JSON.stringify({ SecretId: TOKEN_SECRET }),
    });
    expect(answer.status).toBe(400);
    expect(answer.body).not.toContain('SecretString');
  });

  it('cannot list the ledger', async () => {
    const answer = await send(`${pipeline.s3Endpoint}/${LEDGER_BUCKET}?list-type=2`);
    expect(answer.status).toBe(403);
    expect(answer.body).not.toContain('abc.json');
  });

  it('cannot read an object of the inbox', async () => {
    const answer = await send(`${pipeline.s3Endpoint}/${INBOX_BUCKET}/private.txt`);
    expect(answer.status).toBe(403);
    expect(answer.body).not.toContain('private<');
  });

  it('cannot put a file that would be sent and paid for', async () => {
    const path = `/${INBOX_BUCKET}/stranger.png`;
    const answer = await send(`${pipeline.s3Endpoint}${path}`, {
      method: 'PUT',
      headers: { 'content-length': '3' },
      body: 'abc',
    });
    expect(answer.status).toBe(403);
    expect(await keys(INBOX_BUCKET)).toEqual(['private.txt']);
  });

  it('cannot use the flow service with a token that is the same in every run', async () => {
    const answer = await send(`${env.FLOW_SERVICE_URL}/flows`, { headers: { authorization: 'Bearer stand-in-token' } });
    expect(answer.status).toBe(401);
  });

  it('cannot steal an event from the runtime API, or freeze a function', async () => {
    const answer = await send(`http://${env.AWS_LAMBDA_RUNTIME_API}/2018-06-01/runtime/invocation/next`);
    expect(answer.status).toBe(403);
    expect(await pipeline.functions['create-flow'].invoke({})).toMatchObject({
      AWS_LAMBDA_FUNCTION_NAME: 'create-flow',
    });
  });
});

describe('a web page in the browser', () => {
  it('cannot delete a ledger entry with a form', async () => {
    const body = '<Delete><Object><Key>uploads/abc.json</Key></Object><!--=--></Delete>';
    const answer = await send(`${pipeline.s3Endpoint}/${LEDGER_BUCKET}?delete`, {
      method: 'POST',
      headers: {
        'content-type': 'text/plain',
        'content-length': String(body.length),
        origin: 'http://evil.example',
        'sec-fetch-site': 'cross-site',
      },
      body,
    });
    expect(answer.status).toBe(403);
    expect(await keys(LEDGER_BUCKET)).toContain('uploads/abc.json');
  });

  it('cannot read through DNS rebinding', async () => {
    const { port } = new URL(pipeline.s3Endpoint);
    const answer = await send(`${pipeline.s3Endpoint}/${INBOX_BUCKET}/private.txt`, {
      headers: { host: `evil.example:${port}` },
    });
    expect(answer).toMatchObject({ status: 403, body: expect.not.stringContaining('private<') });
  });
});

/** A server, and a request to it that would do harm. */
interface Target {
  readonly endpoint: () => string;
  /** Default: the credentials of a function. */
  readonly keys?: () => KeyPair;
  readonly request: Unsigned;
  /** Changes if the request is carried out. */
  readonly state: () => unknown;
  /** Part of the answer if the request is carried out. */
  readonly answer: string | RegExp;
}

const jsonRequest = (target: string, input: object): Unsigned => ({
  method: 'POST',
  path: '/',
  body: JSON.stringify(input),
  headers: { 'content-type': 'application/x-amz-json-1.1', 'x-amz-target': target },
});

const AWS_TARGETS: Record<'s3' | 'sqs' | 'secretsmanager' | 'events' | 'lambda', Target> = {
  s3: {
    endpoint: () => env.AWS_ENDPOINT_URL_S3 ?? '',
    request: { method: 'PUT', path: `/${INBOX_BUCKET}/stranger.png`, headers: { 'content-length': '3' }, body: 'abc' },
    state: async () => {
      const buckets = [INBOX_BUCKET, RESULTS_BUCKET, LEDGER_BUCKET];
      const lists = buckets.map((Bucket) => pipeline.s3.send(new ListObjectVersionsCommand({ Bucket })));
      return (await Promise.all(lists)).flatMap(({ Versions = [] }) =>
        Versions.map(({ VersionId, Key }) => [Key, VersionId]),
      );
    },
    answer: /^$/,
  },
  sqs: {
    endpoint: () => env.AWS_ENDPOINT_URL_SQS ?? '',
    // Delayed, so that the event source leaves it where it is.
    request: jsonRequest('AmazonSQS.SendMessage', { QueueUrl: 'uploads', MessageBody: 'x', DelaySeconds: 900 }),
    state: () => pipeline.queue.counts().delayed,
    answer: 'MessageId',
  },
  secretsmanager: {
    endpoint: () => env.AWS_ENDPOINT_URL_SECRETS_MANAGER ?? '',
    request: jsonRequest('secretsmanager.GetSecretValue', { SecretId: TOKEN_SECRET }),
    state: () => 'none',
    answer: 'SecretString',
  },
  lambda: {
    endpoint: () => pipeline.operator.endpoints.lambda,
    keys: () => pipeline.operator.credentials,
    request: {
      method: 'POST',
      path: '/2015-03-31/functions/collect-outputs/invocations',
      headers: { 'content-type': 'application/json' },
      body: '{"c":1}',
    },
    // A call that is carried out starts the process of the operator's invocations, which answers.
    state: () => 'none',
    answer: 'AWS_LAMBDA_FUNCTION_NAME',
  },
  events: {
    endpoint: () => env.AWS_ENDPOINT_URL_EVENTBRIDGE ?? '',
    request: jsonRequest('AWSEvents.PutEvents', { Entries: [{ Source: 'flowdrop', DetailType: 'x', Detail: '{}' }] }),
    state: () => pipeline.eventBus.published.length,
    answer: 'EventId',
  },
};

const FLOW_SERVICE: Target = {
  endpoint: () => env.FLOW_SERVICE_URL ?? '',
  request: {
    method: 'POST',
    path: '/flows',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({
      template: 'bytes_echo',
      parameters: {},
      inputs: [{ data: 'data:text/plain;base64,eA==' }],
    }),
  },
  state: () => pipeline.standIn?.flows.length,
  answer: /id/,
};

const runtimeApi = (name: 'create-flow' | 'collect-outputs', environment: () => Record<string, string>): Target => ({
  endpoint: () => `http://${environment().AWS_LAMBDA_RUNTIME_API}`,
  request: { method: 'GET', path: '/2018-06-01/runtime/invocation/next' },
  // A frozen function would not answer, and a process that failed would be replaced. A second one may start beside it.
  state: async () => (await pipeline.functions[name].invoke({})) !== undefined && pipeline.functions[name].pids[0],
  answer: /./,
});

const TARGETS: Record<string, Target> = {
  ...AWS_TARGETS,
  'the flow service': FLOW_SERVICE,
  'the runtime API of create-flow': runtimeApi('create-flow', () => env),
  'the runtime API of collect-outputs': runtimeApi('collect-outputs', () => collectEnv),
};

it('the servers below are all that the pipeline starts', () => {
  const known = Object.values(TARGETS).map(({ endpoint }) => Number(new URL(endpoint()).port));
  expect(ports.toSorted()).toEqual(known.toSorted());
  expect(new Set(ports).size).toBe(8);
});

/** The credentials of a function, which every AWS endpoint accepts. */
const functionKeys = (): KeyPair => ({
  accessKeyId: env.AWS_ACCESS_KEY_ID ?? '',
  secretAccessKey: env.AWS_SECRET_ACCESS_KEY ?? '',
  sessionToken: env.AWS_SESSION_TOKEN ?? '',
});
const token = () => pipeline.secrets.find(TOKEN_SECRET).value;

/** Expects an answer to a request, and that the request changed nothing. */
async function expectRefused({ endpoint, request, state }: Target, sent: Partial<Unsigned>, body: string | RegExp) {
  const before = await state();
  const { path, ...rest } = { ...request, ...sent };
  const answer = await send(endpoint() + path, rest);
  expect([400, 401, 403]).toContain(answer.status);
  expect(answer.body).toMatch(body);
  expect(answer.body).not.toContain(token());
  expect(await state()).toEqual(before);
}

describe.each(Object.entries(AWS_TARGETS))('%s', (service, target) => {
  const { request, state, keys = functionKeys } = target;
  const isS3 = service === 's3';
  const signing = (more: Partial<Signing> = {}): Signing => ({
    endpoint: target.endpoint(),
    service,
    credentials: keys(),
    ...more,
  });
  const headersOf = (more: Partial<Signing> = {}) => signedHeaders(request, signing(more));

  it('refuses a request without a signature', () =>
    expectRefused(target, {}, isS3 ? 'AccessDenied' : 'MissingAuthenticationTokenException'));

  it('refuses an unknown key', async () => {
    const headers = await headersOf({ credentials: { ...keys(), accessKeyId: 'AKIDEXAMPLE' } });
    await expectRefused(target, { headers }, isS3 ? 'InvalidAccessKeyId' : 'UnrecognizedClientException');
  });

  it('refuses a key without its session token', async () => {
    if (keys().sessionToken === undefined) return; // The operator's key has none.
    const { sessionToken: _, ...credentials } = keys();
    const headers = await headersOf({ credentials });
    await expectRefused(target, { headers }, isS3 ? 'InvalidToken' : 'UnrecognizedClientException');
  });

  it('refuses a wrong secret', async () => {
    const headers = await headersOf({ credentials: { ...keys(), secretAccessKey: 'not-a-secret' } });
    await expectRefused(target, { headers }, isS3 ? 'SignatureDoesNotMatch' : 'InvalidSignatureException');
  });

  it('refuses a changed body', async () => {
    const body = String(request.body).replace(/\w/, 'b');
    expect(body).toHaveLength(String(request.body).length);
    const sent = { headers: await headersOf(), body };
    await expectRefused(target, sent, isS3 ? 'XAmzContentSHA256Mismatch' : 'InvalidSignatureException');
  });

  it('refuses a changed address', async () => {
    const sent = { headers: await headersOf(), path: `${request.path}?more` };
    await expectRefused(target, sent, isS3 ? 'SignatureDoesNotMatch' : 'InvalidSignatureException');
  });

  it('refuses a request of an hour ago', async () => {
    const headers = await headersOf({ date: new Date(Date.now() - 3_600_000) });
    await expectRefused(
      target,
      { headers },
      isS3 ? 'RequestTimeTooSkewed' : /InvalidSignatureException.*Signature expired/,
    );
  });

  it('refuses an expired presigned address', async () => {
    const path = await presignedPath(request, signing({ date: new Date(Date.now() - 120_000) }));
    await expectRefused(
      target,
      { path },
      isS3 ? 'Request has expired' : /InvalidSignatureException.*Signature expired/,
    );
  });

  it.each([
    ['a foreign Host', { host: 'evil.example' }, 'Only requests to 127.0.0.1'],
    ['the Host of another port', { host: '127.0.0.1:1' }, 'Only requests to 127.0.0.1'],
    ['an Origin', { origin: 'http://evil.example' }, 'Origin'],
    ['the Origin null', { origin: 'null' }, 'Origin'],
    ['Sec-Fetch-Site: cross-site', { 'sec-fetch-site': 'cross-site' }, 'Sec-Fetch-Site'],
    ['Sec-Fetch-Site: same-site', { 'sec-fetch-site': 'same-site' }, 'Sec-Fetch-Site'],
  ])('refuses %s, even with a valid signature', async (_, headers, message) => {
    const unsigned = { ...request, headers: { ...request.headers, ...headers } as Record<string, string> };
    await expectRefused(target, { headers: await signedHeaders(unsigned, signing()) }, message);
  });

  it('carries out what its client signed', async () => {
    const before = await state();
    const { path, ...rest } = { ...request, headers: await headersOf() };
    const answer = await send(target.endpoint() + path, rest);
    expect(answer).toMatchObject({ status: 200, body: expect.stringMatching(target.answer) });
    if (service !== 'secretsmanager' && service !== 'lambda') expect(await state()).not.toEqual(before);
  });
});

describe('the credentials of S3 clients', () => {
  it('are good for S3 only', async () => {
    const { sqs, secretsmanager, events, lambda, s3 } = AWS_TARGETS;
    const headersFor = (service: string, { endpoint, request }: Target) =>
      signedHeaders(request, { endpoint: endpoint(), service, credentials: pipeline.s3Credentials });
    for (const [service, target] of Object.entries({ sqs, secretsmanager, events, lambda })) {
      await expectRefused(target, { headers: await headersFor(service, target) }, 'UnrecognizedClientException');
    }
    const { path, ...rest } = { ...s3.request, headers: await headersFor('s3', s3) };
    expect((await send(s3.endpoint() + path, rest)).status).toBe(200);
  });
});

describe('the credentials of the operator', () => {
  it('reach neither the token nor the event bus', async () => {
    const { secretsmanager, events } = AWS_TARGETS;
    for (const [service, target] of Object.entries({ secretsmanager, events })) {
      const signing = { endpoint: target.endpoint(), service, credentials: pipeline.operator.credentials };
      const headers = await signedHeaders(target.request, signing);
      await expectRefused(target, { headers }, 'UnrecognizedClientException');
    }
  });

  it('are told nothing of the credentials of a function', async () => {
    const path = '/2015-03-31/functions/collect-outputs/configuration';
    const { endpoints, credentials } = pipeline.operator;
    const headers = await signedHeaders(
      { method: 'GET', path },
      { endpoint: endpoints.lambda, service: 'lambda', credentials },
    );
    const { status, body } = await send(`${endpoints.lambda}${path}`, { headers });
    expect(status).toBe(200);
    expect(body).toContain('LEDGER_BUCKET');
    expect(body).not.toContain('AWS_');
  });
});

describe('the flow service', () => {
  it('refuses a request without a token, and a wrong token', async () => {
    await expectRefused(FLOW_SERVICE, {}, 'Not authenticated');
    const headers = { ...FLOW_SERVICE.request.headers, authorization: `Bearer ${'0'.repeat(40)}` };
    await expectRefused(FLOW_SERVICE, { headers }, 'Not authenticated');
  });

  it('carries out what comes with its token', async () => {
    const { endpoint, request, state } = FLOW_SERVICE;
    const before = await state();
    const headers = { ...request.headers, authorization: `Bearer ${token()}` };
    const answer = await send(endpoint() + request.path, { ...request, headers });
    expect(answer).toMatchObject({ status: expect.toSatisfy((status: number) => status < 300) });
    expect(await state()).not.toEqual(before);
  });
});

describe.each(Object.entries(TARGETS).filter(([name]) => name.startsWith('the runtime API')))('%s', (_, target) => {
  it('refuses a request without its secret, and a wrong secret', async () => {
    await expectRefused(target, {}, 'Only the function');
    await expectRefused(target, { headers: { 'flowdrop-runtime-secret': '0'.repeat(40) } }, 'Only the function');
  });

  it('lets nobody else report an error or a result', async () => {
    const headers = { 'content-length': '2' };
    for (const path of ['init/error', 'invocation/any/response', 'invocation/any/error']) {
      const sent = { method: 'POST', path: `/2018-06-01/runtime/${path}`, headers, body: '{}' };
      await expectRefused(target, sent, 'Only the function');
    }
  });
});

describe.each(Object.entries(TARGETS))('a web page cannot reach %s', (_, target) => {
  it.each<[string, Record<string, string>, RegExp]>([
    ['through DNS rebinding', { host: 'evil.example' }, /Only requests to 127\.0\.0\.1/],
    ['through a name without a port', { host: 'localhost' }, /Only requests to 127\.0\.0\.1/],
    ['with a script', { origin: 'http://evil.example', 'sec-fetch-site': 'cross-site' }, /Origin/],
    ['with an image', { 'sec-fetch-site': 'cross-site', 'sec-fetch-mode': 'no-cors' }, /Sec-Fetch-Site/],
  ])('%s', async (__, headers, message) => {
    await expectRefused(target, { headers: { ...target.request.headers, ...headers } }, message);
  });

  it.each(['application/x-www-form-urlencoded', 'text/plain', 'multipart/form-data; boundary=x'])(
    'with a form of type %s, even in a browser that does not say where it comes from',
    async (type) => {
      const body = target.request.body ?? 'a=b';
      const headers = { 'content-type': type, 'content-length': String(body.length) };
      await expectRefused(target, { method: 'POST', headers, body }, /./);
    },
  );
});

it('answers localhost as it answers 127.0.0.1', async () => {
  const { port } = new URL(pipeline.s3Endpoint);
  const list = { method: 'GET', path: '/', headers: { host: `localhost:${port}`, 'sec-fetch-site': 'none' } };
  const signing = { endpoint: pipeline.s3Endpoint, service: 's3', credentials: pipeline.s3Credentials };
  expect((await send(`${pipeline.s3Endpoint}/`, { headers: await signedHeaders(list, signing) })).status).toBe(200);
});

it('writes none of its secrets to its folder', async () => {
  const secrets = [
    functionKeys().secretAccessKey,
    functionKeys().sessionToken,
    pipeline.s3Credentials.secretAccessKey,
    pipeline.operator.credentials.secretAccessKey,
    token(),
  ];
  const files = await readdir(join(dir, 'state'), { recursive: true, withFileTypes: true });
  const texts = files
    .filter((file) => file.isFile())
    .map((file) => readFile(join(file.parentPath, file.name), 'latin1'));
  expect(texts.length).toBeGreaterThan(1);
  for (const text of await Promise.all(texts)) {
    for (const secret of secrets) expect(text).not.toContain(secret);
  }
});

it('makes other secrets in every run', async () => {
  const other = await startPipeline({
    bundleDir: dir,
    routes: [{ name: 'all', input: 'file', template: 'bytes_echo' }],
    tickIntervalMs: 3_600_000,
  });
  try {
    const otherEnv = (await other.functions['create-flow'].invoke({})) as Record<string, string>;
    for (const name of ['AWS_ACCESS_KEY_ID', 'AWS_SECRET_ACCESS_KEY', 'AWS_SESSION_TOKEN']) {
      expect(new Set([env[name], collectEnv[name], otherEnv[name]])).toHaveProperty('size', 3);
    }
    expect(other.s3Credentials.secretAccessKey).not.toBe(pipeline.s3Credentials.secretAccessKey);
    expect(other.secrets.find(TOKEN_SECRET).value).not.toBe(token());
    expect(env).not.toHaveProperty('FLOWDROP_RUNTIME_SECRET');
  } finally {
    await other.close();
  }
});
