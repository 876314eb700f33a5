import { afterAll, afterEach, beforeAll, describe, expect, it, vi } from 'vitest';
import { showUpload } from '../../command-line/flowdrop/show.ts';
import type { ChainView } from '../../operations/chains.ts';
import { status } from '../../operations/status.ts';
import { issuesOf } from '../support/json-schema.ts';
import { PATIENCE } from '../support/patience.ts';
import { Operated, signal } from './support.ts';

vi.mock('../../operations/wait.ts', () => import('./quick-wait.ts'));

const ECHO = { input: 'file', template: 'bytes_echo' } as const;
const HOUR_MS = 3_600_000;

let operated: Operated;
/** So many new flows end at once. Those after them run for an hour. */
let quickFlows = Number.POSITIVE_INFINITY;
function flowMs(): number {
  quickFlows -= 1;
  return quickFlows < 0 ? HOUR_MS : 0;
}
beforeAll(async () => {
  const routes = [
    { ...ECHO, name: 'copied', parameters: { copies: 2 }, suffixes: ['.png'], overrides: true },
    { ...ECHO, name: 'checked', after: 'copied' },
    { ...ECHO, name: 'packed', after: 'checked', inputs: 'all' },
    { ...ECHO, name: 'split', parameters: { copies: 12 }, suffixes: ['.txt'] },
    { ...ECHO, name: 'read', after: 'split' },
    { ...ECHO, name: 'alone', suffixes: ['.bin'] },
  ] as const;
  operated = await Operated.start({ routes, standIn: { flowMs } });
});
afterEach(() => {
  operated.refuse(undefined);
  quickFlows = Number.POSITIVE_INFINITY;
});
afterAll(() => operated[Symbol.asyncDispose]());

/** The service takes so many flows more. It refuses those after them. */
function takeOnly(count: number): void {
  const { standIn } = operated.pipeline;
  if (standIn === undefined) throw new Error('There is no stand-in');
  let taken = 0;
  standIn.intercept = (_, { operation }) => {
    if (operation !== 'createFlow') return undefined;
    taken += 1;
    return taken > count ? { status: 422 } : undefined;
  };
}

/** Waits until a chain is in a state. */
const chainBecomes = (key: string, state: ChainView['state']): Promise<ChainView> =>
  vi.waitFor(async () => {
    const found = await status(key, operated.deployment, signal);
    if (found.kind === 'upload' && found.chain?.state === state) return found.chain;
    throw new Error(`The chain of ${key} is not ${state} yet: ${JSON.stringify(found)}`);
  }, PATIENCE);

async function putChain(key: string, state: ChainView['state']): Promise<ChainView> {
  await operated.upload(key, `content of ${key}`);
  return chainBecomes(key, state);
}

describe('status', () => {
  it('draws the chain of a file as a tree, also if an upload of a later stage is named', async () => {
    const chain = await putChain('whole.png', 'succeeded');
    const { code, output } = await operated.run('status', 'whole.png');
    const time = String.raw`\d\d:\d\d:\d\d \S+`;
    const drawn = [
      String.raw`the chain of whole\.png: succeeded at ${time}`,
      String.raw`  copied \w{8} +succeeded  ${time}  2 results`,
      String.raw`  ├─ checked \w{8} +succeeded  ${time}  1 result`,
      String.raw`  ├─ checked \w{8} +succeeded  ${time}  1 result`,
      String.raw`  └─ packed \w{8} +succeeded  ${time}  2 results, of all assets of the stage before`,
    ];
    expect(output).toMatch(new RegExp(`\n${drawn.join('\n')}\n$`));
    expect(code).toBe(0);

    const [checked] = chain.root.uploads;
    const later = await operated.run('status', checked?.key ?? '');
    expect(later.output).toContain(`  the first file of its chain was put into the inbox: whole.png\n`.trim());
    expect(later.output).toContain('began with an asset of whole.png: 20 B');
    expect(later.output).not.toContain('replaced or deleted');
    expect(later.output).toMatch(new RegExp(`\n${drawn.join('\n')}\n$`));

    const json = JSON.parse((await operated.run('status', checked?.id ?? '', '--json')).output);
    expect(issuesOf('statusOfUpload', json)).toBe('');
    expect(json).toMatchObject({
      isCurrent: true,
      upload: { stage: { route: 'checked', first: { key: 'whole.png' }, parent: { key: 'whole.png', generation: 1 } } },
      chain: { state: 'succeeded', withheld: [], root: { route: 'copied' } },
    });
  });

  it('tells why an upload of the chain failed, which stage was withheld, and how to go on', async () => {
    takeOnly(2);
    await putChain('broken.png', 'failed');
    const { code, output } = await operated.run('status', 'broken.png');
    expect(code).toBe(1);
    expect(output).toMatch(/the chain of broken\.png: failed at /);
    expect(output).toMatch(/├─ checked \w{8} +failed +\S+ \S+ +rejected: .*422/);
    expect(output).toMatch(
      /└─ packed +withheld +after checked +An upload or an output of the stages before failed\.\n/,
    );
    expect(output).toContain('which may be paid for: npm run -s flowdrop -- retry broken.png\n');
    expect(issuesOf('statusOfUpload', JSON.parse((await operated.run('status', 'broken.png', '--json')).output))).toBe(
      '',
    );
  });

  it('sums up a stage with more than ten uploads, with its failures', async () => {
    takeOnly(11);
    await putChain('many.txt', 'failed');
    const { output } = await operated.run('status', 'many.txt');
    expect(output).toMatch(/└─ read +12 uploads +(10 succeeded, 2 failed|2 failed, 10 succeeded)\n/);
    expect(output.match(/[├└]─ read \w{8} +failed/g)).toHaveLength(2);
  });

  it('tells what the uploads under way do, and has no chain of a file without later stages', async () => {
    quickFlows = 1;
    await operated.upload('slow.png', 'slow');
    await vi.waitFor(async () => {
      const { output } = await operated.run('status', 'slow.png');
      expect(output).toMatch(/├─ checked \w{8} +running .*\n +└─ checked \w{8} +running /);
    }, PATIENCE);
    const found = await status('slow.png', operated.deployment, signal);
    if (found.kind !== 'upload' || found.chain === undefined) throw new Error('There is no chain');
    expect(found.chain).toMatchObject({ state: 'under way', isSample: false });
    const sample = { ...found, chain: { ...found.chain, isSample: true } };
    expect(showUpload(sample, operated.deployment).at(-1)).toBe(
      '  More uploads are under way. What they wait for was not read.',
    );
    quickFlows = Number.POSITIVE_INFINITY;
    await operated.put('plain.bin', 'succeeded');
    expect((await operated.run('status', 'plain.bin')).output).not.toContain('chain');
  });
});

it('explain says of a route of a later stage that it takes assets', async () => {
  await operated.upload('which.zip', 'x');
  const { output } = await operated.run('explain', 'which.zip');
  expect(output).toContain('route checked: takes assets of the route copied, instead of files\n');
  expect(output).toContain('No route wants it, so nothing is sent.');
});
