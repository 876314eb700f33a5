import { isDeepStrictEqual } from 'node:util';
import pMap from 'p-map';
import { chainAlone, madeAnew, withAssetsFor } from '../functions/chains/chain.ts';
import type { Chain } from '../functions/chains/chain-schema.ts';
import { type Input, isTerminal } from '../functions/ledger/entry.ts';
import { ANEW_AT_ONCE_MAX } from '../functions/operator/anew.ts';
import { isDenied } from '../functions/s3/errors.ts';
import { headObject } from '../functions/s3/objects.ts';
import { laterRoute, planAfter } from '../functions/uploads/chain-routes.ts';
import type { Route } from '../functions/uploads/route.ts';
import { revisionOf } from '../functions/uploads/route-snapshot.ts';
import { routeFor } from '../functions/uploads/routes.ts';
import { type Stage, secondDigits, unquoted } from '../functions/uploads/upload.ts';
import {
  type Acted,
  type Asked,
  AT_ONCE_MAX,
  CHANGED,
  type Chosen,
  DONE,
  leaving,
  type PlannedStage,
  resultsSchema,
  viewOrReason,
} from './actions.ts';
import { readChain } from './chains.ts';
import type { Deployment } from './deployment.ts';
import { RoutesUnknownError } from './explain.ts';
import { type FoundUpload, READS_MAX, readEntry } from './listing.ts';
import type { UploadView } from './upload-view.ts';

/*
 * What `flowdrop again` makes anew: a file with all that was made from it, the files of a route, or a stage of chains.
 */

/** Files that succeeded, and that no newer file has replaced. Times in milliseconds since the epoch. */
export interface MadeQuery {
  /** The name of their route. */
  readonly route: string;
  /** Only files that were put before, and since. */
  readonly before?: number | undefined;
  readonly since?: number | undefined;
}

/**
 * The files of a route that succeeded, and that are what is in the inbox now. A stage begins with results, so its file may
 * be gone. The ledger lists files by their date.
 * @throws {RoutesUnknownError} only with `from`.
 * @internal
 */
export async function madeBy(
  { route, before, since = 0 }: MadeQuery,
  asked: Asked,
  deployment: Deployment,
  signal: AbortSignal,
): Promise<Chosen> {
  const { inbox, ledger } = deployment;
  const end = before === undefined ? undefined : secondDigits(before);
  const ids: string[] = [];
  for await (const { entries } of ledger.entryPages(secondDigits(since), signal)) {
    const wanted = entries.filter(({ id }) => end === undefined || id < end);
    ids.push(...wanted.map(({ id }) => id));
    if (wanted.length < entries.length) break;
  }
  const chosen = await pMap(
    ids,
    async (id): Promise<Chosen> => {
      const { entry, issue } = await readEntry(id, deployment, signal);
      if (entry === undefined) return leaving(id, issue.message);
      const isMeant = entry.route.name === route && entry.state === 'succeeded' && entry.upload.stage === undefined;
      if (!isMeant) return { uploads: [], left: [] };
      const { key, bucket } = entry.upload;
      const current = await inbox.current(bucket, key, signal);
      if (current !== undefined && current.id !== id) return leaving(key, 'another file is at its key');
      if (asked.from !== undefined)
        return stageBy({ id, key, entry }, { from: asked.from, isOnlyAdded: true }, deployment, signal);
      if (current === undefined) return leaving(key, GONE);
      return againBy({ id, key, entry, current }, asked, deployment, signal);
    },
    { concurrency: READS_MAX },
  );
  return {
    uploads: chosen.flatMap(({ uploads }) => uploads),
    stages: asked.from === undefined ? undefined : chosen.flatMap(({ stages = [] }) => stages),
    left: chosen.flatMap(({ left }) => left),
  };
}

const GONE = 'the file is gone from the inbox, and its results stay';

/**
 * A file that would be made anew, with its chain.
 * @internal
 */
export async function againBy(
  upload: FoundUpload,
  asked: Asked,
  deployment: Deployment,
  signal: AbortSignal,
): Promise<Chosen> {
  const view = viewOrReason(upload, asked, deployment);
  const isCurrent = upload.current !== undefined;
  const why = typeof view === 'string' ? view : await whyNotAgain(view, { ...asked, isCurrent }, deployment, signal);
  return typeof view === 'string' || why !== undefined ? leaving(upload.key, why ?? '') : { uploads: [view], left: [] };
}

const laterOf = ({ first: { key } }: Stage): string => `it belongs to the chain of ${key}: name that file`;

/**
 * Why a file that has ended is not made anew. Undefined if it is.
 * @param isCurrent true if the file was seen at its key. Then it need not be looked for.
 */
