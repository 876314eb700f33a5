import { describe, expect, it } from 'vitest';
import { createFlows } from '../../functions/create-flow/batch.ts';
import { INBOX, LEDGER, RESULTS } from '../support/world.ts';
import { nested } from './bad-answers.ts';
import { hostileWorld, MINUTE } from './support.ts';

const record = (s3: unknown, more: object = {}) =>
  JSON.stringify({ Records: [{ eventSource: 'aws:s3', eventName: 'ObjectCreated:Put', s3, ...more }] });
const put = (object: object, more: object = {}) => record({ bucket: { name: INBOX }, object }, more);
const bridged = (detail: unknown, more: object = {}) =>
  JSON.stringify({ source: 'aws.s3', 'detail-type': 'Object Created', detail, ...more });

/** Messages that can never be parsed. `test/uploads/upload-event.test.ts` has the others. */
const DEAD: readonly (readonly [what: string, body: string])[] = [
  ['not JSON', 'not JSON'],
  ['a long object', JSON.stringify({ a: 'x'.repeat(200_000) })],
  ['lists in lists, 100,000 deep', nested(100_000)],
  ['objects in objects, 50,000 deep', `${'{"a":'.repeat(50_000)}1${'}'.repeat(50_000)}`],
  ['a record of lists in lists', `{"Records":[${nested(100_000)}]}`],
  ['an event of lists in lists', bridged({}).replace('{}', `{"object":${nested(100_000)}}`)],
  ['a key of 200,000 bytes', put({ key: 'a'.repeat(200_000) })],
  ['a notification wrapped by a topic', JSON.stringify({ Type: 'Notification', Message: put({ key: 'a' }) })],
  [
    'a queue message within a queue message',
    JSON.stringify({ Records: [{ messageId: '1', body: put({ key: 'a' }) }] }),
  ],
  ['an invalid version', put({ key: 'there', versionId: '../../x' })],
  ['a version with a newline', put({ key: 'there', versionId: 'a\r\nX-Evil: b' })],
];

/** Messages that need no work. */
const DONE: readonly (readonly [what: string, body: string])[] = [
  ['no records', '{"Records":[]}'],
  ['an object that is not there', put({ key: 'not-there' })],
  ['a version that is not there', put({ key: 'there', versionId: 'f'.repeat(32) })],
  ['the ETag of another object', put({ key: 'there', eTag: '0'.repeat(32) })],
  ['a name that objects inherit', put({ key: '__proto__' })],
  ['a folder', put({ key: 'folder/', size: 0 })],
  ['an object of the results bucket', record({ bucket: { name: RESULTS }, object: { key: 'a/receipt.json' } })],
  ['an object of the ledger', record({ bucket: { name: LEDGER }, object: { key: 'state/sweep.json' } })],
  ['a bucket that is not there', record({ bucket: { name: 'nobodys' }, object: { key: 'there' } })],
  ['a bucket called ..', record({ bucket: { name: '..' }, object: { key: 'there' } })],
];

/** Odd messages that tell of an upload. */
const TAKEN: readonly (readonly [what: string, body: string])[] = [
  ['a negative size', put({ key: 'there', size: -1 })],
  ['an unknown upload id', put({ key: 'there' }, { flowdrop: { uploadId: '0'.repeat(40) } })],
  ['a flowdrop member that is text', put({ key: 'there' }, { flowdrop: 'flowdrop' })],
  ['unknown members', put({ key: 'there', __proto__: {}, more: nested(10) }, { unknown: [1] })],
];

async function worldWithMessage(body: string) {
  const world = await hostileWorld();
  await world.upload('there', 'x');
  world.takeMessages();
  world.queue.send(body);
  return world;
}

describe('a message that is', () => {
  it.each(DEAD)('%s becomes a dead letter, and harms no other message', async (_, body) => {
    const world = await worldWithMessage(body);
    expect((await world.send('another'))?.batchItemFailures).toHaveLength(1);
    expect(world.service.flows.map(({ inputs }) => inputs[0]?.additional)).toMatchObject([{ key: 'another' }]);
    const said = world.logged
      .filter(({ level }) => level === 'error')
      .map(({ message, fields }) => ({ message, fields }));
    expect(said.length).toBeGreaterThan(0);
    for (const { fields } of said) expect((fields.error as Error).message.length).toBeLessThan(2_000);
    for (let i = 0; i < 6; i += 1) {
      world.clock.advance(3 * MINUTE);
      await world.deliver();
    }
    expect(world.deadLetters.counts().visible).toBe(1);
    expect(await world.keys(LEDGER, 'uploads/')).toHaveLength(1);
  });

  it.each(DONE)('%s succeeds at once, without a flow', async (_, body) => {
    const world = await worldWithMessage(body);
    await world.put(RESULTS, 'a/receipt.json', '{}');
    await world.put(LEDGER, 'state/sweep.json', '{}');
    expect(await world.deliver()).toEqual({ batchItemFailures: [] });
    expect(world.service.counts.createFlow).toBe(0);
    expect(await world.keys(LEDGER, 'uploads/')).toEqual([]);
  });

  it.each(TAKEN)('%s is taken as an upload', async (_, body) => {
    const world = await worldWithMessage(body);
    expect(await world.deliver()).toEqual({ batchItemFailures: [] });
    await world.settle();
    expect((await world.receipt('there')).status).toBe('succeeded');
    expect(world.service.flows).toHaveLength(1);
  });

  it('one of five thousand records is worked on until the time is over, and comes again for the rest', async () => {
    const world = await worldWithMessage(
      JSON.stringify({
        Records: Array.from({ length: 5_000 }, () => JSON.parse(put({ key: 'there' })).Records[0]),
      }),
    );
    world.remainingMs = 4_000;
    await world.deliver();
    expect(world.service.flows).toHaveLength(1);
    expect(await world.keys(LEDGER, 'uploads/')).toHaveLength(1);
  });
});

describe('an invocation with', () => {
  it.each([
    ['nothing', undefined],
    ['null', null],
    ['text', 'text'],
    ['a list', []],
    ['records of two kinds', { Records: [{ messageId: '1', body: '{}' }, {}] }],
    ['records whose bodies are objects', { Records: [{ messageId: '1', body: {} }] }],
  ])('%s fails as a whole, with a named error', async (_, event) => {
    const world = await hostileWorld();
    await expect(world.invoke((invocation) => createFlows(event, world.ports, invocation))).rejects.toBeInstanceOf(
      AggregateError,
    );
  });
});
