/**
 * How `flowdrop` is typed where this code is: in a clone, which runs TypeScript, or in an app that has the package
 * installed. `npx flowdrop` might fetch a package of that name from the registry, which is somebody else's.
 */
export const OWN_COMMAND = import.meta.url.endsWith('.ts') ? 'npm run -s flowdrop --' : 'node_modules/.bin/flowdrop';
