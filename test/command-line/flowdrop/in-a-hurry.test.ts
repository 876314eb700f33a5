import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { DeleteObjectCommand, PutObjectCommand } from '@aws-sdk/client-s3';
import { afterAll, beforeAll, describe, expect, it, onTestFinished, vi } from 'vitest';
import { table } from '../../../command-line/flowdrop/console.ts';
import { showPut } from '../../../command-line/flowdrop/show-changes.ts';
import { sinceOf, timeOf } from '../../../command-line/flowdrop/words.ts';
import { LEDGER_BUCKET } from '../../../local/pipeline.ts';
import { plan } from '../../../operations/act.ts';
import { AwsRequestError } from '../../../operations/aws-requests.ts';
import { CollectingFunction } from '../../../operations/collecting-function.ts';
import { connectLocal } from '../../../operations/deployment.ts';
import { list } from '../../../operations/list.ts';
import { Operated, runFlowdrop, signal, startFlowdrop } from '../../operations/support.ts';
import { PATIENCE } from '../../support/patience.ts';

vi.mock('../../../operations/wait.ts', () => import('../../operations/quick-wait.ts'));
/** Three uploads are more than one invocation changes. */
vi.mock('../../../operations/actions.ts', async (original) => ({
  ...(await original<typeof import('../../../operations/actions.ts')>()),
  AT_ONCE_MAX: 2,
}));

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

  it('is a day in UTC, or by the own clock if it has not begun there', () => {
    vi.stubEnv('TZ', 'Asia/Tokyo');
    onTestFinished(() => void vi.unstubAllEnvs());
    const eightInTokyo = Date.parse('2026-11-29T23:00Z');
    expect(sinceOf('2026-11-30', eightInTokyo)).toBe(Date.parse('2026-11-29T15:00Z'));
    expect(sinceOf('2026-11-29', eightInTokyo)).toBe(Date.parse('2026-11-29T00:00Z'));
    expect(() => sinceOf('2026-12-01', eightInTokyo)).toThrow('has not come yet');
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

it('a region without a stack does not mean the run of this folder', async () => {
  const ran = await operated.run('cancel', 'made.png', '--region', 'eu-central-1', '--yes');
  expect(ran).toMatchObject({ code: 2, errors: '--region goes with --stack or --function.\n' });
});

it('a question that nobody sees, because the standard error goes into a file, is not waited for', async () => {
  const at = { directory: operated.directory, answer: 'y', isErrorsFile: true };
  const { code, errors } = await runFlowdrop(['again', 'made.png'], at);
  expect([code, errors]).toEqual([2, expect.stringContaining('There is no terminal to ask on: add --yes')]);
});

describe('a command that ends before its answer', () => {
  const WARNING = 'Before you repeat it, which may cost more: npm run -s flowdrop -- list\n';

  it('says that the files it waits for go on', async () => {
    const interrupted = new AbortController();
    operated.refuse(503);
    const at = { directory: operated.directory, signal: interrupted.signal };
    const { printed, ended } = startFlowdrop(['put', 'private.png', '--wait', '--yes'], at);
    await operated.becomes('private.png', 'waiting');
    interrupted.abort();
    expect(await ended).toBe(130);
    expect(printed.errors).toContain(`goes on: 1 upload. ${WARNING}`);
    operated.refuse(undefined);
    await operated.run('cancel', 'private.png', '--yes');
  });

  it('says how many uploads it has changed if the next ones cannot be', async () => {
    const some = ['many/1.png', 'many/2.png', 'many/3.png'];
    operated.refuse(422);
    await Promise.all(some.map((key) => operated.upload(key, key)));
    await vi.waitFor(async () => {
      const { uploads } = await list({ state: 'failed', code: 'rejected' }, operated.deployment, signal);
      expect(uploads).toHaveLength(some.length);
    }, PATIENCE);
    let asked = 0;
    const invoke = CollectingFunction.prototype.invoke;
    const expiring = vi.spyOn(CollectingFunction.prototype, 'invoke').mockImplementation(async function (
      this: CollectingFunction,
      ...call
    ) {
      asked += 1;
      if (asked > 1) throw new AwsRequestError('ExpiredTokenException', 403, 'The security token is expired');
      return invoke.apply(this, call);
    });
    const ran = await operated.run('retry', '--failed', '--code', 'rejected', '--yes');
    expiring.mockRestore();
    operated.refuse(undefined);
    expect(ran).toMatchObject({ code: 1, errors: expect.stringContaining(`goes on: 2 uploads. ${WARNING}`) });
  });
});

describe('a filter that nothing meets', () => {
  it('is not told as if there were nothing at all', async () => {
    const ran = await operated.run('list', '--since', '1m', '--code', 'timed-out');
    expect(ran.output).toBe('No file matches these options.\n');
  });

  it.each(['list --route pcitures', 'retry --failed --route pcitures --yes', 'approve --all --route pcitures --yes'])(
    'names the routes if it names none: %s',
    async (line) => {
      const { errors } = await operated.run(...line.split(' '));
      expect(errors).toContain('There is no route pcitures. The routes are pictures, texts.\n');
    },
  );

  it('says how far back a list goes', async () => {
    const { output } = await operated.run('list', '--since', '30d');
    expect(output).toMatch(/\nFiles that were put before \d{4}-\d\d-\d\d .* were not looked at\.\n/);
    expect((await operated.run('list', '--since', '1d')).output).not.toContain('not looked at');
  });
});

describe('very many files', () => {
  it('below a beginning of keys are not left out in silence', async () => {
    const deployment = await connectLocal(operated.directory, signal);
    onTestFinished(() => deployment.close());
    const uploads = Array.from({ length: 10_001 }, (_, at) => {
      const id = at.toString(16).padStart(24, '0');
      return { id, key: `folder/${id}`, bucket: 'inbox', bytes: 1, lastModified: 0, etag: 'e', isCurrent: true };
    });
    deployment.ledger.read = async () => undefined;
    deployment.inbox.pages = async function* () {
      yield { uploads, last: undefined };
    };
    const chosen = await plan({ action: 'cancel' }, { words: ['folder/'] }, deployment, signal);
    expect(chosen.left).toEqual([{ key: 'folder/', why: expect.stringContaining('more than 10000 keys begin so') }]);
  });

  it('fit into one table', () => {
    const rows = Array.from({ length: 200_000 }, (_, at) => [`${at}.png`, 'sent']);
    expect(table(rows)).toHaveLength(rows.length);
  });

  it('of jobs are told in one walk: one for each job would take minutes, and the test would end', () => {
    const job = (at: number) => ({ id: '', key: `${at}/job.json`, bytes: 1 });
    const input = (at: number) => ({ id: '', key: `${at}/in.png`, bytes: 1, inputOf: [`${at}/job.json`] });
    const files = Array.from({ length: 50_000 }, (_, at) => [job(at), input(at)]).flat();
    expect(showPut(files, undefined)).toHaveLength(50_000);
  });
});

describe('a name as a person types it', () => {
  beforeAll(async () => {
    await operated.put('gr\u0075\u0308n.png', 'succeeded');
    await operated.put('shots/Screenshot 2.07.11\u202fPM.png', 'succeeded');
    for (const form of ['e\u0301', '\u00e9']) await operated.put(`twice-${form}.png`, 'succeeded');
  });

  it.each([
    ['composed letters', 'gr\u00fcn.png'],
    ['an ordinary blank', 'shots/Screenshot 2.07.11 PM.png'],
  ])('means the one file that it fits: %s', async (_, name) => {
    const { code, output } = await operated.run('status', name, '--json');
    expect([code, JSON.parse(output)]).toMatchObject([0, { kind: 'upload', state: 'succeeded' }]);
    expect((await operated.run('again', name, '--dry-run')).output).toContain('1 file would be made anew');
    expect((await operated.run('get', name, '--to', 'copies')).output).toContain(': succeeded, receipt in ');
  });

  it('means its own file if two look alike', async () => {
    const { output } = await operated.run('status', 'twice-\u00e9.png', '--json');
    expect(JSON.parse(output).key).toBe('twice-\u00e9.png');
  });
});

describe('a cancellation below a beginning of keys', () => {
  it('says which files it could not reach: those being sent, those in the queue, and those that it cannot read', async () => {
    const { id: queued } = await operated.put('all/queued.png', 'succeeded');
    const { id: unread } = await operated.put('all/unread.png', 'succeeded');
    await operated.put('all/ended.png', 'succeeded');
    await operated.upload('all/unwanted.zip', 'no route takes it');
    const { s3 } = operated.pipeline;
    await s3.send(new DeleteObjectCommand({ Bucket: LEDGER_BUCKET, Key: `uploads/${queued}.json` }));
    await s3.send(new PutObjectCommand({ Bucket: LEDGER_BUCKET, Key: `uploads/${unread}.json`, Body: '{' }));
    operated.standIn.intercept = (_, { operation }) => (operation === 'createFlow' ? { delayMs: 15_000 } : undefined);
    await operated.put('all/sent.png', 'claimed');
    const { code, errors } = await operated.run('cancel', 'all/', '--yes');
    operated.standIn.intercept = undefined;
    expect(errors.split('\n').toSorted()).toEqual([
      '',
      'all/queued.png: nothing is done: it waits in the queue, or no route takes it',
      'all/sent.png: nothing is done: it is being sent at this moment',
      expect.stringMatching(/^all\/unread\.png: nothing is done: The entry cannot be read: /),
    ]);
    expect(code).toBe(1);
    // Once nothing is in the queue, a file without an entry came before the pipeline, or its entry has expired.
    const deployment = { ...operated.deployment, queueDepth: async () => ({ visible: 0, inFlight: 0 }) };
    const { left } = await plan({ action: 'cancel' }, { words: ['all/'] }, deployment, signal);
    const keys = left.map(({ key }) => key);
    expect([keys.includes('all/unread.png'), keys.includes('all/queued.png')]).toEqual([true, false]);
  });
});

it('a command whose notes nobody reads does what it was asked for', async () => {
  const program = fileURLToPath(new URL('../../../command-line/flowdrop.ts', import.meta.url));
  await writeFile(join(operated.directory, 'unwanted.zip'), 'no route takes it');
  await writeFile(join(operated.directory, 'piped.png'), 'a picture');
  const words = ['put', 'unwanted.zip', 'piped.png', '--yes'];
  const child = spawn(process.execPath, [program, ...words], {
    cwd: operated.directory,
    env: { ...process.env, INIT_CWD: operated.directory },
  });
  child.stderr.destroy();
  await once(child, 'exit');
  expect(await operated.becomes('piped.png', 'succeeded')).toMatchObject({ state: 'succeeded' });
});

it('a command whose answer nobody reads to its end has its own exit code', async () => {
  const program = fileURLToPath(new URL('../../../command-line/flowdrop.ts', import.meta.url));
  const codeOf = async (...words: readonly string[]): Promise<number> => {
    const child = spawn(process.execPath, [program, ...words], { cwd: operated.directory });
    child.stdout.destroy();
    const [code] = await once(child, 'exit');
    return code;
  };
  expect(await codeOf('status', 'absent.png')).toBe(1);
  expect(await codeOf('status', 'absent.png', '--json')).toBe(1);
  expect(await codeOf('list')).toBe(0);
  expect(await codeOf('status', '--watch')).toBe(0);
});
