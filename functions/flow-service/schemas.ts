import * as z from 'zod/mini';
import { quoted, shorten } from '../base/printable.ts';
import type { ListingPage, NextPage } from './flow-listing.ts';
import { parseJson, SMALL_ANSWER } from './json-answer.ts';
import { CUT } from './long-texts.ts';
import { holdsToken } from './redact.ts';
import { FLOW_TAG_NAME, type FlowRecord, type FlowState, type FlowTag, type Output } from './types.ts';

/**
 * The shapes of the service's responses. The specification shows none of them. They come from the documentation of a
 * public service with this interface. They are tolerant: members that we do not need may be anything, and members that
 * only inform (times, errors) are dropped if they are not understood.
 */

/** Longest id that is accepted, in bytes of UTF-8. Real ones have 24 characters. */
export const ID_BYTES_MAX = 256;

/** Longest quotation of the service's words, in characters. */
const QUOTE_CHARS_MAX = 300;

/** Longest quotation of an id that nothing can have, in characters. */
const UNUSABLE_ID_CHARS_MAX = 64;

/**
 * Tells whether an id can stand in a path, in a key and in a receipt. `.` and `..` would lead upwards, however they are
 * encoded. An id that held the token names nothing after its redaction.
 */
export const isUsableId = (id: string): boolean =>
  id !== '' &&
  id !== '.' &&
  id !== '..' &&
  id.isWellFormed() &&
  Buffer.byteLength(id) <= ID_BYTES_MAX &&
  !holdsToken(id);

/** Cuts the service's words to the length of a quotation. */
export const cut = (text: string, charsMax = QUOTE_CHARS_MAX): string => shorten(text, charsMax, '…');

/** The text of an unchecked id. {@link parseJson} has read a number beyond 2^53 as the text of its digits. */
function idText(value: unknown): string | undefined {
  if (typeof value === 'string') return value;
  return Number.isSafeInteger(value) ? String(value) : undefined;
}

/** An unchecked id as text. Undefined if nothing can have it. */
function usableId(value: unknown): string | undefined {
  const id = idText(value);
  return id !== undefined && isUsableId(id) ? id : undefined;
}

const anyObject = z.record(z.string(), z.unknown());

/** Not a schema: it would make an error of each of the many thousand items that a page may have. */
const isObject = (value: unknown): value is Readonly<Record<string, unknown>> =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

const stateWords: ReadonlyMap<string, FlowState> = new Map([
  ...['completed', 'complete', 'succeeded', 'success', 'done', 'finished'].map((word) => [word, 'completed'] as const),
  ...['failed', 'failure', 'error', 'errored'].map((word) => [word, 'failed'] as const),
  ...['aborted', 'cancelled', 'canceled'].map((word) => [word, 'aborted'] as const),
]);

/**
 * The state that the service's word stands for. Any unknown word (`created`, `starting`, `queued`, ...) means running.
 * A running flow is polled again. A flow that is wrongly called finished would lose its outputs.
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

/** The service's description of an error, in whatever shape it comes. */
function errorText(error: unknown): string | undefined {
  if (error === undefined || error === null || error === false || error === '') return undefined;
  if (typeof error === 'string') return cut(error);
  if (typeof error === 'object') {
    for (const name of ['message', 'detail', 'error']) {
      const text = (error as Record<string, unknown>)[name];
      if (typeof text === 'string' && text !== '') return cut(text);
    }
  }
  const json = quoted(error, QUOTE_CHARS_MAX, '…');
  return json === '{}' || json === '[]' ? undefined : json;
}

/** Milliseconds since the epoch, from an ISO 8601 text or from a number of seconds or milliseconds. */
function timeOf(value: unknown): number | undefined {
  // 1e11 seconds are in the year 5138; 1e11 milliseconds are in 1973.
  if (typeof value === 'number' && value > 0) return value < 1e11 ? value * 1000 : value;
  if (typeof value !== 'string') return undefined;
  const parts = /^(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d(?::\d\d(?:\.\d+)?)?)\s*(Z|[+-]\d\d:?\d\d)?$/i.exec(value);
  if (parts === null) return undefined;
  // A time without a zone means UTC. Date would assume the zone of this machine.
  const time = Date.parse(`${parts[1]}T${parts[2]}${parts[3] ?? 'Z'}`);
  return Number.isNaN(time) ? undefined : time;
}

