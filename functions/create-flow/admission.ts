import { FORM } from '../base/media-type.ts';
import { inputUrlSeconds } from '../flow-service/service-description.ts';
import type { KnownFailure } from '../ledger/failures.ts';
import type { Settings } from '../settings/environment.ts';
import { laterRoute } from '../uploads/chain-routes.ts';
import { codingMessage } from '../uploads/inbox.ts';
import { InvalidJobError, type Job, readJob } from '../uploads/job.ts';
import type { OpenedInput, OpenedUpload } from '../uploads/opened-upload.ts';
import type { Route } from '../uploads/route.ts';
import {
  type GivenOverrides,
  InvalidOverrideError,
  type RouteSnapshot,
  revisionOf,
  snapshot,
} from '../uploads/route-snapshot.ts';
import { routeFor } from '../uploads/routes.ts';
import type { Upload } from '../uploads/upload.ts';

/** The route that an upload takes. */
export interface Routed {
  readonly route: RouteSnapshot;
  /** Present if the upload must not be sent. */
  readonly failure?: KnownFailure | undefined;
  /** What the job file says, if the route takes jobs and the file can be used. */
  readonly job?: Job;
}

/**
 * The route of the current configuration that wants an upload. Undefined if none does.
 * @param given what an operator has changed in the route for this upload's retry.
 */
export async function routed(
  settings: Settings,
  object: OpenedUpload,
  signal: AbortSignal,
  given?: GivenOverrides,
): Promise<Routed | undefined> {
  const { stage } = object.upload;
  const route =
    stage === undefined ? routeFor(settings.routes, object.upload) : laterRoute(settings.routes, stage.route);
  if (route === undefined) return undefined;
  try {
    if (route.jobs !== undefined) return await routedJob(route, object, signal, given);
    return { route: snapshot(route, object.metadata, given), failure: inputFailure(settings, object, route.input) };
  } catch (error) {
    if (!(error instanceof InvalidOverrideError || error instanceof InvalidJobError)) throw error;
    return { route: snapshot(route, {}), failure: { code: error.code, message: error.message } };
  }
}

async function routedJob(
  route: Route,
  object: OpenedUpload,
  signal: AbortSignal,
  given: GivenOverrides | undefined,
): Promise<Routed> {
  if (object.isArchived) return { route: snapshot(route, {}), failure: ARCHIVED };
  const [own] = object.inputs;
  const failure = own && encodingFailure('The job file', own);
  if (failure !== undefined) return { route: snapshot(route, {}), failure };
  const job = await readJob(object, route, signal);
  const { parameters = route.parameters, deadlineSeconds = route.deadlineSeconds } = job;
  const chosen = snapshot({ ...route, parameters }, object.metadata, given);
  return { route: { ...chosen, revision: revisionOf(route) }, job: { ...job, deadlineSeconds } };
}

/** @internal */
export const ARCHIVED: KnownFailure = {
  code: 'input-archived',
  message: 'The file is in an archive storage class: have it restored first.',
};

/** Why an upload cannot be sent under the present settings. Undefined if it can. */
export function inputFailure(
  settings: SizeLimits & Pick<Settings, 'service'>,
  { upload, inputs, isArchived }: OpenedUpload,
  as: 'file' | 'text',
): KnownFailure | undefined {
  if (isArchived) return ARCHIVED;
  for (const input of inputs) {
    const what = nameOf(input, upload);
    const failure = sizeFailure(settings, what, input.source.bytes, input.as ?? as) ?? encodingFailure(what, input);
    if (failure !== undefined) return failure;
    if (input.address === undefined && inputUrlSeconds(settings.service) !== undefined) return unversioned(what);
  }
  return undefined;
}

const unversioned = (what: string): KnownFailure => ({
  code: 'input-unversioned',
  message:
    `${what} has no version id, so the service could fetch something else from its address. ` +
    'Turn on the versions of its bucket, or have the file sent: "{input}" in place of "{inputUrl}".',
});

/**
 * Why an object is not the file itself, but a compressed file or a form around it. Undefined if it is the file.
 * @param what names the object in the message.
 */
export function encodingFailure(
  what: string,
  { mediaType, coding }: Pick<OpenedInput, 'mediaType' | 'coding'>,
): KnownFailure | undefined {
  if (coding !== undefined) return { code: 'input-encoded', message: codingMessage(what, coding) };
  if (mediaType !== FORM) return undefined;
  const todo = 'Put the file itself, with its own Content-Type: with curl by -T FILE, and not by -F.';
  return { code: 'input-encoded', message: `${what} was put as a form (${FORM}), which is wrapped around it. ${todo}` };
}

type SizeLimits = Pick<Settings, 'inputBytesMax' | 'textBytesMax'>;

/**
 * Why an input of this size cannot be sent. Undefined if it can.
 * @param what names the input in the message.
 */
export function sizeFailure(
  { inputBytesMax, textBytesMax }: SizeLimits,
  what: string,
  bytes: number,
  as: 'file' | 'text',
): KnownFailure | undefined {
  if (bytes === 0) return { code: 'input-empty', message: `${what} is empty.` };
  const bytesMax = as === 'text' ? Math.min(textBytesMax, inputBytesMax) : inputBytesMax;
  if (bytes <= bytesMax) return undefined;
  return { code: 'input-too-large', message: `${what} has ${bytes} bytes, and at most ${bytesMax} are sent as ${as}.` };
}

function nameOf({ key }: OpenedInput, upload: Upload): string {
  if (key === undefined) return 'A text of the job';
  if (key === upload.key) return 'The file';
  return upload.stage === undefined ? `The input ${key}` : `The asset ${key}`;
}
