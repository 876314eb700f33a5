import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { DeleteObjectCommand, GetObjectCommand, PutObjectCommand } from '@aws-sdk/client-s3';
import { afterAll, beforeAll, describe, expect, it, onTestFinished, vi } from 'vitest';
import { showExplanation, showList, showPipeline, showPrefix, showUpload } from '../../command-line/flowdrop/show.ts';
import { agoText, duration } from '../../functions/base/duration.ts';
import { failedKey, waitingKey } from '../../functions/ledger/keys.ts';
import { INBOX_BUCKET, LEDGER_BUCKET } from '../../local/pipeline.ts';
import { explain, explainFile } from '../../operations/explain.ts';
import { holdsOf } from '../../operations/holds.ts';
import { list } from '../../operations/list.ts';
import { pipelineStatus, waitingStatus } from '../../operations/status.ts';
import type { UploadView } from '../../operations/upload-view.ts';
import { issuesOf } from '../support/json-schema.ts';
import { PATIENCE } from '../support/patience.ts';
import { deployedAs, Operated, signal } from './support.ts';

let operated: Operated;
beforeAll(async () => {
  operated = await Operated.start();
  await operated.put('good/robot.png', 'succeeded');
  operated.refuse(422);
  await operated.put('bad/first.png', 'failed');
  await operated.put('bad/second.png', 'failed');
  operated.refuse(401);
  await operated.put('slow/later.png', 'waiting');
});
afterAll(() => operated[Symbol.asyncDispose]());

