import { counted } from '../../functions/base/printable.ts';
import { type Branch, chainTree } from '../../operations/chain-tree.ts';
import type { ChainView } from '../../operations/chains.ts';
import { shortId } from '../../operations/compare.ts';
import { cut, localTime } from '../texts.ts';
import { coloured, indented, joined, type Text, table } from './console.ts';

/** Columns of a reason. `flowdrop status` of the upload, by its id, shows all of it. */
const REASON_COLUMNS = 80;

/** Draws a chain as a tree: a line for each upload, or for many uploads of one stage. */
export function showChain(chain: ChainView): readonly Text[] {
  const { first, state, endedAt, generation, isSample } = chain;
  const end = endedAt === undefined ? '' : ` at ${localTime(endedAt)}`;
  const anew = generation > 1 ? `, with stages made anew or added ${counted(generation - 1, 'time')}` : '';
  return [
    joined(`the chain of ${first.key}: `, coloured(state), `${end}${anew}`),
    ...indented(table(rowsOf(chainTree(chain)))),
    ...(isSample ? ['  More uploads are under way. What they wait for was not read.'] : []),
  ];
}

/** The rows of a branch. The first cell of each has the lines of the tree. */
function rowsOf(branch: Branch): readonly (readonly Text[])[] {
  const { branches } = branch;
  const below = branches.flatMap((each, index) => {
    const isLast = index === branches.length - 1;
    return rowsOf(each).map(([text = '', ...rest], row) => {
      const drawn = row === 0 ? (isLast ? '└─ ' : '├─ ') : isLast ? '   ' : '│  ';
      return [`${drawn}${text}`, ...rest];
    });
  });
  return [cellsOf(branch), ...below];
}

/** What the line of a branch says, in the cells of a table. */
function cellsOf(branch: Branch): readonly Text[] {
  switch (branch.kind) {
    case 'upload': {
      const { id, route, state, since, reason, assets, takes } = branch.node;
      const made = assets === 0 ? [] : [counted(assets, 'result')];
      const said = [
        ...made,
        ...(takes ? [`takes all of ${takes.route}: ${counted(takes.assets, 'asset')}`] : []),
        ...(reason ? [reason] : []),
      ];
      return [`${route} ${shortId(id)}`, coloured(state), localTime(since), cut(said.join(', '), REASON_COLUMNS)];
    }
    case 'summary': {
      const counts = Object.entries(branch.counts).map(([state, count]) => `${count} ${state}`);
      return [branch.route, counted(branch.uploads, 'upload'), '', counts.join(', ')];
    }
    case 'more':
      return [`and ${branch.failed} more that failed`];
    case 'withheld':
      return [branch.route, coloured('withheld'), `after ${branch.after}`, branch.why];
  }
}
