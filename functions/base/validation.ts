import * as z from 'zod/mini';
import { didYouMean } from './did-you-mean.ts';
import { quoted, shorten, toldIssues } from './printable.ts';

/** Issues of a configuration that its message tells: more than a person mends at once. */
const CONFIGURATION_ISSUES_TOLD_MAX = 100;

/** The configuration is wrong, and nothing can run before the operator corrects it. It names every issue at once. */
export class ConfigurationError extends Error {
  override readonly name = 'ConfigurationError';
  readonly issues: readonly string[];
  /** The files in which the issues are. Undefined if they are in none. */
  readonly source: string | undefined;
  constructor(issues: readonly string[], { source, ...options }: ErrorOptions & { readonly source?: string } = {}) {
    const all =
      issues.length === 1
        ? `${issues[0]}`
        : `${issues.length} issues:\n${toldIssues(issues, CONFIGURATION_ISSUES_TOLD_MAX)
            .map((issue) => `- ${issue}`)
            .join('\n')}`;
    super(source === undefined ? all : `${source}: ${all}`, options);
    this.issues = issues;
    this.source = source;
  }
}

/**
 * An object in which an unknown name is an issue, because it is most likely a mistyped known name.
 * @param expected what the message asks for if there is no object at all.
 * @param gone names that an earlier version knew, and what took their place, in a sentence without its full stop.
 * @internal
 */
export function strictObject<T extends z.core.$ZodLooseShape>(
  shape: T,
  expected = 'an object',
  gone: ReadonlyMap<string, string> = new Map(),
) {
  const known = Object.keys(shape);
  return z.strictObject(shape, {
    error: (issue) => {
      if (issue.code !== 'unrecognized_keys') return `expected ${expected}`;
      knownNames.set(issue.keys, { known, gone });
      return `expected only ${known.join(', ')}`;
    },
  });
}

/** The names that are or were allowed, for each issue about an unknown name. Zod's issue has no member for them. */
const knownNames = new WeakMap<
  readonly string[],
  { readonly known: readonly string[]; readonly gone: ReadonlyMap<string, string> }
>();

/**
 * A text with a condition.
 * @param expected completes "expected ..." in the message.
 * @internal
 */
export function text(expected: string, holds: (value: string) => boolean): z.ZodMiniType<string> {
  const error = `expected ${expected}`;
  return z.string({ error }).check(z.refine(holds, { error }));
}

/**
 * A text that matches a pattern. A JSON schema can say so too, unlike a condition.
 * @param expected completes "expected ..." in the message.
 * @param pattern without flags, apart from `u`: the patterns of JSON schemas have none.
 * @internal
 */
export function matching(expected: string, pattern: RegExp): z.ZodMiniType<string> {
  const error = `expected ${expected}`;
  return z.string({ error }).check(z.regex(pattern, { error }));
}

/**
 * A check of a text whose message quotes as much of the text as may be shown.
 * @internal
 */
export const quotingItself = (issueOf: (value: string) => string | undefined) =>
  z.superRefine<string>((value, context) => {
    const message = issueOf(value);
    if (message !== undefined) context.addIssue({ code: 'custom', message, input: value, params: { quoted: true } });
  });

/**
 * A text of 1 to `max` characters without control characters.
 * @internal
 */
export function boundedText(what: string, max: number) {
  const error = `expected ${what} of 1 to ${max} characters, none of them a control character`;
  return z
    .string({ error })
    .check(z.minLength(1, { error }), z.maxLength(max, { error }), z.regex(/^\P{Cc}*$/u, { error }));
}

/**
 * A list of 1 to `max` items.
 * @internal
 */
export function boundedList<T>(each: z.ZodMiniType<T>, what: string, max: number) {
  const error = `expected a list of 1 to ${max} ${what}`;
  return z.array(each, { error }).check(z.minLength(1, { error }), z.maxLength(max, { error }));
}

/**
 * A whole number in a range.
 * @param what completes "expected ... from 1 to 9".
 * @param why the reason for the range, after a colon. Default: none.
 * @internal
 */
export function wholeNumber(what: string, min: number, max: number, why = '') {
  const error = `expected ${what} from ${min} to ${max}${why}`;
  return z.int({ error }).check(z.gte(min, { error }), z.lte(max, { error }));
}

/**
 * Members by names from outside. Unlike `z.record`, it takes any name, such as `__proto__`, and what it makes inherits
 * nothing: a member called `constructor` is there only if it was stored.
 * @internal
 */
export const byName = <T>(member: z.ZodMiniType<T>): z.ZodMiniType<Record<string, T>> =>
  z.pipe(
    z.pipe(
      z.transform((value: unknown) => (typeof value === 'object' && value !== null ? Object.entries(value) : value)),
      z.array(z.tuple([z.string(), member])),
    ),
    z.transform((members: [string, T][]) => {
      const named: Record<string, T> = Object.create(null);
      for (const [name, value] of members) named[name] = value;
      return named;
    }),
  ) as unknown as z.ZodMiniType<Record<string, T>>;

/** Tells whether a member, by its path, has no issue, so that it can be compared with others. */
export type IsSound = (...path: readonly PropertyKey[]) => boolean;

