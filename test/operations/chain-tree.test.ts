import { expect, it } from 'vitest';
import { showChain } from '../../command-line/flowdrop/show-chain.ts';
import type { ChainNode, ChainView } from '../../operations/chains.ts';

let ids = 0;
function node(route: string, uploads: readonly ChainNode[] = [], more: Partial<ChainNode> = {}): ChainNode {
  ids += 1;
  const id = `00000000${String(ids).padStart(32, '0')}`;
  const facts = { state: 'succeeded', arrivedAt: '2026-01-01T10:00:00Z', since: '2026-01-01T10:00:01Z' } as const;
  return { id, key: id, route, ...facts, assets: 1, uploads, ...more };
}

const gathered = (name: string, route: string, assets: number, uploads: readonly ChainNode[] = []) =>
  node(name, uploads, { takes: { route, assets } });

/** The lines of a chain below its title: how deep each is, and the route that it names. */
function linesOf(root: ChainNode, withheld: ChainView['withheld'] = []): readonly string[] {
  const counts = new Map<string, number>();
  const count = ({ route, uploads }: ChainNode): void => {
    counts.set(route, (counts.get(route) ?? 0) + 1);
    uploads.forEach(count);
  };
  count(root);
  const stages = [...counts].map(([route, succeeded]) => ({ route, counts: { succeeded } }));
  const first = { id: root.id, key: 'a.png' };
  const chain = { first, state: 'succeeded', generation: 1, stages, withheld, isSample: false, root } as const;
  const drawn = showChain(chain).slice(1).map(String);
  return drawn.map((line) => {
    const [, tree = '', route = ''] = /^ {2}([ │├└─]*)(\w+)/.exec(line) ?? [];
    return `${tree.length / 3} ${route}`;
  });
}

it('what takes all assets of a stage stands below the last upload of that stage, whatever that began with', () => {
  const root = node('pictures', [
    node('parts', [node('small'), node('small')]),
    node('parts', [node('small')]),
    gathered('sheet', 'small', 3, [node('printed')]),
    gathered('book', 'parts', 2),
    gathered('shelf', 'sheet', 1),
  ]);
  expect(linesOf(root)).toEqual([
    ...['0 pictures', '1 parts', '2 small', '2 small', '1 parts', '2 small'],
    ...['3 sheet', '4 printed', '4 shelf', '2 book'],
  ]);
});

it('what takes all assets of a large stage stands below the line that sums the stage up', () => {
  const parts = Array.from({ length: 12 }, (_, index) => node('parts', [], index === 3 ? { state: 'failed' } : {}));
  expect(linesOf(node('pictures', [...parts, gathered('sheet', 'parts', 11)]))).toEqual([
    ...['0 pictures', '1 parts', '2 parts', '2 sheet'],
  ]);
});

it('a stage that was withheld stands below the stage before, also if that was withheld', () => {
  const withheld = [
    { route: 'sheet', after: 'parts', why: 'Why.' },
    { route: 'printed', after: 'sheet', why: 'Why.' },
    { route: 'other', after: 'unknown', why: 'Why.' },
  ];
  const root = node('pictures', [node('parts'), node('parts')]);
  expect(linesOf(root, withheld)).toEqual([...['0 pictures', '1 parts', '1 parts', '2 sheet', '3 printed', '1 other']]);
});
