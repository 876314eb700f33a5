/** Limit for a request's JSON without its long strings. */
const JSON_BYTES_MAX = 1024 * 1024;
export const JSON_DEPTH_MAX = 100;
const KEY_BYTES_MAX = 1024;

/** The body is not JSON. */
export class JsonSyntaxError extends Error {
  override readonly name = 'JsonSyntaxError';
}

/** The body's JSON is larger or deeper than the limits. */
export class JsonTooLargeError extends Error {
  override readonly name = 'JsonTooLargeError';
}

/** Receives one long string, piece by piece. */
export interface LongString {
  /** The UTF-8 bytes of a part without escapes. It may contain control characters, which JSON forbids. */
  raw(bytes: Buffer): void;
  /** One character, decoded from an escape. */
  escaped(character: string): void;
  end(): void;
}

/** Keys and indexes, outermost first. */
export type JsonPath = readonly (string | number)[];

interface Frame {
  readonly isArray: boolean;
  /** The key or index of the member or element that is being read. */
  key: string | number;
  expectsKey: boolean;
}

const QUOTE = 0x22;
const BACKSLASH = 0x5c;

/**
 * Reads JSON in which a few strings may be larger than memory.
 *
 * Everything except the long strings goes into a skeleton, in which `"n"` replaces the n-th long string. At the end
 * `JSON.parse` reads the skeleton and decides whether it is valid. Until then the reader tracks only the structure that
 * it needs to find the long strings. For invalid JSON, that structure may be wrong.
 */
export class JsonReader<Sink extends LongString> {
  readonly #isLong: (path: JsonPath) => boolean;
  readonly #newSink: () => Sink;
  readonly sinks: Sink[] = [];
  readonly #frames: Frame[] = [];
  readonly #skeleton: Buffer[] = [];
  #skeletonBytes = 0;
  #inside: 'nothing' | 'key' | 'string' | 'long' = 'nothing';
  #key: number[] = [];
  #afterBackslash = false;
  /** The part read so far of an escape in a long string, without its backslash. */
  #escape: string | undefined;
  #highSurrogate = '';

  /**
   * @param isLong tells whether the string at this path may be long. Called where the string begins.
   * @param newSink makes the receiver of a long string.
   */
  constructor(isLong: (path: JsonPath) => boolean, newSink: () => Sink) {
    this.#isLong = isLong;
    this.#newSink = newSink;
  }

