import type { TerminalEntry } from '../../../functions/ledger/entry.ts';
import { demand } from '../demand.ts';
import { RESULT_BUCKETS, RESULTS } from '../names.ts';
import { isAlias } from '../s3-calls.ts';
import type { World } from '../world.ts';

const EXPIRES = 'flowdrop=asset';

/**
 * In the end, S3 may expire every asset that no later stage takes any more, and nothing else. While the storm goes on, it
 * is checked that no asset may that is still needed.
 */
export async function checkRetention(world: World, entries: readonly TerminalEntry[]): Promise<void> {
  const { inspector, observed, scenario, expiryWatch, faultPlan } = world;
  for (const bucket of RESULT_BUCKETS) {
    for (const { key } of await inspector.list(bucket)) {
      const mayExpire = scenario.resultsRetentionDays !== undefined && !/\/(receipt|chain)\.json$/.test(key);
      const tags = await inspector.tags(bucket, key);
      demand(tags.length === 0 || (mayExpire && !isAlias(key)), 'S3 may expire what must stay', key, tags);
    }
  }
  if (expiryWatch === undefined || observed.damaged !== undefined || observed.expired.size > 0) return;
  // A tag that was taken away long after the invocation had given up on that: nobody sets it again.
  if (Object.keys(faultPlan.table).some((pair) => pair.startsWith('asset.tag ') && pair.includes('late'))) return;
  for (const entry of entries.filter((each) => isDoneWith(world, each))) {
    for (const { key } of entry.assets) {
      const tags = await inspector.tags(RESULTS, key);
      demand(tags.includes(EXPIRES), 'an asset never expires, and nobody takes it any more', key, entry);
    }
  }
}

/**
 * True if an upload has no chain, or that has ended. A chain that began anew has forgotten its uploads before. If one of
 * these is retried all the same, nobody lets its assets expire.
 */
function isDoneWith({ chainWatch }: World, entry: TerminalEntry): boolean {
  const chain = chainWatch.chainOf(entry);
  return chain === undefined ? entry.upload.stage === undefined : !chainWatch.isUnderWay(chain);
}
