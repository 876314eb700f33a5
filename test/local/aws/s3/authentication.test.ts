import { createHash, createHmac } from 'node:crypto';
import { request } from 'node:http';
import { describe, expect, test } from 'vitest';
import { send } from '../../../support/raw-request.ts';
import { head, list, put, read } from '../../../support/s3-calls.ts';
import { presignedPath, type Signing, signedHeaders, type Unsigned } from '../../../support/sigv4.ts';
import { BUCKET, CREDENTIALS, startS3 } from './support.ts';

const MINUTE = 60_000;
const WEEK_SECONDS = 7 * 24 * 3600;
const UNSIGNED = { 'x-amz-content-sha256': 'UNSIGNED-PAYLOAD' };
const md5 = (text: string) => createHash('md5').update(text).digest('base64');
const sha256 = (text: string) => createHash('sha256').update(text).digest('hex');

const hmac = (key: string | Buffer, text: string) => createHmac('sha256', key).update(text).digest();
const signingKey = (scope: string) =>
  scope.split('/').reduce<string | Buffer>(hmac, `AWS4${CREDENTIALS.secretAccessKey}`);

/** Status, code and message of an answer. */
async function answerTo(sent: ReturnType<typeof send>): Promise<string> {
  const { outcome, body } = await sent;
  const [, message] = /<Message>(.+?)<\/Message>/.exec(body) ?? [];
  if (message === undefined) throw new Error(`An answer without a message: ${body}`);
  return `${outcome}: ${message}`;
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

const putting = (body = 'hello', headers: Record<string, string> = UNSIGNED): Unsigned => ({
  method: 'PUT',
  path: `/${BUCKET}/k`,
  body,
  headers: { 'content-length': String(body.length), ...headers },
});

describe('a signature in the header', () => {
  const keys = (more: object): Sending => ({ credentials: { ...CREDENTIALS, ...more } });
  const wrongSecret = keys({ secretAccessKey: 'another-fake' });
  const sentTo = (path: string): Sending => ({ tamper: () => ({ path }) });
  const withHeaders = (change: (headers: Readonly<Record<string, string>>) => Record<string, string>): Sending => ({
    tamper: ({ headers }) => ({ headers: change(headers) }),
  });
  const adding = (more: Record<string, string>) => withHeaders((headers) => ({ ...headers, ...more }));
  const without = (name: string) =>
    withHeaders((headers) => Object.fromEntries(Object.entries(headers).filter(([each]) => each !== name)));
  const authorization = (change: (text: string) => string) =>
    withHeaders((headers) => ({ ...headers, authorization: change(headers.authorization ?? '') }));
  const ago = (ms: number) => new Date(Date.now() - ms);

  test.each<[string, Sending, string | RegExp]>([
    ['none', without('authorization'), '403 AccessDenied: Access Denied'],
    ['an unknown key', keys({ accessKeyId: 'AKIDOTHER' }), '403 InvalidAccessKeyId: '],
    ['a wrong secret', wrongSecret, '403 SignatureDoesNotMatch: '],
    ['a session token that is not its own', keys({ sessionToken: 'another-fake' }), '400 InvalidToken: '],
    ['another path', sentTo(`/${BUCKET}/l`), '403 SignatureDoesNotMatch: '],
    ['another method', { tamper: () => ({ method: 'DELETE' }) }, '403 SignatureDoesNotMatch: '],
    ['another query', sentTo(`/${BUCKET}/k?uploads`), '403 SignatureDoesNotMatch: '],
    [
      'a header that was added',
      adding({ 'x-amz-meta-a': 'b' }),
      '403 AccessDenied: There were headers present in the request which were not signed',
    ],
    ['a changed header', adding({ 'x-amz-content-sha256': sha256('other') }), '403 SignatureDoesNotMatch: '],
    ['a time 16 minutes ago', { date: ago(16 * MINUTE) }, '403 RequestTimeTooSkewed: '],
    ['a time in 16 minutes', { date: ago(-16 * MINUTE) }, '403 RequestTimeTooSkewed: '],
    ['no time', without('x-amz-date'), /^403 AccessDenied: .*valid Date or x-amz-date/],
    ['no payload hash', without('x-amz-content-sha256'), /^400 InvalidRequest: .*x-amz-content-sha256/],
    ['another region', { region: 'eu-west-1' }, /^400 AuthorizationHeaderMalformed: .*expecting 'us-east-1'/],
    ['another service', { service: 'sqs' }, '400 AuthorizationHeaderMalformed: '],
    ['another day', authorization((it) => it.replace(/\/\d{8}\//, '/20200101/')), '400 AuthorizationHeaderMalformed: '],
    ['no signature', authorization((it) => it.replace(/, Signature.*/, '')), '400 AuthorizationHeaderMalformed: '],
    ['two credentials', authorization((it) => `${it}, Credential=x`), '400 AuthorizationHeaderMalformed: '],
    ['an empty signature', authorization((it) => it.replace(/\w+$/, '')), '400 AuthorizationHeaderMalformed: '],
    [
      'Version 2',
      authorization(() => 'AWS AKIDEXAMPLE:AAAA'),
      /^400 InvalidRequest: .* Please use AWS4-HMAC-SHA256\.$/,
    ],
    ['a password', authorization(() => 'Basic QUtJREVYQU1QTEU6eA=='), /^400 InvalidRequest: .* is not supported/],
    [
      'a second one in the query',
      sentTo(`/${BUCKET}/k?X-Amz-Algorithm=AWS4-HMAC-SHA256`),
      '400 InvalidArgument: Only one auth mechanism allowed',
    ],
    [
      'one of Version 2 in the query',
      sentTo(`/${BUCKET}/k?Signature=x`),
      '400 InvalidArgument: Only one auth mechanism allowed',
    ],
  ])('with %s is refused, and nothing is stored', async (_, sending, answer) => {
    const { endpoint, at } = await startS3();
    expect(await answerTo(signed(endpoint, putting(), sending))).toMatch(answer);
    expect(await list(at)).toEqual([]);
  });

  test.each([
    ['14 minutes ago', ago(14 * MINUTE)],
    ['in 14 minutes', ago(-14 * MINUTE)],
  ])('with a time %s is accepted', async (_, date) => {
    const { endpoint } = await startS3();
    expect((await signed(endpoint, putting(), { date })).status).toBe(200);
  });

  test('an answer to HEAD has a status and no body', async () => {
    const { endpoint } = await startS3();
    expect(await send(endpoint, 'HEAD', `/${BUCKET}/k`)).toMatchObject({ status: 403, body: '' });
  });

  test('the answer to a wrong signature shows what was signed here', async () => {
    const { endpoint } = await startS3();
    const { body } = await signed(endpoint, putting(), wrongSecret);
    expect(body).toMatch(/<StringToSign>AWS4-HMAC-SHA256\n?/);
    expect(body).toContain('<AWSAccessKeyId>AKIDEXAMPLE</AWSAccessKeyId>');
    expect(body).not.toContain(CREDENTIALS.secretAccessKey);
  });

  test('a body that is not the signed one is refused, and nothing is stored', async () => {
    const { endpoint, at } = await startS3();
    const hash = { 'x-amz-content-sha256': sha256('hello') };
    expect((await signed(endpoint, putting('hello', hash))).status).toBe(200);
    const other = { ...putting('hello', hash), path: `/${BUCKET}/l` };
    const { outcome } = await signed(endpoint, other, { tamper: () => ({ body: 'jello' }) });
    expect(outcome).toBe('400 XAmzContentSHA256Mismatch');
    expect(await list(at)).toEqual(['k']);
  });

  test('a deletion whose body is not the signed one deletes nothing', async () => {
    const { endpoint, at } = await startS3();
    await put(at, 'x');
    const body = '<Delete><Object><Key>a</Key></Object></Delete>';
    const hash = { 'x-amz-content-sha256': sha256(body) };
    const tampered = body.replace('>a<', '>k<');
    const { outcome } = await signed(
      endpoint,
      { method: 'POST', path: `/${BUCKET}?delete`, headers: hash, body },
      { tamper: ({ headers }) => ({ headers: { ...headers, 'content-md5': md5(tampered) }, body: tampered }) },
    );
    expect(outcome).toBe('400 XAmzContentSHA256Mismatch');
    expect(await list(at)).toEqual(['k']);
  });

  test.each([
    ['the signed ones', 'hello', '200', ['k']],
    ['not the signed ones', 'jello', '403 SignatureDoesNotMatch', []],
  ])('a body of chunks that are %s is answered, and stored only then', async (_, sent, expected, stored) => {
    const { endpoint, at } = await startS3();
    const chunked = {
      'content-encoding': 'aws-chunked',
      'x-amz-content-sha256': 'STREAMING-AWS4-HMAC-SHA256-PAYLOAD',
      'x-amz-decoded-content-length': '5',
    };
    const unsigned = { method: 'PUT', path: `/${BUCKET}/k`, headers: chunked };
    const headers = await signedHeaders(unsigned, { endpoint, service: 's3', credentials: CREDENTIALS });
    const time = headers['x-amz-date'] ?? '';
    const scope = `${time.slice(0, 8)}/us-east-1/s3/aws4_request`;
    let previous = /Signature=(\w+)/.exec(headers.authorization ?? '')?.[1] ?? '';
    const chunk = (signedData: string, data: string) => {
      const text = ['AWS4-HMAC-SHA256-PAYLOAD', time, scope, previous, sha256(''), sha256(signedData)].join('\n');
      previous = hmac(signingKey(scope), text).toString('hex');
      return `${data.length.toString(16)};chunk-signature=${previous}\r\n${data}\r\n`;
    };
    const body = chunk('hello', sent) + chunk('', '');
    const length = { 'content-length': String(body.length) };
    const { outcome } = await send(endpoint, 'PUT', `/${BUCKET}/k`, { headers: { ...headers, ...length }, body });
    expect(outcome).toBe(expected);
    expect(await list(at)).toEqual(stored);
  });

  test.each([
    ['', '400 InvalidRequest'],
    ['A'.repeat(64), '400 InvalidArgument'],
    ['STREAMING-AWS4-ECDSA-P256-SHA256-PAYLOAD', '400 InvalidArgument'],
    ['unsigned-payload', '400 InvalidArgument'],
  ])('the payload hash "%s" is refused with %s', async (hash, expected) => {
    const { endpoint } = await startS3();
    const { outcome } = await signed(endpoint, putting('hello', { 'x-amz-content-sha256': hash }));
    expect(outcome).toBe(expected);
  });

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
  const newObject: Unsigned = { method: 'PUT', path: `/${BUCKET}/n` };
  const content = { headers: { 'content-length': '3' }, body: 'new' };

  test('gets and puts an object', async () => {
    const { endpoint, at } = await startS3();
    await put({ ...at, Key: 'a b+ü' }, 'hello');
    const path = await presignedPath(get, where(endpoint));
    expect(await send(endpoint, 'GET', path)).toMatchObject({ status: 200, body: 'hello' });
    const target = await presignedPath(newObject, where(endpoint));
    expect((await send(endpoint, 'PUT', target, content)).status).toBe(200);
    expect(await read({ ...at, Key: 'n' })).toBe('new');
  });

  test('can hold metadata', async () => {
    const { endpoint, at } = await startS3();
    const headers = { 'x-amz-meta-colour': 'red' };
    const target = await presignedPath({ ...newObject, headers }, where(endpoint));
    expect(target).toContain('x-amz-meta-colour=red');
    await send(endpoint, 'PUT', target, content);
    expect((await head({ ...at, Key: 'n' })).Metadata).toEqual({ colour: 'red' });
  });

  test('can hold the hash of the body', async () => {
    const { endpoint, at } = await startS3();
    const target = await presignedPath(
      { ...newObject, headers: { 'x-amz-content-sha256': sha256('new') } },
      where(endpoint),
    );
    expect(target).toContain('x-amz-content-sha256=');
    const { outcome } = await send(endpoint, 'PUT', target, { ...content, body: 'old' });
    expect(outcome).toBe('400 XAmzContentSHA256Mismatch');
    expect((await send(endpoint, 'PUT', target, content)).status).toBe(200);
    expect(await list(at)).toEqual(['n']);
  });

  const minutesAgo = (minutes: number) => ({ date: new Date(Date.now() - minutes * MINUTE) });
  const unknownKey = { credentials: { ...CREDENTIALS, accessKeyId: 'AKIDOTHER' } };
  test.each<[string, Partial<Signing>, string]>([
    ['has expired', minutesAgo(2), '403 AccessDenied: Request has expired'],
    ['is from the future', minutesAgo(-16), '403 AccessDenied: Request is not valid yet'],
    ['has an unknown access key', unknownKey, '403 InvalidAccessKeyId: '],
  ])('that %s is refused', async (_, signing, answer) => {
    const { endpoint } = await startS3();
    const path = await presignedPath(get, where(endpoint, signing));
    expect(await answerTo(send(endpoint, 'GET', path))).toContain(answer);
  });

  const malformed = (message: string) => new RegExp(`^400 AuthorizationQueryParametersError: .*${message}`);
  const expiring = (seconds: string) => (path: string) => path.replace('Expires=60', `Expires=${seconds}`);
  test.each<[string, (path: string) => string, string | RegExp]>([
    ['is valid for more than a week', expiring(String(WEEK_SECONDS + 1)), malformed('less than a week')],
    ['has a negative validity', expiring('-1'), malformed('non-negative')],
    ['has no number as validity', expiring('1e9'), malformed('should be a number')],
    ['was made valid for longer', expiring('600'), '403 SignatureDoesNotMatch: '],
    ['is for another key', (path) => path.replace('a%20b', 'c'), '403 SignatureDoesNotMatch: '],
    ['has no signature', (path) => path.replace(/&X-Amz-Signature=\w+/, ''), malformed('requires the X-Amz-Algorithm')],
    ['has two dates', (path) => `${path}&X-Amz-Date=20300101T000000Z`, malformed('')],
    ['has another algorithm', (path) => path.replace('SHA256', 'SHA1'), malformed('X-Amz-Algorithm only supports')],
    [
      'is signed by Version 2',
      () => `/${BUCKET}/k?AWSAccessKeyId=AKIDEXAMPLE&Expires=1&Signature=x`,
      /^400 InvalidRequest: .*not supported/,
    ],
  ])('that %s is refused', async (_, change, answer) => {
    const { endpoint } = await startS3();
    const path = change(await presignedPath(get, where(endpoint)));
    expect(await answerTo(send(endpoint, 'GET', path))).toMatch(answer);
  });

  test('is valid for a week at most, by the clock of the server', async () => {
    let passedMs = 0;
    const { endpoint } = await startS3({ now: () => Date.now() + passedMs });
    const list = { method: 'GET', path: `/${BUCKET}` };
    const path = await presignedPath(list, where(endpoint), { expiresSeconds: WEEK_SECONDS });
    passedMs = (WEEK_SECONDS - 60) * 1000;
    expect((await send(endpoint, 'GET', path)).status).toBe(200);
    passedMs += 2 * MINUTE;
    expect(await answerTo(send(endpoint, 'GET', path))).toBe('403 AccessDenied: Request has expired');
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
  const lines = [`Credential=AKIDOTHER/x:`, `host:${host}`, 'x-amz-content-sha256:UNSIGNED-PAYLOAD'];
  const canonical = ['GET', '/', '', ...lines, `x-amz-date:${time}`, '', names, 'UNSIGNED-PAYLOAD'].join('\n');
  const text = ['AWS4-HMAC-SHA256', time, scope, sha256(canonical)].join('\n');
  const signature = hmac(signingKey(scope), text).toString('hex');
  const signedBy = `AWS4-HMAC-SHA256 SignedHeaders=${names}, Credential=AKIDEXAMPLE/${scope}`;
  const authorization = `${signedBy}, Signature=${signature}`;
  const answer = await send(endpoint, 'GET', '/', { headers: { ...UNSIGNED, 'x-amz-date': time, authorization } });
  expect(answer.status).toBe(200);
  expect(asked).toEqual(['AKIDEXAMPLE']);
});
