import { Semaphore } from '../base/semaphore.ts';
import { CodingError, decodedBody, isCompressed } from './content-coding.ts';
import { UnintelligibleAnswerError } from './errors.ts';
import { LongTexts } from './long-texts.ts';
import { TransportError, type TransportResponse } from './transport.ts';

/** Bytes that a page of a listing may have. A service may list ten thousand flows, of 800 bytes each, on one page. */
export const PAGE_BYTES_MAX = 8 * 1024 * 1024;

/**
 * Bytes that any other response may have. A service may show a flow with each line of its log, or with each segment of a
 * transcript. Many flows are polled side by side, so the limit is lower than that of a page.
 */
export const ANSWER_BYTES_MAX = 4 * 1024 * 1024;

/**
 * Parts of a JSON text that is parsed: see {@link partsOf}. A flow on a page has 25. A limit of bytes alone is not enough:
 * two bytes may take two hundred once parsed.
 */
const PARTS_MAX = 250_000;

/** A JSON text is beyond a limit, or does not fit the description of the service. The message says why. */
export class UnfitAnswerError extends Error {
  override readonly name = 'UnfitAnswerError';
  /**
   * True if the answer says of itself that it failed. False if it names a flow all the same. Undefined if only its form can
   * tell.
   */
  readonly isOwnError: boolean | undefined;
  constructor(message: string, options: { isOwnError?: boolean } = {}) {
    super(message);
    this.isOwnError = options.isOwnError;
  }
}

/**
 * Bytes that a compressed answer may have once it is decoded. Long texts in an answer are cut, and do not count for its
 * limits, but each byte of them takes time.
 */
const DECODED_BYTES_MAX = 64 * 1024 * 1024;

/** Bytes kept of a body that is no answer to be parsed, such as an error: enough to quote from. */
const BEGINNING_BYTES_MAX = 64 * 1024;

/** Bytes that any number of responses may have in memory at a time. Those of known services have less. */
const ALONE_BYTES_MAX = 16 * 1024;

/**
 * Responses of more than {@link ALONE_BYTES_MAX} that are read side by side. With the largest pages they take 32 MiB. A
 * text and what is parsed from it exist for one response at a time, because parsing does not wait for anything.
 */
const LARGE_ANSWERS_MAX = 4;

/** Reads responses into memory. All that a process reads at the same time are read by one reader. */
export class AnswerReader {
  readonly #large = new Semaphore(LARGE_ANSWERS_MAX);

  /**
   * Reads a response to its end, so that the connection can be reused, and returns what `use` makes of its text. Long
   * texts in it are cut.
   * @throws {UnintelligibleAnswerError} the body is longer than the limit without what was cut, or its coding cannot be
   * undone.
   * @throws {TransportError} the body was cut, and is no whole JSON.
   * @throws any error of `use`.
   */
  async read<T>(response: TransportResponse, bytesMax: number, use: (text: string) => T): Promise<T> {
    const body = new GatheredBytes(bytesMax);
    const texts = new LongTexts();
    const chunks = untilBroken(readable(response), () => isWholeJson(body.bytes.toString('utf8')));
    const gather = async (enoughBytes: number): Promise<boolean> => {
      while (body.length <= enoughBytes) {
        const next = await chunks.next();
        if (next.done === true) return true;
        const bytes = texts.cut(next.value);
        if (!body.add(bytes)) {
          await chunks.return();
          throw tooLong(body.length + bytes.byteLength, bytesMax);
        }
      }
      return false;
    };
    if (await gather(ALONE_BYTES_MAX)) return use(textOf(body));
    return this.#large.through(async () => {
      await gather(Number.POSITIVE_INFINITY);
      return use(textOf(body));
    });
  }
}

/**
 * Bytes in one growing buffer. A list of chunks would take a hundred bytes for each chunk, however small it is. Memory
 * that is no longer needed is free at once: a slow processor makes garbage faster than it collects it.
 */
