import pMap from 'p-map';
import { iso } from '../base/clock.ts';
import { shorten, toldIssues } from '../base/printable.ts';
import { copiedEntry, currentUpload, isSameContent } from '../ledger/copies.ts';
import {
  type ClaimedEntry,
  type Entry,
  gathered,
  inputOf,
  isAwaited,
  isTerminal,
  isUntold,
  lacking,
} from '../ledger/entry.ts';
import type { Stored } from '../ledger/store.ts';
import { SUPERSEDED } from '../ledger/terminal-states.ts';
import { ambiguousWords, awaitedInputs, type Job, nearWords } from '../uploads/job.ts';
import { byConfusable, comparable, filesFor, folderOf, inputKey } from '../uploads/job-keys.ts';
import type { OpenedUpload } from '../uploads/opened-upload.ts';
import { putAt, type Upload } from '../uploads/upload.ts';
import { UploadUnreadableError } from '../uploads/upload-errors.ts';
import { inputFailure } from './admission.ts';
import { type Claim, rewritten } from './claim.ts';
import { ClaimHeldError, type Delivery } from './delivery.ts';
import { type Ending, failing } from './ending.ts';
import { endingOf, send } from './send.ts';

/** Number of inputs of a job that are looked up at the same time. */
const CONCURRENCY = 8;

/**
 * While a job looks for its inputs, the delivery of such an input sleeps. It reads the job's entry every
 * `LOOKING_MS`, and gives up after `LOOKING_MAX_MS`, in milliseconds.
 */
const LOOKING_MS = 500;
const LOOKING_MAX_MS = 3_000;

/**
 * Sends a job whose inputs are there. Otherwise the job waits for them, until its deadline.
 *
 * The inputs are written into the entry, in the versions that are current now, before anything is sent. So every
 * attempt of this generation sends the same.
 */
export async function sendJob(delivery: Delivery, claim: Claim, object: OpenedUpload, job: Job): Promise<Ending> {
  const { inbox, settings } = delivery.ports;
  let { inputs } = claim.entry;
  if (inputs === undefined) {
    let found: Found;
    try {
      found = await findInputs(delivery, claim.entry.upload, job);
    } catch (cause) {
      const error = new UploadUnreadableError(`The inputs of ${object.upload.key} could not be looked up`, { cause });
      return endingOf(delivery, claim, error);
    }
    if (found.isSuperseded) {
      const message = `A newer job file was put at ${object.upload.key} before this job was sent.`;
      return failing(delivery, claim, { code: SUPERSEDED, message });
    }
    if (found.ambiguous.length > 0) {
      const message = toldIssues(found.ambiguous).join(' ');
      return failing(delivery, claim, { code: 'invalid-job', message });
    }
    if (found.missing.length > 0) return waitForInputs(delivery, claim, job, found);
    inputs = found.inputs.map(inputOf);
    claim = await rewritten(delivery, claim, gathered(claim.entry, inputs));
  }
  const opened = inbox.openJob(object, job, inputs);
  const failure = inputFailure(settings, opened, claim.entry.route.input);
  return failure === undefined ? send(delivery, claim, opened) : failing(delivery, claim, failure);
}

/**
 * True if a copied job file begins a new job: an input that was put before the copy differs from the one that the
 * original job took. Otherwise, the file was copied for its metadata.
 */
export async function hasNewInputs(
  delivery: Delivery,
  upload: Upload,
  job: Job,
  { inputs: taken }: Pick<Entry, 'inputs'>,
): Promise<boolean> {
  if (taken === undefined) return false;
  const { inputs } = await findInputs(delivery, upload, job);
  for (const input of inputs.filter((each) => putAt(each) <= putAt(upload))) {
    const before = taken.find(({ key }) => key === input.key);
    if (before === undefined) return true;
    if (!(await isSameContent(input, before, delivery.ports, delivery.invocation.work))) return true;
  }
  return false;
}

interface Found {
  /** When the look began, in milliseconds since the epoch. */
  readonly lookedAt: number;
  readonly inputs: readonly Upload[];
  /** Names of the inputs that are empty, or not there and not optional. */
  readonly missing: readonly string[];
  /** A sentence for each name that no file has exactly, but several have in another Unicode form or spacing. */
  readonly ambiguous: readonly string[];
  /** A sentence for each name whose file is empty, or is not there while a file beside the job has a similar name. */
  readonly hints: readonly string[];
  /** True if a newer job file is at the key. False if no file is there. */
  readonly isSuperseded: boolean;
}

