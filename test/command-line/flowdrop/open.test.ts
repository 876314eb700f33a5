import { createServer } from 'node:net';
import { PassThrough } from 'node:stream';
import { expect, it, onTestFinished, vi } from 'vitest';
import { flowdropProgram } from '../../../command-line/flowdrop/program.ts';
import { failed } from '../../../command-line/flowdrop/run.ts';
import { Operated } from '../../operations/support.ts';
import { ask } from '../../page/support.ts';

/** The machine may be slow. */
vi.setConfig({ testTimeout: 240_000 });
const PATIENCE = { timeout: 60_000, interval: 50 };

/** Runs the command until `stop` is called, as Ctrl-C does. */
function run(directory: string, ...words: readonly string[]) {
  const stopping = new AbortController();
  const printed = { output: '', errors: '' };
  const stream = (name: keyof typeof printed) =>
    new PassThrough().on('data', (chunk) => {
      printed[name] += chunk;
    });
  const streams = { input: new PassThrough(), output: stream('output'), errors: stream('errors') };
  const { signal } = stopping;
  const surroundings = { streams, env: {}, directory, userDirectory: directory, signal };
  const { command, exitCode } = flowdropProgram(surroundings);
  const ended = command
    .parseAsync([...words], { from: 'user' })
    .then(exitCode)
    .catch((error: unknown) => failed(error, surroundings));
  onTestFinished(() => stopping.abort());
  return { printed, ended, stop: () => stopping.abort() };
}

it('serves the page of the deployment until Ctrl-C', async () => {
  const operated = await Operated.forTest();
  const { printed, ended, stop } = run(operated.directory, 'open', '--no-browser');
  const url = await vi.waitFor(() => {
    const [found] = /http:\/\/127\.0\.0\.1:\d+\/\?key=[\w-]+/.exec(printed.output) ?? [];
    if (found === undefined) throw new Error(`No address was printed: ${printed.output}${printed.errors}`);
    return found;
  }, PATIENCE);
  expect(printed.output).toBe(`The page of the local run is at ${url}\n`);
  expect(printed.errors).toContain('Ctrl-C');
  const { origin, searchParams } = new URL(url);
  const { headers } = await ask(origin, `/?key=${searchParams.get('key')}`);
  const cookie = headers['set-cookie']?.[0]?.split(';')[0] ?? '';
  expect((await ask(origin, '/api/about', { headers: { cookie } })).json).toMatchObject({ pipeline: 'operated' });
  stop();
  expect(await ended).toBe(0);
  await expect(ask(origin, '/')).rejects.toThrow('ECONNREFUSED');
});

it('says that its port is taken, and which ports there are', async () => {
  const operated = await Operated.forTest();
  const taken = createServer().listen(0, '127.0.0.1');
  onTestFinished(() => void taken.close());
  await vi.waitFor(() => expect(taken.address()).not.toBeNull(), PATIENCE);
  const { port } = taken.address() as { port: number };
  const busy = run(operated.directory, 'open', '--no-browser', '--port', String(port));
  expect(await busy.ended).toBe(2);
  expect(busy.printed.errors).toContain(`port ${port}: another program uses it. Name another one with --port`);
  const wrong = run(operated.directory, 'open', '--port', '65536');
  expect(await wrong.ended).toBe(2);
  expect(wrong.printed.errors).toContain('Expected a port from 0 to 65535.');
});
