import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createWriteStream } from 'node:fs';
import { mkdtemp, readFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { commandOptions, orExit, wholeNumber } from '../../command-line/options.ts';

const COMMAND = 'npm run test:repeatedly';

const USAGE = `Runs all tests several times, and prints those that failed at least once.

  ${COMMAND} -- [--times N] [--at-once K] [FILTER...]

  --times N     number of runs                  (default: 10)
  --at-once K   so many runs at the same time   (default: 2)
  --help        show this

A FILTER is a part of the path of test files. Runs at the same time make the machine slow, as a busy one is: a test that
fails then waits for too short a time, or depends on the order of what others do. Exits with 1 if any test failed.
`;

/** What vitest's JSON reporter writes, as far as it is read here. */
interface Results {
  readonly testResults: readonly {
    readonly name: string;
    readonly status: string;
    readonly message: string;
    readonly assertionResults: readonly {
      readonly fullName: string;
      readonly status: string;
      readonly failureMessages: readonly string[];
    }[];
  }[];
}

const { values, positionals } = commandOptions(
  {
    command: COMMAND,
    options: { times: { type: 'string', default: '10' }, 'at-once': { type: 'string', default: '2' } },
    allowPositionals: true,
  },
  USAGE,
);
const { times, atOnce } = orExit(COMMAND, () => ({
  times: wholeNumber('times', values.times, 1),
  atOnce: wholeNumber('at-once', values['at-once'], 1),
}));
const logs = await mkdtemp(join(tmpdir(), 'flowdrop-tests-'));
const print = (text: string): void => void process.stdout.write(`${text}\n`);

/** The runs in which each test failed, and the words of the first failure. */
const failures = new Map<string, { readonly runs: number[]; readonly message: string }>();
print(`The log of each run is in ${logs}.`);
let begun = 0;
await Promise.all(Array.from({ length: Math.min(atOnce, times) }, runOneAfterAnother));
for (const [test, { runs, message }] of failures) {
  print(`\nfailed in ${runs.length} of ${times} runs (${runs.join(', ')}): ${test}`);
  print(message.split('\n').slice(0, 12).join('\n').replaceAll(/^/gm, '    '));
}
print(`\n${times} runs, ${failures.size} tests that failed at least once`);
process.exitCode = failures.size === 0 ? 0 : 1;

async function runOneAfterAnother(): Promise<void> {
  while (begun < times) {
    begun += 1;
    await run(begun);
  }
}

async function run(number: number): Promise<void> {
  const started = performance.now();
  const results = join(logs, `${number}.json`);
  const log = createWriteStream(join(logs, `${number}.log`));
  await once(log, 'open');
  const vitest = spawn('npx', ['vitest', 'run', ...positionals], {
    env: { ...process.env, VITEST_JSON_FILE: results },
    stdio: ['ignore', log, log],
  });
  const [code] = (await once(vitest, 'close')) as [number | null];
  log.end();
  const failed = await failedTests(results);
  // A process that ends badly without a failed test is a failure too.
  if (failed.length === 0 && code !== 0) failed.push({ test: 'the run itself', message: `exit code ${code}` });
  for (const { test, message } of failed) {
    const known = failures.get(test);
    if (known === undefined) failures.set(test, { runs: [number], message });
    else known.runs.push(number);
  }
  const seconds = Math.round((performance.now() - started) / 1000);
  print(`run ${number} of ${times}: ${failed.length} failed, ${seconds} s`);
}

async function failedTests(path: string): Promise<{ test: string; message: string }[]> {
  let results: Results;
  try {
    results = JSON.parse(await readFile(path, 'utf8'));
  } catch {
    return [];
  }
  return results.testResults.flatMap(({ name, status, message, assertionResults }) => {
    const failed = assertionResults.filter((test) => test.status === 'failed');
    if (failed.length === 0 && status === 'failed') return [{ test: name, message }];
    return failed.map(({ fullName, failureMessages }) => ({
      test: `${name} ${fullName}`,
      message: failureMessages.join('\n'),
    }));
  });
}
