import { once } from 'node:events';
import { Command, InvalidArgumentError } from 'commander';
import { openBrowser } from '../../page/server/open-browser.ts';
import { PortError, servePage } from '../../page/server/serve-page.ts';
import { UsageError } from '../options.ts';
import { type Add, example } from './add.ts';
import { type CommonOptions, EXIT_OK } from './run.ts';

const PORT_MAX = 65_535;

interface OpenOptions extends CommonOptions {
  readonly port?: number;
  readonly browser: boolean;
}

/** The command that serves the page until Ctrl-C. */
export function addOpen(add: Add): void {
  const command = new Command('open')
    .description('serves a page in the browser to drop files, watch them and see their results, until Ctrl-C')
    .option('--port <number>', 'the port of the page on this machine (default: any free one)', portOf)
    .option('--no-browser', 'print the address, and open no browser')
    .addHelpText('after', example('open --stack flowdrop', 'open --stack flowdrop --port 8321 --no-browser'));
  add<OpenOptions>(command, async ({ deployment, console, signal }, _, { port, browser }) => {
    const served = await servePage(deployment, { port, prepareAfterMs: 0 }).catch((error: unknown) => {
      if (error instanceof PortError) throw new UsageError(`${error.message}. Name another one with --port`);
      throw error;
    });
    try {
      console.answer({ url: served.url }, ({ url }) => [`The page of ${deployment.name} is at ${url}`]);
      console.note('Anyone with this address can use the page with your rights. Press Ctrl-C to stop.');
      if (browser) {
        // Some programs that open a browser end with it.
        void openBrowser(served.urlForOnce()).then((isOpen) => {
          if (!isOpen) console.note('No browser could be started. Open the address in one.');
        });
      }
      if (!signal.aborted) await once(signal, 'abort');
      return EXIT_OK;
    } finally {
      await served.close();
    }
  });
}

/** @throws {InvalidArgumentError} */
function portOf(text: string): number {
  const port = /^\d{1,5}$/.test(text) ? Number(text) : Number.NaN;
  if (port <= PORT_MAX) return port;
  throw new InvalidArgumentError(`Expected a port from 0 to ${PORT_MAX}.`);
}