/**
 * The service's own errors: JSON with a `detail`, as its documentation shows for 422. Gateways and firewalls answer
 * with pages, with `{"message": …}`, or with `application/problem+json`.
 */
const ownErrorSchema = z.object({ detail: z.union([z.string().check(z.minLength(1)), z.array(z.unknown())]) });

/** Tells whether an error response has the form of the service's own. */
export function isOwnError(mediaType: string, text: string, depthMax: number): boolean {
  if (mediaType !== 'application/json') return false;
  try {
    return ownErrorSchema.safeParse(parseJson(text, { depthMax, partsMax: SMALL_ANSWER.partsMax })).success;
  } catch {
    return false; // Not readable JSON.
  }
}

/**
 * The explanation in the body of an error response. JSON is searched for the member that holds it; the validation
 * errors of the public service are a list of `{ loc, msg }`. Any other text is the explanation itself.
 */
export function errorDetail(text: string, depthMax: number): string {
  let body: unknown;
  try {
    body = parseJson(text, { depthMax, partsMax: SMALL_ANSWER.partsMax });
  } catch {
    return cut(text.trim()); // Not readable JSON, so the text itself is the explanation.
  }
  const detail = typeof body === 'object' && body !== null && 'detail' in body ? body.detail : body;
  if (!Array.isArray(detail)) return errorText(detail) ?? '';
  return cut(detail.map((item) => [placeOf(item), errorText(item?.msg ?? item)].filter(Boolean).join(': ')).join('; '));
}

const placeOf = (item: { readonly loc?: unknown } | null): string =>
  Array.isArray(item?.loc) ? item.loc.filter((step) => ['string', 'number'].includes(typeof step)).join('.') : '';

const tagSchema = z.object({
  [FLOW_TAG_NAME]: z.object({ pipeline: z.string(), upload: z.string(), generation: z.number() }),
});

/** Limits of an `additional` that comes as a text of JSON. In the answer around it, it is one part. */
const ADDITIONAL_LIMITS = { depthMax: 100, partsMax: SMALL_ANSWER.partsMax };

/** The object in an `additional`. Some services store and return it as a text of JSON. */
function objectIn(additional: unknown): object | undefined {
  let value = additional;
  if (typeof value === 'string' && value.trimStart().startsWith('{')) {
    try {
      value = parseJson(value, ADDITIONAL_LIMITS);
    } catch {
      return undefined; // Another client has attached text that is not JSON.
    }
  }
  return isObject(value) ? value : undefined;
}

function flowTagOf(additional: unknown): FlowTag | undefined {
  const object = objectIn(additional);
  if (object === undefined || !(FLOW_TAG_NAME in object)) return undefined; // Most listed flows may be of others.
  const parsed = tagSchema.safeParse(object);
  return parsed.success ? parsed.data[FLOW_TAG_NAME] : undefined;
}

/** The response of `POST /flows`. Only the id is needed. */
export const createdSchema = z.pipe(
  anyObject,
  z.transform(({ flow_id, id }, context) => {
    const flowId = usableId(flow_id ?? id);
    if (flowId !== undefined) return { flowId };
    context.issues.push({ code: 'custom', message: 'no usable id', input: flow_id ?? id });
    return z.NEVER;
  }),
);

/** True for an `additional` in a text that was cut. Its tag is unknown. */
const isCut = (additional: unknown): boolean => typeof additional === 'string' && additional.endsWith(CUT);

/** One flow, in the response of `GET /flows/{id}` and in listings. Undefined if it has no usable id. */
function flowOf(flow: Readonly<Record<string, unknown>>): FlowRecord | undefined {
  const flowId = usableId(flow.flow_id ?? flow.id);
  if (flowId === undefined) return undefined;
  return {
    flowId,
    state: stateOf(flow.state ?? flow.status),
    createdAt: timeOf(flow.created_at),
    error: errorText(flow.error),
    tag: flowTagOf(flow.additional),
  };
}

/** The response of `GET /flows/{id}`. */
export const flowSchema = z.pipe(
  anyObject,
  z.transform((flow, context): FlowRecord => {
    const record = flowOf(flow);
    if (record !== undefined) return record;
    context.issues.push({ code: 'custom', message: 'no usable id', input: flow });
    return z.NEVER;
  }),
);

