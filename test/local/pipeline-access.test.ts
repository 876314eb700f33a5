import { mkdir, readdir, readFile, writeFile } from 'node:fs/promises';
import { type AddressInfo, connect, Server } from 'node:net';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { ListObjectVersionsCommand } from '@aws-sdk/client-s3';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import {
  INBOX_BUCKET,
  LEDGER_BUCKET,
  type Pipeline,
  RESULTS_BUCKET,
  startPipeline,
  TOKEN_SECRET,
} from '../../local/pipeline.ts';
import { sharedFolder } from '../support/folder.ts';
import { send } from '../support/raw-request.ts';
import { type KeyPair, presignedPath, type Signing, signedHeaders, type Unsigned } from '../support/sigv4.ts';

/** Functions that answer with their environment, so that the test knows every address that they get. */
const REVEALING = 'export const handler = async () => process.env;';

const dir = sharedFolder();
let pipeline: Pipeline;
/** The environments of both functions. */
let env: Record<string, string>;
let collectEnv: Record<string, string>;
/** The ports of all servers that the pipeline started. */
let ports: number[];
beforeAll(async () => {
  const listen = vi.spyOn(Server.prototype, 'listen');
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
});
afterAll(() => pipeline.close());

describe('another user of the machine', () => {
  it('cannot use the flow service with a token that is the same in every run', async () => {
    const headers = { authorization: 'Bearer stand-in-token' };
    expect((await send(env.FLOW_SERVICE_URL ?? '', 'GET', '/flows', { headers })).status).toBe(401);
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

/** Sends the request of a target, with other members. */
function sendTo({ endpoint, request }: Target, other: Partial<Unsigned>) {
  const { method, path, ...rest } = { ...request, ...other };
  return send(endpoint(), method, path, rest);
}

/** Expects an answer to a request, and that the request changed nothing. */
async function expectRefused(target: Target, other: Partial<Unsigned>, body: string | RegExp) {
  const { state } = target;
  const before = await state();
  const answer = await sendTo(target, other);
  expect([400, 401, 403]).toContain(answer.status);
  expect(answer.body).toMatch(body);
  expect(answer.body).not.toContain(token());
  expect(await state()).toEqual(before);
}

/** The signature of a service's request. */
const signing = (service: string, target: Target, more: Partial<Signing> = {}): Signing => ({
  endpoint: target.endpoint(),
  service,
  credentials: (target.keys ?? functionKeys)(),
  ...more,
});

/** For all endpoints of its protocol, which check signatures in the same place. signature.test.ts tests those of S3. */
describe('sqs', () => {
  const { sqs } = AWS_TARGETS;
  const signed = async (more: Partial<Signing> = {}) => ({
    headers: await signedHeaders(sqs.request, signing('sqs', sqs, more)),
  });
  const signedWith = (more: Partial<KeyPair>) => signed({ credentials: { ...functionKeys(), ...more } });
  const ago = (ms: number) => ({ date: new Date(Date.now() - ms) });
  const INVALID = 'InvalidSignatureException';
  const EXPIRED = /InvalidSignatureException.*Signature expired/;

  it.each<[string, () => Promise<Partial<Unsigned>>, string | RegExp]>([
    ['an unknown key', () => signedWith({ accessKeyId: 'AKIDEXAMPLE' }), 'UnrecognizedClientException'],
    ['a wrong secret', () => signedWith({ secretAccessKey: 'not-a-secret' }), INVALID],
    [
      'a changed body',
      async () => ({ ...(await signed()), body: String(sqs.request.body).replace(/\w/, 'b') }),
      INVALID,
    ],
    ['a changed address', async () => ({ ...(await signed()), path: `${sqs.request.path}?more` }), INVALID],
    ['a request of an hour ago', () => signed(ago(3_600_000)), EXPIRED],
    [
      'an expired presigned address',
      async () => ({ path: await presignedPath(sqs.request, signing('sqs', sqs, ago(120_000))) }),
      EXPIRED,
    ],
  ])('refuses %s', async (_, other, answer) => {
    await expectRefused(sqs, await other(), answer);
  });
});

it.each([
  ['s3', 'InvalidToken'],
  ['sqs', 'UnrecognizedClientException'],
] as const)('%s refuses a key without its session token', async (service, answer) => {
  const target = AWS_TARGETS[service];
  const { sessionToken, ...credentials } = functionKeys();
  const headers = await signedHeaders(target.request, signing(service, target, { credentials }));
  await expectRefused(target, { headers }, answer);
});

describe.each(Object.entries(AWS_TARGETS))('%s', (service, target) => {
  it('refuses a request without a signature', async () => {
    await expectRefused(target, {}, service === 's3' ? 'AccessDenied' : 'MissingAuthenticationTokenException');
  });

  it('carries out what its client signed', async () => {
    const before = await target.state();
    const headers = await signedHeaders(target.request, signing(service, target));
    const answer = await sendTo(target, { headers });
    expect(answer).toMatchObject({ status: 200, body: expect.stringMatching(target.answer) });
    if (service !== 'secretsmanager' && service !== 'lambda') expect(await target.state()).not.toEqual(before);
  });
});

it.each(Object.entries(TARGETS))('closes the connection of a stranger to %s', async (_, target) => {
  const { host, port } = new URL(target.endpoint());
  const { method, path } = target.request;
  const socket = connect(Number(port), '127.0.0.1');
  const authorization = 'authorization: Bearer wrong\r\ncontent-type: application/json';
  socket.write(`${method} ${path} HTTP/1.1\r\nhost: ${host}\r\n${authorization}\r\ncontent-length: 2\r\n\r\n{}`);
  expect(await text(socket)).toMatch(/^HTTP\/1.1 40[013] /); // It has ended.
});

describe('the credentials of S3 clients', () => {
  it('are good for S3 only', async () => {
    const { sqs, secretsmanager, events, lambda, s3 } = AWS_TARGETS;
    const credentials = pipeline.s3Credentials;
    const headersFor = (service: string, target: Target) =>
      signedHeaders(target.request, signing(service, target, { credentials }));
    for (const [service, target] of Object.entries({ sqs, secretsmanager, events, lambda })) {
      await expectRefused(target, { headers: await headersFor(service, target) }, 'UnrecognizedClientException');
    }
    expect((await sendTo(s3, { headers: await headersFor('s3', s3) })).status).toBe(200);
  });
});

describe('the credentials of the operator', () => {
  it('neither reach the token, nor put an event on the bus, apart from one that tries who is told', async () => {
    const { secretsmanager, events } = AWS_TARGETS;
    const { credentials } = pipeline.operator;
    for (const [service, target, refusal] of [
      ['secretsmanager', secretsmanager, 'UnrecognizedClientException'],
      ['events', events, 'AccessDeniedException'],
    ] as const) {
      const headers = await signedHeaders(target.request, signing(service, target, { credentials }));
      await expectRefused(target, { headers }, refusal);
    }
  });

  it('are told nothing of the credentials of a function', async () => {
    const path = '/2015-03-31/functions/collect-outputs/configuration';
    const { lambda } = AWS_TARGETS;
    const headers = await signedHeaders({ method: 'GET', path }, signing('lambda', lambda));
    const { status, body } = await send(lambda.endpoint(), 'GET', path, { headers });
    expect(status).toBe(200);
    expect(body).toContain('LEDGER_BUCKET');
    expect(body).not.toContain('AWS_');
  });
});

describe('the flow service', () => {
  it('carries out what comes with its token', async () => {
    const { request, state } = FLOW_SERVICE;
    const before = await state();
    const answer = await sendTo(FLOW_SERVICE, { headers: { ...request.headers, authorization: `Bearer ${token()}` } });
    expect(answer.status).toBeLessThan(300);
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

it.each(Object.entries(TARGETS))('a web page cannot reach %s, even with a valid signature', async (service, target) => {
  const headers = { ...target.request.headers, host: 'evil.example' };
  const signed = () => signedHeaders({ ...target.request, headers }, signing(service, target));
  const other = { headers: service in AWS_TARGETS ? await signed() : headers };
  await expectRefused(target, other, 'Only requests to 127.0.0.1');
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