describe('status', () => {
  it('counts what waits and what failed, and tells of the last tick', async () => {
    // While the waiting upload is tried again, it does not wait. The first tick may be still at work.
    const { code, output } = await vi.waitFor(async () => {
      const said = await operated.run('status');
      expect(said.output).toMatch(/waiting +1 {2}\(1 unauthorised\)/);
      expect(said.output).toMatch(/last tick +completed (just now|\d+ s ago)/);
      return said;
    }, PATIENCE);
    expect(code).toBe(0);
    expect(output).toMatch(/^operated: the local run\n/);
    expect(output).toMatch(/failed +2 {2}\(in the last 24 hours\)/);
    expect(output).toMatch(/running +0/);
    expect(output).toContain('npm run -s flowdrop -- list --failed');
  });

  it('counts no file as failed that gave way to a newer one', async () => {
    const counted = async () => (await pipelineStatus(operated.deployment, signal)).failed.count;
    const before = await counted();
    const marked = (id: string, isReplaced?: true) => {
      const Key = failedKey({ endedAt: Date.now(), uploadId: id.repeat(40), isReplaced });
      onTestFinished(async () => {
        await operated.pipeline.s3.send(new DeleteObjectCommand({ Bucket: LEDGER_BUCKET, Key }));
      });
      return operated.pipeline.s3.send(new PutObjectCommand({ Bucket: LEDGER_BUCKET, Key }));
    };
    await marked('a', true);
    expect(await counted()).toBe(before);
    await marked('b');
    expect(await counted()).toBe(before + 1);
  });

  it('says so if it has not read the reasons of all that wait', async () => {
    const waiting = await vi.waitFor(async () => {
      const found = await waitingStatus(operated.deployment, signal, { readMax: 0, holds: { holds: [], budgets: [] } });
      expect(found).toMatchObject({ count: 1, read: 0, isSample: true, reasons: {} });
      return found;
    }, PATIENCE);
    const state = { ...(await pipelineStatus(operated.deployment, signal)), waiting };
    expect(showPipeline(state, operated.deployment).join('\n')).toMatch(
      /waiting +1\n +the reasons are of 0 of them\. All: npm run -s flowdrop -- list --waiting/,
    );
  });

  it('counts no markers of what has ended as waiting, however many there are', async () => {
    const { id: ended } = await operated.becomes('good/robot.png', 'succeeded');
    const { id: waits } = await operated.becomes('slow/later.png', 'waiting');
    const notBefore = Date.now() + 7_200_000;
    const ids = [ended, ...Array.from({ length: 300 }, (_, at) => at.toString(16).padStart(40, '0'))];
    const markers = ids.map((uploadId) => waitingKey({ uploadId, notBefore }));
    for (const Key of markers) {
      await operated.pipeline.s3.send(new PutObjectCommand({ Bucket: LEDGER_BUCKET, Key, Body: '' }));
    }
    try {
      const { waiting } = await pipelineStatus(operated.deployment, signal);
      expect(waiting).toMatchObject({ count: 1, read: 1, isSample: false, reasons: { unauthorised: 1 } });
      expect(await operated.becomes('slow/later.png', 'waiting')).toMatchObject({ id: waits });
    } finally {
      for (const Key of markers) {
        await operated.pipeline.s3.send(new DeleteObjectCommand({ Bucket: LEDGER_BUCKET, Key }));
      }
    }
  });

  it('tells the life of a file that succeeded', async () => {
    const { code, output } = await operated.run('status', 'good/robot.png');
    expect(code).toBe(0);
    expect(output).toMatch(/^good\/robot\.png: succeeded\n/);
    expect(output).toMatch(/put into the inbox: 25 B, image\/png/);
    expect(output).toMatch(/flow \S+ of bytes_echo began/);
    expect(output).toMatch(/succeeded, with 1 result\n/);
    expect(output).toContain('receipt: s3://results/good/robot.png/receipt.json');
  });

  it('tells why a file failed, what to do, and which command does it; by its id too', async () => {
    const { code, output } = await operated.run('status', 'bad/first.png');
    expect(code).toBe(1);
    expect(output).toContain('failed: rejected');
    expect(output).toContain('422');
    expect(output).toContain("Read the service's words in the message.");
    expect(output).toContain('npm run -s flowdrop -- retry bad/first.png');

    const { id } = await operated.becomes('bad/first.png', 'failed');
    const byId = JSON.parse((await operated.run('status', id, '--json')).output);
    expect(byId).toMatchObject({ key: 'bad/first.png', state: 'failed', upload: { failure: { code: 'rejected' } } });
  });

  it('tells why a file waits, and until when', async () => {
    await operated.becomes('slow/later.png', 'waiting');
    const { output } = await operated.run('status', 'slow/later.png');
    expect(output).toMatch(
      / {2}waits \(unauthorised\) since \d\d:\d\d:\d\d UTC {2}\((just now|\d+ s ago)\): create: 401/,
    );
    expect(output).toMatch(/ {2}next try: \d\d:\d\d:\d\d UTC {2}\(in \d+ (s|min)\)\n/);
    expect(output).toContain('Set FLOWDROP_TOKEN to a valid token');
  });

  it('counts the files below a prefix', async () => {
    const { code, output } = await operated.run('status', 'bad/');
    expect(code).toBe(0);
    expect(output).toMatch(/^2 uploads below "bad\/": 2 failed\n/);
    expect(output).toMatch(/bad\/second\.png +failed +rejected/);
    const none = 'No upload has a key that begins with "nothing/".\n';
    expect(await operated.run('status', 'nothing/')).toMatchObject({ code: 1, output: none });
  });

  it('says that no route wants a file', async () => {
    await operated.upload('unwanted.zip', 'x');
    const { output } = await operated.run('status', 'unwanted.zip');
    expect(output).toContain('No route wants it');
  });

  it('finds a file that was deleted from the inbox by its receipt', async () => {
    await operated.pipeline.s3.send(new DeleteObjectCommand({ Bucket: INBOX_BUCKET, Key: 'good/robot.png' }));
    const { output } = await operated.run('status', 'good/robot.png');
    expect(output).toMatch(/^good\/robot\.png: succeeded\n/);
    expect(output).toContain('It is not the current version of its key');
  });

  it('goes on although an entry cannot be read', async () => {
    const { id } = await operated.becomes('bad/second.png', 'failed');
    const Key = `uploads/${id}.json`;
    await operated.pipeline.s3.send(new PutObjectCommand({ Bucket: LEDGER_BUCKET, Key, Body: Buffer.from('{') }));
    const { code, output } = await operated.run('status', 'bad/second.png');
    expect(code).toBe(1);
    expect(output).toContain('The entry cannot be read');
    expect((await operated.run('status', 'bad/')).output).toContain('1 failed, 1 unreadable');
    expect((await operated.run('list', '--failed')).output).toContain(`The entry of upload ${id} cannot be read`);
  });
});