async function whyNotAgain(
  view: UploadView,
  { onlyIfChanged, parameters, template, isCurrent }: Asked & { readonly isCurrent: boolean },
  deployment: Deployment,
  signal: AbortSignal,
): Promise<string | undefined> {
  const { settings, areRoutesKnown } = deployment;
  if (view.stage !== undefined) return `${laterOf(view.stage)}, and this stage with --from ${view.route}`;
  const route = routeFor(settings.routes, view);
  if (areRoutesKnown && route === undefined) return 'no route takes it any more';
  if (!isCurrent && !(await isThere(view, deployment, signal))) return GONE;
  const chain = await readChain(view.id, deployment, signal);
  if (chain?.uploads.some(({ state }) => state === 'under way')) return 'an upload of its chain is under way';
  if (onlyIfChanged !== true || route === undefined) return undefined;
  const isGivenOther =
    (parameters !== undefined && !isDeepStrictEqual(parameters, view.parameters)) ||
    (template !== undefined && template !== view.template);
  const isSame = !isGivenOther && isMadeAlike({ view, route, chain }, settings.routes);
  return isSame ? 'its routes would make the same' : undefined;
}

/** True if a file or an asset is there, in the version that was sent. Also true if S3 refuses to tell. */
async function isThere(
  { bucket, key, versionId, etag }: Pick<UploadView, 'bucket' | 'key' | 'versionId' | 'etag'>,
  { s3 }: Deployment,
  signal: AbortSignal,
): Promise<boolean> {
  try {
    const head = await headObject(s3, { Bucket: bucket, Key: key, VersionId: versionId }, signal);
    return head !== undefined && (versionId !== undefined || unquoted(head.ETag ?? '') === etag);
  } catch (error) {
    signal.throwIfAborted();
    if (isDenied(error)) return true;
    throw error;
  }
}

/** True if the present routes say of a file, and of all that was made from it, what they said then. */
function isMadeAlike(
  { view, route, chain }: { readonly view: UploadView; readonly route: Route; readonly chain: Chain | undefined },
  routes: readonly Route[],
): boolean {
  const hashOf = (name: string): string | undefined => {
    const later = laterRoute(routes, name);
    return later && revisionOf(later).hash;
  };
  const plan = planAfter(routes, route.name);
  const before = chain?.plan ?? [];
  const [, ...later] = chain?.uploads ?? [];
  return (
    view.revision?.hash === revisionOf(route).hash &&
    plan.length === before.length &&
    plan.every((stage) => before.some((each) => isDeepStrictEqual(each, stage))) &&
    later.every(({ route: name, sent }) => sent?.revision !== undefined && sent.revision.hash === hashOf(name))
  );
}

/**
 * The stage that would be made anew in the chain of a file, or that was added since and would begin.
 * @param isOnlyAdded true to leave out a chain that has the stage. Default false.
 * @throws {RoutesUnknownError}
 * @internal
 */
export async function stageBy(
  { id, key, entry, issue }: FoundUpload,
  { from, isOnlyAdded = false }: { readonly from: string; readonly isOnlyAdded?: boolean },
  deployment: Deployment,
  signal: AbortSignal,
): Promise<Chosen> {
  const { settings, areRoutesKnown, clock } = deployment;
  if (!areRoutesKnown) {
    throw new RoutesUnknownError(
      'The routes of this deployment do not fit into its environment. Its first tick keeps them in the ledger, and there ' +
        'was none since the deployment, so it is not known what --from would begin. Try again in a minute.',
    );
  }
  if (entry === undefined) return leaving(key, issue?.message ?? 'it is unknown');
  const { stage } = entry.upload;
  if (stage !== undefined) return leaving(key, laterOf(stage));
  if (!isTerminal(entry)) return leaving(key, `it is ${entry.state}, and nothing of its chain has begun`);
  const chain = (await readChain(id, deployment, signal)) ?? chainAlone(entry);
  const { generation } = chain;
  const isAdded = !chain.uploads.some(({ route }) => route === from);
  if (isOnlyAdded && !isAdded) return leaving(key, `it has the stage ${from} already`);
  const firstRoute = chain.uploads[0]?.route;
  if (from === firstRoute) return { uploads: [], stages: [{ id, key, generation, begins: [{ id, key }] }], left: [] };
  const read = async (upload: string) => (await readEntry(upload, deployment, signal)).entry;
  const whole = await withAssetsFor(chain, from, settings.routes, read);
  const anew = madeAnew(whole, from, settings.routes, clock.now());
  if (anew === undefined) {
    const names = settings.routes.map(({ name }) => name);
    const known = settings.routes.filter(
      ({ name }) => name === firstRoute || madeAnew(chain, name, settings.routes, clock.now()) !== undefined,
    );
    const stages = known.map(({ name }) => name).join(', ') || 'not configured any more';
    return leaving(
      key,
      `${names.includes(from) ? 'its chain has' : 'there is'} no stage ${from}. Its stages: ${stages}`,
    );
  }
  if (anew.dropped.some(({ state }) => state === 'under way')) {
    return leaving(key, `an upload of the stage ${from}, or of a stage after it, is under way`);
  }
  if (anew.begins.length === 0) return leaving(key, whyNothing(anew.chain, from, chain.withheld));
  const gone = await goneOf(
    anew.begins.flatMap(({ inputs = [] }) => inputs),
    deployment,
    signal,
  );
  if (gone !== undefined) return leaving(key, `the stage ${from} takes ${gone}, which is gone from the results`);
  const begins = anew.begins.map(({ upload }) => ({ id: upload.id, key: upload.key }));
  return { uploads: [], stages: [{ id, key, generation, isAdded, begins }], left: [] };
}

