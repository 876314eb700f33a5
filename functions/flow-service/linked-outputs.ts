import { isObject } from '../base/json.ts';
import { typeOfName } from '../base/media-type.ts';
import { quoted } from '../base/printable.ts';
import {
  cut,
  errorText,
  isUsableId,
  nothingAt,
  pathOf,
  reader,
  runningWordIn,
  shownId,
  stateOf,
  UNUSABLE_ID_CHARS_MAX,
  unusableIdError,
  WORD_CHARS_MAX,
  wordsIn,
} from './answers.ts';
import { BARE_BASE64 } from './data-decoders.ts';
import type { ListingPage } from './flow-listing.ts';
import { UNREADABLE } from './json-answer.ts';
import { at, pointerOf, stepsOf } from './json-pointer.ts';
import { typeOfBytes } from './media-type.ts';
import { signsOfResults } from './pages.ts';
import { ERROR, FAILED, type FailurePlaces, failureIn, isNoError } from './said-failure.ts';
import type { LinkedOutputs, ServiceDescription, StateDescription } from './service-description.ts';

/**
 * The results of a flow that an answer has at addresses: which texts are addresses, which places lack one, and what the
 * words beside them say.
 */

/** The result of a flow at an address, or as a data URI in the answer. */
export interface LinkedOutput {
  /** The place where the answer has it, such as `output-0`: a dot would be encoded in the key of a result. */
  readonly assetId: string;
  readonly pointer: string;
  /** The address, or the beginning of the data URI. Undefined if it cannot be fetched. */
  readonly address: string | undefined;
  /** Why it cannot be fetched. */
  readonly error: string | undefined;
  /** The word beside it which says that it is not there yet, whatever is at its address. */
  readonly word?: string | undefined;
}

/** The results in an answer: at the declared pointers, and in lists and objects there. */
export interface LinkedResults {
  readonly links: readonly LinkedOutput[];
  /** What the answer says about more of them. */
  readonly page: ListingPage<unknown>;
  /** Says that the pointers find neither an address nor a place for some. Undefined if they do. */
  readonly nothing?: string | undefined;
  /** True if the answer shows the flow as running: results may still come, whatever an earlier answer said. */
  readonly isRunning: boolean;
}

/** The step of a pointer that stands for each item of a list, or for each member of an object. */
const EACH = /\/-(?=\/|$)/;

/** The pointer to the list whose items have the addresses: `/files` for `/files/-/url`. */
export const listOf = (pointer: string): string => pointer.split(EACH)[0] ?? '';

export const linkedOutputsReader = (
  { addresses, path, base64 = false }: LinkedOutputs,
  { state, errors: { words } }: Pick<ServiceDescription, 'state' | 'errors'>,
) =>
  reader('no object', (json): LinkedResults | undefined => {
    if (!isObject(json) && !Array.isArray(json)) return undefined;
    const links = new Map<string, LinkedOutput>();
    const lists = addresses.map(listOf);
    for (const declared of addresses) {
      const [list = '', ...within] = declared.split(EACH);
      const isShared = lists.indexOf(list) !== lists.lastIndexOf(list);
      for (const place of linksIn(at(json, list), list, { words, state, within, isShared })) {
        const { pointer } = place;
        const id = stepsOf(pointer).join('-').replaceAll('/', '-');
        const known = links.get(id);
        if (known === undefined) links.set(id, linkedOutput(id, place, base64));
        // `a-b`, and `b` in `a`, are two places.
        else if (known.pointer !== pointer) links.set(pointer, linkedOutput(pointer.slice(1), place, base64));
      }
    }
    const isEmpty = lists.some((pointer) => isEmptyPlace(at(json, pointer)));
    const nothing = links.size === 0 && !isEmpty && nothingAt('address', 'outputs.addresses', addresses, json);
    const isRunning = runningWordIn(json, lists, state, { path }) !== undefined;
    return {
      links: [...links.values()],
      page: pageOf(json, [...links.values()]),
      ...(nothing && { nothing }),
      isRunning,
    };
  });

/** The answer as a page of the lists that hold its results. */
function pageOf(json: unknown, links: readonly LinkedOutput[]): ListingPage<unknown> {
  const places = new Set(
    links.flatMap(({ pointer }) => stepsOf(pointer).map((_, index, all) => pointerOf(all.slice(0, index)))),
  );
  const lists = [...places].filter((place) => Array.isArray(at(json, place)));
  const entries = Math.max(links.length, ...lists.map((place) => (at(json, place) as readonly unknown[]).length));
  const ids = links.map(({ assetId }) => assetId);
  return { items: links, ids, entries, next: undefined, total: undefined, signs: signsOfResults(json, lists) };
}

/** True for what stands where no result is: `null`, `""`, an empty list or object. */
const isEmptyPlace = (value: unknown): boolean =>
  value === null || value === '' || (typeof value === 'object' && Object.keys(value).length === 0);

