/** Cuts `bytes` at each of `cuts`, in any order. A repeated cut makes an empty piece. */
export function pieces(bytes: Uint8Array, cuts: readonly number[]): Uint8Array[] {
  const places = [0, ...cuts.map((cut) => Math.min(cut, bytes.byteLength)).sort((a, b) => a - b), bytes.byteLength];
  return places.slice(1).map((to, index) => bytes.subarray(places[index], to));
}

export async function* streamed(chunks: readonly Uint8Array[]): AsyncGenerator<Uint8Array> {
  yield* chunks;
}

/** Yields the chunks from one buffer. Each is overwritten when the next is asked for. */
export async function* refilled(chunks: readonly Uint8Array[]): AsyncGenerator<Uint8Array> {
  const buffer = Buffer.alloc(Math.max(1, ...chunks.map(({ byteLength }) => byteLength)));
  for (const chunk of chunks) {
    buffer.fill(0xee);
    buffer.set(chunk);
    yield buffer.subarray(0, chunk.byteLength);
  }
}

/** Reads all bytes. Copies each chunk before it asks for the next. */
export async function collect(chunks: AsyncIterable<Uint8Array>): Promise<Buffer> {
  const copies: Buffer[] = [];
  for await (const chunk of chunks) copies.push(Buffer.from(chunk));
  return Buffer.concat(copies);
}
