import { setFlagsFromString } from 'node:v8';

/**
 * To be called before a file is streamed that is larger than what V8 would allow itself in garbage.
 *
 * A stream leaves strings and buffers behind at the rate of the wire. V8 answers by letting its young generation grow,
 * up to 25 MB in a function of 512 MiB, so that ever more dead buffers wait for it to be full; they reach V8's limit on
 * such memory, and the whole heap is marked a hundred times in a GiB: a third of the processor time, and 50 MiB. From
 * here on it stays as large as it is. Not from the start, because thousands of polls, whose answers are waited for side
 * by side, are the better for a larger one.
 */
export function keepYoungGenerationSmall(): void {
  setFlagsFromString('--semi-space-growth-factor=1');
}
