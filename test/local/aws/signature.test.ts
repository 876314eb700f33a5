import { createHash } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import { authenticate } from '../../../local/aws/s3/authentication.ts';
import { S3Error } from '../../../local/aws/s3/errors.ts';
import { receive } from '../../../local/aws/s3/incoming.ts';
import { type SignableRequest, SignatureError } from '../../../local/aws/sent-signature.ts';
import { SignatureVerifier } from '../../../local/aws/signature.ts';

const sha256 = (text: string) => createHash('sha256').update(text).digest('hex');

/** A verifier that fails every signature but the right one, at the time of the examples. */
function verified(verifier: SignatureVerifier, request: SignableRequest, payload: string): boolean | string {
  try {
    verifier.verify(request, () => payload);
    return true;
  } catch (error) {
    if (error instanceof SignatureError) return error.problem;
    throw error;
  }
}

/** The list of the headers that are signed: all of these. */
const namesOf = (headers: object) => Object.keys(headers).toSorted().join(';');

/** Replaces the last digit of the signature. */
const spoilt = (text: string) =>
  text.replace(/(Signature=[0-9a-f]{63})([0-9a-f])/, (_, start, digit) => start + (digit === '0' ? '1' : '0'));

// The suite that AWS publishes with its SDKs: awslabs/aws-c-auth, tests/aws-signing-test-suite/v4.
describe("AWS's test suite for Signature Version 4", () => {
  const verifier = new SignatureVerifier({
    credentials: [{ accessKeyId: 'AKIDEXAMPLE', secretAccessKey: 'wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY' }],
    service: 'service',
    now: () => Date.UTC(2015, 7, 30, 12, 36),
  });
  const HOST = { host: 'example.amazonaws.com' };
  const DATED = { ...HOST, 'x-amz-date': '20150830T123600Z' };
  const SCOPE = 'AKIDEXAMPLE/20150830/us-east-1/service/aws4_request';
  const FORM_SHA256 = '9095672bbd1f56dfc5b65f3e153adc8731a4a654192329106275f4c7b24d0b6e';

  it.each<[name: string, line: string, signature: string, more?: Record<string, string>, body?: string]>([
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
    [
      'get-header-key-duplicate',
      'GET /',
      'c9d5ea9f3f72853aea855b47ea873832890dbdd183b4468f858259531a5138ea',
      { 'my-header1': 'value2,value2,value1' },
    ],
    [
      'post-x-www-form-urlencoded',
      'POST /',
      'd3875051da38690788ef43de4db0d8f280229d82040bfac253562e56c3f20e0b',
      {
        'content-type': 'application/x-www-form-urlencoded',
        'content-length': '13',
        'x-amz-content-sha256': FORM_SHA256,
      },
      'Param1=value1',
    ],
  ])('%s, in the header', (_, line, signature, more = {}, body = '') => {
    const [method = '', url = ''] = line.split(/ (.*)/s);
    const headers = { ...DATED, ...more };
    const signed = `SignedHeaders=${namesOf(headers)}, Signature=${signature}`;
    const authorization = `AWS4-HMAC-SHA256 Credential=${SCOPE}, ${signed}`;
    const request = { method, url, headers: { ...headers, authorization } };
    expect(verified(verifier, request, sha256(body))).toBe(true);
    const other = { ...request, headers: { ...headers, authorization: spoilt(authorization) } };
    expect(verified(verifier, other, sha256(body))).toBe('mismatch');
    expect(verified(verifier, request, sha256(`${body}.`))).toBe('mismatch');
  });

  it.each([
    [
      'get-vanilla-query-order-key-case',
      'Param2=value2&Param1=value1',
      '86012e2c9ad4d77369f5d81c11f75158aae4f895a085212cc6d3f923d300bed5',
    ],
    [
      'get-vanilla-query-unreserved',
      '-._~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz=-._~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz',
      '8e76a88a7433637b12778d5592799b29ad21ecd6cf6325051c21d86f0acda2bf',
    ],
  ])('%s, in the query', (_, query, signature) => {
    const url = `/?${query}&X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=${encodeURIComponent(SCOPE)}&X-Amz-Date=20150830T123600Z&X-Amz-SignedHeaders=host&X-Amz-Expires=3600&X-Amz-Signature=${signature}`;
    expect(verified(verifier, { method: 'GET', url, headers: HOST }, sha256(''))).toBe(true);
    expect(verified(verifier, { method: 'GET', url: spoilt(url), headers: HOST }, sha256(''))).toBe('mismatch');
    expect(verified(verifier, { method: 'HEAD', url, headers: HOST }, sha256(''))).toBe('mismatch');
  });
});

