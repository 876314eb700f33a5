import {
  CopyObjectCommand,
  CreateBucketCommand,
  DeleteBucketCommand,
  DeleteBucketTaggingCommand,
  DeleteObjectCommand,
  DeleteObjectTaggingCommand,
  GetBucketLocationCommand,
  GetBucketTaggingCommand,
  GetBucketVersioningCommand,
  GetObjectCommand,
  GetObjectTaggingCommand,
  HeadBucketCommand,
  ListBucketsCommand,
  PutBucketTaggingCommand,
  PutBucketVersioningCommand,
  PutObjectCommand,
  type S3Client,
  type Tag,
} from '@aws-sdk/client-s3';
import { describe, expect, test } from 'vitest';
import type { EmbeddedS3 } from '../../../../local/aws/s3/s3.ts';
import { parseXml } from '../../../../local/aws/s3/xml.ts';
import { BUCKET, raw, refusal, SUSPENDED, startS3, VERSIONED } from './support.ts';

describe('buckets', () => {
  test('are created, listed and deleted', async () => {
    const { client } = await startS3({ clock: { now: () => Date.UTC(2026, 0, 1) } });
    await client.send(new CreateBucketCommand({ Bucket: 'new-one' }));
    await client.send(new HeadBucketCommand({ Bucket: 'new-one' }));
    const { Buckets } = await client.send(new ListBucketsCommand({}));
    expect(Buckets?.map(({ Name }) => Name)).toEqual([BUCKET, 'new-one', SUSPENDED, VERSIONED]);
    expect(Buckets?.[0]?.CreationDate).toEqual(new Date('2026-01-01T00:00:00Z'));
    const { LocationConstraint } = await client.send(new GetBucketLocationCommand({ Bucket: 'new-one' }));
    expect(LocationConstraint ?? '').toBe('');
    await client.send(new DeleteBucketCommand({ Bucket: 'new-one' }));
    expect(await refusal(client.send(new HeadBucketCommand({ Bucket: 'new-one' })))).toEqual({
      status: 404,
      code: 'NotFound',
    });
  });

  test('cannot be created twice or with an invalid name, nor deleted while not empty', async () => {
    const { client } = await startS3();
    expect(await refusal(client.send(new CreateBucketCommand({ Bucket: BUCKET })))).toEqual({
      status: 409,
      code: 'BucketAlreadyOwnedByYou',
    });
    for (const Bucket of ['Upper', 'two..dots', '192.168.5.4', 'xn--name', 'name-s3alias', 'ab', 'a'.repeat(64)]) {
      expect(await refusal(client.send(new CreateBucketCommand({ Bucket }))), Bucket).toMatchObject({
        status: 400,
        code: 'InvalidBucketName',
      });
    }
    await client.send(new DeleteObjectCommand({ Bucket: VERSIONED, Key: 'marker' }));
    expect(await refusal(client.send(new DeleteBucketCommand({ Bucket: VERSIONED })))).toEqual({
      status: 409,
      code: 'BucketNotEmpty',
    });
  });

  test('keep an older object as the null version when versioning is enabled', async () => {
    const { client } = await startS3();
    const at = { Bucket: BUCKET, Key: 'k' };
    const status = async () => (await client.send(new GetBucketVersioningCommand({ Bucket: BUCKET }))).Status;
    const enable = (Status: 'Enabled' | 'Suspended') =>
      client.send(new PutBucketVersioningCommand({ Bucket: BUCKET, VersioningConfiguration: { Status } }));
    expect(await status()).toBeUndefined();
    await client.send(new PutObjectCommand({ ...at, Body: 'before' }));
    await enable('Enabled');
    expect(await status()).toBe('Enabled');
    await client.send(new PutObjectCommand({ ...at, Body: 'after' }));
    const before = await client.send(new GetObjectCommand({ ...at, VersionId: 'null' }));
    expect(await before.Body?.transformToString()).toBe('before');
    await enable('Suspended');
    await client.send(new PutObjectCommand({ ...at, Body: 'suspended' }));
    const now = await client.send(new GetObjectCommand({ ...at, VersionId: 'null' }));
    expect(await now.Body?.transformToString()).toBe('suspended');
  });
});

