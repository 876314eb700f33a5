import type {
  About,
  ActAnswer,
  AgainRequest,
  ApiError,
  ChainAnswer,
  Costs,
  DoctorAnswer,
  ErrorCode,
  HoldAnswer,
  HoldRequest,
  PlannedAction,
  PlanRequest,
  PutFile,
  RoutedFile,
  RouteRequest,
  Status,
  Templates,
  TokenHeader,
  TokenMeta,
  UploadDetail,
  UploadsPage,
} from '../api.ts';

const TOKEN_META: TokenMeta = 'flowdrop-token';
const TOKEN_HEADER: TokenHeader = 'x-flowdrop-token';

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

const UNREACHABLE = 'The server of this page does not answer. Is it still running?';

export const getAbout = (): Promise<About> => request('GET', '/api/about');
export const getStatus = (): Promise<Status> => request('GET', '/api/status');
export const getCosts = (): Promise<Costs> => request('GET', '/api/costs');
export const getUpload = (id: string): Promise<UploadDetail> =>
  request('GET', `/api/uploads/${encodeURIComponent(id)}`);
export const getChain = (id: string): Promise<ChainAnswer> =>
  request('GET', `/api/uploads/${encodeURIComponent(id)}/chain`);
export const getTemplates = (): Promise<Templates> => request('GET', '/api/templates');
export const route = (body: RouteRequest): Promise<readonly RoutedFile[]> => request('POST', '/api/route', body);
export const plan = (body: PlanRequest): Promise<PlannedAction> => request('POST', '/api/plan', body);
export const act = (id: string): Promise<ActAnswer> => request('POST', '/api/act', { plan: id });
export const again = (body: AgainRequest): Promise<PutFile> => request('POST', '/api/again', body);
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
  const response = await fetch(path, {
    method,
    headers: { ...(method === 'POST' && { 'content-type': 'application/json', [TOKEN_HEADER]: token() }) },
    ...(body !== undefined && { body: JSON.stringify(body) }),
  }).catch((cause: unknown) => {
    throw new RequestFailedError('unreachable', UNREACHABLE, { cause });
  });
  const text = await response.text().catch((cause: unknown) => {
    throw new RequestFailedError('unreachable', UNREACHABLE, { cause });
  });
  if (!response.ok) throw failureOf(response.status, text);
  return JSON.parse(text);
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
  const done = new Promise<PutFile>((resolve, reject) => {
    request.upload.addEventListener('progress', ({ loaded }) => onProgress(loaded));
    request.addEventListener('load', () => {
      if (request.status >= 200 && request.status < 300) resolve(JSON.parse(request.responseText));
      else reject(failureOf(request.status, request.responseText));
    });
    request.addEventListener('error', () => reject(new RequestFailedError('unreachable', UNREACHABLE)));
    request.addEventListener('abort', () => reject(new RequestFailedError('unreachable', 'You stopped it.')));
    request.open('PUT', `/api/files/${encodeURIComponent(key)}`);
    request.setRequestHeader(TOKEN_HEADER, token());
    if (file.type !== '') request.setRequestHeader('content-type', file.type);
    request.send(file);
  });
  return { done, stop: () => request.abort() };
}

function failureOf(status: number, text: string): RequestFailedError {
  try {
    const { error }: ApiError = JSON.parse(text);
    return new RequestFailedError(error.code, error.message);
  } catch {
    return new RequestFailedError('failed', `The server of this page answered with status ${status}.`);
  }
}

const token = (): string => document.querySelector<HTMLMetaElement>(`meta[name="${TOKEN_META}"]`)?.content ?? '';

/** One sentence for any error. */
export const messageOf = (error: unknown): string => (error instanceof Error ? error.message : String(error));
