import { inspect } from 'node:util';
import { expect, it } from 'vitest';
import type { Operation } from '../../local/flow-service/call.ts';
import type { Fault } from '../../local/flow-service/fault.ts';
import { tokenSpellings } from '../support/token-spellings.ts';
import { answer, LEDGER, MINUTE, RESULTS, start, TOKEN, world } from '../support/world.ts';

/** All that is kept of an upload or said of it: log lines with their errors, events, messages, keys and objects. */
async function everythingKept(): Promise<string> {
  const messages = [world.queue, world.deadLetters].flatMap((queue) => queue.receive({ max: 10 }));
  const said = [world.logged, world.events, messages].map((each) =>
    inspect(each, { depth: Infinity, maxArrayLength: null, maxStringLength: null }),
  );
  for (const bucket of [RESULTS, LEDGER]) {
    for (const key of await world.keys(bucket)) {
      const { bytes, mediaType, metadata } = await world.object(bucket, key);
      said.push(key, bytes.toString('latin1'), mediaType ?? '', JSON.stringify(metadata));
    }
  }
  return said.join('\n').toLowerCase();
}

const basic = Buffer.from(`Bearer ${TOKEN}`).toString('base64');

it.each<[Operation, Fault]>([
  ['createFlow', answer({ detail: `Who is ${TOKEN}?` }, 422)],
  ['createFlow', { status: 403, headers: { 'content-type': 'text/html' }, body: `<html>Bearer ${TOKEN}</html>` }],
  ['createFlow', { status: 302, headers: { location: `https://login.example/?by=${TOKEN}` } }],
  ['createFlow', { status: 201, headers: { [`x-${TOKEN}-location`]: '/flows/f1' }, body: '' }],
  [
    'listOutputs',
    { ...answer([{ id: 'a' }]), headers: { [`${TOKEN}.next`]: 'b', 'content-type': 'application/json' } },
  ],
  ['getFlow', answer({ id: 'any', state: 'failed', error: `Bearer ${TOKEN}` })],
  ['listOutputs', answer([{ id: TOKEN }, { id: 'a', status: 'failed', error: basic }])],
  ['getAsset', { status: 200, headers: { 'content-type': `application/x-${TOKEN}` }, body: 'x' }],
  ['getAsset', answer({ detail: `Who is ${TOKEN}?` })],
  ['getAsset', { status: 200, headers: { 'content-type': 'image/png' }, body: `<html>${basic}</html>` }],
  ['getAsset', answer({ data: `data:application/x-${basic.replaceAll('=', '')};base64,eA==` })],
])('the token that the service shows in its answer to %s is kept nowhere: %j', async (operation, fault) => {
  await start({ settings: { attemptsMax: 1 } });
  world.fault(operation, fault);
  await world.upload('a', 'x');
  await world.deliverAndTick(4, 10 * MINUTE);
  const kept = await everythingKept();
  expect(kept).toContain(`uploads/`);
  for (const secret of tokenSpellings(TOKEN)) expect(kept).not.toContain(secret.toLowerCase());
});

it('a secret that is no token is kept nowhere, and the log says what is wrong with it', async () => {
  await start();
  world.token = 'obviously-fake\r\nX-Evil: b';
  await world.send('a');
  expect(await world.entry()).toMatchObject({ state: 'waiting', reason: 'unauthorised' });
  const kept = await everythingKept();
  expect(kept).not.toContain('obviously');
  expect(kept).toContain('holds no token');
});
