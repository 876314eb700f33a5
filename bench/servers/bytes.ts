import type { Blocks } from './wire.ts';

/**
 * The files of the benchmark repeat one pseudo-random block, and the last repetition is cut. Its length is a multiple
 * of three, so its base64 can be repeated too.
 */
const BLOCK_BYTES = 768 * 1024;
const BLOCK = pseudoRandom(BLOCK_BYTES);

const BLOCK_BASE64 = Buffer.from(BLOCK.toString('base64'));

const HEAD = Buffer.from('{"data":"data:model/gltf-binary;base64,');
const TAIL = Buffer.from('"}');
const NOTHING = Buffer.alloc(0);

/** A file of this length. */
export const file = (bytes: number): Blocks => body(bytes, BLOCK, (rest) => rest, [NOTHING, NOTHING]);

/** An asset of this length, as a data URI in JSON. */
export const asset = (bytes: number): Blocks =>
  body(bytes, BLOCK_BASE64, (rest) => Buffer.from(rest.toString('base64')), [HEAD, TAIL]);

function body(
  bytes: number,
  block: Buffer,
  encoded: (rest: Buffer) => Buffer,
  [head, tail]: readonly [Buffer, Buffer],
): Blocks {
  const whole = Math.floor(bytes / BLOCK_BYTES);
  const rest = encoded(BLOCK.subarray(0, bytes % BLOCK_BYTES));
  return {
    bytes: head.byteLength + whole * block.byteLength + rest.byteLength + tail.byteLength,
    *blocks() {
      yield head;
      for (let index = 0; index < whole; index += 1) yield block;
      yield Buffer.concat([rest, tail]);
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
