import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { sinceOf, timeOf } from '../../../command-line/flowdrop/words.ts';
import { plan } from '../../../operations/act.ts';
import { Operated, runFlowdrop, signal } from '../../operations/support.ts';

vi.mock('../../../operations/wait.ts', () => import('../../operations/quick-wait.ts'));

let operated: Operated;
beforeAll(async () => {
  operated = await Operated.start();
  await operated.put('made.png', 'succeeded');
  await writeFile(join(operated.directory, 'private.png'), 'nobody named this file');
});
afterAll(() => operated[Symbol.asyncDispose]());

const flows = (): number => operated.standIn.flows.length;

describe('a variable that is not set', () => {
  it.each([
    ['again', '', '--yes'],
    ['cancel', '', '--yes'],
    ['retry', 'made.png', '', '--yes'],
    ['put', '', '--yes'],
    ['get', '', '--to', 'copies'],
    ['get', 'made.png', '--to', ''],
    ['status', ''],
    ['status', '--stack', ''],
    ['pause', '--route', ''],
    ['again', '--route', '', '--yes'],
  ])('means neither all files nor the folder: flowdrop %s %s %s %s', async (...words) => {
    const paid = flows();
    const ran = await operated.run(...words);
    expect(ran).toMatchObject({ code: 2, output: '', errors: expect.stringContaining('is empty') });
    expect(flows()).toBe(paid);
  });

  it('names no file in a script of your own', async () => {
    const chosen = await plan({ action: 'again' }, { words: [''] }, operated.deployment, signal);
    expect(chosen).toMatchObject({ uploads: [], left: [{ key: '', why: 'it is empty, and all keys begin so' }] });
  });
});

describe('a time that has not come', () => {
  it.each([
    'list --failed',
    'retry --failed --yes',
    'again --route pictures --yes',
    'sweep --dry-run',
    'costs',
    'logs a',
  ])('is refused, because nothing has happened since: %s', async (line) => {
    const ran = await operated.run(...line.split(' '), '--since', '2200-01-01');
    expect(ran).toMatchObject({ code: 2, errors: expect.stringContaining('has not come yet') });
  });

  it('is the hour of yesterday after midnight, unless it is where something ends', () => {
    const halfPastMidnight = new Date('2026-11-30T00:30').getTime();
    expect(() => sinceOf('23:00', halfPastMidnight)).toThrow('name the day too');
    expect(sinceOf('2026-11-29T23:00', halfPastMidnight)).toBe(halfPastMidnight - 90 * 60_000);
    expect(timeOf('23:00', halfPastMidnight)).toBeGreaterThan(halfPastMidnight);
  });
});

it.each([
  ['Ctrl-C', '\u0003'],
  ['Ctrl-D', '\u0004'],
])('%s at a question is an interruption, and nothing is done', async (_, answer) => {
  const paid = flows();
  const at = { directory: operated.directory, answer, columns: 80 };
  const ran = await runFlowdrop(['again', 'made.png'], at);
  expect(ran).toMatchObject({ code: 130, output: '', errors: expect.stringContaining('Interrupted.') });
  expect(flows()).toBe(paid);
});