test('buckets are listed by prefix, in pages', async () => {
  const { client } = await startS3();
  for (const Bucket of ['page-b', 'page-a', 'page-c']) await client.send(new CreateBucketCommand({ Bucket }));
  const first = await client.send(new ListBucketsCommand({ Prefix: 'page-', MaxBuckets: 2 }));
  expect([first.Buckets?.map(({ Name }) => Name), first.Prefix]).toEqual([['page-a', 'page-b'], 'page-']);
  const { ContinuationToken } = first;
  const second = await client.send(new ListBucketsCommand({ Prefix: 'page-', MaxBuckets: 2, ContinuationToken }));
  expect([second.Buckets?.map(({ Name }) => Name), second.ContinuationToken]).toEqual([['page-c'], undefined]);
});

test('buckets have tags of their own', async () => {
  const { client } = await startS3();
  const put = (TagSet: Tag[]) => client.send(new PutBucketTaggingCommand({ Bucket: BUCKET, Tagging: { TagSet } }));
  const get = () => client.send(new GetBucketTaggingCommand({ Bucket: BUCKET }));
  const tags = (count: number) => Array.from({ length: count }, (_, n) => ({ Key: `${n}`, Value: '' }));
  await put(tags(50));
  expect(await refusal(put(tags(51)))).toEqual({ status: 400, code: 'BadRequest' });
  expect(await refusal(put([{ Key: 'a#b', Value: '' }]))).toEqual({ status: 400, code: 'InvalidTag' });
  expect((await get()).TagSet).toEqual(tags(50));
  await client.send(new DeleteBucketTaggingCommand({ Bucket: BUCKET }));
  expect(await refusal(get())).toEqual({ status: 404, code: 'NoSuchTagSet' });
  await client.send(new HeadBucketCommand({ Bucket: BUCKET }));
});

test.each([
  ['', '<Wrong/>', 'MalformedXML'],
  ['?versioning', '<VersioningConfiguration/>', 'IllegalVersioningConfigurationException'],
  ['?versioning', '<VersioningConfiguration><Status>On</Status></VersioningConfiguration>', 'MalformedXML'],
  [
    '?versioning',
    '<VersioningConfiguration><Status>Enabled</Status><MfaDelete>Enabled</MfaDelete></VersioningConfiguration>',
    'NotImplemented',
  ],
])('PUT of a bucket%s with %s is %s', async (query, body, code) => {
  const { client, endpoint } = await startS3();
  const bucket = query === '' ? 'new-one' : BUCKET;
  expect((await raw(endpoint, 'PUT', `/${bucket}${query}`, { body })).body).toContain(`<Code>${code}</Code>`);
  const { Buckets } = await client.send(new ListBucketsCommand({}));
  expect(Buckets?.map(({ Name }) => Name)).not.toContain('new-one');
  expect((await client.send(new GetBucketVersioningCommand({ Bucket: BUCKET }))).Status).toBeUndefined();
});

