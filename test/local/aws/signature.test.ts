import { createHash } from 'node:crypto';
import { describe, expect, it, test } from 'vitest';
import { type SignableRequest, SignatureError, SignatureVerifier } from '../../../local/aws/signature.ts';
import { BUCKET, CREDENTIALS, startS3 } from '../../support/embedded-s3.ts';
import { send } from '../../support/raw-request.ts';
import { head, list, put, read } from '../../support/s3-calls.ts';
import { presignedPath, type Signing, signedHeaders, type Unsigned } from '../../support/sigv4.ts';

const sha256 = (text: string) => createHash('sha256').update(text).digest('hex');

// The suite that AWS publishes with its SDKs: awslabs/aws-c-auth, tests/aws-signing-test-suite/v4.
describe("AWS's test suite for Signature Version 4", () => {
  const verifier = new SignatureVerifier({
    credentials: [{ accessKeyId: 'AKIDEXAMPLE', secretAccessKey: 'wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY' }],
    service: 'service',
    now: () => Date.UTC(2015, 7, 30, 12, 36),
  });
  const HOST = { host: 'example.amazonaws.com' };
  const SCOPE = 'AKIDEXAMPLE/20150830/us-east-1/service/aws4_request';
  /** Replaces the last digit of the signature. */
  const spoilt = (text: string) =>
    text.replace(/(Signature=[0-9a-f]{63})([0-9a-f])/, (_, start, digit) => start + (digit === '0' ? '1' : '0'));

  function verified(request: SignableRequest, payload = ''): boolean | string {
    try {
      return verifier.verify(request, sha256(payload)) === 'AKIDEXAMPLE';
    } catch (error) {
      if (error instanceof SignatureError) return error.problem;
      throw error;
    }
  }

  it.each<[name: string, line: string, signature: string, more?: Record<string, string>]>([
    ['get-vanilla', 'GET /', '5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31'],
    ['post-vanilla', 'POST /', '5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b'],
    [
      'get-vanilla-query-order-key-case',
      'GET /?Param2=value2&Param1=value1',
      'b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500',
    ],
    ['get-vanilla-utf8-query', 'GET /?ሴ=bar', '2cdec8eed098649ff3a119c94853b13c643bcf08f8b0a1d91e12c9027818dd04'],
    ['get-utf8', 'GET /ሴ', '8318018e0b0f223aa2bbf98705b62bb787dc9c0e678f255a891fd03141be5d85'],
    [
      'get-space-normalized',
      'GET /example%20space/',
      '652487583200325589f1fba4c7e578f72c47cb61beeca81406b39ddec1366741',
    ],
    [
      'get-header-value-trim',
      'GET /',
      'acc3ed3afb60bb290fc8d2dd0098b9911fcaa05412b367055dee359757a9c736',
      { 'my-header1': ' value1', 'my-header2': ' "a   b   c"' },
    ],
  ])('%s, in the header', (_, line, signature, more = {}) => {
    const [method = '', url = ''] = line.split(/ (.*)/s);
    const headers = { ...HOST, 'x-amz-date': '20150830T123600Z', ...more };
    const names = Object.keys(headers).toSorted().join(';');
    const authorization = `AWS4-HMAC-SHA256 Credential=${SCOPE}, SignedHeaders=${names}, Signature=${signature}`;
    const request = { method, url, headers: { ...headers, authorization } };
    expect(verified(request)).toBe(true);
    expect(verified({ ...request, headers: { ...headers, authorization: spoilt(authorization) } })).toBe('mismatch');
    expect(verified(request, '.')).toBe('mismatch');
  });

  it('get-vanilla-query-order-key-case, in the query', () => {
    const url = `/?Param2=value2&Param1=value1&X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=${encodeURIComponent(SCOPE)}&X-Amz-Date=20150830T123600Z&X-Amz-SignedHeaders=host&X-Amz-Expires=3600&X-Amz-Signature=86012e2c9ad4d77369f5d81c11f75158aae4f895a085212cc6d3f923d300bed5`;
    expect(verified({ method: 'GET', url, headers: HOST })).toBe(true);
    expect(verified({ method: 'GET', url: spoilt(url), headers: HOST })).toBe('mismatch');
    expect(verified({ method: 'HEAD', url, headers: HOST })).toBe('mismatch');
  });
});

const MINUTE = 60_000;
const at = (minutes: number) => ({ date: new Date(Date.now() + minutes * MINUTE) });
const signing = (endpoint: string, more: Partial<Signing> = {}): Signing => ({
  endpoint,
  service: 's3',
  credentials: CREDENTIALS,
  ...more,
});