it.each([
  [-1, 'less than a second', 'just now'],
  [400, 'less than a second', 'just now'],
  [1_000, '1 s'],
  [59_999, '59 s'],
  [60_000, '1 min'],
  [3_599_999, '59 min'],
  [3_600_000, '1 h'],
  [86_400_000, '1 d'],
  [90_000_000, '1 d 1 h'],
])('an age of %d ms is %s, and never 0 of a unit', (ms, words, ago = `${words} ago`) => {
  expect(duration(ms)).toBe(words);
  expect(agoText(ms)).toBe(ago);
});

it('a time to come is told as such, unless it is now', () => {
  expect([-999, -1_000, -180_000].map(agoText)).toEqual(['just now', 'in 1 s', 'in 3 min']);
});

describe('what is told of an upload under way', () => {
  const foundAs = (upload: UploadView) =>
    ({ kind: 'upload', id: upload.id, key: upload.key, state: upload.state, upload, isCurrent: true }) as const;
  const shown = (more: Partial<UploadView>): readonly [status: string, listed: string] => {
    const view = { ...(failure as UploadView), ...more, failure: undefined, endedAt: undefined };
    const listed = { uploads: [view], isCut: false, unreadable: [], replaced: [] };
    return [
      showUpload(foundAs(view), operated.deployment).join('\n'),
      String(showList(listed, { state: 'any' }, operated.deployment)[1]),
    ];
  };
  let failure: UploadView | undefined;
  beforeAll(async () => {
    [failure] = (await list({ state: 'failed' }, operated.deployment, signal)).uploads;
  });
  const since = '2026-01-01T10:00:00.000Z';

  it('is that an answer was lost, and the request was sent again with the same key', async () => {
    const [made] = (await list({ state: 'any' }, operated.deployment, signal)).uploads.filter(({ flow }) => flow);
    const view = { ...(made as UploadView), isSentAgain: true };
    expect(showUpload(foundAs(view), operated.deployment).join('\n')).toContain(
      `sent again with the same key: flow ${view.flow?.id}, made once`,
    );
  });

  it('is what keeps its results from being stored', () => {
    const flow = { id: 'flow-1', createdAt: since };
    const [status, listed] = shown({ state: 'running', flow, obstacle: { message: 'asset: 500: Down', since } });
    expect(status).toMatch(
      / {2}its results are not stored yet, since .*: asset: 500: Down\n {2}it is tried again by itself\n/,
    );
    expect(listed).toMatch(/ {2}results not stored yet: asset: 500: Down$/);
  });

  it('is until when the service asks to wait, as long as that has not come', () => {
    const wait = { reason: 'throttled', message: 'create: 429', since, ending: 'nothing', before: [] } as const;
    // Less than an hour, also on a machine that is fast.
    const soon = new Date(Date.now() + 3_595_000).toISOString();
    const [status, listed] = shown({ state: 'claimed', wait: { ...wait, askedUntil: soon } });
    expect(status).toMatch(/the service asks to wait until .* \(in 5\d min\)/);
    expect(status).not.toContain('every few seconds');
    expect(listed).toMatch(/the service asks to wait until .*: create: 429$/);
    const [later, listedLater] = shown({ state: 'claimed', wait: { ...wait, askedUntil: since } });
    expect(later).toContain('next try: every few seconds');
    expect(later + listedLater).not.toContain('asks to wait');
  });
});

