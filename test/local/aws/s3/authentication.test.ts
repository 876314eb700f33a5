import { createHash, createHmac } from 'node:crypto';
import { request } from 'node:http';
import { GetObjectCommand, ListObjectsV2Command, PutObjectCommand, S3Client } from '@aws-sdk/client-s3';
import { describe, expect, onTestFinished, test } from 'vitest';
import { serveS3 } from '../../../../local/aws/s3/http.ts';
import { EmbeddedS3 } from '../../../../local/aws/s3/s3.ts';
import { type KeyPair, presignedPath, type Signing, signedHeaders, type Unsigned } from '../../../support/sigv4.ts';
import { BUCKET, CREDENTIALS, send, startS3 } from './support.ts';

const MINUTE = 60_000;
const WEEK_SECONDS = 7 * 24 * 3600;
const UNSIGNED = { 'x-amz-content-sha256': 'UNSIGNED-PAYLOAD' };
const md5 = (text: string) => createHash('md5').update(text).digest('base64');
const sha256 = (text: string) => createHash('sha256').update(text).digest('hex');

const hmac = (key: string | Buffer, text: string) => createHmac('sha256', key).update(text).digest();
const signingKey = (scope: string) =>
  scope.split('/').reduce<string | Buffer>(hmac, `AWS4${CREDENTIALS.secretAccessKey}`);

/** The status, code and message of an answer. */
async function outcome(answer: ReturnType<typeof send>) {
  const { status, body } = await answer;
  return [status, /<Code>(.*?)<\/Code>/.exec(body)?.[1], /<Message>(.*?)<\/Message>/.exec(body)?.[1]];
}

interface Sending extends Partial<Omit<Signing, 'endpoint'>> {
  /** Changes the request after it was signed. */
  readonly tamper?: (sent: Required<Unsigned>) => Partial<Unsigned>;
}

/** Sends a request with a signature. */
async function signed(endpoint: string, unsigned: Unsigned, { tamper = () => ({}), ...signing }: Sending = {}) {
  const { method, path, body = '' } = unsigned;
  const options = { endpoint, service: 's3', credentials: CREDENTIALS, ...signing };
  const sent = { method, path, body, headers: await signedHeaders(unsigned, options) };
  const { path: finalPath, headers, ...rest } = { ...sent, ...tamper(sent) };
  return send(endpoint, rest.method, finalPath, { headers, body: rest.body as string });
}

const put = (body = 'hello', headers: Record<string, string> = UNSIGNED): Unsigned => ({
  method: 'PUT',
  path: `/${BUCKET}/k`,
  body,
  headers: { 'content-length': String(body.length), ...headers },
});

