import type { Entry, StoredAsset, TerminalEntry } from '../../../functions/ledger/entry.ts';
import type { ChainReport } from '../../../functions/publish/report-schemas.ts';
import type { Route } from '../../../functions/uploads/route.ts';
import { demand } from '../demand.ts';
import { flowTagOf } from '../flow-tag.ts';
import { LEDGER } from '../names.ts';
import { isOfChain } from '../observations.ts';
import type { World } from '../world.ts';
import { isTerminal } from './facts.ts';
import { ownersAt } from './publications.ts';
import { openResults } from './results.ts';

/*
 * What became of chains. What should have become of them is worked out from the routes, from the assets of the flows that
 * the service made, and from what the operator asked for. Other checks compare the assets of each entry with the service.
 */

/** Every chain went as far as it could, and no further, and told of its end. */
export async function checkChains(world: World, entries: readonly Entry[]): Promise<void> {
  checkAsked(world, entries);
  for (const entry of entries) if (entry.upload.stage !== undefined) checkInputs(world, entry);
  const forgotten = forgottenFirsts(world);
  const firsts = entries.filter(
    ({ upload }) => upload.stage === undefined && !forgotten.some(({ id }) => id === upload.id),
  );
  const chains: ExpectedChain[] = [];
  for (const first of firsts) {
    const planned = await plannedFor(world, first);
    if (planned !== undefined) chains.push(chainOf(planned, first, entries));
  }
  for (const chain of chains) checkToldOf(world, chain);
  for (const [key, all] of Map.groupBy(chains, ({ first }) => first.upload.key)) {
    if (!forgotten.some((first) => first.key === key)) await checkReportsAt(world, key, all);
  }
}

/** The later stages of a chain. Each stands behind the one that it comes after. */
interface Planned {
  readonly stages: readonly Route[];
  /** Stages that a configuration has lacked. They may be withheld, if the chain names them. */
  readonly mayLack: readonly string[];
  /** Those that the chain names as withheld. */
  readonly named: readonly string[];
}

/** The routes of these that come after a route, directly or not. */
function stagesAfter(routes: readonly Route[], name: string): readonly Route[] {
  const names = [name];
  const stages: Route[] = [];
  // A route may stand before the one that it comes after since it was moved.
  for (const before of names) {
    for (const route of routes.filter(({ after }) => after === before)) {
      names.push(route.name);
      stages.push(route);
    }
  }
  return stages;
}

/** What a chain does of its plan, as the ledger says. */
interface ChainInLedger {
  readonly plan?: readonly { readonly route: string; readonly after: string }[];
  readonly withheld: readonly { readonly route: string }[];
}

const textOf = (plan: NonNullable<ChainInLedger['plan']>): string =>
  plan
    .map(({ route, after }) => `${after} > ${route}`)
    .sort()
    .join();

const planOf = (stages: readonly Route[]) => stages.map(({ name, after = '' }) => ({ route: name, after }));

/** The stages of two configurations. Of a stage that both have, the place in the first one counts. */
const joined = (one: readonly Route[], other: readonly Route[]): readonly Route[] => [
  ...one,
  ...other.filter(({ name }) => one.every((stage) => stage.name !== name)),
];

/**
 * The stages that come after a first file: those of a configuration that was deployed when its flow succeeded. If only one
 * ever was, its stages must be. Undefined if there are none.
 */
async function plannedFor({ observed, inspector, chainWatch }: World, first: Entry): Promise<Planned | undefined> {
  const all = observed.routings.map((routes) => stagesAfter(routes, first.route.name));
  const [only = []] = all;
  if (new Set(all.map((stages) => textOf(planOf(stages)))).size === 1) {
    return only.length === 0 ? undefined : { stages: only, mayLack: [], named: [] };
  }
  const key = `chains/${first.upload.id}.json`;
  const stored = await inspector.open(LEDGER, key);
  if (stored === undefined) {
    const isMissing = isTerminal(first) && all.every(({ length }) => length > 0);
    demand(!isMissing, 'a chain was never written', first);
    return undefined;
  }
  const chain = JSON.parse(stored.body.toString()) as ChainInLedger;
  // A failure that was half told when nothing came after the file any more is told without its chain.
  const mayBeUntold = chain.plan === undefined && all.some(({ length }) => length === 0);
  if (mayBeUntold && !chainWatch.reports.has(first.upload.id)) return undefined;
  const named = chain.withheld.map(({ route }) => route);
  const isIt = (stages: readonly Route[]): boolean =>
    chain.plan === undefined
      ? stages.length === named.length && stages.every(({ name }) => named.includes(name))
      : textOf(planOf(stages)) === textOf(chain.plan);
  // Those of the configuration when the file was sent belong to it too.
  const stages = all.flatMap((now) => all.map((sent) => joined(now, sent))).find(isIt);
  demand(stages !== undefined || !isTerminal(first), 'a chain has a plan that no configuration had', first, chain, all);
  const mayLack = (stages ?? []).filter(({ name }) =>
    observed.routings.some((routes) => !routes.some((route) => route.name === name)),
  );
  return { stages: stages ?? [], mayLack: mayLack.map(({ name }) => name), named };
}

