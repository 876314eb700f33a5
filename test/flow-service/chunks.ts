/** `bytes` cut at each of `cuts`, in whatever order they come; a cut that comes twice makes an empty piece. */
export function pieces(bytes: Uint8Array, cuts: readonly number[]): Uint8Array[] {
  const places = [0, ...cuts.map((cut) => Math.min(cut, bytes.byteLength)).sort((a, b) => a - b), bytes.byteLength];
  return places.slice(1).map((to, index) => bytes.subarray(places[index], to));
}

export async function* streamed(chunks: readonly Uint8Array[]): AsyncGenerator<Uint8Array> {
  yield* chunks;
}

/** The same chunks out of one buffer, each overwritten as soon as the next is asked for. */
export async function* refilled(chunks: readonly Uint8Array[]): AsyncGenerator<Uint8Array> {
  const buffer = Buffer.alloc(Math.max(1, ...chunks.map(({ byteLength }) => byteLength)));
  for (const chunk of chunks) {
    buffer.fill(0xee);
    buffer.set(chunk);
    yield buffer.subarray(0, chunk.byteLength);
  }
}

/** All bytes, each chunk copied before the next is asked for. */
export async function collect(chunks: AsyncIterable<Uint8Array>): Promise<Buffer> {
  const copies: Buffer[] = [];
  for await (const chunk of chunks) copies.push(Buffer.from(chunk));
  return Buffer.concat(copies);
}
