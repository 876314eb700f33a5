import type { Focus } from './faults.ts';
import type { Random } from './random.ts';
import { putStep, type Step } from './scenario.ts';
import type { StormNeeds } from './storm-needs.ts';

const KEYS = [
  'echo/a.bin',
  'echo/b c+d%é?#.png',
  'echo/sub/ü\u0301.txt',
  'two/x.bin',
  'odd/x.bin',
  'fail/x.bin',
  'none/x.bin',
  'text/prompt.txt',
  'bad/x.bin',
  'elsewhere/x.bin',
];
const USUAL_KEYS = ['echo/a.bin', 'echo/b c+d%é?#.png', 'two/x.bin'];

/** Files that take each other's place. */
const REPLACING = 8;

/** An upload whose asset has several parts. It comes alone, because making and hashing the asset takes long. */
function bigStep(random: Random, spanMs: number): Step {
  return putStep(random.int(0, spanMs), 'big/x.bin', 'big');
}

/** Uploads of one file, whose media type is another one each time. */
function replacingSteps(random: Random, spanMs: number): readonly Step[] {
  const key = random.pick(USUAL_KEYS);
  return Array.from({ length: REPLACING }, (_, n) => {
    const at = Math.round((n * spanMs) / REPLACING);
    return putStep(at, key, contentFor(random, key), n % 2 === 0 ? 'application/octet-stream' : 'image/png');
  });
}

/** The content of an upload. Some are empty, no valid text, or large. */
function contentFor(random: Random, key: string): Buffer {
  const kind = random.int(1, 40);
  if (kind === 1) return Buffer.alloc(0);
  if (kind === 2 && key.startsWith('text/')) return Buffer.from([0x66, 0xff, 0xfe]);
  const content = Buffer.alloc(kind === 3 ? random.int(200_000, 400_000) : random.int(1, 600));
  const [least, greatest] = key.startsWith('text/') ? [0x20, 0x7e] : [0, 255];
  for (let at = 0; at < content.byteLength; at += 1) content[at] = random.int(least, greatest);
  return content;
}

/** Uploads and deletions within `spanMs`, at few keys, so that they meet each other. */
export function stormStepsOf(
  random: Random,
  spanMs: number,
  focus: Focus | undefined,
  needs: StormNeeds,
): readonly Step[] {
  const keys = Array.from({ length: needs.areOverwritten ? 1 : random.int(1, 3) }, () =>
    random.pick(needs.areQuick || needs.areTimedOut || random.chance(0.6) ? USUAL_KEYS : KEYS),
  );
  if (needs.areAliasesMoved) return replacingSteps(random, spanMs);
  if (needs.isBig) return [bigStep(random, spanMs), bigStep(random, spanMs)].sort((a, b) => a.at - b.at);
  if (random.chance(0.03)) return [bigStep(random, spanMs)];
  const contents = new Map<string, Buffer>();
  const steps: Step[] = [];
  const count = random.int(focus === undefined ? 1 : 3, 7);
  for (let n = 0; n < count; n += 1) {
    const key = random.pick(keys);
    const at = random.int(0, spanMs);
    const before = contents.get(key);
    if (before !== undefined && random.chance(0.15)) {
      steps.push({ at, kind: 'delete', key });
      continue;
    }
    const content = before !== undefined && random.chance(0.3) ? before : contentFor(random, key);
    contents.set(key, content);
    const mediaType = key.startsWith('text/') ? 'text/plain' : random.pick(['application/octet-stream', 'image/png']);
    // Some of them, without drawing a number, which would change everything that follows.
    const isMultipart = content.byteLength > 0 && at % 5 === 0;
    steps.push({ ...putStep(at, key, content, mediaType), isMultipart });
  }
  return steps.sort((a, b) => a.at - b.at);
}
