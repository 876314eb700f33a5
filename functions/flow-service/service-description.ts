import { duration } from '../base/duration.ts';
import { isObject, type Json, type JsonObject } from '../base/json.ts';

/**
 * How a service speaks. The client knows nothing else about it: a fact that is not declared here is not used, and an
 * answer that does not fit is told. `services.ts` has the descriptions that ship with Flowdrop, and `FLOWS` is the first.
 *
 * A pointer is a JSON pointer (RFC 6901) into an answer. It may lead through a text of JSON. Of several pointers, the
 * first that finds something counts. A path is below `baseUrl`, and may end in a query. In it, `{template}`, `{id}`
 * (of the flow) and `{asset}` (of the output) are replaced.
 */
export interface ServiceDescription {
  /** How the token is sent. */
  readonly token: TokenDescription;
  /**
   * Headers of each request beside the token, such as `{"X-Api-Version": "2026-11-01"}`. Like the token, they go only to
   * addresses below `baseUrl`. Default: none.
   */
  readonly headers?: Readonly<Record<string, string>> | undefined;
  /** The request that makes a flow, and its answer. */
  readonly create: CreateDescription;
  /** The request for one flow, and where its answer says what. In `list`, each item is such an answer. */
  readonly state: StateDescription;
  /** How the outputs of a flow come: listed with their ids, or as addresses in an answer. */
  readonly outputs: OutputsDescription;
  /** The listing of flows, in which the flow of a lost answer is searched. Without it, `inDoubt` decides. */
  readonly list?: ListDescription | undefined;
  /** The listing of templates. Without it, templates are not checked. */
  readonly templates?: PagedListing | undefined;
  /** The request that aborts a flow. Without it, flows that were given up run on. */
  readonly abort?: ChangeDescription | undefined;
  /** The request that deletes an ended flow, with what the service keeps of it. Without it, its operator has to. */
  readonly delete?: ChangeDescription | undefined;
  /** What the service's errors mean. */
  readonly errors: ErrorsDescription;
  /** Maximum nesting of lists and objects in an answer, in levels. Default: 100. */
  readonly answerDepthMax?: number | undefined;
}

/** A pointer, or several. Of several, the first that finds something counts. */
export type Pointers = string | readonly string[];

/** Words of the service, as it spells them. `null` stands for no word at all. */
type Words = readonly (string | null)[];

/** How the token is sent. */
interface TokenDescription {
  /** Name of the header that carries the token. */
  readonly header: string;
  /** Word before the token, such as `Bearer`. Default: none. */
  readonly scheme?: string | undefined;
}

/** The request that makes a flow, and its answer. */
export interface CreateDescription {
  /** Method. Default: `POST`. */
  readonly method?: 'POST' | 'PUT' | undefined;
  /** Path. It may hold `{template}`. */
  readonly path: string;
  /**
   * The body. A text that is one of these words is replaced: `{template}` and `{parameters}` are those of the route;
   * `{additional}` is that of the route, with Flowdrop's tag in it; `{inputs}` is a list of `{"additional": …, "data": …}`,
   * one for each input; `{input}` is the first input: a file as a data URI, a text as it is; `{inputBase64}` is the same
   * without the beginning of the data URI, so a file is bare base64; `{inputUrl}`, alone, is an
   * address by which the service fetches exactly this version of the file from its bucket. A member `...` with
   * `{parameters}` or `{additional}` stands for their members, and the members beside it win. A member whose value is
   * missing is left out. `{{word}}` stands for the text `{word}`.
   */
  readonly body: JsonObject;
  /**
   * For how long the address `{inputUrl}` is valid, in seconds: from 60 to 900. AWS names no lifetime of a function's
   * credentials, but they outlive an invocation, which takes at most 900 seconds. Default: 900.
   */
  readonly inputUrlSeconds?: number | undefined;
  /**
   * Where the answer has the id of the flow: pointers, or `{"header": "Operation-Location"}`. An address or a path there has
   * it where `state.path` has `{id}`.
   */
  readonly id: Pointers | { readonly header: string };
  /** Longest time until the head of the answer, in seconds. A service may store the file first. Default: 60. */
  readonly answerSeconds?: number | undefined;
  /** The idempotency key of a creation. Default: none. */
  readonly idempotency?: IdempotencyDescription | undefined;
}

/** The idempotency key of a creation. */
interface IdempotencyDescription {
  /** Name of the header that carries the key. */
  readonly header: string;
  /**
   * For how long the service answers a repeated request with the flow of the first one, in hours. A lost answer is then sent
   * again with the same key, up to 20 minutes before that time is over. With 0 the key is only sent.
   */
  readonly hours: number;
}

