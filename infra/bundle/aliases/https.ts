/** Stands in for `node:https` in the bundles; `infra/bundle/process.ts` says why. */
const https = process.getBuiltinModule('node:https');

export const { Agent, request } = https;
export default https;
