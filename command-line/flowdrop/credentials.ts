import { Command } from 'commander';
import { clientLines, credentials, exportLines } from '../../operations/credentials.ts';
import { UsageError } from '../options.ts';
import { type Add, example } from './add.ts';
import { EXIT_OK, stackOf } from './run.ts';

/** The command that lets clients of S3 into a local run. */
export function addCredentials(add: Add): void {
  const command = new Command('credentials')
    .description('for a local run: the address and the credentials of its S3, as commands that set them in a shell')
    .addHelpText(
      'after',
      `${example('credentials', 'credentials --json')}\n\nTo set them in this shell:\n  eval "$(flowdrop credentials)"`,
    );
  add(
    command,
    async ({ deployment, console }) => {
      const found = credentials(deployment);
      if (found === undefined) throw localOnly();
      console.answer(found, exportLines);
      if (console.isJson) return EXIT_OK;
      const { inbox, results, ledger } = found.buckets;
      // Beside the answer, which a shell evaluates.
      console.note(
        `They are valid until the run ends. Its buckets are ${inbox}, ${results} and ${ledger}. For example:`,
      );
      for (const line of clientLines(inbox)) console.note(`  ${line}`);
      return EXIT_OK;
    },
    {
      offline({ env }, options) {
        // Told before a login to AWS is needed.
        if (options.function !== undefined || stackOf(options, env) !== undefined) throw localOnly();
        return undefined;
      },
    },
  );
}

const localOnly = (): UsageError =>
  new UsageError(
    'credentials is for a local run only, so name no stack, or add --local. ' +
      'Clients of a deployed inbox use credentials of AWS: name their roles in deployment.uploaderRoleArns',
  );
