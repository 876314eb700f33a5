import { statSync } from 'node:fs';
import { Command } from 'commander';
import { ConfigurationError } from '../../functions/base/validation.ts';
import { AwsRequestError } from '../../operations/aws-requests.ts';
import { type CanaryFile, canaryOf } from '../../operations/canary.ts';
import { ForeignStackError } from '../../operations/deployment.ts';
import { type Checked, type Diagnosis, doctor, isFaulty, unreachable } from '../../operations/doctor.ts';
import { NoLocalRunError } from '../../operations/local-run.ts';
import { UsageError } from '../options.ts';
import { type Add, example } from './add.ts';
import { type AskedOptions, isAllowed, YES } from './changes.ts';
import { EXIT_FAILED, EXIT_OK, type Run, sentenceOf } from './run.ts';
import { counted } from './words.ts';

interface DoctorOptions extends AskedOptions {
  readonly canary?: string;
}

/** The command that checks a pipeline. It changes nothing, unless it is given a canary. */
export function addDoctor(add: Add): void {
  const command = new Command('doctor')
    .description('checks the pipeline from the outside in, and says for each fault what to do')
    .option('--canary <file>', 'also put a copy of this file, and follow it to its receipt; its flow is paid for')
    .option(...YES)
    .addHelpText('after', example('doctor', 'doctor --json', 'doctor --canary robot.png --yes'));
  add<DoctorOptions>(
    command,
    async (run, _, options) => {
      const { deployment, console, signal } = run;
      const canary = options.canary === undefined ? undefined : canaryAt(run.path(options.canary), run);
      const question = `${canary?.key} would be uploaded, and paid for. Go on?`;
      if (canary !== undefined && !(await isAllowed(run, question, options))) return EXIT_FAILED;
      const diagnosis = await console.during(
        () => (canary === undefined ? 'Checking' : 'Checking, and following the canary'),
        () => doctor(deployment, signal, canary),
      );
      console.answer(diagnosis, showDiagnosis);
      return isFaulty(diagnosis) ? EXIT_FAILED : EXIT_OK;
    },
    (error, console) => {
      console.answer(unreachable(sentenceOf(error), todoOf(error)), showDiagnosis);
      return EXIT_FAILED;
    },
  );
}

/** @throws {UsageError} there is no such file, or no route takes it. */
function canaryAt(path: string, { deployment }: Run): CanaryFile {
  if (statSync(path, { throwIfNoEntry: false })?.isFile() !== true) throw new UsageError(`There is no file ${path}`);
  const canary = canaryOf(path, deployment);
  if (canary === undefined) throw new UsageError(`No route takes ${path}, so it cannot be a canary`);
  return canary;
}

/** What to do if there is no connection. The sentences of some errors say it already. */
function todoOf(error: unknown): string {
  if ([NoLocalRunError, ForeignStackError, ConfigurationError].some((each) => error instanceof each)) {
    return 'Then run flowdrop doctor again.';
  }
  if (error instanceof AwsRequestError) {
    return 'Check --stack and --region, and whether AWS_PROFILE is of the right account.';
  }
  return 'Check your AWS credentials, the region (--region), and the way to AWS.';
}

function showDiagnosis({ deployment, checks }: Diagnosis): readonly string[] {
  const count = (wanted: Checked['result']): number => checks.filter(({ result }) => result === wanted).length;
  const unchecked = count('not checked');
  return [
    ...(deployment === undefined ? [] : [`${deployment}:`]),
    ...checks.flatMap(({ check, result, what, todo }) => [
      `  ${check}: ${result}${result === 'not checked' ? `, because ${what}` : ''}`,
      ...(what === undefined || result === 'not checked' ? [] : [`    ${what}`]),
      ...(todo === undefined ? [] : [`    ${todo}`]),
    ]),
    '',
    [
      counted(count('fault'), 'fault'),
      counted(count('warning'), 'warning'),
      ...(unchecked === 0 ? [] : [`${unchecked} not checked`]),
    ].join(', '),
  ];
}
