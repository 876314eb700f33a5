import type { KnownFailure } from '../ledger/failures.ts';
import type { Settings } from '../settings/environment.ts';
import type { OpenedUpload } from '../uploads/inbox.ts';
import { type GivenOverrides, InvalidOverrideError, type RouteSnapshot, snapshot } from '../uploads/route-snapshot.ts';
import { routeFor } from '../uploads/routes.ts';

/** The route that an upload takes. If it has a failure, the upload must not be sent. */
export interface Routed {
  readonly route: RouteSnapshot;
  readonly failure: KnownFailure | undefined;
}

/**
 * The route of the current configuration that wants an upload. Undefined if none does.
 * @param given what an operator gave for this retry.
 */
export function routed(settings: Settings, object: OpenedUpload, given?: GivenOverrides): Routed | undefined {
  const route = routeFor(settings.routes, object.upload);
  if (route === undefined) return undefined;
  try {
    return { route: snapshot(route, object.metadata, given), failure: inputFailure(settings, object, route.input) };
  } catch (error) {
    if (!(error instanceof InvalidOverrideError)) throw error;
    return { route: snapshot(route, {}), failure: { code: error.code, message: error.message } };
  }
}

/** Why a file cannot be sent under the present settings. Undefined if it can. */
export function inputFailure(
  { inputBytesMax, textBytesMax }: Pick<Settings, 'inputBytesMax' | 'textBytesMax'>,
  { upload, isArchived }: OpenedUpload,
  input: 'file' | 'text',
): KnownFailure | undefined {
  if (isArchived) {
    return { code: 'input-archived', message: 'The file is in an archive storage class: have it restored first.' };
  }
  const bytesMax = input === 'text' ? Math.min(textBytesMax, inputBytesMax) : inputBytesMax;
  if (upload.bytes === 0) return { code: 'input-empty', message: 'The file is empty.' };
  if (upload.bytes <= bytesMax) return undefined;
  return {
    code: 'input-too-large',
    message: `The file has ${upload.bytes} bytes, and at most ${bytesMax} are sent as ${input}.`,
  };
}
