import * as z from 'zod/mini';
import { isObject, type Json, type JsonObject } from '../base/json.ts';
import { quoted } from '../base/printable.ts';
import { boundedList, boundedText, compareMembers, matching, strictObject, wholeNumber } from '../base/validation.ts';
import { FLOW_TAG_NAME } from '../flow-service/types.ts';
import { KEY_BYTES_MAX } from '../s3/limits.ts';
import { budgetSchema, priceIssueOf, priceSchema } from './budget.ts';
import { issuesOfChains } from './chain-routes.ts';
import { isJobFile } from './job-keys.ts';
import { issuesOfJobs } from './job-routes.ts';
import { issueOfAlias } from './results-key-pattern.ts';
import type { JobsRoute, Route } from './route.ts';
import {
  CONDITION_SCHEMAS,
  hasObjectCondition,
  MEDIA_TYPES_SCHEMA,
  matchesKey,
  matchesObject,
  type UploadFacts,
} from './route-conditions.ts';
import { fittingName, SKIPPED_NAMES, skippedWords } from './skipped-names.ts';
import { isStageKey, STAGE_KEY_TAKEN } from './upload.ts';
import { isFolderMarker, isFolderType } from './upload-event.ts';

const NAME_LENGTH_MAX = 64;
const ROUTES_MAX = 200;
/** Longer than any real id or name of a template, and short enough for any service. */
const TEMPLATE_LENGTH_MAX = 256;
/** The service returns the JSON that it was given, and answers with much deeper nesting are not read. */
const JSON_DEPTH_MAX = 32;
/** Longest time for which a job may wait for its inputs, in seconds: 30 days. */
const DEADLINE_SECONDS_MAX = 30 * 24 * 3_600;
/** Longest time for which the key of a file must not change, in seconds: the canary is put every hour, and waits too. */
const SETTLE_SECONDS_MAX = 900;
/** Longest time for which an upload may wait to be approved if it is cancelled then, in hours: 30 days. */
const REVIEW_HOURS_MAX = 720;
/** @internal */
export const templateSchema = boundedText('the id or name of a template', TEMPLATE_LENGTH_MAX);

/** @internal */
export const HALF_CHARACTER = String.raw`expected whole characters, and no half of one such as \ud83d`;

/**
 * Any value. It was parsed from JSON before, so only its depth is checked, and what parsing has lost or left.
 * @internal
 */
export const jsonSchema = z
  .custom<Json>((value) => value !== undefined && isNestedWithin(JSON_DEPTH_MAX, value), {
    error: `expected something that JSON can say, nested at most ${JSON_DEPTH_MAX} deep`,
    abort: false, // The checks between routes run all the same.
  })
  .check(
    z.refine(isExact, {
      error:
        'expected no number beyond 2^53, because larger ones lose digits: write it as a text, if the service takes one',
      when: ({ issues }) => issues.length === 0,
    }),
    z.refine(isWellFormed, { error: HALF_CHARACTER, when: ({ issues }) => issues.length === 0 }),
  );

/** Tells whether all texts and names in a value can be sent and stored: half a character has no bytes in UTF-8. */
function isWellFormed(value: unknown): boolean {
  if (typeof value === 'object' && value !== null) return Object.entries(value).flat().every(isWellFormed);
  return typeof value !== 'string' || value.isWellFormed();
}

/** False if a number, such as a seed, is not what was written. From 10^21 on, no number is written with all its digits. */
function isExact(value: unknown): boolean {
  if (typeof value === 'object' && value !== null) return Object.values(value).every(isExact);
  if (typeof value !== 'number') return true;
  return Number.isFinite(value) && (Math.abs(value) <= Number.MAX_SAFE_INTEGER || Math.abs(value) >= 1e21);
}

const isNestedWithin = (depth: number, value: unknown): boolean =>
  typeof value !== 'object' ||
  value === null ||
  (depth > 0 && Object.values(value).every((each) => isNestedWithin(depth - 1, each)));

/** Parameters have names. So a text is a mistake, such as JSON in quotes. */
const parametersSchema: z.ZodMiniType<Json> = jsonSchema.check(
  z.refine((value) => typeof value === 'object', { error: 'expected an object such as {"quality": "high"}' }),
  z.meta({ oneOf: [{ type: 'object' }, { type: 'array' }, { type: 'null' }] }), // For the JSON schema.
);

/**
 * Unlike a record of Zod, which drops a member called `__proto__`, it gives every name to the service.
 * @internal
 */
