import { createInterface } from 'node:readline/promises';
import { printable } from '../functions/base/printable.ts';

/**
 * Asks a question and returns true for `y` or `yes`.
 * @throws an `AbortError` for Ctrl-C and Ctrl-D: the terminal sends no signal meanwhile. @throws the signal's reason.
 */
export async function confirms(
  streams: { readonly input: NodeJS.ReadableStream; readonly output: NodeJS.WritableStream },
  question: string,
  signal: AbortSignal,
): Promise<boolean> {
  const asked = createInterface(streams);
  try {
    return /^y(es)?$/i.test((await asked.question(`${printable(question)} [y/N] `, { signal })).trim());
  } finally {
    asked.close();
  }
}