describe('answers', () => {
  test("an error is S3's XML, with the request id in header and body", async () => {
    const { endpoint } = await startS3();
    const { status, headers, body } = await raw(endpoint, 'GET', `/${BUCKET}/a%26b`);
    expect([status, headers['content-type'], headers.server]).toEqual([404, 'application/xml', 'AmazonS3']);
    expect(headers['x-amz-id-2']).toBe('embedded');
    const root = parseXml(body, 'Error');
    expect(root.children.map(({ name, text }) => [name, text])).toEqual([
      ['Code', 'NoSuchKey'],
      ['Message', 'The specified key does not exist.'],
      ['Key', 'a&b'],
      ['Resource', `/${BUCKET}/a%26b`],
      ['RequestId', headers['x-amz-request-id']],
      ['HostId', 'embedded'],
    ]);
  });

  test.each<[string, string, number, string]>([
    ['GET', `/${BUCKET}?lifecycle`, 501, 'NotImplemented'],
    ['GET', `/${BUCKET}/k?acl`, 501, 'NotImplemented'],
    ['GET', `/${BUCKET}?tagging`, 404, 'NoSuchTagSet'],
    ['PUT', '/absent?tagging', 404, 'NoSuchBucket'],
    ['PUT', `/${BUCKET}/k?acl`, 501, 'NotImplemented'],
    ['POST', `/${BUCKET}?delete`, 400, 'InvalidRequest'],
    ['POST', `/${BUCKET}`, 405, 'MethodNotAllowed'],
    ['GET', '/?max-buckets=0', 400, 'InvalidArgument'],
    ['PATCH', `/${BUCKET}/k`, 405, 'MethodNotAllowed'],
    ['DELETE', `/${BUCKET}?versioning`, 405, 'MethodNotAllowed'],
    ['DELETE', `/${BUCKET}?notification`, 405, 'MethodNotAllowed'],
    ['PUT', '/new-one?uploads', 405, 'MethodNotAllowed'],
    ['DELETE', `/${BUCKET}/k?versions`, 405, 'MethodNotAllowed'],
    ['PUT', `/${BUCKET}/k?uploads`, 405, 'MethodNotAllowed'],
    ['POST', '/', 405, 'MethodNotAllowed'],
    ['PUT', '/absent/k', 404, 'NoSuchBucket'],
    ['DELETE', '/absent/k', 404, 'NoSuchBucket'],
    ['POST', '/absent/k?uploads', 404, 'NoSuchBucket'],
    ['GET', '/absent?versions', 404, 'NoSuchBucket'],
  ])('%s %s answers %i %s', async (method, path, status, code) => {
    const { endpoint } = await startS3();
    const answer = await raw(endpoint, method, path);
    expect(answer.status).toBe(status);
    expect(answer.body).toContain(`<Code>${code}</Code>`);
  });
});

test.each([
  '<Tagging/>',
  '<Tagging><TagSet/><TagSet/></Tagging>',
  '<Tagging><TagSet><Other/></TagSet></Tagging>',
  '<Tagging><TagSet><Tag><Key>a</Key></Tag></TagSet></Tagging>',
  '<Tagging><TagSet><Tag><Key>a</Key><Key>b</Key></Tag></TagSet></Tagging>',
])('the tags %j are MalformedXML', async (body) => {
  const { client, endpoint } = await startS3();
  await client.send(new PutObjectCommand({ Bucket: BUCKET, Key: 'k', Body: 'x' }));
  const answer = await raw(endpoint, 'PUT', `/${BUCKET}/k?tagging`, { body });
  expect(answer.body).toContain('<Code>MalformedXML</Code>');
});

describe('hosts', () => {
  /** The answer to a request of this process, which may be for any host. */
  async function answer(s3: EmbeddedS3, method: string, url: string, host: string) {
    async function* body() {
      if (method === 'PUT') yield Buffer.from('x');
    }
    const { status, body: bytes } = await s3.handle({
      method,
      url,
      headers: { host, 'content-length': '1' },
      body: body(),
    });
    return { status, body: Buffer.from(bytes as Uint8Array).toString() };
  }

  test.each([
    `${BUCKET}.localhost:9000`,
    `${BUCKET}.s3.localhost`,
    `${BUCKET}.s3.amazonaws.com`,
    `${BUCKET}.s3.eu-west-1.amazonaws.com`,
    `${BUCKET}.s3.dualstack.eu-west-1.amazonaws.com`,
  ])('host %s contains the bucket', async (host) => {
    const { s3, endpoint } = await startS3();
    expect(await answer(s3, 'PUT', '/a//b', host)).toMatchObject({ status: 200 });
    expect((await raw(endpoint, 'GET', `/${BUCKET}/a//b`)).body).toBe('x');
    expect((await answer(s3, 'GET', '/?list-type=2', host)).body).toContain('<Key>a//b</Key>');
  });

  test.each(['localhost:9000', '127.0.0.1', 's3.amazonaws.com', 's3.eu-west-1.amazonaws.com', 's3.localhost'])(
    'with host %s the bucket is in the path',
    async (host) => {
      const { s3 } = await startS3();
      expect(await answer(s3, 'PUT', `/${BUCKET}/k`, host)).toMatchObject({ status: 200 });
    },
  );

  test('over a socket, only those of the server are answered', async () => {
    const { endpoint } = await startS3();
    const { port } = new URL(endpoint);
    for (const host of [`127.0.0.1:${port}`, `localhost:${port}`, `LOCALHOST:${port}`]) {
      expect((await raw(endpoint, 'GET', '/', { headers: { host } })).status).toBe(200);
    }
    for (const host of [
      `${BUCKET}.localhost:${port}`,
      'localhost',
      `localhost:${Number(port) + 1}`,
      's3.amazonaws.com',
    ]) {
      expect((await raw(endpoint, 'GET', '/', { headers: { host } })).status).toBe(403);
    }
  });
});

