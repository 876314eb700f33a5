import type {
  About,
  ActAnswer,
  AliasAnswer,
  AliasRequest,
  ApiError,
  ChainAnswer,
  Costs,
  DoctorAnswer,
  EnterAnswer,
  ErrorCode,
  HoldAnswer,
  HoldRequest,
  PlannedAction,
  PlanRequest,
  ProofHeader,
  ProofSubject,
  PutFile,
  RoutedFile,
  RouteRequest,
  SentRequest,
  ServerProof,
  ServiceAnswer,
  Status,
  Templates,
  UploadDetail,
  UploadsPage,
} from '../api.ts';

const PROOF_HEADER: ProofHeader = 'x-flowdrop-proof';

/** Where this origin keeps the key. Another port has another storage. */
const KEY_NAME = 'flowdrop-key';
const KEY_IN_ADDRESS = /^#key=([\w-]+)$/;
const NONCE_BYTES = 32;

/** Code of a request that got no answer, beside the codes of the server. */
type Code = ErrorCode | 'unreachable';

/** The server refused a request, or did not answer. The message is a sentence for a person. */
export class RequestFailedError extends Error {
  override readonly name = 'RequestFailedError';
  readonly code: Code;
  constructor(code: Code, message: string, options?: ErrorOptions) {
    super(message, options);
    this.code = code;
  }
}

/** The key that the address brings, behind `#`. */
export const keyInAddress = (): string | undefined => KEY_IN_ADDRESS.exec(window.location.hash)?.[1];

/** A key that has not opened the page yet. It leaves the address, so that it is in no bookmark. */
let newKey = keyInAddress();
if (newKey !== undefined) window.history.replaceState(null, '', '/');

/**
 * Asks the server to prove that it has the key of this page. When a run has ended, any user of the machine can take its
 * port, and must get neither files nor proofs of this page.
 * @returns the proof that this page has the key.
 * @throws {RequestFailedError}
 */
async function proven(): Promise<string> {
  if (newKey !== undefined) {
    const proof = await provenFor(newKey);
    const { key }: EnterAnswer = await sent('/api/enter', { method: 'POST', headers: { [PROOF_HEADER]: proof } });
    localStorage.setItem(KEY_NAME, key);
    newKey = undefined;
  }
  const key = localStorage.getItem(KEY_NAME);
  if (key === null) throw new RequestFailedError('no-access', 'The address of this page has no key.');
  return provenFor(key);
}

async function provenFor(key: string): Promise<string> {
  const nonce = base64url(crypto.getRandomValues(new Uint8Array(NONCE_BYTES)));
  const { proofs }: ServerProof = await sent(`/api/proof?nonce=${nonce}`, {});
  const { port } = window.location;
  if (Array.isArray(proofs) && proofs.includes(await proofOf(key, `server ${nonce} ${port}`))) {
    return proofOf(key, 'page');
  }
  throw new RequestFailedError('no-access', 'This server does not have the key of this page.');
}

async function proofOf(key: string, subject: ProofSubject): Promise<string> {
  const encoder = new TextEncoder();
  const algorithm = { name: 'HMAC', hash: 'SHA-256' };
  const imported = await crypto.subtle.importKey('raw', encoder.encode(key), algorithm, false, ['sign']);
  return base64url(new Uint8Array(await crypto.subtle.sign('HMAC', imported, encoder.encode(subject))));
}

const base64url = (bytes: Uint8Array): string =>
  btoa(String.fromCharCode(...bytes))
    .replaceAll('+', '-')
    .replaceAll('/', '_')
    .replace(/=+$/, '');

const UNREACHABLE = 'The server of this page does not answer. Is it still running?';

export const getAbout = (): Promise<About> => request('GET', '/api/about');
export const getStatus = (): Promise<Status> => request('GET', '/api/status');
export const getCosts = (): Promise<Costs> => request('GET', '/api/costs');
export const getUpload = (id: string): Promise<UploadDetail> =>
  request('GET', `/api/uploads/${encodeURIComponent(id)}`);
export const getChain = (id: string): Promise<ChainAnswer> =>
  request('GET', `/api/uploads/${encodeURIComponent(id)}/chain`);
export const getRequest = (id: string): Promise<SentRequest> =>
  request('GET', `/api/uploads/${encodeURIComponent(id)}/request`);
export const askService = (id: string): Promise<ServiceAnswer> =>
  request('GET', `/api/uploads/${encodeURIComponent(id)}/service`);