export const additionalSchema: z.ZodMiniType<JsonObject> = z
  .custom<JsonObject>((value) => isObject(value), { error: 'expected an object', abort: false })
  .check(
    z.superRefine((value, context) => {
      for (const [name, input] of isObject(value) ? Object.entries(value) : []) {
        const message =
          name === FLOW_TAG_NAME
            ? `expected no "${FLOW_TAG_NAME}", which is our own tag`
            : z.safeParse(jsonSchema, name.isWellFormed() ? input : name).error?.issues[0]?.message;
        if (message !== undefined) context.addIssue({ code: 'custom', path: [name], message, input });
      }
    }),
    // For the JSON schema.
    z.meta({
      type: 'object',
      propertyNames: { type: 'string', pattern: `^(?!${FLOW_TAG_NAME}$)` },
      additionalProperties: {},
    }),
  );

/** @internal */
export const deadlineSecondsSchema = wholeNumber('a whole number of seconds', 1, DEADLINE_SECONDS_MAX);

const jobsSchema = matching(
  `a prefix with a slash at its end, of at most ${KEY_BYTES_MAX} characters, none of them a control character`,
  new RegExp(`^\\P{Cc}{1,${KEY_BYTES_MAX - 1}}\\/$`, 'u'),
);

const aliasSchema = z.string({ error: 'expected a pattern such as "models/{folder}/{name}{ext}"' }).check(
  z.superRefine((pattern, context) => {
    const issue = issueOfAlias(pattern);
    if (issue !== undefined) context.addIssue(issue);
  }),
  z.maxLength(KEY_BYTES_MAX / 2, { error: `expected at most ${KEY_BYTES_MAX / 2} characters` }),
);

/**
 * What took the place of members that earlier versions knew.
 * @internal
 */
export const GONE: ReadonlyMap<string, string> = new Map([
  [
    'circuit',
    'is gone, because one uploader could stop a route for all others. After twenty failures alike, the event Failures Alike and the alarm failures-alike tell of them, and only what was submitted in bulk waits. Set `budget` to cap what a route spends, and remove `circuit`',
  ],
  ['weight', 'is gone: while files wait for their turns, these go round the routes evenly. Remove it'],
]);

/** What is kept by the names of routes must not mix with what every object inherits. */
const isOwnName = (name: string): boolean => !(name in Object.prototype);

const OWN_NAME_ERROR = 'expected another name, because every object of JavaScript has a member called like this';

const routeSchema: z.ZodMiniType<Route> = strictObject(
  {
    name: boundedText('a name', NAME_LENGTH_MAX).check(z.refine(isOwnName, { error: OWN_NAME_ERROR })),
    ...CONDITION_SCHEMAS,
    input: z._default(z.enum(['file', 'text'], { error: 'expected "file" or "text"' }), 'file'),
    template: templateSchema,
    parameters: z.optional(parametersSchema),
    additional: z.optional(additionalSchema),
    overrides: z.optional(z.boolean({ error: 'expected true or false' })),
    revision: z.optional(boundedText('a name', NAME_LENGTH_MAX)),
    after: z.optional(boundedText('the name of a route', NAME_LENGTH_MAX)),
    inputs: z.optional(z.enum(['each', 'all'], { error: 'expected "each" or "all"' })),
    allow: z.optional(z.literal('partial', { error: 'expected "partial", or nothing' })),
    jobs: z.optional(jobsSchema),
    deadlineSeconds: z.optional(deadlineSecondsSchema),
    settleSeconds: z.optional(wholeNumber('a whole number of seconds', 1, SETTLE_SECONDS_MAX)),
    review: z.optional(z.boolean({ error: 'expected true or false' })),
    reviewHours: z.optional(wholeNumber('a whole number of hours', 1, REVIEW_HOURS_MAX)),
    makes: MEDIA_TYPES_SCHEMA,
    afterSuccess: z.optional(z.enum(['tag', 'delete'], { error: 'expected "tag" or "delete"' })),
    deleteFlow: z.optional(z.boolean({ error: 'expected true or false' })),
    alias: z.optional(aliasSchema),
    price: z.optional(priceSchema),
    budget: z.optional(budgetSchema),
  },
  'an object',
  GONE,
);

/**
 * The routes in their order. Each has a name of its own.
 * @internal
 */
export const routesSchema = boundedList(routeSchema, 'routes', ROUTES_MAX).check(
  compareMembers((routes: readonly Route[], isSound, refuse) => {
    for (const [index, route] of routes.entries()) {
      if (!isSound(index, 'name')) continue;
      const { name } = route;
      const first = routes.findIndex((each, at) => isSound(at, 'name') && each.name === name);
      if (first === index) continue;
      refuse([index, 'name'], `expected a name that routes[${first}] does not have already`);
    }
    for (const [index, route] of routes.entries()) {
      if (!isSound(index, 'budget') || !isSound(index, 'price')) continue;
      const { budget, price } = route;
      const message = priceIssueOf(budget, price);
      if (message !== undefined) refuse([index, 'price'], message);
    }
    // A route that cannot be read may be the one that another one comes after.
    if (!routes.every((_, index) => isSound(index))) return;
    for (const { index, member, message, hint = '' } of [...issuesOfChains(routes), ...issuesOfJobs(routes)]) {
      const whole = `${message}, got ${quoted(routes[index]?.[member])}${hint}`;
      refuse([index, member], whole, { isQuoted: true });
    }
  }),
);

