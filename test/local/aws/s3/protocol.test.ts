import {
  CopyObjectCommand,
  CreateBucketCommand,
  DeleteBucketCommand,
  DeleteBucketTaggingCommand,
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
  type Tag,
} from '@aws-sdk/client-s3';
import { describe, expect, test } from 'vitest';
import type { EmbeddedS3 } from '../../../../local/aws/s3/s3.ts';
import { parseXml } from '../../../../local/aws/s3/xml.ts';
import { type Place, put, read, refusal, remove } from '../../../support/s3-calls.ts';
import { BUCKET, raw, startS3, VERSIONED } from './support.ts';

describe('buckets', () => {
  test('are created, listed and deleted', async () => {
    const { client } = await startS3({ clock: { now: () => Date.UTC(2026, 0, 1) } });
    await client.send(new CreateBucketCommand({ Bucket: 'new-one' }));
    await client.send(new HeadBucketCommand({ Bucket: 'new-one' }));
    const { Buckets } = await client.send(new ListBucketsCommand({}));
    expect(Buckets?.map(({ Name }) => Name)).toEqual([BUCKET, 'new-one', VERSIONED]);
    expect(Buckets?.[0]?.CreationDate).toEqual(new Date('2026-01-01T00:00:00Z'));
    const { LocationConstraint } = await client.send(new GetBucketLocationCommand({ Bucket: 'new-one' }));
    expect(LocationConstraint ?? '').toBe('');
    await client.send(new DeleteBucketCommand({ Bucket: 'new-one' }));
    expect(await refusal(client.send(new HeadBucketCommand({ Bucket: 'new-one' })))).toBe('404 NotFound');
  });

  test('cannot be created twice or with an invalid name, nor deleted while not empty', async () => {
    const { client, versioned } = await startS3();
    const creating = (Bucket: string) => refusal(client.send(new CreateBucketCommand({ Bucket })));
    expect(await creating(BUCKET)).toBe('409 BucketAlreadyOwnedByYou');
    for (const Bucket of ['Upper', 'two..dots', '192.168.5.4', 'xn--name', 'name-s3alias', 'ab', 'a'.repeat(64)]) {
      expect(await creating(Bucket), Bucket).toBe('400 InvalidBucketName');
    }
    await remove(versioned);
    const { Bucket } = versioned;
    expect(await refusal(client.send(new DeleteBucketCommand({ Bucket })))).toBe('409 BucketNotEmpty');
  });

  test('keep an older object as the null version when versioning is enabled', async () => {
    const { client, at } = await startS3();
    const status = async () => (await client.send(new GetBucketVersioningCommand({ Bucket: BUCKET }))).Status;
    const switchTo = (Status: 'Enabled' | 'Suspended') =>
      client.send(new PutBucketVersioningCommand({ Bucket: BUCKET, VersioningConfiguration: { Status } }));
    expect(await status()).toBeUndefined();
    await put(at, 'before');
    await switchTo('Enabled');
    expect(await status()).toBe('Enabled');
    await put(at, 'after');
    expect(await read(at, 'null')).toBe('before');
    await switchTo('Suspended');
    await put(at, 'suspended');
    expect(await read(at, 'null')).toBe('suspended');
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
  const tag = (TagSet: Tag[]) => client.send(new PutBucketTaggingCommand({ Bucket: BUCKET, Tagging: { TagSet } }));
  const get = () => client.send(new GetBucketTaggingCommand({ Bucket: BUCKET }));
  const tags = (count: number) => Array.from({ length: count }, (_, n) => ({ Key: `${n}`, Value: '' }));
  await tag(tags(50));
  expect(await refusal(tag(tags(51)))).toBe('400 BadRequest');
  expect(await refusal(tag([{ Key: 'a#b', Value: '' }]))).toBe('400 InvalidTag');
  expect((await get()).TagSet).toEqual(tags(50));
  await client.send(new DeleteBucketTaggingCommand({ Bucket: BUCKET }));
  expect(await refusal(get())).toBe('404 NoSuchTagSet');
  await client.send(new HeadBucketCommand({ Bucket: BUCKET }));
});

test.each([
  ['', '400 IllegalVersioningConfigurationException'],
  ['<Status>On</Status>', '400 MalformedXML'],
  ['<Status>Enabled</Status><MfaDelete>Enabled</MfaDelete>', '501 NotImplemented'],
])('a versioning of %j answers %s, and changes nothing', async (inner, outcome) => {
  const { client, endpoint } = await startS3();
  const body = `<VersioningConfiguration>${inner}</VersioningConfiguration>`;
  expect((await raw(endpoint, 'PUT', `/${BUCKET}?versioning`, { body })).outcome).toBe(outcome);
  expect((await client.send(new GetBucketVersioningCommand({ Bucket: BUCKET }))).Status).toBeUndefined();
});

test('a bucket is not created with a configuration that is none', async () => {
  const { client, endpoint } = await startS3();
  expect((await raw(endpoint, 'PUT', '/new-one', { body: '<Wrong/>' })).outcome).toBe('400 MalformedXML');
  expect(await refusal(client.send(new HeadBucketCommand({ Bucket: 'new-one' })))).toBe('404 NotFound');
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
    expect((await raw(endpoint, method, path)).outcome).toBe(`${status} ${code}`);
  });
});

