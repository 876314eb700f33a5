/** Stands in for `node:https` in the bundles. `infra/bundle/process.ts` gives the reason. */
const https = process.getBuiltinModule('node:https');

export const { Agent, request } = https;
export default https;
