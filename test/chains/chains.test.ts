import { beforeEach, describe, expect, it } from 'vitest';
import type { Entry } from '../../functions/ledger/entry.ts';
import type { ChainReport } from '../../functions/publish/chain-report.ts';
import type { Route } from '../../functions/uploads/routes.ts';
import { ECHO, LEDGER, RESULTS, start, world } from '../support/world.ts';

/** A flow of the first route makes three assets of a text's lines. The next ones return what they get. */
const FIRST: Route = { name: 'lines', input: 'text', template: 'lines' };
const EACH: Route = { ...ECHO, name: 'each', after: 'lines' };
const ALL: Route = { ...ECHO, name: 'all', after: 'each', inputs: 'all' };

const report = () => world.json<ChainReport>(RESULTS, 'a.txt/chain.json');
const chainEvents = () => world.events.filter(({ detailType }) => detailType.startsWith('Chain')).map(({ detailType }) => detailType);
const entriesOf = async (route: string): Promise<readonly Entry[]> =>
  (await world.entries()).filter((entry) => entry.route.name === route);

describe('a chain', () => {
  beforeEach(() => start({ routes: [ECHO, { ...ECHO, name: 'again', after: 'echo' }] }));

  it('sends an asset on to the next stage, and tells of it once at the end', async () => {
    await world.send('a.txt', 'hello');
    await world.settle();
    const [first, again] = [await entriesOf('echo'), await entriesOf('again')];
    expect([first.map(({ state }) => state), again.map(({ state }) => state)]).toEqual([['succeeded'], ['succeeded']]);
    expect(await world.keys(RESULTS)).toEqual([]);
  });
});
