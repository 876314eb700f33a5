import { describe, expect, it } from 'vitest';
import type { Fault } from '../../local/flow-service/fault.ts';
import { HOUR, MINUTE, start, type WorldOptions, world } from '../support/world.ts';

// If nothing can prove that a request made no flow, each further request may be paid for.

const JSON_TYPE = { 'content-type': 'application/json' };
const NOTICE = '<br />\n<b>Warning</b>: Undefined index in /a.php on line 3<br />\n{"flow_id":"f1"}';

/** What a service without a listing answers to a creation after it has made the flow. */
const ANSWERS: readonly (readonly [string, Fault])[] = [
  ['502', { status: 502, body: 'bad gateway' }],
  ['503 with a time', { status: 503, headers: { ...JSON_TYPE, 'retry-after': '30' }, body: '{"detail":"busy"}' }],
  ['503 with a time in milliseconds', { status: 503, headers: { ...JSON_TYPE, 'retry-after-ms': '900' }, body: '{}' }],
  ['a redirect to another place', { status: 302, headers: { location: '/done' } }],
  ['a redirect without a place', { status: 303 }],
  ['the answer behind a notice', { status: 200, headers: { 'content-type': 'text/html' }, body: NOTICE }],
];

const unlisted = (settings: WorldOptions['settings'] = {}): WorldOptions => ({
  service: { variation: { listFlows: 404 } },
  settings: { attemptsMax: 4, ...settings },
});

async function send(options: WorldOptions, fault: Fault): Promise<void> {
  await start(options);
  world.service.intercept = (_, { operation }) =>
    operation === 'createFlow' ? { ...fault, at: 'after-effect' } : undefined;
  await world.send('a');
}

describe('without a listing, a file whose creations take effect', () => {
  it.each(ANSWERS)(
    'is sent as often as attempts allow, and then fails, if each is answered with %s',
    async (_, fault) => {
      await send(unlisted(), fault);
      await world.deliverAndTick(12, 20 * MINUTE);
      expect(world.service.flows).toHaveLength(4);
      expect(await world.receipt('a')).toMatchObject({ status: 'failed', failure: { code: 'attempts-exhausted' } });
    },
  );

  it.each(ANSWERS)('is sent once if the operator wants to be asked, and each is answered with %s', async (_, fault) => {
    await send(unlisted({ inDoubt: 'ask' }), fault);
    await world.deliverAndTick(12, 20 * MINUTE);
    expect(world.service.flows).toHaveLength(1);
    expect(await world.entry()).toMatchObject({ state: 'waiting', reason: 'undecided' });
  });

  it('is sent after 1, 4 and 16 minutes, and at least five, whatever time the service names', async () => {
    await send(unlisted(), { status: 503, headers: { 'retry-after': '1' } });
    const sentAt: number[] = [];
    for (let minute = 0; minute < 60; minute += 1) {
      if (world.service.flows.length > sentAt.length) sentAt.push(minute);
      await world.deliverAndTick(1, MINUTE);
    }
    const gaps = sentAt.slice(1).map((at, index) => at - (sentAt[index] ?? 0));
    expect(gaps).toHaveLength(3);
    for (const [index, min] of [5, 5, 8].entries()) expect(gaps[index]).toBeGreaterThanOrEqual(min);
  });

  it.each([
    ['', '/flows/f1'],
    [', behind a proxy that hides https', 'http://flows.test/flows/f1'],
  ])('waits for the operator after a redirect to the flow, which was most probably made%s', async (_, location) => {
    await send(unlisted(), { status: 303, headers: { location } });
    await world.deliverAndTick(12, 20 * MINUTE);
    expect(world.service.flows).toHaveLength(1);
    expect(await world.entry()).toMatchObject({ state: 'waiting', reason: 'undecided' });
  });
});

it('with a listing that proves each time that there is no flow, a busy service may take as long as it needs', async () => {
  await start({ settings: { attemptsMax: 2 } });
  await world.send('before');
  await world.settle();
  world.service.intercept = (_, { operation }) =>
    operation === 'createFlow' ? { status: 503, headers: { 'retry-after': '30' } } : undefined;
  await world.send('a');
  await world.deliverAndTick(24, 20 * MINUTE);
  expect((await world.entries()).map(({ state, attempts }) => [state, attempts]).sort()).toEqual([
    ['succeeded', 0],
    ['waiting', 0],
  ]);
  world.service.intercept = undefined;
  await world.deliverAndTick(3, HOUR);
  expect(await world.receipt('a')).toMatchObject({ status: 'succeeded' });
  expect(world.service.flows).toHaveLength(2);
});
