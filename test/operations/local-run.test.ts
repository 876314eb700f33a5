import { chmod, chown, mkdir, mkdtemp, rename, symlink, writeFile } from 'node:fs/promises';
import { connect, createServer, type Server } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import { connectLocal } from '../../operations/deployment.ts';
import { NoLocalRunError, readLocalRun, UntrustedRunError } from '../../operations/local-run.ts';
import { put } from '../../operations/put.ts';
import { serve, Visitor } from '../page/support.ts';
import { Operated, signal } from './support.ts';

const ANOTHER_USER = 54_321;
const SECRET = 'an-obviously-fake-secret';

const RUN = {
  pid: process.pid,
  endpoints: { s3: 'http://127.0.0.1:1', sqs: 'http://127.0.0.1:1', lambda: 'http://127.0.0.1:1' },
  region: 'us-east-1',
  credentials: { accessKeyId: 'LOCALFAKE', secretAccessKey: SECRET },
  collectFunction: 'collect-outputs',
  deadLetterQueueUrl: 'http://127.0.0.1:1/dead',
  uploadMapping: 'any',
};

/** A working directory with a file of a run. */
async function directoryWith(run: object): Promise<{ directory: string; folder: string; file: string }> {
  const directory = await mkdtemp(join(tmpdir(), 'flowdrop-run-'));
  const folder = join(directory, '.flowdrop');
  const file = join(folder, 'run.json');
  await mkdir(folder, { mode: 0o700 });
  await writeFile(file, JSON.stringify(run), { mode: 0o600 });
  return { directory, folder, file };
}

/** A server of another user. It keeps what it gets, and answers as if it were any service. */
async function impostor(port = 0): Promise<{ port: number; got: () => string }> {
  let got = '';
  const server: Server = createServer((socket) => {
    socket.on('error', () => {});
    socket.on('data', (data) => {
      got += data.toString('latin1');
      socket.write('HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}');
    });
  });
  await new Promise<void>((resolve) => server.listen(port, '127.0.0.1', resolve));
  onTestFinished(() => void server.close());
  return { port: (server.address() as { port: number }).port, got: () => got };
}

describe('the file of the local run', () => {
  it('is taken if it belongs to this user alone', async () => {
    const { directory } = await directoryWith(RUN);
    expect(readLocalRun(directory)).toEqual(RUN);
  });

  it.skipIf(process.getuid?.() !== 0)('is not taken from another user, and neither is its folder', async () => {
    const { directory, folder, file } = await directoryWith(RUN);
    await chown(file, ANOTHER_USER, ANOTHER_USER);
    expect(() => readLocalRun(directory)).toThrow(UntrustedRunError);
    expect(() => readLocalRun(directory)).toThrow(`${file} belongs to another user`);
    await chown(file, 0, 0);
    await chown(folder, ANOTHER_USER, ANOTHER_USER);
    expect(() => readLocalRun(directory)).toThrow(`${folder} belongs to another user`);
  });

  it.each(['644', '640', '602'])('is not taken with the mode %s', async (mode) => {
    const { directory, folder, file } = await directoryWith(RUN);
    await chmod(file, Number.parseInt(mode, 8));
    expect(() => readLocalRun(directory)).toThrow(`Other users of this machine can open ${file}`);
    await chmod(file, 0o600);
    await chmod(folder, 0o755);
    expect(() => readLocalRun(directory)).toThrow(`Other users of this machine can open ${folder} (mode 755)`);
  });

  it('is not taken through a symbolic link', async () => {
    const { directory, folder, file } = await directoryWith(RUN);
    await rename(file, join(folder, 'elsewhere.json'));
    await symlink(join(folder, 'elsewhere.json'), file);
    expect(() => readLocalRun(directory)).toThrow(UntrustedRunError);
  });

  it.each([
    ['the process 0', { pid: 0 }, 'pid'],
    ['a group of processes', { pid: -1 }, 'pid'],
    ['a fraction of a process', { pid: 1.5 }, 'pid'],
    ['another machine', { endpoints: { ...RUN.endpoints, s3: 'http://192.0.2.1:80' } }, 'endpoints.s3'],
    ['a name', { endpoints: { ...RUN.endpoints, s3: 'http://127.0.0.1:80@example.com' } }, 'endpoints.s3'],
    ['another queue', { deadLetterQueueUrl: 'https://example.com/dead' }, 'deadLetterQueueUrl'],
  ])('is not taken with the address or the id of %s', async (_, other, named) => {
    const { directory } = await directoryWith({ ...RUN, ...other });
    expect(() => readLocalRun(directory)).toThrow(UntrustedRunError);
    expect(() => readLocalRun(directory)).toThrow(named);
  });

  it('counts for nothing if its process has ended, or nothing listens', async () => {
    const { directory } = await directoryWith({ ...RUN, pid: 2 ** 31 - 1 });
    expect(() => readLocalRun(directory)).toThrow(NoLocalRunError);
    const idle = await directoryWith(RUN);
    await expect(connectLocal(idle.directory, signal)).rejects.toThrow(NoLocalRunError);
  });
});

