import type { Entry } from '../../../functions/ledger/entry.ts';
import { uploadId } from '../../../functions/uploads/upload.ts';
import { demand } from '../demand.ts';
import { HEALING_GAP_MAX_MS, isKept } from '../healing.ts';
import { DENIED_KEY, INBOX, LEDGER, NEXT_INBOX, NEXT_RESULTS, RESULT_BUCKETS } from '../names.ts';
import type { Put } from '../observations.ts';
import { isAlias } from '../s3-calls.ts';
import { routeNameFor } from '../storm-routes.ts';
import { SECOND } from '../timeline.ts';
import type { World } from '../world.ts';
import { failureCodeOf, isInvalidText, isSuperseded, isTerminal, isTooLarge, putOf } from './facts.ts';
import { isJobFile, jobOf, missingOf } from './jobs.ts';

/**
 * Time between two polls of a flow: a tenth of its age, and at most a quarter of an hour. The check demands a little
 * less than the functions promise.
 */
const GAP_SHARE_OF_AGE = 0.12;
const GAP_MAX_MS = 15 * 60_000;

/** Time for which a flow is left alone after a 402 that names no time. */
const SPENT_WAIT_MS = 5 * 60_000;

/**
 * The first two ticks after the healing poll every flow that can have become due since the last complete round. Two,
 * because the first may only finish a round that was cut off. They need not poll other flows. If another tick holds
 * the lease, they need not poll at all.
 */
export async function checkFirstTicks(world: World): Promise<void> {
  const { timeline, inspector, scenario, observed, invocations, service } = world;
  const { ticks } = observed;
  const markers = await inspector.list(LEDGER, 'running/');
  const now = timeline.now();
  const tickCount = ticks.length;
  // A tick that was killed or failed may have completed a round before.
  const completedAt = ticks
    .filter(({ result, rounds = 0 }) => result === undefined || result === 'completed' || rounds > 1)
    .map(({ startedAt, endedAt }) => endedAt ?? startedAt + scenario.collectLimitMs);
  const last = Math.max(...completedAt);
  await invocations.tick();
  await invocations.tick();
  if (ticks.slice(tickCount).some(({ result }) => result !== 'completed')) return;
  if (now < observed.leftAloneUntil + 2 * scenario.skewMs) return;
  const intervalMs = scenario.settings.pollIntervalSeconds * 1000;
  const left = new Set((await inspector.list(LEDGER, 'running/')).map(({ key }) => key));
  for (const { key } of markers) {
    // Another delivery may have published the end of an upload, and deleted its marker, before the ticks listed it.
    if (!left.has(key)) continue;
    const [, created = '', , flowId = ''] = key.split('/');
    const ageMs = now - Date.parse(created);
    const gapMs = Math.max(intervalMs, Math.min(GAP_MAX_MS, ageMs * GAP_SHARE_OF_AGE));
    if (now - last <= gapMs + 2 * scenario.skewMs) continue;
    // The answer to the last poll may have said that the account is spent. Other flows are left alone much shorter.
    const answer = observed.answers.get(decodeURIComponent(flowId))?.at(-1);
    if (answer?.status === 402 && now < answer.at + SPENT_WAIT_MS + 2 * scenario.skewMs) continue;
    const polledAt = observed.polledAt.get(decodeURIComponent(flowId)) ?? 0;
    const flow = service.flows.find(({ id }) => id === decodeURIComponent(flowId));
    const isListed = observed.listedAt >= now && flow !== undefined && flow.finishedAt === undefined;
    // A flow whose poll was slow has polls outside of the rounds.
    const isPolled = isListed || polledAt >= now || now - polledAt <= gapMs;
    demand(isPolled, 'a flow that was due was not polled', key, { now, last, gapMs });
  }
}

/**
 * An upload that was retried after the healing has a new end. It is the one that its file and today's settings deserve.
 */
