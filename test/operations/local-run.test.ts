import { chmod, chown, mkdir, rename, symlink, writeFile } from 'node:fs/promises';
import { connect, createServer, type Server } from 'node:net';
import { join } from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import { connectLocal } from '../../operations/deployment.ts';
import { NoLocalRunError, readLocalRun, UntrustedRunError } from '../../operations/local-run.ts';
import { examineNotify } from '../../operations/notify.ts';
import { put } from '../../operations/put.ts';
import { folderWith } from '../support/folder.ts';
import { listening } from '../support/servers.ts';
import { Operated, signal } from './support.ts';

const ANOTHER_USER = 54_321;
const SECRET = 'an-obviously-fake-secret';

const RUN = {
  pid: process.pid,
  endpoints: {
    s3: 'http://127.0.0.1:1',
    sqs: 'http://127.0.0.1:1',
    lambda: 'http://127.0.0.1:1',
    events: 'http://127.0.0.1:1',
  },
  region: 'us-east-1',
  credentials: { accessKeyId: 'LOCALFAKE', secretAccessKey: SECRET },
  s3Credentials: { accessKeyId: 'LOCALOTHER', secretAccessKey: 'another-fake-secret' },
  collectFunction: 'collect-outputs',
  deadLetterQueueUrl: 'http://127.0.0.1:1/dead',
};

/** A working directory with a file of a run. */
async function directoryWith(run: object): Promise<{ directory: string; folder: string; file: string }> {
  const directory = folderWith({});
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

/** A server that passes everything on to another one. */
async function relayTo(url: string): Promise<string> {
  const target = Number(new URL(url).port);
  const server = createServer((socket) => {
    const onward = connect(target, '127.0.0.1');
    for (const each of [socket, onward]) each.on('error', () => {});
    socket.on('data', (data) =>
      onward.write(data.toString('latin1').replace(/host: [^\r]+/i, `host: 127.0.0.1:${target}`)),
    );
    onward.pipe(socket);
  });
  return `http://${await listening(server)}`;
}

describe('a command', () => {
  it('sends no request to a server that does not prove that it is the run', async () => {
    const { port, got } = await impostor();
    const url = `http://127.0.0.1:${port}`;
    const { directory } = await directoryWith({ ...RUN, endpoints: { s3: url, sqs: url, lambda: url, events: url } });
    await expect(connectLocal(directory, signal)).rejects.toThrow(UntrustedRunError);
    expect(got()).not.toContain('authorization');
    expect(got()).not.toContain(SECRET);
  });

  it('accepts no proof of another server, and sends nothing to the next owner of the ports', async () => {
    const { pipeline, directory, deployment } = await Operated.forTest();
    const { endpoints } = pipeline.operator;
    const lambda = await relayTo(endpoints.s3);
    const between = await directoryWith({ ...RUN, ...pipeline.operator, endpoints: { ...endpoints, lambda } });
    await expect(connectLocal(between.directory, signal)).rejects.toThrow('does not prove');

    const path = join(directory, 'secret.txt');
    await writeFile(path, 'the content of a private file');
    // Connections of the run that ends are broken with it.
    await deployment.queueDepth(signal);
    await pipeline.close();
    const impostors = await Promise.all(Object.values(endpoints).map((url) => impostor(Number(new URL(url).port))));
    const putting = put({ path, key: 'secret.txt' }, {}, deployment, { signal });
    await expect(putting).rejects.toThrow('does not prove that it belongs to the local run');
    await expect(deployment.collecting.invoke({ any: 1 }, signal)).rejects.toThrow(UntrustedRunError);
    await expect(deployment.queueDepth(signal)).rejects.toThrow(UntrustedRunError);
    await expect(examineNotify(deployment, signal)).rejects.toThrow(UntrustedRunError);
    for (const { got } of impostors) {
      expect(got()).toContain('flowdrop-proof');
      expect(got()).not.toMatch(/private file|authorization|PUT/i);
    }
  });
});