/** The first files of chains of which an entry expired or was damaged. What began may begin again, or never end. */
function forgottenFirsts({ observed, orderChecker }: World): readonly { readonly id: string; readonly key: string }[] {
  const lost = [...[...observed.expired.keys()].map((id) => orderChecker.uploads.get(id)), observed.damaged];
  return lost.flatMap((upload) => upload?.stage?.first ?? upload ?? []);
}

/** Nothing that has ended is paid for again, unless the operator asked for it. */
function checkAsked({ observed }: World, entries: readonly Entry[]): void {
  for (const { upload, route, generation } of entries) {
    const firstId = upload.stage?.first.id ?? upload.id;
    const asked = observed.asked.filter(
      ({ retry = [], again = [], from }) =>
        [...retry, ...(from === undefined ? again : [])].includes(upload.id) ||
        (from === route.name && again.includes(firstId)),
    );
    const isAsked = generation - 1 <= asked.length;
    demand(isAsked, 'an upload that had ended began again, and no operator asked for it', upload, generation, asked);
  }
  const gathered = Map.groupBy(
    entries.filter(isGathered),
    ({ upload, route }) => `${upload.stage?.first.id} ${route.name}`,
  );
  for (const [name, all] of gathered) {
    const firstId = name.split(' ')[0] ?? '';
    // A first file that is retried begins a new chain. So does a stage that is made anew.
    const asked = observed.asked.filter(({ retry = [], again = [] }) => [...retry, ...again].includes(firstId));
    const isAsked = all.length <= 1 + asked.length || observed.expired.size > 0;
    demand(isAsked, 'a stage that takes all assets began twice, and no operator asked for it', name, all, asked);
  }
}

const isGathered = ({ upload }: Entry): boolean =>
  upload.stage !== undefined && upload.stage.parent.asset === undefined;

/** The flows of an upload of a later stage got its inputs: assets of the stage before, as the service had made them. */
function checkInputs({ service }: World, { upload, inputs = [] }: Entry): void {
  for (const flow of service.flows) {
    const tag = flowTagOf(flow);
    if (tag?.upload !== upload.id || tag.pipeline === 'another') continue;
    const sent = flow.inputs.map(({ bytes, additional }) => ({
      bytes,
      ...(additional as { bucket: string; key: string }),
    }));
    const named = inputs.map(({ bytes, bucket, key }) => ({ bytes, bucket, key }));
    demand(JSON.stringify(sent) === JSON.stringify(named), 'a later stage was sent other inputs', upload, sent, named);
  }
}

/** A chain as it should be now: all that follows from the present generation of its first file. */
interface ExpectedChain {
  readonly first: Entry;
  readonly uploads: readonly Entry[];
  readonly withheld: readonly string[];
}

/** Works out what should have begun, and demands that this and no more has begun. */
function chainOf(planned: Planned, first: Entry, entries: readonly Entry[]): ExpectedChain {
  const own = entries.filter(({ upload }) => upload.stage?.first.id === first.upload.id);
  const uploads = [first];
  const withheld: string[] = [];
  for (const route of planned.stages) {
    // The configuration had no such route when it was to begin.
    const isLacking = planned.mayLack.includes(route.name) && planned.named.includes(route.name);
    const before = uploads.filter((upload) => upload.route.name === route.after);
    // Nothing before it succeeded, or can begin any more.
    const isLost =
      before.length > 0 ? before.every(({ state }) => state === 'failed') : withheld.includes(route.after ?? '');
    if (isLost) withheld.push(route.name);
    else if (route.inputs !== 'all') {
      uploads.push(...childrenOf({ route, isLacking }, first, before, own));
      if (isLacking) withheld.push(route.name);
    } else {
      const path = pathTo(planned, first, route);
      const ofPath = uploads.filter((upload) => path.includes(upload.route.name));
      const state = { route, first, before, ofPath, isCut: path.some((name) => withheld.includes(name)) };
      const isBegun = own.some((entry) => entry.upload.stage?.route === route.name);
      const gathered = isLacking && !isBegun ? 'withheld' : gatheredOf(state, own);
      if (gathered === 'withheld') withheld.push(route.name);
      else uploads.push(...gathered);
    }
  }
  return { first, uploads, withheld };
}