export const getTemplates = (): Promise<Templates> => request('GET', '/api/templates');
export const route = (body: RouteRequest): Promise<readonly RoutedFile[]> => request('POST', '/api/route', body);
export const plan = (body: PlanRequest): Promise<PlannedAction> => request('POST', '/api/plan', body);
export const act = (id: string): Promise<ActAnswer> => request('POST', '/api/act', { plan: id });
export const moveAlias = (body: AliasRequest): Promise<AliasAnswer> => request('POST', '/api/alias', body);
export const changeHold = (body: HoldRequest): Promise<HoldAnswer> => request('POST', '/api/hold', body);
export const examine = (): Promise<DoctorAnswer> => request('POST', '/api/doctor', {});

/** @param before the `next` of the page before. @param limit maximum number of uploads. */
export function getUploads(before: string | undefined, limit: number): Promise<UploadsPage> {
  const query = new URLSearchParams({ limit: String(limit), ...(before !== undefined && { before }) });
  return request('GET', `/api/uploads?${query}`);
}

/** The uploads with this name, also one that is older than the list. */
export const findUploads = (name: string, limit: number): Promise<UploadsPage> =>
  request('GET', `/api/uploads?${new URLSearchParams({ name, limit: String(limit) })}`);

/** @throws {RequestFailedError} */
async function request<Answer>(method: 'GET' | 'POST', path: string, body?: object): Promise<Answer> {
  const headers = { [PROOF_HEADER]: await proven(), ...(method === 'POST' && { 'content-type': 'application/json' }) };
  return sent(path, { method, headers, ...(body !== undefined && { body: JSON.stringify(body) }) });
}

/** @throws {RequestFailedError} */
async function sent<Answer>(path: string, init: RequestInit): Promise<Answer> {
  const response = await fetch(path, init).catch((cause: unknown) => {
    throw new RequestFailedError('unreachable', UNREACHABLE, { cause });
  });
  const text = await response.text().catch((cause: unknown) => {
    throw new RequestFailedError('unreachable', UNREACHABLE, { cause });
  });
  if (!response.ok) throw failureOf(response.status, text);
  try {
    return JSON.parse(text);
  } catch (cause) {
    throw new RequestFailedError('failed', 'The server of this page did not answer in JSON.', { cause });
  }
}

/** Reads an object at an address of the server. @throws {RequestFailedError} */
export async function fetchBytes(url: string, headers: Readonly<Record<string, string>> = {}): Promise<Response> {
  const response = await fetch(url, { headers: { ...headers, [PROOF_HEADER]: await proven() } });
  if (!response.ok) throw new RequestFailedError('failed', `It cannot be read: status ${response.status}.`);
  return response;
}

/** Listens to the events. @param url the address of the events. @throws {RequestFailedError} */
export async function openEvents(url: string): Promise<EventSource> {
  await proven();
  return new EventSource(url);
}

/** A file on its way. */
export interface Sending {
  readonly done: Promise<PutFile>;
  /** Ends the request. `done` rejects. */
  stop(): void;
}

/**
 * Puts a file into the inbox. `done` rejects with a {@link RequestFailedError}.
 * @param onProgress called with the number of bytes that were sent.
 */
export function putFile(key: string, file: File, onProgress: (bytes: number) => void): Sending {
  // Only XMLHttpRequest tells how much of a body is sent.
  const request = new XMLHttpRequest();
  const { promise: done, resolve, reject } = Promise.withResolvers<PutFile>();
  let isStopped = false;
  const stop = (): void => {
    isStopped = true;
    request.abort();
    reject(new RequestFailedError('unreachable', 'You stopped it.'));
  };
  request.upload.addEventListener('progress', ({ loaded }) => onProgress(loaded));
  request.addEventListener('load', () => {
    if (request.status >= 200 && request.status < 300) resolve(JSON.parse(request.responseText));
    else reject(failureOf(request.status, request.responseText));
  });
  request.addEventListener('error', () => reject(new RequestFailedError('unreachable', UNREACHABLE)));
  proven().then((proof) => {
    if (isStopped) return;
    request.open('PUT', `/api/files/${encodeURIComponent(key)}`);
    request.setRequestHeader(PROOF_HEADER, proof);
    if (file.type !== '') request.setRequestHeader('content-type', file.type);
    request.send(file);
  }, reject);
  return { done, stop };
}

function failureOf(status: number, text: string): RequestFailedError {
  try {
    const { error }: ApiError = JSON.parse(text);
    return new RequestFailedError(error.code, error.message);
  } catch {
    return new RequestFailedError('failed', `The server of this page answered with status ${status}.`);
  }
}

/** One sentence for any error. */
export const messageOf = (error: unknown): string => (error instanceof Error ? error.message : String(error));
