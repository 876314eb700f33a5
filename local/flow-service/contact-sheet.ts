import { crc32, deflateSync } from 'node:zlib';

const TILE_PIXELS = 32;
const GAP_PIXELS = 4;
const STEP_PIXELS = TILE_PIXELS + GAP_PIXELS;
const WHITE = [255, 255, 255];

/**
 * A PNG with a tile for each colour, as the PNG specification describes it: a header, the compressed rows and an end.
 * @param colours red, green and blue, 0 to 255.
 */
export function contactSheet(colours: readonly (readonly number[])[]): Buffer {
  const columns = Math.ceil(Math.sqrt(colours.length));
  const rows = Math.ceil(colours.length / columns);
  const width = columns * STEP_PIXELS + GAP_PIXELS;
  const height = rows * STEP_PIXELS + GAP_PIXELS;
  const header = Buffer.alloc(13);
  header.writeUInt32BE(width, 0);
  header.writeUInt32BE(height, 4);
  header.set([8, 2], 8); // 8 bits for each of red, green and blue.
  const gap = pixelRow(width, []);
  const lines = Array.from({ length: height }, (_, y) => {
    const row = tileAt(y);
    return row === undefined ? gap : pixelRow(width, colours.slice(row * columns, (row + 1) * columns));
  });
  return Buffer.concat([
    Buffer.from('\x89PNG\r\n\x1a\n', 'latin1'),
    chunk('IHDR', header),
    chunk('IDAT', deflateSync(Buffer.concat(lines))),
    chunk('IEND', Buffer.alloc(0)),
  ]);
}

/** A row of pixels through these tiles. Its first byte says that it is not filtered. */
function pixelRow(width: number, tiles: readonly (readonly number[])[]): Buffer {
  const pixels = Array.from({ length: width }, (_, x) => tiles[tileAt(x) ?? tiles.length] ?? WHITE);
  return Buffer.from([0, ...pixels.flat()]);
}

/** The index of the tile at a pixel of a row or column. Undefined in a gap. */
function tileAt(pixel: number): number | undefined {
  const inStep = pixel % STEP_PIXELS;
  return inStep < GAP_PIXELS ? undefined : Math.floor(pixel / STEP_PIXELS);
}

function chunk(type: string, data: Buffer): Buffer {
  const typed = Buffer.concat([Buffer.from(type, 'latin1'), data]);
  const bytes = Buffer.alloc(typed.length + 8);
  bytes.writeUInt32BE(data.length, 0);
  typed.copy(bytes, 4);
  bytes.writeUInt32BE(crc32(typed), typed.length + 4);
  return bytes;
}
