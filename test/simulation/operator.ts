import type { Upload } from '../../functions/uploads/upload.ts';
import { type UploadEvent, uploadsOf } from '../../functions/uploads/upload-event.ts';
import { isOf } from './invariants/facts.ts';
import { folderOf, isInputOnly, isJobFile } from './invariants/jobs.ts';
import type { Put } from './observations.ts';
import type { World } from './world.ts';

/* What the operator of the pipeline does. */

/** Sends the dead letters to the queue again, except those about a damaged entry, which would come back for ever. */
export function redrive({
  deadLetters,
  queue,
  observed: { damaged, puts },
}: Pick<World, 'deadLetters' | 'queue' | 'observed'>): void {
  for (;;) {
    const [letter] = deadLetters.receive();
    if (letter === undefined) return;
    deadLetters.delete(letter.receiptHandle);
    const isStuck = (event: UploadEvent): boolean =>
      damaged !== undefined && (isAbout(event, damaged) || isBelowJob(event, damaged, puts));
    if (uploadsOf(JSON.parse(letter.body)).some(isStuck)) continue;
    queue.send(letter.body);
  }
}

/** True if a message is about an upload. Other versions of the same key are other uploads. */
function isAbout({ uploadId, bucket, key, versionId, etag }: UploadEvent, upload: Upload): boolean {
  if (uploadId !== undefined) return uploadId === upload.id;
  if (bucket !== upload.bucket || key !== upload.key) return false;
  return versionId === upload.versionId && etag === upload.etag;
}

/**
 * True if a message is about a file below a job, and the job is the one that is current at its key. Such a message leads
 * to the entry of the job.
 */
function isBelowJob({ uploadId, bucket, key }: UploadEvent, job: Upload, puts: readonly Put[]): boolean {
  if (uploadId !== undefined || bucket !== job.bucket || !isInputOnly(key)) return false;
  if (!isJobFile(job.key) || !key.startsWith(folderOf(job.key))) return false;
  const current = puts.findLast((put) => put.bucket === job.bucket && put.key === job.key && !put.isCopy);
  return current !== undefined && isOf(current, { upload: job });
}

/** Retries one failed upload while the storm goes on. */
export function retryOneFailure(world: World): void {
  void world.entries().then((entries) => {
    const failed = entries.filter(({ state }) => state === 'failed');
    if (failed.length === 0) return;
    const { upload } = world.randoms.main.pick(failed);
    world.trace(`the operator: retry ${upload.key}`);
    void world.invocations.startCollect({ retry: [upload.id] });
  });
}

/** Approves some of the uploads that wait for it. */
export async function approveSome(world: World, share = 0.5): Promise<void> {
  const approve = (await world.entries()).flatMap((entry) =>
    entry.state === 'waiting' && entry.reason === 'review' && world.randoms.reviews.chance(share)
      ? [entry.upload.id]
      : [],
  );
  if (approve.length === 0) return;
  world.trace(`the operator: approve ${approve.length} uploads`);
  void world.invocations.startCollect({ approve });
}

/** Cancels one upload that waits or runs. */
export function cancelOne(world: World): void {
  void world.entries().then((entries) => {
    const underWay = entries.filter(({ state }) => state === 'waiting' || state === 'running');
    if (underWay.length === 0) return;
    const { upload } = world.randoms.main.pick(underWay);
    world.trace(`the operator: cancel ${upload.key}`);
    void world.invocations.startCollect({ cancel: [upload.id] });
  });
}

/**
 * Has one file made anew with its chain; or one stage of a chain, and those after it: any that ever had an upload, or that
 * was added later.
 */
export function makeOneAnew(world: World): void {
  void world.entries().then((entries) => {
    const ended = entries.filter(({ state, upload }) => state === 'succeeded' || upload.stage !== undefined);
    if (ended.length === 0) return;
    const { upload, route } = world.randoms.main.pick(ended);
    const first = upload.stage?.first ?? upload;
    const isChanged = world.scenario.routeChanges !== undefined;
    const next = isChanged ? world.settings.routes.filter(({ after }) => after === route.name) : [];
    const isNext = next.length > 0 && world.randoms.main.chance(0.6);
    const own = world.randoms.main.chance(0.3) ? undefined : route.name;
    const from = isNext ? world.randoms.main.pick(next).name : own;
    world.trace(`the operator: make ${from ?? 'all'} of ${first.key} anew`);
    void world.invocations.startCollect({ again: [first.id], ...(from !== undefined && { from }) });
  });
}

/** Begins a stage that was added later, for all files of its route that have succeeded. */
export async function beginAdded(world: World, added: readonly string[]): Promise<void> {
  const entries = await world.entries();
  for (const { name, after } of world.settings.routes.filter((route) => added.includes(route.name))) {
    const ended = entries.filter(({ state, route, upload }) => {
      return state === 'succeeded' && route.name === after && upload.stage === undefined;
    });
    if (ended.length === 0) continue;
    world.trace(`the operator: begin ${name} for ${ended.length} files`);
    void world.invocations.startCollect({ again: ended.map(({ upload }) => upload.id), from: name });
  }
}

/** Retries all uploads that failed or are held, after the healing. */
export async function retryFailures(world: World): Promise<void> {
  const entries = await world.entries();
  const failed = entries.filter(({ state }) => state === 'failed' || state === 'waiting');
  if (failed.length === 0) return;
  for (const { state, upload, generation } of failed) {
    world.observed.retriedAfterHealing.set(upload.id, generation);
    if (state === 'waiting') world.observed.releasedByHand.add(upload.id);
  }
  await world.invocations.collect({ retry: failed.map(({ upload }) => upload.id) });
}

/** Retries all uploads that have succeeded, by mistake. */
export async function retrySuccesses(world: World): Promise<void> {
  const succeeded = (await world.entries()).filter(({ state }) => state === 'succeeded');
  if (succeeded.length === 0) return;
  await world.invocations.collect({ retry: succeeded.map(({ upload }) => upload.id) });
}
