import { createHash } from 'node:crypto';
import { copyFileSync, readdirSync, statSync, writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { basename, join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { Readable } from 'node:stream';
import {
  CopyObjectCommand,
  type CopyObjectCommandInput,
  DeleteObjectsCommand,
  GetObjectCommand,
  GetObjectTaggingCommand,
  type ObjectIdentifier,
  PutObjectCommand,
  S3Client,
  UploadPartCopyCommand,
} from '@aws-sdk/client-s3';
import { describe, expect, onTestFinished, test } from 'vitest';
import { s3RequestHandler } from '../../../local/aws/s3/request-handler.ts';
import { EmbeddedS3, type S3Options } from '../../../local/aws/s3/s3.ts';
import { BUCKET, CREDENTIALS, raw, startS3, VERSIONED } from '../../support/embedded-s3.ts';
import { temporaryFolder } from '../../support/folder.ts';
import {
  complete,
  head,
  list,
  type Multipart,
  type Place,
  put,
  read,
  refusal,
  remove,
  uploadParts,
} from '../../support/s3-calls.ts';
import { signedHeaders } from '../../support/sigv4.ts';

/*
 * What the contract tests cannot ask of a real bucket: requests that the SDK does not send, what is refused, the folder
 * that keeps everything, and the client without a socket.
 */

const UNSIGNED_CHUNKS = {
  'content-encoding': 'aws-chunked',
  'x-amz-content-sha256': 'STREAMING-UNSIGNED-PAYLOAD-TRAILER',
  'x-amz-decoded-content-length': '5',
  'x-amz-trailer': 'x-amz-checksum-crc32',
};
const CHUNKS = '3\r\nhel\r\n2\r\nlo\r\n0\r\nx-amz-checksum-crc32:NhCmhg==\r\n\r\n';

describe('a body in chunks', () => {
  test.each([
    ['with its end', CHUNKS],
    ['without the last empty line', CHUNKS.slice(0, -2)],
  ])('%s is decoded, at once or byte by byte', async (_, body) => {
    const { at, endpoint, s3 } = await startS3();
    expect((await raw(endpoint, 'PUT', `/${BUCKET}/k`, { headers: UNSIGNED_CHUNKS, body })).status).toBe(200);
    const bytes = Readable.from([...Buffer.from(body)].map((byte) => Buffer.of(byte)));
    await s3.handle({ method: 'PUT', url: `/${BUCKET}/l`, headers: UNSIGNED_CHUNKS, body: bytes });
    for (const Key of ['k', 'l']) expect(await read({ ...at, Key })).toBe('hello');
  });

  const declaring = (bytes: string) => ({ 'x-amz-decoded-content-length': bytes });
  test.each<[string, Record<string, string>, string, string]>([
    ['a wrong checksum', {}, CHUNKS.replace('NhCmhg==', 'AAAAAA=='), '400 BadDigest'],
    ['no trailer', {}, '5\r\nhello\r\n0\r\n\r\n', '400 MalformedTrailerError'],
    ['a trailer that is not a header', {}, '5\r\nhello\r\n0\r\nnonsense\r\n\r\n', '400 MalformedTrailerError'],
    ['fewer bytes than declared', declaring('6'), CHUNKS, '400 IncompleteBody'],
    ['more bytes than declared', declaring('4'), CHUNKS, '400 IncompleteBody'],
    ['no last chunk', {}, '5\r\nhello\r\n', '400 IncompleteBody'],
    ['an end inside a chunk', {}, '5\r\nhel', '400 IncompleteBody'],
    ['a chunk that is longer than its length', {}, '4\r\nhello\r\n0\r\n\r\n', '400 InvalidRequest'],
    ['an invalid length', {}, 'five\r\nhello\r\n0\r\n\r\n', '400 InvalidRequest'],
    ['bytes after the end', {}, `${CHUNKS}more`, '400 IncompleteBody'],
    ['signed chunks', { 'x-amz-content-sha256': 'STREAMING-AWS4-HMAC-SHA256-PAYLOAD' }, CHUNKS, '501 NotImplemented'],
  ])('with %s is refused, and nothing is stored', async (_, more, body, outcome) => {
    const { at, endpoint } = await startS3();
    const headers = { ...UNSIGNED_CHUNKS, ...more };
    expect((await raw(endpoint, 'PUT', `/${BUCKET}/k`, { headers, body })).outcome).toBe(outcome);
    expect(await list(at)).toEqual([]);
  });
});

describe('a body', () => {
  const CRC64 = { 'x-amz-checksum-crc64nvme': Buffer.from('ae8b14860a799888', 'hex').toString('base64') };
  const MD5 = { 'content-md5': 'JfnnlDI7RTiF9RgfG2JNCw==' }; // printf 123456789 | openssl md5 -binary | base64
  test.each<[string, Record<string, string>, string]>([
    // The check value of CRC-64/NVME, in the catalogue of CRC algorithms. The AWS CLI sends it.
    ['CRC64NVME', CRC64, '400 BadDigest'],
    ['Content-MD5', MD5, '400 BadDigest'],
  ])('is compared with its %s', async (_, headers, outcome) => {
    const { endpoint } = await startS3();
    const upload = async (body: string) => (await raw(endpoint, 'PUT', `/${BUCKET}/k`, { headers, body })).outcome;
    expect([await upload('123456789'), await upload('12345678')]).toEqual(['200', outcome]);
  });

  test.each<[string, Record<string, string>, string]>([
    ['two checksums', { ...CRC64, 'x-amz-checksum-crc32': 'NhCmhg==' }, '400 InvalidRequest'],
    ['a checksum that is not known', { 'x-amz-checksum-crc32c': 'AAAAAA==' }, '501 NotImplemented'],
    ['2 KB of metadata and a byte', { 'x-amz-meta-ab': 'v'.repeat(2047) }, '400 MetadataTooLarge'],
    ['more than 5 GiB', { 'content-length': String(5 * 1024 ** 3 + 1) }, '400 EntityTooLarge'],
  ])('with %s is refused', async (_, headers, outcome) => {
    const { endpoint } = await startS3();
    expect((await raw(endpoint, 'PUT', `/${BUCKET}/k`, { headers, body: 'x' })).outcome).toBe(outcome);
  });

  test('that ends too early stores nothing', async () => {
    const dir = await temporaryFolder();
    const { at, endpoint } = await startS3({ dir });
    await put(at, 'whole');
    const stored = () => readdirSync(join(dir, 'bodies')).length;
    const begun = { method: 'PUT', path: `/${BUCKET}/k`, headers: { 'x-amz-content-sha256': 'UNSIGNED-PAYLOAD' } };
    const headers = await signedHeaders(begun, { endpoint, service: 's3', credentials: CREDENTIALS });
    const lines = Object.entries({ ...headers, 'content-length': '1000000' }).map((pair) => pair.join(': '));
    const socket = connect(Number(new URL(endpoint).port), '127.0.0.1');
    socket.write(`PUT /${BUCKET}/k HTTP/1.1\r\n${lines.join('\r\n')}\r\n\r\n`);
    socket.write(Buffer.alloc(500_000));
    await expect.poll(stored).toBe(2);
    socket.destroy();
    await expect.poll(stored).toBe(1);
    expect(await read(at)).toBe('whole');
  });

  test('that is refused is still read, so that the client gets the answer', async () => {
    const { at } = await startS3();
    expect(await refusal(put({ ...at, Bucket: 'absent' }, Buffer.alloc(8 * 1024 ** 2)))).toBe('404 NoSuchBucket');
  });
});

describe('answers', () => {
  const copy = { 'x-amz-copy-source': `${BUCKET}/l` };
  test.each<[string, string, Record<string, string>, string]>([
    ['GET', `/${BUCKET}?lifecycle`, {}, '501 NotImplemented'],
    ['GET', `/${BUCKET}/k?acl`, {}, '501 NotImplemented'],
    ['PUT', `/${BUCKET}/k?uploads`, {}, '501 NotImplemented'],
    ['POST', `/${BUCKET}/k?uploads`, copy, '501 NotImplemented'],
    ['GET', `/${BUCKET}/k`, copy, '501 NotImplemented'],
    ['PUT', `/${BUCKET}/k`, { ...copy, 'x-amz-metadata-directive': 'KEEP' }, '400 InvalidArgument'],
    ['PUT', `/${BUCKET}/k`, { ...copy, 'x-amz-tagging-directive': 'KEEP' }, '400 InvalidArgument'],
    ['PUT', `/${BUCKET}/k`, { ...copy, 'x-amz-website-redirect-location': '/' }, '501 NotImplemented'],
    ['PUT', `/${BUCKET}/k`, { 'x-amz-copy-source': 'absent/l' }, '404 NoSuchBucket'],
    ['PUT', `/${BUCKET}/k`, { 'x-amz-storage-class': 'GLACIER' }, '501 NotImplemented'],
    ['PUT', `/${BUCKET}/k`, { 'if-match': '*' }, '501 NotImplemented'],
    ['GET', `/${BUCKET}/k`, { 'if-none-match': '*' }, '501 NotImplemented'],
    ['GET', `/${BUCKET}/k?response-cache-control=a`, {}, '501 NotImplemented'],
    ['DELETE', `/${BUCKET}`, {}, '501 NotImplemented'],
    ['DELETE', `/${BUCKET}/k?versions`, {}, '501 NotImplemented'],
    ['PATCH', `/${BUCKET}/k`, {}, '501 NotImplemented'],
    ['GET', `/${BUCKET}/%ff`, {}, '400 InvalidURI'],
    ['PUT', '/Upper', {}, '400 InvalidBucketName'],
    ['PUT', `/${BUCKET}`, {}, '409 BucketAlreadyOwnedByYou'],
    ['PUT', '/absent/k', {}, '404 NoSuchBucket'],
    ['GET', '/absent?versions', {}, '404 NoSuchBucket'],
    ['GET', `/${BUCKET}?location`, {}, '200'],
    ['GET', '/', {}, '200'],
  ])('%s %s with %j is answered with %s', async (method, path, headers, outcome) => {
    const { endpoint } = await startS3();
    const { body, ...answer } = await raw(endpoint, method, path, { headers });
    expect(answer.outcome).toBe(outcome);
    if (path === '/') expect(body).toContain(`<Name>${BUCKET}</Name>`);
  });

  const deletion = (more = '') => `<Delete><Object><Key>k</Key>${more}</Object></Delete>`;
  const md5 = (text: string) => ({ 'content-md5': createHash('md5').update(text).digest('base64') });
  test.each<[string, string, Record<string, string>, string]>([
    ['without a checksum', deletion(), {}, '400 InvalidRequest'],
    ['with the checksum of another one', deletion(), md5('other'), '400 BadDigest'],
    ['without a key', '<Delete><Object/></Delete>', md5('<Delete><Object/></Delete>'), '400 MalformedXML'],
    [
      'under a condition on the size',
      deletion('<Size>1</Size>'),
      md5(deletion('<Size>1</Size>')),
      '501 NotImplemented',
    ],
    ['with its checksum', deletion(), md5(deletion()), '200'],
  ])('a list of objects to delete %s is taken, or deletes nothing', async (_, body, headers, outcome) => {
    const { at, endpoint } = await startS3();
    await put(at, 'x');
    expect((await raw(endpoint, 'POST', `/${BUCKET}?delete`, { headers, body })).outcome).toBe(outcome);
    expect(await list(at)).toEqual(outcome === '200' ? [] : ['k']);
  });

  test.each([
    ['no tags', '<Tagging></Tagging>', '400 MalformedXML'],
    ['a tag without a value', '<Tagging><TagSet><Tag><Key>a</Key></Tag></TagSet></Tagging>', '400 MalformedXML'],
    [
      'a tag twice',
      `<Tagging><TagSet>${'<Tag><Key>a</Key><Value/></Tag>'.repeat(2)}</TagSet></Tagging>`,
      '400 InvalidTag',
    ],
    ['an empty set', '<Tagging><TagSet/></Tagging>', '200'],
  ])('tags with %s are taken or refused', async (_, body, outcome) => {
    const { at, endpoint } = await startS3();
    await put(at, 'x');
    expect((await raw(endpoint, 'PUT', `/${BUCKET}/k?tagging`, { body })).outcome).toBe(outcome);
  });

  test('a condition of a copy on a time that is none is refused', async () => {
    const { at, endpoint } = await startS3();
    await put(at, 'x');
    const headers = { 'x-amz-copy-source': `${BUCKET}/k`, 'x-amz-copy-source-if-modified-since': 'now' };
    expect((await raw(endpoint, 'PUT', `/${BUCKET}/l`, { headers })).outcome).toBe('400 InvalidArgument');
  });

  test('a HEAD error has a status and no body', async () => {
    const { versioned, endpoint } = await startS3();
    await remove(versioned);
    const { status, headers, body } = await raw(endpoint, 'HEAD', `/${VERSIONED}/k`);
    expect({ status, body, marker: headers['x-amz-delete-marker'] }).toEqual({ status: 404, body: '', marker: 'true' });
  });

  test('a value of metadata that is not ASCII is encoded by RFC 2047, with its bytes read as Latin-1', async () => {
    const { endpoint } = await startS3();
    // The example in S3's documentation: the UTF-8 bytes of this text in a header, one character for each byte.
    const sent = Buffer.from('ÄMÄZÕÑ S3').toString('latin1');
    await raw(endpoint, 'PUT', `/${BUCKET}/k`, { headers: { 'x-amz-meta-nonascii': sent } });
    const { headers } = await raw(endpoint, 'HEAD', `/${BUCKET}/k`);
    expect(headers['x-amz-meta-nonascii']).toBe('=?UTF-8?B?w4PChE3Dg8KEWsODwpXDg8KRIFMz?=');
  });

  test.each([
    ['quoted by references', '&#34;5d41402abc4b2a76b9719d911017c592&#34;', '200'],
    ['quoted by entities', '&quot;5d41402abc4b2a76b9719d911017c592&quot;', '200'],
    ['of an entity of the document', '<!DOCTYPE d [<!ENTITY x "y">]>&x;', '400 MalformedXML'],
    ['in an open element', '<b>', '400 MalformedXML'],
  ])('a part with an ETag %s is taken or refused', async (_, etag, outcome) => {
    const { at, endpoint } = await startS3();
    const { UploadId } = await uploadParts(at, ['hello']);
    const part = `<Part><PartNumber>1</PartNumber><ETag>${etag}</ETag></Part>`;
    const body = `<CompleteMultipartUpload>${part}</CompleteMultipartUpload>`;
    expect((await raw(endpoint, 'POST', `/${BUCKET}/k?uploadId=${UploadId}`, { body })).outcome).toBe(outcome);
  });
});

const copyTo = ({ client, Bucket, Key: source }: Place, Key: string, more: Partial<CopyObjectCommandInput> = {}) => {
  const CopySource = `${Bucket}/${encodeURIComponent(source)}`;
  return client.send(new CopyObjectCommand({ Bucket, Key, CopySource, ...more }));
};
const copyPart = ({ client, Bucket, Key: source }: Place, Key: string, { UploadId }: Multipart) => {
  const CopySource = `${Bucket}/${source}?versionId=null`;
  return client.send(new UploadPartCopyCommand({ Bucket, Key, UploadId, PartNumber: 1, CopySource }));
};
const getTags = ({ client, Bucket, Key }: Place) => client.send(new GetObjectTaggingCommand({ Bucket, Key }));
const removeObjects = ({ client, Bucket }: Place, Objects: ObjectIdentifier[]) =>
  client.send(new DeleteObjectsCommand({ Bucket, Delete: { Objects } }));

describe('permissions', () => {
  test.each<[string, (at: Place) => Promise<unknown>, string[]]>([
    ['PUT under a condition', (at) => put(at, 'x', { IfMatch: '"x"' }), ['PutObject /k', 'GetObject /k']],
    ['GET', read, ['GetObject /k', 'ListBucket ']],
    ['PUT with tags', (at) => put(at, 'x', { Tagging: 'a=1' }), ['PutObject /k', 'PutObjectTagging /k']],
    ['copy', (at) => copyTo(at, 'l'), ['PutObject /l', 'GetObject /k', 'ListBucket ']],
    [
      'copy of a part from a version',
      async (at) => copyPart(at, 'l', await uploadParts({ ...at, Key: 'l' }, [])),
      ['PutObject /l', 'PutObject /l', 'GetObjectVersion /k', 'ListBucket '],
    ],
    [
      'copy with tags',
      async (at) => {
        await put(at, 'x', { Tagging: 'a=1' });
        await copyTo(at, 'l');
      },
      [
        ...['PutObject /k', 'PutObjectTagging /k'],
        ...['PutObject /l', 'GetObject /k', 'GetObjectTagging /k', 'PutObjectTagging /l'],
      ],
    ],
    ['reading tags', getTags, ['GetObjectTagging /k', 'ListBucket ']],
    [
      'deletion of many objects',
      (at) => removeObjects(at, [{ Key: 'k' }, { Key: 'l', VersionId: 'null' }, { Key: 'm', ETag: 'x' }]),
      ['DeleteObject /k', 'DeleteObjectVersion /l', 'DeleteObject /m', 'GetObject /m'],
    ],
    ['DELETE of a version', (at) => remove(at, { VersionId: 'null' }), ['DeleteObjectVersion /k']],
  ])('%s asks for those that it needs, with the access key that signed it', async (_, call, needed) => {
    const asked: string[] = [];
    const { at } = await startS3({
      authorize: ({ accessKeyId, action, resource }) => asked.push(`${accessKeyId} ${action} ${resource}`) > 0,
    });
    await call(at).catch(() => {});
    expect(asked).toEqual(needed.map((each) => `AKIDEXAMPLE s3:${each.replace(' ', ` arn:aws:s3:::${BUCKET}`)}`));
  });

  test('a deletion of many objects leaves those that it may not delete, and says so', async () => {
    const { at } = await startS3({ authorize: ({ resource }) => !resource.endsWith('/l') || isSetUp });
    let isSetUp = true;
    for (const Key of ['k', 'l', 'm']) await put({ ...at, Key }, 'x');
    isSetUp = false;
    const { Deleted, Errors } = await removeObjects(at, [{ Key: 'k' }, { Key: 'l' }, { Key: 'm' }]);
    expect(Deleted?.map(({ Key }) => Key)).toEqual(['k', 'm']);
    expect(Errors).toEqual([{ Key: 'l', Code: 'AccessDenied', Message: 'Access Denied' }]);
    expect(await list(at)).toEqual(['l']);
  });

  test.each(['s3:GetObject', 's3:GetObjectTagging', 's3:PutObjectTagging'])(
    'a copy of a tagged object without %s is refused, and nothing is written',
    async (missing) => {
      let isSetUp = true;
      const { at } = await startS3({ authorize: ({ action }) => action !== missing || isSetUp });
      await put(at, 'x', { Tagging: 'a=1' });
      isSetUp = false;
      expect(await refusal(copyTo(at, 'l'))).toBe('403 AccessDenied');
      expect(await list(at)).toEqual(['k']);
    },
  );

  test('the number of tags is told only to a caller that may read them', async () => {
    const { at } = await startS3({ authorize: ({ action }) => action !== 's3:GetObjectTagging' });
    await put(at, 'x', { Tagging: 'a=1' });
    expect((await head(at)).TagCount).toBeUndefined();
  });

  test('a forbidden request answers 403 and has no effect', async () => {
    const { at } = await startS3({ authorize: ({ action }) => action !== 's3:DeleteObject' });
    await put(at, 'x');
    expect(await refusal(remove(at))).toBe('403 AccessDenied');
    expect(await read(at)).toBe('x');
  });
});

/** An S3 without a socket, and its client. */
function within(options: S3Options = {}, Key = 'a b/../é+?'): { s3: EmbeddedS3; at: Place } {
  const s3 = new EmbeddedS3(options);
  const client = new S3Client({
    requestHandler: s3RequestHandler(s3),
    endpoint: 'http://s3.test',
    forcePathStyle: true,
    region: 'us-east-1',
    credentials: CREDENTIALS,
    maxAttempts: 1,
  });
  return { s3, at: { client, Bucket: BUCKET, Key } };
}

describe('a folder', () => {
  test('keeps versions, metadata and unfinished uploads across a restart', async () => {
    const dir = join(await temporaryFolder(), 'made', 'if absent');
    const first = within({ dir }, '../a//😀\n');
    first.s3.createBucket(BUCKET, { versioning: 'Enabled' });
    const { VersionId } = await put(first.at, 'first', { Metadata: { m: '1' }, Tagging: 'a=1' });
    await put(first.at, 'second');
    const uploaded = await uploadParts({ ...first.at, Key: 'parts' }, ['in parts'], { Tagging: 'b=2' });
    expect(() => new EmbeddedS3({ dir })).toThrow('locked');
    first.s3.close();

    const { s3, at } = within({ dir }, '../a//😀\n');
    expect(() => s3.createBucket(BUCKET)).toThrow('you already own it');
    expect([await read(at), await read(at, VersionId)]).toEqual(['second', 'first']);
    expect((await head(at, { VersionId })).Metadata).toEqual({ m: '1' });
    await complete({ ...at, Key: 'parts' }, uploaded);
    expect(await read({ ...at, Key: 'parts' })).toBe('in parts');
    expect((await head(at, { VersionId })).TagCount).toBe(1);
    expect((await getTags({ ...at, Key: 'parts' })).TagSet).toEqual([{ Key: 'b', Value: '2' }]);
    expect((await put(at, 'third')).VersionId).not.toBe(VersionId);
    s3.close();
  });

  test('of a version that had tags is opened with its objects', async () => {
    const dir = await temporaryFolder();
    const first = within({ dir });
    first.s3.createBucket(BUCKET);
    await put(first.at, 'old');
    first.s3.close();
    const database = new DatabaseSync(join(dir, 'catalog.sqlite'));
    database.exec(`ALTER TABLE versions ADD COLUMN tags TEXT; ALTER TABLE uploads ADD COLUMN tags TEXT;
      ALTER TABLE buckets ADD COLUMN notification TEXT; ALTER TABLE buckets ADD COLUMN tags TEXT;
      PRAGMA user_version = 2; UPDATE versions SET tags = '[]'`);
    database.close();

    const { s3, at } = within({ dir });
    expect(await read(at)).toBe('old');
    expect((await getTags(at)).TagSet).toEqual([]);
    await put(at, 'new');
    await complete({ ...at, Key: 'l' }, await uploadParts({ ...at, Key: 'l' }, ['in parts']));
    expect([await read(at), await read({ ...at, Key: 'l' })]).toEqual(['new', 'in parts']);
    s3.close();
  });

  test('loses bodies without metadata: replaced, deleted, refused, or left by a crash', async () => {
    const dir = await temporaryFolder();
    const bodies = () => readdirSync(join(dir, 'bodies'));
    const { s3, at } = within({ dir });
    s3.createBucket(BUCKET);
    await put(at, 'first');
    await put(at, 'second');
    await refusal(put(at, 'third', { IfNoneMatch: '*' }));
    await refusal(put(at, 'fourth', { ChecksumCRC32: 'AAAAAA==' }));
    await refusal(copyTo(at, 'absent', { IfMatch: '"x"' }));
    await put({ ...at, Key: 'gone' }, 'x');
    await copyTo({ ...at, Key: 'gone' }, 'copied');
    expect(bodies()).toHaveLength(3);
    for (const Key of ['gone', 'copied']) await remove({ ...at, Key });
    expect(bodies()).toHaveLength(1);
    s3.close();
    writeFileSync(join(dir, 'bodies', 'half'), 'an upload under way');
    const again = within({ dir });
    expect(bodies()).toHaveLength(1);
    expect(await read(again.at)).toBe('second');
    again.s3.close();
  });

  test('keeps an object as a clone of a file, where the file system can clone', async () => {
    const dir = await temporaryFolder();
    const file = join(dir, 'file');
    const other = join(dir, 'other');
    const { s3, at } = within({ dir, cloneFile: copyFileSync });
    s3.createBucket(BUCKET, { versioning: 'Enabled' });
    const bodies = () => readdirSync(join(dir, 'bodies'));
    const content = Buffer.alloc(5 * 1024 ** 2 + 3, 'abc');
    await complete(at, await uploadParts(at, [content.subarray(0, 5 * 1024 ** 2), content.subarray(5 * 1024 ** 2)]));
    const { ETag: etag = '', VersionId: versionId = '' } = await head(at);
    writeFileSync(file, content, { mode: 0o644 });
    writeFileSync(other, 'other');
    const object = { bucket: BUCKET, key: at.Key };
    expect(bodies()).toHaveLength(2);

    // What is not its content any more, or another object's, changes nothing.
    await s3.shareBlocks({ ...object, versionId }, file, async () => false);
    await s3.shareBlocks({ ...object, versionId }, other);
    await s3.shareBlocks({ ...object, versionId: 'another' }, file);
    await s3.shareBlocks({ ...object, etag: '"another"' }, file);
    await s3.shareBlocks({ ...object, key: 'absent', etag }, file);
    await expect(s3.shareBlocks({ ...object, etag }, file, () => Promise.reject(new Error('gone')))).rejects.toThrow(
      'gone',
    );
    expect(bodies()).toHaveLength(2);

    const { Body: before } = await at.client.send(new GetObjectCommand(at));
    await s3.shareBlocks({ ...object, versionId }, file);
    expect(Buffer.compare((await before?.transformToByteArray()) ?? Buffer.of(), content)).toBe(0);
    await expect.poll(bodies).toHaveLength(1);
    const [clone = ''] = bodies().map((name) => join(dir, 'bodies', name));
    expect([statSync(clone).mode & 0o777, statSync(clone).nlink, statSync(file).nlink]).toEqual([0o600, 1, 1]);
    writeFileSync(file, 'changed');
    expect(await read(at)).toBe(content.toString());
    expect((await head(at)).ETag).toBe(etag);

    // The current object is meant by its ETag.
    await put(at, 'newer');
    writeFileSync(file, 'newer');
    const { ETag: newest = '' } = await head(at);
    await s3.shareBlocks({ ...object, etag: newest }, file);
    expect(await read(at)).toBe('newer');
    expect(bodies()).toHaveLength(2);
    expect(bodies()).toContain(basename(clone));
    s3.close();
    expect(await read(within({ dir }).at)).toBe('newer');
  });

  test('leaves an object as it is if the file system cannot clone', async () => {
    const dir = await temporaryFolder();
    const cloneFile = () => {
      throw Object.assign(new Error('not supported'), { code: 'ENOTSUP' });
    };
    for (const options of [{ dir, cloneFile }, {}]) {
      const { s3, at } = within(options);
      s3.createBucket(BUCKET);
      await put(at, 'x');
      const { ETag: etag = '' } = await head(at);
      writeFileSync(join(dir, 'file'), 'x');
      await s3.shareBlocks({ bucket: BUCKET, key: at.Key, etag }, join(dir, 'file'));
      expect(await read(at)).toBe('x');
      s3.close();
    }
    expect(readdirSync(join(dir, 'bodies'))).toHaveLength(1);
  });

  test('gives a read its whole object although that is replaced and deleted, and then loses the body', async () => {
    const dir = await temporaryFolder();
    const { s3, at } = within({ dir });
    s3.createBucket(BUCKET);
    // Two parts: the second one's file is opened only after the first has been read.
    const bodies = [Buffer.alloc(5 * 1024 ** 2, 'old '), Buffer.from('end')];
    await complete(at, await uploadParts(at, bodies));
    const { Body } = await at.client.send(new GetObjectCommand(at));
    const { Body: unread } = await at.client.send(new GetObjectCommand(at));
    await put(at, 'new');
    await remove(at);
    expect(Buffer.compare((await Body?.transformToByteArray()) ?? Buffer.of(), Buffer.concat(bodies))).toBe(0);
    (unread as Readable).destroy();
    await expect.poll(() => readdirSync(join(dir, 'bodies'))).toEqual([]);
    s3.close();
  });
});

describe('a client without a socket', () => {
  function start(options: S3Options = {}): Place {
    const { s3, at } = within(options);
    s3.createBucket(BUCKET);
    onTestFinished(() => s3.close());
    return at;
  }

  test('sends strings, buffers and streams, and may use a buffer again', async () => {
    const at = start();
    const body = Buffer.from('first');
    await put({ ...at, Key: 'buffer' }, body);
    body.write('other');
    expect(await read({ ...at, Key: 'buffer' })).toBe('first');
    const Body = Readable.from([Buffer.from('hel'), Buffer.from('lo')]);
    await at.client.send(new PutObjectCommand({ ...at, Body, ContentLength: 5 }));
    expect(await read(at)).toBe('hello');
    expect(await list(at, { StartAfter: 'a b/' })).toEqual([at.Key, 'buffer']);
    expect(await refusal(read({ ...at, Key: 'absent' }))).toBe('404 NoSuchKey');
    await expect(put(at, 'x', { Metadata: { m: '😀' } })).rejects.toThrow('Invalid character in header content');
  });

  test('an abort ends an upload that waits for its body, and nothing is stored', async () => {
    const at = start();
    const abort = new AbortController();
    const { promise: waiting, resolve: nowWaiting } = Promise.withResolvers<void>();
    async function* stuck() {
      yield Buffer.alloc(10);
      nowWaiting();
      await new Promise(() => {});
    }
    const putting = new PutObjectCommand({ ...at, Body: Readable.from(stuck()), ContentLength: 20 });
    const sent = at.client.send(putting, { abortSignal: abort.signal });
    await waiting;
    abort.abort();
    await expect(sent).rejects.toMatchObject({ name: 'AbortError' });
    expect(await list(at)).toEqual([]);
  });

  test('an abort ends the wait for an answer', async () => {
    const abort = new AbortController();
    const at = start({
      onEvent: () => {
        abort.abort();
        return new Promise(() => {});
      },
    });
    const sent = at.client.send(new PutObjectCommand({ ...at, Body: 'x' }), { abortSignal: abort.signal });
    await expect(sent).rejects.toMatchObject({ name: 'AbortError' });
  });

  test('an abort ends an answer that is being read', async () => {
    const at = start();
    await put(at, Buffer.alloc(1024 ** 2));
    const abort = new AbortController();
    const { Body } = await at.client.send(new GetObjectCommand(at), { abortSignal: abort.signal });
    const read = async () => {
      for await (const _ of Body as Readable) abort.abort();
    };
    await expect(read()).rejects.toMatchObject({ name: 'AbortError' });
  });

  test('gets the same ids for the same requests at the same times', async () => {
    const run = async () => {
      const { ETag, $metadata } = await put(start({ clock: { now: () => 0 } }), 'x');
      return { ETag, requestId: $metadata.requestId };
    };
    expect(await run()).toEqual(await run());
  });
});
