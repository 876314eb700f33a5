import type { Clock } from '../base/clock.ts';
import { hasCredentials, isHttpsOrLoopback, isLoopback, reachOf } from './addresses.ts';
import { assetOf } from './asset-answer.ts';
import { CodingError, decodedBody, isCompressed } from './content-coding.ts';
import {
  AddressRefusedError,
  DamagedAssetError,
  ForbiddenAddressError,
  ForbiddenError,
  TooSlowError,
  UnintelligibleAnswerError,
} from './errors.ts';
import { nextLink } from './link-header.ts';
import { assetSubject, redirectSubject } from './pacer.ts';
import { leadsOn } from './pages.ts';
import { holdsToken, redact } from './redact.ts';
import { type Answer, type Call, type Requests, readingFailure } from './requests.ts';
import { TimeLimit } from './time-limit.ts';
import { TransportError, type TransportResponse } from './transport.ts';
import type { Asset, AssetOptions } from './types.ts';

/**
 * Longest wait from the head of a response until its data begins, in milliseconds. An envelope may hold 64 KiB before
 * its data. These take about a second.
 */
const ENVELOPE_MS = 30_000;

/**
 * Redirects of an asset that are followed, each after the same checks: from the service to a store, and to a network
 * near us.
 */
const REDIRECTS_MAX = 3;

/** Time over which the rate of a download is measured, in milliseconds of waiting for the service. */
const RATE_WINDOW_MS = 30_000;

/** An address that an answer of the service names, or that a redirect leads to. */
interface NamedAddress {
  readonly answer: Answer;
  readonly address: string | undefined;
}

interface AssetRequest extends AssetOptions {
  readonly flowId: string;
  readonly assetId: string;
  /** Where it is: at an address of the service, or at one that an answer names. */
  readonly from: Pick<Call, 'url' | 'method' | 'body'> | NamedAddress;
  /** Pointer to the data URI of an asset that comes in JSON. Default: each answer is the asset itself. */
  readonly data?: string | undefined;
  /** True if bare base64 may stand in its place. */
  readonly isBare?: boolean | undefined;
  /** True if the answer must have the data URI. Default: it may be the asset itself. */
  readonly isEnvelope?: boolean | undefined;
  /** Largest asset that is accepted, in bytes. */
  readonly assetBytesMax: number;
  readonly bytesPerSecondMin: number;
  readonly clock: Clock;
}

/** Downloads one asset. See {@link FlowService.asset} for the errors. */
export async function downloadAsset(
  requests: Requests,
  request: AssetRequest,
  callersSignal: AbortSignal,
): Promise<Asset> {
  const { flowId, assetId, bytesPerSecondMin, clock, onSent, uploadId, from, ...wanted } = request;
  const subject = assetSubject(flowId, assetId);
  const about = { operation: 'asset', method: 'GET', subject, uploadId, onSent } as const;
  const progress = new Progress(clock, bytesPerSecondMin, callersSignal);
  const { signal } = progress;
  try {
    let answer =
      'url' in from ? await requests.send({ ...about, ...from }, signal) : await follow(requests, from, about, signal);
    const names: string[] = [answer.url.pathname];
    for (let hops = 0; isRedirect(answer.response); hops += 1) {
      answer.response.destroy();
      if (hops === REDIRECTS_MAX) {
        throw new ForbiddenAddressError(`The asset was redirected more than ${REDIRECTS_MAX} times`);
      }
      const redirected = { ...about, subject: redirectSubject(subject, hops) };
      answer = await follow(requests, { answer, address: answer.response.headers.location }, redirected, signal);
      names.unshift(answer.url.pathname);
    }
    const { response, secret, hadToken } = answer;
    if (!WITH_ASSET.includes(response.status)) {
      progress.wait();
      const error = await requests.errorFor(answer);
      // An address that got no token says nothing about it.
      if (hadToken || !(error instanceof ForbiddenError)) throw error;
      const why = 'No token was sent: the address is not below baseUrl';
      throw new AddressRefusedError(`${error.message.replace(/\.?$/, '.')} ${why}`, { cause: error });
    }
    const range = rangeIn(response);
    if (isPart(response, range)) {
      response.destroy();
      throw new DamagedAssetError('The answer is only a part of the asset');
    }
    // A coding marks the end of its bytes by itself, and their length is not that of the asset.
    const isCoded = isCompressed(response);
    // One that says that it is all of the asset may be shorter.
    const length = isCoded ? undefined : (range[3] ?? response.headers['content-length']);
    return await assetOf(isCoded ? undone(response, progress) : received(response, progress), {
      ...wanted,
      mediaType: response.headers['content-type'],
      // Without its coding, `a.csv.gz` is the file `a.csv`.
      names: [...fileNames(response.headers['content-disposition']), ...names].map((name) =>
        isCoded ? name.replace(/\.t?gz$/i, '') : name,
      ),
      secret,
      length: length === undefined ? undefined : Number(length),
      isDelimited:
        isCoded || length !== undefined || /\bchunked\s*$/i.test(response.headers['transfer-encoding'] ?? ''),
      onData: (bytes) => progress.brought(bytes),
      elsewhere: (address) =>
        downloadAsset(requests, { ...request, from: { answer, address }, data: undefined }, callersSignal),
    });
  } catch (error) {
    progress.end();
    throw error;
  }
}

