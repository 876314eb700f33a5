import type { Entry } from '../../../functions/ledger/entry.ts';
import { demand } from '../demand.ts';
import type { Put } from '../observations.ts';
import { SECOND } from '../timeline.ts';
import type { World } from '../world.ts';
import { isOf } from './facts.ts';
import { folderOf, isJobFile } from './jobs.ts';

/**
 * A copy of an upload is no upload itself, unless the one before it failed, or it is a job file whose inputs were put since
 * then.
 */
export function checkCopies(world: World, entries: readonly Entry[]): void {
  for (const put of world.observed.puts.filter(({ isCopy }) => isCopy)) {
    if (copiedUploadOf(world, put)?.end !== 'no failure' || mayHaveNewInputs(world, put)) continue;
    const own = entries.find((entry) => isOf(put, entry));
    demand(own === undefined, 'a copy was taken for an upload', own);
  }
}

/** True if a file was put below a job between its job file and this copy of that. */
function mayHaveNewInputs({ observed: { puts } }: World, copy: Put): boolean {
  const since = puts.findLastIndex(
    ({ key, isCopy }, index) => key === copy.key && !isCopy && index < puts.indexOf(copy),
  );
  const between = puts.slice(since + 1, puts.indexOf(copy));
  return isJobFile(copy.key) && between.some(({ key }) => key !== copy.key && key.startsWith(folderOf(copy.key)));
}

/** True if a copy is meant, because the upload before it had failed by then, and was not retried since. */
export const isOfFailure = (world: World, put: Put): boolean => copiedUploadOf(world, put)?.end === 'failure';

/**
 * The upload whose content a copy has, and whether it ever failed. Undefined if that is unclear: it began after the copy,
 * was retried, expired or was damaged. Without versions it is unclear as well.
 */
function copiedUploadOf({ observed, orderChecker, scenario }: World, put: Put) {
  if (put.versionId === undefined) return undefined;
  const ofKey = observed.puts.filter(({ bucket, key }) => bucket === put.bucket && key === put.key);
  const before = ofKey.slice(0, ofKey.indexOf(put));
  const other = before.findLastIndex(({ etag }) => etag !== put.etag);
  const alike = before.slice(other + 1).toReversed();
  const uploads = [...orderChecker.uploads.values()];
  const upload = alike.map((one) => uploads.find((each) => isOf(one, { upload: each }))).find((each) => each);
  if (upload === undefined || observed.expired.has(upload.id) || observed.damaged?.id === upload.id) return undefined;
  const begunAt = orderChecker.begunAt.get(upload.id) ?? Number.POSITIVE_INFINITY;
  if (begunAt >= put.at) return undefined;
  const ends = [...orderChecker.endings.values()].filter((end) => end.upload.id === upload.id);
  if (ends.every(({ state }) => state !== 'failed')) return { end: 'no failure' } as const;
  const [end] = ends;
  const isFinal = ends.length === 1 && orderChecker.stateOf(upload.id) === 'failed';
  // Clocks differ, and S3 tells whole seconds.
  const surelyAt =
    Math.max(end?.endedAt ?? 0, (end && orderChecker.endWriteOf(end)?.at) ?? 0) + scenario.skewMs + SECOND;
  return isFinal && surelyAt < put.at ? ({ end: 'failure' } as const) : undefined;
}
