import type { Entry } from '../../../functions/ledger/entry.ts';
import { demand } from '../demand.ts';
import { isKept } from '../healing.ts';
import { LEDGER } from '../names.ts';
import type { Put } from '../observations.ts';
import { routeNameFor } from '../storm-routes.ts';
import { SECOND } from '../timeline.ts';
import type { World } from '../world.ts';
import { isOfFailure } from './copies.ts';
import { failureCodeOf, isOf, isTerminal, putOf } from './facts.ts';

/** Time between the beginning of a multipart upload, which is its date, and its end, in milliseconds. */
const MULTIPART_MIN_MS = 2_000;

/** What the sweep logs of an upload without an entry. */
const SWEPT = 'The sweep submits an upload that has no entry';

/** True if a file is an upload for some of the routes that were ever deployed, or for all of them. */
const isRouted = ({ observed }: World, { key }: Put, how: 'some' | 'every'): boolean =>
  observed.routings[how]((routes) => routeNameFor(routes, key) !== undefined);

/**
 * Every routed upload that could ever be read has exactly one entry, and every entry has an upload. Each entry is
 * terminal or held.
 */
export async function checkEntries(world: World, entries: readonly Entry[]): Promise<void> {
  const { puts, damaged } = world.observed;
  for (const put of puts.filter((each) => isRouted(world, each, 'every'))) {
    if (damaged !== undefined && isOf(put, { upload: damaged })) continue;
    await checkEntryOf(world, put, entries);
  }
  for (const entry of entries) checkUploadOf(world, entry);
}

async function checkEntryOf(world: World, put: Put, entries: readonly Entry[]): Promise<void> {
  const { scenario, observed, orderChecker } = world;
  const own = entries.filter((entry) => isOf(put, entry));
  demand(own.length <= 1, 'an upload has several entries', put.key, own);
  const object = await world.inspector.open(put.bucket, put.key);
  const last = observed.puts.findLast(({ bucket, key }) => bucket === put.bucket && key === put.key);
  const isCurrent = put.bucket === world.inbox && object !== undefined && last === put;
  // Without versions, an upload that is replaced before it can be read is gone. If its notification is lost, the sweep
  // submits the current upload only.
  const isPinned = put.versionId !== undefined && put.isNotified && !scenario.isLossy && put.bucket === world.inbox;
  const expired = [...observed.expired.keys()].map((id) => orderChecker.uploads.get(id));
  const isExpired = expired.some((upload) => upload !== undefined && isOf(put, { upload }));
  // The sweep goes on from its last pass if it has lost its first day, and tells the operator. It does not look back to
  // the beginning of a multipart upload then.
  const { firstDayLostAt = 0 } = observed;
  const isBeforeFirstDay = scenario.isLossy && put.lastModified < Math.min(put.at - MULTIPART_MIN_MS, firstDayLostAt);
  // Nobody knows of an object without a notification whether it was put or copied. If its content is that of the one
  // before it at its key, nothing is sent of it.
  const ofKey = observed.puts.filter(({ bucket, key }) => bucket === put.bucket && key === put.key);
  const before = ofKey.slice(0, ofKey.indexOf(put));
  // Without versions, the one before it may have been replaced before it was read.
  const mayRepeat = put.versionId === undefined ? before : before.slice(-1);
  // Nor does the sweep know it, if the message of a notification has become a dead letter.
  const isUnknown =
    !put.isNotified || observed.logged.some((line) => line.message === SWEPT && line.fields?.key === put.key);
  const mayBeCopy =
    (put.isCopy ? !isOfFailure(world, put) : isUnknown) && mayRepeat.some(({ etag }) => etag === put.etag);
  // An empty file that is replaced or deleted within seconds is no upload.
  const isReplacedEmpty = put.content.byteLength === 0 && !isCurrent;
  const isExcused = isExpired || isBeforeFirstDay || mayBeCopy || isReplacedEmpty;
  const mustHave = (isCurrent || isPinned) && !isExcused;
  demand(own.length === 1 || !mustHave, 'an upload has no entry', { ...put, content: put.content.byteLength });
  // A copy may have none. But then no upload has given way to it: nothing would come of either.
  // What a damaged entry was about is unknown: the copy may be of that upload, which was sent.
  const isOfDamaged = observed.damaged?.bucket === put.bucket && observed.damaged.key === put.key;
  if (own.length === 1 || !isCurrent || isExpired || isOfDamaged) return;
  const ofUploads = entries.filter(({ upload }) => upload.bucket === put.bucket && upload.key === put.key);
  // Of two uploads of one second, one may have given way to the other. A multipart upload has the date of its beginning.
  const secondOf = (entry: Entry) =>
    Math.max(...ofKey.filter((each) => isOf(each, entry)).map(({ at }) => Math.floor(at / SECOND)));
  const latest = Math.max(...ofUploads.map(secondOf));
  const newest = ofUploads.filter((entry) => secondOf(entry) === latest);
  const isLost = newest.every((entry) => ['superseded', 'upload-gone'].includes(failureCodeOf(entry) ?? ''));
  demand(newest.length === 0 || !isLost, 'an upload gave way to a copy that is not sent', newest);
}

