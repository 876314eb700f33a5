/** Stands in for `node:dns` in the bundles. `infra/bundle/process.ts` gives the reason. */
const dns = process.getBuiltinModule('node:dns');

export const { lookup } = dns;
export default dns;
