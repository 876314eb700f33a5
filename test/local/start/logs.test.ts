import { readFile, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { FunctionLogs, unexpected } from '../../../local/start/logs.ts';
import { temporaryFolder } from '../../support/folder.ts';

it('writes every line to the log of its function, and shows each warning once, with the file that it is about', async () => {
  const dir = await temporaryFolder();
  const told: string[] = [];
  const logs = new FunctionLogs(dir, (text) => told.push(text));
  const lines = [
    '{"level":"INFO","message":"Flow created"}',
    '{"level":"WARN","message":"The upload could not be sent","error":{"message":"503"}}',
    '{"level":"WARN","message":"The upload could not be sent","error":{"message":"503"}}',
    '{"level":"WARN","message":"The upload could not be sent","error":{"message":"401"},"key":"a.png","decision":"wait"}',
    '{"level":"WARN","message":"Sent again","key":"a.png"}',
    '{"level":"WARN","message":"Sent again","key":"b.png"}',
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
    `a.png: Sent again (see ${path})`,
    `create-flow: The invocation failed (see ${path})`,
    `collect-outputs: Task timed out (see ${join(dir, 'collect-outputs.log')})`,
  ]);
});

it('writes what a terminal would obey as escapes, so that a log can be read on one', async () => {
  const dir = await temporaryFolder();
  const logs = new FunctionLogs(dir, () => undefined);
  const line = JSON.stringify({ level: 'INFO', key: 'a\u009b2J\u0085\u202egnp\u2028\u2029\u001b' });
  logs.write('create-flow', line);
  logs.fault('create-flow', new Error('a\u001b[2J\nb'));
  logs.close();
  const [first = '', second] = (await readFile(join(dir, 'create-flow.log'), 'utf8')).split('\n');
  expect(first).toBe('{"level":"INFO","key":"a\\u009b2J\\u0085\\u202egnp\\u2028\\u2029\\u001b"}');
  expect(JSON.parse(first)).toEqual(JSON.parse(line));
  expect(second).toBe('Invocation failed: a\\u001b[2J\\nb');
});

it('writes the details of an unexpected error to a file, without the token, and says where', async () => {
  const dir = await temporaryFolder();
  const error = new Error('Bearer fake-token-of-a-test is wrong\nsecond line', { cause: new Error('the cause') });
  const path = join(dir, 'log', 'start.log');
  expect(unexpected(error, { dir: join(dir, 'log'), token: 'fake-token-of-a-test' })).toBe(
    `An unexpected error ended this run: Bearer [token] is wrong (details: ${path})`,
  );
  const details = await readFile(path, 'utf8');
  expect(details).toMatch(/second line.*at .*the cause/s);
  expect(details).not.toContain('fake-token');
  expect((await stat(path)).mode & 0o777).toBe(0o600);

  expect(unexpected(error, { dir: join(path, 'no-folder'), token: undefined })).toMatch(/\(no details: ENOTDIR.*\)$/);
});
