import mime from 'mime';
import * as z from 'zod/mini';
import type { Json, JsonObject } from '../base/json.ts';
import { shorten, strictObject } from '../base/validation.ts';
import { FLOW_TAG_NAME } from '../flow-service/types.ts';
import { KEY_BYTES_MAX } from '../s3/limits.ts';

/** Which uploads become flows of which template. A route matches where every condition that it has is met. */
export interface Route {
  readonly name: string;
  /** The key starts with one of these. Compared without regard to case, as are the next two. */
  readonly prefixes?: readonly string[] | undefined;
  /** The key ends with one of these. */
  readonly suffixes?: readonly string[] | undefined;
  /** The upload's media type is one of these; `image/*` stands for all of a kind. */
  readonly mediaTypes?: readonly string[] | undefined;
  /** How the upload is given to the flow: as a file (a data URI) or as the text itself. */
  readonly input: 'file' | 'text';
  readonly template: string;
  readonly parameters?: Json | undefined;
  readonly additional?: JsonObject | undefined;
  /** Whether an object's own metadata may replace template, parameters and additional. Off unless said. */
  readonly overrides?: boolean | undefined;
}

/** What an entry keeps of its route, so that a later deployment does not change work under way. */
export interface RouteSnapshot {
  readonly name: string;
  readonly input: 'file' | 'text';
  readonly template: string;
  readonly parameters?: Json | undefined;
  readonly additional?: JsonObject | undefined;
}

/** An upload's own metadata asks for something that cannot be: the file is at fault, and no retry will help. */
export class InvalidOverrideError extends Error {
  override readonly name = 'InvalidOverrideError';
  readonly code = 'invalid-override';
}

const NAME_LENGTH_MAX = 64;
const ROUTES_MAX = 200;
const CONDITIONS_MAX = 200;
/** Longer than any real id or name of a template; shorter than what a service would choke on. */
const TEMPLATE_LENGTH_MAX = 256;
/** The service gives back what it was given, and answers that are nested much deeper than this are not read. */
const JSON_DEPTH_MAX = 32;

function bounded(what: string, max: number) {
  const error = `expected ${what} of 1 to ${max} characters, none of them a control character`;
  return z
    .string({ error })
    .check(z.minLength(1, { error }), z.maxLength(max, { error }), z.regex(/^\P{Cc}*$/u, { error }));
}

function conditions(each: z.ZodMiniType<string>, what: string) {
  const error = `expected a list of 1 to ${CONDITIONS_MAX} ${what}, or nothing at all`;
  return z.optional(z.array(each, { error }).check(z.minLength(1, { error }), z.maxLength(CONDITIONS_MAX, { error })));
}

const templateSchema = bounded('the id or name of a template', TEMPLATE_LENGTH_MAX);

/** Whatever there is: what is checked here has been JSON already. */
const jsonSchema = z.custom<Json>((value) => value !== undefined && isNestedWithin(JSON_DEPTH_MAX, value), {
  error: `expected something that JSON can say, nested at most ${JSON_DEPTH_MAX} deep`,
});

const isNestedWithin = (depth: number, value: unknown): boolean =>
  typeof value !== 'object' ||
  value === null ||
  (depth > 0 && Object.values(value).every((each) => isNestedWithin(depth - 1, each)));

const additionalSchema: z.ZodMiniType<JsonObject> = z
  .record(z.string(), jsonSchema, { error: 'expected an object' })
  .check(
    z.refine((value) => !Object.hasOwn(value, FLOW_TAG_NAME), {
      error: `expected no "${FLOW_TAG_NAME}", which is our own tag`,
    }),
  );

