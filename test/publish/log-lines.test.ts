import { describe, expect, it } from 'vitest';
import { answer, ECHO, INBOX, LEDGER, MINUTE, openWorld, type World, type WorldOptions } from '../support/world.ts';

/** Lines about a whole invocation, or a whole pass of the sweep. */
const OF_NO_UPLOAD = ['Tick ended', 'Sweep requested', 'Sweep ended'];

/** The size from which an asset is stored in parts. */
const LARGE = 12 * 1024 * 1024;

const start = (options: WorldOptions = {}): Promise<World> => openWorld({ isVirtual: true, ...options });

/** The lines about uploads, of a world with one upload. */
const lines = ({ logged }: World) => logged.filter(({ message }) => !OF_NO_UPLOAD.includes(message));

const withoutId = (world: World, id: string) => lines(world).filter(({ fields }) => fields.uploadId !== id);

async function idOf(world: World): Promise<string> {
  return (await world.entry()).upload.id;
}

describe('every line that the functions log about an upload has its id', () => {
  it('if it waits, is sent, and succeeds', async () => {
    const world = await start();
    world.fault('createFlow', { status: 503, headers: { 'retry-after': '600' } }, 2);
    await world.send('a.png');
    await world.settled('a.png');
    expect(lines(world).map(({ message }) => message)).toEqual(
      expect.arrayContaining(['The upload waits', 'Flow created', 'Upload succeeded']),
    );
    expect(withoutId(world, await idOf(world))).toEqual([]);
  });

  it('if the service rejects it, as many files before it', async () => {
    const world = await start();
    world.fault('createFlow', answer({ detail: 'no' }, 422));
    for (let n = 1; n < 20; n += 1) await world.send(`${n}.png`);
    world.logged.length = 0;
    await world.send('a.png');
    expect(lines(world).map(({ message }) => message)).toEqual(
      expect.arrayContaining(['The last files of this route failed alike', 'Upload failed']),
    );
    const last = (await world.entries()).find(({ upload }) => upload.key === 'a.png');
    expect(withoutId(world, last?.upload.id ?? '')).toEqual([]);
  });

  it('if outcomes cannot be noted', async () => {
    const world = await start({
      s3: { authorize: ({ action, resource }) => action !== 's3:PutObject' || !resource.endsWith('state/holds.json') },
    });
    world.fault('createFlow', answer({ detail: 'no' }, 422));
    await world.send('a.png');
    expect(lines(world).map(({ message }) => message)).toContain('An outcome could not be noted at its route');
    expect(withoutId(world, await idOf(world))).toEqual([]);
  });

  it('if the answer to its request is lost', async () => {
    const world = await start({ speaks: { list: null } });
    world.fault('createFlow', { reset: 'after-effect' }, 1);
    await world.send('a.png');
    await world.waitOutDoubt();
    await world.settled('a.png');
    expect(withoutId(world, await idOf(world))).toEqual([]);
  });

  it('if S3 refuses to hand it out', async () => {
    const world = await start({
      s3: { authorize: ({ action, resource }) => !(action.startsWith('s3:GetObject') && resource.includes(INBOX)) },
    });
    await world.send('a.png');
    expect(lines(world).map(({ message }) => message)).toContain('The upload could not be sent');
    expect(withoutId(world, await idOf(world))).toEqual([]);
  });

  it('if no route takes it once its media type is known', async () => {
    const world = await start({ routes: [{ ...ECHO, mediaTypes: ['image/*'] }] });
    await world.send('a.png', 'x', { ContentType: 'text/plain' });
    expect(world.logged).toEqual([
      expect.objectContaining({
        message: 'No route wants this upload',
        fields: expect.objectContaining({ uploadId: expect.stringMatching(/^[0-9a-f]{40}$/) }),
      }),
    ]);
  });

  it('if its asset cannot be stored, nor its parts be removed', async () => {
    const world = await start({
      isVirtual: false, // So many bytes take time.
      settings: { assetBytesMax: 2 * LARGE, inputBytesMax: 2 * LARGE },
    });
    await world.send('a.png', new Uint8Array(LARGE));
    world.beforeS3((call) => {
      if (['UploadPart', 'AbortMultipartUpload'].includes(call)) throw new Error('broken');
    });
    await world.tickAfter(5 * MINUTE).catch(() => undefined);
    expect(lines(world).map(({ message }) => message)).toContain(
      'A multipart upload could not be aborted; the lifecycle rule will remove its parts',
    );
    expect(withoutId(world, await idOf(world))).toEqual([]);
  });

  it('if the sweep finds it, and its message comes twice', async () => {
    const world = await start();
    await world.sweep();
    await world.upload('a.png');
    world.takeMessages();
    world.clock.advance(60 * MINUTE);
    await world.sweep();
    await world.deliverAll();
    await world.settle();
    expect(lines(world).map(({ message }) => message)).toContain('The sweep submits an upload that has no entry');
    expect(withoutId(world, await idOf(world))).toEqual([]);
  });

  it('if its entry cannot be written', async () => {
    const world = await start({
      s3: { authorize: ({ action, resource }) => action !== 's3:PutObject' || !resource.includes(`:::${LEDGER}`) },
    });
    await world.send('a.png');
    expect(world.logged).toEqual([
      expect.objectContaining({
        message: 'This delivery failed. The queue delivers the message again.',
        fields: expect.objectContaining({ uploadId: expect.stringMatching(/^[0-9a-f]{40}$/) }),
      }),
    ]);
  });
});
