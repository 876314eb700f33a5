import type { Blocks } from './wire.ts';

/**
 * The files of the benchmark repeat one pseudo-random block, and the last repetition is cut. Its length is a multiple
 * of three, so its base64 can be repeated too.
 */
const BLOCK_BYTES = 768 * 1024;
const BLOCK = pseudoRandom(BLOCK_BYTES);

/** Forms of an asset in an answer: the bytes, a data URI, one with escaped slashes, or one with line breaks. */
export const FORMS = ['raw', 'uri', 'escaped', 'lines'] as const;
export type Form = (typeof FORMS)[number];

const BASE64_LINE_CHARS = 76;

const ENCODED: Readonly<Record<Form, (bytes: Buffer) => Buffer>> = {
  raw: (bytes) => bytes,
  uri: (bytes) => Buffer.from(bytes.toString('base64')),
  escaped: (bytes) => Buffer.from(bytes.toString('base64').replaceAll('/', '\\/')),
  lines: (bytes) =>
    Buffer.from(bytes.toString('base64').replace(new RegExp(`.{1,${BASE64_LINE_CHARS}}`, 'g'), '$&\\r\\n')),
};

const BLOCKS = Object.fromEntries(FORMS.map((form) => [form, ENCODED[form](BLOCK)])) as Record<Form, Buffer>;

/** A file of this length. */
export const file = (bytes: number): Blocks => body(bytes, 'raw', '', '');

/** An asset of this length, in the form in which a service answers it. */
export function asset(bytes: number, form: Form): Blocks {
  if (form === 'raw') return file(bytes);
  return body(bytes, form, '{"data":"data:model/gltf-binary;base64,', '"}');
}

function body(bytes: number, form: Form, head: string, tail: string): Blocks {
  const block = BLOCKS[form];
  const whole = Math.floor(bytes / BLOCK_BYTES);
  const rest = ENCODED[form](BLOCK.subarray(0, bytes % BLOCK_BYTES));
  return {
    bytes: head.length + whole * block.byteLength + rest.byteLength + tail.length,
    *blocks() {
      if (head !== '') yield Buffer.from(head);
      for (let index = 0; index < whole; index += 1) yield block;
      yield rest;
      if (tail !== '') yield Buffer.from(tail);
    },
  };
}

/** Xorshift with a fixed seed, so every run sends the same bytes. */
function pseudoRandom(bytes: number): Buffer {
  const words = new Uint32Array(bytes / 4);
  let state = 0x9e3779b9;
  for (let index = 0; index < words.length; index += 1) {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    words[index] = state;
  }
  return Buffer.from(words.buffer);
}