export class GatheredBytes {
  readonly #bytesMax: number;
  #buffer = new ArrayBuffer();
  #length = 0;

  constructor(bytesMax: number) {
    this.#bytesMax = bytesMax;
  }

  get length(): number {
    return this.#length;
  }

  /** The bytes so far, valid until the next are added. */
  get bytes(): Buffer {
    return Buffer.from(this.#buffer, 0, this.#length);
  }

  /** Adds a chunk. Adds nothing and returns false if there would be more than `bytesMax` bytes. */
  add(chunk: Uint8Array): boolean {
    const length = this.#length + chunk.byteLength;
    if (length > this.#bytesMax) return false;
    if (length > this.#buffer.byteLength) {
      this.#buffer = this.#buffer.transfer(Math.min(this.#bytesMax, Math.max(length, 2 * this.#length)));
    }
    new Uint8Array(this.#buffer).set(chunk, this.#length);
    this.#length = length;
    return true;
  }

  /** Frees the bytes. */
  clear(): void {
    this.#buffer = this.#buffer.transfer(0);
    this.#length = 0;
  }
}

/** The decoded bytes of a response. @throws {UnintelligibleAnswerError} it cannot be decoded, or is too long then. */
async function* readable(response: TransportResponse): AsyncGenerator<Uint8Array, void> {
  let bytes = 0;
  try {
    for await (const chunk of decodedBody(response)) {
      bytes += chunk.byteLength;
      if (bytes > DECODED_BYTES_MAX && isCompressed(response)) throw tooLong(bytes, DECODED_BYTES_MAX);
      yield chunk;
    }
  } catch (error) {
    if (error instanceof CodingError) throw new UnintelligibleAnswerError(error.message, { cause: error });
    throw error;
  }
}

/** Passes chunks on. An answer that is whole by itself may break off: some servers announce another length or no end. */
async function* untilBroken(
  chunks: AsyncIterable<Uint8Array>,
  isWhole: () => boolean,
): AsyncGenerator<Uint8Array, void> {
  try {
    yield* chunks;
  } catch (error) {
    if (!(error instanceof TransportError && isWhole())) throw error;
  }
}

/** True for a whole object or list. Any other text may be the beginning of a longer one. */
function isWholeJson(text: string): boolean {
  try {
    return typeof parseJson(text, PARTS_MAX) === 'object';
  } catch {
    return false;
  }
}

const tooLong = (bytes: number, bytesMax: number): UnintelligibleAnswerError =>
  new UnintelligibleAnswerError(`The answer has ${bytes} bytes or more, and at most ${bytesMax} are read`);

/** Stands for bytes that are no UTF-8. No id, address or cursor that has it is as the service wrote it. */
export const UNREADABLE = '\uFFFD';

/** Reads bytes as text, and frees them. A name in another encoding must not hide what stands beside it. */
function textOf(body: GatheredBytes): string {
  const text = body.bytes.toString('utf8');
  body.clear();
  return text.startsWith('\uFEFF') ? text.slice(1) : text;
}

/**
 * The beginning of a response whose content does not matter. It is read to its end, so that the connection can be reused.
 * @throws as {@link AnswerReader.read}.
 */
export async function readBeginning(response: TransportResponse, bytesMax: number): Promise<string> {
  const beginning = new GatheredBytes(BEGINNING_BYTES_MAX);
  const texts = new LongTexts();
  let bytes = 0;
  for await (const chunk of readable(response)) {
    const kept = texts.cut(chunk);
    bytes += kept.byteLength;
    if (bytes > bytesMax) throw tooLong(bytes, bytesMax);
    beginning.add(kept.subarray(0, BEGINNING_BYTES_MAX - beginning.length));
  }
  return textOf(beginning);
}

/** The beginning of an error response's body. Empty if it cannot be read: the status says what matters. */
export async function readErrorBody(response: TransportResponse): Promise<string> {
  const read = new GatheredBytes(BEGINNING_BYTES_MAX);
  try {
    for await (const chunk of decodedBody(response)) {
      read.add(chunk.subarray(0, BEGINNING_BYTES_MAX - read.length));
      if (read.length === BEGINNING_BYTES_MAX) break;
    }
  } catch (error) {
    if (!(error instanceof TransportError || error instanceof CodingError)) throw error;
  }
  response.destroy();
  return read.bytes.toString('utf8');
}

/**
 * Parses JSON of limited depth and size.
 * @throws {SyntaxError} the text is not JSON.
 * @throws {UnfitAnswerError} its lists and objects are nested more than `depthMax` deep, or it has more than
 * {@link PARTS_MAX} parts.
 */
export function parseJson(text: string, depthMax: number): unknown {
  // Counted before parsing: a few megabytes of brackets would become a gigabyte of lists and objects.
  const { depth, parts } = partsOf(text);
  if (depth > depthMax)
    throw new UnfitAnswerError(`the JSON is nested ${depth} deep, and at most ${depthMax} is parsed`);
  if (parts > PARTS_MAX) throw new UnfitAnswerError(`the JSON has ${parts} parts, and at most ${PARTS_MAX} are parsed`);
  return parsedJson(text);
}

/** The JSON in a part of an answer. Undefined if it is none, or if {@link parseJson} refuses it. */
export function limitedJsonIn(text: string, depthMax: number): unknown {
  try {
    return parseJson(text, depthMax);
  } catch {
    return undefined;
  }
}

/** Parses JSON, in which `NaN`, `Infinity` and `-Infinity` may stand for `null`: Python writes them. @throws {SyntaxError} */
export function parsedJson(text: string): unknown {
  try {
    return LONG_NUMBER.test(text) ? JSON.parse(text, withAllDigits) : JSON.parse(text);
  } catch (error) {
    const mended = withoutNaN(text);
    if (mended === text) throw error;
    return parsedJson(mended);
  }
}

/** Takes linear time, whatever the service sends: the pattern never looks back. */
function withoutNaN(text: string): string {
  let mended = '';
  let from = 0;
  let isInText = false;
  for (const { 0: found, index } of text.matchAll(/\\[\s\S]|"|-?\b(?:NaN|Infinity)\b/g)) {
    if (found === '"') isInText = !isInText;
    if (isInText || found === '"' || found.startsWith('\\')) continue;
    mended += `${text.slice(from, index)}null`;
    from = index + found.length;
  }
  return mended + text.slice(from);
}

/** Matches, in JSON, a whole number that may be beyond 2^53. It may also match within a text. */
const LONG_NUMBER = /[[{:,\s]-?[1-9]\d{15,}(?![\d.eE])/;

/** Reads a whole number beyond 2^53 as the text of its digits: as a number, it would lose some. It may be an id. */
function withAllDigits(_: string, value: unknown, { source }: { readonly source?: string } = {}): unknown {
  const isLong = typeof value === 'number' && !Number.isSafeInteger(value) && /^-?\d+$/.test(source ?? '');
  return isLong ? source : value;
}

/**
 * Counts the parts of a JSON text without parsing it: its values and the names of its members. `depth` is the deepest
 * nesting of lists and objects. An empty list or object counts as two parts, so the count is an upper bound.
 */
function partsOf(json: string): { readonly depth: number; readonly parts: number } {
  let depth = 0;
  let deepest = 0;
  let parts = 1;
  let isInString = false;
  for (let at = 0; at < json.length; at += 1) {
    const character = json[at];
    if (isInString) {
      if (character === '\\') at += 1;
      else if (character === '"') isInString = false;
      continue;
    }
    // N and I are of NaN and Infinity, which take memory too until they are replaced.
    if (character === '"') isInString = true;
    else if (character === ',' || character === ':' || character === 'N' || character === 'I') parts += 1;
    else if (character === ']' || character === '}') depth -= 1;
    else if (character === '[' || character === '{') {
      depth += 1;
      parts += 1;
      deepest = Math.max(deepest, depth);
    }
  }
  return { depth: deepest, parts };
}