describe('an upload that gave way to a newer file', () => {
  const replaced = async (): Promise<UploadView> => {
    const { uploads } = await list({ state: 'failed' }, operated.deployment, signal);
    const message = 'in/a.png was replaced.';
    const failure = { code: 'superseded', message, advice: 'Nothing: it has its own flow.', canRetryHelp: false };
    return { ...(uploads[0] as UploadView), failure };
  };

  it('is shown as replaced, and no advice tells to retry it', async () => {
    const upload = await replaced();
    const one = { kind: 'upload', id: upload.id, key: upload.key, state: 'failed', upload, isCurrent: false } as const;
    const lines = showUpload(one, operated.deployment).join('\n');
    expect(lines).toMatch(/: replaced\n/);
    expect(lines).toContain('replaced: superseded');
    expect(lines).not.toMatch(/failed|retry/i);
    const listed = { uploads: [upload], isCut: false, unreadable: [], replaced: [] };
    expect(showList(listed, { state: 'any' }, operated.deployment)[1]).toMatch(/ {2}replaced {2}/);
    const below = { kind: 'prefix', prefix: '', counts: { failed: 1 }, uploads: [one], isCut: false } as const;
    expect(showPrefix(below, operated.deployment)[0]).toBe('1 upload below "": 1 replaced');
  });
});

describe('list', () => {
  it('names an upload of a later stage as everything else does', async () => {
    const { uploads } = await list({ state: 'failed' }, operated.deployment, signal);
    const stages = uploads.map((view) => ({ ...view, key: `robot.png/chain/${view.route}/${view.id}` }));
    const listed = { uploads: stages, isCut: false, unreadable: [], replaced: [] };
    const [, line] = showList(listed, { state: 'failed' }, operated.deployment);
    expect(line).toMatch(/^robot\.png › pictures {2}/);
  });

  it('fits the terminal, and a program gets all of each reason', async () => {
    const { uploads } = await list({ state: 'failed' }, operated.deployment, signal);
    const [view] = uploads;
    if (view?.failure === undefined) throw new Error('Nothing failed');
    const message = `The service says ${'a long story '.repeat(20)}to its end`;
    const told = { ...view, key: 'a-folder/with-a-long-name/'.repeat(3), failure: { ...view.failure, message } };
    const listed = { uploads: [told, view], isCut: false, unreadable: [], replaced: [] };
    const linesIn = (columns?: number) =>
      showList(listed, { state: 'failed' }, operated.deployment, columns).slice(0, 3).map(String);
    expect(linesIn().join('\n')).toContain(`${told.key}  `);
    expect(linesIn().join('\n')).toContain(message);
    for (const columns of [72, 100, 140]) {
      const lines = linesIn(columns);
      expect(
        lines.map((line) => line.length <= columns),
        lines.join('\n'),
      ).toEqual([true, true, true]);
      expect(lines[1]).toMatch(/^a-folder\/.*…? {2}pictures {2}.* {2}rejected: .*…$/);
    }
  });

  it('shows the failures newest first, with the reason', async () => {
    const { code, output } = await operated.run('list', '--failed');
    expect(code).toBe(0);
    expect(output.split('\n')[0]).toMatch(/^KEY +ROUTE +FAILED +WHY$/);
    expect(output).toMatch(/bad\/first\.png +pictures +\S+ UTC +rejected/);
  });

  it.each([
    [['--code', 'rejected'], 1],
    [['--code', 'timed-out'], 0],
    [['--route', 'pictures'], 1],
    [['--route', 'texts'], 0],
    [['--since', '1h'], 1],
    [['--since', '0m'], 0],
  ])('filters: %s', async (words, count) => {
    const { output } = await operated.run('list', '--failed', '--json', ...words);
    expect(JSON.parse(output).uploads).toHaveLength(count);
  });

  it('shows what waits, and what is undecided', async () => {
    await operated.becomes('slow/later.png', 'waiting');
    expect((await operated.run('list', '--waiting')).output).toMatch(/slow\/later\.png +pictures .*next try \S+ UTC: /);
    expect((await operated.run('list', '--undecided')).output).toBe('No file waits for your decision.\n');
  });

  it('shows the newest files of every state', async () => {
    const { output } = await operated.run('list');
    const [head, ...rows] = output.split('\n');
    expect(head).toMatch(/^KEY +STATE +WHEN +WHY$/);
    expect(rows.join('\n')).toMatch(/bad\/first\.png +failed +\S+ UTC +rejected/);
    expect(rows.join('\n')).toMatch(/good\/robot\.png +succeeded +\S+ UTC +1 result/);
    const coded = JSON.parse((await operated.run('list', '--code', 'unauthorised', '--json')).output);
    expect(coded.uploads.map(({ key }: { key: string }) => key)).toEqual(['slow/later.png']);
  });

  it.each([
    [['--failed', '--undecided'], 'exclude each other'],
    [['--failed', '--since', 'yesterday'], '2026-01-31'],
    [['--code', 'nonsense'], 'There is no such code. The codes: rejected,'],
    [['--failed', '--code', 'rejekted'], 'Did you mean rejected?'],
  ])('says what is wrong: %s', async (words, why) => {
    expect(await operated.run('list', ...words)).toMatchObject({ code: 2, errors: expect.stringContaining(why) });
  });
});

