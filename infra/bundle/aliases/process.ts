/** Stands in for `node:process` in the bundles; `infra/bundle/process.ts` says why. */
const { process } = globalThis;

export const { env, versions } = process;
export default process;
