import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { FunctionLogs } from '../../../local/start/logs.ts';

it('writes every line to the log of its function, and shows each warning once', async () => {
  const dir = await mkdtemp(join(tmpdir(), 'flowdrop-logs-'));
  onTestFinished(() => rm(dir, { recursive: true }));
  const told: string[] = [];
  const logs = new FunctionLogs(dir, (text) => told.push(text));
  const lines = [
    '{"level":"INFO","message":"Flow created"}',
    '{"level":"WARN","message":"The upload could not be sent","error":{"message":"503"}}',
    '{"level":"WARN","message":"The upload could not be sent","error":{"message":"503"}}',
    '{"level":"ERROR","message":"The invocation failed"}',
    '{ no JSON',
  ];
  for (const line of lines) logs.write('create-flow', line);
  logs.fault('collect-outputs', new Error('Task timed out'));
  logs.close();

  const path = join(dir, 'create-flow.log');
  expect(await readFile(path, 'utf8')).toBe(`${lines.join('\n')}\n`);
  expect(await readFile(join(dir, 'collect-outputs.log'), 'utf8')).toBe('Invocation failed: Task timed out\n');
  expect(told).toEqual([
    `create-flow: The upload could not be sent: 503 (see ${path})`,
    `create-flow: The invocation failed (see ${path})`,
    `collect-outputs: Task timed out (see ${join(dir, 'collect-outputs.log')})`,
  ]);
});
