/** Stands in for `node:http` in the bundles. `infra/bundle/process.ts` gives the reason. */
const http = process.getBuiltinModule('node:http');

export const { Agent, request, STATUS_CODES } = http;
export default http;