describe('a signature in the header', () => {
  const wrongSecret = { ...CREDENTIALS, secretAccessKey: 'another-fake' };
  const session: KeyPair = { ...CREDENTIALS, sessionToken: 'another-fake' };
  const without = (name: string) => (sent: Required<Unsigned>) => {
    const { [name]: _, ...headers } = sent.headers;
    return { headers };
  };
  const authorization = (change: (text: string) => string) => (sent: Required<Unsigned>) => ({
    headers: { ...sent.headers, authorization: change(sent.headers.authorization ?? '') },
  });
  const ago = (ms: number) => new Date(Date.now() - ms);
  const unsupported = 'The authorization mechanism you have provided is not supported. Please use AWS4-HMAC-SHA256.';

  test.each<[string, Sending, number, string, (string | RegExp)?]>([
    ['none', { tamper: without('authorization') }, 403, 'AccessDenied', 'Access Denied'],
    ['an unknown key', { credentials: { ...CREDENTIALS, accessKeyId: 'AKIDOTHER' } }, 403, 'InvalidAccessKeyId'],
    ['a wrong secret', { credentials: wrongSecret }, 403, 'SignatureDoesNotMatch'],
    ['a session token that is not its own', { credentials: session }, 400, 'InvalidToken'],
    ['another path', { tamper: () => ({ path: `/${BUCKET}/l` }) }, 403, 'SignatureDoesNotMatch'],
    ['another method', { tamper: () => ({ method: 'DELETE' }) }, 403, 'SignatureDoesNotMatch'],
    ['another query', { tamper: () => ({ path: `/${BUCKET}/k?uploads` }) }, 403, 'SignatureDoesNotMatch'],
    [
      'a header that was added',
      { tamper: ({ headers }) => ({ headers: { ...headers, 'x-amz-meta-a': 'b' } }) },
      403,
      'AccessDenied',
      'There were headers present in the request which were not signed',
    ],
    [
      'a header that was changed',
      { tamper: ({ headers }) => ({ headers: { ...headers, 'x-amz-content-sha256': sha256('other') } }) },
      403,
      'SignatureDoesNotMatch',
    ],
    ['a time 16 minutes ago', { date: ago(16 * MINUTE) }, 403, 'RequestTimeTooSkewed'],
    ['a time in 16 minutes', { date: ago(-16 * MINUTE) }, 403, 'RequestTimeTooSkewed'],
    ['no time', { tamper: without('x-amz-date') }, 403, 'AccessDenied', /valid Date or x-amz-date/],
    ['no payload hash', { tamper: without('x-amz-content-sha256') }, 400, 'InvalidRequest', /x-amz-content-sha256/],
    ['another region', { region: 'eu-west-1' }, 400, 'AuthorizationHeaderMalformed', /expecting 'us-east-1'/],
    ['another service', { service: 'sqs' }, 400, 'AuthorizationHeaderMalformed'],
    [
      'another day',
      { tamper: authorization((text) => text.replace(/\/\d{8}\//, '/20200101/')) },
      400,
      'AuthorizationHeaderMalformed',
    ],
    [
      'no signature',
      { tamper: authorization((text) => text.replace(/, Signature.*/, '')) },
      400,
      'AuthorizationHeaderMalformed',
    ],
    [
      'two credentials',
      { tamper: authorization((text) => `${text}, Credential=x`) },
      400,
      'AuthorizationHeaderMalformed',
    ],
    [
      'an empty signature',
      { tamper: authorization((text) => text.replace(/Signature=.*/, 'Signature=')) },
      400,
      'AuthorizationHeaderMalformed',
    ],
    ['Version 2', { tamper: authorization(() => 'AWS AKIDEXAMPLE:AAAA') }, 400, 'InvalidRequest', unsupported],
    ['a password', { tamper: authorization(() => 'Basic QUtJREVYQU1QTEU6eA==') }, 400, 'InvalidRequest', unsupported],
    [
      'a second one in the query',
      { tamper: () => ({ path: `/${BUCKET}/k?X-Amz-Algorithm=AWS4-HMAC-SHA256` }) },
      400,
      'InvalidArgument',
      /Only one auth mechanism allowed/,
    ],
  ])('with %s is refused, and nothing is stored', async (_, sending, status, code, message = /./) => {
    const { endpoint, client } = await startS3();
    expect(await outcome(signed(endpoint, put(), sending))).toEqual([status, code, expect.stringMatching(message)]);
    expect((await client.send(new ListObjectsV2Command({ Bucket: BUCKET }))).KeyCount).toBe(0);
  });

  test.each([
    ['14 minutes ago', ago(14 * MINUTE)],
    ['in 14 minutes', ago(-14 * MINUTE)],
  ])('with a time %s is accepted', async (_, date) => {
    const { endpoint } = await startS3();
    expect((await signed(endpoint, put(), { date })).status).toBe(200);
  });

  test('an answer to HEAD has a status and no body', async () => {
    const { endpoint } = await startS3();
    expect(await send(endpoint, 'HEAD', `/${BUCKET}/k`)).toMatchObject({ status: 403, body: '' });
  });

  test('the answer to a wrong signature shows what was signed here', async () => {
    const { endpoint } = await startS3();
    const { body } = await signed(endpoint, put(), { credentials: wrongSecret });
    expect(body).toMatch(/<StringToSign>AWS4-HMAC-SHA256\n?/);
    expect(body).toContain('<AWSAccessKeyId>AKIDEXAMPLE</AWSAccessKeyId>');
    expect(body).not.toContain(CREDENTIALS.secretAccessKey);
  });

  test('a body that is not the signed one is refused, and nothing is stored', async () => {
    const { endpoint, client } = await startS3();
    const hash = { 'x-amz-content-sha256': sha256('hello') };
    expect((await signed(endpoint, put('hello', hash))).status).toBe(200);
    const other = { ...put('hello', hash), path: `/${BUCKET}/l` };
    expect(await outcome(signed(endpoint, other, { tamper: () => ({ body: 'jello' }) }))).toEqual([
      400,
      'XAmzContentSHA256Mismatch',
      expect.anything(),
    ]);
    const { Contents = [] } = await client.send(new ListObjectsV2Command({ Bucket: BUCKET }));
    expect(Contents.map(({ Key }) => Key)).toEqual(['k']);
  });

  test('a deletion whose body is not the signed one deletes nothing', async () => {
    const { endpoint, client } = await startS3();
    await client.send(new PutObjectCommand({ Bucket: BUCKET, Key: 'k', Body: 'x' }));
    const body = '<Delete><Object><Key>a</Key></Object></Delete>';
    const unsigned = {
      method: 'POST',
      path: `/${BUCKET}?delete`,
      headers: { 'x-amz-content-sha256': sha256(body) },
      body,
    };
    const tampered = body.replace('>a<', '>k<');
    const answer = signed(endpoint, unsigned, {
      tamper: ({ headers }) => ({ headers: { ...headers, 'content-md5': md5(tampered) }, body: tampered }),
    });
    expect(await outcome(answer)).toEqual([400, 'XAmzContentSHA256Mismatch', expect.anything()]);
    expect((await client.send(new ListObjectsV2Command({ Bucket: BUCKET }))).KeyCount).toBe(1);
  });

  test.each([
    ['the signed ones', 'hello', 200, undefined, 1],
    ['not the signed ones', 'jello', 403, 'SignatureDoesNotMatch', 0],
  ])('a body of chunks that are %s is answered, and stored only then', async (_, sent, status, code, count) => {
    const { endpoint, client } = await startS3();
    const headers = await signedHeaders(
      {
        method: 'PUT',
        path: `/${BUCKET}/k`,
        headers: {
          'content-encoding': 'aws-chunked',
          'x-amz-content-sha256': 'STREAMING-AWS4-HMAC-SHA256-PAYLOAD',
          'x-amz-decoded-content-length': '5',
        },
      },
      { endpoint, service: 's3', credentials: CREDENTIALS },
    );
    const time = headers['x-amz-date'] ?? '';
    const scope = `${time.slice(0, 8)}/us-east-1/s3/aws4_request`;
    let previous = /Signature=(\w+)/.exec(headers.authorization ?? '')?.[1] ?? '';
    const chunk = (signedData: string, data: string) => {
      const text = ['AWS4-HMAC-SHA256-PAYLOAD', time, scope, previous, sha256(''), sha256(signedData)].join('\n');
      previous = hmac(signingKey(scope), text).toString('hex');
      return `${data.length.toString(16)};chunk-signature=${previous}\r\n${data}\r\n`;
    };
    const body = chunk('hello', sent) + chunk('', '');
    const answer = send(endpoint, 'PUT', `/${BUCKET}/k`, {
      headers: { ...headers, 'content-length': String(body.length) },
      body,
    });
    expect((await outcome(answer)).slice(0, 2)).toEqual([status, code]);
    expect((await client.send(new ListObjectsV2Command({ Bucket: BUCKET }))).KeyCount).toBe(count);
  });

  test.each(['', 'A'.repeat(64), 'STREAMING-AWS4-ECDSA-P256-SHA256-PAYLOAD', 'unsigned-payload'])(
    'the payload hash "%s" is refused',
    async (hash) => {
      const { endpoint } = await startS3();
      const [status, code] = await outcome(signed(endpoint, put('hello', { 'x-amz-content-sha256': hash })));
      expect([status, code]).toEqual([400, hash === '' ? 'InvalidRequest' : 'InvalidArgument']);
    },
  );

  test('a client that waits for 100 Continue learns of its refusal before it sends the body', async () => {
    const { endpoint } = await startS3();
    const sent = request(`${endpoint}/${BUCKET}/k`, {
      method: 'PUT',
      headers: { 'content-length': 1000, expect: '100-continue' },
    });
    let isWanted = false;
    sent.on('continue', () => {
      isWanted = true;
    });
    sent.flushHeaders();
    const status = await new Promise((resolve, reject) => {
      sent.on('response', ({ statusCode }) => resolve(statusCode));
      sent.on('error', reject);
    });
    sent.destroy();
    expect([status, isWanted]).toEqual([403, false]);
  });
});

describe('a presigned address', () => {
  const get: Unsigned = { method: 'GET', path: `/${BUCKET}/a%20b%2B%C3%BC` };
  const where = (endpoint: string, more: Partial<Signing> = {}): Signing => ({
    endpoint,
    service: 's3',
    credentials: CREDENTIALS,
    ...more,
  });
  async function startWithObject() {
    const running = await startS3();
    await running.client.send(new PutObjectCommand({ Bucket: BUCKET, Key: 'a b+ü', Body: 'hello' }));
    return running;
  }

  test('gets and puts an object', async () => {
    const { endpoint, client } = await startWithObject();
    const path = await presignedPath(get, where(endpoint));
    expect(await send(endpoint, 'GET', path)).toMatchObject({ status: 200, body: 'hello' });
    const target = await presignedPath({ method: 'PUT', path: `/${BUCKET}/n` }, where(endpoint));
    expect((await send(endpoint, 'PUT', target, { headers: { 'content-length': '3' }, body: 'new' })).status).toBe(200);
    const { Body } = await client.send(new GetObjectCommand({ Bucket: BUCKET, Key: 'n' }));
    expect(await Body?.transformToString()).toBe('new');
  });

  test('can hold metadata and the hash of the body', async () => {
    const { endpoint, client } = await startWithObject();
    const headers = { 'x-amz-meta-colour': 'red' };
    const target = await presignedPath({ method: 'PUT', path: `/${BUCKET}/n`, headers }, where(endpoint));
    expect(target).toContain('x-amz-meta-colour=red');
    await send(endpoint, 'PUT', target, { headers: { 'content-length': '3' }, body: 'new' });
    const { Metadata } = await client.send(new GetObjectCommand({ Bucket: BUCKET, Key: 'n' }));
    expect(Metadata).toEqual({ colour: 'red' });
  });

  const minutesAgo = (minutes: number) => ({ date: new Date(Date.now() - minutes * MINUTE) });
  test.each<[string, Partial<Signing>, number, (path: string) => string, number, string, (string | RegExp)?]>([
    ['has expired', minutesAgo(2), 60, (path) => path, 403, 'AccessDenied', 'Request has expired'],
    ['is from the future', minutesAgo(-16), 60, (path) => path, 403, 'AccessDenied', 'Request is not valid yet'],
    [
      'is valid for more than a week',
      {},
      60,
      (path) => path.replace(/Expires=60/, `Expires=${WEEK_SECONDS + 1}`),
      400,
      'AuthorizationQueryParametersError',
      /less than a week/,
    ],
    [
      'has a negative validity',
      {},
      60,
      (path) => path.replace('Expires=60', 'Expires=-1'),
      400,
      'AuthorizationQueryParametersError',
      /non-negative/,
    ],
    [
      'has no number as validity',
      {},
      60,
      (path) => path.replace('Expires=60', 'Expires=1e9'),
      400,
      'AuthorizationQueryParametersError',
      /should be a number/,
    ],
    [
      'was made valid for longer',
      {},
      60,
      (path) => path.replace('Expires=60', 'Expires=600'),
      403,
      'SignatureDoesNotMatch',
    ],
    ['is for another key', {}, 60, (path) => path.replace('a%20b', 'c'), 403, 'SignatureDoesNotMatch'],
    [
      'has an unknown access key',
      { credentials: { ...CREDENTIALS, accessKeyId: 'AKIDOTHER' } },
      60,
      (path) => path,
      403,
      'InvalidAccessKeyId',
    ],
    [
      'has no signature',
      {},
      60,
      (path) => path.replace(/&X-Amz-Signature=\w+/, ''),
      400,
      'AuthorizationQueryParametersError',
      /requires the X-Amz-Algorithm/,
    ],
    [
      'has two dates',
      {},
      60,
      (path) => `${path}&X-Amz-Date=20300101T000000Z`,
      400,
      'AuthorizationQueryParametersError',
    ],
    [
      'has another algorithm',
      {},
      60,
      (path) => path.replace('AWS4-HMAC-SHA256', 'AWS4-HMAC-SHA1'),
      400,
      'AuthorizationQueryParametersError',
      /X-Amz-Algorithm only supports/,
    ],
    [
      'is signed by Version 2',
      {},
      60,
      () => `/${BUCKET}/k?AWSAccessKeyId=AKIDEXAMPLE&Expires=1&Signature=x`,
      400,
      'InvalidRequest',
      /not supported/,
    ],
  ])('that %s is refused', async (_, signing, expiresSeconds, change, status, code, message = /./) => {
    const { endpoint } = await startWithObject();
    const path = await presignedPath(get, where(endpoint, signing), { expiresSeconds });
    expect(await outcome(send(endpoint, 'GET', change(path)))).toEqual([status, code, expect.stringMatching(message)]);
  });

  test('is valid for a week at most, by the clock of the server', async () => {
    const s3 = new EmbeddedS3();
    s3.createBucket(BUCKET);
    let passedMs = 0;
    const server = await serveS3(s3, { credentials: [CREDENTIALS], now: () => Date.now() + passedMs });
    onTestFinished(async () => {
      await server.close();
      s3.close();
    });
    const list = { method: 'GET', path: `/${BUCKET}` };
    const path = await presignedPath(list, where(server.endpoint), { expiresSeconds: WEEK_SECONDS });
    passedMs = (WEEK_SECONDS - 60) * 1000;
    expect((await send(server.endpoint, 'GET', path)).status).toBe(200);
    passedMs += 2 * MINUTE;
    expect(await outcome(send(server.endpoint, 'GET', path))).toEqual([403, 'AccessDenied', 'Request has expired']);
  });
});

test('permissions are those of the key that signed, whatever the header says beside it', async () => {
  const asked: unknown[] = [];
  const { endpoint } = await startS3({ authorize: ({ accessKeyId }) => asked.push(accessKeyId) > 0 });
  const { host } = new URL(endpoint);
  const time = new Date().toISOString().replace(/[-:]|\.\d+/g, '');
  const scope = `${time.slice(0, 8)}/us-east-1/s3/aws4_request`;
  // A header of this name cannot be sent. So it is signed as an empty one.
  const names = 'Credential=AKIDOTHER/x;host;x-amz-content-sha256;x-amz-date';
  const headers = [
    `Credential=AKIDOTHER/x:`,
    `host:${host}`,
    'x-amz-content-sha256:UNSIGNED-PAYLOAD',
    `x-amz-date:${time}`,
  ];
  const canonical = ['GET', '/', '', ...headers, '', names, 'UNSIGNED-PAYLOAD'].join('\n');
  const signature = hmac(signingKey(scope), ['AWS4-HMAC-SHA256', time, scope, sha256(canonical)].join('\n')).toString(
    'hex',
  );
  const answer = await send(endpoint, 'GET', '/', {
    headers: {
      ...UNSIGNED,
      'x-amz-date': time,
      authorization: `AWS4-HMAC-SHA256 SignedHeaders=${names}, Credential=AKIDEXAMPLE/${scope}, Signature=${signature}`,
    },
  });
  expect(answer.status).toBe(200);
  expect(asked).toEqual(['AKIDEXAMPLE']);
});

test("the SDK's client gets the error that S3 would answer", async () => {
  const { endpoint } = await startS3();
  const client = new S3Client({
    endpoint,
    region: 'us-east-1',
    credentials: { ...CREDENTIALS, secretAccessKey: 'another-fake' },
    maxAttempts: 1,
  });
  onTestFinished(() => client.destroy());
  await expect(client.send(new ListObjectsV2Command({ Bucket: BUCKET }))).rejects.toMatchObject({
    name: 'SignatureDoesNotMatch',
    $metadata: { httpStatusCode: 403 },
  });
});