const MEDIA_TYPE_ERROR = 'expected a media type such as "image/png", "image/*" or "*/*", without parameters';
/** Type and subtype as tokens. @see https://www.rfc-editor.org/rfc/rfc9110#section-8.3.1 */
const MEDIA_TYPE = /^[!#$%&'*+.^_`|~0-9a-z-]+\/[!#$%&'*+.^_`|~0-9a-z-]+$/i;

const routeSchema: z.ZodMiniType<Route> = strictObject({
  name: bounded('a name', NAME_LENGTH_MAX),
  prefixes: conditions(bounded('a prefix', KEY_BYTES_MAX), 'prefixes'),
  suffixes: conditions(bounded('a suffix', KEY_BYTES_MAX), 'suffixes'),
  mediaTypes: conditions(
    z.string({ error: MEDIA_TYPE_ERROR }).check(z.regex(MEDIA_TYPE, { error: MEDIA_TYPE_ERROR })),
    'media types',
  ),
  input: z._default(z.enum(['file', 'text'], { error: 'expected "file" or "text"' }), 'file'),
  template: templateSchema,
  parameters: z.optional(jsonSchema),
  additional: z.optional(additionalSchema),
  overrides: z.optional(z.boolean({ error: 'expected true or false' })),
});

const ROUTES_ERROR = `expected a list of 1 to ${ROUTES_MAX} routes`;

/**
 * The routes in their order, each with a name of its own.
 * @internal
 */
export const routesSchema = z.array(routeSchema, { error: ROUTES_ERROR }).check(
  z.minLength(1, { error: ROUTES_ERROR }),
  z.maxLength(ROUTES_MAX, { error: ROUTES_ERROR }),
  z.superRefine((routes, context) => {
    for (const [index, { name }] of routes.entries()) {
      const first = routes.findIndex((route) => route.name === name);
      if (first === index) continue;
      const message = `expected a name that routes[${first}] does not have already`;
      context.addIssue({ code: 'custom', path: [index, 'name'], message, input: name });
    }
  }),
);

/**
 * Folds case one code point at a time, because `toLowerCase` of a whole string looks at neighbours (a final sigma), and
 * then a prefix folded by itself is no longer a prefix.
 */
const caseless = (text: string) => Array.from(text, (point) => point.toLowerCase().toUpperCase()).join('');

function keyFits({ prefixes, suffixes }: Route, key: string): boolean {
  const folded = caseless(key);
  return (
    (prefixes === undefined || prefixes.some((prefix) => folded.startsWith(caseless(prefix)))) &&
    (suffixes === undefined || suffixes.some((suffix) => folded.endsWith(caseless(suffix))))
  );
}

function mediaTypeFits({ mediaTypes }: Route, mediaType: string): boolean {
  const [type, subtype] = essence(mediaType).split('/');
  return (
    mediaTypes === undefined ||
    mediaTypes.some((wanted) => {
      const [wantedType, wantedSubtype] = wanted.toLowerCase().split('/');
      return (wantedType === '*' || wantedType === type) && (wantedSubtype === '*' || wantedSubtype === subtype);
    })
  );
}

/** Whether any route could want this key. Where none could, the object need not be opened to learn its media type. */
export function mayMatch(routes: readonly Route[], key: string): boolean {
  return routes.some((route) => keyFits(route, key));
}

/** Whether a route wants this key whatever the media type is. */
export function isWantedByKey(routes: readonly Route[], key: string): boolean {
  return routes.some((route) => route.mediaTypes === undefined && keyFits(route, key));
}

/** The first route, in their order, that wants this upload. */
export function routeFor(
  routes: readonly Route[],
  { key, mediaType }: { readonly key: string; readonly mediaType: string },
): Route | undefined {
  return routes.find((route) => keyFits(route, key) && mediaTypeFits(route, mediaType));
}

const GENERIC = 'application/octet-stream';
/** What S3 says of an object that was put without a type, and what programs say that do not know. */
const GENERIC_TYPES: readonly string[] = [GENERIC, 'binary/octet-stream'];

/** A media type without its parameters, in lower case. */
const essence = (mediaType: string) => (mediaType.split(';')[0] ?? '').trim().toLowerCase();

/** The object's own `Content-Type`, without parameters, where that says something; else what its extension says. */
export function mediaTypeOf(contentType: string | undefined, key: string): string {
  const said = essence(contentType ?? '');
  if (MEDIA_TYPE.test(said) && !GENERIC_TYPES.includes(said)) return said;
  const name = key.slice(key.lastIndexOf('/') + 1);
  // Of a name without a dot the library would take the whole for an extension.
  return (name.includes('.') ? mime.getType(name) : null) ?? GENERIC;
}

/**
 * What is kept of a route for one upload, with what the upload's own metadata replaces where the route allows it.
 * @param metadata user metadata by lower-case names without `x-amz-meta-`, as the SDK gives it.
 * @throws {InvalidOverrideError}
 */
export function snapshot(route: Route, metadata: Readonly<Record<string, string>> = {}): RouteSnapshot {
  const { name, input, template, parameters, additional } = route;
  const kept: RouteSnapshot = { name, input, template, parameters, additional };
  if (route.overrides !== true) return kept;
  const override = <T>(header: string, schema: z.ZodMiniType<T>, read: (text: string) => unknown) =>
    metadata[header] === undefined ? undefined : parseOverride(header, metadata[header], schema, read);
  return {
    name,
    input,
    template: override('flow-template', templateSchema, (text) => text.trim()) ?? template,
    // Null is a value that somebody may want, so absence alone keeps the route's own.
    parameters: 'flow-parameters' in metadata ? override('flow-parameters', jsonSchema, JSON.parse) : parameters,
    additional: override('flow-additional', additionalSchema, JSON.parse) ?? additional,
  };
}

function parseOverride<T>(header: string, raw: string, schema: z.ZodMiniType<T>, read: (text: string) => unknown): T {
  let value: unknown;
  try {
    value = read(decodeWords(raw));
  } catch (cause) {
    throw invalidOverride(header, raw, 'expected JSON in readable UTF-8', cause);
  }
  const { success, data, error } = z.safeParse(schema, value);
  if (!success) throw invalidOverride(header, raw, error.issues[0]?.message, error);
  return data;
}

function invalidOverride(header: string, raw: string, expected: string | undefined, cause: unknown) {
  return new InvalidOverrideError(`metadata ${header}: ${expected}, got ${shorten(JSON.stringify(raw))}`, { cause });
}

/** One word, or several with nothing but space between them, which the standard says to drop. */
const ENCODED_WORDS = /=\?([^?\s]+)\?([bq])\?([^?\s]*)\?=(?:\s+(?==\?[^?\s]+\?[bq]\?[^?\s]*\?=))?/gi;

/**
 * S3 gives metadata that is not ASCII as encoded words. The bytes of neighbours are joined before they are decoded,
 * because a character may be cut in two where one word ends.
 * @see https://docs.aws.amazon.com/AmazonS3/latest/userguide/UsingMetadata.html and https://www.rfc-editor.org/rfc/rfc2047
 * @throws {RangeError} an unknown character set. @throws {TypeError} bytes that are not in it.
 */
function decodeWords(value: string): string {
  let decoded = '';
  let end = 0;
  let pending: { readonly charset: string; bytes: Buffer } | undefined;
  const flush = () => {
    if (pending !== undefined) decoded += new TextDecoder(pending.charset, { fatal: true }).decode(pending.bytes);
    pending = undefined;
  };
  for (const match of value.matchAll(ENCODED_WORDS)) {
    const [whole, charset = '', encoding = '', content = ''] = match;
    const bytes = encoding.toLowerCase() === 'b' ? Buffer.from(content, 'base64') : decodeQ(content);
    if (match.index > end || pending?.charset !== charset.toLowerCase()) {
      flush();
      decoded += value.slice(end, match.index);
      pending = { charset: charset.toLowerCase(), bytes };
    } else {
      pending.bytes = Buffer.concat([pending.bytes, bytes]);
    }
    end = match.index + whole.length;
  }
  flush();
  return decoded + value.slice(end);
}

function decodeQ(content: string): Buffer {
  const latin1 = content
    .replaceAll('_', ' ')
    .replaceAll(/=([0-9a-f]{2})/gi, (_, hex: string) => String.fromCharCode(Number.parseInt(hex, 16)));
  return Buffer.from(latin1, 'latin1');
}
