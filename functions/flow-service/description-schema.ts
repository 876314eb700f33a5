import * as z from 'zod/mini';
import { didYouMean } from '../base/did-you-mean.ts';
import type { Json, JsonObject } from '../base/json.ts';
import { MEDIA_TYPE } from '../base/media-type.ts';
import { compareMembers, matching, strictObject, wholeNumber } from '../base/validation.ts';
import { POINTER, pointerOf } from './json-pointer.ts';
import { holds, INPUT_URL_SECONDS, literalOf, type ServiceDescription } from './service-description.ts';

const ITEMS_MAX = 10;
const POINTER_CHARS_MAX = 200;
const WORDS_MAX = 50;
/**
 * Longest text that is looked for in an error, and longest word for a state, in characters. A longer word is never read
 * whole.
 */
const SAYS_CHARS_MAX = 100;
const WORD_CHARS_MAX = 64;
const PATH_CHARS_MAX = 300;

/**
 * A path below `baseUrl`: segments of letters, digits and `-._~!$'()*+,;=:@`, and of the placeholders. Behind it, a query
 * may have these, and `&%/?`.
 */
function path(needed: readonly string[], also: readonly string[] = []): z.ZodMiniType<string> {
  const names = [...needed, ...also].map((name) => `\\{${name}\\}`).join('|');
  const some = (more: string) => `(?:[A-Za-z0-9\\-_~!$'()*+,;=:@.${more}]|${names})+`;
  const holdsNeeded = needed.map((name) => `(?=.*\\{${name}\\})`).join('');
  const placeholders = needed.length === 0 ? '' : ` with ${needed.map((name) => `{${name}}`).join(' and ')}`;
  return matching(
    `a path such as "/jobs/{id}"${placeholders}, of at most ${PATH_CHARS_MAX} characters`,
    new RegExp(
      `^(?!.{${PATH_CHARS_MAX + 1}})(?!.*/\\.{1,2}(?:[/?]|$))${holdsNeeded}(?:/${some('')})+/?(?:\\?${some('&%/?')})?$`,
    ),
  );
}

/** Headers that every request has by itself, or that say how it is sent. Another value would break it. */
const OWN_HEADERS: readonly string[] = [
  ...['accept', 'accept-encoding', 'cache-control', 'content-type', 'traceparent', 'user-agent'],
  ...['connection', 'content-length', 'expect', 'host', 'keep-alive', 'te', 'trailer', 'transfer-encoding', 'upgrade'],
];

/** Longest time for which a key counts, in hours. An entry of the ledger, which has the key, is kept for 30 days at least. */
const KEY_HOURS_MAX = 30 * 24;

const hoursUpTo = (max: number) =>
  z
    .number({ error: 'expected a number of hours' })
    .check(z.gte(0, { error: 'expected 0 hours or more' }), z.lte(max, { error: `expected at most ${max} hours` }));

/** One, or a list of 1 to {@link ITEMS_MAX}. */
const oneOrMore = <T>(one: z.ZodMiniType<T>, error: string) =>
  z.union([one, z.array(one).check(z.minLength(1), z.maxLength(ITEMS_MAX))], { error });

/** What stands for inputs that are sent. */
const SENT_INPUTS = ['{inputs}', '{input}', '{inputBase64}'];

/** What brings a file to the service. */
const FILES = [...SENT_INPUTS, '{inputUrl}'];

/** The texts that are replaced in the body of a creation, and in that of a request about a flow. */
const CREATION_PLACEHOLDERS = ['{template}', '{parameters}', '{additional}', ...FILES];
const JOB_PLACEHOLDERS = ['{id}', '{template}'];

/** Why a text looks like a placeholder, but would be sent as it is. Undefined if it does not. */
function placeholderIssue(text: string, known: readonly string[]): string | undefined {
  const literal = literalOf(text);
  if (known.includes(text) || (literal !== undefined && !known.includes(literal))) return undefined;
  if (literal !== undefined || /^\{\s*[\w-]+\s*\}$/.test(text)) {
    const meant = didYouMean(literal ?? text.replace(/\s/g, ''), known);
    const hint = meant === undefined ? '' : `. Did you mean ${meant}?`;
    return `expected ${known.join(', ')}, or {{word}} for the text {word}${hint}`;
  }
  const inside = known.find((each) => text.includes(each));
  return inside && `expected ${inside} alone: nothing is replaced within a longer text`;
}

