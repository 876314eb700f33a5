import { describe, expect, it } from 'vitest';
import type { Fault } from '../../local/flow-service/fault.ts';
import { MINUTE, start, type WorldOptions, world } from '../support/world.ts';

// A service may be down for a night. No file is to blame for that, so none may fail, and nobody need do anything.

const KEYS: WorldOptions = { service: { variation: { idempotencyHours: 24 } } };

/** Lets hours pass, with a tick every two minutes. Puts a file in the middle of each of the first hours. */
async function passHours(hours: number, files = 0): Promise<void> {
  for (let hour = 0; hour < hours; hour += 1) {
    await world.deliverAndTick(15, 2 * MINUTE);
    if (hour < files) await world.upload(`file${hour}`, `file${hour}`);
    await world.deliverAndTick(15, 2 * MINUTE);
  }
}

const DOWN: Fault = { status: 503, body: 'upstream connect error' };
const PAGE: Fault = { status: 502, headers: { 'content-type': 'text/html' }, body: '<html>502 Bad Gateway</html>' };

describe.each<[string, WorldOptions]>([
  ['retry', { settings: { inDoubt: 'retry' } }],
  ['ask', { settings: { inDoubt: 'ask' } }],
  ['retry, while the service honours keys', KEYS],
])('with inDoubt %s, a service that is down for ten hours', (_, options) => {
  it.each<[string, Fault, Fault]>([
    ['503', DOWN, DOWN],
    ['a page', PAGE, PAGE],
    ['503, a page to listings', DOWN, PAGE],
    ['504 once it has made the flow', { status: 504, at: 'after-effect' }, { status: 504 }],
    ['a lost connection once it has made the flow', { reset: 'after-effect' }, { reset: 'before-body' }],
  ])('and answers %s, gets each file once when it is back', async (__, toCreations, toOthers) => {
    await start(options);
    await world.upload('before', 'before');
    await world.settle();
    world.service.intercept = (_request, { operation }) => (operation === 'createFlow' ? toCreations : toOthers);
    await passHours(10, 3);
    world.service.intercept = undefined;
    await passHours(2);
    expect((await world.entries()).map(({ state }) => state)).toEqual(Array(4).fill('succeeded'));
    expect(world.service.flows).toHaveLength(4);
    expect(world.count('UploadsFailed') + world.count('DoubtsHeld') + world.count('DoubtsRetried')).toBe(0);
  });
});
