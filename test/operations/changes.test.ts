import { readdir, readFile, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { DeleteObjectCommand, ListObjectVersionsCommand, PutObjectCommand } from '@aws-sdk/client-s3';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { retryCommand } from '../../functions/publish/retry-command.ts';
import { INBOX_BUCKET, LEDGER_BUCKET, RESULTS_BUCKET } from '../../local/pipeline.ts';
import { list } from '../../operations/list.ts';
import { Operated, runFlowdrop, signal } from './support.ts';

const HOUR_MS = 3_600_000;

/** The keys of all versions, delete markers included. */
async function keys({ pipeline }: Operated, Bucket: string): Promise<readonly string[]> {
  const { Versions = [], DeleteMarkers = [] } = await pipeline.s3.send(new ListObjectVersionsCommand({ Bucket }));
  return [...Versions, ...DeleteMarkers].map(({ Key = '' }) => Key);
}

const flows = ({ pipeline }: Operated): number => pipeline.standIn?.flows.length ?? 0;

describe('retry', () => {
  it('does what the command in a receipt says, by the name of the function alone', async () => {
    const operated = await Operated.forTest();
    await operated.putRefused('bad.png');
    const { id } = await operated.becomes('bad.png', 'failed');
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
    const command = retryCommand({ collectFunction, inboxPrefix: '' }, { id, key: 'bad.png' }) ?? '';
    const [program, ...words] = command.split(' ');
    expect(program).toBe('flowdrop');
    const ran = await runFlowdrop([...words, '--yes', '--wait'], { directory: tmpdir() });
    expect(ran).toMatchObject({ code: 0, output: 'bad.png  succeeded, with 1 result\n' });
    const both = await runFlowdrop([...words, '--stack', 'any'], { directory: tmpdir() });
    expect(both).toMatchObject({ code: 2, errors: expect.stringContaining('exclude each other') });
    const status = await runFlowdrop(['status', '--function', collectFunction], { directory: tmpdir() });
    expect(status.output).toMatch(/^operated: function collect-outputs in us-east-1\n/);
    expect(status.output).not.toMatch(/dead letters|new flows/);
  });

  it('of all failures with a code says how many, and does nothing without an answer', async () => {
    const operated = await Operated.forTest();
    await operated.putRefused('one.png', 'two.png');
    await operated.put('empty.png', 'failed', '');
    const words = ['retry', '--failed', '--code', 'rejected'];

    const unasked = await operated.run(...words);
    expect(unasked).toMatchObject({
      code: 2,
      errors: expect.stringContaining('2 files would be sent again. Each may be paid for.'),
    });
    expect((await operated.runAnswering('n', ...words)).errors).toContain('Nothing was done.');
    expect(flows(operated)).toBe(0);

    expect(await operated.runAnswering('y', ...words)).toMatchObject({ code: 0 });
    await operated.becomes('one.png', 'succeeded');
    await operated.becomes('two.png', 'succeeded');
    expect(await operated.becomes('empty.png', 'failed')).toMatchObject({ view: { generation: 1 } });
    expect((await list({ state: 'failed' }, operated.deployment, signal)).uploads).toHaveLength(1);
  });

  it('of all failures skips replaced and cancelled files, and those that it cannot help', async () => {
    const operated = await Operated.forTest();
    operated.refuse(422);
    await operated.put('mended.png', 'failed', 'bad content');
    const { id } = await operated.put('stays.png', 'failed');
    await operated.put('empty.png', 'failed', '');
    operated.refuse(401);
    await operated.put('unwanted.png', 'waiting');
    await operated.run('cancel', 'unwanted.png', '--yes');
    await operated.becomes('unwanted.png', 'failed');
    operated.refuse(undefined);
    await operated.put('mended.png', 'succeeded', 'good content');
    const paid = flows(operated);

    expect((await operated.run('list', '--failed')).output).toMatch(
      /mended\.png .* {2}\(replaced by another upload\) rejected: \S.*\n/,
    );
    const { errors, output } = await operated.run('retry', '--failed', '--yes', '--wait');
    expect(errors).toContain('1 file skipped, such as mended.png: another upload of the same key has replaced it\n');
    expect(errors).toContain('1 file skipped, such as empty.png: a retry of the same upload cannot help\n');
    expect(errors).toContain('1 file skipped, such as unwanted.png: it was cancelled\n');
    expect(output).toBe('stays.png  succeeded, with 1 result\n');
    expect(flows(operated)).toBe(paid + 1);
    expect((await operated.run('status', id)).output).toContain('stays.png: succeeded');

    const named = await operated.run('retry', 'empty.png', '--yes', '--wait');
    expect(named).toMatchObject({
      code: 1,
      errors: expect.stringContaining('empty.png: a retry of the same upload cannot help\n'),
    });
    const cancelled = await operated.run('retry', '--failed', '--code', 'cancelled', '--yes', '--wait');
    expect(cancelled.output).toBe('unwanted.png  succeeded, with 1 result\n');
  });

  it('of failures by an override is tried with other parameters, which take its place', async () => {
    const routes = [{ name: 'texts', input: 'file', template: 'bytes_echo', overrides: true }] as const;
    const operated = await Operated.forTest({ routes });
    await operated.upload('a.txt', 'a', { Metadata: { 'flow-parameters': 'no JSON' } });
    await operated.becomes('a.txt', 'failed');
    const words = ['retry', '--failed', '--code', 'invalid-override', '--yes', '--wait'];
    expect(await operated.run(...words)).toMatchObject({ code: 0, output: 'There is nothing to do.\n' });
    const { output, errors } = await operated.run(...words, '--parameters', '{}');
    expect({ output, errors }).toEqual({ output: expect.stringMatching(/^a\.txt {2}succeeded/), errors: '' });
  });

  it('is answered for although it is not known whether new flows are paused', async () => {
    const operated = await Operated.forTest();
    await operated.putRefused('bad.png');
    // The mapping that the run names is gone.
    const file = join(operated.directory, '.flowdrop', 'run.json');
    await writeFile(file, (await readFile(file, 'utf8')).replace(/("uploadMapping":\s*)"[^"]*"/, '$1"gone"'));
    const { code, output } = await operated.run('retry', 'bad.png', '--yes');
    expect({ code, output }).toEqual({ code: 0, output: 'bad.png  resubmitted\n' });
  });

  it('takes other parameters for failed files where the route allows it, and says what it leaves', async () => {
    const routes = [
      { name: 'texts', input: 'file', template: 'bytes_echo', suffixes: ['.txt'], overrides: true },
      { name: 'pictures', input: 'file', template: 'bytes_echo' },
    ] as const;
    const operated = await Operated.forTest({ routes });
    await operated.putRefused('bad.txt', 'bad.png');
    const words = ['retry', 'bad.txt', 'bad.png', '--parameters', '{"copies":2}'];
    const unasked = await operated.run(...words);
    expect(unasked.errors).toContain('bad.png: nothing is done: its route does not allow other parameters\n');
    expect(unasked.errors).toContain('1 file would be sent again, with other parameters. Each may be paid for.');
    const { code, output } = await operated.run(...words, '--yes', '--wait');
    expect({ code, output }).toEqual({ code: 1, output: 'bad.txt  succeeded, with 2 results\n' });
    const { view } = await operated.becomes('bad.txt', 'succeeded');
    expect(view).toMatchObject({ generation: 2, parameters: { copies: 2 } });
    const all = await operated.run('retry', '--failed', '--parameters', 'null', '--yes');
    expect(all).toMatchObject({ code: 1, output: 'There is nothing to do.\n' });
    expect(await operated.run('retry', 'bad.png', '--parameters', 'no JSON')).toMatchObject({ code: 2 });

    operated.refuse(401);
    await operated.put('waits.txt', 'waiting');
    expect((await operated.run('retry', 'waits.txt', '--parameters', '{}', '--yes')).errors).toBe(
      'waits.txt: nothing is done: it waits, and a flow of it may exist with its present parameters: cancel it first\n',
    );
  });

  it('asks for what it needs', async () => {
    const operated = await Operated.forTest();
    expect(await operated.run('retry')).toMatchObject({
      code: 2,
      errors: expect.stringMatching(/^Name files, or add --failed for all that failed\./),
    });
    expect(await operated.run('retry', 'a', '--failed')).toMatchObject({ code: 2 });
    expect(await operated.run('retry', 'a', '--code', 'rejected')).toMatchObject({ code: 2 });
  });
});

describe('cancel', () => {
  it('ends a running file and stops its flow', async () => {
    const operated = await Operated.forTest({ standIn: { flowMs: HOUR_MS } });
    await operated.put('long.png', 'running');
    const { code, output } = await operated.run('cancel', 'long.png', '--yes');
    expect({ code, output }).toEqual({ code: 0, output: 'long.png  cancelled, the service stops its flow\n' });
    expect(await operated.becomes('long.png', 'failed')).toMatchObject({ view: { failure: { code: 'cancelled' } } });
    expect(operated.pipeline.standIn?.flows).toMatchObject([{ state: expect.stringMatching(/^abort/) }]);
  });
});

describe('a file with a hostile name', () => {
  const KEY = 'y\u001b[201~\u0003\ntouch pwned\n\u009b\u202e\u2028.png';

  it('is named by its id in the commands that are printed, and escaped in JSON', async () => {
    const operated = await Operated.forTest();
    const { id } = await operated.put(KEY, 'succeeded');
    const { output } = await operated.run('status', KEY);
    expect(output).toContain(`Fetch it: flowdrop get ${id}\n`);
    const json = (await operated.run('status', KEY, '--json')).output;
    expect(json).not.toMatch(/(?!\n)[\p{Cc}\p{Bidi_Control}\p{Zl}]/u);
    expect(JSON.parse(json)).toMatchObject({ key: KEY });
    const fetched = await operated.run('get', id, '--to', join(operated.directory, 'to'));
    expect(fetched.code).toBe(0);
    expect(await readdir(join(operated.directory, 'to'))).toEqual([
      'y%1B[201~%03%0Atouch pwned%0A%C2%9B%E2%80%AE%E2%80%A8.png',
    ]);
  });

  it('is no option if its name looks like one', async () => {
    const operated = await Operated.forTest();
    await operated.upload('--failed', 'x', { ContentType: 'image/png' });
    await operated.becomes('--failed', 'succeeded');
    const { output } = await operated.run('status', '--', '--failed');
    expect(output).toContain('Fetch it: flowdrop get -- --failed\n');
    expect(await operated.run('get', '--to', join(operated.directory, 'to'), '--', '--failed')).toMatchObject({
      code: 0,
    });
  });

  it('is not fetched by the id of an upload that another one has replaced', async () => {
    const operated = await Operated.forTest();
    const first = await operated.put('a.png', 'succeeded', 'one');
    const second = await operated.put('a.png', 'succeeded', 'other');
    expect(second.id).not.toBe(first.id);
    const { code, output } = await operated.run('get', first.id, '--to', join(operated.directory, 'to'));
    expect({ code, output }).toEqual({
      code: 1,
      output: expect.stringContaining(`another upload at the same key: ${second.id}`),
    });
  });
});

describe('collect', () => {
  it('fetches a deleted result again, without a new flow', async () => {
    const operated = await Operated.forTest();
    const { view } = await operated.put('good.png', 'succeeded');
    const Key = view?.assets[0]?.key ?? '';
    await operated.pipeline.s3.send(new DeleteObjectCommand({ Bucket: RESULTS_BUCKET, Key }));
    expect((await operated.run('get', 'good.png')).output).toContain('flowdrop collect fetches it again');
    expect(await operated.run('collect', 'good.png', '--wait')).toMatchObject({ code: 0 });
    expect(await keys(operated, RESULTS_BUCKET)).toContain(Key);
    expect(flows(operated)).toBe(1);
  });
});

describe('put and get', () => {
  it('upload the files of a folder, wait for them, and fetch what was made', async () => {
    const operated = await Operated.forTest();
    await writeFile(join(operated.directory, 'a.png'), 'a picture');
    await writeFile(join(operated.directory, 'b.txt'), 'a text');
    await writeFile(join(operated.directory, 'c.zip'), 'nothing that a route takes');
    const put = await operated.run('put', 'a.png', 'b.txt', 'c.zip', '--wait', '--yes');
    expect(put.output).toBe('a.png  succeeded, with 1 result\nb.txt  succeeded, with 1 result\n');
    expect(put).toMatchObject({
      code: 1,
      errors: expect.stringContaining('c.zip: not uploaded, because no route takes it\n'),
    });

    const got = await operated.run('get', 'a.png', '--to', 'copies');
    expect(got.code).toBe(0);
    const files = await readdir(join(operated.directory, 'copies'), { recursive: true, withFileTypes: true });
    const picture = files.find((file) => file.isFile() && file.name.endsWith('.png'));
    expect(await readFile(join(picture?.parentPath ?? '', picture?.name ?? ''), 'utf8')).toBe('a picture');
    expect(files.map(({ name }) => name)).toContain('receipt.json');
  });

  it('asks before it pays', async () => {
    const operated = await Operated.forTest();
    await writeFile(join(operated.directory, 'a.png'), 'a picture');
    expect(await operated.run('put', 'a.png')).toMatchObject({
      code: 2,
      errors: expect.stringContaining('1 file would be uploaded, and paid for.'),
    });
    expect(await keys(operated, INBOX_BUCKET)).toEqual([]);
  });

  it('takes other parameters only where the route allows it', async () => {
    const operated = await Operated.forTest();
    await writeFile(join(operated.directory, 'a.png'), 'a picture');
    await writeFile(join(operated.directory, 'b.txt'), 'a text');
    expect(await operated.run('put', 'a.png', '--parameters', '{}', '--yes')).toMatchObject({
      code: 2,
      errors: expect.stringContaining('does not allow'),
    });
    expect(await operated.run('put', 'b.txt', '--parameters', 'no JSON', '--yes')).toMatchObject({ code: 2 });
    const other = ['--template', 'bytes_echo', '--parameters', '{"copies":2}'];
    expect(await operated.run('put', 'b.txt', ...other, '--yes', '--wait')).toMatchObject({ code: 0 });
    expect(await operated.becomes('b.txt', 'succeeded')).toMatchObject({
      view: { template: 'bytes_echo', parameters: { copies: 2 } },
    });
  });

  it('keeps no result that is not the one of the receipt', async () => {
    const operated = await Operated.forTest();
    const { view } = await operated.put('good.png', 'succeeded');
    const Key = view?.assets[0]?.key ?? '';
    await operated.pipeline.s3.send(
      new PutObjectCommand({ Bucket: RESULTS_BUCKET, Key, Body: Buffer.from('other bytes') }),
    );
    const { code, output } = await operated.run('get', 'good.png', '--to', 'copies');
    expect(code).toBe(1);
    expect(output).toContain('its size or its SHA-256 differs');
    const files = await readdir(join(operated.directory, 'copies'), { recursive: true });
    expect(files.filter((name) => name.endsWith('.png'))).toEqual(['good.png']);
  });

  it('says so if there is no receipt', async () => {
    const operated = await Operated.forTest();
    expect(await operated.run('get', 'nothing.png')).toMatchObject({
      code: 1,
      output: 'There is no receipt of such a file.\n',
    });
  });
});

describe('forget', () => {
  it('deletes every trace of one file, and nothing of another', async () => {
    const operated = await Operated.forTest();
    await operated.put('a.png', 'succeeded');
    await operated.put('a.png.png', 'succeeded');
    const { id } = await operated.becomes('a.png', 'succeeded');
    const { code, output } = await operated.run('forget', 'a.png', '--yes');
    expect(code).toBe(0);
    expect(output).toMatch(
      /^a\.png: the upload, 2 objects of its results, 1 record deleted\.\nThe flow \S+ stays at the service\./,
    );
    expect(await keys(operated, INBOX_BUCKET)).toEqual(['a.png.png']);
    expect((await keys(operated, RESULTS_BUCKET)).filter((key) => key.startsWith('a.png/'))).toEqual([]);
    expect((await keys(operated, LEDGER_BUCKET)).filter((key) => key.includes(id))).toEqual([]);
    await operated.becomes('a.png.png', 'succeeded');
    expect(await operated.run('forget', 'a.png', '--yes')).toMatchObject({
      code: 1,
      errors: 'There is no upload a.png.\n',
    });
  });

  it('deletes the marker of a failure too', async () => {
    const operated = await Operated.forTest();
    await operated.put('empty.png', 'failed', '');
    expect(await operated.run('forget', 'empty.png', '--yes')).toMatchObject({ code: 0 });
    expect((await keys(operated, LEDGER_BUCKET)).filter((key) => !key.startsWith('state/'))).toEqual([]);
  });

  it('leaves a file that is under way', async () => {
    const operated = await Operated.forTest({ standIn: { flowMs: HOUR_MS } });
    await operated.put('long.png', 'running');
    expect(await operated.run('forget', 'long.png', '--yes')).toMatchObject({
      code: 1,
      errors: expect.stringContaining('Cancel it first'),
    });
    await operated.becomes('long.png', 'running');
  });
});

describe('sweep', () => {
  it('counts, and says that nothing is missed', async () => {
    const operated = await Operated.forTest();
    await operated.put('good.png', 'succeeded');
    const { code, output } = await operated.run('sweep', '--since', '2h', '--dry-run');
    expect(code).toBe(0);
    expect(output).toContain('0 files would be submitted');
  });
});
