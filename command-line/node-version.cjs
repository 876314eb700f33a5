/**
 * Ends the process with one sentence if this Node is too old. The npm scripts load it with `--require`, before any
 * TypeScript: an old Node cannot load that, and would print a stack trace. Plain JavaScript that every Node can run.
 */
const { engines } = require('../package.json');

const needed = Number(/\d+/.exec(engines.node)[0]);
if (Number.parseInt(process.versions.node, 10) < needed) {
  process.stderr.write(
    `Flowdrop needs Node ${needed} or later, and this is Node ${process.versions.node}: ` +
      'on Linux x64, run "npm ci", which installs it, and then "npm start"; ' +
      `on other machines, install Node ${needed} from https://nodejs.org.\n`,
  );
  process.exit(1);
}
