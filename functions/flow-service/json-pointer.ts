/** The steps of a JSON pointer (RFC 6901). `""` is the whole value. */
export const POINTER = /^(\/([^~/]|~[01])*)*$/;

/** `"/data/task%7Eid"` names no `~`; `"/a~1b"` names the member `a/b`. */
export const stepsOf = (pointer: string): readonly string[] =>
  pointer
    .split('/')
    .slice(1)
    .map((step) => step.replaceAll('~1', '/').replaceAll('~0', '~'));

/** The value at a pointer. Undefined if there is none. Only members of the value itself count, never inherited ones. */
export const at = (json: unknown, pointer: string): unknown =>
  stepsOf(pointer).reduce<unknown>(
    (value, step) =>
      typeof value === 'object' && value !== null && Object.hasOwn(value, step)
        ? (value as Readonly<Record<string, unknown>>)[step]
        : undefined,
    json,
  );

/** The pointer to a member: `pointerOf(["a/b", "0"])` is `"/a~1b/0"`. */
export const pointerOf = (steps: readonly string[]): string =>
  steps.map((step) => `/${step.replaceAll('~', '~0').replaceAll('/', '~1')}`).join('');
