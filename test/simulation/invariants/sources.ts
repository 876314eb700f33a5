import type { TerminalEntry } from '../../../functions/ledger/entry.ts';
import type { ChainReport } from '../../../functions/publish/report-schemas.ts';
import { demand } from '../demand.ts';
import { DENIED_KEY } from '../names.ts';
import { isOfChain } from '../observations.ts';
import { isWholeReport } from '../storm-sources.ts';
import type { World } from '../world.ts';
import { isLaterEnd } from './chains.ts';
import { failureCodeOf } from './facts.ts';

/**
 * Each file was tagged or deleted, as its route asks, in exactly the version that was sent. The route may have been another
 * one at its end if routes were changed. While the storm goes on, each deletion is checked too.
 */
export async function checkSources(world: World, entries: readonly TerminalEntry[]): Promise<void> {
  const { observed, settings } = world;
  if (observed.routings.length > 1 || observed.damaged !== undefined) return;
  for (const entry of entries) {
    const { upload, route } = entry;
    const asked = settings.routes.find(({ name }) => name === route.name)?.afterSuccess;
    if (upload.stage !== undefined || asked === undefined || upload.key === DENIED_KEY) continue;
    if (observed.expired.has(upload.id)) continue;
    const ends = endsOf(world, entry);
    if (asked === 'tag') await checkTag(world, entry, ends);
    else if (ends.at(-1) === true) await checkDeleted(world, entry);
  }
}

/** Whether the ends of an upload, or of its chain, were whole, the last one last. One that gave way is no end of a file. */
function endsOf({ settings, orderChecker, observed }: World, { upload, route }: TerminalEntry): readonly boolean[] {
  if (settings.routes.some(({ after }) => after === route.name)) {
    // If a newer file has the address, there is an event, and no chain.json.
    const told = observed.published.filter(isOfChain).map(({ detail }) => JSON.parse(detail) as ChainReport);
    const own = told.filter((report) => report.upload.id === upload.id);
    return own.toSorted((one, other) => (isLaterEnd(one, other) ? 1 : -1)).map(isWholeReport);
  }
  return [...orderChecker.endings.values()]
    .filter((end) => end.upload.id === upload.id && failureCodeOf(end) !== 'superseded')
    .map(({ state, failedOutputs }) => state === 'succeeded' && failedOutputs.length === 0);
}

async function checkTag(world: World, { upload, flow }: TerminalEntry, ends: readonly boolean[]): Promise<void> {
  const { bucket, key, versionId } = upload;
  const { inspector, observed, scenario, faultPlan } = world;
  if (versionId === undefined) return;
  // The sweep takes what follows a receipt for done.
  const mayMessageDie = scenario.isLossy && flow === undefined;
  const tags = await inspector.tags(bucket, key, versionId);
  if (ends.length === 0) return demand(tags.length === 0, 'a file that was not sent has a tag', key, tags);
  // A tag has no condition. One of an earlier end may come late.
  const mayBeLate = observed.wasAnyFrozen || 'source.tag × late' in faultPlan.table;
  const wanted = (mayBeLate ? ends : ends.slice(-1)).map((isWhole) => `flowdrop=${isWhole ? 'succeeded' : 'failed'}`);
  const isRight = tags.length === 0 ? mayMessageDie : tags.every((tag) => wanted.includes(tag));
  demand(isRight, 'a file has another tag than its end', key, tags, wanted);
}

async function checkDeleted({ inspector }: World, { upload }: TerminalEntry): Promise<void> {
  const { bucket, key, versionId, etag, lastModified } = upload;
  const current = await inspector.open(bucket, key);
  if (current === undefined) return;
  const isIt =
    versionId === undefined
      ? current.etag === etag && current.lastModified === lastModified
      : current.versionId === versionId;
  demand(!isIt, 'a file was not deleted after its success', key, upload);
}