/** The key of an asset that is not in the results any more: it was deleted, or has expired. */
async function goneOf(
  inputs: readonly Input[],
  deployment: Deployment,
  signal: AbortSignal,
): Promise<string | undefined> {
  const there = await pMap(inputs, (input) => isThere(input, deployment, signal), { concurrency: READS_MAX });
  return inputs.find((_, index) => !there[index])?.key;
}

/** Why a stage would not begin. */
function whyNothing({ withheld, endedAt }: Chain, from: string, before: Chain['withheld']): string {
  const why = [...withheld, ...before].find(({ route }) => route === from)?.why;
  if (why !== undefined) return `the stage ${from} would be withheld. ${why}`;
  if (endedAt === undefined) return `the stage before ${from} has not ended`;
  return `no asset of the stage before meets the conditions of ${from}`;
}

/**
 * Has a stage of chains made anew. A chain may begin thousands of flows, and is asked for again until all have begun.
 * @returns what became of the uploads of the stage; or of the first file, if nothing was begun.
 * @internal
 */
export async function makeAnew(
  {
    from,
    stages,
    late,
  }: { readonly from: string; readonly stages: readonly PlannedStage[]; readonly late?: true | undefined },
  deployment: Deployment,
  signal: AbortSignal,
  onProgress: (count: number) => void,
): Promise<readonly Acted[]> {
  const { collecting } = deployment;
  const chainOf = (id: string) => readChain(id, deployment, signal);
  const isBegun = async (id: string) => (await chainOf(id))?.anew?.some(({ route }) => route === from) !== true;
  const isChanged = async ({ id, generation }: PlannedStage) => ((await chainOf(id))?.generation ?? 0) !== generation;
  const acted: Acted[] = [];
  for (const planned of batchesOf(stages)) {
    const areChanged = await pMap(planned, isChanged, { concurrency: READS_MAX });
    const batch = planned.filter((_, index) => !areChanged[index]);
    const changed = planned.filter((_, index) => areChanged[index]);
    acted.push(...changed.map(({ id, key }) => ({ id, key, result: CHANGED, isDone: false })));
    if (batch.length === 0) continue;
    // A chain may change in between. Then the id of an upload stands for its key.
    const keys = new Map(batch.flatMap((stage) => [stage, ...stage.begins]).map(({ id, key }) => [id, key]));
    const again = batch.map(({ id }) => id);
    const ofBatch = new Map<string, Acted>();
    for (let before = 0; ; ) {
      const answer = resultsSchema.parse(await collecting.invoke({ again, from, late }, signal));
      for (const { upload: id, result } of answer) {
        ofBatch.set(id, { id, key: keys.get(id) ?? id, result, isDone: DONE.includes(result) });
      }
      const done = ofBatch
        .values()
        .filter(({ isDone }) => isDone)
        .toArray().length;
      onProgress(acted.length + done);
      // One request begins so many. The next one begins those that are left. If it named chains that are whole by now, it
      // would make them anew.
      if (batch.length > 1 || done === before || !answer.some(({ result }) => result === 'not begun yet')) break;
      // If this machine slept meanwhile, ticks have begun what was left.
      if (await isBegun(again[0] as string)) {
        for (const [id, each] of ofBatch) {
          if (each.result === 'not begun yet') ofBatch.set(id, { ...each, result: 'begun', isDone: true });
        }
        break;
      }
      before = done;
    }
    acted.push(...ofBatch.values());
    onProgress(acted.length);
  }
  return acted;
}

/** The stages in groups that one request can begin. A larger one is alone. */
function* batchesOf(stages: readonly PlannedStage[]): Generator<readonly PlannedStage[]> {
  let batch: PlannedStage[] = [];
  let flows = 0;
  for (const stage of stages) {
    flows += stage.begins.length;
    if (batch.length === AT_ONCE_MAX || (batch.length > 0 && flows > ANEW_AT_ONCE_MAX)) {
      yield batch;
      batch = [];
      flows = stage.begins.length;
    }
    batch.push(stage);
  }
  if (batch.length > 0) yield batch;
}
