import { describe, expect, it } from 'vitest';
import type { Fault } from '../../local/flow-service/fault.ts';
import { LEDGER, RESULTS, TOKEN, type World } from '../support/world.ts';
import { html } from './bad-answers.ts';
import { hostileWorld, MINUTE, onlyReceipt, saying, settledReceipt } from './support.ts';

const HOUR = 60 * MINUTE;
const page = (status: number): Fault => ({ status, body: html, headers: { 'content-type': 'text/html' } });
const redirect = (status: number): Fault => ({
  status,
  headers: { location: 'https://login.example/?state=obviously-fake-state' },
});

/** Delivers and ticks until the time is over. @param stepHours the time between two deliveries. */
async function passHours(world: World, hours: number, stepHours = 1): Promise<void> {
  await world.deliverAndTick(hours / stepHours, stepHours * HOUR);
  await world.deliver();
}

describe('an address at which something else answers every request with', () => {
  const answers: readonly (readonly [what: string, fault: Fault])[] = [
    ['404 and nothing', { status: 404 }],
    ['404 in the form of the service', saying('{"detail":"Not Found"}', { status: 404 })],
    ['302', redirect(302)],
    ['a page', page(200)],
    ['a page with 403', page(403)],
    ['a page with 400', page(400)],
  ];

  it.each(answers)('%s makes uploads wait, with the alarm, and never pays twice', async (_, fault) => {
    const world = await hostileWorld({ settings: { attemptsMax: 2 } });
    world.service.intercept = () => fault;
    await world.upload('a', 'x');
    await passHours(world, 8, 2);
    const entry = await world.entry();
    expect(entry).toMatchObject({ state: 'waiting', reason: 'misaddressed' });
    expect(entry.state === 'waiting' && entry.message).toContain('Check baseUrl');
    expect(entry.state === 'waiting' && entry.message).toContain(world.ports.settings.baseUrl.origin);
    expect(JSON.stringify(entry)).not.toContain('obviously-fake-state');
    expect(world.count('ServiceMisaddressed')).toBeGreaterThan(3);
    expect(await world.keys(RESULTS)).toEqual([]);

    world.service.intercept = undefined;
    expect(await settledReceipt(world)).toMatchObject({ status: 'succeeded' });
    expect(world.service.flows).toHaveLength(1);
  });

  it('404 and nothing holds uploads if doubts are held, until the right address shows that they have no flow', async () => {
    const world = await hostileWorld({ settings: { inDoubt: 'hold' } });
    world.service.intercept = () => ({ status: 404 });
    await world.upload('a', 'x');
    await passHours(world, 8, 2);
    expect(await world.entry()).toMatchObject({ state: 'waiting', reason: 'held' });
    expect(world.service.counts.createFlow).toBe(1);

    world.service.intercept = undefined;
    expect(await settledReceipt(world)).toMatchObject({ status: 'succeeded' });
    expect(world.service.flows).toHaveLength(1);
  });

  it.each<[string, Fault, bytes: number]>([
    ['404 and nothing', { status: 404 }, 1],
    ['a page', page(200), 1],
    // What did not go out whole can have no effect, so it leaves no doubt.
    ['302, before it has read a large file,', { ...redirect(302), at: 'before-body' }, 8 * 1024 * 1024],
  ])('%s ends an upload after three days, with a code that says so', async (_, fault, bytes) => {
    const world = await hostileWorld();
    world.service.intercept = () => fault;
    await world.upload('a', Buffer.alloc(bytes));
    await passHours(world, 70, 14);
    expect(await world.entry()).toMatchObject({ state: 'waiting', reason: 'misaddressed' });
    await passHours(world, 4, 2);
    const receipt = await onlyReceipt(world);
    expect(receipt).toMatchObject({ status: 'failed', failure: { code: 'misaddressed' } });
    expect(receipt.failure?.message).toContain('Check baseUrl');
    expect(receipt.failure?.message.length).toBeLessThan(500);
    expect(await world.keys(LEDGER, 'waiting/')).toEqual([]);
  });

  it.each(answers.filter(([what]) => what.startsWith('404') || what === 'a page'))(
    '%s gives up no running flow, however long',
    async (_, fault) => {
      const world = await hostileWorld({ service: { flowMs: 5 * HOUR } });
      await world.send('a');
      await world.tickAfter(10 * MINUTE); // This process knows by now that the service answers polls.
      world.service.intercept = () => fault;
      await world.deliverAndTick(20, 10 * MINUTE);
      expect(await world.entry()).toMatchObject({ state: 'running' });
      world.service.intercept = undefined;
      expect(await settledReceipt(world)).toMatchObject({ status: 'succeeded' });
      expect(world.service.flows.map(({ aborted }) => aborted)).toEqual([false]);
    },
  );
});