/**
 * Adds an issue about a member, by its path.
 * @param input what the message quotes. Default: the member.
 * @param isQuoted true if the message has quoted as much as may be shown. Default: false.
 */
export type Refuse = (
  path: readonly PropertyKey[],
  message: string,
  options?: { readonly input?: unknown; readonly isQuoted?: boolean },
) => void;

/**
 * A check that compares members. Unlike Zod's own, it runs although members have issues, so that all issues are told at
 * once. It must ask for each member that it reads whether it is sound.
 * @internal
 */
export const compareMembers = <T extends object>(
  compare: (value: T, isSound: IsSound, refuse: Refuse) => void,
): z.core.$ZodCheck<T> =>
  z.superRefine<T>(
    (value, context) => {
      // An unknown member says nothing of the others.
      const faulty = context.issues.filter(({ code }) => code !== 'unrecognized_keys').map(({ path = [] }) => path);
      const isSound: IsSound = (...path) =>
        !faulty.some((issue) => path.slice(0, issue.length).every((step, index) => step === issue[index]));
      const refuse: Refuse = (path, message, { input = memberAt(value, path), isQuoted = false } = {}) =>
        context.addIssue({ code: 'custom', path: [...path], message, input, params: { quoted: isQuoted } });
      compare(value, isSound, refuse);
    },
    { when: ({ value, issues }) => typeof value === 'object' && value !== null && !issues.some(isOfOtherKind) },
  );

const memberAt = (value: unknown, path: readonly PropertyKey[]): unknown =>
  path.reduce((object, step) => (object as Readonly<Record<PropertyKey, unknown>>)[step], value);

type Checked<T> =
  | { readonly issues: readonly []; readonly data: T }
  | { readonly issues: readonly string[]; readonly data: undefined };

/**
 * Checks a value. Each issue reads `path: expected ..., got ...`. The path starts with `where`, and the expectation is
 * the schema's `error`.
 * @internal
 */
export function check<T extends z.core.$ZodType>(schema: T, value: unknown, where: string): Checked<z.output<T>> {
  const result = z.safeParse(schema, value, { reportInput: true });
  if (result.success) return { issues: [], data: result.data };
  return { issues: result.error.issues.flatMap((issue) => messagesOf(issue, where)), data: undefined };
}

/** Longest words about one issue in {@link issuesTold}, in characters. */
const ISSUE_CHARS_MAX = 300;

/**
 * What is wrong with an object from outside, in one line.
 * @param whole names the object itself.
 * @internal
 */
export const issuesTold = ({ issues }: z.core.$ZodError, whole: string): string =>
  toldIssues(
    issues.map(({ path, message }) => `${shorten(path.join('.') || whole)}: ${shorten(message, ISSUE_CHARS_MAX)}`),
  ).join('; ');

function messagesOf(issue: z.core.$ZodIssue, where: string): string[] {
  const at = pathOf(issue.path, where);
  const path = at === '' ? '' : `${at}: `;
  if (issue.code === 'unrecognized_keys') {
    const { known = [], gone } = knownNames.get(issue.keys) ?? {};
    return issue.keys.map((key) => {
      const instead = gone?.get(key);
      if (instead !== undefined) return `${pathOf([...issue.path, key], where)}: ${instead}`;
      return `${pathOf([...issue.path, key], where)}: unknown, ${issue.message} here${hintOf(key, known)}`;
    });
  }
  if (issue.code === 'invalid_union') {
    // The form that is meant is the one with the fewest issues.
    const forms = issue.errors.filter((issues) => !issues.some(isOfOtherKind));
    const [form] = forms.toSorted((one, other) => one.length - other.length);
    if (form !== undefined) {
      return form.flatMap((each) => messagesOf({ ...each, path: [...issue.path, ...each.path] }, where));
    }
  }
  // The schema has quoted as much of the value as may be shown.
  if (issue.code === 'custom' && issue.params?.quoted === true) return [`${path}${issue.message}`];
  if (issue.input === undefined) return [`${path}${issue.message}, but it is missing`];
  const isWord = issue.code === 'invalid_value' && typeof issue.input === 'string';
  const hint = isWord ? hintOf(issue.input as string, issue.values.map(String)) : '';
  return [`${path}${issue.message}, got ${quoted(issue.input)}${hint}`];
}

/** Names the word that was most likely meant. */
function hintOf(word: string, known: readonly string[]): string {
  const meant = didYouMean(word, known);
  return meant === undefined ? '' : `. Did you mean ${meant}?`;
}

/** True if the value is of another kind than is wanted: by one form of a union, or by a check of its members. */
const isOfOtherKind = ({ code, path = [] }: Pick<z.core.$ZodRawIssue, 'code' | 'path'>): boolean =>
  path.length === 0 && (code === 'invalid_type' || code === 'invalid_value');

function pathOf(path: readonly PropertyKey[], where: string): string {
  return path.reduce<string>((before, step) => {
    if (typeof step === 'number') return `${before}[${step}]`;
    const name = shorten(String(step));
    return before === '' ? name : `${before}.${name}`;
  }, where);
}