/** One flow: its request, and where its answer says what. */
export interface StateDescription {
  /** Path. It holds `{id}`, if the body does not. */
  readonly path: string;
  /** Body, in which a text `{id}` or `{template}` is replaced. With it, the flow is asked for by `POST`. Default: none. */
  readonly body?: JsonObject | undefined;
  /** Where the word for its state is. */
  readonly word: Pointers;
  /** Words of a flow that has made its outputs. */
  readonly completed: Words;
  /** Words of a flow that has failed. */
  readonly failed: Words;
  /** Words of a flow that was aborted. */
  readonly aborted?: Words | undefined;
  /** Words for a flow that the service does not know, or no longer. Two polls must show one, as with 404. Default: none. */
  readonly gone?: Words | undefined;
  /** Words of a flow that has not ended. Any word that is not declared counts as one, and is told. */
  readonly running: Words;
  /** Where its error is. */
  readonly error?: Pointers | undefined;
  /** Where its progress is, a number. */
  readonly progress?: Pointers | undefined;
  /** Where what `{additional}` attached is shown. Flowdrop recognises its flows by it. */
  readonly additional?: Pointers | undefined;
  /** When it was made: an ISO 8601 text, or a number of seconds or milliseconds since 1970. */
  readonly createdAt?: Pointers | undefined;
}

/** How the outputs of a flow come: listed with their ids, or as addresses in an answer. */
export type OutputsDescription = ListedOutputs | LinkedOutputs;

/** What holds for all outputs. */
interface AnyOutputs {
  /**
   * True if all outputs are there as soon as a flow is completed. Otherwise they must stay the same for two minutes.
   */
  readonly isWhole: boolean;
  /**
   * True if bare base64 in JSON is an output, as the data URI of a file is. Its first bytes tell its media type.
   * Default: false.
   */
  readonly base64?: boolean | undefined;
  /**
   * How long the service keeps the results of an ended flow, in hours. Failures that come of it say so, and a new
   * collection is not advised after that time. Default: nothing is known.
   */
  readonly keptHours?: number | undefined;
}

/** Outputs in a listing of their own, each with an id. */
export interface ListedOutputs extends AnyOutputs {
  /** Path of the listing. Of several, the first that is served counts. */
  readonly path: string | readonly string[];
  /**
   * Where the list is. The empty pointer is the answer itself. Of several pointers, all lists that are there count. At a
   * single pointer, an object with an id, and with a word if `word` is declared, counts as a list of one.
   */
  readonly items: Pointers;
  /** Where an item has its id. With `""`, an item, or a text in place of the list, is an id itself. */
  readonly id: Pointers;
  /** Where an item has the word for its state. */
  readonly word?: Pointers | undefined;
  /** Words of an output that can be fetched. */
  readonly ready: Words;
  /** Words of an output that will never be there. */
  readonly failed?: Words | undefined;
  /** Words of an output that is not there yet. Any word that is not declared counts as one, and is told. */
  readonly pending?: Words | undefined;
  /** Where an item has its error. */
  readonly error?: Pointers | undefined;
  /**
   * Path of an output's bytes. It holds `{asset}`, and `{id}` unless the service gives each of its outputs an id of its
   * own.
   */
  readonly asset: string;
  /** Pointer to the data URI, or to the address of the output, if the service answers with JSON. */
  readonly data?: string | undefined;
  /** How the listing names its next page. Default: it has one page. */
  readonly pages?: Pages | undefined;
}

/** Outputs as addresses, or data URIs, in an answer. */
export interface LinkedOutputs extends AnyOutputs {
  /** Path of the answer. Default: that of the state. */
  readonly path?: string | undefined;
  /**
   * Pointers to what has the addresses: one, or a list or an object, in which every text that is an address counts. A step
   * `-` stands for each item: `/files/-/url` leaves out all else that the items have. A text to which a pointer itself
   * leads, or which is an item of a list there, may also be a path on the host of the answer: `/jobs/7/result`. A pointer
   * may lead through a text of JSON.
   */
  readonly addresses: readonly string[];
  /**
   * What says in place of the answer that the flow has failed. Without `path`, that is the answer about the state too.
   * Default: nothing, the state says so.
   */
  readonly failed?: Refusals | undefined;
  /** `{"by": "none"}` if what looks beside the addresses as if there were more is something else. */
  readonly pages?: OnePage | undefined;
}