/**
 * The names of the file in a `Content-Disposition`. Only their extensions matter, so they are not decoded. Many servers
 * write a name with blanks without quotes. Takes linear time, whatever the service sends.
 * @see https://www.rfc-editor.org/rfc/rfc6266#section-4.3
 */
export const fileNames = (disposition = ''): readonly string[] =>
  Array.from(disposition.matchAll(/\bfilename\*?\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^;]+))/gi), ([, quoted, bare]) =>
    (quoted ?? bare ?? '').replace(/(?<!['\s])['\s]+$/, ''),
  );

/**
 * Cuts off a download that is too slow. After the head of its response the data must begin, and then come at the
 * minimum rate. White space around it does not count, because a service can send that for ever. Only waits for the service
 * count, because our own work on the bytes may take any time.
 */
class Progress {
  /** Aborts with {@link TooSlowError}, or with the reason of the caller's signal. */
  readonly signal: AbortSignal;
  readonly #clock: Clock;
  readonly #limit: TimeLimit;
  readonly #bytesPerWindow: number;
  #leftMs = ENVELOPE_MS;
  #what = `The data did not begin within ${ENVELOPE_MS} ms`;
  #hasBegun = false;
  #waitsSince: number | undefined;
  /** Bytes of the asset at the beginning of the window. */
  #bytesBefore = 0;

  constructor(clock: Clock, bytesPerSecondMin: number, signal: AbortSignal) {
    const cut = new AbortController();
    this.signal = AbortSignal.any([signal, cut.signal]);
    this.#clock = clock;
    this.#limit = new TimeLimit(clock, (what) => cut.abort(new TooSlowError(what)));
    this.#bytesPerWindow = Math.max(1, (bytesPerSecondMin * RATE_WINDOW_MS) / 1_000);
  }

  /** Begins a wait for the service. */
  wait(): void {
    this.#waitsSince = this.#clock.now();
    this.#limit.set(this.#leftMs, this.#what);
  }

