import { DeleteObjectCommand } from '@aws-sdk/client-s3';
import { afterEach, describe, expect, it } from 'vitest';
import { LEDGER, World } from './support/world.ts';

let world: World | undefined;
afterEach(() => world?.close());

describe('the marker of a wait that is over', () => {
  it('gives way to the marker of the flow that the upload has by now, should that one be missing', async () => {
    world = await World.start();
    await world.upload('a', 'hello');
    await world.deliver();
    const [running = ''] = await world.keys(LEDGER, 'running/');
    const { upload } = await world.entry();
    await world.s3.send(new DeleteObjectCommand({ Bucket: LEDGER, Key: running }));
    const due = { uploadId: upload.id, notBefore: world.clock.now() - 1 };
    await world.ports.ledger.putWaitingMarker(due, new AbortController().signal);

    await world.tick();

    expect(await world.keys(LEDGER, 'running/')).toEqual([running]);
    expect(await world.keys(LEDGER, 'waiting/')).toEqual([]);
  });
});
