import type { TerminalState } from '../../functions/ledger/terminal-states.ts';
import type { Receipt } from '../../functions/publish/report-schemas.ts';
import { actionsFor } from '../../operations/actions.ts';
import { aliasOf } from '../../operations/alias.ts';
import { soonerBy, uploadCommand } from '../../operations/commands.ts';
import { generationsOf, parentOf, samePlace } from '../../operations/compare.ts';
import type { Deployment } from '../../operations/deployment.ts';
import { heldBy, holdsFor } from '../../operations/holds.ts';
import type { ReadEntry } from '../../operations/listing.ts';
import { inputsOf, openResult } from '../../operations/stored-bytes.ts';
import {
  atItsTime,
  isTerminalState,
  shownState,
  type UploadView,
  uploadName,
  viewOf,
} from '../../operations/upload-view.ts';
import type { Step, StoredObject, UploadDetail } from '../api.ts';
import type { Access } from './access.ts';
import { isShown } from './bytes.ts';
import { rowOf } from './rows.ts';

/** A receipt above this size, in bytes, is not shown: it has thousands of outputs. */
const RECEIPT_BYTES_MAX = 8 * 1024 * 1024;

/** Entries that are read to find what a later stage made of earlier generations. A larger chain shows none. */
const COMPARED_READS_MAX = 200;

/** Results of another upload that are shown: as many as an entry has of an earlier generation. */
const OTHERS_SHOWN_MAX = 6;

type ObjectFacts = Pick<StoredObject, 'key' | 'bytes' | 'mediaType'>;

type Entry = NonNullable<ReadEntry['entry']>;

/** All that is known of one upload. */
export async function detailOf(
  entry: Entry,
  deployment: Deployment,
  { access, signal }: { readonly access: Access; readonly signal: AbortSignal },
): Promise<UploadDetail> {
  const { inbox, settings } = deployment;
  const { id, key, stage } = entry.upload;
  const first = stage?.first ?? { id, key };
  const holds = await holdsFor([entry], deployment, signal);
  const view = viewOf(entry, settings, holds);
  const isEnded = view.endedAt !== undefined;
  const [row, current, receipt, alias, same] = await Promise.all([
    rowOf(entry, holds, deployment, signal),
    inbox.current(settings.inboxBucket, first.key, signal),
    isEnded ? receiptOf(view, deployment, signal) : undefined,
    aliasOf(entry, deployment, signal),
    stage === undefined ? [entry] : samePlace(entry, deployment, signal, COMPARED_READS_MAX),
  ]);
  const isCurrent = current?.id === first.id;
  const hold = heldBy(entry, holds);
  const base = `/api/uploads/${id}`;
  const stored = (facts: ObjectFacts, path: string): StoredObject => ({
    ...{ key: facts.key, bytes: facts.bytes, mediaType: facts.mediaType },
    ...{ url: access.proven(path), isShown: isShown(facts.mediaType) },
  });
  const assets = ('assets' in entry ? entry.assets : undefined) ?? [];
  const route = settings.routes.find(({ name }) => name === view.route);
  const command = (name: string) => uploadCommand(name, { id, key }, deployment);
  return {
    ...{ row, upload: view, isCurrent, receipt },
    sooner: soonerBy(view, deployment, (name) => `${name.charAt(0).toUpperCase()}${name.slice(1)}…`, hold ?? 'none'),
    inputs: inputsOf(entry).map((input, index) => stored(input, `${base}/inputs/${index}`)),
    assets: assets.map((asset, index) => ({
      ...stored(asset, `${base}/assets/${index}`),
      ...{ id: asset.id, sha256: asset.sha256 },
    })),
    timeline: timelineOf(view, receipt),
    command: { get: command('get'), status: command('status') },
    actions: actionsFor(view, deployment),
    alias: alias && {
      ...{ pattern: alias.pattern, flow: alias.flow, missing: alias.missing },
      objects: alias.files.map((file, index) => stored(file, `${base}/aliases/${index}`)),
    },
    takesOthers: stage === undefined && route?.overrides === true,
    previous: same
      .filter((each) => each.upload.id === id || (isTerminalState(each.state) && each.arrivedAt < entry.arrivedAt))
      .flatMap((each) => earlierOf(each, each.upload.id !== id, { settings, stored })),
  };
}

/** The generations of an upload before the present one. @param isOther true for an upload with the present one too. */
function earlierOf(
  entry: Entry,
  isOther: boolean,
  {
    settings,
    stored,
  }: Pick<Deployment, 'settings'> & { readonly stored: (facts: ObjectFacts, path: string) => StoredObject },
): UploadDetail['previous'] {
  const base = `/api/uploads/${entry.upload.id}`;
  const generations = generationsOf(viewOf(entry, settings));
  const earlier = entry.previous ?? [];
  const made = 'assets' in entry ? (entry.assets ?? []) : [];
  let before = 0;
  const objects = [
    ...earlier.map(({ assets }) => assets.map((asset) => stored(asset, `${base}/previous/${before++}`))),
    made.slice(0, OTHERS_SHOWN_MAX).map((asset, index) => stored(asset, `${base}/assets/${index}`)),
  ];
  const shown = isOther ? generations : generations.slice(0, -1);
  const from = isOther ? parentOf(entry.upload) : undefined;
  return shown.map((generation, at) => ({ ...generation, objects: objects[at] ?? [], from }));
}

