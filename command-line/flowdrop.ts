import { flowdropProgram } from './flowdrop/program.ts';
import { failed } from './flowdrop/run.ts';
import { ownEnvironment } from './own-environment.ts';

/** The command `flowdrop`. */

const env = ownEnvironment();

const interrupted = new AbortController();
for (const signal of ['SIGINT', 'SIGTERM'] as const) {
  process.once(signal, () => interrupted.abort(new Error('Interrupted')));
}
// Nobody reads the output any more, as in `flowdrop list --failed | head`. Who has read enough still wants the exit code,
// which a command that has printed its whole answer has set by then.
process.stdout.on('error', () => setImmediate(() => process.exit()));
// Nobody reads the notes any more. What was begun goes on: half of it may be paid for.
process.stderr.on('error', () => undefined);

const surroundings = {
  streams: { input: process.stdin, output: process.stdout, errors: process.stderr },
  env,
  directory: process.cwd(),
  userDirectory: env.INIT_CWD ?? process.cwd(),
  signal: interrupted.signal,
};
const words = process.argv.slice(2);
const { command, exitCode } = flowdropProgram(surroundings, words);
try {
  await command.parseAsync();
  process.exitCode = exitCode();
} catch (error) {
  process.exitCode = failed(error, surroundings, words);
}
