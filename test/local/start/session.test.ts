import { appendFile, mkdir, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { PassThrough } from 'node:stream';
import { PutObjectCommand, S3Client } from '@aws-sdk/client-s3';
import { beforeEach, describe, expect, it, onTestFinished, vi } from 'vitest';
import { ResultsFolder } from '../../../command-line/results-folder.ts';
import type { ServiceDescription } from '../../../functions/flow-service/service-description.ts';
import { SERVICES } from '../../../functions/flow-service/services.ts';
import { SETTINGS_DEFAULT } from '../../../functions/settings/settings.ts';
import type { NotifyTarget } from '../../../infra/notify.ts';
import type { StandInFlowService, StandInOptions } from '../../../local/flow-service/flow-service.ts';
import { KnownFiles } from '../../../local/start/inbox-watch.ts';
import { FunctionLogs } from '../../../local/start/logs.ts';
import { Screen } from '../../../local/start/screen.ts';
import { Session } from '../../../local/start/session.ts';
import { bundles } from '../../support/bundles.ts';
import { temporaryFolder } from '../../support/folder.ts';
import { PATIENCE } from '../../support/patience.ts';
import { serveStandIn, web } from '../../support/servers.ts';

const HOUR = 3_600_000;

/** Has no space for results, until it is told that it has. */
function fullDisk(): { isFull: boolean } {
  const disk = { isFull: true };
  const { write } = ResultsFolder.prototype;
  const spy = vi.spyOn(ResultsFolder.prototype, 'write').mockImplementation(async function (
    this: ResultsFolder,
    ...args
  ) {
    if (disk.isFull) throw Object.assign(new Error('ENOSPC: no space left on device, write'), { code: 'ENOSPC' });
    return write.apply(this, args);
  });
  onTestFinished(() => spy.mockRestore());
  return disk;
}

describe('a session', () => {
  let home: string;
  /** What the next flows take, in milliseconds. */
  let flowMs: number[];
  /** By how much the clock of the service is ahead. */
  let aheadMs: number;
  let service: StandInFlowService;
  let url: string;
  beforeEach(async () => {
    home = await temporaryFolder();
    await mkdir(join(home, 'inbox'));
    flowMs = [];
    aheadMs = 0;
    const clock = { now: () => Date.now() + aheadMs };
    ({ service, url } = await serveStandIn({ tokens: ['fake-token'], clock, flowMs: () => flowMs.shift() ?? 0 }));
  });

  async function start({
    resultsDir = join(home, 'results'),
    isTTY = false,
    standIn,
    speaks,
    command,
    notify,
  }: {
    resultsDir?: string;
    isTTY?: boolean;
    standIn?: StandInOptions;
    speaks?: ServiceDescription | undefined;
    command?: (path: string) => string;
    notify?: readonly NotifyTarget[];
  } = {}) {
    const output = Object.assign(new PassThrough(), { isTTY, columns: 80 });
    let shown = '';
    output.setEncoding('utf8').on('data', (text) => {
      shown += text;
    });
    const screen = new Screen(output);
    const logs = new FunctionLogs(join(home, 'log'), (text) => screen.line(`! ${text}`));
    const session = await Session.start({
      pipeline: {
        bundleDir: bundles(),
        tickIntervalMs: 300,
        stateDir: join(home, 'state'),
        name: 'local-test',
        routes: [
          { name: 'views', input: 'file', template: 'bytes_echo', jobs: 'multi/' },
          { name: 'all', input: 'file', template: 'bytes_echo' },
        ],
        settings: { ...SETTINGS_DEFAULT, pollIntervalSeconds: 1 },
        ...(speaks && { speaks }),
        ...(notify && { notify }),
        ...(standIn ? { standIn } : { service: { url, token: 'fake-token' } }),
      },
      resultsDir,
      screen,
      logs,
      cwd: home,
      command,
    });
    const interrupted = new AbortController();
    const known = await KnownFiles.load(join(home, 'known.json'));
    let watching: Promise<void> = Promise.resolve();
    const stop = async () => {
      interrupted.abort();
      await watching;
      await session.close();
      logs.close();
    };
    onTestFinished(stop);
    return {
      session,
      shown: () => shown,
      watch: () => {
        watching = session.watch(join(home, 'inbox'), { known, signal: interrupted.signal });
      },
      stop,
    };
  }
  const write = (content: string) => writeFile(join(home, 'inbox', 'a.txt'), content);
  const flows = (count: number) => vi.waitFor(() => expect(service.flows).toHaveLength(count), PATIENCE);
  const contents = async () => {
    const entries = await readdir(join(home, 'results'), { recursive: true, withFileTypes: true });
    const assets = entries.filter((entry) => entry.isFile() && entry.name !== 'receipt.json');
    return (await Promise.all(assets.map((entry) => readFile(join(entry.parentPath, entry.name), 'utf8')))).sort();
  };

  const named = (name: string) => ({ path: join(home, name), key: name });

  it('processes the other files if a named one is gone by then', async () => {
    const { session, shown } = await start();
    await writeFile(join(home, 'a.txt'), 'a');
    expect(await session.process([named('gone.txt'), named('a.txt')])).toBe(false);
    expect(await contents()).toEqual(['a']);
    expect(shown()).toMatch(/^gone\.txt {2}failed: upload error: ENOENT: .*gone\.txt'$/m);
  });

  it('has told the targets of notify of all ends when its files are processed', async () => {
    let told = 0;
    const { origin } = await web(async (_, response) => {
      told += 1;
      await new Promise((resolve) => setTimeout(resolve, 300));
      response.end();
    });
    const { session, shown } = await start({ notify: [{ url: origin }] });
    await writeFile(join(home, 'b.txt'), 'b');
    await session.process([named('b.txt')]);
    expect(told).toBe(1);
    expect(shown()).toContain(`b.txt  Flow Succeeded: told ${new URL(origin).host}\n`);
  });

  it('tells the versions of a file apart, whichever ends first', async () => {
    flowMs = [HOUR, 3 * HOUR, 0];
    const { session, shown, watch } = await start();
    const ends = (count: number) =>
      vi.waitFor(() => expect(shown().match(/a\.txt {2}done/g)).toHaveLength(count), PATIENCE);
    watch();
    await write('v1');
    await flows(1);
    await write('v2');
    await flows(2);
    aheadMs = 2 * HOUR;
    await ends(1);
    expect(session.unfinished).toBe(1);

    await write('v3');
    await ends(2);
    expect(session.unfinished).toBe(1);
    expect(shown()).not.toContain('newer version');
    aheadMs = 4 * HOUR;
    await ends(3);
    expect(session.unfinished).toBe(0);
    expect(shown()).toContain('; the receipt is that of a newer version of the file');
    expect(await contents()).toEqual(['v1', 'v2', 'v3']);
  });

  it('shows on a terminal how much of a large file is uploaded, and of a small one only that it is', async () => {
    const { shown, watch } = await start({ isTTY: true });
    await write('v1');
    await writeFile(join(home, 'inbox', 'large.bin'), Buffer.alloc(12 * 1024 * 1024));
    watch();
    await flows(2);
    // Parts of 5 MiB.
    for (const percent of [41, 83, 100]) expect(shown()).toMatch(new RegExp(`large\\.bin +uploading ${percent}%`));
    expect(shown()).not.toMatch(/a\.txt +uploading \d/);
  });

  it('copies results again for which the disk had no space, and says what to do', async () => {
    const disk = fullDisk();
    const { session, shown, watch } = await start({ isTTY: true });
    watch();
    await writeFile(join(home, 'inbox', 'a.txt'), 'v1');
    const told = 'The disk has no space for results in ./results. The copy is tried again every 5 seconds.';
    await vi.waitFor(() => expect(shown()).toContain(`! ${told} Free some space.`), PATIENCE);
    await vi.waitFor(() => expect(shown()).toMatch(/a\.txt +has ended\. The disk/), PATIENCE);
    await writeFile(join(home, 'inbox', 'b.txt'), 'v1');
    await vi.waitFor(() => expect(shown()).toMatch(/b\.txt +has ended\. The disk/), PATIENCE);
    expect(shown()).not.toContain('a.txt  done');
    disk.isFull = false;
    for (const name of ['a.txt', 'b.txt']) {
      await vi.waitFor(() => expect(shown()).toContain(`${name}  done`), PATIENCE);
    }
    // Once, and not for each file.
    expect(shown().split(`! ${told}`)).toHaveLength(2);
    expect(await readdir(join(home, 'results'))).toEqual(expect.arrayContaining(['a.txt', 'b.txt']));
    await session.close();
  });

  it('says why results are not stored, and until when the service asks to wait', async () => {
    let fault: 'asks to wait' | 'has no asset' | undefined = 'asks to wait';
    service.intercept = (_, { operation }) => {
      if (operation === 'createFlow' && fault === 'asks to wait') {
        return { status: 429, headers: { 'retry-after': '3' } };
      }
      return operation === 'getAsset' && fault !== undefined ? { status: 500 } : undefined;
    };
    const { shown, watch } = await start({ isTTY: true });
    watch();
    await writeFile(join(home, 'inbox', 'a.txt'), 'v1');
    await vi.waitFor(() => expect(shown()).toMatch(/he service asks to wait until \d\d:\d\d:\d\d/), PATIENCE);
    fault = 'has no asset';
    const why = 'a.txt  its results are not stored yet: asset: 500';
    await vi.waitFor(() => expect(shown()).toContain(why), PATIENCE);
    await vi.waitFor(() => expect(shown()).toMatch(/a\.txt +results are not stored yet: asset/), PATIENCE);
    fault = undefined;
    await vi.waitFor(() => expect(shown()).toContain('a.txt  done'), PATIENCE);
    expect(shown().split(why)).toHaveLength(2);
  });

  it('goes on with the copies for which the disk of the run before had no space, and says so', async () => {
    const disk = fullDisk();
    const first = await start();
    first.watch();
    await writeFile(join(home, 'inbox', 'a.txt'), 'v1');
    await vi.waitFor(() => expect(first.shown()).toContain('Free some space.'), PATIENCE);
    await first.stop();

    const second = await start();
    await second.session.resume();
    expect(second.shown()).toContain('Results of the run before that were not copied are copied now: a.txt.');
    // It is still full: the run goes on, and tries again.
    await vi.waitFor(() => expect(second.shown()).toContain('Free some space.'), PATIENCE);
    expect(second.shown()).not.toContain('a.txt  done');
    disk.isFull = false;
    await vi.waitFor(() => expect(second.shown()).toContain('a.txt  done'), PATIENCE);
    expect(await contents()).toEqual(['v1']);
    await second.stop();

    const third = await start();
    await third.session.resume();
    expect(third.shown()).not.toContain('not copied');
    expect(service.flows).toHaveLength(1);
  });

  it('tells a result that is being copied while it closes, and nothing after that', async () => {
    const written = Promise.withResolvers<void>();
    const held = Promise.withResolvers<void>();
    const write = ResultsFolder.prototype.write;
    const spy = vi.spyOn(ResultsFolder.prototype, 'write').mockImplementation(async function (
      this: ResultsFolder,
      ...args
    ) {
      const path = await write.apply(this, args);
      if (path.endsWith('receipt.json')) {
        written.resolve();
        await held.promise;
      }
      return path;
    });
    onTestFinished(() => spy.mockRestore());
    const { session, shown, watch } = await start();
    watch();
    await writeFile(join(home, 'inbox', 'a.txt'), 'v1');
    await written.promise;
    expect(session.unfinished).toBe(1);
    const closed = session.close();
    setTimeout(() => held.resolve(), 500); // The pipeline has ended by then.
    await closed;
    expect(shown()).toContain('a.txt  done');
    expect(session.unfinished).toBe(0);
  });

  it('copies the results that the run before did not copy, once', async () => {
    await writeFile(join(home, 'no-folder'), '');
    const first = await start({ resultsDir: join(home, 'no-folder') });
    first.watch();
    await write('v1');
    await vi.waitFor(() => expect(first.shown()).toMatch(/! .*no-folder/), PATIENCE);
    await vi.waitFor(async () => expect(await readdir(join(home, 'state', 's3', 'bodies'))).not.toEqual([]), PATIENCE);
    const log = () => readFile(join(home, 'log', 'collect-outputs.log'), 'utf8');
    await vi.waitFor(async () => expect(await log()).toContain('Upload succeeded'), PATIENCE);
    await first.stop();

    const second = await start();
    await second.session.resume();
    await vi.waitFor(() => expect(second.shown()).toContain('a.txt  done'), PATIENCE);
    expect(await contents()).toEqual(['v1']);
    await second.stop();

    await rm(join(home, 'results'), { recursive: true });
    const third = await start();
    await third.session.resume();
    third.watch();
    await flows(1);
    expect(third.shown()).not.toContain('done');
    await third.stop();
    expect(service.flows).toHaveLength(1);
  });

  it('shows after a restart what the run before did not finish, and goes on with it', async () => {
    flowMs = [HOUR];
    const first = await start();
    first.watch();
    await write('v1');
    await flows(1);
    service.intercept = (request) =>
      request.method === 'POST' ? { status: 402, headers: {}, body: '{"detail":"No credit is left"}' } : undefined;
    await writeFile(join(home, 'inbox', 'b.txt'), 'v1');
    await vi.waitFor(() => expect(first.shown()).toContain('b.txt  waits since'), PATIENCE);
    await first.stop();
    expect(first.session.unfinished).toBe(2);

    const second = await start();
    await second.session.resume('./other');
    expect(second.shown()).toMatch(
      /^Unfinished files of the run before, which watched \.\/other, go on: [ab]\.txt, [ab]\.txt\.\n/,
    );
    expect(second.shown()).toMatch(/^b\.txt {2}waits since .*: 402: No credit is left$/m);
    expect(second.session.unfinished).toBe(2);
    aheadMs = 2 * HOUR;
    await vi.waitFor(() => expect(second.shown()).toContain('a.txt  done'), PATIENCE);
    expect(second.session.unfinished).toBe(1);
    expect(service.flows).toHaveLength(1);
  });

  it('begins the unfinished files of the stand-in again, because its flows ended with it', async () => {
    const first = await start({ standIn: { flowMs: HOUR } });
    await first.session.resume(); // There is nothing to go on with.
    first.watch();
    await write('v1');
    await vi.waitFor(() => expect(first.session.unfinished).toBe(1), PATIENCE);
    const log = () => readFile(join(home, 'log', 'create-flow.log'), 'utf8');
    await vi.waitFor(async () => expect(await log()).toContain('Flow created'), PATIENCE);
    await first.stop();

    const second = await start({ standIn: { flowMs: 0 } });
    await second.session.resume();
    second.watch();
    expect(second.shown()).toMatch(/^Unfinished files of the run before are begun again: a\.txt\.\n/);
    await vi.waitFor(() => expect(second.shown()).toContain('a.txt  done'), PATIENCE);
    expect(second.session.unfinished).toBe(0);
    await second.stop();
    expect(first.shown()).not.toContain('Unfinished');

    const third = await start({ standIn: { flowMs: 0 } });
    await third.session.resume();
    expect(third.shown()).toBe('');
    expect(await contents()).toEqual(['v1']);
  });

  it('begins them again at the stand-in of another shape, whose jobs ended with it too', async () => {
    const first = await start({ standIn: { flowMs: HOUR }, speaks: SERVICES.replicate });
    first.watch();
    await write('a robot');
    const log = () => readFile(join(home, 'log', 'create-flow.log'), 'utf8');
    await vi.waitFor(async () => expect(await log()).toContain('Flow created'), PATIENCE);
    await first.stop();

    const second = await start({ standIn: { flowMs: 0 }, speaks: SERVICES.replicate });
    await second.session.resume();
    second.watch();
    expect(second.shown()).toMatch(/^Unfinished files of the run before are begun again: a\.txt\.\n/);
    await vi.waitFor(() => expect(second.shown()).toContain('a.txt  done'), PATIENCE);
  });

  it('shows a file that another client put, and one that is still being written', async () => {
    flowMs = [HOUR];
    const { session, shown, watch } = await start({ isTTY: true });
    watch();
    const { endpoints, s3Credentials: credentials } = session.operator;
    const s3 = new S3Client({ endpoint: endpoints.s3, credentials, region: 'us-east-1' });
    await s3.send(new PutObjectCommand({ Bucket: 'inbox', Key: 'put.txt', Body: 'v1' }));
    s3.destroy();
    await vi.waitFor(() => expect(shown()).toMatch(/put\.txt {2}flow \S+ runs/), PATIENCE);
    expect(session.unfinished).toBe(1);
    await write('v');
    await vi.waitFor(async () => {
      await appendFile(join(home, 'inbox', 'a.txt'), 'v'.repeat(1_000));
      expect(shown()).toMatch(/a\.txt {2}is still being written: [\d.]+ \wB/);
    }, PATIENCE);
  });

  describe('with a folder of a job', () => {
    const JOB = '{"inputs":["front.png","back.png"]}';
    const drop = async (name: string, content: string) => {
      await mkdir(join(home, 'inbox', 'multi', 'chair'), { recursive: true });
      await writeFile(join(home, 'inbox', 'multi', 'chair', name), content);
    };

    it('makes one flow of it, in whatever order it is filled, and says what is missing until then', async () => {
      const { session, shown, watch } = await start({ isTTY: true });
      const shows = (text: RegExp) => vi.waitFor(() => expect(shown()).toMatch(text), PATIENCE);
      watch();
      await drop('job.json', JOB);
      await shows(/multi\/chair\/job\.json {2}waits since .*: Missing inputs: front\.png, back\.png\.\n/);
      await shows(/ {4}Fails without them .*\. It goes on when they are in the inbox, below multi\/chair\/\.\n/);
      await drop('front.png', 'front');
      await shows(/multi\/chair\/front\.png {2}uploaded, for the jobs that name it\n/);
      await shows(/multi\/chair\/job\.json {2}waits: Missing inputs: back\.png\./);
      expect(session.unfinished).toBe(1);
      expect(service.flows).toEqual([]);
      await drop('back.png', 'back');
      await shows(/multi\/chair\/job\.json {2}done in .*: 2 assets/);
      await vi.waitFor(() => expect(session.unfinished).toBe(0), PATIENCE);
      expect(service.flows.map(({ inputs }) => inputs.length)).toEqual([2]);
      expect(await contents()).toEqual(['back', 'front']);
      expect(shown().match(/waits since/g)).toHaveLength(1);
      expect(shown()).not.toMatch(/skipped|Next try/);
    });

    it.each(['the service', 'the stand-in'])('goes on with it after a restart with %s', async (which) => {
      const standIn = which === 'the stand-in' ? { standIn: { flowMs: 0 } } : {};
      const first = await start(standIn);
      first.watch();
      await drop('front.png', 'front');
      await drop('job.json', JOB);
      await vi.waitFor(() => expect(first.shown()).toContain('Missing inputs: back.png.'), PATIENCE);
      await first.stop();
      const deadline = / {4}Fails without them (.*?)\. It/.exec(first.shown())?.[1];

      const second = await start(standIn);
      await second.session.resume();
      await vi.waitFor(
        () => expect(second.shown()).toMatch(/job\.json {2}waits since .*: Missing inputs: back\.png\.\n/),
        PATIENCE,
      );
      expect(second.shown()).toContain(`Fails without them ${deadline}.`);
      second.watch();
      await drop('back.png', 'back');
      await vi.waitFor(() => expect(second.shown()).toContain('multi/chair/job.json  done'), PATIENCE);
      expect(await contents()).toEqual(['back', 'front']);
      expect(second.shown()).not.toContain('front.png');
    });

    it('processes it as named files, with the job after its inputs, and gives up at once without one', async () => {
      const { session, shown } = await start();
      await drop('job.json', JOB);
      await drop('front.png', 'front');
      await drop('back.png', 'back');
      const file = (name: string, key = `multi/chair/${name}`) => ({
        path: join(home, 'inbox', 'multi', 'chair', name),
        key,
      });
      const files = [file('job.json'), file('front.png'), file('back.png')];
      expect(await session.process(files)).toBe(true);
      expect(shown()).not.toContain('waits');
      const alone = [file('job.json', 'multi/table/job.json'), file('front.png', 'multi/table/front.png')];
      expect(await session.process(alone)).toBe(false);
      expect(shown()).toMatch(/multi\/table\/job\.json {2}given up: it waits: Missing inputs: back\.png\.\n$/);
    });
  });

  it('gives up when all files wait, with one line for each and each trouble told once before', async () => {
    const headers = { 'content-type': 'application/json' };
    service.intercept = (_, { operation }) =>
      operation === 'createFlow' ? { status: 403, headers, body: '{"detail":"Your plan has no flows"}' } : undefined;
    const { session, shown } = await start();
    const names = ['a.txt', 'b.txt', 'c.txt', 'd.txt', 'e.txt', 'f.txt'];
    for (const name of names) await writeFile(join(home, name), 'a fox');
    expect(await session.process(names.map(named), { allWaitMaxMs: 1_000 })).toBe(false);
    const lines = shown().trim().split('\n');
    const ends = lines.filter((line) => /^\w\.txt {2}(given up|not sent)/.test(line));
    expect(ends.map((line) => line.split('  ')[0]).sort()).toEqual(names);
    const troubles = lines.filter((line) => / {2}waits since /.test(line));
    expect(troubles).toEqual([expect.stringMatching(/^\w\.txt .*: 403: Your plan has no flows$/)]);
    expect(lines).toContainEqual(expect.stringMatching(/^ {4}Next try (?!.*To try now).*\.$/));
  });

  it('prints the command that sends a named file again, and the receipt names none', async () => {
    const headers = { 'content-type': 'application/json' };
    service.intercept = (_, { operation }) =>
      operation === 'createFlow' ? { status: 422, headers, body: '{"detail":"No fox is seen"}' } : undefined;
    const { session, shown } = await start({ command: (path) => `npm start -- ${path}` });
    await writeFile(join(home, 'a.txt'), 'a cat');
    expect(await session.process([named('a.txt')])).toBe(false);
    expect(shown()).toMatch(/a\.txt {2}failed: .*No fox is seen/);
    expect(shown()).toMatch(new RegExp(`To pay for the file again.*: npm start -- ${join(home, 'a.txt')}\\n`));
    const receipt = JSON.parse(await readFile(join(home, 'results', 'a.txt', 'receipt.json'), 'utf8'));
    expect(receipt.failure).not.toHaveProperty('retry');
  });
});
