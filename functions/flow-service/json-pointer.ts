import { limitedJsonIn } from './json-answer.ts';

/** Matches a JSON pointer (RFC 6901). `""` is the whole value. */
export const POINTER = /^(\/([^~/]|~[01])*)*$/;

/** The steps of a pointer: `stepsOf("/data/a~1b")` is `["data", "a/b"]`. Percent signs stand for themselves. */
export const stepsOf = (pointer: string): readonly string[] => {
  const steps = pointer.split('/').slice(1);
  // An answer of many thousand items is read at the same pointers, and few of these have an escape.
  if (!pointer.includes('~')) return steps;
  return steps.map((step) => step.replaceAll('~1', '/').replaceAll('~0', '~'));
};

/** Nesting of a text of JSON in an answer, in levels. In the answer, it is one part. */
const TEXT_DEPTH_MAX = 100;

/**
 * The JSON in a text of an object or of a list: some services store what they are given so, or answer so. Undefined if
 * it is none, or cut.
 */
export function opened(value: unknown): unknown {
  return typeof value === 'string' && /^\s*[{[]/.test(value) ? limitedJsonIn(value, TEXT_DEPTH_MAX) : value;
}

/**
 * The value at a pointer, which may lead through a text of JSON. Undefined if there is none. Only what JSON can say counts: no
 * inherited member, no `length`.
 */
export const at = (json: unknown, pointer: string): unknown =>
  stepsOf(pointer).reduce<unknown>((value, step) => {
    const holder = opened(value);
    return typeof holder === 'object' && holder !== null && Object.prototype.propertyIsEnumerable.call(holder, step)
      ? (holder as Readonly<Record<string, unknown>>)[step]
      : undefined;
  }, json);

/** The value at the first of some pointers that finds one. `null` counts as none. */
export function firstAt(json: unknown, pointers: string | readonly string[] | undefined): unknown {
  if (pointers === undefined) return undefined;
  for (const pointer of [pointers].flat()) {
    const value = at(json, pointer);
    if (value !== undefined && value !== null) return value;
  }
  return undefined;
}

/** The pointer to a member: `pointerOf(["a/b", "0"])` is `"/a~1b/0"`. */
export const pointerOf = (steps: readonly string[]): string =>
  steps.map((step) => `/${step.replaceAll('~', '~0').replaceAll('/', '~1')}`).join('');

/** A member of an answer. */
export interface Member {
  readonly pointer: string;
  readonly name: string;
  readonly value: unknown;
}

/** Levels of an answer in which its members are named. */
const MEMBERS_DEPTH_MAX = 5;

/** The members of an answer, in its order, those of a member after it. The first item of a list stands for all. */
export function* membersOf(json: unknown, steps: readonly string[] = []): Generator<Member> {
  if (typeof json !== 'object' || json === null || steps.length >= MEMBERS_DEPTH_MAX) return;
  const members = Array.isArray(json) ? json.slice(0, 1).entries() : Object.entries(json);
  for (const [name, value] of members) {
    const place = [...steps, String(name)];
    yield { pointer: pointerOf(place), name: String(name), value };
    yield* membersOf(value, place);
  }
}
