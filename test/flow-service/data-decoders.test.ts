import { describe, expect, it } from 'vitest';
import { Base64Decoder, Block, PIECE_CHARS_MAX } from '../../functions/flow-service/data-decoders.ts';

describe('a block of decoded bytes', () => {
  it('has room for one more piece until it is nearly full', () => {
    const block = new Block();
    const piece = 'x'.repeat(PIECE_CHARS_MAX);
    while (!block.isNearlyFull) {
      const before = block.bytesWritten;
      block.writeLatin1(piece);
      expect(block.bytesWritten).toBe(before + piece.length);
    }
    expect(block.bytesWritten).toBe(4 * PIECE_CHARS_MAX);
    block.take();
    expect(block.isNearlyFull).toBe(false);
    for (let pieces = 0; pieces < 3; pieces += 1) block.writeLatin1(piece);
    expect(block.isNearlyFull).toBe(false);
    block.writeLatin1('x');
    expect(block.isNearlyFull).toBe(true);
  });

  it('is empty until something is written, and once it was taken', () => {
    const block = new Block();
    expect(block.isEmpty).toBe(true);
    expect(block.writeBase64('QUI=')).toBe(2);
    expect(block.isEmpty).toBe(false);
    expect(Buffer.from(block.take()).toString()).toBe('AB');
    expect(block.isEmpty).toBe(true);
  });

  it('counts all bytes, also those that were taken, but none that were dropped', () => {
    const block = new Block();
    block.writeLatin1('abc');
    block.take();
    block.writeLatin1('defg');
    block.take();
    block.writeLatin1('hi');
    expect(block.bytesWritten).toBe(9);
    block.drop(1);
    expect(block.bytesWritten).toBe(8);
    expect(Buffer.from(block.take()).toString()).toBe('h');
  });
});

it('base64 that goes on behind its padding is refused before any of that is decoded', () => {
  for (const [padded, more] of [
    ['QQ==', 'QUJD'],
    ['QUJD=', 'QUJD'],
    ['QUJD====', 'QUJDQUJD'],
  ] as const) {
    const block = new Block();
    const decoder = new Base64Decoder(block);
    decoder.write(padded, false);
    const before = block.bytesWritten;
    expect(() => decoder.write(more, false)).toThrow('The base64 goes on behind its padding');
    expect(block.bytesWritten).toBe(before);
  }
});