  /** Ends the wait, because the service has sent something. */
  pause(): void {
    this.#limit.lift();
    if (this.#waitsSince !== undefined) this.#leftMs -= this.#clock.now() - this.#waitsSince;
    this.#waitsSince = undefined;
  }

  /**
   * Notes that data of the asset came. The first call ends the wait for its beginning.
   * @param bytes count of the asset's bytes that have come so far.
   */
  brought(bytes: number): void {
    if (this.#hasBegun && bytes - this.#bytesBefore < this.#bytesPerWindow) return;
    this.#hasBegun = true;
    this.#what = `Less than ${this.#bytesPerWindow} bytes of the asset came in ${RATE_WINDOW_MS} ms`;
    this.#bytesBefore = bytes;
    this.#leftMs = RATE_WINDOW_MS;
  }

  end(): void {
    this.#limit.end();
  }
}

const isRedirect = ({ status }: TransportResponse): boolean => [301, 302, 303, 307, 308].includes(status);

/** Statuses of an answer whose body is the asset: frameworks, proxies and caches put 201, 203 and 206 on a whole one too. */
const WITH_ASSET: readonly number[] = [200, 201, 203, 206];

/** What an answer says of its place in the asset: `bytes 0-3/4`. Some servers write it as `bytes=0-3/4`. */
const rangeIn = ({ headers }: TransportResponse): readonly string[] =>
  /^\s*bytes[\s=]+(\d+)\s*-\s*(\d+)\s*\/\s*(\d+)\s*$/i.exec(headers['content-range'] ?? '') ?? [];

/**
 * Tells whether an answer is a part of the asset. With 206, it must say that it is all of it. A table or a log may come in
 * pages, each with a header that leads to the next one.
 */
function isPart({ status, headers }: TransportResponse, [, from, to, size]: readonly string[]): boolean {
  if (nextLink(headers.link) !== undefined || leadsOn(headers)) return true;
  return size === undefined ? status === 206 : Number(from) > 0 || Number(to) + 1 < Number(size);
}

/** Follows an address that an answer names, if it is allowed. Sends the token only to an address below the base. */
async function follow(
  requests: Requests,
  { answer: { response, secret, url: base }, address }: NamedAddress,
  about: Omit<Call, 'url'>,
  signal: AbortSignal,
): Promise<Answer> {
  const named = address === undefined ? null : URL.parse(address, base.href);
  if (named === null) throw new UnintelligibleAnswerError('The asset was redirected to no address');
  const url = requests.meant(named);
  const reach = requests.isLocal ? 'machine' : reachOf(response.address);
  const isAllowed = isHttpsOrLoopback(url) && (reach === 'machine' || !isLoopback(url));
  const holdsSecret = hasCredentials(url) || holdsToken(url.href, secret);
  if (!isAllowed || holdsSecret) {
    // Only the origin is quoted: the rest of the address may be a signature, which is as secret as a token.
    const why = holdsSecret ? ': it holds a user, a password or the token' : '';
    const what = isRedirect(response) ? 'The asset was redirected to' : 'The service gives as the address of the asset';
    throw new ForbiddenAddressError(`${what} ${redact(url.origin, secret)}. This address is not allowed${why}`);
  }
  if (requests.isForToken(url, secret)) return requests.send({ ...about, url }, signal);
  return requests.sendElsewhere({ ...about, url, reach }, secret, signal);
}

/** The bytes of the response without its coding. */
async function* undone(response: TransportResponse, progress: Progress): AsyncGenerator<Uint8Array> {
  try {
    yield* decodedBody(response, received(response, progress));
  } catch (error) {
    if (error instanceof CodingError) throw new DamagedAssetError(error.message, { cause: error });
    throw error;
  } finally {
    progress.end();
  }
}

/** The bytes of the response. If the connection ends early, the asset is cut. If it stalls, it is too slow. */
async function* received({ body, goesOn }: TransportResponse, progress: Progress): AsyncGenerator<Uint8Array> {
  const { signal } = progress;
  try {
    progress.wait();
    for await (const chunk of body) {
      progress.pause();
      yield chunk;
      progress.wait();
    }
    if (goesOn?.()) throw new DamagedAssetError('The answer goes on behind its announced end');
  } catch (error) {
    if (!(error instanceof TransportError) || signal.aborted) throw readingFailure(error, signal);
    if (error.timedOut) throw new TooSlowError(`The answer stopped: ${error.message}`, { cause: error });
    throw new DamagedAssetError(`The answer was cut: ${error.message}`, { cause: error });
  } finally {
    progress.end();
  }
}
