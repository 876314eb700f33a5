import { describe, expect, it } from 'vitest';
import type { TerminalEntry } from '../../functions/ledger/entry.ts';
import { publish } from '../../functions/publish/publish.ts';
import { answer, dyingAt, ECHO, LEDGER, MINUTE, start, world } from '../support/world.ts';

const NEXT = { ...ECHO, name: 'next', after: 'echo', prefixes: undefined };

const idOf = async (key: string): Promise<string> =>
  (await world.entries()).find(({ upload }) => upload.key === key)?.upload.id ?? '';
const again = async (key: string, more: object = {}) => world.collect({ again: [await idOf(key)], ...more });

describe('a file that is made anew', () => {
  it('gets a new generation after a success: the old results stay, and the receipt names them', async () => {
    await start({ routes: [{ ...ECHO, revision: 'first', parameters: { copies: 2 } }] });
    await world.send('a');
    await world.settle();
    const before = await world.receipt('a');
    expect(before).toMatchObject({ parameters: { copies: 2 }, revision: { name: 'first' } });
    expect(before).not.toHaveProperty('previous');

    world.redeploy({ routes: [{ ...ECHO, revision: 'second', parameters: { copies: 1 } }] });
    world.clock.advance(MINUTE);
    expect(await again('a')).toMatchObject([{ result: 'resubmitted' }]);
    await world.settle();
    const after = await world.receipt('a');
    expect(after).toMatchObject({
      generation: 2,
      parameters: { copies: 1 },
      revision: { name: 'second' },
      previous: [
        {
          ...{ generation: 1, status: 'succeeded', parameters: { copies: 2 }, revision: { name: 'first' } },
          ...{ flow: before.flow?.id, assets: before.assets, assetCount: 2 },
        },
      ],
    });
    expect(after).not.toMatchObject({ flow: before.flow });
    for (const { key } of before.assets) expect(await world.keys('results')).toContain(key);
    expect(world.service.flows).toHaveLength(2);
  });

  it('takes the later stages of its chain along, also those that were added since', async () => {
    await start({ routes: [ECHO] });
    await world.send('a');
    await world.settle();
    world.redeploy({ routes: [ECHO, NEXT] });
    await again('a');
    await world.settle();
    expect((await world.entries()).map(({ route, generation }) => [route.name, generation]).sort()).toEqual([
      ['echo', 2],
      ['next', 1],
    ]);
    await again('a');
    await world.settle();
    expect(world.service.flows).toHaveLength(5);
    expect(await world.keys(LEDGER, 'chains/')).toHaveLength(1);
  });

  it('takes other parameters and another template, where its route allows it, and not otherwise', async () => {
    await start({ routes: [ECHO] });
    await world.send('a');
    await world.settle();
    expect(await again('a', { parameters: { copies: 2 } })).toMatchObject([{ result: 'overrides not allowed' }]);
    expect(await again('a', { template: 'other' })).toMatchObject([{ result: 'overrides not allowed' }]);
    world.redeploy({ routes: [{ ...ECHO, overrides: true }] });
    await again('a', { parameters: { copies: 2 } });
    await world.settle();
    expect(world.service.flows.map(({ parameters }) => parameters)).toEqual([undefined, { copies: 2 }]);
    world.fault('createFlow', answer({ detail: 'No such template' }, 422));
    await again('a', { template: 'other' });
    await world.settle();
    expect(await world.receipt('a')).toMatchObject({ status: 'failed', template: 'other', generation: 3 });
  });

  it('is told of all its ends that had a flow, ten at most, and of a failure before', async () => {
    await start({ routes: [{ ...ECHO, overrides: true }] });
    await world.send('a');
    await world.settle();
    world.fault('createFlow', answer({ detail: 'No' }, 422));
    await again('a');
    await world.settle();
    world.service.intercept = undefined;
    for (let copies = 3; copies <= 13; copies += 1) {
      expect(await again('a', { parameters: { copies: copies % 2 } })).toMatchObject([{ result: 'resubmitted' }]);
      await world.settle();
    }
    const { previous = [] } = await world.receipt('a');
    // The second generation never had a flow.
    expect(previous.map(({ generation }) => generation)).toEqual([3, 4, 5, 6, 7, 8, 9, 10, 11, 12]);
  });

  it('is told in the same words by a tick that is late with the end before', async () => {
    await start({ routes: [ECHO, NEXT] });
    await world.send('a');
    await world.settle();
    const end = (await world.entries()).find(({ upload }) => upload.key === 'a') as TerminalEntry;
    const told = world.events.find(({ detail }) => JSON.parse(detail).upload.id === end.upload.id);
    world.clock.advance(MINUTE);
    await again('a');
    await world.invoke(({ closing }) => publish(end, world.ports, closing));
    expect(world.events.at(-1)).toEqual(told);
  });

  it('is under way while the tick that has just ended it has not begun its later stages', async () => {
    await start({ routes: [ECHO, NEXT] });
    await world.send('a');
    // The tick dies after its chain names the next stage, and before that has an entry.
    const revive = dyingAt(world.ports.receipts, 'put');
    await world.tickAfter(5 * MINUTE).catch(() => undefined);
    revive();
    expect(await world.entries()).toMatchObject([{ state: 'succeeded' }]);
    expect(await again('a')).toMatchObject([{ result: 'under way' }]);
    await world.settle();
    expect(world.service.flows).toHaveLength(2);
  });

  it('stays as it is while it is under way, and if it is unknown or belongs to the chain of another', async () => {
    await start({ routes: [ECHO, NEXT] });
    await world.send('a');
    expect(await again('a')).toMatchObject([{ result: 'under way' }]);
    await world.settle();
    const later = (await world.entries()).find(({ upload }) => upload.stage !== undefined)?.upload.id ?? '';
    expect(await world.collect({ again: [later] })).toMatchObject([{ result: 'not in its chain' }]);
    expect(await world.collect({ again: ['f'.repeat(40)] })).toMatchObject([{ result: 'unknown' }]);
    expect(world.service.flows).toHaveLength(2);
  });
});
