import { homedir } from 'node:os';

/** The home folder of users who have none, as in Debian's `/etc/passwd`. No user can put files there. */
export const NO_HOME = '/nonexistent';

/**
 * Returns the environment that this process was started with, and removes the token of the flow service from
 * `process.env`. Call it first. The browser, the shells and the bundler that this process starts do not inherit the
 * token then.
 *
 * A user id without an entry in `/etc/passwd`, as `docker run --user` gives, has no home folder. The AWS SDK and other
 * packages ask for one and would fail. They get a folder that does not exist.
 */
export function ownEnvironment(): NodeJS.ProcessEnv {
  const env = { ...process.env };
  delete process.env.FLOWDROP_TOKEN;
  try {
    homedir();
  } catch {
    process.env.HOME = NO_HOME;
  }
  return env;
}
