import { isObject } from '../base/json.ts';
import { at, pointerOf } from './json-pointer.ts';
import { isFalse, isNothing, isTrue, levelsOf } from './pages.ts';
import type { Pointers, StateDescription } from './service-description.ts';

/**
 * True for a value that stands for no error: services write `null`, `0`, `""`, `"None"`, `"ok"`, or an object of these,
 * where nothing is wrong.
 */
export const isNoError = (error: unknown): boolean => isNothing(error, /^(?:none|null|ok|success)$/i);

/** Members that hold an error, whatever is declared. */
export const ERROR = /^err(?:or)?s?(?:[_-]?(?:code|details?|message|msg|text))?$/i;

/** Members that say with `false` that a request failed, and with `true` that it did not. The second ones: a deletion. */
const SUCCESS = /^(?:is[_-]?)?(?:ok|success|successful)$/i;
const DELETED = /^(?:is[_-]?)?(?:deleted|removed)(?:[_-]?count)?$/i;

/** Members with a word or a status for the request, and those that say that it failed. */
const RESULT = /^(?:code|result|state|status(?:[_-]?code)?)$/i;
export const FAILED = /^(?:error|fail(?:ed|ure)?)$/i;
const FAILED_STATUS = /^[45]\d\d$/;

/** Values of a `code` for a success. Beside one, or beside `success: true`, the words of a service explain no error. */
const CODES: readonly unknown[] = [0, 200, '0', '200'];

/** Where an answer may say that it failed. */
export interface FailurePlaces {
  /** Where the service explains its errors. */
  readonly words: Pointers;
  /** What the description points at in this answer. Only what stands beside it counts, on each level. */
  readonly declared: readonly string[];
  /** Words of a flow that has failed, if the answer may have the state of a flow. */
  readonly ofFlow?: StateDescription['failed'] | undefined;
  /** True for the answer to a deletion. */
  readonly isDeletion?: boolean | undefined;
}

/**
 * The member by which an answer with a success says of itself that it failed: an error, the words of one,
 * `success: false`, or a status. Undefined if none does. Its list proves nothing: it may be empty because of the failure.
 */
export function failureIn(json: unknown, places: FailurePlaces): string | undefined {
  const { words, declared, ofFlow = [], isDeletion = false } = places;
  const levels = new Set(['', ...levelsOf(declared)]);
  const isOfSuccess = (name: string): boolean => SUCCESS.test(name) || (isDeletion && DELETED.test(name));
  const isDeclared = (place: string): boolean =>
    levels.has(place) || declared.some((each) => each !== '' && `${place}/`.startsWith(`${each}/`));
  let isSaidToSucceed = false;
  for (const level of levels) {
    const members = at(json, level);
    for (const [name, value] of Object.entries(isObject(members) ? members : {})) {
      const place = level + pointerOf([name]);
      if (isDeclared(place)) continue;
      const isWord = typeof value === 'number' || (typeof value === 'string' && !ofFlow.includes(value));
      if (ERROR.test(name) && !isNoError(value)) return place;
      if (isOfSuccess(name) && isFalse(value)) return place;
      const word = String(value);
      if (RESULT.test(name) && isWord && (FAILED.test(word) || FAILED_STATUS.test(word))) return place;
      isSaidToSucceed ||= isOfSuccess(name) ? isTrue(value) : /^code$/i.test(name) && CODES.includes(value);
    }
  }
  if (isSaidToSucceed) return undefined;
  return [words].flat().find((place) => !isDeclared(place) && !isNoError(at(json, place)));
}
