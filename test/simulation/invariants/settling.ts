import type { Entry } from '../../../functions/ledger/entry.ts';
import { isJobFile } from '../../../functions/uploads/job-keys.ts';
import { demand } from '../demand.ts';
import { flowTagOf } from '../flow-tag.ts';
import type { Put } from '../observations.ts';
import { SECOND } from '../timeline.ts';
import type { World } from '../world.ts';
import { isOf } from './facts.ts';

/** A file is sent only if its key did not change for as long as its route asks, unless an operator has it sent. */
export function checkSettling(world: World, entries: readonly Entry[]): void {
  const { settleSeconds } = world.scenario;
  if (settleSeconds === undefined) return;
  for (const flow of world.service.flows) {
    const { upload: id, generation, pipeline } = flowTagOf(flow) ?? {};
    if (pipeline === 'another') continue;
    const entry = entries.find(({ upload }) => upload.id === id);
    // An expired entry was made anew by the sweep, which knows no time of the put.
    if (entry === undefined || generation !== 1 || entry.upload.stage !== undefined) continue;
    // No jobs route asks for it. A job that is made anew has no inputs yet.
    if (isJobFile(entry.upload.key)) continue;
    const isAsked = world.observed.asked.some(({ retry = [] }) => retry.includes(entry.upload.id));
    if (isAsked || world.observed.expired.has(entry.upload.id)) continue;
    // Without versions, the same content put twice within a second is one upload.
    const put = world.observed.puts.findLast((each) => isOf(each, entry));
    if (put === undefined || isOld(put)) continue;
    const stillAt = put.at + settleSeconds * SECOND - world.scenario.skewMs - 2 * SECOND;
    const next = nextAt(world, put, entries);
    demand(flow.createdAt >= stillAt, 'a file was sent before it was still', entry, { stillAt, flow: flow.createdAt });
    demand(next === undefined || next.at >= stillAt, 'a file was sent although its key changed before it was still', {
      ...{ key: put.key, at: put.at, next: next?.at, flow: flow.createdAt },
      entry,
    });
  }
}

/** True for a multipart upload, which has the date of its beginning: the sweep takes it for a file that is still. */
const isOld = ({ at, lastModified }: Put): boolean => lastModified < at - 2 * SECOND;

/** The next file at the key. A copy that is no upload of its own leaves the one before it current. */
const nextAt = ({ observed }: World, put: Put, entries: readonly Entry[]): Put | undefined =>
  observed.puts
    .slice(observed.puts.indexOf(put) + 1)
    .find(
      (each) =>
        each.bucket === put.bucket &&
        each.key === put.key &&
        (each.etag !== put.etag || entries.some((entry) => isOf(each, entry))),
    );
