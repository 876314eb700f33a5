import { describe, expect, it } from 'vitest';
import { collectAgain } from '../../functions/operator/operator.ts';
import type { Fault } from '../../local/flow-service/fault.ts';
import { answer, ECHO, MINUTE, SECOND, start, type WorldOptions, world } from '../support/world.ts';

const NOT_FOUND: Fault = { status: 404, body: '{"detail":"no such job in the queue"}' };

/** A queue that removes a job which has ended. Until then, the flow was seen running. */
async function forgotten({ speaks, settings }: WorldOptions = {}) {
  const shown: { outputs: Fault | undefined; isListed: boolean; hasEnded: boolean } = {
    ...{ outputs: undefined, isListed: false, hasEnded: false },
  };
  const routes = [{ ...ECHO, parameters: { copies: 2 } }];
  await start({ routes, service: { flowMs: 10 * SECOND }, ...(speaks && { speaks }), ...(settings && { settings }) });
  world.service.intercept = (_, { operation }) => {
    if (!shown.hasEnded) return operation === 'getFlow' ? answer({ flow_id: 'f1', state: 'running' }) : undefined;
    if (operation === 'listFlows' && !shown.isListed) return answer({ flows: [] });
    if (operation === 'getFlow') return NOT_FOUND;
    return operation === 'listOutputs' ? shown.outputs : undefined;
  };
  await world.send('a.bin', 'x', { ContentType: 'application/x-test' });
  await world.tickAfter(5 * SECOND);
  shown.hasEnded = true;
  return shown;
}

/** Ticks for longer than anything here takes. */
async function aWhile(): Promise<void> {
  for (let i = 0; i < 12; i += 1) await world.tickAfter(MINUTE).catch(() => {});
}

const assets = async () => (await world.receipt('a.bin')).assets?.length;
const outputsAsked = () => world.service.counts.listOutputs;

describe('a flow whose state is forgotten once it has ended', () => {
  it.each([false, true])('is collected, because its outputs are still listed; in the listing: %j', async (isListed) => {
    const shown = await forgotten();
    shown.isListed = isListed;
    await world.tickAfter(MINUTE);
    expect(await world.entry()).toMatchObject({ state: 'running' });
    await aWhile();
    expect(await assets()).toBe(2);
  });

  it('is collected by addresses in an answer of its own', async () => {
    const addresses = { path: '/flows/{id}/outputs', addresses: ['/files'], isWhole: true };
    const shown = await forgotten({ speaks: { outputs: addresses } });
    shown.outputs = answer({ files: ['data:application/x-test;base64,AAAA'] });
    await aWhile();
    expect(await assets()).toBe(1);
  });

  it.each<[string, Fault]>([
    ['are pending', answer({ outputs: [{ asset_id: 'a1', status: 'pending' }] })],
    ['are not ready', { status: 409 }],
    ['cannot be listed in an outage', { status: 503 }],
  ])('is waited for while its outputs %s', async (_, outputs) => {
    const shown = await forgotten();
    shown.outputs = outputs;
    await aWhile();
    expect(await world.entry()).toMatchObject({ state: 'running' });
    shown.outputs = undefined;
    await aWhile();
    expect(await assets()).toBe(2);
  });

  it.each<[string, Fault]>([
    ['not found', NOT_FOUND],
    ['an empty list', answer({ outputs: [] })],
  ])('is collected although its outputs come a minute late, and are %s until then', async (_, outputs) => {
    const shown = await forgotten({ settings: { pollIntervalSeconds: 15 } });
    world.remainingMs = 20 * SECOND;
    world.clock.advance(6 * MINUTE);
    shown.outputs = outputs;
    for (let i = 0; i < 4; i += 1) await world.tickAfter(15 * SECOND);
    shown.outputs = undefined;
    await aWhile();
    expect(await assets()).toBe(2);
  });

  it('is collected again when an operator asks for it', async () => {
    const shown = await forgotten();
    shown.outputs = NOT_FOUND;
    await aWhile();
    const { upload, failure } = await world.receipt('a.bin');
    expect(failure).toMatchObject({ code: 'flow-gone' });
    shown.outputs = undefined;
    await collectAgain([upload.id], world.ports, new AbortController().signal);
    await aWhile();
    expect(await assets()).toBe(2);
  });
});

describe('a flow whose state leads elsewhere once it has ended', () => {
  const led = async (location: string, status = 303) => {
    const shown = await forgotten();
    const [flow] = world.service.flows;
    world.service.intercept = (_, { operation }) => {
      if (operation === 'getFlow') return { status, headers: { location: location.replace('{id}', flow?.id ?? '') } };
      return operation === 'listOutputs' ? shown.outputs : undefined;
    };
    return shown;
  };

  it.each([302, 303])('is collected, because its outputs are listed; %i', async (status) => {
    const shown = await led('/results/f1', status);
    shown.outputs = NOT_FOUND;
    await aWhile();
    expect(await world.entry()).toMatchObject({ state: 'running' });
    shown.outputs = undefined;
    await aWhile();
    expect(await assets()).toBe(2);
  });

  it.each<[string, number, string]>([
    ['to another host', 303, 'https://login.example.org/results/f1'],
    ['to the same path with a slash', 302, '/flows/{id}/'],
    ['for good', 308, '/results/f1'],
  ])('is not, if a redirect leads %s: something else answers', async (_, status, location) => {
    await led(location, status);
    await aWhile();
    expect(await world.entry()).toMatchObject({ state: 'running' });
    expect(world.count('ServiceMisaddressed')).toBeGreaterThan(0);
  });
});

describe('a flow that is not known any more', () => {
  it.each<[string, Fault]>([
    ['not found either', NOT_FOUND],
    ['not served', { status: 405 }],
    ['an empty list', answer({ outputs: [] })],
  ])('is gone if its outputs are %s', async (_, outputs) => {
    const shown = await forgotten();
    shown.outputs = outputs;
    await aWhile();
    expect(await world.receipt('a.bin')).toMatchObject({ failure: { code: 'flow-gone' } });
  });

  it('costs one request for its outputs with each poll', async () => {
    const shown = await forgotten();
    await world.tick();
    const polls = world.service.counts.getFlow;
    shown.outputs = answer({ outputs: [] });
    await aWhile();
    expect(await world.receipt('a.bin')).toMatchObject({ failure: { code: 'flow-gone' } });
    expect(outputsAsked()).toBeLessThanOrEqual(world.service.counts.getFlow - polls + 1);
  });

  it('is gone at once where its addresses would be in the answer that is not found', async () => {
    await forgotten({ speaks: { outputs: { addresses: ['/files'], isWhole: true } } });
    await aWhile();
    expect(await world.receipt('a.bin')).toMatchObject({ failure: { code: 'flow-gone' } });
    expect(outputsAsked()).toBe(0);
  });
});