/** A listing with its pages. */
export interface PagedListing {
  /** Path of the listing. */
  readonly path: string;
  /** Where the list is. The empty pointer is the answer itself. Of several pointers, all lists that are there count. */
  readonly items: Pointers;
  /** How it names its next page. Default: it has one page. */
  readonly pages?: Pages | undefined;
}

/** The listing of flows. The answer for one flow says where an item has what. */
export interface ListDescription extends PagedListing {
  /** Where an item has its id. */
  readonly id: Pointers;
  /** Query of each request, such as `sort_by=-created_at&page_size=100`. It must leave out no flow. Default: none. */
  readonly query?: string | undefined;
  /** The order: `newest-first`, or `any-order`. */
  readonly order: 'newest-first' | 'any-order';
}

/**
 * How a listing names its next page. Whatever is declared, an answer that says otherwise that there is more is not the
 * whole, and is told.
 */
export type Pages = AddressedPages | CursorPages | NumberedPages | OffsetPages | LinkedPages | OnePage;

/** Pages that name the address of the next one. */
interface AddressedPages {
  /**
   * The form: `address`, `cursor`, `number`, `offset`, `link` for the header `Link` with `rel="next"` (RFC 8288), or
   * `none` for one page, whatever it says.
   */
  readonly by: 'address';
  /** Where the address or the cursor is. */
  readonly at: Pointers;
}

/** Pages with a cursor, which the next request repeats in a parameter. */
interface CursorPages {
  readonly by: 'cursor';
  readonly at: Pointers;
  /** Query parameter that takes the cursor, or the number of the page. */
  readonly parameter: string;
}

/** Pages that are numbered in a parameter. */
interface NumberedPages {
  readonly by: 'number';
  readonly parameter: string;
  /** Number of the first page. Default: 1. */
  readonly first?: 0 | 1 | undefined;
  /** Where the number of entries on all pages is. Default: pages are read until one is empty. */
  readonly total?: Pointers | undefined;
}

/** Pages that begin behind as many entries as a parameter says. */
interface OffsetPages {
  readonly by: 'offset';
  readonly parameter: string;
  /** As of numbered pages. */
  readonly total?: Pointers | undefined;
}

interface LinkedPages {
  readonly by: 'link';
}

/** One page. What looks in it as if there were more is something else. */
interface OnePage {
  readonly by: 'none';
}

/** A request that changes a flow. */
export interface ChangeDescription {
  /** Method. */
  readonly method: 'POST' | 'PUT' | 'PATCH' | 'DELETE';
  /** Path. It holds `{id}`, if the body does not. */
  readonly path: string;
  /** Body, in which a text `{id}` or `{template}` is replaced. Default: none. */
  readonly body?: JsonObject | undefined;
}

/** What a refusal means, by its status and its words. */
export type Refusal = 'outOfCredit' | 'tokenRefused' | 'throttled' | 'notReady' | 'rejected';

/** Statuses, and statuses whose explanation has some words in it. */
export type Refusals = readonly (number | WordedRefusal)[];

interface WordedRefusal {
  /** Status of the answer. */
  readonly status: number;
  /** Words in its explanation. The case of letters and white space do not matter. */
  readonly says: string;
}

/** What the errors of a service mean. */
export interface ErrorsDescription extends Readonly<Record<Exclude<Refusal, 'rejected'>, Refusals>> {
  /**
   * Where the service explains its errors. JSON without anything there is not the service's own: it is that of a gateway
   * or a firewall.
   */
  readonly words: Pointers;
  /** Media type of the service's errors, or several. Default: `application/json`. */
  readonly mediaType?: string | readonly string[] | undefined;
  /** The account is out of credit: statuses, or `{"status": 403, "says": "balance"}`. Uploads wait. */
  readonly outOfCredit: Refusals;
  /** The token is refused. Uploads wait until it is replaced. */
  readonly tokenRefused: Refusals;
  /** Too many requests. They slow down. */
  readonly throttled: Refusals;
  /** What was asked for is not there yet. */
  readonly notReady: Refusals;
  /** The creation is refused for good, and made no flow. Default: 400, 413, 415 and 422. The file fails. */
  readonly rejected?: Refusals | undefined;
}

const HOUR_MS = 60 * 60_000;

const REFUSALS: readonly Refusal[] = ['outOfCredit', 'tokenRefused', 'throttled', 'notReady', 'rejected'];

/** True if only the words of an answer with this status tell what it means. */
export const isToldByWords = (errors: ErrorsDescription, status: number): boolean =>
  REFUSALS.some((name) => errors[name]?.some((each) => typeof each === 'object' && each.status === status));