/** The names of the routes before a route, up to the first one. */
function pathTo(planned: Planned, first: Entry, { after }: Route): readonly string[] {
  const before = planned.stages.find(({ name }) => name === after);
  return before === undefined ? [first.route.name] : [...pathTo(planned, first, before), before.name];
}

const wants = ({ mediaTypes }: Route, { mediaType }: Pick<StoredAsset, 'mediaType'>): boolean =>
  mediaTypes?.includes(mediaType) ?? true;

const assetsFor = (route: Route, entry: Entry): readonly StoredAsset[] =>
  entry.state === 'succeeded' ? entry.assets.filter((asset) => wants(route, asset)) : [];

/** Each asset that a route wants has begun one upload. */
function childrenOf(
  { route, isLacking }: { readonly route: Route; readonly isLacking: boolean },
  { upload: { key } }: Entry,
  before: readonly Entry[],
  own: readonly Entry[],
): readonly Entry[] {
  return before.flatMap((entry) =>
    assetsFor(route, entry).flatMap((asset) => {
      const children = own.filter(({ upload, route: { name } }) => {
        const { id, generation, asset: taken } = upload.stage?.parent ?? {};
        return name === route.name && id === entry.upload.id && generation === entry.generation && taken === asset.id;
      });
      if (isLacking && children.length === 0) return [];
      demand(children.length > 0, 'an asset did not begin its later stage', key, route.name, asset, entry);
      demand(children.length === 1, 'an asset began a later stage twice', key, route.name, asset, children);
      return children[0] as Entry;
    }),
  );
}

/** What a stage that takes all assets depends on. */
interface Gathering {
  readonly route: Route;
  readonly first: Entry;
  /** The uploads of the stage before, and those of all stages before. */
  readonly before: readonly Entry[];
  readonly ofPath: readonly Entry[];
  /** True if a stage before was withheld. */
  readonly isCut: boolean;
}

/** All assets of a stage have begun one upload if nothing before failed, or the route allows that. */
function gatheredOf(gathering: Gathering, own: readonly Entry[]): readonly Entry[] | 'withheld' {
  const { route, first, before, ofPath, isCut } = gathering;
  const assets = before.flatMap((entry) => assetsFor(route, entry)).map(({ key }) => key);
  const expected = assets.toSorted((one, other) => Buffer.compare(Buffer.from(one), Buffer.from(other)));
  // What began with assets of an earlier generation is no part of the chain any more.
  const found = own
    .filter((entry) => entry.route.name === route.name && entry.inputs?.every(({ key }) => assets.includes(key)))
    .toSorted((one, other) => generationOf(other) - generationOf(one))[0];
  if (!ofPath.every(isTerminal)) return found === undefined ? [] : [found];
  const isWhole =
    !isCut && ofPath.every(({ state, failedOutputs }) => state === 'succeeded' && failedOutputs.length === 0);
  const mayBegin = assets.length > 0 && (isWhole || route.allow === 'partial');
  const values = [first.upload.key, route, found, before];
  demand(found === undefined || mayBegin, 'a stage began although its inputs are not whole', ...values);
  demand(found !== undefined || !mayBegin, 'a stage whose inputs are whole did not begin', ...values);
  // If no asset met the conditions of the stage before, the chain did not come so far.
  if (found === undefined) return !isWhole && before.length > 0 ? 'withheld' : [];
  // With `partial`, a failure may have been retried after the stage had begun.
  const isLater = route.allow === 'partial' && ofPath.some(({ generation }) => generation > 1);
  const taken = found.inputs?.map(({ key }) => key);
  const isAll = JSON.stringify(taken) === JSON.stringify(expected);
  demand(isAll || isLater, 'a stage did not take all assets of the stage before', ...values, taken, expected);
  return [found];
}

const generationOf = ({ upload }: Entry): number => upload.stage?.parent.generation ?? 0;

/** What a chain tells of its end, without what may differ between two ends of the same uploads. */
const factsOf = ({ status, upload, stages }: Pick<ChainReport, 'status' | 'stages'> & { upload: { id: string } }) => ({
  status,
  upload: upload.id,
  stages: stages
    .map(({ route, status: stageStatus, uploads }) => ({
      route,
      status: stageStatus,
      uploads: uploads
        .map(({ id, receipt, parent, status: ended, generation, flow, endedAt, assets, failedOutputs, failure }) => ({
          ...{ id, receipt, parent, status: ended, generation, flow, endedAt, assets, failedOutputs },
          code: failure?.code,
        }))
        .toSorted((one, other) => (one.id < other.id ? -1 : 1)),
    }))
    .toSorted((one, other) => (one.route < other.route ? -1 : 1)),
});

