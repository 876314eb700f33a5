import { randomUUID } from 'node:crypto';
import { basename } from 'node:path';
import { shellWord } from '../functions/base/printable.ts';
import { CANARY_BYTES_MAX } from '../functions/create-flow/create-event.ts';
import { headObject } from '../functions/s3/objects.ts';
import { isDenied } from './aws-requests.ts';
import { encryptionAdvice, type Outcome } from './checks.ts';
import { uploadCommand } from './commands.ts';
import type { Deployment } from './deployment.ts';
import { follow } from './follow.ts';
import { type FileToPut, put } from './put.ts';
import type { Put } from './put-body.ts';
import { routeFile, routeOfFile } from './route-file.ts';
import type { UploadView } from './upload-view.ts';

/** Time for a canary to come to its receipt, in milliseconds. */
const CANARY_MAX_MS = 30 * 60_000;

/** A file that is put into the inbox to see whether it comes to its receipt. */
export interface CanaryFile extends FileToPut {
  /** The time that it may take, in milliseconds. Default: half an hour. */
  readonly withinMs?: number | undefined;
}

/** The key of a canary: a new one, which a route takes. Undefined if none takes such a file. */
export function canaryOf(path: string, deployment: Deployment): CanaryFile | undefined {
  const name = `canary-${randomUUID()}/${basename(path)}`;
  const prefixes = ['', ...deployment.settings.routes.flatMap((route) => route.prefixes ?? [])];
  const files = prefixes.map((prefix) => ({ path, key: `${prefix}${name}` }));
  return deployment.areRoutesKnown ? files.find((file) => routeOfFile(file, deployment) !== undefined) : files[0];
}

/** Puts the file and follows it to its receipt. Its flow is paid for. */
export async function examineCanary(file: CanaryFile, deployment: Deployment, signal: AbortSignal): Promise<Outcome> {
  const { withinMs = CANARY_MAX_MS } = file;
  let uploaded: Put;
  try {
    uploaded = await put(file, {}, deployment, { signal });
  } catch (error) {
    if (!isDenied(error)) throw error;
    const { message } = error as Error;
    return {
      notChecked: `AWS does not allow you to put the file: ${message}.${encryptionAdvice(deployment.settings)}`,
    };
  }
  const { id, key } = uploaded;
  const limit = AbortSignal.timeout(withinMs);
  const until = AbortSignal.any([signal, limit]);
  const todo = `See ${uploadCommand('status', { id, key }, deployment)}, and the other findings.`;
  let view: UploadView | undefined;
  try {
    await follow([id], deployment, until, ([seen]) => {
      view = seen;
    });
  } catch (error) {
    signal.throwIfAborted();
    if (!limit.aborted) throw error;
    const seconds = Math.round(withinMs / 1_000);
    if (view?.endedAt === undefined) {
      return { severity: 'fault', what: `The canary ${key} has not ended within ${seconds} s.`, todo };
    }
    if (view.failure === undefined) {
      const what = `The canary ${key} ended, and its receipt did not come within ${seconds} s.`;
      return { severity: 'fault', what, todo };
    }
  }
  if (view?.failure !== undefined) {
    const what = `The canary ${key} failed: ${view.failure.code}: ${view.failure.message}`;
    return { severity: 'fault', what, todo: view.failure.advice ?? todo };
  }
  if (view?.endedAt === undefined) {
    return { severity: 'fault', what: `The canary ${key} waits: ${view?.wait?.message}`, todo };
  }
  const { bucket: Bucket, receipt: Key } = view.results;
  if ((await headObject(deployment.s3, { Bucket, Key }, signal)) !== undefined) return 'good';
  return { severity: 'fault', what: `The canary ${key} ended, and there is no receipt of it.`, todo };
}

/** Tells whether the file that a deployment puts again every hour is there, and would become a flow. */
export async function examineHourlyCanary(deployment: Deployment, signal: AbortSignal): Promise<Outcome> {
  const { s3, settings, isLocal } = deployment;
  const { inboxBucket, canaryKey } = settings;
  if (canaryKey === '' || isLocal) return 'good'; // A local run puts none.
  const object = await headObject(s3, { Bucket: inboxBucket, Key: canaryKey }, signal);
  const place = `${inboxBucket}/${canaryKey}`;
  const put = `aws s3 cp <file> ${shellWord(`s3://${place}`)}`;
  if (object === undefined) {
    const what = `The canary ${place} is not there, so none is put again, and the alarm canary-missing is raised.`;
    return { severity: 'fault', what, todo: `Put it once: ${put}` };
  }
  const { ContentLength: bytes = 0, ContentType: mediaType } = object;
  if (bytes > CANARY_BYTES_MAX) {
    const what = `The canary ${place} has ${bytes} bytes, and may have ${CANARY_BYTES_MAX}.`;
    return { severity: 'fault', what, todo: `Put a smaller one: ${put}` };
  }
  const { issue } = routeFile({ key: canaryKey, bytes, mediaType }, deployment);
  if (issue === undefined) return 'good';
  return { severity: 'fault', what: `No flow is made of the canary ${place}. ${issue}`, todo: `Put another: ${put}` };
}
