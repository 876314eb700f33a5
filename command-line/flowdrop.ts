import http from 'node:http';
import { ConfigurationError } from '../functions/base/validation.ts';
import { checkProxies, variablesOf } from '../functions/settings/proxies.ts';
import { flowdropProgram } from './flowdrop/program.ts';
import { failed } from './flowdrop/run.ts';
import { ownEnvironment } from './own-environment.ts';

/** The command `flowdrop`. */

const env = ownEnvironment();

const interrupted = new AbortController();
for (const signal of ['SIGINT', 'SIGTERM'] as const) {
  process.once(signal, () => interrupted.abort(new Error('Interrupted')));
}
// Nobody reads the output any more, as in `flowdrop list --failed | head`.
process.stdout.on('error', () => process.exit(0));

/** What is reached without a proxy: the local run, and where a machine of AWS gets its credentials. */
const BESIDE_PROXIES = ['localhost', '127.0.0.1', '[::1]', '169.254.169.254', '169.254.170.2'];

/**
 * Sends what goes to AWS through the proxy of the environment. Nothing of that goes over plain HTTP.
 * @throws {ConfigurationError} the variable names no proxy.
 */
function useProxy(): void {
  const { issues, proxies } = checkProxies(env);
  if (issues.length > 0) throw new ConfigurationError(issues);
  const { https, except = [] } = proxies;
  // For Node, a name does not cover the names below it, as it does for us. Early versions of Node 24 lack the function.
  const names = [...except, ...BESIDE_PROXIES].flatMap((name) =>
    /^\w[\w.-]*$/.test(name) ? [name, `.${name}`] : name,
  );
  if (https) http.setGlobalProxyFromEnv?.({ ...variablesOf({ https, except: names }) });
}

const surroundings = {
  streams: { input: process.stdin, output: process.stdout, errors: process.stderr },
  env,
  directory: process.cwd(),
  userDirectory: env.INIT_CWD ?? process.cwd(),
  signal: interrupted.signal,
};
const words = process.argv.slice(2);
const { command, exitCode } = flowdropProgram(surroundings, words);
try {
  useProxy();
  await command.parseAsync();
  process.exitCode = exitCode();
} catch (error) {
  process.exitCode = failed(error, surroundings, words);
}
