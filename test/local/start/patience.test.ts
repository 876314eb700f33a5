import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { PassThrough } from 'node:stream';
import { expect, it, onTestFinished } from 'vitest';
import { SETTINGS_DEFAULT } from '../../../functions/settings/settings.ts';
import { bundle } from '../../../infra/bundle/bundle.ts';
import { StandInFlowService } from '../../../local/flow-service/flow-service.ts';
import { serveFlowService } from '../../../local/flow-service/http.ts';
import { FunctionLogs } from '../../../local/start/logs.ts';
import { Screen } from '../../../local/start/screen.ts';
import { namedFile, Session } from '../../../local/start/session.ts';

it('a run with files gives up when all files wait, with one line for each and each trouble told once before', {
  timeout: 120_000,
}, async () => {
  const dir = await mkdtemp(join(tmpdir(), 'flowdrop-session-'));
  onTestFinished(() => rm(dir, { recursive: true, force: true, maxRetries: 5 }));
  const service = new StandInFlowService({ tokens: ['fake-token'] });
  service.intercept = () => ({ status: 402, body: 'The budget is spent' });
  const { url, close } = await serveFlowService(service);
  onTestFinished(async () => {
    await close();
    service.close();
  });
  bundle(join(dir, 'bundles'));
  await mkdir(join(dir, 'inbox'));
  const names = ['a.txt', 'b.txt', 'c.txt', 'd.txt', 'e.txt', 'f.txt'];
  for (const name of names) await writeFile(join(dir, name), 'a fox');
  const output = new PassThrough({ encoding: 'utf8' });
  const logs = new FunctionLogs(join(dir, 'log'), (text) => output.write(`! ${text}\n`));
  const session = await Session.start({
    pipeline: {
      bundleDir: join(dir, 'bundles'),
      routes: [{ name: 'all', template: 'model_generate_fromprompt', input: 'text' }],
      service: { url, token: 'fake-token' },
      settings: SETTINGS_DEFAULT,
    },
    resultsDir: join(dir, 'results'),
    screen: new Screen(output),
    logs,
    cwd: dir,
  });
  onTestFinished(() => session.close());
  const files = await Promise.all(names.map((name) => namedFile(join(dir, name), name)));
  expect(await session.process(files, { allWaitMaxMs: 1_000 })).toBe(false);
  const lines = (output.read() as string).trim().split('\n');
  const ends = lines.filter((line) => /^\w\.txt {2}(given up|not sent)/.test(line));
  expect(ends.map((line) => line.split('  ')[0]).sort()).toEqual(names);
  // The files that were refused, and those that were not sent because of it, wait for two different troubles.
  const troubles = lines.flatMap((line) => / {2}waits until [\d:]+(?: [AP]M)?: (.*)/.exec(line)?.[1] ?? []);
  expect(troubles.length).toBeGreaterThan(0);
  expect(new Set(troubles).size).toBe(troubles.length);
  expect(lines.join()).not.toContain('throttled');
});