export async function checkRetried(world: World): Promise<void> {
  const { scenario, inbox, observed } = world;
  // The longest flow may be longer than a flow's maximum age. Or no tick comes before it is too old to be stored.
  const ageMaxMs = scenario.settings.flowAgeMaxSeconds * 1000;
  const mayTimeOut = scenario.flowMsMax > ageMaxMs || HEALING_GAP_MAX_MS > 2 * ageMaxMs;
  for (const entry of (await world.entries()).filter(isTerminal)) {
    const before = observed.retriedAfterHealing.get(entry.upload.id);
    const put = putOf(world, entry);
    // A held doubt goes on in its own generation. An upload outside of today's inbox is not sent.
    if (before === undefined || entry.generation <= before || put === undefined || put.bucket !== inbox) continue;
    const code = failureCodeOf(entry);
    const isGone = put.versionId === undefined && (code === 'upload-gone' || code === 'superseded');
    if ((['timed-out', 'undeclared-word'].includes(code ?? '') && mayTimeOut) || isGone) continue;
    const deserved =
      entry.upload.stage === undefined ? codesDeserved(world, put) : codesOfLaterStage(world, put, entry);
    demand(deserved.includes(code), 'a retry ended otherwise than the file and today’s settings deserve', {
      deserved,
      code,
      entry,
    });
  }
}

/** The failure codes with which an upload may end when nothing goes wrong; undefined stands for success. */
function codesDeserved(world: World, put: Put): readonly (string | undefined)[] {
  if (put.key === DENIED_KEY) return ['input-denied'];
  const { observed, scenario } = world;
  const { key, content } = put;
  if (routeNameFor(world.settings.routes, key) === undefined) return ['unrouted'];
  if (isJobFile(key)) return codesOfJob(world, put);
  if (content.byteLength === 0) return ['input-empty'];
  if (isTooLarge(world, put)) return ['input-too-large'];
  if (isInvalidText(put)) return ['invalid-text'];
  if (key.startsWith('bad/') && !observed.deployedAt.has('route')) return ['rejected'];
  if (key.startsWith('none/')) return ['outputs-failed'];
  if (!key.startsWith('fail/')) return [undefined];
  // If the service does not serve flows, only the outputs can tell how one ended.
  return scenario.variation.getFlow === 'served' ? ['flow-failed'] : ['flow-failed', undefined];
}

/** The same, for an upload of a later stage. Its route says what its flow makes. */
function codesOfLaterStage(world: World, first: Put, entry: Entry): readonly (string | undefined)[] {
  // If the newer file was deleted, the older one has no successor.
  const ifReplaced = isSuperseded(world, first, world.timeline.now()) ? ['superseded'] : [];
  if (!world.settings.routes.some(({ name }) => name === entry.upload.stage?.route)) return [...ifReplaced, 'unrouted'];
  return [...ifReplaced, ...codesOfWork(world, first, entry)];
}

function codesOfWork(world: World, first: Put, { inputs = [], route }: Entry): readonly (string | undefined)[] {
  const { copies = 1, fail = false, failed_outputs: failed = 0 } = route.parameters as Record<string, number | boolean>;
  const outputs = inputs.length * Number(copies);
  if (isTooLarge(world, first, inputs)) return ['input-too-large'];
  if (fail) return world.scenario.variation.getFlow === 'served' ? ['flow-failed'] : ['flow-failed', undefined];
  if (outputs === 0) return ['no-outputs'];
  return Number(failed) >= outputs ? ['outputs-failed'] : [undefined];
}

function codesOfJob(world: World, put: Put): readonly (string | undefined)[] {
  if (jobOf(put) === undefined) return ['invalid-job'];
  if (isSuperseded(world, put, world.timeline.now())) return ['superseded'];
  return [missingOf(world, put, world.timeline.now()).length > 0 ? 'inputs-missing' : undefined];
}

interface Snapshot {
  /** The ETags of all objects in all buckets, and the texts of receipts, without the notes that the ticks make, and the entries of held uploads. */
  readonly etags: ReadonlyMap<string, string>;
  /** The ids and keys of held uploads, and of those whose flow is still to be deleted. */
  readonly held: ReadonlyMap<string, string>;
}

