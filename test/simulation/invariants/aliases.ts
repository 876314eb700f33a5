import type { TerminalEntry } from '../../../functions/ledger/entry.ts';
import { demand } from '../demand.ts';
import { RESULTS } from '../names.ts';
import { isAlias } from '../s3-calls.ts';
import type { World } from '../world.ts';
import { firstUploadOf } from './facts.ts';
import { ownersAt } from './publications.ts';

/**
 * Every alias shows the newest success of its file, and every file that ever succeeded has one. Which upload is the newest
 * follows from what was put into the inbox.
 */
export async function checkAliases(world: World): Promise<void> {
  const { observed, orderChecker, settings, inspector } = world;
  if (observed.routings.length > 1 || observed.damaged !== undefined || observed.expired.size > 0) return;
  const successes = [...orderChecker.endings.values()].filter(({ state }) => state === 'succeeded');
  const owned = Map.groupBy(successes, (end) => `${end.upload.stage?.route ?? end.route.name} ${firstKeyOf(end)}`);
  const wanted = new Map<string, ReadonlySet<string>>();
  for (const ends of owned.values()) {
    const [end] = ends;
    const name = end?.upload.stage?.route ?? end?.route.name;
    const pattern = settings.routes.find((route) => route.name === name)?.alias;
    if (end === undefined || pattern === undefined) continue;
    wanted.set(`${settings.resultsPrefix}${beginningOf(pattern, firstKeyOf(end))}`, newestOf(world, ends));
  }
  const found = (await inspector.list(RESULTS)).map(({ key }) => key).filter(isAlias);
  for (const [beginning, flows] of wanted) {
    const own = found.filter(
      (key) => key.startsWith(beginning) && /^(\/\d+)?(\.[^/]*)?$/.test(key.slice(beginning.length)),
    );
    demand(own.length > 0, 'a success has no alias', beginning, flows);
    for (const key of own) {
      const flow = decodeURIComponent((await inspector.open(RESULTS, key))?.flow ?? '');
      demand(flows.has(flow), 'an alias shows another success than the newest', key, flow, flows);
    }
  }
}

const firstKeyOf = ({ upload }: TerminalEntry): string => upload.stage?.first.key ?? upload.key;

/** What the aliases of a key begin with. A number and an extension may follow. */
const beginningOf = (pattern: string, key: string): string =>
  pattern
    .replace('{key}', key)
    .replace('{folder}/', key.replace(/[^/]*$/, ''))
    .replace('{name}', key.replace(/^.*\//, '').replace(/\.[^.]*$/, ''))
    .replace(/\/?\{n\}|\{ext\}/g, '');

/** The flows that may be the newest success: as a rule one. */
function newestOf(world: World, ends: readonly TerminalEntry[]): ReadonlySet<string> {
  const firsts = ends.flatMap(({ upload }) => {
    const first = firstUploadOf(world, upload);
    return first === undefined ? [] : [{ upload: first }];
  });
  const { expected, excepted } = ownersAt(world, firsts);
  const ids = new Set([expected, ...excepted].map((first) => first?.upload.id));
  const own = ends.filter(({ upload }) => ids.has(upload.stage?.first.id ?? upload.id));
  const byUpload = Map.groupBy(own, ({ upload }) => upload.stage?.first.id ?? upload.id);
  // Two collectors may end two uploads of a stage in the same millisecond.
  const latestOf = (all: readonly TerminalEntry[]) =>
    all.filter((one) => all.every((other) => byTime(one, other) >= 0));
  return new Set([...byUpload.values()].flatMap(latestOf).flatMap(({ flow }) => flow?.id ?? []));
}

/** In a later stage, several uploads share the aliases. There it counts when their chain was made. */
const byTime = (one: TerminalEntry, other: TerminalEntry): number =>
  generationOf(one) - generationOf(other) || one.endedAt - other.endedAt;

const generationOf = ({ upload: { stage }, generation }: TerminalEntry): number =>
  stage === undefined ? generation : (stage.generation ?? 0);
