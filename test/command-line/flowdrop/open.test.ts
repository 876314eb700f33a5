import { createServer } from 'node:net';
import { afterAll, beforeAll, expect, it, onTestFinished, vi } from 'vitest';
import { Operated, startFlowdrop } from '../../operations/support.ts';
import { ask, Visitor } from '../../page/support.ts';
import { PATIENCE } from '../../support/patience.ts';

let operated: Operated;
beforeAll(async () => {
  operated = await Operated.start();
});
afterAll(() => operated[Symbol.asyncDispose]());

/** Runs the command until `stop` is called, as Ctrl-C does. */
function run(...words: readonly string[]) {
  const stopping = new AbortController();
  onTestFinished(() => stopping.abort());
  return {
    ...startFlowdrop(words, { directory: operated.directory, signal: stopping.signal }),
    stop: () => stopping.abort(),
  };
}

it('serves the page of the deployment until Ctrl-C', async () => {
  const { printed, ended, stop } = run('open', '--no-browser');
  const url = await vi.waitFor(() => {
    const [found] = /http:\/\/127\.0\.0\.1:\d+\/#key=[\w-]+/.exec(printed.output) ?? [];
    if (found === undefined) throw new Error(`No address was printed: ${printed.output}${printed.errors}`);
    return found;
  }, PATIENCE);
  expect(printed.output).toBe(`The page of the local run is at ${url}\n`);
  expect(printed.errors).toContain('Ctrl-C');
  const visitor = await Visitor.open(url);
  expect((await visitor.ask('/api/about')).json).toMatchObject({ pipeline: 'operated' });
  stop();
  expect(await ended).toBe(0);
  await expect(ask(url, '/')).rejects.toThrow('ECONNREFUSED');
});

it('says that its port is taken, and which ports there are', async () => {
  const taken = createServer().listen(0, '127.0.0.1');
  onTestFinished(() => void taken.close());
  await vi.waitFor(() => expect(taken.address()).not.toBeNull(), PATIENCE);
  const { port } = taken.address() as { port: number };
  const busy = run('open', '--no-browser', '--port', String(port));
  expect(await busy.ended).toBe(2);
  expect(busy.printed.errors).toContain(`port ${port}: another program uses it. Name another one with --port`);
  const wrong = run('open', '--port', '65536');
  expect(await wrong.ended).toBe(2);
  expect(wrong.printed.errors).toContain('Expected a port from 0 to 65535.');
});
