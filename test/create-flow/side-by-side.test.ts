import { expect, it } from 'vitest';
import { openWorld } from '../support/world.ts';

it('reads the token while an upload is opened', async () => {
  const order: string[] = [];
  const world = await openWorld({
    s3: {
      authorize: ({ request, resource }) => {
        if (request.method === 'GET' && resource.endsWith('/a.bin'))
          order.push(`opened, ${world.tokenReadings} readings`);
        return true;
      },
    },
  });
  await world.send('a.bin');
  expect(order).toEqual(['opened, 1 readings']);
  expect(world.tokenReadings).toBe(1);
  expect(world.service.flows).toHaveLength(1);
});

it('reads no token for a file that no route can want', async () => {
  const route = { name: 'pictures', suffixes: ['.png'], input: 'file', template: 'bytes_echo' } as const;
  const world = await openWorld({ routes: [route] });
  await world.send('a.bin');
  expect(world.tokenReadings).toBe(0);
});

it('leaves it to the request to report a token that cannot be read', async () => {
  const world = await openWorld();
  world.token = new Error('no secret');
  await world.send('a.bin');
  expect(await world.entry()).toMatchObject({ state: 'waiting' });
  world.token = 'obviously-fake-token';
  await world.settle();
  expect((await world.receipt('a.bin')).status).toBe('succeeded');
});
