import { inspect } from 'node:util';

/** Largest length of a value in a message, in characters. */
const SHOWN_CHARS_MAX = 1_500;

/** An invariant is broken. */
export class Violation extends Error {
  override readonly name = 'Violation';
}

/** @throws {Violation} with the broken invariant and the values that show it, unless it holds. */
export function demand(holds: boolean, what: string, ...values: readonly unknown[]): void {
  if (holds) return;
  const shown = values.map((value) => inspect(value, { depth: 6, breakLength: 160 }).slice(0, SHOWN_CHARS_MAX));
  throw new Violation([what, ...shown].join('\n    '));
}
