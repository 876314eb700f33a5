/** Stands in for `node:util` in the bundles. `infra/bundle/process.ts` gives the reason. */
const util = process.getBuiltinModule('node:util');

export const { isDeepStrictEqual } = util;
export default util;