describe('explain', () => {
  it('names the route that takes a file, and why the others do not', async () => {
    const { code, output } = await operated.run('explain', 'slow/later.png');
    expect(code).toBe(0);
    expect(output).toContain('route pictures: takes it, as input of the template bytes_echo');
    expect(output).toContain('route texts: its key does not end with .txt');
    expect(output).toContain('"data": "data:image/png;base64,Y29udGVudCBvZiBzbG93L2xhdGVyLnBuZw=="');
    expect(output).toContain('"pipeline": "operated"');
  });

  it('shortens the data of a large file, and of a large text', async () => {
    await operated.upload('large.png', 'x'.repeat(1_000_000));
    await operated.upload('large.txt', 'ä'.repeat(10_000));
    expect((await operated.run('explain', 'large.png')).output).toContain('… (1000000 bytes in all)');
    const { output } = await operated.run('explain', 'large.txt', '--json');
    expect(JSON.parse(output).request.inputs[0].data).toBe(`${'ä'.repeat(24)}… (20000 bytes in all)`);
  });

  it('takes the overrides of an object where its route allows them', async () => {
    await operated.upload('own.txt', 'x', { Metadata: { 'flow-template': 'another' } });
    const { request } = JSON.parse((await operated.run('explain', 'own.txt', '--json')).output);
    expect(request.template).toBe('another');
  });

  it('explains a file that a local run skipped, by its key', async () => {
    const { deployment, directory } = operated;
    await mkdir(join(directory, 'inbox', 'tables'), { recursive: true });
    await writeFile(join(directory, 'inbox', 'tables', 'prices.csv'), 'a;b');
    const settings = { ...deployment.settings, localInbox: join(directory, 'inbox') };
    const key = 'tables/prices.csv';
    const explained = await explain({ path: join(directory, key), key }, { ...deployment, settings }, signal);
    expect(explained).toMatchObject({ key, bytes: 3, issue: 'No route wants it, so nothing is sent.' });
  });

  it('says of a skipped file the same as status', async () => {
    await operated.upload('__MACOSX/robot.png', 'x');
    const why = 'Its name fits "__MACOSX/" of settings.skippedNames';
    for (const command of ['explain', 'status']) {
      expect((await operated.run(command, '__MACOSX/robot.png')).output).toContain(why);
    }
  });

  it('says of a job file that no route takes why, and not that it is an input', async () => {
    const { deployment, directory } = operated;
    const folder = join(directory, '__MACOSX');
    await mkdir(folder);
    await writeFile(join(folder, 'job.json'), '{}');
    const jobs = { name: 'jobs', template: 'text', input: 'text', jobs: '__MACOSX/' } as const;
    const explained = await explainFile(join(folder, 'job.json'), { ...deployment.settings, routes: [jobs] });
    expect(explained?.issue).toContain('fits "__MACOSX/"');
  });

  it.each([
    ['my%20photos/a.png', { prefixes: ['My photos/'] }, 'begin with My photos/, because the key is percent-encoded'],
    ['my photos/a.png', { prefixes: ['my%20photos/'] }, 'begin with my%20photos/, because that is percent-encoded'],
    ['my+photos/a.png', { prefixes: ['my photos/'] }, 'begin with my photos/\n'],
    ['a%20b.png', { suffixes: [' b.png'] }, 'end with  b.png, because the key is percent-encoded'],
    ['orders%2F7/job.json', { jobs: 'orders/' }, 'is for jobs below orders/, because the key is percent-encoded'],
  ])('says that %s does not match %o only because of how it is written', async (key, conditions, said) => {
    await operated.upload(key, 'x');
    const { deployment } = operated;
    const route = { name: 'meant', template: 'text', input: 'text', ...conditions } as const;
    const settings = { ...deployment.settings, routes: [route] };
    const explanation = await explain({ path: 'no such file', key }, { ...deployment, settings }, signal);
    expect(`${showExplanation(explanation).join('\n')}\n`).toContain(said);
  });

  it('says why nothing is sent', async () => {
    await operated.upload('empty.png', '');
    expect((await operated.run('explain', 'empty.png')).output).toContain('The file is empty.');
  });
});

