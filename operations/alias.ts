import pMap from 'p-map';
import { encodedId } from '../functions/base/key-segment.ts';
import { type Entry, presentRouteOf } from '../functions/ledger/entry.ts';
import { UnreadableEntryError } from '../functions/ledger/store.ts';
import { FLOW_METADATA } from '../functions/results/results-keys.ts';
import { headObject } from '../functions/s3/objects.ts';
import { type Acted, resultsSchema } from './actions.ts';
import type { Deployment } from './deployment.ts';
import { findUpload } from './find.ts';
import { UnknownUploadError } from './forget.ts';

/** Aliases that are looked at side by side. */
const CONCURRENCY = 8;

/** What became of an alias. */
export interface Shown extends Acted {
  /** Why it does not show the flow. */
  readonly why?: string | undefined;
}

/** The aliases of a file, or of a later stage of its chain. */
export interface AliasView {
  /** As the route says: `models/{folder}/{name}{ext}`. */
  readonly pattern: string;
  /** The flow that they are to show. Absent if nothing has succeeded yet. */
  readonly flow?: string | undefined;
  /** Those that show it. */
  readonly files: readonly { readonly key: string; readonly bytes: number; readonly mediaType: string }[];
  /** Keys of those that do not: they are being put, or something else is there. */
  readonly missing: readonly string[];
}

/**
 * What the aliases of an upload's file show. Undefined if its present route has none, or what they show cannot be read.
 * @internal
 */
export async function aliasOf(
  entry: Pick<Entry, 'upload' | 'route'>,
  { aliases, settings, s3 }: Pick<Deployment, 'aliases' | 'settings' | 's3'>,
  signal: AbortSignal,
): Promise<AliasView | undefined> {
  const { upload } = entry;
  const pattern = presentRouteOf(entry, settings.routes)?.alias;
  if (pattern === undefined) return undefined;
  const state = await aliases.read(upload, signal).catch((error) => {
    if (error instanceof UnreadableEntryError) return null;
    throw error;
  });
  if (state === null) return undefined;
  const { flow = '', files = [] } = state ?? {};
  const heads = await pMap(files, ({ alias: Key }) => headObject(s3, { Bucket: settings.resultsBucket, Key }, signal), {
    concurrency: CONCURRENCY,
  });
  const isThere = (_: unknown, index: number) => heads[index]?.Metadata?.[FLOW_METADATA] === encodedId(flow);
  return {
    ...{ pattern, flow: state?.flow },
    files: files.filter(isThere).map(({ alias: key, bytes, mediaType }) => ({ key, bytes, mediaType })),
    missing: files.filter((each, index) => !isThere(each, index)).map(({ alias }) => alias),
  };
}

/**
 * Has the aliases of a file show another flow of it, until a newer success comes.
 * @param what its key, or the id of its newest upload. @throws {UnknownUploadError}
 */
export async function moveAlias(
  what: string,
  flow: string,
  deployment: Deployment,
  signal: AbortSignal,
): Promise<Shown> {
  const found = await findUpload(what, deployment, signal);
  if (found === undefined) throw new UnknownUploadError(`There is no upload ${what}.`);
  const { id, key } = found;
  const event = { alias: { upload: id, to: flow } };
  const [answer] = resultsSchema.parse(await deployment.collecting.invoke(event, signal));
  const { result = 'unknown', why } = answer ?? {};
  return { id, key, result, isDone: result === 'shown', ...(why !== undefined && { why }) };
}
