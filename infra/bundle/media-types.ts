/** The first part that most media types share, and the colon that stands for it: no media type has one. */
const SHARED = 'application/vnd.';

/**
 * How the function looks up an extension of a type, and the type of an extension. `TYPES` has a line for each type: the
 * type, then its extensions, each with a space behind it. An extension with an asterisk is one that another type has.
 * The callers pass names with a dot, and types without parameters, in lower case.
 */
const LOOK_UP = `
const line = (text, before) => (/[\\s*:]/.test(text) ? -1 : TYPES.indexOf(before + text.replace('${SHARED}', ':') + ' '));
const word = (at) => TYPES.slice(at, TYPES.indexOf(' ', at));
export default {
  getExtension(type) {
    const at = line(type, '\\n');
    return at < 0 ? type && null : word(TYPES.indexOf(' ', at) + 1).replace('*', '');
  },
  getType(name) {
    const at = line(name.slice(name.lastIndexOf('.') + 1).toLowerCase(), ' ');
    return at < 0 ? null : word(TYPES.lastIndexOf('\\n', at) + 1).replace(':', '${SHARED}');
  },
};
`;

/**
 * A module in place of `mime`, with the two functions of it that ours call, and its tables as one text to search. The
 * library makes maps of its tables when it is loaded, which is a fiftieth of a cold start.
 * @param types the tables of `mime`.
 * @throws if the tables cannot be packed.
 */
export function leanMime(types: Readonly<Record<string, readonly string[]>>): string {
  const lines = Object.entries(types).map(([type, extensions]) => {
    const odd = [type, ...extensions].find((part) => /[\s:]/.test(part));
    if (odd !== undefined) throw new Error(`A table of media types contains "${odd}", which cannot be packed`);
    return [type.replace(SHARED, ':'), ...extensions, ''].join(' ');
  });
  return `const TYPES = ${JSON.stringify(['', ...lines].join('\n'))};${LOOK_UP}`;
}
