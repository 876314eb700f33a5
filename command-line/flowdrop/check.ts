import { readFileSync, statSync } from 'node:fs';
import { Command } from 'commander';
import { counted } from '../../functions/base/printable.ts';
import { ConfigurationError } from '../../functions/base/validation.ts';
import { AwsRequestError } from '../../operations/aws-requests.ts';
import { doctorBeforeDeployment } from '../../operations/before-deployment.ts';
import { type CanaryFile, canaryOf } from '../../operations/canary.ts';
import { type Checked, type Diagnosis, isFaulty } from '../../operations/checks.ts';
import { costsSentence } from '../../operations/cost-texts.ts';
import { ForeignStackError } from '../../operations/deployment.ts';
import { doctor, unreachable } from '../../operations/doctor.ts';
import { explain } from '../../operations/explain.ts';
import type { Explanation } from '../../operations/explanation.ts';
import { diagnosisOfJob } from '../../operations/jobs.ts';
import { NoLocalRunError, UntrustedRunError } from '../../operations/local-run.ts';
import { costsOfFiles } from '../../operations/route-file.ts';
import { SAMPLE_BYTES_MAX, type Sample } from '../../operations/sample.ts';
import { UsageError } from '../options.ts';
import { type Add, example } from './add.ts';
import { type AskedOptions, isAllowed, YES } from './changes.ts';
import { type Console, coloured, joined, type Text } from './console.ts';
import { explainOffline, readPlan } from './plan.ts';
import { EXIT_FAILED, EXIT_OK, type Offline, type Run, sentenceOf } from './run.ts';

interface DoctorOptions extends AskedOptions {
  readonly canary?: string;
  readonly notify?: boolean;
  readonly job?: string;
  readonly beforeDeployment?: boolean;
  readonly stage?: string;
  readonly sample?: string;
}

/** The command that checks a pipeline. It changes nothing, unless it is given a canary or sends a test event. */
export function addDoctor(add: Add): void {
  const command = new Command('doctor')
    .description('checks the pipeline from the outside in, and says for each fault what to do')
    .option('--canary <file>', 'also put a copy of this file, and follow it to its receipt; its flow is paid for')
    .option(...YES)
    .option('--notify', 'also send a test event to each target of deployment.notify')
    .option('--job <file>', 'check this job file of your machine or the inbox instead; nothing is sent')
    .option(
      '--before-deployment',
      'check the configuration of this folder, the flow service, its token and the AWS account instead',
    )
    .option('--stage <name>', 'with --before-deployment: the stage of npm run -s synth -- -c stage=<name>')
    .option(
      '--sample <file>',
      "with --before-deployment: answers from the service's documentation; see docs/commands.md",
    )
    .addHelpText(
      'after',
      example(
        'doctor',
        'doctor --json',
        'doctor --canary robot.png --yes',
        'doctor --notify',
        'doctor --job chair/job.json',
        'doctor --before-deployment',
      ),
    );
  add<DoctorOptions>(
    command,
    async (run, _, options) => {
      const { deployment, console, signal } = run;
      if (options.job !== undefined) {
        return showJob(console, await explain({ path: run.path(options.job), key: options.job }, deployment, signal));
      }
      const canary = options.canary === undefined ? undefined : canaryAt(run.path(options.canary), run);
      const costs = costsSentence(costsOfFiles(canary === undefined ? [] : [canary.key], deployment));
      const question = `${canary?.key} would be uploaded, and paid for: ${costs} Go on?`;
      if (canary !== undefined && !(await isAllowed(run, question, options))) return EXIT_FAILED;
      const diagnosis = await console.during(
        () => (canary === undefined ? 'Checking' : 'Checking, and following the canary'),
        () => doctor(deployment, signal, { canary, notify: options.notify }),
      );
      console.answer(diagnosis, showDiagnosis);
      return isFaulty(diagnosis) ? EXIT_FAILED : EXIT_OK;
    },
    {
      async unconnected(error, offline, _, { job }) {
        const { console } = offline;
        if (job !== undefined) return showJob(console, await explainOffline(error, offline, job));
        if (error instanceof UsageError) throw error;
        console.answer(unreachable(sentenceOf(error), todoOf(error)), showDiagnosis);
        return EXIT_FAILED;
      },
      offline(offline, options) {
        if (options.beforeDeployment === true) return checkPlan(offline, options);
        if (options.stage !== undefined) throw new UsageError('--stage is for --before-deployment');
        if (options.sample !== undefined) throw new UsageError('--sample is for --before-deployment');
        return undefined;
      },
    },
  );
}

function showJob(console: Console, explanation: Explanation): number {
  const diagnosis = diagnosisOfJob(explanation);
  console.answer(diagnosis, showDiagnosis);
  return isFaulty(diagnosis) ? EXIT_FAILED : EXIT_OK;
}

async function checkPlan(offline: Offline, options: DoctorOptions): Promise<number> {
  const { stack, local, region, canary, notify } = options;
  if ([stack, options.function, local, region, canary, notify].some((each) => each !== undefined)) {
    throw new UsageError(
      '--before-deployment looks at no pipeline, so it excludes --stack, --function, --local, --region, --canary and --notify',
    );
  }
  const { console, signal } = offline;
  const sample = options.sample === undefined ? undefined : sampleAt(offline.path(options.sample), options.sample);
  const plan = { ...(await readPlan(offline, options.stage)), sample };
  const diagnosis = await console.during(
    () => 'Checking',
    () => doctorBeforeDeployment(plan, signal),
  );
  console.answer(diagnosis, showDiagnosis);
  return isFaulty(diagnosis) ? EXIT_FAILED : EXIT_OK;
}

/** @throws {UsageError} there is no such file, or it is too large for an answer. */
function sampleAt(path: string, source: string): Sample {
  const file = statSync(path, { throwIfNoEntry: false });
  if (file?.isFile() !== true) throw new UsageError(`There is no file ${source}`);
  if (file.size > SAMPLE_BYTES_MAX) throw new UsageError(`${source} is larger than ${SAMPLE_BYTES_MAX} bytes`);
  return { source, text: readFileSync(path, 'utf8') };
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
  const selfExplaining = [NoLocalRunError, UntrustedRunError, ForeignStackError, ConfigurationError];
  if (selfExplaining.some((each) => error instanceof each)) {
    return 'Then run the doctor again.';
  }
  if (error instanceof AwsRequestError) {
    return 'Check --stack and --region, and whether AWS_PROFILE is of the right account.';
  }
  return 'Check your AWS credentials, the region (--region), and the way to AWS.';
}

function showDiagnosis({ deployment, checks }: Diagnosis): readonly Text[] {
  const count = (wanted: Checked['result']): number => checks.filter(({ result }) => result === wanted).length;
  const unchecked = count('not checked');
  return [
    ...(deployment === undefined ? [] : [`${deployment}:`]),
    ...checks.flatMap(({ check, result, what, todo }) => [
      joined(`  ${check}: `, coloured(result), result === 'not checked' ? `, because ${what}` : ''),
      ...(what === undefined || result === 'not checked' ? [] : what.split('\n').map((line) => `    ${line}`)),
      ...(todo === undefined ? [] : [`    ${todo}`]),
    ]),
    '',
    joined(
      coloured(count('fault') > 0 ? 'fault' : '', counted(count('fault'), 'fault')),
      ', ',
      coloured(count('warning') > 0 ? 'warning' : '', counted(count('warning'), 'warning')),
      unchecked === 0 ? '' : `, ${unchecked} not checked`,
    ),
  ];
}
