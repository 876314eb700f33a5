import { describe, expect, it } from 'vitest';
import type { Route } from '../../functions/uploads/route.ts';
import { DAY, ECHO, INBOX, LEDGER, MINUTE, start, type WorldOptions, world } from '../support/world.ts';

/*
 * Uploads that S3 lists and refuses to hand out. A HEAD needs the same permission as a GET, but not that for the KMS
 * key. Of an object with a key of the customer's own (SSE-C), S3 shows nothing.
 */

let isMended: boolean;

interface Denial {
  readonly name: string;
  readonly status: number;
  /** S3 answers a HEAD. */
  readonly isShown?: boolean;
}

const DENIALS: readonly (readonly [what: string, denial: Denial])[] = [
  ['by the policy of the bucket', { name: 'AccessDenied', status: 403 }],
  ['by the policy of its KMS key', { name: 'AccessDenied', status: 403, isShown: true }],
  ['by a disabled KMS key', { name: 'KMS.DisabledException', status: 400, isShown: true }],
  ['by a key of the customer', { name: 'InvalidRequest', status: 400 }],
];
/** The first refusal ends the upload. */
const ONCE: WorldOptions = { settings: { attemptsMax: 1 } };
const [[, BY_POLICY]] = DENIALS as readonly [(typeof DENIALS)[number]];

/** The embedded S3 has no encryption. So its answers to the keys of the inbox that begin with `secret` become these. */
async function startDenied(denial: Denial, options?: WorldOptions): Promise<void> {
  await start(options);
  isMended = false;
  const { name, status, isShown = false } = denial;
  world.beforeS3((call, { Bucket, Key = '' }) => {
    const isRead = call === 'GetObject' || (call === 'HeadObject' && !isShown);
    if (isMended || !isRead || Bucket !== INBOX || !Key.startsWith('secret')) return;
    throw Object.assign(new Error('Refused'), { name, $metadata: { httpStatusCode: status } });
  });
}

describe('an upload that S3 refuses to hand out', () => {
  it.each(DENIALS)('%s waits, fails with a receipt, and is never tried again', async (_, denial) => {
    await startDenied(denial, { settings: { attemptsMax: 2 } });
    await world.sweep();
    expect((await world.send('secret', 'hidden'))?.batchItemFailures).toEqual([]);
    expect(await world.entry()).toMatchObject({ state: 'waiting', reason: 'forbidden', attempts: 1 });

    const { failure, upload } = await world.settled('secret');
    expect(failure).toMatchObject({
      code: 'input-denied',
      message: `The last attempt: S3 refuses to hand out inbox/secret: ${denial.name}`,
      advice: expect.stringMatching(/KMS key.* Then retry\./),
    });
    expect(upload).toMatchObject({ key: 'secret', bytes: 6 });
    expect(world.count('UploadsReturned')).toBe(0);
    expect(world.count('UploadsFailed')).toBe(1);
    expect(world.count('UploadsDenied')).toBe(2);
    world.clock.advance(DAY);
    expect(await world.sweep()).toMatchObject({ compared: 1, missed: 0 });
    expect(world.deadLetters.counts().visible).toBe(0);
    expect(world.service.flows).toEqual([]);
  });

  it.each([undefined, 'Enabled', 'Suspended'] as const)(
    'has the same id as when it can be opened (versioning %s)',
    async (versioning) => {
      await startDenied(BY_POLICY, { versioning });
      await world.send('secret');
      isMended = true;
      const opened = await world.ports.inbox.open({ bucket: INBOX, key: 'secret' }, new AbortController().signal);
      const ofEvent = { currentAt: expect.any(Number), sequencer: expect.any(String) };
      expect((await world.entry()).upload).toEqual({ ...opened.upload, mediaType: expect.anything(), ...ofEvent });
      opened.discard();
    },
  );

  it('takes its route, its overrides and its media type when it can be opened', async () => {
    const routes: readonly Route[] = [
      { ...ECHO, name: 'pictures', mediaTypes: ['image/png'] },
      { ...ECHO, name: 'texts', mediaTypes: ['text/plain'], overrides: true },
    ];
    await startDenied(BY_POLICY, { routes });
    await world.send('secret', 'x', { ContentType: 'text/plain', Metadata: { 'flow-parameters': '{"copies":2}' } });
    expect(await world.entry()).toMatchObject({ state: 'waiting', route: { name: 'pictures' } });
    isMended = true;
    expect(await world.settled('secret')).toMatchObject({ status: 'succeeded', route: 'texts', generation: 1 });
    expect(world.service.flows).toMatchObject([{ parameters: { copies: 2 }, inputs: [{ mediaType: 'text/plain' }] }]);
  });

  it('is found by the sweep, although a route goes by the media type, which S3 does not tell', async () => {
    await startDenied(BY_POLICY, { ...ONCE, routes: [{ ...ECHO, mediaTypes: ['image/png'] }] });
    await world.sweep();
    await world.upload('secret', 'x', { ContentType: 'image/png' });
    world.takeMessages();
    world.clock.advance(60 * MINUTE);
    expect(await world.sweep()).toMatchObject({ missed: 1 });
    expect((await world.settled('secret')).failure?.code).toBe('input-denied');
  });

  it('is gone if it was replaced meanwhile, in a bucket without versions', async () => {
    await startDenied(BY_POLICY, { versioning: undefined });
    await world.upload('secret', 'first');
    await world.upload('secret', 'second');
    await world.deliver();
    expect(world.count('UploadsReplaced')).toBe(1);
    expect(await world.keys(LEDGER, 'uploads/')).toHaveLength(1);
  });

  it('is sent if the same content was put again unannounced while it waited, in a bucket without versions', async () => {
    await startDenied(BY_POLICY, { versioning: undefined });
    await world.send('secret');
    const first = await world.entry();
    world.clock.advance(MINUTE);
    await world.upload('secret');
    world.takeMessages();
    world.clock.advance(MINUTE);
    isMended = true;
    await world.settle();
    expect(await world.json(LEDGER, `uploads/${first.upload.id}.json`)).toMatchObject({ state: 'succeeded' });
    expect(world.service.flows).toHaveLength(1);
  });

  it('is left alone if no route may want it', async () => {
    await startDenied(BY_POLICY, { routes: [{ ...ECHO, suffixes: ['.png'] }] });
    expect((await world.send('secret.txt'))?.batchItemFailures).toEqual([]);
    expect(world.count('UploadsUnrouted')).toBe(1);
  });

  it.each([
    ['throttles the key', 'KMS.ThrottlingException', 400],
    ['fails', 'InternalError', 500],
  ])('is not charged if S3 only %s: its message comes again', async (_, name, status) => {
    await startDenied({ name, status });
    expect((await world.send('secret'))?.batchItemFailures).toHaveLength(1);
    expect(await world.keys(LEDGER)).toEqual([]);
  });
});