/** The same facts, of a chain as it should be. */
function expectedFactsOf({ scenario }: World, { first, uploads, withheld }: ExpectedChain): ReturnType<typeof factsOf> {
  const told = uploads.filter(isTerminal).map((entry) => ({
    id: entry.upload.id,
    receipt: `${scenario.settings.resultsPrefix}${entry.upload.key}/receipt.json`,
    parent: entry.upload.stage?.parent.asset === undefined ? undefined : entry.upload.stage.parent.id,
    status: entry.state,
    generation: entry.generation,
    flow: entry.flow?.id,
    arrivedAt: '',
    endedAt: new Date(entry.endedAt).toISOString(),
    assets: entry.assets,
    failedOutputs: entry.failedOutputs.length,
    failure: entry.state === 'failed' ? entry.failure : undefined,
  }));
  const byRoute = Map.groupBy(uploads.filter(isTerminal), ({ route }) => route.name);
  const isGood = (all: readonly TerminalEntry[]): boolean => all.every(({ state }) => state === 'succeeded');
  const status = (isSuccess: boolean): 'succeeded' | 'failed' => (isSuccess ? 'succeeded' : 'failed');
  return factsOf({
    status: status(withheld.length === 0 && uploads.every(({ state }) => state === 'succeeded')),
    upload: first.upload,
    stages: [
      ...[...byRoute].map(([route, all]) => ({
        route,
        // One parent's assets may have begun the stage, and those of another found its route gone.
        status: status(isGood(all) && !withheld.includes(route)),
        uploads: told.filter(({ id }) => all.some(({ upload }) => upload.id === id)),
      })),
      ...withheld
        .filter((route) => !byRoute.has(route))
        .map((route) => ({ route, status: 'withheld' as const, uploads: [] })),
    ],
  });
}

const hasEnded = ({ uploads }: ExpectedChain): boolean => uploads.every(isTerminal);

export const isLaterEnd = (one: ChainReport, other: ChainReport): boolean =>
  one.generation === other.generation ? one.endedAt > other.endedAt : one.generation > other.generation;

/** The last event of a chain that has ended says how. */
function checkToldOf(world: World, chain: ExpectedChain): void {
  if (!hasEnded(chain)) return;
  const { key, id } = chain.first.upload;
  const told = world.observed.published
    .filter(isOfChain)
    .map(({ detailType, detail }) => ({ detailType, report: JSON.parse(detail) as ChainReport }))
    .filter(({ report }) => report.upload.id === id);
  const last = told.reduce<(typeof told)[number] | undefined>(
    (one, other) => (one !== undefined && isLaterEnd(one.report, other.report) ? one : other),
    undefined,
  );
  const expected = expectedFactsOf(world, chain);
  demand(last !== undefined, 'a chain has ended, and no event said so', key, expected);
  if (last === undefined) return;
  checkReport(last.report, expected, key);
  const detailType = expected.status === 'succeeded' ? 'Chain Succeeded' : 'Chain Failed';
  demand(last.detailType === detailType, 'the event of a chain has the name of the other end', key, last.detailType);
  const ends = expected.stages.flatMap(({ uploads }) => uploads.map(({ endedAt }) => endedAt));
  demand(
    ends.every((at) => at <= last.report.endedAt),
    'a chain ended before an upload of it',
    key,
    last.report,
  );
}

function checkReport(report: ChainReport, expected: ReturnType<typeof factsOf>, key: string): void {
  const told = factsOf(report);
  demand(JSON.stringify(told) === JSON.stringify(expected), 'a chain tells of another end', key, told, expected);
}

/** `chain.json` at a key is of the chain whose file was put there last, of those that have told of an end. */
async function checkReportsAt(world: World, key: string, chains: readonly ExpectedChain[]): Promise<void> {
  const { scenario, chainWatch } = world;
  const told = chains.filter((chain) => hasEnded(chain) || chainWatch.reports.has(chain.first.upload.id));
  if (told.length === 0) return;
  const firsts = told.map(({ first }) => first);
  const { expected, excepted } = ownersAt(world, firsts);
  const stored = await openResults(world, `${scenario.settings.resultsPrefix}${key}/chain.json`);
  const reports = stored.map(({ body }) => JSON.parse(body.toString()) as ChainReport);
  const own = reports.filter(({ upload }) => upload.id === expected?.upload.id);
  // What an earlier chain told may be in the other bucket.
  const report = own.toSorted((one, other) => (isLaterEnd(one, other) ? 1 : -1)).at(-1) ?? reports.at(-1);
  if (report === undefined) return demand(false, 'a chain has ended, and there is no chain.json', key, firsts);
  const isOwner = [expected, ...excepted].some((first) => first?.upload.id === report.upload.id);
  demand(isOwner, 'chain.json is of another upload', key, { report: report.upload, expected });
  const owner = told.find(({ first }) => first.upload.id === report.upload.id);
  if (owner !== undefined && hasEnded(owner)) checkReport(report, expectedFactsOf(world, owner), key);
}
