import { counted } from '../../functions/base/printable.ts';
import { assetCountOf } from '../../functions/chains/chain-size.ts';
import type { Acted } from '../../operations/actions.ts';
import { soonerBy } from '../../operations/commands.ts';
import { costsSentence, type ExpectedCosts } from '../../operations/cost-texts.ts';
import type { Deployment } from '../../operations/deployment.ts';
import type { Followed, LaterUpload } from '../../operations/follow.ts';
import type { Fetched } from '../../operations/get.ts';
import type { Put } from '../../operations/put-body.ts';
import { atItsTime, shownState } from '../../operations/shown-state.ts';
import type { SweepPass } from '../../operations/sweep.ts';
import { uploadName } from '../../operations/upload-name.ts';
import type { UploadView } from '../../operations/upload-view.ts';
import { chainEnd, localTime, size } from '../texts.ts';
import { coloured, joined, type Text, table } from './console.ts';

/** @param ends if they were waited for. @param now what came of the first retries. */
export const showActed = (
  results: readonly Acted[],
  { ends, now }: { readonly ends: Followed | undefined; readonly now: Followed['uploads'] | undefined },
  deployment: Pick<Deployment, 'command' | 'isLocal'>,
): readonly Text[] => [
  ...table(
    results.map((acted, index) => {
      const view = now?.[index];
      const name = uploadName(acted.key);
      if (ends !== undefined) return [name, endOf(ends.uploads[index])];
      return [name, acted.isDone && view !== undefined ? triedOf(view, deployment) : resultOf(acted)];
    }),
  ),
  ...chainLines(ends),
];

/** A line for each chain that was waited for. */
const chainLines = ({ chains }: Pick<Followed, 'chains'> = { chains: [] }): readonly string[] =>
  chains.map((chain) => `${chain.first.key}  ${chainEnd(chain)}`);

/** How an upload of a later stage ended. */
export function showLaterEnd(upload: LaterUpload): Text {
  const { key, state, failure } = upload;
  return joined(`${uploadName(key)}  `, endOf({ state, failure, assets: { length: assetCountOf(upload) } }));
}

function triedOf(view: UploadView, deployment: Pick<Deployment, 'command' | 'isLocal'>): Text {
  const { state, flow, wait, failure } = view;
  if (flow !== undefined && failure === undefined) return `sent: flow ${flow.id}`;
  if (state === 'claimed') return wait === undefined ? 'is being sent' : `is being sent, and waits: ${wait.message}`;
  if (wait === undefined) return endOf(view);
  if (wait.reason === 'retried' || wait.reason === 'stage') return 'resubmitted: it is sent within a minute';
  const sooner = wait.ending === 'retry' ? undefined : soonerBy(view, deployment);
  if (wait.ending === 'hold') return `is held: ${wait.message} ${sooner ?? ''}`.trim();
  const word = atItsTime(wait.reason);
  const next = wait.until === undefined ? '' : `, ${word} ${localTime(wait.until)}`;
  return `waits again: ${wait.message.replace(/\.$/, '')}${next}${sooner === undefined ? '' : `. ${sooner}`}`;
}

function resultOf({ result, isAborted, isInDoubt }: Acted): string {
  const notes = [
    ...(isAborted === true ? ['the service stops its flow'] : []),
    ...(isAborted === false ? ['the service did not stop its flow, which runs to its end there'] : []),
    ...(isInDoubt === true ? ['a flow of it may exist that is not known'] : []),
  ];
  return [result, ...notes].join(', ');
}

function endOf(
  view:
    | (Pick<UploadView, 'wait'> & Pick<LaterUpload, 'failure'> & { state: string; assets: { readonly length: number } })
    | undefined,
): Text {
  if (view === undefined) return 'unknown';
  const { state, failure, wait, assets } = view;
  if (failure !== undefined) return joined(coloured(shownState(view)), `: ${failure.code}: ${failure.message}`);
  return wait === undefined
    ? joined(coloured(state), `, with ${counted(assets.length, 'result')}`)
    : `waits: ${wait.message}`;
}

/** A file that was uploaded. */
export interface PutFile extends Put {
  /** Keys of the jobs that it is an input of. Undefined if it is an upload of its own. */
  readonly inputOf?: readonly string[] | undefined;
}

/** A job stands for the inputs that were uploaded with it. */
export function showPut(files: readonly PutFile[], ends: Followed | undefined): readonly Text[] {
  const keys = new Set(files.map(({ key }) => key));
  const inputsByJob = Map.groupBy(
    files.flatMap((file) => (file.inputOf ?? []).map((job) => ({ job, file }))),
    ({ job }) => job,
  );
  const rows = files.map((file, index): readonly Text[] => {
    const { key, bytes, inputOf } = file;
    if (inputOf !== undefined) {
      return inputOf.some((job) => keys.has(job)) ? [] : [key, `uploaded for ${inputOf.join(', ')}, ${size(bytes)}`];
    }
    if (ends !== undefined) return [key, endOf(ends.uploads[index])];
    const inputs = inputsByJob.get(key) ?? [];
    if (inputs.length === 0) return [key, `uploaded, ${size(bytes)}`];
    const all = inputs.reduce((sum, { file: input }) => sum + input.bytes, bytes);
    return [key, `uploaded with ${counted(inputs.length, 'input')}, ${size(all)}`];
  });
  return [...table(rows.filter((row) => row.length > 0)), ...chainLines(ends)];
}

export function showFetched({ receipts, files, issues }: Fetched): readonly Text[] {
  if (receipts.length + issues.length === 0) return ['There is no receipt of such a file.'];
  return [
    ...receipts.map(({ key, status, path }) =>
      joined(`${uploadName(key)}: `, coloured(status), `, receipt in ${path}`),
    ),
    ...files.map(({ path, bytes }) => `  ${path}  ${size(bytes)}`),
    ...issues.map(({ key, why }) => `${key} was not fetched: ${why}`),
  ];
}

/** @param costs of a dry run: what a run would cost. */
export const showSweep = (
  { compared, missed, repaired, unnamed = 0, skipped = 0 }: SweepPass,
  costs?: ExpectedCosts,
): readonly string[] => [
  `${counted(compared, 'file')} compared with the ledger.`,
  costs !== undefined
    ? `${counted(missed, 'file')} would be submitted, and paid for: ${costsSentence(costs)}`
    : `${counted(missed, 'file')} submitted.`,
  `${counted(repaired, 'record')} ${costs !== undefined ? 'would be' : repaired === 1 ? 'was' : 'were'} completed.`,
  ...(unnamed === 0
    ? []
    : [`${counted(unnamed, 'file')} below a prefix for jobs: no job has taken them, so nothing is sent of them.`]),
  ...(skipped === 0
    ? []
    : [
        `${counted(skipped, 'file')} skipped: a name of settings.skippedNames, or the key of a later stage of a chain.`,
      ]),
  'Files of the last 15 minutes were left out: their notifications may still come.',
];
