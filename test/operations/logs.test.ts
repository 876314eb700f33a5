import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import type { FunctionName } from '../../infra/bundle/bundle.ts';
import { FunctionLogs } from '../../local/start/logs.ts';
import type { Deployment } from '../../operations/deployment.ts';
import { UnknownUploadError } from '../../operations/forget.ts';
import { localLogFolder } from '../../operations/local-run.ts';
import { type FileLogs, logs } from '../../operations/logs.ts';
import { issuesOf } from '../support/json-schema.ts';
import { PATIENCE } from '../support/patience.ts';
import { web } from '../support/servers.ts';
import { Operated, signal, withEndpoints } from './support.ts';

const ECHO = { input: 'file', template: 'bytes_echo' } as const;
const DAY_MS = 24 * 60 * 60_000;
const since = Date.now() - DAY_MS;

/** Every line that a function has printed. */
const printed: { readonly name: FunctionName; readonly message: string; readonly timestamp: number }[] = [];

let operated: Operated;
beforeAll(async () => {
  let files: FunctionLogs | undefined;
  operated = await Operated.start({
    routes: [
      { ...ECHO, name: 'pictures', suffixes: ['.png'] },
      { ...ECHO, name: 'copied', suffixes: ['.txt'] },
      { ...ECHO, name: 'checked', after: 'copied' },
    ],
    onLog(name, message) {
      printed.push({ name, message, timestamp: Date.now() });
      files?.write(name, message);
    },
  });
  files = new FunctionLogs(localLogFolder(operated.directory), () => undefined);
  await operated.put('good.png', 'succeeded');
  operated.refuse(422);
  await operated.put('bad.png', 'failed');
  operated.refuse(401);
  await operated.put('late.png', 'waiting');
  operated.refuse(undefined);
  await operated.put('first.txt', 'succeeded');
  // The last line about an upload comes after all that it leaves behind.
  const countOf = (words: string) => printed.filter(({ message }) => message.includes(`"message":"${words}"`)).length;
  await vi.waitFor(() => {
    const ends = ['Upload succeeded', 'Upload failed', 'The upload waits'].map(countOf);
    if (![3, 1, 1].every((count, index) => (ends[index] ?? 0) >= count))
      throw new Error(`Not all lines have come: ${ends}`);
  }, PATIENCE);
});
afterAll(() => operated[Symbol.asyncDispose]());

const words = ({ lines }: FileLogs) => lines.map((line) => `${line.function}: ${line.message}`);

interface Asked {
  readonly logGroupName: string;
  readonly startTime: number;
  readonly filterPattern: string;
  readonly nextToken?: string;
}

/**
 * The pipeline as if it were deployed: a CloudWatch that has its lines answers them one by one, the last ones first, with
 * an empty page before each.
 */
async function deployed(lines: readonly (typeof printed)[number][] = printed) {
  const asked: Asked[] = [];
  const { origin } = await web(async (request, response) => {
    let body = '';
    for await (const chunk of request) body += chunk;
    const question: Asked = JSON.parse(body);
    asked.push(question);
    const { logGroupName, startTime, filterPattern, nextToken = '0' } = question;
    const [, wanted = '', rest] = /^\{ \$\.uploadId = "([0-9a-f]+)(\*?)" \}$/.exec(filterPattern) ?? [];
    const isWanted = (message: string) => {
      const id = /"uploadId":"([0-9a-f]+)"/.exec(message)?.[1] ?? '';
      return rest === '*' ? id.startsWith(wanted) : id === wanted;
    };
    const events = lines.filter(
      ({ name, message, timestamp }) => logGroupName.endsWith(name) && timestamp >= startTime && isWanted(message),
    );
    const page = Number(nextToken);
    const shown = page % 2 === 0 ? [] : events.toReversed().slice((page - 1) / 2, (page + 1) / 2);
    const isLast = page + 1 > 2 * events.length;
    response.end(JSON.stringify({ events: shown, ...(!isLast && { nextToken: String(page + 1) }) }));
  });
  const deployment: Deployment = {
    ...withEndpoints(operated.deployment, { logs: origin }),
    isLocal: false,
    logFolder: undefined,
  };
  return { deployment, asked };
}

