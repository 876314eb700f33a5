import { counted, shorten } from '../base/printable.ts';
import { CUT } from './long-texts.ts';

/**
 * Longest text within a shown JSON, in characters. A data URI is cut sooner: its beginning says what it is. A request
 * that is explained has been cut to less.
 */
const TEXT_CHARS_MAX = 300;
const DATA_CHARS_MAX = 200;

/** Longest JSON that is shown, in characters. */
const SHOWN_CHARS_MAX = 16_000;

/** The user and the password, the query of a whole address, and the query of an address without its host. */
const USER = /(:(?:\\*\/){2})[^\s"/?#@]*@/g;
const QUERY = /(:(?:\\*\/){2}[^\s"?#]*)[?#][^\s"]*/g;
const RELATIVE_QUERY = /[?#][^\s"?#=…]{1,100}=[^\s"]*/g;

/**
 * JSON for a person: what is sent to a service, or what it answers. Long texts are cut, with their size. Who has a signed
 * address can read what is there, so `…` takes the place of the query of each address. The token was redacted before.
 */
export function shownJson(value: unknown): string {
  const json = JSON.stringify(value, (_, each: unknown) => (typeof each === 'string' ? shownText(each) : each), 2);
  return shorten(json, SHOWN_CHARS_MAX, '\n…')
    .replaceAll(CUT, '…')
    .replace(USER, '$1…@')
    .replace(QUERY, '$1?…')
    .replace(RELATIVE_QUERY, '?…');
}

/** A text as it is; or its beginning, and how long it is. */
function shownText(text: string): string {
  const [start = '', bytes] = text.split(CUT);
  const charsMax = /^data:[^,]{0,100}[;,]/i.test(start) ? DATA_CHARS_MAX : TEXT_CHARS_MAX;
  if (bytes === undefined && start.length <= charsMax) return text;
  return shorten(start, charsMax, `… (${counted(Number(bytes ?? Buffer.byteLength(text)), 'byte')} in all)`);
}
