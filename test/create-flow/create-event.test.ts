import { expect, it } from 'vitest';
import { CANARY_BYTES_MAX, createFlowsOrPutCanary } from '../../functions/create-flow/create-event.ts';
import { INBOX, LEDGER, start, world } from '../support/world.ts';

const CANARY = 'canary/a.png';
const startCanary = (settings: object = {}) => start({ settings: { canaryKey: CANARY, ...settings } });
const putCanary = (): Promise<unknown> =>
  world.invoke((invocation) => createFlowsOrPutCanary({ canary: true }, world.ports, invocation));
/** Delivers and collects until nothing is under way. */
async function settle(): Promise<void> {
  await world.deliverAll();
  world.clock.advance(10 * 60_000);
  await world.tick();
}

it.each(['Enabled', undefined] as const)(
  'the canary is put again as a new upload (versioning: %s)',
  async (versioning) => {
    await start({ settings: { canaryKey: CANARY }, versioning });
    await world.upload(CANARY, 'bytes', { ContentType: 'image/x-canary', Metadata: { customer: 'me' } });
    await settle();
    for (let hour = 2; hour <= 3; hour += 1) {
      world.clock.advance(60 * 60_000);
      expect(await putCanary()).toEqual({ canary: 'put' });
      await settle();
      expect(world.service.flows).toHaveLength(hour);
      expect(world.count('CanariesSucceeded')).toBe(hour);
    }
    expect(await world.object(INBOX, CANARY)).toMatchObject({
      bytes: Buffer.from('bytes'),
      mediaType: 'image/x-canary',
      metadata: { customer: 'me' },
    });
  },
);

it('no canary is put while the last one waits, so they do not pile up behind a pause', async () => {
  await startCanary();
  await world.collect({ hold: { action: 'pause' } });
  await world.upload(CANARY, 'bytes');
  await settle();
  for (let hour = 0; hour < 3; hour += 1) {
    world.clock.advance(60 * 60_000);
    expect(await putCanary()).toEqual({
      canary: 'not put',
      message: 'The last canary still waits: The pipeline is paused.',
    });
    await settle();
  }
  await world.collect({ hold: { action: 'resume' } });
  await world.settle();
  expect(world.service.flows).toHaveLength(1);
  expect(await putCanary()).toEqual({ canary: 'put' });
});

it('the canary is put again if the entry of the last one is damaged', async () => {
  await startCanary();
  await world.upload(CANARY, 'bytes');
  await world.deliverAll();
  const [key = ''] = await world.keys(LEDGER, 'uploads/');
  await world.put(LEDGER, key, 'no JSON');
  expect(await putCanary()).toEqual({ canary: 'put' });
});

it('only a canary that succeeds is counted, and no other file', async () => {
  await startCanary();
  await world.upload('a.png', 'x');
  await settle();
  world.service.intercept = (_, { operation }) => (operation === 'createFlow' ? { status: 422 } : undefined);
  await world.upload(CANARY, 'x');
  await settle();
  expect(world.count('UploadsFailed')).toBe(1);
  expect(world.count('CanariesSucceeded')).toBe(0);
});

it('a canary that is not there, or too large, is told and not put', async () => {
  await startCanary();
  expect(await putCanary()).toEqual({ canary: 'not put', message: `${INBOX}/${CANARY} was deleted` });
  await world.upload(CANARY, Buffer.alloc(CANARY_BYTES_MAX + 1));
  world.takeMessages();
  expect(await putCanary()).toEqual({
    canary: 'not put',
    message: `${INBOX}/${CANARY} has 1048577 bytes, and may have 1048576`,
  });
  expect(world.takeMessages()).toEqual([]);
});

it('without a setting, no canary is put', async () => {
  await start();
  expect(await putCanary()).toEqual({ canary: 'not put', message: 'settings.canaryKey names no file' });
});

it('if somebody replaces the canary meanwhile, their file stays', async () => {
  await startCanary();
  await world.upload(CANARY, 'old');
  let isFirst = true;
  world.beforeS3(async (call) => {
    if (call !== 'PutObject' || !isFirst) return;
    isFirst = false;
    await world.upload(CANARY, 'new');
  });
  expect(await putCanary()).toMatchObject({ canary: 'not put' });
  expect((await world.object(INBOX, CANARY)).bytes.toString()).toBe('new');
});
