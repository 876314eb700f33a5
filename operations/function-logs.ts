import * as z from 'zod/mini';
import { askJson } from './aws-requests.ts';
import { encryptionAdvice, type Outcome } from './checks.ts';
import type { Deployment } from './deployment.ts';

const MINUTE_MS = 60_000;
const HOUR_MS = 60 * MINUTE_MS;

/** How far back errors are looked for. */
const ERRORS_HOURS = 24;

/** The longest time without a run while uploads wait. After it, the event source mapping is taken for broken. */
export const IDLE_MAX_MS = 15 * MINUTE_MS;

/** Pages of a log that are read. CloudWatch searches about 1 MB for each, so a page may be empty. */
const PAGES_MAX = 20;

/** The longest line that is quoted, in characters. */
const LINE_MAX = 300;

/**
 * One of these terms is in every line of an error. Lambda itself writes the first three, and the functions the last.
 * @see https://docs.aws.amazon.com/AmazonCloudWatch/latest/logs/FilterAndPatternSyntax.html
 */
const ERROR_LINES = '?"Task timed out" ?"Runtime exited" ?"OutOfMemory" ?"ERROR"';

const eventSchema = z.object({ timestamp: z.number(), message: z.string() });
type LogEvent = z.infer<typeof eventSchema>;

/** @see https://docs.aws.amazon.com/AmazonCloudWatchLogs/latest/APIReference/API_FilterLogEvents.html */
const pageSchema = z.object({
  events: z._default(z.array(eventSchema), []),
  nextToken: z.optional(z.nullable(z.string())),
});

/** What a line of the functions' own says of an error. @internal */
export const errorSchema = z.object({ name: z.optional(z.string()), message: z.optional(z.string()) });

/** AWS denied a request. If the line names its permission, it was a write to S3. */
const DENIED_WRITE = /AccessDenied(?!.*perform: (?!s3:PutObject\b))/;

/** A line of the functions' own. */
const lineSchema = z.object({
  level: z.optional(z.string()),
  message: z.string(),
  error: z.optional(errorSchema),
});

/** Tells of errors that the functions logged. A local run has no log groups: it prints its errors. */
export async function examineErrors(deployment: Deployment, signal: AbortSignal): Promise<Outcome> {
  if (deployment.isLocal) return 'good';
  const { pipeline } = deployment.settings;
  const startTime = deployment.clock.now() - ERRORS_HOURS * HOUR_MS;
  const sentences: string[] = [];
  const unread: string[] = [];
  let isWriteDenied = false;
  for (const name of [creatingFunction(deployment), deployment.collecting.name]) {
    const { events: found, isCut } = await linesOf(name, { startTime, filterPattern: ERROR_LINES }, deployment, signal);
    const events = found.filter(isError);
    const [last] = events.toSorted((one, other) => other.timestamp - one.timestamp);
    if (last !== undefined) {
      isWriteDenied ||= DENIED_WRITE.test(last.message);
      const count = `${isCut ? 'at least ' : ''}${events.length} error${events.length === 1 ? '' : 's'}`;
      const when = new Date(last.timestamp).toISOString();
      const which = isCut ? 'one of them' : 'the last';
      sentences.push(`${name} logged ${count} in ${ERRORS_HOURS} hours, ${which} at ${when}: ${wordsOf(last)}`);
    } else if (isCut) {
      unread.push(name);
    }
  }
  const cut = `too much was logged: the first ${PAGES_MAX} pages of ${unread.join(' and ')} have no error`;
  if (sentences.length === 0) return unread.length === 0 ? 'good' : { notChecked: cut };
  if (unread.length > 0) sentences.push(`Not all was read: ${cut}.`);
  const todo = `In Logs Insights, the saved queries "${pipeline}/errors" and "${pipeline}/invocations cut short" list them.`;
  const advice = isWriteDenied ? encryptionAdvice(deployment.settings) : '';
  return { severity: 'warning', what: sentences.join('\n'), todo: `${todo}${advice}` };
}

/**
 * Tells whether the creating function runs while there are uploads to begin. Each of its runs logs its start.
 * @param visible the number of these uploads.
 */
export async function examineRuns(visible: number, deployment: Deployment, signal: AbortSignal): Promise<Outcome> {
  if (deployment.isLocal || visible === 0) return 'good';
  const name = creatingFunction(deployment);
  const startTime = deployment.clock.now() - IDLE_MAX_MS;
  const { events, isCut } = await linesOf(name, { startTime, limit: 1 }, deployment, signal);
  if (events.length > 0 || isCut) return 'good';
  return {
    severity: 'warning',
    what: `The queue holds ${visible === 1 ? '1 upload' : `${visible} uploads`}, and ${name} has not run for ${IDLE_MAX_MS / MINUTE_MS} minutes.`,
    todo: 'If the uploads came in the last minutes, ask again. Otherwise the event source mapping may be off, as after a pause of an older version: see docs/runbook.md, uploads-stopped.',
  };
}

/** The name of the function that creates flows. */
export const creatingFunction = ({ settings }: Deployment): string => `${settings.pipeline}-create-flow`;

interface LogQuery {
  /** Milliseconds since the epoch. */
  readonly startTime: number;
  readonly filterPattern?: string;
  /** Stop after so many lines. Default: none, within {@link PAGES_MAX}. */
  readonly limit?: number;
}

/** Lines of a function's log. `isCut` if more of the log was left unread. @internal */
export async function linesOf(
  name: string,
  query: LogQuery,
  deployment: Deployment,
  signal: AbortSignal,
): Promise<{ readonly events: readonly LogEvent[]; readonly isCut: boolean }> {
  const events: LogEvent[] = [];
  let nextToken: string | undefined;
  for (let page = 0; page < PAGES_MAX; page += 1) {
    const input = { logGroupName: `/aws/lambda/${name}`, ...query, nextToken };
    const question = { service: 'logs', target: 'Logs_20140328.FilterLogEvents', version: '1.1', input } as const;
    const answer = pageSchema.parse(await askJson(question, deployment.access, signal));
    events.push(...answer.events);
    nextToken = answer.nextToken ?? undefined;
    if (nextToken === undefined || events.length >= (query.limit ?? Number.POSITIVE_INFINITY)) break;
  }
  return { events, isCut: nextToken !== undefined };
}

/** False for a line of the functions' own at another level: a key or the words of a service may hold a term as well. */
const isError = ({ message }: LogEvent): boolean =>
  (lineSchema.safeParse(parsed(message)).data?.level ?? 'ERROR') === 'ERROR';

/** What a line says, in short. Lines of Lambda itself are no JSON. */
function wordsOf({ message }: LogEvent): string {
  const own = lineSchema.safeParse(parsed(message));
  const { name, message: why } = own.data?.error ?? {};
  const parts = [own.data?.message.replace(/\.$/, ''), name, why].filter((each) => each !== undefined);
  const words = own.success ? parts.join(': ') : message;
  const line = words.trim().replaceAll(/\s+/g, ' ');
  return line.length > LINE_MAX ? `${line.slice(0, LINE_MAX)}…` : line;
}

/** The value of a line of JSON. Undefined for any other line. @internal */
export function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
