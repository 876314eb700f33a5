import { randomInt } from 'node:crypto';
import { chmod, copyFile, mkdir, readdir, readFile, readlink, truncate, writeFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { PutObjectCommand, S3Client } from '@aws-sdk/client-s3';
import { beforeEach, describe, expect, it, vi } from 'vitest';
import { PATIENCE } from '../support/patience.ts';
import { listening, serveStandIn } from '../support/servers.ts';
import { Home, openToOthers } from './npm-start.ts';

const EXAMPLES = fileURLToPath(new URL('../../examples', import.meta.url));
const example = (name: string) => join(EXAMPLES, name);

describe('npm start', () => {
  let folder: Home;
  let home: string;
  beforeEach(async () => {
    folder = await Home.make();
    home = folder.path;
  });

  const start = (arguments_: readonly string[], env: Record<string, string> = {}) =>
    folder.run('start', arguments_, { env });

  const receiptOf = async (key: string) =>
    JSON.parse(await readFile(join(home, 'results', key, 'receipt.json'), 'utf8'));

  it('processes the given files and folders, prints the paths of their results or why they failed, and exits with 1', async () => {
    const files = ['robot.png', 'prompts/deep/fox.txt', 'gem.glb'];
    await mkdir(join(home, 'prompts', 'deep'), { recursive: true });
    await copyFile(example('fox.txt'), join(home, 'prompts', 'deep', 'fox.txt'));
    await mkdir(join(home, 'results'));
    await chmod(join(home, 'results'), 0o755);
    await writeFile(join(home, 'no-picture.png'), 'This is not a picture.');
    await writeFile(join(home, 'notes.md'), 'No route matches this.');
    const stage = `robot.png/chain/optimised/${'0'.repeat(40)}`;
    await mkdir(join(home, 'old', dirname(stage)), { recursive: true });
    await writeFile(join(home, 'old', stage), 'A later stage of a chain has this key.');
    const named = [example('robot.png'), 'prompts', 'old', 'no-picture.png', 'notes.md', example('gem.glb')];
    const { code, output } = await start(named).ended;
    const done = Array.from(output.matchAll(/^(\S.*?) {2}done in .*: 1 asset/gm), ([, name]) => name);
    // A picture begins a chain: its model is optimised.
    expect(done.sort()).toEqual([...files, 'robot.png › optimised'].sort());
    expect(output).toMatch(/^robot\.png {2}chain done: pictures, optimised {2}\.\/results\/robot\.png\/chain\.json$/m);
    expect(output).toMatch(/no-picture\.png {2}failed: .+/);
    expect(output).toMatch(
      /notes\.md {2}skipped: no route matches this file\n {4}The route \w+ comes nearest: its .+\. For all routes: .*explain \S+\/notes\.md\n/,
    );
    expect(output).toContain(
      `old/${stage}  skipped: no route matches this file\n    Its key has the form of a later stage`,
    );
    expect(output.trim().split('\n').pop()).toBe(
      'Some files failed or wait, see above. The other results are in ./results.',
    );
    expect(code).toBe(1);
    expect(await receiptOf('no-picture.png')).toMatchObject({
      status: 'failed',
      failure: { code: expect.any(String) },
    });

    const [child] = (await receiptOf('robot.png')).children;
    const optimised = dirname(child.receipt);
    const assets = new Map<string, Buffer>();
    for (const file of [...files, optimised]) {
      const receipt = await receiptOf(file);
      expect(receipt).toMatchObject({
        status: 'succeeded',
        upload: { key: file },
        assets: [{ mediaType: 'model/gltf-binary' }],
      });
      const path = join('results', receipt.assets[0].key);
      expect(output).toContain(path);
      assets.set(file, await readFile(join(home, path)));
    }
    expect(assets.get('gem.glb')).toEqual(await readFile(example('gem.glb')));
    for (const made of ['robot.png', optimised]) {
      expect(assets.get(made)?.includes(await readFile(example('robot.png')))).toBe(true);
    }
    expect(assets.get(optimised)?.length).toBeLessThan(assets.get('robot.png')?.length ?? 0);
    expect(assets.get('prompts/deep/fox.txt')?.toString('latin1')).toContain(
      (await readFile(example('fox.txt'), 'utf8')).slice(0, 40),
    );
    expect(await readdir(join(home, '.flowdrop'))).toEqual(['log']);
    // The folder was there. What is new in it is closed to other users.
    expect(await openToOthers(join(home, 'results'))).toEqual(['. 755']);
  });

  it('watches the inbox until it is interrupted, processes no file twice, and lets S3 clients in on request', async () => {
    // Systems give no port below 32,768 to a server or a connection that asks for any. So nobody takes these between two
    // runs.
    const s3Port = randomInt(10_000, 20_000);
    await mkdir(join(home, '.flowdrop'));
    await writeFile(join(home, '.flowdrop', 's3.json'), JSON.stringify({ port: s3Port }));
    const first = start(['--port', String(randomInt(20_000, 32_768))]);
    await vi.waitFor(() => expect(first.output().match(/ {2}done in /g)).toHaveLength(5), PATIENCE);
    const second = await start([]).ended;
    expect(second).toMatchObject({ code: 1, output: expect.stringContaining('is already watching') });

    await mkdir(join(home, 'inbox', 'sub'));
    await copyFile(example('fox.txt'), join(home, 'inbox', 'sub', 'a 100% fox+.txt'));
    await vi.waitFor(() => expect(first.output()).toContain('sub/a 100% fox+.txt  done'), PATIENCE);
    expect(await readdir(join(home, 'results', 'sub', 'a 100%25 fox+.txt'))).toContain('receipt.json');
    expect(first.output()).not.toContain('AWS_SECRET_ACCESS_KEY');
    const ofFirst = exportsIn((await folder.run('flowdrop', ['credentials'], { env: {} }).ended).output);
    expect(ofFirst.AWS_ENDPOINT_URL_S3).toBe(`http://127.0.0.1:${s3Port}`);
    first.child.kill('SIGINT');
    first.child.kill('SIGINT'); // As in a terminal: one from the terminal, one from npm.
    expect(await first.ended).toMatchObject({ code: 0 });
    expect(await processesIn(home)).toEqual([]);

    const again = start(['--credentials']);
    await vi.waitFor(() => expect(again.output()).toContain('skipped until they change'), PATIENCE);
    await vi.waitFor(() => expect(again.output()).toContain('AWS_SECRET_ACCESS_KEY='), PATIENCE);
    await writeFile(join(home, 'inbox', 'new.txt'), 'a new fox');
    await vi.waitFor(() => expect(again.output()).toContain('new.txt  done'), PATIENCE);
    // What the run before did is known, although its flows ended with it.
    const { output: listed } = await folder.run('flowdrop', ['status', 'sub/a 100% fox+.txt'], { env: {} }).ended;
    expect(listed).toContain('succeeded');
    const ofAgain = exportsIn(again.output());
    const { output: exported } = await folder.run('flowdrop', ['credentials'], { env: {} }).ended;
    expect(exportsIn(exported)).toEqual(ofAgain);
    // The port stays, and the keys do not.
    expect(ofAgain.AWS_ENDPOINT_URL_S3).toBe(ofFirst.AWS_ENDPOINT_URL_S3);
    await expect(putByClient(ofFirst)).rejects.toMatchObject({ name: 'InvalidAccessKeyId' });
    const secret = await putByClient(ofAgain);
    await vi.waitFor(
      async () => expect(await receiptOf('by-client.txt')).toMatchObject({ status: 'succeeded' }),
      PATIENCE,
    );
    again.child.kill('SIGTERM');
    const { code, output } = await again.ended;
    expect(code).toBe(0);
    expect(output.match(/^(?!by-client).* {2}done in /gm)).toHaveLength(1);
    for (const entry of await readdir(join(home, '.flowdrop'), { recursive: true, withFileTypes: true })) {
      if (!entry.isFile()) continue;
      expect(await readFile(join(entry.parentPath, entry.name), 'latin1')).not.toContain(secret);
    }
    // At the begin and at the end it says how much the folder of its copies holds.
    expect(output.match(/\.\/\.flowdrop holds [\d.]+ [KMG]B$/gm)).toHaveLength(2);
    const [pageOfFirst, pageOfAgain] = [first.output(), output].map((text) => /open this page +(\S+)/.exec(text)?.[1]);
    // The port of the page stays, and its key does not.
    expect(pageOfFirst).toMatch(/^http:.*#key=[\w-]{43}$/);
    expect(pageOfAgain?.split('#')[0]).toBe(pageOfFirst?.split('#')[0]);
    expect(pageOfAgain).not.toBe(pageOfFirst);
  });

  it('leaves no process behind when it is killed, then collects its flow and pays for no second one, and ends when nobody reads its output', async () => {
    const { service, url } = await serveStandIn({ tokens: ['fake-token'], flowMs: 4_000 });
    await mkdir(join(home, 'inbox'));
    await copyFile(example('gem.glb'), join(home, 'inbox', 'gem.glb'));
    const env = { FLOWDROP_TOKEN: 'fake-token' };
    const refused = await start(['--service', url], env).ended;
    expect(refused).toMatchObject({ code: 2 });
    expect(refused.output).toContain('already holds 1 file, for which');
    expect(service.flows).toEqual([]);
    const killed = start(['--service', url, '--send-existing'], env);
    const log = join(home, '.flowdrop', 'log', 'create-flow.log');
    await vi.waitFor(async () => expect(await readFile(log, 'utf8')).toContain('Flow created'), PATIENCE);
    killed.child.kill('SIGKILL');
    await killed.ended;
    await vi.waitFor(async () => expect(await processesIn(home)).toEqual([]), PATIENCE);

    const resumed = start(['--service', url], env);
    await vi.waitFor(() => expect(resumed.output()).toContain('gem.glb  done'), PATIENCE);
    const { assets } = await receiptOf('gem.glb');
    expect(await readFile(join(home, 'results', assets[0].key))).toEqual(await readFile(example('gem.glb')));
    expect(service.flows).toHaveLength(1);

    // It ends when it tells something and nobody reads its output any more.
    resumed.child.stdout?.destroy();
    await copyFile(example('fox.txt'), join(home, 'inbox', 'fox.txt'));
    const { output } = await resumed.ended;
    expect(output).not.toMatch(/EPIPE| at /);
  });

  it('sends a large file once that was being uploaded when it was killed', async () => {
    const { service, url } = await serveStandIn({ tokens: ['fake-token'], flowMs: 50 });
    await mkdir(join(home, 'inbox'));
    const bytes = 40_000_000;
    await writeFile(join(home, 'inbox', 'large.glb'), '');
    await truncate(join(home, 'inbox', 'large.glb'), bytes);
    const env = { FLOWDROP_TOKEN: 'fake-token' };
    const killed = start(['--service', url, '--send-existing'], env);
    const bodies = async () => {
      const [state = ''] = (await readdir(join(home, '.flowdrop'))).filter((name) => name.startsWith('service-'));
      return readdir(join(home, '.flowdrop', state, 's3', 'bodies'));
    };
    await vi.waitFor(async () => expect((await bodies()).length).toBeGreaterThan(1), PATIENCE);
    killed.child.kill('SIGKILL');
    await killed.ended;

    const next = start(['--service', url], env);
    await vi.waitFor(() => expect(next.output()).toMatch(/large\.glb {2}(done|failed)/), PATIENCE);
    expect((await receiptOf('large.glb')).upload.bytes).toBe(bytes);
    expect(service.flows.length).toBeLessThanOrEqual(1);
    next.child.kill('SIGINT');
    await next.ended;
    // Eight parts, the entry and the receipt; nothing of the first try.
    expect((await bodies()).length).toBeLessThan(16);
  });

  it('says so if another program has the port that S3 had in the last run, and takes another one', async () => {
    const { port } = new URL(`http://${await listening(createServer())}`);
    await mkdir(join(home, '.flowdrop'));
    await writeFile(join(home, '.flowdrop', 's3.json'), JSON.stringify({ port: Number(port) }));
    await mkdir(join(home, 'inbox'));
    const run = start([]);
    const told = new RegExp(`! Another program has port ${port}, .* S3 now has port (\\d+)\\.`);
    await vi.waitFor(() => expect(run.output()).toMatch(told), PATIENCE);
    const own = told.exec(run.output())?.[1];
    await vi.waitFor(() => expect(run.output()).toContain('Press Ctrl-C'), PATIENCE);
    run.child.kill('SIGINT');
    expect(await run.ended).toMatchObject({ code: 0 });
    expect(own).not.toBe(port);
    expect(await readFile(join(home, '.flowdrop', 's3.json'), 'utf8')).toBe(`{"port":${own}}`);
  });
});

/** The variables that a run or a command has printed. */
const exportsIn = (output: string): Record<string, string> =>
  Object.fromEntries(output.matchAll(/^ *export (\w+)=(\S+)$/gm).map(([, ...pair]) => pair));

/** Puts a file into the inbox with the credentials that a run has printed. Returns their secret. */
async function putByClient(printed: Record<string, string>): Promise<string> {
  const { AWS_ACCESS_KEY_ID = '', AWS_SECRET_ACCESS_KEY = '' } = printed;
  const s3 = new S3Client({
    endpoint: printed.AWS_ENDPOINT_URL_S3,
    region: printed.AWS_REGION,
    credentials: { accessKeyId: AWS_ACCESS_KEY_ID, secretAccessKey: AWS_SECRET_ACCESS_KEY },
  });
  await s3.send(new PutObjectCommand({ Bucket: 'inbox', Key: 'by-client.txt', Body: 'a fox from an S3 client' }));
  s3.destroy();
  return AWS_SECRET_ACCESS_KEY;
}

/** Ids of the processes whose working directory is in the folder, such as the functions'. Empty except on Linux. */
async function processesIn(folder: string): Promise<string[]> {
  const pids = await readdir('/proc').catch(() => []);
  const found: string[] = [];
  for (const pid of pids.filter((name) => /^\d+$/.test(name))) {
    const cwd = await readlink(`/proc/${pid}/cwd`).catch(() => '');
    if (cwd.startsWith(folder)) found.push(pid);
  }
  return found;
}
