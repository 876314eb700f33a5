import * as z from 'zod/mini';
import { FORM, MEDIA_TYPE, mediaTypeOf, registeredType } from '../base/media-type.ts';
import { boundedList, boundedText, matching } from '../base/validation.ts';
import { KEY_BYTES_MAX } from '../s3/limits.ts';
import { comparable } from './job-keys.ts';

/**
 * The conditions of a route. A condition is met if one of its values fits. A route matches an upload if all of the
 * route's conditions are met.
 *
 * To add a condition, on the object's tags for example, extend {@link Conditions}, {@link UploadFacts}, {@link
 * matchesObject} and {@link hasObjectCondition}. The compiler then names the other places in this file. If one value
 * stands for all others, as the media type for any type does, {@link covers} must know it. Read a new fact in
 * `Inbox.open` for the creating function, and in `Inbox.current` for the sweep. `operations/explain.ts` tells which
 * condition an upload does not meet.
 */
export interface Conditions {
  /**
   * The key starts with one of these. The case of letters does not matter, here and in the next two conditions. Nor does
   * the form in which a letter or a blank is written, here and in the next condition.
   */
  readonly prefixes?: readonly string[] | undefined;
  /** The key ends with one of these. */
  readonly suffixes?: readonly string[] | undefined;
  /**
   * The upload's media type is one of these. `image/*` stands for all types of a kind. `image/jpg` is read as
   * `image/jpeg`.
   */
  readonly mediaTypes?: readonly string[] | undefined;
}

/** The facts of an upload that conditions look at. */
export interface UploadFacts {
  readonly key: string;
  readonly mediaType: string;
}

const VALUES_MAX = 200;

const listOf = (each: z.ZodMiniType<string>, what: string) =>
  z.optional(boundedList(each, `${what}, or nothing at all`, VALUES_MAX));

const MEDIA_TYPE_EXPECTED = 'a media type such as "image/png", "image/*" or "*/*", without parameters';

/** @internal */
export const MEDIA_TYPES_SCHEMA = listOf(matching(MEDIA_TYPE_EXPECTED, MEDIA_TYPE), 'media types');

/** @internal */
export const CONDITION_SCHEMAS = {
  prefixes: listOf(boundedText('a prefix', KEY_BYTES_MAX), 'prefixes'),
  suffixes: listOf(boundedText('a suffix', KEY_BYTES_MAX), 'suffixes'),
  mediaTypes: MEDIA_TYPES_SCHEMA,
} satisfies Record<keyof Conditions, z.ZodMiniType>;

/** Tells whether the conditions on the key are met. They are checked before the object is opened. */
export function matchesKey({ prefixes, suffixes }: Conditions, key: string): boolean {
  // A flow may have ten thousand assets, which many routes look at.
  if (prefixes === undefined && suffixes === undefined) return true;
  const folded = caseless(key);
  return (
    isMet(prefixes, (prefix) => folded.startsWith(caseless(prefix))) &&
    isMet(suffixes, (suffix) => folded.endsWith(caseless(suffix)))
  );
}

/** Tells whether the conditions on the object are met. They need facts that a request to S3 returns. */
export function matchesObject({ mediaTypes }: Conditions, { key, mediaType }: UploadFacts): boolean {
  const type = registeredType(mediaType);
  // A form is refused in words by the route that the file in it would take. If no route took it, nothing would be said.
  return isMet(mediaTypes, (wanted) => fitsType(wanted, type === FORM ? mediaTypeOf(undefined, key) : type));
}

/** Tells whether a media type is one that another stands for: `fitsType("image/*", "image/png")`. */
export function fitsType(wide: string, narrow: string): boolean {
  const [wideType, wideSubtype] = registeredType(wide).split('/');
  const [type, subtype] = registeredType(narrow).split('/');
  return (wideType === '*' || wideType === type) && (wideSubtype === '*' || wideSubtype === subtype);
}

/** Tells whether there is a condition on the object. */
export const hasObjectCondition = ({ mediaTypes }: Conditions): boolean => mediaTypes !== undefined;

/** For each condition: tells whether all that fits the narrow value fits the wide one too. */
const FITS_WITHIN: Readonly<Record<keyof Conditions, (wide: string, narrow: string) => boolean>> = {
  prefixes: (wide, narrow) => caseless(narrow).startsWith(caseless(wide)),
  suffixes: (wide, narrow) => caseless(narrow).endsWith(caseless(wide)),
  mediaTypes: fitsType,
};

/** Tells whether all that meets the narrow conditions surely meets the wide ones too. */
export function covers(wide: Conditions, narrow: Conditions): boolean {
  return Object.entries(FITS_WITHIN).every(([name, fits]) => {
    const values = wide[name as keyof Conditions];
    if (values === undefined || (name === 'mediaTypes' && values.includes('*/*'))) return true;
    const each = narrow[name as keyof Conditions];
    return each?.every((one) => values.some((value) => fits(value, one))) === true;
  });
}

/** The same conditions for keys that all start with `start`. Undefined if no such key can meet them. */
export function withinPrefix(conditions: Conditions, start: string): Conditions | undefined {
  const { prefixes: _, ...others } = conditionsOf(conditions);
  const { prefixes: fits } = FITS_WITHIN;
  const prefixes = conditions.prefixes?.flatMap((prefix) => {
    if (fits(prefix, start)) return [start];
    return fits(start, prefix) ? [prefix] : [];
  }) ?? [start];
  return prefixes.length === 0 ? undefined : { prefixes, ...others };
}

/** The conditions alone, of a route for example. The return type names every member, so that none can be forgotten. */
const conditionsOf = ({
  prefixes,
  suffixes,
  mediaTypes,
}: Conditions): { [K in keyof Required<Conditions>]: Conditions[K] } => ({
  prefixes,
  suffixes,
  mediaTypes,
});

function isMet(values: readonly string[] | undefined, fits: (value: string) => boolean): boolean {
  return values === undefined || values.some(fits);
}

/**
 * A key without the differences that do not matter. Folds the case of one code point at a time. `toLowerCase` of a whole
 * string looks at neighbours (a final sigma), so that a prefix folded by itself would no longer be a prefix. Folding may
 * decompose a letter.
 * @internal
 */
export const caseless = (text: string): string =>
  comparable(Array.from(comparable(text), (point) => point.toLowerCase().toUpperCase()).join(''));
