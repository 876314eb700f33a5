import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';

let collectMinor: (() => void) | undefined;

/**
 * Lets go of the buffers that a stream has left behind.
 *
 * A stream leaves strings and buffers behind at the rate of the wire, small in V8's young generation and large outside
 * of it. V8 looks at its own part alone: by the time a young generation of a megabyte is full of them, 64 MiB of dead
 * buffers hang on it. So whoever streams a large file asks for a collection now and then; one of the young generation
 * alone takes a millisecond, because hardly anything in it is alive.
 */
export function collectYoungGarbage(): void {
  if (collectMinor === undefined) {
    setFlagsFromString('--expose-gc');
    const gc = runInNewContext('gc') as (options: { type: 'minor' }) => void;
    setFlagsFromString('--semi-space-growth-factor=1');
    collectMinor = () => gc({ type: 'minor' });
  }
  collectMinor();
}
