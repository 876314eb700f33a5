import { describe, expect, it } from 'vitest';
import type { Fault } from '../../local/flow-service/fault.ts';
import { html } from './bad-answers.ts';
import { hostileWorld, MINUTE } from './support.ts';

const page = (status: number): Fault => ({ status, body: html, headers: { 'content-type': 'text/html' } });
const redirect = (status: number): Fault => ({ status, headers: { location: 'https://login.example/' } });

describe('a flow whose answer was lost before something else answered everything for two hours', () => {
  it.each<[string, Fault, Fault]>([
    ['502, then 302', { status: 502 }, redirect(302)],
    ['502, then 307', { status: 502 }, redirect(307)],
    ['502, then 403', { status: 502 }, { status: 403 }],
    ['502, then 404', { status: 502 }, { status: 404, body: '404 page not found' }],
    ['502, then 405', { status: 502 }, { status: 405 }],
    ['502, then a page', { status: 502 }, page(200)],
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
      world.clock.advance(20 * MINUTE);
      await world.tick().catch(() => {});
    }
    world.service.intercept = undefined;
    await world.settle();
    expect(world.service.flows).toHaveLength(1);
    expect((await world.entry()).state).toBe('succeeded');
  });
});
