import { inspect } from 'node:util';

/** Values in a message are cut to this, in characters. */
const SHOWN_CHARS_MAX = 1_500;

/** Something that was not as it has to be. */
export class Violation extends Error {
  override readonly name = 'Violation';
}

/** @throws {Violation} with what does not hold, and the values that show it. */
export function demand(holds: boolean, what: string, ...values: readonly unknown[]): void {
  if (holds) return;
  const shown = values.map((value) => inspect(value, { depth: 6, breakLength: 160 }).slice(0, SHOWN_CHARS_MAX));
  throw new Violation([what, ...shown].join('\n    '));
}
