import { spawn } from 'node:child_process';

/** The program of each system that opens an address in the user's browser. */
const OPENERS: Readonly<Partial<Record<NodeJS.Platform, readonly [string, ...string[]]>>> = {
  darwin: ['open'],
  win32: ['rundll32', 'url.dll,FileProtocolHandler'],
};

/**
 * Opens an address in the user's browser.
 * @param url other users of the machine see it in the list of processes.
 * @returns false if this machine has no browser, or no program that opens one.
 */
export function openBrowser(url: string): Promise<boolean> {
  const [program, ...args] = OPENERS[process.platform] ?? (['xdg-open'] as const);
  return new Promise((resolve) => {
    const opener = spawn(program, [...args, url], { stdio: 'ignore', detached: true });
    opener.once('error', () => resolve(false));
    opener.once('exit', (code) => resolve(code === 0));
    opener.unref();
  });
}
