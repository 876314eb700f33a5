import { hasCredentials, isHttpsOrLoopback, isLoopback, reachOf } from './addresses.ts';
import { assetOf } from './asset-answer.ts';
import {
  DamagedAssetError,
  ForbiddenAddressError,
  ForbiddenError,
  UnauthorisedError,
  UnavailableError,
  UnintelligibleAnswerError,
} from './errors.ts';
import { isCompressed } from './json-answer.ts';
import { holdsToken, redact } from './redact.ts';
import { type Answer, type Call, type Requests, readingFailure } from './requests.ts';
import { assetSubject, redirectSubject } from './throttled-subjects.ts';
import { TransportError, type TransportResponse } from './transport.ts';
import type { Asset } from './types.ts';

interface AssetRequest {
  readonly flowId: string;
  readonly assetId: string;
  /** Largest asset that is accepted, in bytes. */
  readonly assetBytesMax: number;
}

/** Downloads one asset. See {@link FlowService.asset} for the errors. */
export async function downloadAsset(
  requests: Requests,
  { flowId, assetId, assetBytesMax }: AssetRequest,
  signal: AbortSignal,
): Promise<Asset> {
  const url = requests.url('flows', flowId, 'outputs', assetId);
  const subject = assetSubject(flowId, assetId);
  const call: Call = { operation: 'asset', method: 'GET', url, subject };
  let answer = await requests.send(call, signal);
  if (isRedirect(answer.response)) {
    answer = await followRedirect(requests, answer, call, signal);
    if (isRedirect(answer.response)) {
      answer.response.destroy();
      throw new ForbiddenAddressError('The asset was redirected twice');
    }
  }
  const { response, secret, hadToken } = answer;
  if (response.status !== 200) {
    const error = await requests.errorFor(answer);
    // The other address got no token, so its 401 or 403 means that a signed address has expired. A new one helps.
    const hasExpired = error instanceof UnauthorisedError || error instanceof ForbiddenError;
    if (hadToken || !hasExpired) throw error;
    throw new UnavailableError(error.message, { cause: error, bodyStarted: false });
  }
  if (isCompressed(response)) {
    response.destroy();
    throw new DamagedAssetError('The asset is compressed, although the request did not allow it');
  }
  requests.noteServed('asset');
  const length = response.headers['content-length'];
  return assetOf(received(response, signal), {
    mediaType: response.headers['content-type'],
    secret,
    length: length === undefined ? undefined : Number(length),
    isDelimited: length !== undefined || response.headers['transfer-encoding'] !== undefined,
    assetBytesMax,
  });
}

const isRedirect = ({ status }: TransportResponse): boolean => [301, 302, 303, 307, 308].includes(status);

/** Follows a redirect if its target is allowed. Sends the token only to an address below the base. */
async function followRedirect(
  requests: Requests,
  { response, secret }: Answer,
  from: Call,
  signal: AbortSignal,
): Promise<Answer> {
  response.destroy();
  const { location } = response.headers;
  const url = location === undefined ? null : URL.parse(location, from.url.href);
  if (url === null) throw new UnintelligibleAnswerError('The asset was redirected to no address');
  const reach = requests.isLocal ? 'machine' : reachOf(response.address);
  const isAllowed = isHttpsOrLoopback(url) && (reach === 'machine' || !isLoopback(url));
  const holdsSecret = hasCredentials(url) || holdsToken(url.href, secret);
  if (!isAllowed || holdsSecret) {
    // Only the origin is quoted: the rest of the address may be a signature, which is as secret as a token.
    const why = holdsSecret ? ', with a user, a password or the token in the address' : '';
    throw new ForbiddenAddressError(`The asset was redirected to ${redact(url.origin, secret)}${why}`);
  }
  const call: Call = { ...from, url, subject: redirectSubject(from.subject) };
  if (requests.isForToken(url, secret)) return requests.send(call, signal);
  return requests.sendElsewhere({ ...call, reach }, secret, signal);
}

/** The bytes of the response. If the connection ends early, the asset is cut. If it stalls, a retry may help. */
async function* received({ body }: TransportResponse, signal: AbortSignal): AsyncGenerator<Uint8Array> {
  try {
    yield* body;
  } catch (error) {
    if (error instanceof TransportError && !error.timedOut && !signal.aborted) {
      throw new DamagedAssetError(`The answer was cut: ${error.message}`, { cause: error });
    }
    throw readingFailure(error, signal);
  }
}