describe('permissions', () => {
  async function recording(denied: (action: string) => boolean = () => false) {
    const asked: string[] = [];
    const { client } = await startS3({
      authorize: ({ accessKeyId, action, resource }) => {
        asked.push(`${accessKeyId} ${action} ${resource}`);
        return !denied(action);
      },
    });
    return { client, asked };
  }
  const at = { Bucket: BUCKET, Key: 'a b' };
  const needs = async (call: (client: S3Client) => Promise<unknown>) => {
    const { client, asked } = await recording();
    await call(client).catch(() => {});
    return asked.map((line) => line.replace(/^AKIDEXAMPLE s3:/, '').replace(`arn:aws:s3:::${BUCKET}`, ''));
  };

  test('each request asks for the permissions that it needs, with the access key that signed it', async () => {
    expect(await needs((client) => client.send(new PutObjectCommand({ ...at, Body: 'x' })))).toEqual([
      'PutObject /a b',
    ]);
    expect(await needs((client) => client.send(new PutObjectCommand({ ...at, Body: 'x', IfMatch: '"x"' })))).toEqual([
      'PutObject /a b',
      'GetObject /a b',
    ]);
    expect(await needs((client) => client.send(new GetObjectCommand(at)))).toEqual(['GetObject /a b', 'ListBucket ']);
    expect(await needs((client) => client.send(new DeleteObjectCommand({ ...at, VersionId: 'null' })))).toEqual([
      'DeleteObjectVersion /a b',
    ]);
    expect(await needs((client) => client.send(new PutObjectCommand({ ...at, Body: 'x', Tagging: 'a=1' })))).toEqual([
      'PutObject /a b',
      'PutObjectTagging /a b',
    ]);
    const tagging = { ...at, VersionId: 'null' };
    expect(await needs((client) => client.send(new GetObjectTaggingCommand(tagging)))).toEqual([
      'GetObjectVersionTagging /a b',
      'ListBucket ',
    ]);
    expect(await needs((client) => client.send(new DeleteObjectTaggingCommand(at)))).toEqual([
      'DeleteObjectTagging /a b',
      'ListBucket ',
    ]);
  });

  test('the number of tags is told only to a caller that may read them', async () => {
    const { client } = await recording((action) => action === 's3:GetObjectTagging');
    await client.send(new PutObjectCommand({ ...at, Body: 'x', Tagging: 'a=1' }));
    expect((await client.send(new GetObjectCommand(at))).TagCount).toBeUndefined();
    const copy = new CopyObjectCommand({ ...at, Key: 'copy', CopySource: `${BUCKET}/a%20b` });
    expect(await refusal(client.send(copy))).toEqual({ status: 403, code: 'AccessDenied' });
  });

  test('a forbidden request answers 403 and has no effect', async () => {
    const { client } = await recording((action) => action === 's3:DeleteObject');
    await client.send(new PutObjectCommand({ ...at, Body: 'x' }));
    expect(await refusal(client.send(new DeleteObjectCommand(at)))).toEqual({ status: 403, code: 'AccessDenied' });
    await client.send(new GetObjectCommand(at));
  });
});