/** The receipt at the upload's key. Undefined if it is another upload's, or not there yet. */
async function receiptOf(
  { id, results }: UploadView,
  deployment: Deployment,
  signal: AbortSignal,
): Promise<Receipt | undefined> {
  const opened = await openResult(results.receipt, undefined, deployment, signal);
  if (opened === undefined) return undefined;
  if ((opened.bytes ?? 0) > RECEIPT_BYTES_MAX) {
    opened.body.destroy();
    return undefined;
  }
  const chunks: Uint8Array[] = [];
  for await (const chunk of opened.body) chunks.push(chunk);
  try {
    const receipt: Receipt = JSON.parse(Buffer.concat(chunks).toString());
    return receipt.upload.id === id ? receipt : undefined;
  } catch {
    return undefined; // Something else is at its key.
  }
}

/** The life of an upload, as far as its entry tells. An entry keeps no history of its waits. */
function timelineOf(view: UploadView, receipt: Receipt | undefined): readonly Step[] {
  const { state, putAt, arrivedAt, attempts, flow, isSentAgain, obstacle, endedAt, assets, failedOutputs, stage } =
    view;
  const failures = attempts === 0 ? '' : ` Attempts that failed so far: ${attempts}.`;
  const unstored = obstacle === undefined ? '' : ` Its results are not stored yet: ${obstacle.message}`;
  const once = isSentAgain ? ', once: an answer was lost, and the request was sent again with the same key' : '';
  const results = `${assets.length} ${assets.length === 1 ? 'result is' : 'results are'} stored.`;
  const missing = failedOutputs.map(({ id, message }) => ` Output ${id} is missing: ${message}`).join('');
  const steps: Step[] = [
    { kind: 'put', at: putAt, text: `${stage === undefined ? 'The file' : stage.first.key} was put into the inbox.` },
    { kind: 'arrived', at: arrivedAt, text: arrivalOf(view) },
    ...presentStep(view, failures),
    ...(flow === undefined
      ? []
      : [
          {
            kind: 'running',
            at: flow.createdAt,
            text: `The service made flow ${flow.id}${once}.${unstored}${failures}`,
          } as const,
        ]),
    ...(assets.length + failedOutputs.length === 0
      ? []
      : [{ kind: 'outputs', at: endedAt, text: `${results}${missing}` } as const]),
    ...(isTerminalState(state) ? [endStep(view, state)] : []),
    ...(receipt === undefined ? [] : [{ kind: 'receipt', text: receiptText(receipt) } as const]),
  ];
  return steps.map((step, index) => (index === steps.length - 1 ? { ...step, isNow: true } : step));
}

const receiptText = ({ aliases = [], aliasIssue = '', sourceIssue = '' }: Receipt): string => {
  const copied = aliases.length === 0 ? '' : `The results are also at ${aliases.join(', ')}.`;
  return ['The receipt is written.', copied, aliasIssue, sourceIssue].filter((text) => text !== '').join(' ');
};

function endStep({ endedAt: at, wait, failure }: UploadView, state: TerminalState): Step {
  const kind = shownState({ state, wait, failure }) === 'replaced' ? 'replaced' : state;
  const word = kind === 'replaced' ? 'was replaced' : kind;
  return { kind, at, text: failure ? `It ${word}: ${failure.code}: ${failure.message}` : `It ${word}.` };
}

function arrivalOf({ route, generation, stage }: UploadView): string {
  const retries = generation === 1 ? '' : ` It is retry ${generation - 1}.`;
  if (stage === undefined) return `It came to the pipeline: route ${route}.${retries}`;
  const taken =
    stage.parent.asset === undefined ? 'all assets of the stage before' : `an asset of ${uploadName(stage.parent.key)}`;
  return `It began with ${taken}: route ${route}.${retries}`;
}

/** What goes on before there is a flow. */
function presentStep({ state, wait, claimedUntil, isInDoubt }: UploadView, failures: string): readonly Step[] {
  const doubt = isInDoubt ? ' A flow of it may exist that is not known yet.' : '';
  if (wait !== undefined) {
    const text = `${wait.message}${failures}${doubt}`;
    // Not all waits end with an attempt: a job fails at its deadline.
    const until = atItsTime(wait.reason) === 'next try' ? wait.until : undefined;
    return [{ kind: state === 'claimed' ? 'claimed' : 'waiting', text, until }];
  }
  if (state !== 'claimed') return [];
  return [{ kind: 'claimed', text: `It is being sent.${failures}${doubt}`, until: claimedUntil }];
}
