import type { S3CallKind } from './faults.ts';
import { INBOX, LEDGER, NEXT_INBOX } from './names.ts';

/** A request as the AWS SDK hands it to its request handler. */
export interface SdkRequest {
  readonly method: string;
  readonly path: string;
  readonly query?: Readonly<Record<string, string | readonly string[] | null>>;
  readonly headers: Readonly<Record<string, string>>;
  readonly body?: unknown;
}

export const bucketOf = ({ path }: SdkRequest): string => path.split('/')[1] ?? '';

export const keyOf = ({ path }: SdkRequest): string => decodeURIComponent(/^\/[^/]+\/?(.*)$/s.exec(path)?.[1] ?? '');

/** What a request is for. Undefined if the functions are not known to make it. */
export function kindOf(request: SdkRequest): S3CallKind | undefined {
  const bucket = bucketOf(request);
  const kindIn = [INBOX, NEXT_INBOX].includes(bucket) ? inboxCall : bucket === LEDGER ? ledgerCall : resultsCall;
  return kindIn(request, keyOf(request));
}

function inboxCall({ method, query = {} }: SdkRequest, key: string): S3CallKind | undefined {
  if ('tagging' in query) return method === 'PUT' ? 'source.tag' : 'source.tags';
  if (method === 'DELETE') return 'source.delete';
  if (key === '') return 'inbox.list';
  return method === 'HEAD' ? 'inbox.head' : method === 'GET' ? 'inbox.get' : undefined;
}

function ledgerCall({ method, query = {}, headers }: SdkRequest, key: string): S3CallKind | undefined {
  if (key === '') return String(query.prefix).startsWith('uploads/') ? 'entries.list' : 'markers.list';
  if (key.startsWith('uploads/')) {
    if (method === 'GET') return 'entry.get';
    return 'if-none-match' in headers ? 'entry.create' : 'entry.replace';
  }
  if (key.startsWith('chains/')) return method === 'GET' ? 'chain.get' : 'chain.put';
  if (key === 'state/sweep.json') return method === 'GET' ? 'sweep.get' : 'sweep.put';
  if (key === 'state/holds.json') return method === 'GET' ? 'hold.get' : 'hold.put';
  if (key.startsWith('state/aliases/')) return method === 'GET' ? 'alias.get' : 'alias.put';
  if (key.startsWith('state/')) return method === 'GET' ? 'lease.get' : 'lease.put';
  return method === 'PUT' ? 'marker.put' : method === 'DELETE' ? 'marker.delete' : undefined;
}

function resultsCall({ method, query = {} }: SdkRequest, key: string): S3CallKind | undefined {
  // A GET of a receipt meets the same faults as a HEAD. Only a flow that fails makes one.
  // What a chain tells of its end is put by the same rule.
  if (/\/(receipt|chain)\.json$/.test(key)) return method === 'PUT' ? 'receipt.put' : 'receipt.head';
  if (isAlias(key)) return aliasCall(method, query);
  if ('tagging' in query) return method === 'PUT' ? 'asset.tag' : 'asset.tags';
  if (method === 'HEAD') return 'asset.head';
  if (method === 'POST') return 'uploads' in query ? 'asset.begin' : 'asset.complete';
  if (method === 'DELETE') return 'asset.abort';
  if (method === 'PUT') return 'partNumber' in query ? 'asset.put-part' : 'asset.put';
  return method === 'GET' ? 'asset.get' : undefined;
}

/** The folder of all aliases, which no upload's key begins with. */
export const ALIAS_FOLDER = 'alias/';

/** @param key of the results, with their prefix. */
export const isAlias = (key: string): boolean => key.startsWith(ALIAS_FOLDER) || key.startsWith(`out/${ALIAS_FOLDER}`);

function aliasCall(method: string, query: NonNullable<SdkRequest['query']>): S3CallKind | undefined {
  if (method === 'HEAD') return 'alias.head';
  if (method === 'POST') return 'uploads' in query ? 'asset.begin' : 'alias.complete';
  if (method === 'DELETE') return 'uploadId' in query ? 'asset.abort' : 'alias.delete';
  return method === 'PUT' ? 'alias.copy' : undefined;
}
