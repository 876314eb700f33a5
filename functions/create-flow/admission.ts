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
  const { stage } = object.upload;
  const route =
    stage === undefined
      ? routeFor(settings.routes, object.upload)
      : settings.routes.find(({ name, after }) => name === stage.route && after !== undefined);
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
  { upload, inputs, isArchived }: OpenedUpload,
  as: 'file' | 'text',
): KnownFailure | undefined {
  if (isArchived) {
    return { code: 'input-archived', message: 'The file is in an archive storage class: have it restored first.' };
  }
  const bytesMax = as === 'text' ? Math.min(textBytesMax, inputBytesMax) : inputBytesMax;
  const unfit = inputs.find(({ bytes }) => bytes === 0 || bytes > bytesMax);
  if (unfit === undefined) return undefined;
  const what = upload.stage === undefined ? 'The file' : `The asset ${unfit.key}`;
  return unfit.bytes === 0
    ? { code: 'input-empty', message: `${what} is empty.` }
    : {
        code: 'input-too-large',
        message: `${what} has ${unfit.bytes} bytes, and at most ${bytesMax} are sent as ${as}.`,
      };
}
