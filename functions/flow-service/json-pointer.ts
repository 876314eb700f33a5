/** Matches a JSON pointer (RFC 6901). `""` is the whole value. */
export const POINTER = /^(\/([^~/]|~[01])*)*$/;

/** The steps of a pointer: `stepsOf("/data/a~1b")` is `["data", "a/b"]`. Percent signs stand for themselves. */
export const stepsOf = (pointer: string): readonly string[] =>
  pointer
    .split('/')
    .slice(1)
    .map((step) => step.replaceAll('~1', '/').replaceAll('~0', '~'));

/** The value at a pointer. Undefined if there is none. Only what JSON can say counts: no inherited member, no `length`. */
export const at = (json: unknown, pointer: string): unknown =>
  stepsOf(pointer).reduce<unknown>(
    (value, step) =>
      typeof value === 'object' && value !== null && Object.prototype.propertyIsEnumerable.call(value, step)
        ? (value as Readonly<Record<string, unknown>>)[step]
        : undefined,
    json,
  );

/** The pointer to a member: `pointerOf(["a/b", "0"])` is `"/a~1b/0"`. */
export const pointerOf = (steps: readonly string[]): string =>
  steps.map((step) => `/${step.replaceAll('~', '~0').replaceAll('/', '~1')}`).join('');