/** The route that owns the prefix of this key for jobs. Undefined if none does. */
export const jobsRouteOf = (routes: readonly Route[], key: string): JobsRoute | undefined =>
  routes.find((route): route is JobsRoute => route.jobs !== undefined && matchesKey({ prefixes: [route.jobs] }, key));

/** The routes that may take an upload of the inbox with this key, in their order. */
function routesForKey(routes: readonly Route[], key: string): readonly Route[] {
  if (isStageKey(key)) return [];
  return keyMatchesOf(routes, key).filter((route) => skippedBy(route, key) === undefined);
}

/** The same, whether or not the name of the file is to be skipped. */
function keyMatchesOf(routes: readonly Route[], key: string): readonly Route[] {
  const owner = jobsRouteOf(routes, key);
  if (owner !== undefined) return isJobFile(key) ? [owner] : [];
  return routes.filter((route) => route.after === undefined && route.jobs === undefined && matchesKey(route, key));
}

/** The name by which a route skips a file. A route that names such a file by a prefix or suffix of its own takes it. */
function skippedBy(
  { skippedNames = SKIPPED_NAMES, prefixes = [], suffixes = [] }: Route,
  key: string,
): string | undefined {
  const starts = prefixes.filter((prefix) => matchesKey({ prefixes: [prefix] }, key));
  const ends = suffixes.filter((suffix) => matchesKey({ suffixes: [suffix] }, key));
  const isOwn = (name: string): boolean => {
    // The suffix .png does not name what begins with a dot.
    const parts = /[^*]\*$/.test(name) ? starts : [...starts, ...ends];
    return parts.some((part) => fittingName([name], part) !== undefined);
  };
  return fittingName(
    skippedNames.filter((name) => !isOwn(name)),
    key,
  );
}

/**
 * Why no route takes an object of the inbox, whatever the routes ask of it. Undefined if one may, or if it may be an
 * input of a job.
 * @param object what is known of it: of a notification only the key, before the object is opened.
 */
export function whySkipped(
  routes: readonly Route[],
  object: { readonly key: string; readonly bytes?: number | undefined; readonly mediaType?: string | undefined },
): string | undefined {
  const { key, mediaType } = object;
  if (isFolderMarker(object) || (mediaType !== undefined && isFolderType(mediaType))) return FOLDER_SKIPPED;
  if (jobsRouteOf(routes, key) !== undefined && !isJobFile(key)) return undefined;
  if (isStageKey(key)) return STAGE_KEY_TAKEN;
  const name = skippedNameOf(routes, key);
  return name && skippedWords(name);
}

const FOLDER_SKIPPED = 'It is a folder, and not a file.';

/**
 * The name by which every route skips a file that it would take otherwise. Undefined if none would, or one takes it.
 * @internal
 */
export function skippedNameOf(routes: readonly Route[], key: string): string | undefined {
  if (isStageKey(key) || mayMatch(routes, key)) return undefined;
  const [first] = keyMatchesOf(routes, key);
  return first && skippedBy(first, key);
}

/** Tells whether a file has a name that a route skips, and neither a route takes it nor may a job. */
export const isLeftOut = (routes: readonly Route[], key: string): boolean =>
  jobsRouteOf(routes, key) === undefined &&
  !mayMatch(routes, key) &&
  routes.some((route) => skippedBy(route, key) !== undefined);

/** The routes with the names of the files that they skip. */
export const skipping = (routes: readonly Route[], skippedNames: readonly string[]): readonly Route[] =>
  String(skippedNames) === String(SKIPPED_NAMES) ? routes : routes.map((route) => ({ ...route, skippedNames }));

/** The first route, in their order, that may match an upload with this key. */
export function routeByKey(routes: readonly Route[], key: string): Route | undefined {
  return routesForKey(routes, key)[0];
}

/** Tells whether a route may match this key. If none may, the object need not be opened. */
export const mayMatch = (routes: readonly Route[], key: string): boolean => routeByKey(routes, key) !== undefined;

/** Tells whether a route matches this key, whatever the object is. */
export function isWantedByKey(routes: readonly Route[], key: string): boolean {
  return routesForKey(routes, key).some((route) => !hasObjectCondition(route));
}

/** The first route of the inbox, in their order, that matches this upload. */
export function routeFor(routes: readonly Route[], upload: UploadFacts): Route | undefined {
  return routesForKey(routes, upload.key).find((route) => matchesObject(route, upload));
}
