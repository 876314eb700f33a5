import { copyFileSync, mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { Operated, runFlowdrop } from '../../operations/support.ts';
import { temporaryFolder } from '../../support/folder.ts';
import { issuesOf } from '../../support/json-schema.ts';

vi.mock('../../../operations/wait.ts', () => import('../../operations/quick-wait.ts'));

describe('docs/json.schema.json describes', () => {
  let operated: Operated;
  beforeAll(async () => {
    operated = await Operated.start();
    const sample = fileURLToPath(new URL('../../../examples/robot.png', import.meta.url));
    mkdirSync(join(operated.directory, 'photos'));
    for (const path of ['robot.png', 'photos/castle.png']) copyFileSync(sample, join(operated.directory, path));
    writeFileSync(join(operated.directory, 'song.zip'), 'no route takes it');
    await operated.put('photos/robot.png', 'succeeded');
    await operated.putRefused('bad/first.png');
    await operated.upload('unwanted.zip', 'x');
    operated.refuse(401);
    await operated.put('slow/later.png', 'waiting');
    operated.refuse(undefined);
  });
  afterAll(() => operated[Symbol.asyncDispose]());

  it.each<[string, string]>([
    ['status', 'status'],
    ['statusOfUpload', 'status photos/robot.png'],
    ['statusOfUpload', 'status bad/first.png'],
    ['statusOfUpload', 'status slow/later.png'],
    ['statusOfUpload', 'status unwanted.zip'],
    ['statusBelowPrefix', 'status absent/'],
    ['statusBelowPrefix', 'status photos/'],
    ['list', 'list'],
    ['list', 'list --failed'],
    ['list', 'list --waiting'],
    ['explain', 'explain robot.png'],
    ['logs', 'logs photos/robot.png'],
    ['templates', 'templates'],
    ['doctor', 'doctor'],
    ['doctor', 'doctor --before-deployment'],
    ['put', 'put robot.png song.zip --wait --yes'],
    ['get', 'get robot.png --to copies'],
    ['change', 'collect robot.png --wait'],
    ['change', 'cancel photos/robot.png --yes'],
    ['change', 'retry bad/first.png slow/later.png absent.png --yes'],
    ['sweep', 'sweep --dry-run'],
    ['holdAnswer', 'pause --route pictures'],
    ['status', 'status'],
    ['explain', 'explain robot.png'],
    ['holdAnswer', 'resume --route pictures --yes'],
    ['error', 'status --unknown'],
    ['error', 'list --code nonsense'],
    ['error', 'get robot.png --stack one --local'],
    ['error', 'explain nothing.png'],
  ])('as %s what is printed by %s', async (definition, line) => {
    const { output } = await operated.run(...line.split(' '), '--json');
    expect(issuesOf(definition, JSON.parse(output))).toBe('');
  });

  it('an error of the command line, and of an interruption, with the exit codes of the text', async () => {
    const directory = await temporaryFolder();
    for (const [words, code, exitCode, signal] of [
      [['status', '--jsn', '--json'], 'usage', 2, undefined],
      [['status', '--json'], 'usage', 2, undefined],
      [['doctor', '--before-deployment', '--stage', '../x', '--json', '--local'], 'usage', 2, undefined],
      [['status', '--local', '--json'], 'failed', 1, undefined],
      [['status', '--local', '--json'], 'interrupted', 130, AbortSignal.abort()],
    ] as const) {
      const ran = await runFlowdrop([...words], { directory, ...(signal && { signal }) });
      const answer = JSON.parse(ran.output);
      expect(issuesOf('error', answer)).toBe('');
      expect([answer.error.code, ran.code, ran.errors]).toEqual([code, exitCode, '']);
    }
  });

  it('no member that an upload does not have, and no upload without its members', async () => {
    const { output } = await operated.run('status', 'photos/robot.png', '--json');
    const { upload } = JSON.parse(output);
    expect(issuesOf('upload', upload)).toBe('');
    expect(issuesOf('upload', { ...upload, colour: 'red' })).toContain('additional properties');
    expect(issuesOf('upload', { ...upload, state: undefined })).toContain("'state'");
  });
});
