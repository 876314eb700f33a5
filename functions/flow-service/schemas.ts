import * as z from 'zod/mini';
import type { ListingPage, NextPage } from './flow-listing.ts';
import { parseJson } from './json-answer.ts';
import type { FlowRecord, FlowState, FlowTag, Output } from './types.ts';

/**
 * Every shape in which the service may answer. The specification shows none of them; they are those that a public
 * service of this interface documents, read tolerantly: members that we do not need may be anything, and those that only
 * inform (progress, times, errors) are dropped where they are not understood.
 */

/** Ids longer than this are taken for damage, in bytes of UTF-8. Those seen are 24 characters long. */
export const ID_BYTES_MAX = 256;

/** What is quoted of the service's words, in characters. */
export const QUOTE_CHARS_MAX = 300;

/** Whether an id can be put into a path: `.` and `..` would be taken for a way up, however they are encoded. */
export const isUsableId = (id: string): boolean =>
  id !== '' && id !== '.' && id !== '..' && id.isWellFormed() && Buffer.byteLength(id) <= ID_BYTES_MAX;

/** Text cut to what may be quoted, without half a character at its end. */
export const cut = (text: string, charsMax = QUOTE_CHARS_MAX): string =>
  text.length <= charsMax ? text.toWellFormed() : `${text.slice(0, charsMax).toWellFormed()}…`;

/** An id as it came, of which nothing is known yet. Numbers beyond 2^53 have lost digits by the time we see them. */
function idText(value: unknown): string | undefined {
  if (typeof value === 'string') return value;
  return Number.isSafeInteger(value) ? String(value) : undefined;
}

/** The first of `values` that is there, as a usable id; otherwise the answer is refused. */
function idIn(context: { issues: z.core.$ZodRawIssue[] }, ...values: readonly unknown[]): string {
  const value = values.find((candidate) => candidate !== undefined && candidate !== null);
  const id = idText(value);
  if (id !== undefined && isUsableId(id)) return id;
  context.issues.push({ code: 'custom', message: 'no usable id', input: value });
  return z.NEVER;
}

const anyObject = z.record(z.string(), z.unknown());

const stateWords: ReadonlyMap<string, FlowState> = new Map([
  ...['completed', 'complete', 'succeeded', 'success', 'done', 'finished'].map((word) => [word, 'completed'] as const),
  ...['failed', 'failure', 'error', 'errored'].map((word) => [word, 'failed'] as const),
  ...['aborted', 'cancelled', 'canceled'].map((word) => [word, 'aborted'] as const),
]);

/**
 * The state behind the service's word for it. A word that is not known is a state on the way (`created`, `starting`,
 * `queued`, ...): a running flow is looked at again, and one wrongly called finished would lose its outputs.
 */
const stateOf = (word: unknown): FlowState => stateWords.get(String(word).toLowerCase()) ?? 'running';

const outputWords: ReadonlyMap<string, Output['status']> = new Map([
  ...['ready', 'available', 'processed', 'completed', 'complete', 'succeeded', 'success', 'done', 'finished'].map(
    (word) => [word, 'ready'] as const,
  ),
  ...[
    'failed',
    'failure',
    'error',
    'errored',
    'aborted',
    'cancelled',
    'canceled',
    'rejected',
    'expired',
    'deleted',
  ].map((word) => [word, 'failed'] as const),
]);

/** What the service says went wrong, whatever it says it with. */
function errorText(error: unknown): string | undefined {
  if (error === undefined || error === null || error === false || error === '') return undefined;
  if (typeof error === 'string') return cut(error);
  if (typeof error === 'object') {
    for (const name of ['message', 'detail', 'error']) {
      const text = (error as Record<string, unknown>)[name];
      if (typeof text === 'string' && text !== '') return cut(text);
    }
  }
  return cut(JSON.stringify(error));
}

/** Milliseconds since the epoch, out of an ISO 8601 text or a number of seconds or milliseconds. */
function timeOf(value: unknown): number | undefined {
  // As seconds this would be in the year 5138, as milliseconds it is in 1973.
  if (typeof value === 'number' && value > 0) return value < 1e11 ? value * 1000 : value;
  if (typeof value !== 'string') return undefined;
  const parts = /^(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d(?::\d\d(?:\.\d+)?)?)\s*(Z|[+-]\d\d:?\d\d)?$/i.exec(value);
  if (parts === null) return undefined;
  // Services that leave out the zone mean UTC; Date would take it for the zone of this machine.
  const time = Date.parse(`${parts[1]}T${parts[2]}${parts[3] ?? 'Z'}`);
  return Number.isNaN(time) ? undefined : time;
}

