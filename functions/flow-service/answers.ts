import { isDeepStrictEqual } from 'node:util';
import { timeOfIso } from '../base/clock.ts';
import { isObject } from '../base/json.ts';
import { decodedId } from '../base/key-segment.ts';
import { essenceOf } from '../base/media-type.ts';
import { quoted, shorten } from '../base/printable.ts';
import type { ListingPage } from './flow-listing.ts';
import { parseJson, UNREADABLE, UnfitAnswerError } from './json-answer.ts';
import { at, firstAt, membersOf, opened } from './json-pointer.ts';
import { CUT } from './long-texts.ts';
import { isFalse, isTrue, levelsOf, limitsIn, nextOf, signsIn, totalOf } from './pages.ts';
import { holdsToken, redact } from './redact.ts';
import { type FailurePlaces, failureIn, isNoError } from './said-failure.ts';
import type {
  ErrorsDescription,
  ListDescription,
  ListedOutputs,
  PagedListing,
  Pointers,
  ServiceDescription,
  StateDescription,
} from './service-description.ts';
import { shownJson } from './shown-json.ts';
import type { TransportResponse } from './transport.ts';
import { FLOW_TAG_NAME, type FlowRecord, type Output, type ShownFlow } from './types.ts';

/**
 * What the service's answers mean, by its description. Members that only inform (times, errors) are dropped if they are
 * not understood.
 */

/** Longest id that is accepted, in bytes of UTF-8. Real ones have 24 characters. */
export const ID_BYTES_MAX = 256;

/** Longest quotation of the service's words, in characters. */
const QUOTE_CHARS_MAX = 300;

/** Longest quotation of an id that nothing can have, in characters. */
export const UNUSABLE_ID_CHARS_MAX = 64;

/** Longest word for a state that is kept, in characters. */
export const WORD_CHARS_MAX = 64;

/**
 * Tells whether an id can stand in a path, in a key and in a receipt. `.` and `..` would lead upwards, however they are
 * encoded. An id that held the token names nothing after its redaction, nor one with bytes that could not be read.
 */
export const isUsableId = (id: string): boolean =>
  id !== '' &&
  id !== '.' &&
  id !== '..' &&
  id.isWellFormed() &&
  !id.includes(UNREADABLE) &&
  Buffer.byteLength(id) <= ID_BYTES_MAX &&
  !holdsToken(id);

/** Cuts the service's words to the length of a quotation, in one line: no words of outside may look like a line of ours. */
export const cut = (text: string, charsMax = QUOTE_CHARS_MAX): string =>
  shorten(text, charsMax, '…').replace(/\s*[\r\n]\s*/g, ' ');

/** Characters of a body in which its words are looked for. Less than is read of any: at its end, half the token may stand. */
const START_CHARS_MAX = 2_048;

/** The words at the beginning of a body, after its white space. The token was redacted in it. */
export const startOf = (text: string, charsMax?: number): string =>
  cut(text.slice(0, START_CHARS_MAX).trim(), charsMax);

/** What programs write where there is no id. A number such as 0 may be one. */
const NO_ID = /^(?:null|none|nil|undefined|nan|\[object object\]|0{8}-(?:0{4}-){3}0{12})$/i;

/**
 * An unchecked id as text. Undefined if nothing can have it. {@link parseJson} has read a number beyond 2^53 as the text of
 * its digits.
 */
function usableId(value: unknown): string | undefined {
  const id = Number.isSafeInteger(value) ? String(value) : value;
  return typeof id === 'string' && isUsableId(id) && !NO_ID.test(id) ? id : undefined;
}