/** What is in a body, apart from lists and objects, each with the names that lead to it. */
function* leavesOf(value: Json, path: readonly string[] = []): Generator<readonly [readonly string[], Json]> {
  if (typeof value !== 'object' || value === null) yield [path, value];
  else for (const [name, member] of Object.entries(value)) yield* leavesOf(member, [...path, name]);
}

/** Refuses what looks like a placeholder in a body, and is none. */
const checkPlaceholders = (known: readonly string[]) =>
  z.superRefine<JsonObject>((body, context) => {
    for (const [path, value] of leavesOf(body)) {
      const unspread = SPREAD.includes(value as string) ? undefined : `expected ${SPREAD.join(' or ')}`;
      const unknown = typeof value === 'string' ? placeholderIssue(value, known) : undefined;
      const message = path.at(-1) === '...' ? unspread : unknown;
      if (message !== undefined) context.addIssue({ code: 'custom', path: [...path], message, input: value });
    }
  });

/** Refuses a body that holds the file more than once: with `from`, the one that it is merged into has it already. */
const checkFileOnce = z.superRefine<JsonObject>((body, context) => {
  const places = Array.from(leavesOf(body))
    .filter(([path, value]) => path.at(-1) !== '...' && SENT_INPUTS.includes(value as string))
    .map(([path]) => pointerOf(path));
  if (places.length < 2) return;
  const message = `expected the file once, but ${places.join(' and ')} have it: with "from", null removes a member`;
  context.addIssue({ code: 'custom', message, input: body });
});

/** Refuses a word that is in two of some lists: only one of them could count. */
const eachWordOnce = (...names: readonly string[]) =>
  compareMembers<object>((value, isSound, refuse) => {
    const first = new Map<unknown, string>();
    for (const name of names.filter((each) => isSound(each))) {
      const words = (value as Readonly<Record<string, readonly unknown[] | undefined>>)[name] ?? [];
      for (const [index, word] of words.entries()) {
        const other = first.get(word) ?? name;
        first.set(word, other);
        if (other === name) continue;
        refuse([name, index], `expected a word that "${other}" does not have: it can mean only one of them`);
      }
    }
  });

/** Refuses two declared headers of one name: one would take the place of the other, such as that of the token. */
const eachHeaderOnce = compareMembers<Pick<ServiceDescription, 'token' | 'headers' | 'create'>>(
  ({ token, headers = {}, create }, isSound, refuse) => {
    if (!isSound('token') || !isSound('headers') || !isSound('create')) return;
    const { idempotency } = create;
    const own = token.header.toLowerCase();
    const key = idempotency?.header.toLowerCase();
    const message = 'expected another header: two members have this one';
    if (idempotency !== undefined && key === own) refuse(['create', 'idempotency', 'header'], message);
    for (const name of Object.keys(headers)) {
      if ([own, key].includes(name.toLowerCase())) refuse(['headers', name], message, { input: name });
    }
  },
);

/** What a member `...` may stand for. */
const SPREAD: readonly string[] = ['{parameters}', '{additional}'];

/**
 * The schema of a whole description. It is made when it is first needed: most configurations name a description, and a
 * function should not make it at each cold start.
 * @internal
 */
export const descriptionSchema = (): z.ZodMiniType<ServiceDescription> => {
  made ??= makeSchema();
  return made;
};

let made: z.ZodMiniType<ServiceDescription> | undefined;

