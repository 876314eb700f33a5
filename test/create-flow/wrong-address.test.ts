import { describe, expect, it } from 'vitest';
import type { Fault } from '../../local/flow-service/fault.ts';
import { answer, HOUR, LEDGER, MINUTE, RESULTS, start, world } from '../support/world.ts';

const NOT_FOUND: Fault = { status: 404 };
const PAGE: Fault = { status: 200, body: '<!doctype html><html></html>', headers: { 'content-type': 'text/html' } };
const REDIRECT: Fault = {
  status: 302,
  headers: { location: 'https://login.example/?state=obviously-fake-state' },
};

/** From now on something else than the service answers every request. Undefined: the service itself. */
const answerAll = (fault: Fault | undefined): void => {
  world.service.intercept = fault && (() => fault);
};

/** Delivers and ticks until the time is over. @param stepHours the time between two deliveries. */
async function passHours(hours: number, stepHours = 1): Promise<void> {
  await world.deliverAndTick(hours / stepHours, stepHours * HOUR);
  await world.deliver();
}

const isMisaddressed = async () =>
  expect(await world.entry()).toMatchObject({ state: 'waiting', reason: 'misaddressed' });

describe('an address at which something else answers every request with', () => {
  it.each<[string, Fault]>([
    ['404', NOT_FOUND],
    ['a redirect', REDIRECT],
    ['a page', PAGE],
  ])('%s makes uploads wait, with the alarm, and never pays twice', async (_, fault) => {
    await start({ settings: { attemptsMax: 2 } });
    answerAll(fault);
    await world.upload('a', 'x');
    await passHours(8, 2);
    await isMisaddressed();
    const entry = JSON.stringify(await world.entry());
    expect(entry).toContain('Check baseUrl');
    expect(entry).toContain(world.ports.settings.baseUrl.origin);
    expect(entry).not.toContain('obviously-fake-state');
    expect(world.count('ServiceMisaddressed')).toBeGreaterThan(3);
    expect(await world.keys(RESULTS)).toEqual([]);

    answerAll(undefined);
    expect(await world.settled('a')).toMatchObject({ status: 'succeeded' });
    expect(world.service.flows).toHaveLength(1);
  });

  it('a redirect to the same path with a slash is told as such', async () => {
    await start();
    world.service.intercept = (_, { operation }) =>
      operation === 'createFlow' ? { status: 307, headers: { location: '/flows/' } } : undefined;
    await world.upload('a', 'x');
    await passHours(1, 2);
    await isMisaddressed();
    expect(JSON.stringify(await world.entry())).toContain('The service wants a slash at the end of its paths');
  });

  it('404 holds uploads if doubts are held, until the right address shows that they have no flow', async () => {
    await start({ settings: { inDoubt: 'ask' } });
    answerAll(NOT_FOUND);
    await world.upload('a', 'x');
    await passHours(8, 2);
    expect(await world.entry()).toMatchObject({ state: 'waiting', reason: 'undecided' });
    expect(world.service.counts.createFlow).toBe(1);
    answerAll(undefined);
    expect(await world.settled('a')).toMatchObject({ status: 'succeeded' });
    expect(world.service.flows).toHaveLength(1);
  });

  it.each<[string, Fault, bytes: number]>([
    ['a page', PAGE, 1],
    // What did not go out whole can have no effect, so it leaves no doubt.
    ['a redirect, before it has read a large file,', { ...REDIRECT, at: 'before-body' }, 8 * 1024 * 1024],
  ])('%s ends an upload after three days, with a code that says so', async (_, fault, bytes) => {
    await start();
    answerAll(fault);
    await world.upload('a', Buffer.alloc(bytes));
    await passHours(70, 14);
    await isMisaddressed();
    await passHours(4, 2);
    const { failure } = await world.receipt('a');
    expect(failure).toMatchObject({ code: 'misaddressed', message: expect.stringContaining('Check baseUrl') });
    expect(failure?.message.length).toBeLessThan(500);
    expect(await world.keys(LEDGER, 'waiting/')).toEqual([]);
  });

  it.each<[string, Fault]>([
    ['404', NOT_FOUND],
    ['405', { status: 405 }],
    ['a page', PAGE],
  ])('%s gives up no running flow, although it is past its maximum age', async (_, fault) => {
    await start({ service: { flowMs: 5 * HOUR }, settings: { flowAgeMaxSeconds: 3 * 3_600 } });
    await world.send('a');
    await world.tickAfter(10 * MINUTE); // This process knows by now that the service answers polls.
    answerAll(fault);
    await passHours(5);
    expect(await world.entry()).toMatchObject({ state: 'running' });
    answerAll(undefined);
    expect(await world.settled('a')).toMatchObject({ status: 'succeeded' });
    expect(world.service.flows.map(({ aborted }) => aborted)).toEqual([false]);
  });
});