describe('a signature in the header', () => {
  const PUT: Unsigned = {
    method: 'PUT',
    path: `/${BUCKET}/k`,
    headers: { 'content-length': '5', 'x-amz-content-sha256': sha256('hello') },
    body: 'hello',
  };
  type Tamper = (sent: { headers: Record<string, string> }) => Partial<Unsigned>;
  const adding =
    (more: Record<string, string>): Tamper =>
    ({ headers }) => ({ headers: { ...headers, ...more } });
  const authorization =
    (change: (text: string) => string): Tamper =>
    ({ headers }) => ({ headers: { ...headers, authorization: change(headers.authorization ?? '') } });

  it.each<[string, Partial<Signing>, Tamper, string]>([
    ['14 minutes old', at(-14), () => ({}), '200'],
    ['14 minutes ahead', at(14), () => ({}), '200'],
    ['16 minutes old', at(-16), () => ({}), '403 RequestTimeTooSkewed'],
    ['16 minutes ahead', at(16), () => ({}), '403 RequestTimeTooSkewed'],
    ['of an unknown key', { credentials: { ...CREDENTIALS, accessKeyId: 'x' } }, () => ({}), '403 InvalidAccessKeyId'],
    ['for another region', { region: 'eu-west-1' }, () => ({}), '400 AuthorizationHeaderMalformed'],
    ['for another service', { service: 'sqs' }, () => ({}), '400 AuthorizationHeaderMalformed'],
    ['for another path', {}, () => ({ path: `/${BUCKET}/l` }), '403 SignatureDoesNotMatch'],
    ['for another method', {}, () => ({ method: 'DELETE' }), '403 SignatureDoesNotMatch'],
    ['for another query', {}, () => ({ path: `/${BUCKET}/k?uploads` }), '403 SignatureDoesNotMatch'],
    ['for another body', {}, () => ({ body: 'jello' }), '400 XAmzContentSHA256Mismatch'],
    ['that leaves out a header', {}, adding({ 'x-amz-meta-a': 'b' }), '400 AuthorizationHeaderMalformed'],
    ['without a time', {}, adding({ 'x-amz-date': '' }), '400 AuthorizationHeaderMalformed'],
    [
      'without its last part',
      {},
      authorization((it) => it.split(', Sig')[0] ?? ''),
      '400 AuthorizationHeaderMalformed',
    ],
    ['of Version 2', {}, authorization(() => 'AWS AKIDEXAMPLE:AAAA'), '403 AccessDenied'],
  ])('%s is answered, and stores only what was signed', async (_, more, tamper, outcome) => {
    const { endpoint, at } = await startS3();
    const headers = await signedHeaders(PUT, signing(endpoint, more));
    const { method, path, ...rest } = { ...PUT, headers, ...tamper({ headers }) };
    expect((await send(endpoint, method, path, rest)).outcome).toBe(outcome);
    expect(await list(at)).toEqual(outcome === '200' ? ['k'] : []);
  });

  it('is verified on each of several days, which have keys of their own', async () => {
    const endpoint = 'http://127.0.0.1';
    let date = new Date();
    const verifier = new SignatureVerifier({ credentials: [CREDENTIALS], service: 's3', now: () => date.getTime() });
    for (const day of [1, 2, 1]) {
      date = new Date(Date.UTC(2026, 0, day));
      const { method, path: url } = PUT;
      const headers = await signedHeaders(PUT, signing(endpoint, { date }));
      expect(verifier.verify({ method, url, headers }, sha256('hello'))).toBe(CREDENTIALS.accessKeyId);
    }
  });
});

describe('a presigned address', () => {
  const GET: Unsigned = { method: 'GET', path: `/${BUCKET}/a%20b%2B%C3%BC` };
  const PUT: Unsigned = { method: 'PUT', path: `/${BUCKET}/n`, headers: { 'x-amz-meta-colour': 'red' } };

  test('gets and puts an object, with its metadata', async () => {
    const { endpoint, at } = await startS3();
    await put({ ...at, Key: 'a b+ü' }, 'hello');
    const got = await send(endpoint, 'GET', await presignedPath(GET, signing(endpoint)));
    expect(got).toMatchObject({ status: 200, body: 'hello' });
    const target = await presignedPath(PUT, signing(endpoint));
    expect(target).toContain('x-amz-meta-colour=red');
    await send(endpoint, 'PUT', target, { headers: { 'content-length': '3' }, body: 'new' });
    expect(await read({ ...at, Key: 'n' })).toBe('new');
    expect((await head({ ...at, Key: 'n' })).Metadata).toEqual({ colour: 'red' });
  });

  const expiring = (seconds: string) => (path: string) => path.replace('Expires=60', `Expires=${seconds}`);
  test.each<[string, Partial<Signing>, (path: string) => string, string]>([
    ['has expired', at(-2), (path) => path, '403 AccessDenied'],
    ['is from the future', at(16), (path) => path, '403 AccessDenied'],
    ['is valid for more than a week', {}, expiring('604801'), '400 AuthorizationHeaderMalformed'],
    ['has no number as validity', {}, expiring('1e9'), '400 AuthorizationHeaderMalformed'],
    ['was made valid for longer', {}, expiring('600'), '403 SignatureDoesNotMatch'],
    ['is for another key', {}, (path) => path.replace('a%20b', 'c'), '403 SignatureDoesNotMatch'],
    ['has no signature', {}, (path) => path.replace(/&X-Amz-Signature=\w+/, ''), '403 AccessDenied'],
  ])('that %s is refused', async (_, more, change, outcome) => {
    const { endpoint } = await startS3();
    const path = change(await presignedPath(GET, signing(endpoint, more)));
    expect((await send(endpoint, 'GET', path)).outcome).toBe(outcome);
  });
});