describe('a command', () => {
  it('sends no request to a server that does not prove that it is the run', async () => {
    const { port, got } = await impostor();
    const url = `http://127.0.0.1:${port}`;
    const { directory } = await directoryWith({ ...RUN, endpoints: { s3: url, sqs: url, lambda: url } });
    await expect(connectLocal(directory, signal)).rejects.toThrow(UntrustedRunError);
    expect(got()).not.toContain('authorization');
    expect(got()).not.toContain(SECRET);
  });

  it('does not accept the proof of another server', async () => {
    const operated = await Operated.forTest();
    const { s3 } = operated.pipeline.operator.endpoints;
    const passedOn = createServer((socket) => {
      const onward = connect(Number(new URL(s3).port), '127.0.0.1');
      for (const each of [socket, onward]) each.on('error', () => {});
      const host = Buffer.from(`host: 127.0.0.1:${new URL(s3).port}`);
      socket.on('data', (data) => onward.write(data.toString('latin1').replace(/host: [^\r]+/i, host.toString())));
      onward.pipe(socket);
    });
    await new Promise<void>((resolve) => passedOn.listen(0, '127.0.0.1', resolve));
    onTestFinished(() => void passedOn.close());
    const between = `http://127.0.0.1:${(passedOn.address() as { port: number }).port}`;
    const { endpoints } = operated.pipeline.operator;
    const run = { ...RUN, ...operated.pipeline.operator, endpoints: { ...endpoints, lambda: between } };
    const { directory } = await directoryWith(run);
    await expect(connectLocal(directory, signal)).rejects.toThrow('does not prove');
  });
});

describe('what outlives its run', () => {
  /** A deployment whose run has ended, and whose ports another user has taken. */
  async function outlived() {
    const operated = await Operated.start();
    onTestFinished(() => operated[Symbol.asyncDispose]());
    const { endpoints } = operated.pipeline.operator;
    // Connections of the run that ends are broken with it.
    await operated.deployment.queueDepth(signal);
    return {
      operated,
      async takeOver() {
        await operated.pipeline.close();
        return Promise.all(Object.values(endpoints).map((url) => impostor(Number(new URL(url).port))));
      },
    };
  }

  it('sends no file to the next owner of the ports', async () => {
    const { operated, takeOver } = await outlived();
    const path = join(operated.directory, 'secret.txt');
    await writeFile(path, 'the content of a private file');
    const impostors = await takeOver();
    const putting = put({ path, key: 'secret.txt' }, {}, operated.deployment, { signal });
    await expect(putting).rejects.toThrow('does not prove that it belongs to the local run');
    await expect(operated.deployment.collecting.invoke({ any: 1 }, signal)).rejects.toThrow(UntrustedRunError);
    await expect(operated.deployment.queueDepth(signal)).rejects.toThrow(UntrustedRunError);
    for (const { got } of impostors) {
      expect(got()).toContain('flowdrop-proof');
      expect(got()).not.toMatch(/private file|authorization|PUT/i);
    }
  });

  it('sends no file that is dropped into its page', async () => {
    const { operated, takeOver } = await outlived();
    const visitor = await Visitor.open((await serve(operated.deployment)).url);
    expect((await visitor.ask('/api/about')).json).toMatchObject({ pipeline: 'operated' });
    const impostors = await takeOver();
    const answer = await visitor.put('secret.txt', 'the content of a private file');
    expect(answer.status).toBeGreaterThanOrEqual(500);
    for (const { got } of impostors) expect(got()).not.toMatch(/private file|authorization/i);
  });
});