describe('an upload whose creations alone something else answers', () => {
  it('waits for three days, and then fails, although the listing shows each time that it has no flow', async () => {
    await start({ settings: { attemptsMax: 2 } });
    world.fault('createFlow', REDIRECT);
    await world.upload('a', 'x');
    await world.deliverAndTick(6, 10 * HOUR);
    expect(await world.entry()).toMatchObject({ state: 'waiting', reason: 'misaddressed', attempts: 0 });
    expect(world.count('ServiceMisaddressed')).toBeGreaterThan(2);
    await world.deliverAndTick(3, 10 * HOUR);
    expect(await world.receipt('a')).toMatchObject({ status: 'failed', failure: { code: 'misaddressed' } });
  });

  it('waits for three days anew after the service has answered in between', async () => {
    await start();
    answerAll(NOT_FOUND);
    await world.upload('a', 'x');
    await passHours(60, 20);
    world.service.intercept = (_, { operation }) => ({ status: operation === 'createFlow' ? 429 : 404 });
    await passHours(3, 1.5);
    answerAll(NOT_FOUND);
    await passHours(60, 20);
    await isMisaddressed();
  });
});

describe('a flow whose answer was lost before something else answered everything for two hours', () => {
  it.each<[string, Fault, Fault]>([
    ['502, then a redirect', { status: 502 }, REDIRECT],
    ['502, then 404', { status: 502 }, NOT_FOUND],
    ['a page, then 404', PAGE, NOT_FOUND],
  ])('is found when the service is back, and not paid for twice: %s', async (_, first, rest) => {
    await start({ service: { flowMs: 10 * MINUTE }, settings: { inDoubt: 'retry' } });
    let isFirst = true;
    world.service.intercept = (__, { operation }) => {
      if (operation !== 'createFlow' || !isFirst) return rest;
      isFirst = false;
      return { ...first, at: 'after-effect' };
    };
    await world.upload('a', 'x');
    for (let i = 0; i < 6; i += 1) {
      await world.deliver();
      await world.tickAfter(20 * MINUTE).catch(() => {});
    }
    answerAll(undefined);
    expect(await world.settled('a')).toMatchObject({ status: 'succeeded' });
    expect(world.service.flows).toHaveLength(1);
  });
});

describe('a flow that the service does not know', () => {
  it('is gone only while the address answers for something', async () => {
    await start({ service: { flowMs: 100 * HOUR } });
    await world.send('a');
    await world.tickAfter(10 * MINUTE);
    answerAll(NOT_FOUND);
    await world.deliverAndTick(3, 20 * MINUTE);
    expect(await world.entry()).toMatchObject({ state: 'running' });
    world.service.intercept = (_, { operation }) => (operation === 'listFlows' ? answer({ flows: [] }) : NOT_FOUND);
    await world.deliverAndTick(2, 20 * MINUTE);
    expect(await world.receipt('a')).toMatchObject({ status: 'failed', failure: { code: 'flow-gone' } });
  });
});
