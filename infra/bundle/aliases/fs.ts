/** Stands in for `node:fs` in the bundles. `infra/bundle/process.ts` gives the reason. */
const fs = process.getBuiltinModule('node:fs');

export const { createReadStream, fstatSync, lstatSync, readFileSync } = fs;
export default fs;

/** The SDK asks whether a body is one. None is, and the original would be loaded for that question. */
export class ReadStream {}
