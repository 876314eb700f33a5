import { hash } from 'node:crypto';
import { presentRouteOf } from '../ledger/entry.ts';
import { isCanary } from '../uploads/inbox.ts';
import type { Route } from '../uploads/route.ts';
import type { RouteSnapshot } from '../uploads/route-snapshot.ts';
import { firstOf } from '../uploads/upload.ts';
import type { HoldPorts, Subject } from './attempt.ts';
import { prefixIn } from './costs.ts';
import {
  type AlikeEnd,
  failed,
  isNews,
  isSameRequest,
  type RouteRequest,
  type Success,
  succeeded,
  type Verdict,
} from './holds.ts';

/** Notes that a route works: the service took a request of it, or a flow of it succeeded. */
export function noteSuccess(
  subject: Subject,
  what: Success['what'],
  ports: HoldPorts,
  signal: AbortSignal,
): Promise<void> {
  return noted(subject, ports, async () => {
    const request = requestToHeed(subject, ports.settings);
    if (request === undefined) return;
    const { name } = subject.route;
    const success = { what, request };
    if (!isNews(await ports.holds.read(signal), name, success)) return;
    await ports.holds.change((draft) => succeeded(draft, name, success, ports.clock.now()), signal);
  });
}

/** Notes that the service rejected an upload, or failed its flow. The route may be failing then. */
export function noteFailure(subject: Subject, verdict: Verdict, ports: HoldPorts, signal: AbortSignal): Promise<void> {
  return noted(subject, ports, async () => {
    if (requestToHeed(subject, ports.settings) === undefined) return;
    const { name } = subject.route;
    // The route is failing already, and no further failure changes that.
    if ((await ports.holds.read(signal)).routes[name]?.failing !== undefined) return;
    const end = { ...verdict, end: endOf(subject, ports.settings) };
    if (!(await ports.holds.change((draft) => failed(draft, name, end, ports.clock.now()), signal))) return;
    ports.telemetry.log.error('The last files of this route failed alike', {
      uploadId: subject.upload.id,
      route: name,
      why: verdict.message,
    });
  });
}

/** Length of the hash of a file's key, in hexadecimal digits. It need only tell twenty keys apart. */
const FILE_DIGITS = 16;

function endOf({ upload, generation }: Subject, { inboxPrefix }: HoldPorts['settings']): AlikeEnd {
  const { key } = firstOf(upload);
  const file = hash('sha256', key).slice(0, FILE_DIGITS);
  return { outcome: `${upload.id}.${generation}`, file, customer: prefixIn(key, inboxPrefix) };
}

/**
 * Makes a note. If that fails, the failure is only logged: the upload must end all the same, and the next file that
 * ends makes the same note.
 */
async function noted({ upload }: Subject, { telemetry }: HoldPorts, note: () => Promise<void>): Promise<void> {
  try {
    await note();
  } catch (error) {
    telemetry.log.warn('An outcome could not be noted at its route', {
      uploadId: upload.id,
      error: error as Error,
    });
  }
}

/**
 * The request of an upload's route, if the upload's outcome says anything about it. Undefined if the route was removed
 * or changed since the upload began. Undefined also for the canary, which is the same file every hour.
 */
function requestToHeed(subject: Subject, settings: HoldPorts['settings']): RouteRequest | undefined {
  const { upload } = subject;
  if (isCanary({ bucket: upload.bucket, key: firstOf(upload).key }, settings)) return undefined;
  const present = presentRouteOf(subject, settings.routes);
  return present !== undefined && isOf(present, subject.route) ? requestOf(present) : undefined;
}

/**
 * True if a route has not changed since a snapshot of it. A route with `overrides` always counts as unchanged, because
 * the file may have replaced parts of the snapshot. A job may have replaced the parameters, so they are not compared.
 */
function isOf(route: Route, snapshot: RouteSnapshot): boolean {
  if (route.overrides === true) return true;
  const parameters = route.jobs === undefined ? snapshot.parameters : route.parameters;
  return isSameRequest(requestOf(route), { ...requestOf(snapshot), parameters });
}

const requestOf = ({ template, input, parameters }: RouteRequest): RouteRequest => ({ template, input, parameters });
