import { createReadStream } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import * as z from 'zod/mini';
import { addressOf } from '../functions/chains/chain.ts';
import { UnreadableEntryError } from '../functions/ledger/store.ts';
import { secondDigits } from '../functions/uploads/upload.ts';
import { chainBegunBy } from './chains.ts';
import type { Deployment } from './deployment.ts';
import { findUpload } from './find.ts';
import { UnknownUploadError } from './forget.ts';
import { creatingFunction, errorSchema, linesOf, parsed } from './function-logs.ts';
import type { FoundUpload } from './listing.ts';

/** Lines that are read of one local log. A deployed one has a bound of its own: see {@link linesOf}. */
const LOCAL_LINES_MAX = 20_000;

/** How long before an upload its lines are looked for, in milliseconds: a function's clock may be behind that of S3. */
const BEFORE_UPLOAD_MS = 60_000;

/** What both functions logged about a file. Times are in ISO 8601. */
export interface FileLogs {
  readonly key: string;
  /** The uploads that the lines are about: the file, and the later stages of its chain. */
  readonly uploads: readonly { readonly id: string; readonly key: string; readonly route?: string | undefined }[];
  /** Why later stages are missing. */
  readonly issue?: string | undefined;
  readonly since: string;
  /** In order of time. */
  readonly lines: readonly FileLogLine[];
  /** Logs that were not read to their end: later lines are missing. */
  readonly cut: readonly LogName[];
}

export type LogName = (typeof LOG_NAMES)[number];

const LOG_NAMES = ['create-flow', 'collect-outputs'] as const;

export interface FileLogLine {
  readonly time: string;
  readonly function: LogName;
  readonly level: string;
  readonly uploadId: string;
  readonly message: string;
  readonly flowId?: string | undefined;
  /** Name and message. */
  readonly error?: string | undefined;
  /** All else that the line says. */
  readonly details: Readonly<Record<string, string | number | boolean>>;
}

/** A line that a function has logged about an upload. */
const lineSchema = z.looseObject({
  uploadId: z.string(),
  level: z.string(),
  message: z.string(),
  timestamp: z.string(),
  flowId: z.optional(z.string()),
  error: z.optional(errorSchema),
});

/** Fields that are the same in all lines of a function, or of an invocation. `FileLogs` has the key. */
const COMMON_FIELDS: readonly string[] = [
  'cold_start',
  'function_arn',
  'function_memory_size',
  'function_name',
  'function_request_id',
  'key',
  'sampling_rate',
  'service',
  'xray_trace_id',
];

/**
 * The lines of both functions about a file: named by its key or by the id of its upload. For the first file of a chain,
 * those about the later stages too.
 * @param since milliseconds since the epoch.
 * @throws {UnknownUploadError} @throws {AwsRequestError}
 */
export async function logs(
  what: string,
  since: number,
  deployment: Deployment,
  signal: AbortSignal,
): Promise<FileLogs> {
  const found = await findUpload(what, deployment, signal);
  if (found === undefined) throw new UnknownUploadError(`There is no upload ${what}.`);
  const { uploads, issue } = await uploadsOf(found, deployment, signal);
  const putAt = (found.entry?.upload ?? found.current)?.lastModified ?? 0;
  const query: Query = { ids: new Set(uploads.map(({ id }) => id)), since: Math.max(since, putAt - BEFORE_UPLOAD_MS) };
  const read = deployment.logFolder === undefined ? readDeployed : readLocal;
  const lines: FileLogLine[] = [];
  const cut: LogName[] = [];
  for (const name of LOG_NAMES) {
    const log = await read(name, query, deployment, signal);
    lines.push(...log.texts.flatMap((text) => lineOf(text, name, query) ?? []));
    if (log.isCut) cut.push(name);
  }
  lines.sort((one, other) => Date.parse(one.time) - Date.parse(other.time));
  return { key: found.key, uploads, issue, since: new Date(query.since).toISOString(), lines, cut };
}

/** The upload, and if it is the first file of a chain, all others of the chain. */
async function uploadsOf(
  found: FoundUpload,
  deployment: Deployment,
  signal: AbortSignal,
): Promise<Pick<FileLogs, 'uploads' | 'issue'>> {
  const { id, key, entry } = found;
  const own = [{ id, key, route: entry?.route.name }];
  try {
    const chain = await chainBegunBy(found, deployment, signal);
    const ofChain = chain?.uploads.map((each) => ({ id: each.id, key: addressOf(chain, each), route: each.route }));
    return { uploads: ofChain ?? own };
  } catch (error) {
    if (!(error instanceof UnreadableEntryError)) throw error;
    return { uploads: own, issue: `Its chain cannot be read: ${error.message}.` };
  }
}

interface Query {
  readonly ids: ReadonlySet<string>;
  readonly since: number;
}

/** Lines as they were logged, maybe with some about other uploads. */
interface Log {
  readonly texts: readonly string[];
  readonly isCut: boolean;
}

/** @see https://docs.aws.amazon.com/AmazonCloudWatch/latest/logs/FilterAndPatternSyntax.html ("JSON") */
async function readDeployed(
  name: LogName,
  { ids, since }: Query,
  deployment: Deployment,
  signal: AbortSignal,
): Promise<Log> {
  const [first = ''] = ids;
  // The ids of all uploads of a chain begin with the second of its first file.
  const sought = ids.size === 1 ? first : `${first.slice(0, secondDigits(0).length)}*`;
  const query = { startTime: since, filterPattern: `{ $.uploadId = "${sought}" }` };
  const group = name === 'create-flow' ? creatingFunction(deployment) : deployment.collecting.name;
  const { events, isCut } = await linesOf(group, query, deployment, signal);
  return { texts: events.map(({ message }) => message), isCut };
}

/** A local run keeps the lines of each function in a file, from the start of the run on. */
async function readLocal(
  name: LogName,
  { ids }: Query,
  { logFolder = '' }: Deployment,
  signal: AbortSignal,
): Promise<Log> {
  const texts: string[] = [];
  try {
    const file = createReadStream(join(logFolder, `${name}.log`), { signal });
    for await (const line of createInterface({ input: file })) {
      if (![...ids].some((id) => line.includes(id))) continue;
      if (texts.length === LOCAL_LINES_MAX) return { texts, isCut: true };
      texts.push(line);
    }
  } catch (error) {
    // The function has not run yet.
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
  }
  return { texts, isCut: false };
}

/** Undefined for a line about another upload, or from an earlier time. */
function lineOf(text: string, name: LogName, { ids, since }: Query): FileLogLine | undefined {
  const line = lineSchema.safeParse(parsed(text)).data;
  if (line === undefined || !ids.has(line.uploadId) || Date.parse(line.timestamp) < since) return undefined;
  const { uploadId, level, message, timestamp, flowId, error, ...rest } = line;
  const details = Object.entries(rest).filter(
    (field): field is [string, string | number | boolean] =>
      !COMMON_FIELDS.includes(field[0]) && ['string', 'number', 'boolean'].includes(typeof field[1]),
  );
  return {
    time: new Date(timestamp).toISOString(),
    function: name,
    level,
    uploadId,
    message,
    flowId,
    error: error && [error.name, error.message].filter((each) => each !== undefined).join(': '),
    details: Object.fromEntries(details),
  };
}
