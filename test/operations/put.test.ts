import { join } from 'node:path';
import { expect, it } from 'vitest';
import { systemClock } from '../../functions/base/clock.ts';
import { Inbox } from '../../functions/uploads/inbox.ts';
import { EmbeddedS3 } from '../../local/aws/s3/s3.ts';
import type { Deployment } from '../../operations/deployment.ts';
import { put } from '../../operations/put.ts';
import { clientThrough } from '../support/embedded-s3.ts';
import { folderWith } from '../support/folder.ts';

it('a large file is not uploaded if S3 fails within a success, whatever was at its key before', async () => {
  const embedded = new EmbeddedS3({});
  embedded.createBucket('inbox', { versioning: 'Enabled' });
  let isFailing = false;
  const body = Buffer.from('<?xml version="1.0"?>\n<Error><Code>InternalError</Code></Error>\n');
  const handle: EmbeddedS3['handle'] = async (request) => {
    const isCompletion = request.method === 'POST' && request.url.includes('uploadId=');
    if (!isFailing || !isCompletion) return embedded.handle(request);
    return { status: 200, headers: { 'content-type': 'application/xml' }, body };
  };
  const s3 = await clientThrough(embedded, handle);
  const path = join(folderWith({ 'scan.bin': 'x'.repeat(6 * 1024 * 1024) }), 'scan.bin');
  const settings = { inboxBucket: 'inbox', inboxPrefix: '' };
  const deployment = { s3, inbox: new Inbox(s3, systemClock), settings } as unknown as Deployment;
  const putting = () => put({ path, key: 'scan.bin' }, {}, deployment, { signal: new AbortController().signal });
  expect(await putting()).toMatchObject({ key: 'scan.bin', bytes: 6 * 1024 * 1024 });
  isFailing = true;
  await expect(putting()).rejects.toThrow('S3 answered 200, and does not have scan.bin');
});