describe('a creation that is answered', () => {
  it.each<[string, Fault]>([
    ['404', { status: 404 }],
    ['404 and a page', page(404)],
    ['400 and a page', page(400)],
  ])('%s while the same address lists flows is refused for good', async (_, fault) => {
    const world = await hostileWorld();
    world.fault('createFlow', fault);
    await world.upload('a', 'x');
    expect(await settledReceipt(world)).toMatchObject({ status: 'failed', failure: { code: 'rejected' } });
    expect(world.service.counts.createFlow).toBe(1);
    expect(world.count('ServiceMisaddressed')).toBe(0);
  });

  it('404 with a word about the template is refused for good, even if nothing else answers', async () => {
    const world = await hostileWorld();
    world.service.intercept = (_, { operation }) =>
      operation === 'createFlow' ? saying('{"detail":"There is no such template"}', { status: 404 }) : { status: 404 };
    await world.send('a');
    expect(await onlyReceipt(world)).toMatchObject({ status: 'failed', failure: { code: 'rejected' } });
    expect(world.service.counts.createFlow).toBe(1);
  });

  it('a page with 403 while the same address lists flows counts as an attempt', async () => {
    const world = await hostileWorld();
    world.fault('createFlow', page(403));
    await world.send('a');
    expect(await world.entry()).toMatchObject({ state: 'waiting', reason: 'in-doubt', attempts: 1 });
  });

  it.each<[string, Fault]>([
    ['413', page(413)],
    ['422', page(422)],
  ])('a page with %s is about the file, whatever else answers', async (_, fault) => {
    const world = await hostileWorld();
    world.service.intercept = () => fault;
    await world.send('a');
    expect(await onlyReceipt(world)).toMatchObject({ status: 'failed', failure: { code: 'rejected' } });
  });

  it('our token in a page shows it nowhere', async () => {
    const world = await hostileWorld();
    world.service.intercept = () => ({ ...page(403), body: `<html>Bearer ${TOKEN}</html>` });
    await world.send('a');
    expect(await world.entry()).toMatchObject({ state: 'waiting', reason: 'misaddressed' });
  });

  it('as if at a wrong address waits for three days anew after the service has answered in between', async () => {
    const world = await hostileWorld();
    world.service.intercept = () => ({ status: 404 });
    await world.upload('a', 'x');
    await passHours(world, 60, 20);
    world.service.intercept = (_, { operation }) => ({ status: operation === 'createFlow' ? 429 : 404 });
    await passHours(world, 3, 1.5);
    world.service.intercept = () => ({ status: 404 });
    await passHours(world, 60, 20);
    expect(await world.entry()).toMatchObject({ state: 'waiting', reason: 'misaddressed' });
  });
});

describe('a flow whose answer was lost before something else answered everything for two hours', () => {
  it.each<[string, Fault, Fault]>([
    ['502, then 302', { status: 502 }, redirect(302)],
    ['502, then 404', { status: 502 }, { status: 404, body: '404 page not found' }],
    ['502, then a page', { status: 502 }, page(200)],
    ['302', redirect(302), redirect(302)],
    ['a page, then 404', page(200), { status: 404, body: '404 page not found' }],
  ])('is found when the service is back, and not paid for twice: %s', async (_, first, rest) => {
    const world = await hostileWorld({ service: { flowMs: 10 * MINUTE }, settings: { inDoubt: 'retry' } });
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
    world.service.intercept = undefined;
    expect(await settledReceipt(world)).toMatchObject({ status: 'succeeded' });
    expect(world.service.flows).toHaveLength(1);
  });
});

describe('a flow that the service does not know', () => {
  it('is gone only while the address answers for something', async () => {
    const world = await hostileWorld({ service: { flowMs: 100 * HOUR } });
    await world.send('a');
    await world.tickAfter(10 * MINUTE);
    world.service.intercept = () => ({ status: 404 });
    await world.deliverAndTick(3, 20 * MINUTE);
    expect(await world.entry()).toMatchObject({ state: 'running' });
    world.fault('getFlow', { status: 404 });
    await world.deliverAndTick(2, 20 * MINUTE);
    expect(await onlyReceipt(world)).toMatchObject({ status: 'failed', failure: { code: 'flow-gone' } });
  });

  it.each([404, 405])('is not too old while something else answers %i to everything', async (status) => {
    const world = await hostileWorld({ service: { flowMs: 4 * HOUR }, settings: { flowAgeMaxSeconds: 3 * 3_600 } });
    await world.send('a');
    world.service.intercept = () => ({ status });
    await passHours(world, 5);
    expect(await world.entry()).toMatchObject({ state: 'running' });
    world.service.intercept = undefined;
    expect(await settledReceipt(world)).toMatchObject({ status: 'succeeded' });
  });
});
