import type { ChainNode, ChainView } from './chains.ts';

/** Uploads of a stage that are drawn one by one. A stage with more is summed up, with its failures. */
const STAGE_SHOWN_MAX = 10;

/** One line of a chain as it is drawn, and the lines below it. */
export type Branch = { readonly branches: readonly Branch[] } & (
  | { readonly kind: 'upload'; readonly node: Omit<ChainNode, 'uploads'> }
  /** Many uploads of one stage. Below it stand those that failed, and what works on the assets of all. */
  | {
      readonly kind: 'summary';
      readonly route: string;
      readonly uploads: number;
      readonly counts: Readonly<Record<string, number>>;
    }
  /** Failures of that stage that are not drawn. */
  | { readonly kind: 'more'; readonly failed: number }
  | ({ readonly kind: 'withheld' } & ChainView['withheld'][number])
);

/**
 * A chain as a tree of lines: one for each upload, or for many uploads of one stage. The first line is the first file.
 * What takes all assets of a stage, and a stage that was withheld, stands below the last line of the stage before.
 */
export function chainTree(chain: ChainView): Branch {
  const { root, withheld } = chain;
  const uploads = root.uploads.filter(({ takes }) => takes === undefined);
  const later = [
    ...root.uploads.flatMap((node) => (node.takes ? { after: node.takes.route, branch: branchOf(node, chain) } : [])),
    ...withheld.map((stage) => ({
      after: stage.after,
      branch: { kind: 'withheld', ...stage, branches: [] } as const,
    })),
  ];
  let tree = branchOf({ ...root, uploads }, chain);
  for (const { after, branch } of later) {
    tree = withBelow(tree, after, branch) ?? { ...tree, branches: [...tree.branches, branch] };
  }
  return tree;
}

/** The tree with a branch below the last line of a stage. Undefined if the tree has no line of it. */
function withBelow(tree: Branch, route: string, branch: Branch): Branch | undefined {
  const isOfStage =
    (tree.kind === 'upload' ? tree.node.route : tree.kind === 'more' ? undefined : tree.route) === route;
  // The lines below a summary that are of its own stage are its failures.
  if (!(tree.kind === 'summary' && isOfStage)) {
    for (const [index, each] of [...tree.branches.entries()].reverse()) {
      const next = withBelow(each, route, branch);
      if (next !== undefined) return { ...tree, branches: tree.branches.with(index, next) };
    }
  }
  return isOfStage ? { ...tree, branches: [...tree.branches, branch] } : undefined;
}

const branchOf = ({ uploads, ...node }: ChainNode, chain: ChainView): Branch => ({
  kind: 'upload',
  node,
  branches: branchesOf(uploads, chain),
});

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

function summaryOf(route: string, nodes: readonly ChainNode[], chain: ChainView): Branch {
  const byState = Map.groupBy(nodes, ({ state }) => state);
  const counts = Object.fromEntries([...byState].map(([state, some]) => [state, some.length]));
  const failed = byState.get('failed') ?? [];
  const shown = failed.slice(0, STAGE_SHOWN_MAX).map((node) => branchOf({ ...node, uploads: [] }, chain));
  const more = failed.length - shown.length;
  const rest = more === 0 ? [] : [{ kind: 'more', failed: more, branches: [] } as const];
  const below = nodes.flatMap(({ uploads }) => uploads);
  return {
    ...{ kind: 'summary', route, uploads: nodes.length, counts },
    branches: [...shown, ...rest, ...branchesOf(below, chain)],
  };
}