function checkUploadOf(world: World, entry: Entry): void {
  const { scenario } = world;
  const put = putOf(world, entry);
  demand(put !== undefined && isRouted(world, put, 'some'), 'an entry is of no upload', entry);
  const isForOperator = scenario.settings.inDoubt === 'ask' || entry.doubt?.isAccepted === true;
  const isHeld = isForOperator && entry.state === 'waiting' && entry.reason === 'undecided';
  demand(isTerminal(entry) || isHeld, 'an upload is stuck', entry);
}

/** Only held uploads have markers, and successes whose flow is still to be deleted. What waits for a damaged entry stays. */
export async function checkMarkers(world: World, entries: readonly Entry[]): Promise<void> {
  const mayHave = (entry: Entry) => entry.state === 'waiting' || isKept(world, entry);
  const held = new Set(entries.filter(mayHave).map(({ upload }) => upload.id));
  const running = (await world.inspector.list(LEDGER, 'running/')).filter(({ key }) => !world.isDamaged(key));
  demand(running.length === 0, 'a marker of a running flow is left', running);
  const waiting = (await world.inspector.list(LEDGER, 'waiting/')).filter(({ key }) => !world.isStuck(key));
  const stray = waiting.filter(({ key }) => !held.has(key.split('/').at(-1) ?? ''));
  demand(stray.length === 0, 'a marker of a waiting upload is left', stray);
}

/**
 * Every failed upload has a marker at the time of its failure. Only an upload that was retried may have others: the
 * invocation that retried it may have died before it removed the marker. A reader compares each marker with its entry.
 */
export async function checkFailedMarkers(world: World, entries: readonly Entry[]): Promise<void> {
  const expected = entries.flatMap((entry) =>
    entry.state === 'failed'
      ? [
          `failed/${new Date(entry.endedAt).toISOString()}/${entry.upload.id}` +
            (entry.failure.code === 'superseded' ? '/replaced' : ''),
        ]
      : [],
  );
  const markers = (await world.inspector.list(LEDGER, 'failed/')).map(({ key }) => key);
  const missing = expected.filter((key) => !markers.includes(key));
  demand(missing.length === 0, 'a failed upload has no marker', missing);
  const neverRetried = entries
    // The marker of an entry that expired expires by the same rule. The entry may have been made anew since.
    .filter(({ generation, upload }) => generation === 1 && !world.observed.expired.has(upload.id))
    .map(({ upload }) => upload.id);
  const stray = markers.filter((key) => !expected.includes(key) && neverRetried.some((id) => key.includes(`/${id}`)));
  demand(stray.length === 0, 'a marker of a failure that never was', stray);
}
