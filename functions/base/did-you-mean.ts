const EDITS_MAX = 2;

/** Maximum number of edits between a name and the one that was meant: one in a short name, two in any other. */
const editsMax = (name: string): number => (name.length < 5 ? 1 : EDITS_MAX);

/** The known name that an unknown one most likely stands for. Undefined if none is like it. */
export function didYouMean(name: string, known: readonly string[]): string | undefined {
  const like = known
    // A name from outside may be far longer than any that is known.
    .filter((each) => Math.abs(each.length - name.length) <= EDITS_MAX)
    .map((each) => ({ each, edits: editsBetween(name.toLowerCase(), each.toLowerCase()) }))
    .filter(({ each, edits }) => edits <= editsMax(each) || isPlural(name, each));
  return like.sort((one, other) => one.edits - other.edits)[0]?.each;
}

const isPlural = (one: string, other: string): boolean => `${one}s` === other || one === `${other}s`;

/** Number of characters to insert, delete, replace or swap with their neighbour, to make one text of the other. */
function editsBetween(one: string, other: string): number {
  let before: number[] = [];
  let last = Array.from({ length: other.length + 1 }, (_, index) => index);
  for (let row = 1; row <= one.length; row += 1) {
    const next = [row];
    for (let column = 1; column <= other.length; column += 1) {
      const isSame = one[row - 1] === other[column - 1];
      const isSwap = one[row - 1] === other[column - 2] && one[row - 2] === other[column - 1];
      next[column] = Math.min(
        (last[column] as number) + 1,
        (next[column - 1] as number) + 1,
        (last[column - 1] as number) + (isSame ? 0 : 1),
        isSwap && row > 1 ? (before[column - 2] as number) + 1 : Number.POSITIVE_INFINITY,
      );
    }
    [before, last] = [last, next];
  }
  return last[other.length] as number;
}