export const pathOf = (address: string): string => address.split(/[?#]/)[0] ?? '';
const parametersOf = (address: string): URLSearchParams => new URLSearchParams(address.match(/\?([^#]*)/)?.[1]);

/**
 * The id in an address or a path that names a flow: what stands where the path of the state has `{id}`. With `/jobs/{id}`,
 * it is `7` in `https://a.example/v1/jobs/7?x=1`. Either may have more before what they share. Undefined if they share
 * nothing. With `/get?job={id}`, it is the parameter `job`. A text without a slash is the id itself.
 */
function idIn(name: unknown, statePath: string): unknown {
  if (typeof name !== 'string' || !name.includes('/')) return name;
  const [parameter] = [...parametersOf(statePath)].find(([, value]) => value === '{id}') ?? [];
  if (parameter !== undefined) return parametersOf(name).get(parameter) ?? undefined;
  const [steps, places] = [name, statePath].map((path) =>
    pathOf(path)
      .replace(/^\/|\/$/g, '')
      .split('/')
      .toReversed(),
  );
  const shared = places?.slice(0, steps?.length) ?? [];
  const isFit = shared.every((place, index) => place === steps?.[index] || /^\{\w+\}$/.test(place));
  const id = steps?.[shared.indexOf('{id}')];
  return isFit && id !== undefined && shared.some((place) => steps?.includes(place)) ? decodedId(id) : undefined;
}

/** The id of the flow at a pointer. An address that the path of the state does not fit is none: each poll would get a 404. */
function flowIdAt(json: unknown, pointers: Pointers, { path }: StateDescription): string | undefined {
  const name = firstAt(json, pointers);
  const isUnfit = /^https?:/i.test(String(name)) && pathOf(path).includes('{id}');
  return usableId(idIn(name, path) ?? (isUnfit ? undefined : name));
}

/** An id that nothing can have, as it may be shown. */
export const shownId = (value: unknown): string =>
  typeof value === 'string' ? cut(value, UNUSABLE_ID_CHARS_MAX) : quoted(value ?? 'none', UNUSABLE_ID_CHARS_MAX, '…');

/** The word at a pointer. `null` if there is none. A value that is no text is shown as JSON. */
function wordAt(json: unknown, pointers: Pointers | undefined): string | null {
  const value = firstAt(json, pointers);
  if (value === undefined) return null;
  return typeof value === 'string' ? cut(value, WORD_CHARS_MAX) : quoted(value, WORD_CHARS_MAX, '…');
}

/** The service's description of an error, in whatever shape it comes. */
export function errorText(error: unknown): string | undefined {
  if (isNoError(error)) return undefined;
  if (typeof error === 'string') return cut(error);
  if (typeof error === 'object') {
    for (const name of ['message', 'detail', 'error']) {
      const text = (error as Record<string, unknown>)[name];
      if (typeof text === 'string' && text !== '') return cut(text);
    }
  }
  return quoted(error, QUOTE_CHARS_MAX, '…');
}

/** Milliseconds since the epoch, from an ISO 8601 text or from a number of seconds or milliseconds. */
function timeOf(value: unknown): number | undefined {
  // 1e11 seconds are in the year 5138; 1e11 milliseconds are in 1973.
  if (typeof value === 'number' && value > 0) return value < 1e11 ? value * 1000 : value;
  return typeof value === 'string' ? timeOfIso(value) : undefined;
}

/** What the body of an error response says. */
export interface ErrorWords {
  /**
   * The explanation: where the description says, or else the whole body. The validation errors of the public service are a
   * list of `{ loc, msg }`. A text that is no JSON is the explanation itself.
   */
  readonly detail: string;
  /**
   * True if it has the form of the service's own errors. Gateways and firewalls answer with pages, with other members, or
   * with another media type.
   */
  readonly isOwn: boolean;
  /**
   * Says that the body has no words where the description says, and so does not count as an error of the service.
   * Undefined if it has some, or if it is no JSON.
   */
  readonly misread?: string | undefined;
}

/**
 * Reads the body of an error response.
 * @param mediaType the value of `Content-Type`. Without one, the error is not the service's own.
 * @param depthMax deepest nesting that is read, in levels.
 */
export function wordsOfError(
  mediaType: string | undefined,
  text: string,
  errors: ErrorsDescription,
  depthMax: number,
): ErrorWords {
  let body: unknown;
  try {
    body = parseJson(text, depthMax);
  } catch {
    return { detail: startOf(text), isOwn: false }; // Not readable JSON.
  }
  const words = firstAt(body, errors.words);
  const isOfType = [errors.mediaType ?? 'application/json'].flat().includes(essenceOf(mediaType ?? ''));
  const areWords = Array.isArray(words) || (['string', 'object'].includes(typeof words) && !isNoError(words));
  const isUnread = typeof body === 'object' && body !== null && words === undefined;
  return {
    detail: detailOf(words ?? body),
    isOwn: isOfType && isObject(body) && areWords,
    misread: isUnread ? nothingAt('words', 'errors.words', errors.words, body) : undefined,
  };
}

function detailOf(words: unknown): string {
  if (!Array.isArray(words)) return errorText(words) ?? '';
  return cut(words.map((item) => [placeOf(item), errorText(item?.msg ?? item)].filter(Boolean).join(': ')).join('; '));
}

const placeOf = (item: { readonly loc?: unknown } | null): string =>
  Array.isArray(item?.loc) ? item.loc.filter((step) => ['string', 'number'].includes(typeof step)).join('.') : '';

/** True for a text that begins as the JSON of an object does. */
const isTextOfObject = (value: unknown): value is string => typeof value === 'string' && /^\s*\{/.test(value);

/** The object in an `additional`, or in a member of it. Some services store and return it as a text of JSON. */
function objectIn(additional: unknown): Readonly<Record<string, unknown>> | undefined {
  const value = opened(additional);
  return isObject(value) ? value : undefined;
}

const NO_TAG = { tag: undefined };
const UNREAD_TAG = { ...NO_TAG, isTagUnread: true } as const;

/** True if the service may have put the tag elsewhere, or changed its form. Most listed flows are of others. */
function mayHoldTag(additional: unknown): boolean {
  const text = JSON.stringify(additional) ?? '';
  return text.toLowerCase().includes(FLOW_TAG_NAME) && /[0-9a-f]{40}/i.test(text);
}

/** The tag in an `additional`. `isTagUnread` if one may be there in a form that cannot be read. */
function tagIn(additional: unknown): Pick<FlowRecord, 'tag' | 'isTagUnread'> {
  const object = objectIn(additional);
  if (object === undefined && isTextOfObject(additional)) return UNREAD_TAG;
  if (object === undefined || !(FLOW_TAG_NAME in object)) return mayHoldTag(additional) ? UNREAD_TAG : NO_TAG;
  // A service may keep all values as texts.
  const { pipeline, upload, generation } = objectIn(object[FLOW_TAG_NAME]) ?? {};
  const isTag = typeof pipeline === 'string' && typeof upload === 'string' && /^\d+$/.test(String(generation));
  return isTag ? { tag: { pipeline, upload, generation: Number(generation) } } : UNREAD_TAG;
}

/** True for an `additional` in a text that was cut. Its tag is unknown. */
const isCut = (additional: unknown): boolean => typeof additional === 'string' && additional.endsWith(CUT);

/** Longest list of the members that an answer has, in characters. */
const MEMBERS_CHARS_MAX = 150;

/** Members that are looked at for that list. An answer may have many thousands. */
const MEMBERS_MAX = 50;

/**
 * Says that pointers find nothing, which member of the description to correct, and which members the answer has.
 * @param what is not found, such as `usable id`.
 */
export function nothingAt(what: string, member: string, pointers: Pointers, json: unknown): string {
  const ends = membersOf(json)
    .take(MEMBERS_MAX)
    .filter(({ value }) => typeof value !== 'object' || value === null || Array.isArray(value));
  const has = shorten(Array.from(ends, ({ pointer }) => pointer).join(', ') || 'no members', MEMBERS_CHARS_MAX);
  return `no ${what} at ${shownPointers(pointers)}: correct "${member}" in the description; the answer has ${has}`;
}

const misfit = (what: string, member: string, pointers: Pointers) => (json: unknown) =>
  nothingAt(what, member, pointers, json);

/** Reads a parsed answer. @throws {UnfitAnswerError} the answer does not fit the description of the service. */
export type Reader<T> = (json: unknown) => T;

/** Makes a reader of `read`, which returns undefined for what does not fit. `message` says why. */
export const reader =
  <T>(message: string | ((json: unknown) => string), read: (json: unknown) => T | undefined): Reader<T> =>
  (json) => {
    const value = read(json);
    if (value !== undefined) return value;
    const why = typeof message === 'string' ? message : message(json);
    throw new UnfitAnswerError(`the answer does not fit the description of the service (${why})`);
  };

/**
 * The answer to a creation. Only the id is needed. If the answer says that it failed, and shows no state of a flow, the id
 * may be that of the request: it is unknown whether a flow exists.
 */
export const createdReader = (
  id: Pointers,
  { state, errors: { words } }: Pick<ServiceDescription, 'state' | 'errors'>,
) =>
  reader(misfit('usable id', 'create.id', id), (json) => {
    const flowId = flowIdAt(json, id, state);
    if (flowId === undefined) return undefined;
    if (!showsFlow(json, state)) checkFailure(json, { words, declared: [id].flat() }, false);
    return { flowId };
  });

/** The id of the flow that a header of the answer to a creation names. Unlike the body, no header was redacted. */
export const idInHeader = (
  { response, secret }: { readonly response: TransportResponse; readonly secret: string },
  header: string,
  { path }: StateDescription,
) => usableId(idIn(redact(response.headers[header.toLowerCase()] ?? '', secret), path));

/** True if an answer has a declared word for the state of a flow. Errors beside it are those of the flow. */
function showsFlow(json: unknown, state: StateDescription): boolean {
  const word = wordAt(json, state.word);
  return word !== null && stateOf(word, state) !== undefined;
}

/** The state that a word is declared for. Undefined if it is for none. */
export const stateOf = (word: string | null, state: StateDescription) =>
  (['completed', 'failed', 'aborted', 'gone', 'running'] as const).find((name) => state[name]?.includes(word));

/** The facts about a flow in an answer or in an item of the listing. */
function recordOf(flowId: string, json: unknown, state: StateDescription): FlowRecord {
  const word = wordAt(json, state.word);
  const declared = stateOf(word, state);
  const progress = firstAt(json, state.progress);
  return {
    flowId,
    // A running flow is polled again. A flow that is wrongly called ended would lose its outputs.
    state: declared ?? 'running',
    word: word ?? undefined,
    isDeclared: declared !== undefined,
    createdAt: timeOf(firstAt(json, state.createdAt)),
    progress: typeof progress === 'number' && Number.isFinite(progress) ? progress : undefined,
    error: errorText(firstAt(json, state.error)),
    ...tagIn(firstAt(json, state.additional)),
  };
}

/** The answer about one flow. */
export const flowReader = (flowId: string, state: StateDescription) =>
  reader(misfit('word for the state', 'state.word', state.word), (json): FlowRecord | undefined => {
    const record = recordOf(flowId, json, state);
    // In a list, a word that is missing means nothing, whatever is declared for it: the flow may not be there.
    return record.word === undefined && !(record.isDeclared && isObject(json)) ? undefined : record;
  });

/** The same, with the answer itself as a person may see it. */
export const shownFlowReader = (state: StateDescription) =>
  reader('no object', (json): ShownFlow | undefined => {
    const { word, isDeclared, progress } = recordOf('', json, state);
    return word === undefined && !isObject(json) ? undefined : { word, isDeclared, progress, answer: shownJson(json) };
  });

/** One listed output. */
function outputOf(item: object | string, listed: ListedOutputs): Output {
  const given = firstAt(item, listed.id);
  const id = usableId(given);
  const shown = id ?? shownId(given);
  const said = wordAt(item, listed.word);
  // An error beside a word for ready is none, such as `{ "code": 0, "message": "success" }`, or a warning.
  const isSaidReady = said !== null && listed.ready.includes(said);
  const error = isSaidReady ? undefined : errorText(firstAt(item, listed.error));
  if (error !== undefined) return { assetId: shown, status: 'failed', error };
  const word = said ?? unreadyMember(item, listed);
  const status = (['ready', 'failed', 'pending'] as const).find((name) => listed[name]?.includes(word));
  if (status === undefined || status === 'pending') {
    const isDeclared = status !== undefined;
    // What stands for an id now must never be taken for one.
    return { assetId: id ?? '', status: 'pending', word: word ?? undefined, isDeclared };
  }
  if (given === undefined) {
    return { assetId: shown, status: 'failed', error: `It has ${nothingAt('id', 'outputs.id', listed.id, item)}` };
  }
  if (id === undefined) return { assetId: shown, status: 'failed', error: unusableIdError(shown) };
  return { assetId: shown, status };
}

/** Members that say with `false` that an output is not ready, and others that say so with `true`. */
const READY = /^(?:is[_-]?)?(?:ready|available|done|finished|complete|completed|uploaded)$/i;
const UNREADY = /^(?:is[_-]?)?(?:pending|processing|queued|running|uploading|incomplete|partial)$/i;
const PROGRESS =
  /^(?=.*(?:progress|percent|pct))(?:(?:progress|percent(?:age)?|pct|completed?|completion|done)[_-]?)+$/i;
/** Members with a word for the state of an output, which counts if there is none where it is declared. */
const WORD = /^(?:state|status|phase)$/i;

/** A member that says plainly that an output is not ready, as a word that is not declared. `null` if none does. */
function unreadyMember(item: object | string, { word, ready }: ListedOutputs): string | null {
  const member = Object.entries(item).find(
    ([name, value]) =>
      (isFalse(value) && READY.test(name)) ||
      (isTrue(value) && UNREADY.test(name)) ||
      (PROGRESS.test(name) && isUnfinished(value)) ||
      (word !== undefined && typeof value === 'string' && WORD.test(name) && !['', ...ready].includes(value)),
  );
  return member === undefined ? null : cut(`${member[0]}: ${member[1]}`, WORD_CHARS_MAX);
}

/** True for 0.4, 40 and `"40%"`. Both 1 and 100 are the whole. */
function isUnfinished(progress: unknown): boolean {
  const share = typeof progress === 'string' && /^[\d.]+ ?%?$/.test(progress) ? Number.parseFloat(progress) : progress;
  return typeof share === 'number' && (share < 1 || (share > 1 && share < 100));
}

export const unusableIdError = (id: string): string => `The service lists it under an unusable id: ${id}`;

/** Where a page has its items, and how it names the next one. */
interface PagePlaces extends Pick<PagedListing, 'items' | 'pages'> {
  /**
   * Where an object in place of the list has what makes it the only item: its id, and a word if items have one. Otherwise
   * the id may be that of the request. Default: only a list has items.
   */
  readonly only?: Pick<ListedOutputs, 'id' | 'word'> | undefined;
}

/** True for an item that is nothing but its id: `"es"` in `["es", "fr"]`. */
const isIdItself = (item: unknown, { id }: Pick<ListedOutputs, 'id'>): item is string =>
  id === '' && typeof item === 'string';

/** The items of all lists of a page, which has `null` in their place if there are none. Undefined if it has no list. */
function itemsOf(json: unknown, { items, only }: PagePlaces): readonly unknown[] | undefined {
  const item = only && typeof items === 'string' ? at(json, items) : undefined;
  const isItem = isObject(item) && usableId(firstAt(item, only?.id)) !== undefined;
  if (isItem && (only?.word === undefined || wordAt(item, only.word) !== null)) return [item];
  const places = [items].flat();
  const values = places.map((pointer) => at(json, pointer));
  const lists = values.filter((value) => Array.isArray(value) || (only !== undefined && isIdItself(value, only)));
  if (lists.length > 0) return lists.flat();
  return places.some((pointer) => pointer !== '' && at(json, pointer) === null) ? [] : undefined;
}

/**
 * Makes a reader of pages from `read`, which gets the items of a page. A page that says that it failed is none.
 * @param failures where it may say so. Undefined if what it says there is not about the page.
 */
const pageReader = <T>(
  [what, member]: readonly [what: string, member: string],
  places: PagePlaces,
  failures: Pick<FailurePlaces, 'words' | 'ofFlow'> | undefined,
  read: (json: unknown, items: readonly unknown[]) => T | undefined,
): Reader<T> => {
  const { items: pointers, pages } = places;
  const declared = [pointers, pages !== undefined && 'at' in pages ? pages.at : []].flat();
  return reader(misfit(what, member, pointers), (json) => {
    if (failures !== undefined) checkFailure(json, { ...failures, declared });
    const items = itemsOf(json, places);
    return items && read(json, items);
  });
};

/** @throws {UnfitAnswerError} the answer says of itself that it failed. */
function checkFailure(json: unknown, places: FailurePlaces, isOwnError = true): void {
  const place = failureIn(json, places);
  if (place === undefined) return;
  const isOfWords = [places.words].flat().includes(place);
  const advice = isOfWords ? ': if it did not, correct "errors.words" in the description' : '';
  throw new UnfitAnswerError(`the answer says that it failed (${place})${advice}`, { isOwnError });
}

/** The answer to an abort or to a deletion. It may say anything but that it failed. */
export const changeReader =
  ({ state, errors: { words } }: Pick<ServiceDescription, 'state' | 'errors'>, isDeletion: boolean) =>
  (json: unknown): void => {
    const declared = showsFlow(json, state) ? [state.error ?? []].flat() : [];
    checkFailure(json, { words, declared, ofFlow: state.failed, isDeletion });
  };

/** What every page says about itself. */
const pageFacts = (
  json: unknown,
  entries: number,
  { items, pages }: Pick<PagedListing, 'items' | 'pages'>,
): Omit<ListingPage<unknown>, 'items' | 'ids'> => ({
  entries,
  next: nextOf(json, pages),
  total: totalOf(json, pages),
  signs: signsIn(json, pages, items),
});

export interface FlowPage extends ListingPage<FlowRecord> {
  /** True if a flow on the page shows its `additional`. Otherwise tags are invisible. */
  readonly showsAdditional: boolean;
}

/** One page of the listing of flows. */
export const flowPageReader = (
  list: ListDescription,
  { state, errors }: Pick<ServiceDescription, 'state' | 'errors'>,
) => {
  const limits = list.pages === undefined ? limitsIn([list.path.split('?')[1], list.query].join('&')) : [];
  return pageReader(['list', 'list.items'], list, errors, (json, items): FlowPage => {
    const flows = items.flatMap((item) => {
      if (!isObject(item) || isCut(firstAt(item, state.additional))) return [];
      const flowId = flowIdAt(item, list.id, state);
      return flowId === undefined ? [] : [recordOf(flowId, item, state)];
    });
    const showsAdditional = items.some(
      (item) => Object.keys(objectIn(firstAt(item, state.additional)) ?? {}).length > 0,
    );
    const ids = flows.map(({ flowId }) => flowId);
    const facts = pageFacts(json, items.length, list);
    return { ...facts, signs: [...facts.signs, ...limits], items: flows, ids, showsAdditional };
  });
};

/** One page of the listing of templates. Each is as the service writes it. */
export const templatePageReader = (listing: PagedListing, { errors }: Pick<ServiceDescription, 'errors'>) =>
  pageReader(['list', 'templates.items'], listing, errors, (json, templates): ListingPage<unknown> => {
    const ids = templates.map((each) => JSON.stringify(each));
    return { ...pageFacts(json, templates.length, listing), items: templates, ids };
  });

/** An output counts before another one of its id in this order: one of a failed attempt may stand beside it. */
const STATUSES: readonly Output['status'][] = ['ready', 'pending', 'failed'];

/** The words for a state among the members of an object. */
export const wordsIn = (value: unknown): readonly string[] =>
  Object.entries(Object(value)).flatMap(([name, word]) => (WORD.test(name) && typeof word === 'string' ? word : []));

/**
 * The word which says that the flow still runs, so that more results may come: its own, or one beside their places. Where
 * its own stands, other words say something else.
 */
export function runningWordIn(
  json: unknown,
  places: Pointers,
  state: StateDescription,
  { path, pending = [] }: { readonly path?: Pointers | undefined; readonly pending?: ListedOutputs['pending'] },
): string | null | undefined {
  const own = [path ?? state.path].flat().includes(state.path) ? [state.word].flat() : [];
  const told = own.filter((place) => at(json, place) !== undefined).map((place) => place.replace(/\/[^/]*$/, ''));
  const words = [...levelsOf([places].flat())].map((level) => (told.includes(level) ? [] : wordsIn(at(json, level))));
  const ofFlow = own.length > 0 ? [wordAt(json, own)] : [];
  return [...ofFlow, ...words.flat()].find(
    (word) => state.running.includes(word) || (word !== null && pending.includes(word)),
  );
}

/** The listed outputs by their ids. An id that is listed twice is one output, unless two that differ are ready. */
function outputsOf(items: readonly (object | string)[], listed: ListedOutputs): Map<string, Output> {
  const outputs = new Map<string, { readonly output: Output; readonly item: unknown }>();
  for (const [index, item] of items.entries()) {
    const output = outputOf(item, listed);
    const { assetId, status } = output;
    const known = outputs.get(assetId) ?? { output, item };
    const isBetter = STATUSES.indexOf(status) < STATUSES.indexOf(known.output.status);
    outputs.set(assetId, isBetter ? { output, item } : known);
    if (status !== 'ready' || isBetter || isDeepStrictEqual(item, known.item)) continue;
    const other = `${assetId} (${index + 1})`;
    const error = `The service lists another output under the id ${assetId} too. Only the first one can be fetched`;
    outputs.set(other, { output: { assetId: other, status: 'failed', error }, item });
  }
  return new Map(Array.from(outputs, ([id, { output }]) => [id, output]));
}

/** One page of the outputs of a flow. @param hasFailed true if the flow has failed: then an error is that of the flow. */
export const outputPageReader = (
  listed: ListedOutputs,
  { state, errors: { words } }: Pick<ServiceDescription, 'state' | 'errors'>,
  hasFailed = false,
) =>
  pageReader(
    ['list of outputs', 'outputs.items'],
    { ...listed, only: listed },
    hasFailed ? undefined : { words, ofFlow: state.failed },
    (json, items): ListingPage<Output> | undefined => {
      if (!items.every((item) => isObject(item) || isIdItself(item, listed))) return undefined;
      const outputs = outputsOf(items, listed);
      // It stands for one more output, not there yet.
      const word = runningWordIn(json, listed.items, state, listed);
      if (word !== undefined)
        outputs.set('', { assetId: '', status: 'pending', word: word ?? undefined, isDeclared: true });
      return { ...pageFacts(json, items.length, listed), items: [...outputs.values()], ids: [...outputs.keys()] };
    },
  );

const shownPointers = (pointers: Pointers): string =>
  [pointers]
    .flat()
    .map((pointer) => (pointer === '' ? 'the answer itself' : pointer))
    .join(' or ');