/**
 * What a refusal says, out of its body: of JSON the member that says it (a list of `{ loc, msg }` is what validation
 * errors of the public service look like), of anything else the text itself.
 */
export function errorDetail(text: string, depthMax: number): string {
  let body: unknown;
  try {
    body = parseJson(text, depthMax);
  } catch {
    return cut(text.trim()); // Not JSON that anybody would read, and so it is the text that says it.
  }
  const detail = typeof body === 'object' && body !== null && 'detail' in body ? body.detail : body;
  if (!Array.isArray(detail)) return errorText(detail) ?? '';
  return cut(detail.map((item) => [placeOf(item), errorText(item?.msg ?? item)].filter(Boolean).join(': ')).join('; '));
}

const placeOf = (item: { readonly loc?: unknown } | null): string =>
  Array.isArray(item?.loc) ? item.loc.filter((step) => ['string', 'number'].includes(typeof step)).join('.') : '';

const markSchema = z.object({
  flowdrop: z.object({ pipeline: z.string(), upload: z.string(), generation: z.number() }),
});

/** How deep the lists and objects of an `additional` may be nested that comes as a text of JSON. */
const ADDITIONAL_DEPTH_MAX = 100;

/** An `additional` that is an object. Some services keep it as a text of JSON, and answer with that. */
function objectIn(additional: unknown): object | undefined {
  let value = additional;
  if (typeof value === 'string' && value.trimStart().startsWith('{')) {
    try {
      value = parseJson(value, ADDITIONAL_DEPTH_MAX);
    } catch {
      return undefined; // Some other client has attached text that is not JSON.
    }
  }
  return typeof value === 'object' && value !== null && !Array.isArray(value) ? value : undefined;
}

function flowTagOf(additional: unknown): FlowTag | undefined {
  const parsed = markSchema.safeParse(objectIn(additional));
  return parsed.success ? parsed.data.flowdrop : undefined;
}

/** The answer of `POST /flows`. Of what else it says nothing is needed. */
export const createdSchema = z.pipe(
  anyObject,
  z.transform(({ flow_id, id }, context) => ({ flowId: idIn(context, flow_id, id) })),
);

/** One flow, as `GET /flows/{id}` answers and as listings hold it. */
export const flowSchema = z.pipe(
  anyObject,
  z.transform((flow, context): FlowRecord => {
    const { progress } = flow;
    const finishedAt = timeOf(flow.finished_at ?? flow.completed_at ?? flow.ended_at);
    const changes = [finishedAt, timeOf(flow.updated_at ?? flow.modified_at)].filter((time) => time !== undefined);
    return {
      flowId: idIn(context, flow.flow_id, flow.id),
      state: stateOf(flow.state ?? flow.status),
      progress: typeof progress === 'number' && progress >= 0 && progress <= 1 ? progress : undefined,
      createdAt: timeOf(flow.created_at),
      finishedAt,
      changedAt: changes.length === 0 ? undefined : Math.max(...changes),
      error: errorText(flow.error),
      tag: flowTagOf(flow.additional),
    };
  }),
);

/**
 * One output. No status and no error means ready: the specification knows of neither. A word that is not known means
 * pending: what is asked for too late is only late, and what is asked for too early may be stored half made.
 */
function outputOf(output: Readonly<Record<string, unknown>>): Output {
  const given = output.asset_id ?? output.id;
  const id = idText(given);
  if (id === undefined || !isUsableId(id)) {
    const quoted = cut(id ?? JSON.stringify(given) ?? 'none', 64);
    return { assetId: quoted, status: 'failed', error: `The service lists it under an unusable id: ${quoted}` };
  }
  const error = errorText(output.error);
  if (error !== undefined) return { assetId: id, status: 'failed', error };
  const word = output.status ?? output.state;
  const status = word === undefined || word === null ? 'ready' : outputWords.get(String(word).toLowerCase());
  return { assetId: id, status: status ?? 'pending' };
}

