/** Stands in for `node:process` in the bundles. `infra/bundle/process.ts` gives the reason. */
const { process } = globalThis;

export const { env, versions } = process;
export default process;