/** A text as an address with a scheme. Of a data URI, no more than the beginning is read. */
function withScheme(text: string, base64: boolean): string {
  if (base64 && BARE_BASE64.test(text)) return `data:;base64,${text.slice(0, 100)}`;
  return SCHEMELESS.test(text) ? `https:${text}` : text;
}

/** @param base64 true if bare base64 counts too. */
function linkedOutput(id: string, place: LinkedPlace, base64: boolean): LinkedOutput {
  const { pointer, value: named, error: said, word } = place;
  const value = typeof named === 'string' ? withScheme(named, base64) : named;
  if (!isUsableId(id)) {
    const shown = shownId(id);
    return { assetId: shown, pointer, address: undefined, error: unusableIdError(shown) };
  }
  const isOne = isLink(value) && URL.canParse(value) && !SEVERAL.test(value);
  const address = place.isPath || isOne ? String(value) : UNREADABLE;
  if (said === undefined && !address.includes(UNREADABLE))
    return { assetId: id, pointer, address, error: undefined, word };
  if (word !== undefined) return { assetId: id, pointer, address: undefined, error: undefined, word };
  const lost = isLost(value)
    ? `No address that can be fetched: ${quoted(pathOf(value), UNUSABLE_ID_CHARS_MAX, '…')}`
    : undefined;
  const error = said ?? lost ?? `It is no address, but ${quoted(value, UNUSABLE_ID_CHARS_MAX, '…')}`;
  return { assetId: id, pointer, address: undefined, error };
}

/** True for an address of a result, or a data URI. Not every one can be fetched. */
export const isLink = (value: unknown): value is string =>
  typeof value === 'string' && /^(?:https?:\/\/|data:)/i.test(value);

/** Several addresses in one text. A URL drops the line breaks between them, and a server may look at the first alone. */
const SEVERAL = /^https?:.*\s[a-z]+:\/\//is;

/** A place with a result, or with what stands there. */
interface LinkedPlace {
  readonly pointer: string;
  readonly value: unknown;
  /** What an item of a list says in place of an address, or an object beside it. */
  readonly error?: string | undefined;
  /** A word which says that it is not there yet. */
  readonly word?: string | undefined;
  /** True for a path of the service's own, where the description has the address: `/jobs/7/result`. */
  readonly isPath?: boolean | undefined;
}

/** What says in an answer with links how they are. */
interface LinkFacts extends Pick<FailurePlaces, 'words'> {
  readonly state: StateDescription;
  /** Where an item has its addresses, and an item of a list there. Default: anywhere. */
  readonly within: readonly string[];
  /** True if another pointer may find the addresses of some items. */
  readonly isShared: boolean;
}

/** An address without a scheme, which is that of the answer (RFC 3986, section 4.2). */
const SCHEMELESS = /^\/\/[\w-]+\.[\w.-]+[:/]\S/;

/**
 * True for a path on the host of the answer (RFC 3986, section 4.2). One with the name of a person's file may have blanks,
 * and tells by its extension that it is no other text.
 */
const isOwnPath = (text: string): boolean =>
  /^\/[^\s/]/.test(text) && (!/\s/.test(text) || typeOfName(pathOf(text)) !== undefined);

/** What only a file in base64 begins with, and enough of it to know the file by. */
const BASE64_BEGINNING = /^[A-Za-z0-9+/_-]{100}/;

const isBase64File = (text: string): boolean =>
  BASE64_BEGINNING.test(text) && typeOfBytes(Buffer.from(text.slice(0, 100), 'base64')) !== undefined;

/** Paths with these types are of results. */
const RESULT_TYPE = /^(?:(?:audio|font|image|model|video)\/|application\/(?:pdf|zip)$)/;

/** True for a text that stands for a result, but at no address that can be fetched: `s3://a/b`, `/files/a.png`, base64. */
const isLost = (value: unknown): value is string =>
  typeof value === 'string' &&
  (/^(?!https?:)[a-z][a-z0-9+.-]{0,20}:\/\/[^\s/]+\/\S+$/i.test(value) ||
    SCHEMELESS.test(value) ||
    (/^\/\S+$/.test(value) && RESULT_TYPE.test(typeOfName(pathOf(value)) ?? '')) ||
    isBase64File(value));

const fileOf = (address: string): string | undefined => pathOf(address).split('/').at(-1);

/** The error of a place in a list where a result should stand. */
const LACKING = 'The service lists no address there';

/** The places within a value where nothing stands. */
const emptyPlacesIn = (value: unknown, pointer: string): readonly string[] => {
  if (value === null || value === '') return [pointer];
  if (!isObject(value)) return [];
  return Object.entries(value).flatMap(([name, member]) => emptyPlacesIn(member, pointer + pointerOf([name])));
};