describe('templates', () => {
  it('lists what the service offers', async () => {
    const { code, output } = await operated.run('templates');
    expect(code).toBe(0);
    expect(output).toContain(
      'model_generate_fromimage\n  Makes a model from a picture.\n  takes image/png, image/jpeg',
    );
  });

  it('says why the service does not list them', async () => {
    const { standIn } = operated;
    const before = standIn.intercept;
    standIn.intercept = (_, { operation }) => (operation === 'listTemplates' ? { status: 401 } : undefined);
    const { code, errors } = await operated.run('templates');
    standIn.intercept = before;
    expect(code).toBe(1);
    expect(errors).toContain('401');
  });
});

describe('a deployed stack', () => {
  it('is reached by its outputs, with signed requests', async () => {
    await using stack = await deployedAs('flowdrop-test', operated.pipeline);
    const deployment = await stack.connect();
    expect(deployment).toMatchObject({ name: 'stack flowdrop-test in us-east-1', isLocal: false });
    expect(deployment.settings).toMatchObject({ pipeline: 'operated', inboxBucket: 'inbox' });
    expect(await deployment.queueDepth(signal)).toHaveProperty('visible');
    expect(await holdsOf(deployment, signal)).toEqual({ holds: [], budgets: [] });
    expect(stack.asked).toEqual([
      expect.stringMatching(/^AWS4-HMAC-SHA256 Action=DescribeStacks.*StackName=flowdrop-test$/),
    ]);
    deployment.close();
  });

  it('that is not there, or is no pipeline, is said so', async () => {
    await using stack = await deployedAs('other', operated.pipeline, { Website: 'https://example.com' });
    await expect(stack.connect()).rejects.toThrow(/has no output CollectFunction \(its outputs: Website\)/);
    await using empty = await deployedAs('empty', operated.pipeline, {});
    await expect(empty.connect()).rejects.toThrow(/its outputs: none at all/);
    await expect(stack.connect('gone')).rejects.toThrow(/Stack with id gone does not exist/);
  });
});

describe('an entry that another version wrote', () => {
  it('is named by status, with what to do', async () => {
    const { pipeline } = operated;
    const { id } = await operated.becomes('slow/later.png', 'waiting');
    const where = { Bucket: LEDGER_BUCKET, Key: `uploads/${id}.json` };
    const text = (await (await pipeline.s3.send(new GetObjectCommand(where))).Body?.transformToString()) ?? '';
    const put = (Body: string) => pipeline.s3.send(new PutObjectCommand({ ...where, Body: Buffer.from(Body) }));
    await put(JSON.stringify({ ...JSON.parse(text), schema: 5 }));
    onTestFinished(async () => void (await put(text)));
    const words = `uploads/${id}.json has format 5 of the ledger: an older version of Flowdrop wrote it. This version reads format 6, and leaves the object as it is. Deploy that version until its uploads have ended. Then begin this one with an empty ledger. Until then, its upload does not go on.`;
    expect((await operated.run('status', id)).output).toContain(`unreadable\n  ${words}\n`);
    expect((await operated.run('status')).output).toContain(`  ledger            ${words}\n`);
    expect(issuesOf('status', JSON.parse((await operated.run('status', '--json')).output))).toBe('');
  });
});