  /** @throws {JsonTooLargeError} @throws {JsonSyntaxError} in a long string. `end` reports all other syntax errors. */
  push(chunk: Uint8Array): void {
    const bytes = Buffer.from(chunk.buffer, chunk.byteOffset, chunk.byteLength);
    let from = 0;
    let at = 0;
    while (at < bytes.length) {
      if (this.#inside === 'long') {
        at = this.#readLong(bytes, at);
        from = at;
      } else if (bytes[at] === QUOTE && this.#longBegins()) {
        this.#keep(bytes.subarray(from, at));
        this.#keep(Buffer.from(`"${this.sinks.length}"`));
        this.sinks.push(this.#newSink());
        this.#inside = 'long';
        at++;
      } else {
        this.#track(bytes[at] as number);
        at++;
      }
    }
    if (this.#inside !== 'long') this.#keep(bytes.subarray(from));
  }

  /** Returns the JSON's value, with the string `n` for the n-th long string. @throws {JsonSyntaxError} */
  end(): unknown {
    if (this.#inside === 'long') throw new JsonSyntaxError('The body ends within a string.');
    try {
      return JSON.parse(
        new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(Buffer.concat(this.#skeleton)),
      );
    } catch (cause) {
      throw new JsonSyntaxError('The body is not valid JSON.', { cause });
    }
  }

  #keep(bytes: Buffer): void {
    this.#skeletonBytes += bytes.length;
    if (this.#skeletonBytes > JSON_BYTES_MAX) throw new JsonTooLargeError(`More than ${JSON_BYTES_MAX} bytes of JSON.`);
    if (bytes.length > 0) this.#skeleton.push(Buffer.from(bytes));
  }

  #longBegins(): boolean {
    if (this.#inside !== 'nothing') return false;
    const top = this.#frames.at(-1);
    return top !== undefined && !top.expectsKey && this.#isLong(this.#frames.map((frame) => frame.key));
  }

  #track(byte: number): void {
    if (this.#inside !== 'nothing') {
      this.#trackString(byte);
      return;
    }
    const top = this.#frames.at(-1);
    switch (String.fromCharCode(byte)) {
      case '{':
      case '[':
        if (this.#frames.length >= JSON_DEPTH_MAX) throw new JsonTooLargeError(`JSON deeper than ${JSON_DEPTH_MAX}.`);
        this.#frames.push({ isArray: byte === 0x5b, key: byte === 0x5b ? 0 : '', expectsKey: byte !== 0x5b });
        break;
      case '}':
      case ']':
        this.#frames.pop();
        break;
      case ',':
        if (typeof top?.key === 'number') top.key++;
        else if (top !== undefined) top.expectsKey = true;
        break;
      case '"':
        this.#inside = top?.expectsKey ? 'key' : 'string';
        this.#key = [];
        break;
    }
  }

  #trackString(byte: number): void {
    if (byte === QUOTE && !this.#afterBackslash) {
      const top = this.#frames.at(-1);
      if (this.#inside === 'key' && top !== undefined) {
        top.key = keyOf(this.#key);
        top.expectsKey = false;
      }
      this.#inside = 'nothing';
      return;
    }
    if (this.#inside === 'key' && this.#key.length < KEY_BYTES_MAX) this.#key.push(byte);
    this.#afterBackslash = byte === BACKSLASH && !this.#afterBackslash;
  }

  /** Returns where it stopped: at the end of the chunk, or after the closing quote. */
  #readLong(bytes: Buffer, start: number): number {
    const sink = this.sinks.at(-1) as Sink;
    let at = start;
    let quote = bytes.indexOf(QUOTE, at);
    let backslash = bytes.indexOf(BACKSLASH, at);
    while (at < bytes.length) {
      if (this.#escape !== undefined) {
        this.#readEscape(bytes[at] as number, sink);
        at++;
        continue;
      }
      if (quote !== -1 && quote < at) quote = bytes.indexOf(QUOTE, at);
      if (backslash !== -1 && backslash < at) backslash = bytes.indexOf(BACKSLASH, at);
      const stop = Math.min(quote === -1 ? bytes.length : quote, backslash === -1 ? bytes.length : backslash);
      if (stop > at || stop === quote) this.#noHighSurrogate();
      if (stop > at) sink.raw(bytes.subarray(at, stop));
      at = stop + 1;
      if (stop === quote) {
        sink.end();
        this.#inside = 'nothing';
        return at;
      }
      if (stop === backslash) this.#escape = '';
    }
    return bytes.length;
  }

  #readEscape(byte: number, sink: Sink): void {
    const code = this.#escape + String.fromCharCode(byte);
    this.#escape = code;
    if (code.startsWith('u') && code.length < 5) return;
    let character: string;
    try {
      character = JSON.parse(`"\\${code}"`);
    } catch (cause) {
      throw new JsonSyntaxError('A string has an escape that JSON does not know.', { cause });
    }
    this.#escape = undefined;
    if (/^[\ud800-\udbff]$/.test(character)) {
      this.#noHighSurrogate();
      this.#highSurrogate = character;
      return;
    }
    const whole = this.#highSurrogate + character;
    if (!whole.isWellFormed()) throw new JsonSyntaxError('A string has half of a surrogate pair.');
    this.#highSurrogate = '';
    sink.escaped(whole);
  }

  #noHighSurrogate(): void {
    if (this.#highSurrogate !== '') throw new JsonSyntaxError('A string has half of a surrogate pair.');
  }
}

/** Decodes a key. An invalid key matches no path, and `end` refuses it. */
function keyOf(bytes: readonly number[]): string {
  try {
    return String(JSON.parse(`"${Buffer.from(bytes).toString('utf8')}"`));
  } catch {
    return '';
  }
}
