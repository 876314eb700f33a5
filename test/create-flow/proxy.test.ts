import { describe, expect, it } from 'vitest';
import { systemClock } from '../../functions/base/clock.ts';
import { httpTransport } from '../../functions/flow-service/http-transport.ts';
import { refusing, serveProxy } from '../support/proxy.ts';
import { HOUR, start, world } from '../support/world.ts';

/** What the search for the flow of a doubt would ask for. */
const SEARCHES = ['listFlows', 'listTemplates'] as const;

describe('a proxy that refuses', () => {
  it.each(['403 Forbidden', '407 Proxy Authentication Required', '401 Unauthorized', '502 Bad Gateway'])(
    'with %s keeps a file waiting, uncounted and not in doubt, until it is sent once',
    async (head) => {
      const proxy = await serveProxy(refusing(head));
      const proxies = { http: proxy.url };
      await start({ isVirtual: false, transport: () => httpTransport({ clock: systemClock, proxies }) });
      await world.send('a', 'x');
      for (let round = 0; round < 5; round += 1) {
        world.clock.advance(2 * HOUR);
        await world.collect();
        await world.deliverAll();
      }
      const entry = await world.entry();
      expect(entry).toMatchObject({ state: 'waiting', reason: 'unavailable', attempts: 0 });
      expect(entry).toMatchObject({ message: expect.stringContaining(`create: the proxy ${proxy.url.origin} `) });
      expect(entry.doubt).toBeUndefined();
      for (const name of ['TokenRejected', 'ServiceMisaddressed'] as const) expect(world.count(name)).toBe(0);
      expect(SEARCHES.map((operation) => world.service.counts[operation])).toEqual([0, 0]);

      proxy.refuse = undefined;
      for (let round = 0; round < 3; round += 1) {
        world.clock.advance(HOUR);
        await world.collect();
        await world.deliverAll();
      }
      expect((await world.settled('a')).status).toBe('succeeded');
      expect(world.service.flows).toHaveLength(1);
    },
  );
});
