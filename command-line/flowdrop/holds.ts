import { Command } from 'commander';
import { counted } from '../../functions/base/printable.ts';
import { costsSentence } from '../../operations/cost-texts.ts';
import { expectedCosts } from '../../operations/costs.ts';
import { changeHold, countOf, endOfHold, type HoldChange, type HoldView, holdsOf } from '../../operations/holds.ts';
import { waitingStatus } from '../../operations/status.ts';
import { type Add, example } from './add.ts';
import { type AskedOptions, isAllowed, YES } from './changes.ts';
import { EXIT_FAILED, EXIT_OK, type Run } from './run.ts';
import { unknownRoute } from './words.ts';

/** Waiting uploads that are looked at before a resume. */
const COUNTED_MAX = 1_000;

const ROUTE = ['--route <name>', 'only this route'] as const;

/** The commands that hold new flows, and let them go on. */
export function addHolds(add: Add): void {
  addPause(add);
  addResume(add);
}

interface PauseOptions extends AskedOptions {
  readonly route?: string;
  readonly why?: string;
}

function addPause(add: Add): void {
  const command = new Command('pause')
    .description('lets no new flows begin; files wait in the ledger, and results are still collected')
    .option(...ROUTE)
    .option('--why <text>', 'what everybody reads who looks at a held file')
    .addHelpText('after', example('pause', 'pause --route pictures --why "The new template is not ready."'));
  add<PauseOptions>(command, async ({ console, deployment, signal }, _, { route, why }) => {
    const change = await changeHold({ action: 'pause', route, why }, deployment, signal);
    const hold = change.holds.find((each) => each.reason === 'paused' && each.route === route);
    console.answer(change, () =>
      hold === undefined
        ? [unknownRoute(route, deployment)]
        : [hold.message, ...stillSent(change), endOfHold(hold, deployment)],
    );
    return hold === undefined ? EXIT_FAILED : EXIT_OK;
  });
}

/** What a pause does not stop. */
function stillSent({ sending: { count, isSample } = { count: 0, isSample: false } }: HoldChange): readonly string[] {
  if (count === 0) return ['Files wait. Results are still collected.'];
  const files = `${counted(count, 'file')}${isSample ? ' or more' : ''}`;
  const what =
    count === 1 && !isSample
      ? 'is being sent, and may still become a flow'
      : 'are being sent, and may still become flows';
  return [`${files} ${what}.`, 'Other files wait. Results are still collected.'];
}

interface ResumeOptions extends AskedOptions {
  readonly route?: string;
}

function addResume(add: Add): void {
  const command = new Command('resume')
    .description('ends a pause, and a hold that began because files failed alike')
    .option(...ROUTE)
    .option(...YES)
    .addHelpText('after', example('resume --yes', 'resume --route pictures'));
  add<ResumeOptions>(command, async (run, _, options) => {
    const { console, deployment, signal } = run;
    const { route } = options;
    const question = await costs(route, run);
    if (question !== undefined && !(await isAllowed(run, question, options))) return EXIT_FAILED;
    const change = await changeHold({ action: 'resume', route }, deployment, signal);
    console.answer(change, () => showResumed(change, route, deployment));
    // Without a pause nothing is to be done, unless something else holds the files.
    const isGoingOn = change.result === 'not held' && heldOf(change, route).length === 0;
    return change.result === 'resumed' || isGoingOn ? EXIT_OK : EXIT_FAILED;
  });
}

/** What a resume may cost. Undefined if no file waits for it. */
async function costs(route: string | undefined, { deployment, signal }: Run): Promise<string | undefined> {
  const holds = await holdsOf(deployment, signal);
  const ended = holds.holds.filter((hold) => hold.reason !== 'budget' && hold.route === route);
  if (ended.length === 0) return undefined;
  const { held, isSample } = await waitingStatus(deployment, signal, { readMax: COUNTED_MAX, holds });
  const count = ended.reduce((sum, hold) => sum + countOf(hold, held), 0);
  if (count === 0) return undefined;
  const goOn = held.filter((each) =>
    ended.some((hold) => hold.reason === each.reason && (hold.route === undefined || hold.route === each.route)),
  );
  const why = ended.some(({ reason }) => reason === 'failing') ? '' : ' for the end of a pause';
  const files = `${counted(count, 'file')}${isSample ? ' or more' : ''} ${count === 1 ? 'waits' : 'wait'}${why}`;
  // Another operator may have paused it, for a reason that is not gone.
  const reasons = ended.map(({ message }) => message).join(' ');
  return `${reasons} ${files}, and may be paid for: ${costsSentence(expectedCosts(deployment.settings.routes, goOn))} Resume?`;
}

/** What still holds the pipeline or the route. Without a route: also what holds a route. */
const heldOf = (change: HoldChange, route: string | undefined): readonly HoldView[] =>
  change.holds.filter((hold) => route === undefined || hold.route === undefined || hold.route === route);

function showResumed(change: HoldChange, route: string | undefined, deployment: Run['deployment']): readonly string[] {
  const what = route === undefined ? 'The pipeline' : `The route ${route}`;
  const left = heldOf(change, route).flatMap((hold) => [hold.message, `  ${endOfHold(hold, deployment)}`]);
  switch (change.result) {
    case 'unknown route':
      return [unknownRoute(route, deployment)];
    case 'resumed':
      return [left.length === 0 ? `${what} goes on within a minute.` : `${what} is not paused any more.`, ...left];
    default:
      return [`${what} is not paused.`, ...left];
  }
}
