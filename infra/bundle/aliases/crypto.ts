/** Stands in for `node:crypto` in the bundles. `infra/bundle/process.ts` gives the reason. */
const crypto = process.getBuiltinModule('node:crypto');

export const { createHash, createHmac, getRandomValues, hash, randomBytes, randomInt, randomUUID } = crypto;
export default crypto;