// https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html, sigv4-query-string-auth.html,
// sigv4-streaming.html and sigv4-streaming-trailers.html
describe("the examples in S3's documentation", () => {
  const verifier = () =>
    new SignatureVerifier({
      credentials: [
        { accessKeyId: 'AKIAIOSFODNN7EXAMPLE', secretAccessKey: 'wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY' },
      ],
      service: 's3',
      now: () => Date.UTC(2013, 4, 24),
    });
  const SCOPE = 'AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request';
  const EMPTY = sha256('');
  const FILE = '44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072';
  const authorization = (signedHeaders: string, signature: string) =>
    `AWS4-HMAC-SHA256 Credential=${SCOPE},SignedHeaders=${signedHeaders},Signature=${signature}`;

  it.each<[line: string, signature: string, payload: string, more?: Record<string, string>]>([
    [
      'GET /test.txt',
      'f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41',
      EMPTY,
      { range: 'bytes=0-9' },
    ],
    [
      'PUT /test%24file.text',
      '98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd',
      FILE,
      { date: 'Fri, 24 May 2013 00:00:00 GMT', 'x-amz-storage-class': 'REDUCED_REDUNDANCY' },
    ],
    ['GET /?lifecycle', 'fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543', EMPTY],
    ['GET /?max-keys=2&prefix=J', '34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7', EMPTY],
  ])('%s, in the header', (line, signature, payload, more = {}) => {
    const [method = '', url = ''] = line.split(' ');
    const host = 'examplebucket.s3.amazonaws.com';
    const signed = { host, 'x-amz-date': '20130524T000000Z', 'x-amz-content-sha256': payload, ...more };
    const headers = { ...signed, authorization: authorization(namesOf(signed), signature) };
    expect(verified(verifier(), { method, url, headers }, payload)).toBe(true);
    expect(verified(verifier(), { method, url: `${url}x`, headers }, payload)).toBe('mismatch');
  });

  it('a presigned GET', () => {
    const url = `/test.txt?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=${encodeURIComponent(SCOPE)}&X-Amz-Date=20130524T000000Z&X-Amz-Expires=86400&X-Amz-SignedHeaders=host&X-Amz-Signature=aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404`;
    const headers = { host: 'examplebucket.s3.amazonaws.com' };
    expect(verified(verifier(), { method: 'GET', url, headers }, 'UNSIGNED-PAYLOAD')).toBe(true);
    expect(verified(verifier(), { method: 'PUT', url, headers }, 'UNSIGNED-PAYLOAD')).toBe('mismatch');
  });

  const CHUNKED = {
    host: 's3.amazonaws.com',
    'x-amz-date': '20130524T000000Z',
    'x-amz-storage-class': 'REDUCED_REDUNDANCY',
    'content-encoding': 'aws-chunked',
    'x-amz-decoded-content-length': '66560',
    'content-length': '66824',
  };
  const chunk = (bytes: number, signature: string) =>
    `${bytes.toString(16)};chunk-signature=${signature}\r\n${'a'.repeat(bytes)}\r\n`;
  const SIGNED = {
    headers: {
      ...CHUNKED,
      'x-amz-content-sha256': 'STREAMING-AWS4-HMAC-SHA256-PAYLOAD',
      authorization: authorization(
        'content-encoding;content-length;host;x-amz-content-sha256;x-amz-date;x-amz-decoded-content-length;x-amz-storage-class',
        '4f232c4386841ef735655705268965c44a0e4690baa4adea153f7db9fa80a0a9',
      ),
    },
    body:
      chunk(65_536, 'ad80c730a21e5b8d04586a2213dd63b9a0e99e0e2307b0ade35a65485a288648') +
      chunk(1024, '0055627c9e194cb4542bae2aa5492e3c1575bbb81b612b7d234b86a503ef5497') +
      chunk(0, 'b6c6ea8a5354eaf15b3cb7646744f4275b71ea724fed81ceb9323e279d449df9'),
  };
  const WITH_TRAILER = {
    headers: {
      ...CHUNKED,
      'x-amz-trailer': 'x-amz-checksum-crc32c',
      'x-amz-content-sha256': 'STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER',
      authorization: authorization(
        'content-encoding;host;x-amz-content-sha256;x-amz-date;x-amz-decoded-content-length;x-amz-storage-class;x-amz-trailer',
        '106e2a8a18243abcf37539882f36619c00e2dfc72633413f02d3b74544bfeb8e',
      ),
    },
    body: `${
      chunk(65_536, 'b474d8862b1487a5145d686f57f013e54db672cee1c953b3010fb58501ef5aa2') +
      chunk(1024, '1c1344b170168f8e65b41376b44b20fe354e373826ccbbe2c1d40a8cae51e5c7')
    }0;chunk-signature=2ca2aba2005185cf7159c6277faf83795951dd77a3a99e6e65d5c9f85863f992\r\nx-amz-checksum-crc32c:sOO8/Q==\r\nx-amz-trailer-signature:d81f82fc3505edab99d459891051a732e8730629a2e4a59689829ca17fe2e435\r\n\r\n`,
  };

  /** Reads the body of the examples, as an upload does. Returns the number of its bytes, or the code of its refusal. */
  async function read(headers: Record<string, string>, body: string, pieceBytes: number): Promise<number | string> {
    async function* pieces() {
      const bytes = Buffer.from(body);
      for (let start = 0; start < bytes.length; start += pieceBytes) yield bytes.subarray(start, start + pieceBytes);
    }
    const url = '/examplebucket/chunkObject.txt';
    const call = { method: 'PUT', bucket: 'examplebucket', key: 'chunkObject.txt', query: new Map(), requestId: '1' };
    try {
      let count = 0;
      const incoming = receive(authenticate({ ...call, headers, body: pieces() }, url, verifier()));
      for await (const chunk of incoming.chunks) count += chunk.length;
      return count;
    } catch (error) {
      if (error instanceof S3Error) return error.code;
      throw error;
    }
  }

  it.each([
    ['signed chunks', SIGNED],
    ['signed chunks with a signed trailer', WITH_TRAILER],
  ])('%s are read, however their bytes arrive', async (_, { headers, body }) => {
    expect(await read(headers, body, body.length)).toBe(66_560);
    expect(await read(headers, body, 1009)).toBe(66_560);
    expect(await read(headers, body, 1)).toBe(66_560);
  });

  const { headers, body } = WITH_TRAILER;
  const firstData = body.indexOf('aaaa');
  it.each([
    ['a changed byte', `${body.slice(0, firstData)}b${body.slice(firstData + 1)}`, 'SignatureDoesNotMatch'],
    ['a changed signature', body.replace('b474d', 'b474e'), 'SignatureDoesNotMatch'],
    ['no signature', body.replace(/;chunk-signature=b4\w+/, ''), 'SignatureDoesNotMatch'],
    ['a chunk in two', body.replace(/^10000(.*)\r\na/, '1$1\r\na\r\nffff$1\r\n'), 'SignatureDoesNotMatch'],
    ['a last chunk that is not signed', body.replace(/0;chunk-signature=2c\w+/, '0'), 'SignatureDoesNotMatch'],
    ['a changed trailer', body.replace('sOO8/Q==', 'sOO8/A=='), 'SignatureDoesNotMatch'],
    ['a trailer that is not signed', body.replace(/x-amz-trailer-signature.*\r\n/, ''), 'MalformedTrailerError'],
    ['no trailer', body.replace(/x-amz-checksum.*\r\nx-amz-trailer-signature.*\r\n/, ''), 'MalformedTrailerError'],
    ['its end missing', body.slice(0, 66_000), 'IncompleteBody'],
  ])('a body with %s is refused', async (_, tampered, code) => {
    expect(tampered).not.toBe(body);
    expect(await read(headers, tampered, 65_536)).toBe(code);
  });
});