test.each([
  '<Tagging/>',
  '<Tagging><TagSet/><TagSet/></Tagging>',
  '<Tagging><TagSet><Other/></TagSet></Tagging>',
  '<Tagging><TagSet><Tag><Key>a</Key></Tag></TagSet></Tagging>',
  '<Tagging><TagSet><Tag><Key>a</Key><Key>b</Key></Tag></TagSet></Tagging>',
])('the tags %j are MalformedXML', async (body) => {
  const { at, endpoint } = await startS3();
  await put(at, 'x');
  expect((await raw(endpoint, 'PUT', `/${BUCKET}/k?tagging`, { body })).outcome).toBe('400 MalformedXML');
});

describe('hosts', () => {
  /** The answer to a request of this process, which may be for any host. */
  async function answer(s3: EmbeddedS3, method: string, url: string, host: string) {
    async function* body() {
      if (method === 'PUT') yield Buffer.from('x');
    }
    const headers = { host, 'content-length': '1' };
    const { status, body: bytes } = await s3.handle({ method, url, headers, body: body() });
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
    const others = ['localhost', `localhost:${Number(port) + 1}`, 's3.amazonaws.com'];
    for (const host of [`${BUCKET}.localhost:${port}`, ...others]) {
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
    return { at: { client, Bucket: BUCKET, Key: 'a b' }, asked };
  }

  test.each<[string, (at: Place) => Promise<unknown>, string[]]>([
    ['PUT', (at) => put(at, 'x'), ['PutObject /a b']],
    ['PUT under a condition', (at) => put(at, 'x', { IfMatch: '"x"' }), ['PutObject /a b', 'GetObject /a b']],
    ['PUT with tags', (at) => put(at, 'x', { Tagging: 'a=1' }), ['PutObject /a b', 'PutObjectTagging /a b']],
    ['GET', read, ['GetObject /a b', 'ListBucket ']],
    ['DELETE of a version', (at) => remove(at, { VersionId: 'null' }), ['DeleteObjectVersion /a b']],
    [
      'GET of the tags of a version',
      (at) => at.client.send(new GetObjectTaggingCommand({ ...at, VersionId: 'null' })),
      ['GetObjectVersionTagging /a b', 'ListBucket '],
    ],
    [
      'DELETE of tags',
      (at) => at.client.send(new DeleteObjectTaggingCommand(at)),
      ['DeleteObjectTagging /a b', 'ListBucket '],
    ],
  ])('%s asks for those that it needs, with the access key that signed it', async (_, call, needed) => {
    const { at, asked } = await recording();
    await call(at).catch(() => {});
    expect(asked).toEqual(needed.map((each) => `AKIDEXAMPLE s3:${each.replace(' ', ` arn:aws:s3:::${BUCKET}`)}`));
  });

  test('the number of tags is told only to a caller that may read them', async () => {
    const { at } = await recording((action) => action === 's3:GetObjectTagging');
    await put(at, 'x', { Tagging: 'a=1' });
    expect((await at.client.send(new GetObjectCommand(at))).TagCount).toBeUndefined();
    const copy = new CopyObjectCommand({ ...at, Key: 'copy', CopySource: `${BUCKET}/a%20b` });
    expect(await refusal(at.client.send(copy))).toBe('403 AccessDenied');
  });

  test('a forbidden request answers 403 and has no effect', async () => {
    const { at } = await recording((action) => action === 's3:DeleteObject');
    await put(at, 'x');
    expect(await refusal(remove(at))).toBe('403 AccessDenied');
    expect(await read(at)).toBe('x');
  });
});