describe.each(['a local run', 'a deployed pipeline'])('the logs of a file of %s', (kind) => {
  const deploymentOf = async () => (kind === 'a local run' ? operated.deployment : (await deployed()).deployment);

  it('are the lines of both functions about it, in order of time', async () => {
    const found = await logs('good.png', since, await deploymentOf(), signal);
    expect(words(found)).toEqual([
      'create-flow: The service has made a flow',
      'create-flow: Flow created',
      'collect-outputs: Upload succeeded',
    ]);
    expect(found).toMatchObject({ key: 'good.png', uploads: [{ key: 'good.png', route: 'pictures' }], cut: [] });
    expect(new Set(found.lines.map(({ uploadId }) => uploadId))).toEqual(new Set([found.uploads[0]?.id]));
    expect(await logs(found.uploads[0]?.id ?? '', since, await deploymentOf(), signal)).toEqual(found);
  });

  it('have its errors, and what its wait is about', async () => {
    const deployment = await deploymentOf();
    const bad = await logs('bad.png', since, deployment, signal);
    expect(bad.lines).toContainEqual(
      expect.objectContaining({
        level: 'WARN',
        message: 'The upload could not be sent',
        error: expect.stringMatching(/^RejectedError: create: 422/),
        details: { decision: 'fail' },
      }),
    );
    expect((await logs('late.png', since, deployment, signal)).lines).toContainEqual(
      expect.objectContaining({
        message: 'The upload waits',
        details: expect.objectContaining({ reason: 'unauthorised' }),
      }),
    );
  });

  it('are those of its later stages too', async () => {
    const found = await logs('first.txt', since, await deploymentOf(), signal);
    expect(found.uploads.map(({ route }) => route)).toEqual(['copied', 'checked']);
    const [first, later] = found.uploads;
    const ends = found.lines.filter(({ message }) => message === 'Upload succeeded');
    expect(ends.map(({ uploadId }) => uploadId)).toEqual([first?.id, later?.id]);
    // A later stage that is named is alone.
    const alone = await logs(later?.id ?? '', since, await deploymentOf(), signal);
    expect(alone.lines).toEqual(found.lines.filter(({ uploadId }) => uploadId === later?.id));
  });

  it('are none if nothing was logged since then, and an error if there is no such upload', async () => {
    const deployment = await deploymentOf();
    expect((await logs('good.png', Date.now() + DAY_MS, deployment, signal)).lines).toEqual([]);
    await expect(logs('absent.png', since, deployment, signal)).rejects.toThrow(UnknownUploadError);
  });
});

it('CloudWatch is asked for the lines of one id, or of the second of a chain, from the upload on', async () => {
  const { deployment, asked } = await deployed();
  const { uploads } = await logs('good.png', 0, deployment, signal);
  expect(new Set(asked.map(({ filterPattern }) => filterPattern))).toEqual(
    new Set([`{ $.uploadId = "${uploads[0]?.id}" }`]),
  );
  const putAt = Number.parseInt(uploads[0]?.id.slice(0, 8) ?? '', 16) * 1000;
  expect(new Set(asked.map(({ startTime }) => startTime))).toEqual(new Set([putAt - 60_000]));
  asked.length = 0;
  const chain = await logs('first.txt', 0, deployment, signal);
  expect(asked[0]?.filterPattern).toBe(`{ $.uploadId = "${chain.uploads[0]?.id.slice(0, 8)}*" }`);
});

it('a log without end is read in part, and the answer says so', async () => {
  const line = printed.find(({ name, message }) => name === 'create-flow' && message.includes('good.png'));
  const { deployment } = await deployed(Array(30).fill(line));
  expect(await logs('good.png', since, deployment, signal)).toMatchObject({ cut: ['create-flow'] });
});

describe('flowdrop logs', () => {
  it('prints time, function, level, words and error', async () => {
    const { output, code } = await operated.run('logs', 'bad.png');
    expect(code).toBe(0);
    expect(output).toMatch(
      /^\d{4}-\d\d-\d\dT[\d:.]+Z {2}create-flow {2}WARN {2}The upload could not be sent {2}RejectedError: create: 422.* {2}decision=fail$/m,
    );
    expect((await operated.run('logs', 'first.txt')).output).toMatch(/ {2}checked {2}INFO {2}Upload succeeded/);
  });

  it('prints JSON of its schema', async () => {
    for (const key of ['good.png', 'bad.png', 'first.txt']) {
      const { output } = await operated.run('logs', key, '--json');
      expect(issuesOf('logs', JSON.parse(output))).toBe('');
    }
  });

  it('says if there is no line, and if there is no upload', async () => {
    expect((await operated.run('logs', 'good.png', '--since', '0m')).output).toMatch(
      /^No function has logged anything about good\.png since 20\d\d-.*Z\.\n$/,
    );
    const { code, errors } = await operated.run('logs', 'absent.png');
    expect([code, errors]).toEqual([1, 'There is no upload absent.png.\n']);
  });
});
