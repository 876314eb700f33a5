import type { ChainNode, ChainView } from '../../operations/chains.ts';
import { cut, localTime } from '../texts.ts';
import { table } from './console.ts';
import { counted } from './words.ts';

/** Uploads of a stage that are shown one by one. A stage with more is summed up, with its failures. */
const STAGE_SHOWN_MAX = 10;

/** Columns of a reason. `flowdrop status` of the upload, by its id, shows all of it. */
const REASON_COLUMNS = 80;

/** One line of the tree, and the lines below it. */
interface Branch {
  /** What the line says, in the cells of a table. */
  readonly cells: readonly string[];
  readonly branches: readonly Branch[];
}

/** Draws a chain as a tree: a line for each upload, or for many uploads of one stage. */
export function showChain(chain: ChainView): readonly string[] {
  const { first, state, endedAt, generation, isSample, root } = chain;
  const end = endedAt === undefined ? '' : ` at ${localTime(endedAt)}`;
  const anew = generation > 1 ? `, with stages made anew ${counted(generation - 1, 'time')}` : '';
  const withheld = chain.withheld.map(({ route, after, why }) => ({
    cells: [route, 'withheld', `after ${after}`, why],
    branches: [],
  }));
  const { cells, branches } = branchOf(root, chain);
  const rows = rowsOf({ cells, branches: [...branches, ...withheld] });
  return [
    `the chain of ${first.key}: ${state}${end}${anew}`,
    ...table(rows).map((line) => `  ${line}`),
    ...(isSample ? ['  More uploads are under way. What they wait for was not read.'] : []),
  ];
}

function branchOf(node: ChainNode, chain: ChainView): Branch {
  const { id, route, state, since, reason, assets, takesAll } = node;
  const made = assets === 0 ? [] : [counted(assets, 'result')];
  const said = [...made, ...(takesAll ? ['of all assets of the stage before'] : []), ...(reason ? [reason] : [])];
  return {
    cells: [`${route} ${shortId(id)}`, state, localTime(since), cut(said.join(', '), REASON_COLUMNS)],
    branches: branchesOf(node.uploads, chain),
  };
}

/** Enough of an id to tell the uploads of one chain apart, whose ids begin with the same second. */
const shortId = (id: string): string => id.slice(8, 16);

function branchesOf(nodes: readonly ChainNode[], chain: ChainView): readonly Branch[] {
  return [...Map.groupBy(nodes, ({ route }) => route)].flatMap(([route, ofRoute]) =>
    ofRoute.length > 1 && isLarge(route, chain)
      ? [summaryOf(route, ofRoute, chain)]
      : ofRoute.map((node) => branchOf(node, chain)),
  );
}

function isLarge(route: string, { stages }: ChainView): boolean {
  const counts = stages.find((stage) => stage.route === route)?.counts ?? {};
  return Object.values(counts).reduce((sum, count) => sum + count, 0) > STAGE_SHOWN_MAX;
}

/** Many uploads of one stage in one line. Below it stand those that failed, and what works on the assets of all. */
function summaryOf(route: string, nodes: readonly ChainNode[], chain: ChainView): Branch {
  const counts = [...Map.groupBy(nodes, ({ state }) => state)].map(([state, some]) => `${some.length} ${state}`);
  const failed = nodes.filter(({ state }) => state === 'failed');
  const shown = failed.slice(0, STAGE_SHOWN_MAX).map((node) => branchOf({ ...node, uploads: [] }, chain));
  const more = failed.length - shown.length;
  const rest = more === 0 ? [] : [{ cells: [`and ${more} more that failed`], branches: [] }];
  const below = nodes.flatMap(({ uploads }) => uploads);
  return {
    cells: [route, counted(nodes.length, 'upload'), '', counts.join(', ')],
    branches: [...shown, ...rest, ...branchesOf(below, chain)],
  };
}

/** The rows of a branch. The first cell of each has the lines of the tree. */
function rowsOf({ cells: [name = '', ...cells], branches }: Branch): readonly (readonly string[])[] {
  const below = branches.flatMap((branch, index) => {
    const isLast = index === branches.length - 1;
    return rowsOf(branch).map(([text = '', ...rest], row) => {
      const drawn = row === 0 ? (isLast ? '└─ ' : '├─ ') : isLast ? '   ' : '│  ';
      return [`${drawn}${text}`, ...rest];
    });
  });
  return [[name, ...cells], ...below];
}