/**
 * One output. Without status and error it is ready, because the specification has neither. An unknown word means
 * pending: an asset that is fetched late is only late, but an asset that is fetched early may be stored half made.
 */
function outputOf(output: Readonly<Record<string, unknown>>): Output {
  const given = output.asset_id ?? output.id;
  const id = idText(given);
  if (id === undefined || !isUsableId(id)) {
    const shown =
      id === undefined ? quoted(given ?? 'none', UNUSABLE_ID_CHARS_MAX, '…') : cut(id, UNUSABLE_ID_CHARS_MAX);
    return { assetId: shown, status: 'failed', error: `The service lists it under an unusable id: ${shown}` };
  }
  const error = errorText(output.error);
  if (error !== undefined) return { assetId: id, status: 'failed', error };
  const word = output.status ?? output.state;
  const status = word === undefined || word === null ? 'ready' : outputWords.get(String(word).toLowerCase());
  return { assetId: id, status: status ?? 'pending' };
}

export interface FlowPage extends ListingPage {
  readonly flows: readonly FlowRecord[];
  /** True if a flow on the page shows its `additional`. Otherwise tags are invisible. */
  readonly showsAdditional: boolean;
}

/** The members that may hold the flows of a listing. */
const FLOW_MEMBERS = ['flows', 'items', 'results', 'data'] as const;

/** The members that may hold the cursor of the next page, each with the query parameter that takes it. */
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
  // `cursor` alone may also be the place of this page. So its absence says nothing about the next page.
  const isEnd = ['next', 'next_cursor', 'next_page_token', 'next_page'].some(
    (member) => member in answer && (answer[member] === null || answer[member] === ''),
  );
  if (isEnd || answer.has_more === false) return { kind: 'end' };
  return { kind: answer.has_more === true ? 'more' : 'unsaid' };
}

/** Number of entries on all pages, according to the listing. */
const totalOf = ({ total, total_count }: Readonly<Record<string, unknown>>): number | undefined =>
  [total, total_count].find((value) => typeof value === 'number');

/** One page of `GET /flows`: a list, or an object with a list. */
export const flowPageSchema = z.pipe(
  z.union([z.array(z.unknown()), anyObject]),
  z.transform((answer, context): FlowPage => {
    const fields = Array.isArray(answer) ? {} : answer;
    const items = Array.isArray(answer) ? answer : FLOW_MEMBERS.map((name) => answer[name]).find(Array.isArray);
    if (items === undefined) {
      context.issues.push({ code: 'custom', message: 'no list of flows', input: answer });
      return z.NEVER;
    }
    const flows = items.flatMap((item) => (isObject(item) && !isCut(item.additional) ? (flowOf(item) ?? []) : []));
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

/** Names under which a page may have its list of templates. */
const TEMPLATE_MEMBERS = ['templates', 'items', 'results', 'data'];

interface TemplatePage extends ListingPage {
  /** As the service writes them. */
  readonly templates: readonly unknown[];
}

/** One page of `GET /templates`: a list, or an object with a list. */
export const templatePageSchema = z.pipe(
  z.union([z.array(z.unknown()), anyObject]),
  z.transform((answer, context): TemplatePage => {
    const fields = Array.isArray(answer) ? {} : answer;
    const templates = Array.isArray(answer) ? answer : TEMPLATE_MEMBERS.map((name) => fields[name]).find(Array.isArray);
    if (templates === undefined) {
      context.issues.push({ code: 'custom', message: 'no list of templates', input: answer });
      return z.NEVER;
    }
    const ids = templates.map((each) => JSON.stringify(each));
    return { templates, ids, entries: templates.length, total: totalOf(fields), next: nextOf(fields) };
  }),
);

interface OutputPage extends ListingPage {
  readonly outputs: readonly Output[];
}

/** One page of the outputs of a flow: a list, or an object with a list. An id that is listed twice is one output. */
export const outputPageSchema = z.pipe(
  z.union([z.array(z.unknown()), anyObject]),
  z.transform((answer, context): OutputPage => {
    const fields = Array.isArray(answer) ? {} : answer;
    const items = Array.isArray(answer) ? answer : fields.outputs;
    if (!Array.isArray(items) || !items.every(isObject)) {
      context.issues.push({ code: 'custom', message: 'no list of outputs', input: answer });
      return z.NEVER;
    }
    const outputs = new Map<string, Output>();
    for (const item of items) {
      const output = outputOf(item);
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