/** What an object says of an error. */
const errorIn = (value: unknown): string | undefined =>
  errorText(Object.entries(Object(value)).find(([name, error]) => ERROR.test(name) && !isNoError(error))?.[1]);

/** What the words in an object say of the addresses there: the word of a flow that runs, or of one that has failed. */
function saidBeside(value: unknown, { state }: LinkFacts): Pick<LinkedPlace, 'error' | 'word'> {
  for (const word of wordsIn(value)) {
    const meant = stateOf(word, state);
    if (meant === 'running') return { word };
    if (meant !== undefined && meant !== 'completed')
      return { error: errorIn(value) ?? `The service shows it as "${cut(word, WORD_CHARS_MAX)}"` };
  }
  return {};
}

/** What the items of a list with links have: the places of these, and words. */
interface Linking {
  readonly places: ReadonlySet<string>;
  readonly words: ReadonlySet<string>;
}

/**
 * The lost result that an item of a list without a link stands for: it has an error. Or others have links, and it says that
 * it failed, has a word that none of them has, or has nothing at the place of such a link.
 */
function lostIn(item: unknown, pointer: string, facts: LinkFacts, others: Linking): readonly LinkedPlace[] {
  const hasOthers = others.places.size > 0;
  const { word } = hasOthers ? saidBeside(item, facts) : {};
  if (word !== undefined) return [{ pointer, value: item, word }];
  // Words without a code may tell of a step: `{"message": "Loading"}`.
  const places = { words: at(item, '/code') === undefined ? [] : facts.words, declared: [] };
  const isOther = others.words.size > 0 && !wordsIn(item).every((each) => others.words.has(each));
  const isFailed = isObject(item) && Object.values(item).some((each) => typeof each === 'string' && FAILED.test(each));
  const hasFailed = hasOthers && (isOther || isFailed || failureIn(item, places) !== undefined);
  const error = errorText(at(item, '/error')) ?? (hasFailed ? errorText(item) : undefined);
  if (error !== undefined) return [{ pointer, value: item, error }];
  const lacking = emptyPlacesIn(item, '').find((each) => others.places.has(each));
  return lacking === undefined ? [] : [{ pointer: pointer + lacking, value: '', error: LACKING }];
}

/** True for items by their names, such as `{"low": {"url": …}, "high": {"status": "failed"}}`. */
function isOfObjects(value: object): boolean {
  const members = Object.values(value).filter((member) => member !== null);
  return members.length > 1 && members.every(isObject);
}

/**
 * @param facts what says of an item of a list that it has failed, or is not there yet.
 * @param isWanted false within an object, whose other members may say anything about the result.
 */
function* linksIn(value: unknown, pointer: string, facts: LinkFacts, isWanted = true): Generator<LinkedPlace> {
  if (value === undefined || value === null || value === '') return;
  const [within, ...deeper] = facts.within;
  if (Array.isArray(value) || (isObject(value) && (within !== undefined || (isWanted && isOfObjects(value))))) {
    const items = Object.entries(value).map(([name, item]) => {
      const place = pointer + pointerOf([name]);
      const links = [
        ...linksIn(at(item, within ?? ''), place + (within ?? ''), { ...facts, within: deeper }, isWanted),
      ];
      return { item, place, links: within ? links.map((each) => ({ ...saidBeside(item, facts), ...each })) : links };
    });
    const linking = items.filter(({ links }) => links.length > 0);
    const others = {
      places: new Set(
        linking.flatMap(({ place, links }) => links.map(({ pointer: each }) => each.slice(place.length))),
      ),
      words: new Set(facts.isShared ? [] : linking.flatMap(({ item }) => wordsIn(item))),
    };
    for (const { item, place, links } of items) yield* links.length > 0 ? links : lostIn(item, place, facts, others);
  } else if (isObject(value)) {
    // An object may say where else the file at its address is: `{"url": "https://…/a.png", "key": "s3://…/a.png"}`, or
    // give the same address with and without TLS.
    const addresses = new Set(Object.values(value).filter(isLink));
    const files = new Set(addresses.values().map(fileOf));
    const isKnown = (member: unknown): boolean =>
      isLost(member)
        ? files.has(fileOf(member))
        : isLink(member) && member.startsWith('http:') && addresses.has(member.replace('http', 'https'));
    // The words of the answer itself are about the flow.
    const said = pointer === '' ? {} : saidBeside(value, facts);
    for (const [name, member] of Object.entries(value).filter(([, each]) => !isKnown(each))) {
      for (const place of linksIn(member, pointer + pointerOf([name]), facts, false)) yield { ...said, ...place };
    }
  } else if (isWanted || isLink(value) || isLost(value)) {
    // A JPEG in base64 begins with `/9j/`.
    const isPath = isWanted && isOwnPath(String(value)) && !isBase64File(String(value));
    yield { pointer, value, isPath };
  }
}
