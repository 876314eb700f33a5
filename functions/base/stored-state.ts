import * as z from 'zod/mini';

/**
 * A member of a stored state. If it is damaged, it is dropped and the others are kept, which costs only some repeated
 * work. `z.catch` would do the same, but it keeps 9 KB of zod's helpers in the bundle. It is not in `validation.ts`,
 * because the packed construct has the types of that file, and no zod.
 */
export const orDropped = <T extends z.ZodMiniType>(schema: T) =>
  z.optional(
    z.pipe(
      z.unknown(),
      z.transform((value): z.output<T> | undefined => schema.safeParse(value).data),
    ),
  );