async function findInputs({ ports, invocation }: Delivery, { id, bucket, key }: Upload, job: Job): Promise<Found> {
  const lookedAt = ports.clock.now();
  const current = (at: string) => ports.inbox.current(bucket, at, invocation.work);
  const files = job.inputs.flatMap((input) => ('name' in input ? [input] : []));
  const named = files.map(({ name }) => inputKey(key, name));
  const { id: currentId } = await currentUpload({ id, bucket, key }, ports, invocation.work);
  const exact = await pMap(named, current, { concurrency: CONCURRENCY });
  const isComplete = exact.every((upload) => upload !== undefined);
  const beside = isComplete ? [] : await ports.inbox.keysBeside(bucket, key, invocation.work);
  const nameOf = (file: { readonly key: string }): string => file.key.slice(folderOf(key).length);
  // Each of them is compared once, and not with each name of the job: an uploader may put thousands of long names there.
  const others = beside.filter((each) => !named.includes(each)).map((each) => ({ key: each }));
  const byForm = Map.groupBy(others, (each) => comparable(each.key));
  const near = byConfusable(others.map(nameOf));
  const ambiguous: string[] = [];
  const hints: string[] = [];
  const uploads = await pMap(
    files,
    async ({ name }, index) => {
      if (exact[index] !== undefined) return exact[index];
      const at = named[index] as string;
      const fitting = filesFor(at, named, byForm.get(comparable(at)) ?? []);
      if (fitting.length === 1) return current(fitting[0]?.key as string);
      if (fitting.length > 1) {
        ambiguous.push(ambiguousWords(name, fitting.map(nameOf)));
      }
      const hint = nearWords(name, near);
      if (hint !== undefined) hints.push(hint);
      return undefined;
    },
    { concurrency: CONCURRENCY },
  );
  // A mounted bucket puts a file first without its content.
  const isEmpty = (index: number): boolean => uploads[index]?.bytes === 0;
  const names = files.map(({ name }) => name);
  hints.push(...names.filter((_, index) => isEmpty(index)).map((name) => `${shorten(name)} is empty.`));
  return {
    lookedAt,
    inputs: uploads.flatMap((upload) => upload ?? []),
    missing: names.filter((_, index) => isEmpty(index) || (!files[index]?.isOptional && uploads[index] === undefined)),
    ...{ ambiguous, hints },
    isSuperseded: currentId !== undefined && currentId !== id,
  };
}

function waitForInputs(delivery: Delivery, claim: Claim, job: Job, found: Found): Ending {
  const { missing, hints, lookedAt } = found;
  const { deadline } = claim.entry.job ?? awaitedInputs(job, claim.entry.arrivedAt);
  const names = missing.join(', ');
  const hinted = (message: string): string => [message, ...toldIssues(hints)].join(' ');
  // Only a look that began after the deadline is the last one: a file may have come during an earlier look.
  if (lookedAt >= deadline) {
    const were = missing.length === 1 ? 'input was' : 'inputs were';
    const message = `${missing.length} ${were} not there by ${iso(deadline)}: ${names}.`;
    return failing(delivery, claim, { code: 'inputs-missing', message: hinted(message) });
  }
  const message = hinted(`Missing inputs: ${names}.`);
  const entry = lacking(claim.entry, { deadline, missing });
  return { kind: 'wait', claim: { ...claim, entry }, wait: { reason: 'inputs', message, notBefore: deadline } };
}

/**
 * The entry of the job at `jobKey`, if the message of this file must resume that job. Otherwise undefined.
 * @throws {ClaimHeldError} the job still looks for its inputs, and may have missed this file.
 */
export async function jobFor(
  delivery: Delivery,
  { bucket, key }: Pick<Upload, 'bucket' | 'key'>,
  jobKey: string,
): Promise<Stored | undefined> {
  const { ports, invocation } = delivery;
  const { inbox, ledger, clock } = ports;
  const current = await inbox.current(bucket, jobKey, invocation.work);
  delivery.identify({ uploadId: current?.id });
  let stored = current && (await ledger.read(current.id, invocation.work));
  // A job without an entry looks for its inputs when its own message comes. The message of a copied job file is
  // skipped, so the entry of the original job counts.
  const copied = current && stored === undefined ? await copiedEntry(current, ports, invocation.work) : undefined;
  const job = copied?.upload.id ?? current?.id;
  delivery.identify({ uploadId: job });
  if (copied !== undefined) stored = await ledger.read(copied.upload.id, invocation.work);
  for (let waited = 0; job !== undefined && isLooking(stored, clock.now()); waited += LOOKING_MS) {
    if (waited >= LOOKING_MAX_MS) throw new ClaimHeldError(`The job ${jobKey} is looking for its inputs`);
    await clock.sleep(LOOKING_MS, invocation.work);
    stored = await ledger.read(job, invocation.work);
  }
  return stored !== undefined && isConcerned(stored.entry, key) ? stored : undefined;
}

/** True if the job may be looking for its inputs at this moment. */
const isLooking = (stored: Stored | undefined, now: number): boolean =>
  stored !== undefined && hasClaimToLook(stored.entry) && now < stored.entry.deadline;

/**
 * True in three cases: the job waits for this file; its invocation died before it had looked; or the job has taken the
 * file, and its receipt may be missing. In the third case, the invocation that began the job from this message may have
 * died, and only this message leads to the job.
 */
const isConcerned = (entry: Entry, key: string): boolean =>
  isAwaited(entry, key) || hasClaimToLook(entry) || (hasTaken(entry, key) && (!isTerminal(entry) || isUntold(entry)));

const hasClaimToLook = (entry: Entry): entry is ClaimedEntry => entry.state === 'claimed' && entry.job !== undefined;

const hasTaken = ({ inputs }: Entry, key: string): boolean => inputs?.some((input) => input.key === key) === true;