export async function snapshotOf(world: World): Promise<Snapshot> {
  const etags = new Map<string, string>();
  // The functions search for the flow of a held upload every hour, and its entry counts that. So does one whose flow could
  // not be deleted.
  const goesOn = (entry: Entry): boolean => !isTerminal(entry) || isKept(world, entry);
  const entries = await world.entries();
  const held = new Map(entries.filter(goesOn).map(({ upload }) => [upload.id, upload.key]));
  for (const put of copiesInSkew(world, entries)) held.set(uploadId(put), put.key);
  const isNote = (key: string): boolean =>
    key.startsWith('state/') || key.startsWith('waiting/') || held.has(/^uploads\/(.*)\.json$/.exec(key)?.[1] ?? '');
  for (const bucket of [INBOX, NEXT_INBOX, ...RESULT_BUCKETS, LEDGER]) {
    for (const { key, etag } of await world.inspector.list(bucket)) {
      if (bucket === LEDGER && isNote(key)) continue;
      const isReceipt = RESULT_BUCKETS.some((name) => name === bucket) && /\/(receipt|chain)\.json$/.test(key);
      etags.set(`${bucket}/${key}`, isReceipt ? await textOfReceipt(world, bucket, key) : etag);
    }
  }
  return { etags, held };
}

/**
 * Copies of an upload that failed at nearly the same time. By the clock of the process that wrote its end, it may have
 * failed before the copy was put, although it was under way when the message of the copy came. A second message of the
 * copy then sends it.
 */
const copiesInSkew = ({ observed, scenario }: World, entries: readonly Entry[]): readonly Put[] =>
  observed.puts.filter(({ isCopy, bucket, key, at }) =>
    entries.some(
      ({ upload, ...entry }) =>
        isCopy &&
        upload.bucket === bucket &&
        upload.key === key &&
        entry.state === 'failed' &&
        Math.abs(entry.endedAt - at) <= scenario.skewMs + SECOND,
    ),
  );

/** A receipt without what the present routes decide, which may have changed since: what became of the file, and aliases. */
async function textOfReceipt(world: World, bucket: string, key: string): Promise<string> {
  const opened = await world.inspector.open(bucket, key);
  const {
    sourceIssue: _,
    aliases: __,
    aliasIssue: ___,
    ...receipt
  } = JSON.parse(opened?.body.toString() ?? '{}') as Record<string, unknown>;
  return JSON.stringify(receipt);
}

/**
 * @param isRenamed true if routes had other names for a while. Then the process that published an end may not have known
 * its route, so it made no alias, and left the file where it was. The next process that publishes the end makes up for it.
 */
export function checkUnchanged(before: Snapshot, after: Snapshot, isRenamed: boolean): void {
  // What is told again goes to today's bucket of the results.
  const isToldAnew = (key: string): boolean =>
    key.startsWith(`${NEXT_RESULTS}/`) &&
    (/\/(receipt|chain)\.json$/.test(key) || isAlias(key.slice(NEXT_RESULTS.length + 1)));
  const keys = [...new Set([...before.etags.keys(), ...after.etags.keys()])];
  // A held upload may end when its flow is searched for once more. What it makes stands below its key.
  const isOfHeld = (key: string): boolean =>
    [...before.held].some(([id, address]) => key.includes(id) || key.includes(`/${address}/`));
  const isOfRoute = (key: string): boolean =>
    isRenamed && (key.startsWith(`${INBOX}/`) || isAlias(key.slice(key.indexOf('/') + 1)));
  const differ = keys.filter(
    (key) => before.etags.get(key) !== after.etags.get(key) && !isToldAnew(key) && !isOfHeld(key) && !isOfRoute(key),
  );
  differ.push(...new Set(after.held.keys()).difference(before.held));
  demand(differ.length === 0, 'doing everything again changed something', differ);
}
