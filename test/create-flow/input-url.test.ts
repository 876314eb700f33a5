import { DeleteObjectCommand, PutObjectCommand } from '@aws-sdk/client-s3';
import { describe, expect, it } from 'vitest';
import { systemClock } from '../../functions/base/clock.ts';
import { RejectedError } from '../../functions/flow-service/errors.ts';
import { FLOWS } from '../../functions/flow-service/services.ts';
import type { CreateRequest } from '../../functions/flow-service/types.ts';
import { Inbox } from '../../functions/uploads/inbox.ts';
import { UploadEncodedError, UploadGoneError } from '../../functions/uploads/upload-errors.ts';
import { bodyOf, clientOf, scripted } from '../flow-service/scripted.ts';
import { BUCKET, startS3, VERSIONED } from '../support/embedded-s3.ts';
import { INBOX, LEDGER, RESULTS, start, world } from '../support/world.ts';

const never = new AbortController().signal;

/** A body with the address of the file in place of the file. */
const byAddress = { ...FLOWS.create.body, inputs: [{ data: '{inputUrl}', additional: '{additional}' }] };

/** The secret parts of a presigned address, not those that were redacted. */
const SECRETS = /X-Amz-(?:Signature|Credential|Security-Token)[^\w[]{1,3}\w/i;

/** An inbox at a real S3, and the address of one of its objects. */
async function inboxAt() {
  const { client } = await startS3();
  let behindMs = 0;
  const inbox = new Inbox(client, { ...systemClock, now: () => Date.now() - behindMs });
  const turnBack = (ms: number): void => {
    behindMs = ms;
  };
  const put = (Body: string, more: object = {}) =>
    client.send(
      new PutObjectCommand({ Bucket: VERSIONED, Key: 'a ü+&=.png', Body, ContentType: 'image/png', ...more }),
    );
  const opened = async (bucket = VERSIONED, key = 'a ü+&=.png') => {
    const { inputs, discard, upload } = await inbox.open({ bucket, key }, never);
    discard();
    return { upload, address: inputs[0]?.address };
  };
  return { client, inbox, put, opened, turnBack };
}

describe('the address of an input', () => {
  it('gives exactly this version to everyone who has it, with its media type, for the declared time', async () => {
    const { put, opened, turnBack } = await inboxAt();
    await put('the first');
    const { address } = await opened();
    await put('another');
    const url = (await address?.(900, never)) ?? '';
    const answer = await fetch(url);
    expect([answer.status, answer.headers.get('content-type'), await answer.text()]).toEqual([
      200,
      'image/png',
      'the first',
    ]);
    expect((await fetch(url.replace(/versionId=[^&]+/, 'versionId=null'))).status).toBe(403);
    expect((await fetch(url, { method: 'PUT', body: 'x' })).status).toBe(403);
    turnBack(901_000);
    expect((await fetch((await address?.(900, never)) ?? '')).status).toBe(403);
  });

  it('is made only of an object that is there, and that is the file itself', async () => {
    const { client, inbox, put, opened } = await inboxAt();
    await put('content', { ContentEncoding: 'gzip' });
    const { address, upload } = await opened();
    await expect(address?.(900, never)).rejects.toThrow(UploadEncodedError);
    const { VersionId } = await put('content');
    const [asset] = inbox.openAssets(upload, [{ ...upload, versionId: VersionId, bytes: 7 }]).inputs;
    expect(await (await fetch((await asset?.address?.(60, never)) ?? '')).text()).toBe('content');
    await client.send(new DeleteObjectCommand({ Bucket: VERSIONED, Key: upload.key, VersionId }));
    await expect(asset?.address?.(60, never)).rejects.toThrow(UploadGoneError);
  });

  it('is that of no object without versions, and of no text', async () => {
    const { client, inbox, opened } = await inboxAt();
    await client.send(new PutObjectCommand({ Bucket: BUCKET, Key: 'job.json', Body: '{}' }));
    expect((await opened(BUCKET, 'job.json')).address).toBeUndefined();
    const job = await inbox.open({ bucket: BUCKET, key: 'job.json' }, never);
    job.discard();
    const text = { text: 'a prompt', additional: {} };
    expect(inbox.openJob(job, { inputs: [text] } as never, []).inputs[0]?.address).toBeUndefined();
  });
});

describe('a creation with the address of its input', () => {
  const url =
    'https://inbox.s3.example.com/a?X-Amz-Credential=AKIA%2Fs3&X-Amz-Security-Token=fq%2Fzx&X-Amz-Signature=abcdef01';
  const request = (seconds: number[] = []): CreateRequest => ({
    template: 't',
    tag: { pipeline: 'p', upload: 'u', generation: 1 },
    inputs: [
      {
        ...{ as: 'file', mediaType: 'image/png', additional: {} },
        source: { bytes: 3, open: () => Promise.reject(new Error('The file must not be read')) },
        async address(valid) {
          seconds.push(valid);
          return url;
        },
      },
    ],
  });
  const speaking = (more: object = {}) => ({ ...FLOWS, create: { ...FLOWS.create, body: byAddress, ...more } });

  it('sends it, valid for as long as the description says, and does not read the file', async () => {
    const sent: unknown[] = [];
    await using server = await scripted(async (message, response) => {
      sent.push(JSON.parse(await bodyOf(message)).inputs[0].data);
      response.writeHead(201, { 'content-type': 'application/json' }).end('{"flow_id":"f1"}');
    });
    const seconds: number[] = [];
    await clientOf(server.url, { service: speaking() }).create(request(seconds), never);
    await clientOf(server.url, { service: speaking({ inputUrlSeconds: 60 }) }).create(request(seconds), never);
    expect(sent).toEqual([url, url]);
    expect(seconds).toEqual([900, 60]);
  });

  it.each([
    ['in its words', (each: string) => JSON.stringify({ detail: `could not read ${each}` })],
    [
      'with escapes',
      (each: string) => JSON.stringify({ detail: each }).replaceAll('&', '\\u0026').replaceAll('=', '\\u003d'),
    ],
    [
      'within another address',
      (each: string) => JSON.stringify({ detail: `https://x.example.com/?u=${encodeURIComponent(each)}` }),
    ],
    ['in another form', (each: string) => JSON.stringify({ input: { url: each } })],
    ['on a page', (each: string) => `<html><body>${each.replaceAll('&', '&amp;')}</body></html>`],
  ])('keeps it out of the error if the service quotes it %s', async (_, quoting) => {
    for (const status of [201, 400, 403, 422, 500]) {
      await using server = await scripted(async (message, response) => {
        await bodyOf(message);
        response.writeHead(status, { 'content-type': 'application/json' }).end(quoting(url));
      });
      const error: Error = await clientOf(server.url, { service: speaking() })
        .create(request(), never)
        .then(
          () => new Error('none'),
          (thrown: Error) => thrown,
        );
      if (status === 422) expect(error).toBeInstanceOf(RejectedError);
      expect(error.message).toContain('X-Amz-');
      for (const secret of ['abcdef01', 'AKIA', 'zx']) expect(error.message).not.toContain(secret);
    }
  });
});

describe('an upload whose service fetches it', () => {
  it('is in no log, entry, receipt or event with its address, although the service quotes it', async () => {
    await start({ isVirtual: false, speaks: { create: { body: byAddress } } });
    let quoted = '';
    world.service.intercept = (_, { operation }) =>
      operation === 'getFlow'
        ? {
            ...{ status: 200, headers: { 'content-type': 'application/json' } },
            body: JSON.stringify({ state: 'failed', error: `could not read ${quoted}` }),
          }
        : undefined;
    const { inbox } = world.ports;
    await world.upload('a.png', 'content');
    const { inputs, discard } = await inbox.open({ bucket: INBOX, key: 'a.png' }, never);
    discard();
    quoted = (await inputs[0]?.address?.(900, never)) ?? '';
    expect(quoted).toMatch(SECRETS);
    await world.deliver();
    expect(world.service.flows[0]?.inputs).toMatchObject([{ mediaType: 'image/png' }]);
    const receipt = await world.settled('a.png');
    expect(receipt.failure?.message).toContain('X-Amz-Credential=[secret]');
    const told = [world.logged, world.events, receipt, await world.entries()].map((each) => JSON.stringify(each));
    expect(told.join()).toContain('a.png');
    expect(told.join()).not.toMatch(SECRETS);
    for (const bucket of [LEDGER, RESULTS]) {
      for (const key of await world.keys(bucket)) {
        expect((await world.object(bucket, key)).bytes.toString()).not.toMatch(SECRETS);
      }
    }
  });

  it('fails in a bucket without versions, before anything is paid for, and says what to do', async () => {
    await start({ versioning: undefined, speaks: { create: { body: byAddress } } });
    await world.send('a.png', 'content');
    const { failure } = await world.settled('a.png');
    expect(failure).toMatchObject({
      code: 'input-unversioned',
      message: expect.stringContaining('Turn on the versions'),
    });
    expect(world.service.flows).toEqual([]);
  });
});