/** True if an answer is one of some refusals. @param text the body. */
export const isAmong = (refusals: Refusals, status: number, text: string): boolean =>
  refusals.some((each) => each === status || isSaid(each, status, text));

const isSaid = (each: number | WordedRefusal, status: number, text: string): boolean =>
  typeof each === 'object' && each.status === status && plain(text).includes(plain(each.says));

/** A text as it is compared: a service may send `"code":402` where its documentation shows `"code": 402`. */
const plain = (text: string): string => text.toLowerCase().replace(/\s+/g, '');

/**
 * What an answer means. Words are more exact than a status, so they decide first: `{"status": 403, "says": "balance"}`
 * before `403`.
 * @param text the body.
 */
export function refusalOf(errors: ErrorsDescription, status: number, text = ''): Refusal | undefined {
  const byWords = REFUSALS.find((name) => errors[name]?.some((each) => isSaid(each, status, text)));
  return byWords ?? REFUSALS.find((name) => errors[name]?.includes(status));
}

/** Default nesting of an answer, in levels. Known answers have less than ten, apart from the `additional` of users. */
export const ANSWER_DEPTH_MAX = 100;

/** Default time until the head of the answer to a creation, in seconds. */
export const ANSWER_SECONDS = 60;

/** True if a text of the body is one of some placeholders. */
export const holds = (value: Json, placeholders: readonly string[]): boolean =>
  typeof value === 'object' && value !== null
    ? Object.values(value).some((each) => holds(each as Json, placeholders))
    : placeholders.includes(value as string);

/** True if a creation has room for several inputs. */
export const takesSeveralInputs = ({ create }: ServiceDescription): boolean => holds(create.body, ['{inputs}']);

/** Validity of an address of an input, in seconds. No invocation of a function takes longer, nor need its credentials. */
export const INPUT_URL_SECONDS = { min: 60, max: 900, default: 900 } as const;

/** For how long the address of an input must be valid, in seconds. Undefined if a creation has none. */
export const inputUrlSeconds = ({ create }: Pick<ServiceDescription, 'create'>): number | undefined =>
  holds(create.body, ['{inputUrl}']) ? (create.inputUrlSeconds ?? INPUT_URL_SECONDS.default) : undefined;

/** The text that `{{word}}` stands for: `{word}`. Undefined for any other text. */
export const literalOf = (text: string): string | undefined => /^\{(\{[\w-]+\})\}$/.exec(text)?.[1];

/** The header with the token. */
export const tokenHeader = (
  { token: { header, scheme } }: ServiceDescription,
  token: string,
): Record<string, string> => ({
  [header]: scheme === undefined ? token : `${scheme} ${token}`,
});

/** For how long the service honours an idempotency key, in milliseconds. 0 if it does not. */
export const keyHonouredMs = ({ create }: ServiceDescription): number => (create.idempotency?.hours ?? 0) * HOUR_MS;

/** What to know about results that may be gone, in a sentence. Empty if nothing is declared. */
export const keptWords = ({ outputs: { keptHours } }: ServiceDescription): string =>
  keptHours === undefined ? '' : ` The service keeps results for ${duration(keptHours * HOUR_MS)}.`;

/** True if a request about a flow needs its template. */
export const needsTemplate = ({ state, outputs, ...others }: ServiceDescription): boolean =>
  JSON.stringify([
    ...[state.path, state.body, outputs.path, 'asset' in outputs && outputs.asset],
    ...[others.abort, others.delete],
  ]).includes('{template}');

/**
 * A description with some members changed, as RFC 7396 (JSON Merge Patch) says: members of objects are merged, anything
 * else is replaced, and `null` removes a member. An object of another form is replaced too: pages with another `by`, and
 * outputs with `addresses` instead of a list.
 */
export function merged(base: Json, changes: Json): Json {
  if (!isObject(changes)) return changes;
  const result = new Map(isObject(base) && !isOtherForm(base, changes) ? Object.entries(base) : []);
  for (const [name, change] of Object.entries(changes)) {
    if (change === null) result.delete(name);
    else result.set(name, merged(result.get(name) ?? null, change));
  }
  return Object.fromEntries(result);
}

const isOtherForm = (base: JsonObject, changes: JsonObject): boolean =>
  (typeof changes.by === 'string' && changes.by !== base.by) ||
  ('addresses' in changes && 'items' in base) ||
  ('items' in changes && 'addresses' in base);