// biome-ignore lint/complexity/noExcessiveLinesPerFunction: it is a list of members, and each piece is made once.
function makeSchema(): z.ZodMiniType<ServiceDescription> {
  const pointerError = `expected a JSON pointer such as "/data/id" of at most ${POINTER_CHARS_MAX} characters`;

  const pointer = z
    .string({ error: pointerError })
    .check(z.regex(POINTER, { error: pointerError }), z.maxLength(POINTER_CHARS_MAX, { error: pointerError }));

  const pointerList = z
    .array(pointer, { error: 'expected JSON pointers' })
    .check(
      z.minLength(1, { error: 'expected at least one JSON pointer' }),
      z.maxLength(ITEMS_MAX, { error: `expected at most ${ITEMS_MAX} JSON pointers` }),
    );

  const pointers = z.union([pointer, pointerList], {
    error: 'expected a JSON pointer such as "/data/id", or a list of them',
  });

  const wordsError = `expected a list of at most ${WORDS_MAX} words such as "done", of at most ${WORD_CHARS_MAX} characters, or null for no word`;

  const word = z.string({ error: wordsError }).check(z.maxLength(WORD_CHARS_MAX, { error: wordsError }));

  const words = z.array(z.nullable(word), { error: wordsError }).check(z.maxLength(WORDS_MAX, { error: wordsError }));

  const headerName = matching('the name of a header such as "X-Api-Key"', /^[A-Za-z0-9_-]{1,100}$/).check(
    z.refine((name) => !OWN_HEADERS.includes(name.toLowerCase()), {
      error: 'expected another header: every request has this one for something else',
    }),
  );

  const parameterName = matching('the name of a query parameter', /^[A-Za-z0-9_.[\]-]{1,100}$/);

  /** Printable ASCII without `?`, `#` and braces. */
  const query = matching(
    'nothing, or a query such as "sort_by=-created_at" of at most 500 printable ASCII characters, without spaces, "?", "#" and braces',
    /^[!"$->@-z|~]{0,500}$/,
  );

  const hours = hoursUpTo(87_600);

  const pages = z.discriminatedUnion(
    'by',
    [
      strictObject({ by: z.literal('address'), at: pointers }),
      strictObject({ by: z.literal('cursor'), at: pointers, parameter: parameterName }),
      strictObject({
        by: z.literal('number'),
        parameter: parameterName,
        first: z.optional(z.literal([0, 1], { error: 'expected 0 or 1' })),
        total: z.optional(pointers),
      }),
      strictObject({ by: z.literal('offset'), parameter: parameterName, total: z.optional(pointers) }),
      strictObject({ by: z.literal('link') }),
      strictObject({ by: z.literal('none') }),
    ],
    { error: 'expected {"by": "address", "cursor", "number", "offset", "link" or "none"}' },
  );

  const status = wholeNumber('a status', 200, 599);

  const saysError = `expected words of 1 to ${SAYS_CHARS_MAX} characters of the explanation`;

  const says = z
    .string({ error: saysError })
    .check(z.minLength(1, { error: saysError }), z.maxLength(SAYS_CHARS_MAX, { error: saysError }));

  const refusals = z
    .array(
      z.union([status, strictObject({ status, says })], {
        error: 'expected a status, or {"status": 403, "says": "balance"}',
      }),
      { error: 'expected a list of statuses' },
    )
    .check(z.maxLength(WORDS_MAX, { error: `expected at most ${WORDS_MAX}` }));

  /** It was parsed from JSON before, and its depth was checked. */
  const jsonObject = z.record(z.string(), z.unknown(), {
    error: 'expected an object',
  }) as unknown as z.ZodMiniType<JsonObject>;

  /** Headers of each request. A secret has no place in a configuration. */
  const headers = z.record(
    headerName.check(
      z.refine((name) => !/^(?:(?:proxy-)?authorization|cookie)$/i.test(name), {
        error: 'expected another header: a secret is sent as the token',
      }),
    ),
    matching('a value of 1 to 200 printable ASCII characters', /^[!-~](?:[ -~]{0,198}[!-~])?$/).check(
      z.refine(
        (value) =>
          placeholderIssue(value, CREATION_PLACEHOLDERS) === undefined && !CREATION_PLACEHOLDERS.includes(value),
        {
          error: 'expected no placeholder: nothing is replaced in a header',
        },
      ),
    ),
    { error: 'expected an object such as {"X-Api-Version": "2026-11-01"}' },
  );

  const createBody = jsonObject.check(
    z.refine((body) => holds(body, FILES), {
      error: `expected a member ${FILES.join(' or ')}: without one, no file reaches the service`,
    }),
    z.refine((body) => !holds(body, ['{inputUrl}']) || !holds(body, SENT_INPUTS), {
      error: 'expected "{inputUrl}", or "{input}" and "{inputs}": the file is sent, or fetched by the service',
    }),
    checkFileOnce,
    checkPlaceholders(CREATION_PLACEHOLDERS),
  );

  /** A request that changes a flow. */
  const aboutFlow = {
    path: path([], ['id', 'template']),
    body: z.optional(jsonObject.check(checkPlaceholders(JOB_PLACEHOLDERS))),
  };
  const holdsId = z.refine<{ path: string; body?: JsonObject | undefined }>(
    ({ path, body = {} }) => path.includes('{id}') || holds(body, ['{id}']),
    { error: 'expected {id} in the path or in the body' },
  );
  const change = strictObject({
    method: z.enum(['POST', 'PUT', 'PATCH', 'DELETE'], { error: 'expected "POST", "PUT", "PATCH" or "DELETE"' }),
    ...aboutFlow,
  }).check(holdsId);

  const gone = new Map([['headers', 'is gone. Declare `headers` beside `create`: each request has them']]);
  const create = strictObject(
    {
      method: z.optional(z.enum(['POST', 'PUT'], { error: 'expected "POST" or "PUT"' })),
      path: path([], ['template']),
      body: createBody,
      inputUrlSeconds: z.optional(
        wholeNumber(
          'seconds',
          INPUT_URL_SECONDS.min,
          INPUT_URL_SECONDS.max,
          ': an address is valid no longer than the credentials of the function, and AWS promises none beyond an invocation',
        ),
      ),
      id: z.union([pointer, pointerList, strictObject({ header: headerName })], {
        error: 'expected a JSON pointer such as "/data/id", a list of them, or a header',
      }),
      answerSeconds: z.optional(wholeNumber('seconds', 5, 600)),
      idempotency: z.optional(strictObject({ header: headerName, hours: hoursUpTo(KEY_HOURS_MAX) })),
    },
    'an object',
    gone,
  ).check(
    z.refine((value) => value.inputUrlSeconds === undefined || holds(value.body, ['{inputUrl}']), {
      error: 'expected none, because the body has no {inputUrl}',
      path: ['inputUrlSeconds'],
    }),
    // Each process signs with its own credentials, so the address could not be the same again.
    z.refine(({ body, idempotency: { hours = 0 } = {} }) => hours === 0 || !holds(body, ['{inputUrl}']), {
      error:
        'expected 0 with {inputUrl}: a key is repeated with the same body, and each request has an address of its own',
      path: ['idempotency', 'hours'],
    }),
  );

  const mediaType = matching('a media type such as "application/json"', MEDIA_TYPE);

  const isWhole = z.boolean({ error: 'expected true or false' });

  /** What holds for all outputs. */
  const anyOutputs = { isWhole, base64: z.optional(isWhole), keptHours: z.optional(hours) };

  const listedOutputs = strictObject({
    path: oneOrMore(path(['id'], ['template']), 'expected a path such as "/jobs/{id}/outputs", or a list of them'),
    items: pointers,
    id: pointers,
    word: z.optional(pointers),
    ready: words,
    failed: z.optional(words),
    pending: z.optional(words),
    error: z.optional(pointers),
    asset: path(['asset'], ['id', 'template']),
    data: z.optional(pointer),
    pages: z.optional(pages),
    ...anyOutputs,
  }).check(
    eachWordOnce('ready', 'failed', 'pending'),
    z.refine(({ base64, data }) => base64 !== true || data !== undefined, {
      error: 'expected "data" too, which points to the base64',
      path: ['base64'],
    }),
  );

  const linkedOutputs = strictObject({
    path: z.optional(path(['id'], ['template'])),
    addresses: pointerList,
    failed: z.optional(refusals),
    pages: z.optional(strictObject({ by: z.literal('none', { error: 'expected "none"' }) })),
    ...anyOutputs,
  });

  return strictObject(
    {
      token: strictObject({
        header: headerName,
        scheme: z.optional(matching('a scheme such as "Bearer"', /^[A-Za-z0-9-]{1,100}$/)),
      }),
      headers: z.optional(headers),
      create,
      state: strictObject({
        ...aboutFlow,
        word: pointers,
        completed: words,
        failed: words,
        aborted: z.optional(words),
        gone: z.optional(words),
        running: words,
        error: z.optional(pointers),
        progress: z.optional(pointers),
        additional: z.optional(pointers),
        createdAt: z.optional(pointers),
      }).check(holdsId, eachWordOnce('completed', 'failed', 'aborted', 'gone', 'running')),
      outputs: z.union([listedOutputs, linkedOutputs], { error: 'expected the outputs: listed, or their addresses' }),
      list: z.optional(
        strictObject({
          path: path([]),
          items: pointers,
          id: pointers,
          query: z.optional(query),
          order: z.enum(['newest-first', 'any-order'], { error: 'expected "newest-first" or "any-order"' }),
          pages: z.optional(pages),
        }),
      ),
      templates: z.optional(strictObject({ path: path([]), items: pointers, pages: z.optional(pages) })),
      abort: z.optional(change),
      delete: z.optional(change),
      errors: strictObject({
        words: pointers,
        mediaType: z.optional(
          oneOrMore(mediaType, 'expected a media type such as "application/json", or a list of them'),
        ),
        outOfCredit: refusals,
        tokenRefused: refusals,
        throttled: refusals,
        notReady: refusals,
        rejected: z.optional(refusals),
      }),
      answerDepthMax: z.optional(wholeNumber('levels', 50, 1000)),
    },
    'the description of a service',
  ).check(eachHeaderOnce as never) as unknown as z.ZodMiniType<ServiceDescription>;
}
