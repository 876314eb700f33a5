import pMap from 'p-map';
import {
  collectedAgain,
  failedMarkerOf,
  isFlowShared,
  isTerminal,
  runningMarkerOf,
  type StoredAsset,
  type TerminalEntry,
} from '../ledger/entry.ts';
import { isPublished, publish } from '../publish/publish.ts';
import { type RankPorts, ranked, readTold, replaceMarked } from '../resubmit/operator-changes.ts';
import { headObject } from '../s3/objects.ts';
import type { CollectPorts } from './tick.ts';

type CollectAgainPorts = CollectPorts & RankPorts;

/** Uploads and assets that are looked at side by side. */
const CONCURRENCY = 16;

/** The result for one upload whose results an operator asked to fetch again. */
export interface CollectedAgain {
  readonly upload: string;
  /** `shared`: it is unknown whose results they are, so they are never fetched. */
  readonly result: 'begun' | 'unknown' | 'under way' | 'without a flow' | 'shared';
}

/**
 * Lets the ticks collect flows again that have ended. Results that are still in their bucket stay as they are, and the
 * others are fetched. No flow is made.
 */
export function collectAgain(
  uploadIds: readonly string[],
  ports: CollectAgainPorts,
  signal: AbortSignal,
): Promise<readonly CollectedAgain[]> {
  return pMap(uploadIds, (upload) => beginAgain(upload, ports, signal), { concurrency: CONCURRENCY });
}

async function beginAgain(upload: string, ports: CollectAgainPorts, signal: AbortSignal): Promise<CollectedAgain> {
  const { ledger } = ports;
  const stored = await readTold(upload, ports, signal);
  if (stored === undefined) return { upload, result: 'unknown' };
  const { entry } = stored;
  if (!isTerminal(entry)) return { upload, result: 'under way' };
  if (entry.flow === undefined) return { upload, result: 'without a flow' };
  if (isFlowShared(entry)) return { upload, result: 'shared' };
  // After the change no entry would tell of the old end.
  if (!(await isPublished(entry, ledger, signal))) await publish(entry, ports, signal);
  const assets = await assetsThere(entry, ports, signal);
  const again = collectedAgain(await ranked(entry, ports, signal), entry.flow, assets, ports.clock.now());
  const written = await replaceMarked(stored, again, ports, signal);
  if (!written.won) return { upload, result: 'under way' };
  await ledger.putRunningMarker(runningMarkerOf(again.upload, again.flow), signal);
  if (entry.state === 'failed') await ledger.deleteFailedMarker(failedMarkerOf(entry), signal);
  return { upload, result: 'begun' };
}

/** The assets of an ended upload that are still in the results bucket. */
async function assetsThere(
  { assets }: TerminalEntry,
  { s3, settings: { resultsBucket: Bucket } }: CollectPorts,
  signal: AbortSignal,
): Promise<readonly StoredAsset[]> {
  const heads = await pMap(assets, ({ key: Key }) => headObject(s3, { Bucket, Key }, signal), {
    concurrency: CONCURRENCY,
  });
  return assets.filter((_, index) => heads[index] !== undefined);
}