const templateSchema = z.union([
  z.pipe(
    z.string(),
    z.transform((name) => ({ name, description: undefined })),
  ),
  z.pipe(
    anyObject,
    z.transform(({ name, id, template, description }, context) => ({
      name: idIn(context, name, template, id),
      description: typeof description === 'string' ? cut(description) : undefined,
    })),
  ),
]);

export const templatesSchema = z.pipe(
  z.union([z.array(templateSchema), z.object({ templates: z.array(templateSchema) })]),
  z.transform((answer) => (Array.isArray(answer) ? answer : answer.templates)),
);

export interface FlowPage extends ListingPage {
  readonly flows: readonly FlowRecord[];
  /** Whether a flow of it shows what was attached to it. Without that no tag can be seen. */
  readonly showsAdditional: boolean;
}

/** The members in which listings hold flows, and those in which they name the cursor of the next page. */
const FLOW_MEMBERS = ['flows', 'items', 'results', 'data'] as const;
const CURSOR_MEMBERS = [
  ['next_cursor', 'cursor'],
  ['next_page_token', 'page_token'],
  ['cursor', 'cursor'],
  ['next_page', 'page'],
] as const;

function nextOf(answer: Readonly<Record<string, unknown>>): NextPage {
  const { next } = answer;
  if (typeof next === 'string' && /^(https?:|[/?])/i.test(next)) return { kind: 'address', address: next };
  if (typeof next === 'number') return { kind: 'parameter', name: 'page', value: String(next) };
  if (typeof next === 'string' && next !== '') return { kind: 'parameter', name: 'cursor', value: next };
  for (const [member, name] of CURSOR_MEMBERS) {
    const value = answer[member];
    if (typeof value === 'number' || (typeof value === 'string' && value !== '')) {
      return { kind: 'parameter', name, value: String(value) };
    }
  }
  // `cursor` alone may also be the place of this page, so that its absence says nothing of the next.
  const isEnd = ['next', 'next_cursor', 'next_page_token', 'next_page'].some(
    (member) => member in answer && (answer[member] === null || answer[member] === ''),
  );
  if (isEnd || answer.has_more === false) return { kind: 'end' };
  return { kind: answer.has_more === true ? 'more' : 'unsaid' };
}

/** How many entries a listing says that it has on all its pages. */
const totalOf = ({ total, total_count }: Readonly<Record<string, unknown>>): number | undefined =>
  [total, total_count].find((value) => typeof value === 'number');

/** One page of `GET /flows`: a list, or an object that has one. */
export const flowPageSchema = z.pipe(
  z.union([z.array(z.unknown()), anyObject]),
  z.transform((answer, context): FlowPage => {
    const fields = Array.isArray(answer) ? {} : answer;
    const items = Array.isArray(answer) ? answer : FLOW_MEMBERS.map((name) => answer[name]).find(Array.isArray);
    if (items === undefined) {
      context.issues.push({ code: 'custom', message: 'no list of flows', input: answer });
      return z.NEVER;
    }
    const flows = items.map((item) => flowSchema.safeParse(item)).flatMap(({ data }) => data ?? []);
    return {
      flows,
      showsAdditional: items.some((item) => Object.keys(objectIn(item?.additional) ?? {}).length > 0),
      ids: flows.map(({ flowId }) => flowId),
      entries: items.length,
      total: totalOf(fields),
      next: nextOf(fields),
    };
  }),
);

export interface OutputPage extends ListingPage {
  readonly outputs: readonly Output[];
}

/** One page of the outputs of a flow: a list, or an object that has one. An id that is listed twice is one output. */
export const outputPageSchema = z.pipe(
  z.union([z.array(anyObject), z.looseObject({ outputs: z.array(anyObject) })]),
  z.transform((answer): OutputPage => {
    const fields = Array.isArray(answer) ? {} : answer;
    const items = Array.isArray(answer) ? answer : answer.outputs;
    const outputs = new Map<string, Output>();
    for (const output of items.map(outputOf)) {
      if (!outputs.has(output.assetId)) outputs.set(output.assetId, output);
    }
    return {
      outputs: [...outputs.values()],
      ids: [...outputs.keys()],
      entries: items.length,
      total: totalOf(fields),
      next: nextOf(fields),
    };
  }),
);
