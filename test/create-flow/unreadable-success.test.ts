import { describe, expect, it } from 'vitest';
import { answer, DAY, HOUR, MINUTE, start, world } from '../support/world.ts';

// A success that cannot be read means that a flow was made, most probably. Such an upload is never sent again by itself,
// unless it is proven that there is no flow.

const NO_LISTING = { service: { variation: { listFlows: 404 } } } as const;

describe('a creation that was answered with a success that names no flow', () => {
  it('waits for a person whatever `inDoubt` says, is sent once, and fails after a week', async () => {
    await start({ ...NO_LISTING, settings: { inDoubt: 'retry' } });
    world.fault('createFlow', { status: 200, body: '{"ok":true}' });
    await world.upload('a', 'x');
    await world.waitOutDoubt();
    expect(await world.entry()).toMatchObject({
      state: 'waiting',
      reason: 'undecided',
      doubt: { isAccepted: true },
      message: expect.stringContaining('It fails if there is none by 2026-01-08'),
    });
    for (let hour = 0; hour < 7 * 24 + 2; hour += 4) {
      world.clock.advance(4 * HOUR);
      await world.collect();
      await world.deliverAll();
    }
    expect(world.service.counts.createFlow).toBe(1);
    expect(await world.receipt('a')).toMatchObject({
      status: 'failed',
      failure: { code: 'undecided', message: expect.stringContaining('{"ok":true}') },
    });
  });

  it.each([
    ['nothing, and a place', 202, '', { location: '/flows/f1', 'content-type': 'text/html; charset=utf-8' }],
    ['nothing', 204, '', {}],
    ['JSON that is called HTML', 201, '{"task":{"uuid":"f1"}}', { 'content-type': 'text/html' }],
  ])('waits for a person if the success holds %s', async (_, status, body, headers) => {
    await start({ ...NO_LISTING, settings: { inDoubt: 'retry' } });
    world.fault('createFlow', { status, body, headers }, 1);
    await world.upload('a', 'x');
    await world.waitOutDoubt();
    expect(await world.entry()).toMatchObject({ reason: 'undecided', doubt: { isAccepted: true } });
    expect(world.service.counts.createFlow).toBe(1);
  });

  it.each([
    ['the operator', { status: 202, body: '' }],
    ['settings.inDoubt (retry)', { status: 504, body: '' }],
  ])('says at once what comes if the service lists no flows: %s', async (who, fault) => {
    await start({ speaks: { list: null }, settings: { inDoubt: 'retry' } });
    world.fault('createFlow', fault, 1);
    await world.upload('a', 'x');
    await world.deliverAll();
    expect(await world.entry()).toMatchObject({
      reason: 'in-doubt',
      message: expect.stringContaining(`The service lists no flows: ${who} decides.`),
    });
  });

  it('waits as for a spent credit if the description says that its words mean that', async () => {
    const outOfCredit = [402, { status: 200, says: 'insufficient balance' }];
    await start({ ...NO_LISTING, speaks: { errors: { words: '/message', outOfCredit } } });
    const headers = { 'content-type': 'application/json' };
    const body = '{"success":false,"message":"Insufficient balance"}';
    world.fault('createFlow', { status: 200, headers, body }, 1);
    await world.upload('a', 'x');
    await world.deliverAll();
    const entry = await world.entry();
    expect(entry).toMatchObject({ state: 'waiting', reason: 'throttled', attempts: 0 });
    expect(entry).not.toHaveProperty('doubt');
    expect((await world.settled('a')).status).toBe('succeeded');
    expect(world.service.flows).toHaveLength(1);
  });

  it.each([
    ['a success', 200],
    ['403', 403],
  ])('fails at once, and is sent once, if %s has the words by which the service refuses a file', async (_, status) => {
    const rejected = [{ status, says: '"code": 1026' }];
    await start({ ...NO_LISTING, settings: { inDoubt: 'retry' }, speaks: { errors: { words: '/message', rejected } } });
    world.fault('createFlow', answer({ flow_id: '', code: 1026, message: 'The picture is sensitive' }, status));
    await world.send('a', 'x');
    expect(await world.receipt('a')).toMatchObject({
      failure: { code: 'rejected', message: expect.stringContaining('The picture is sensitive') },
    });
    expect(world.service.counts.createFlow).toBe(1);
  });

  it('waits for a person, who is told the words, if it has an error beside an id', async () => {
    await start({ ...NO_LISTING, settings: { inDoubt: 'retry' } });
    world.fault('createFlow', answer({ id: 'req_8f2', detail: 'insufficient balance' }), 1);
    await world.upload('a', 'x');
    await world.waitOutDoubt();
    expect(await world.entry()).toMatchObject({
      reason: 'undecided',
      doubt: { isAccepted: true },
      message: expect.stringContaining('insufficient balance'),
    });
    expect(world.service.counts.createFlow).toBe(1);
  });

  it('is sent again when the operator says so', async () => {
    await start(NO_LISTING);
    world.fault('createFlow', { status: 200, body: '{"ok":true}' }, 1);
    await world.upload('a', 'x');
    await world.waitOutDoubt();
    world.clock.advance(2 * DAY);
    await world.retry();
    expect((await world.settled('a')).status).toBe('succeeded');
    expect(world.service.counts.createFlow).toBe(2);
  });

  it('is sent again once a listing proves that there is no flow', async () => {
    await start();
    world.fault('createFlow', { status: 200, body: '{"ok":true}' }, 1);
    await world.upload('b', 'y');
    await world.send('a', 'x');
    for (let step = 0; step < 6; step += 1) {
      world.clock.advance(10 * MINUTE);
      await world.collect();
      await world.deliverAll();
    }
    expect((await world.settled('a')).status).toBe('succeeded');
    expect((await world.settled('b')).status).toBe('succeeded');
    expect(world.service.flows).toHaveLength(2);
  });

  it('is no success if it has the form of the errors of the service', async () => {
    await start(NO_LISTING);
    const error = {
      status: 200,
      headers: { 'content-type': 'application/json' },
      body: '{"detail":"insufficient balance"}',
    };
    world.fault('createFlow', error, 1);
    await world.upload('a', 'x');
    await world.deliverAll();
    expect((await world.entry()).doubt?.isAccepted).toBeUndefined();
  });
});
