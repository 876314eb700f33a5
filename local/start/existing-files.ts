import { shownPath } from '../../command-line/texts.ts';
import { systemClock } from '../../functions/base/clock.ts';
import { counted } from '../../functions/base/printable.ts';
import { isJobFile } from '../../functions/uploads/job-keys.ts';
import type { Route } from '../../functions/uploads/route.ts';
import { isLeftOut, jobsRouteOf } from '../../functions/uploads/routes.ts';
import { costsSentence } from '../../operations/cost-texts.ts';
import { withPrefix } from '../../operations/find.ts';
import { costsOfFiles, routeOfFile } from '../../operations/route-file.ts';
import { InboxFolder } from './inbox-folder.ts';

/**
 * Says what a service may charge for the files that the inbox folder holds already. Undefined if nothing would be sent
 * of them.
 */
export async function chargeForExisting(
  { inboxDir, serviceUrl }: { readonly inboxDir: string; readonly serviceUrl: string },
  settings: { readonly routes: readonly Route[]; readonly inboxPrefix: string },
): Promise<string | undefined> {
  const { routes } = settings;
  const inbox = new InboxFolder(inboxDir, systemClock, (key) => isLeftOut(routes, withPrefix(key, { settings })));
  const keys = ((await inbox.files()) ?? []).map((file) => withPrefix(file.key, { settings }));
  const starts = keys.filter((key) =>
    jobsRouteOf(routes, key) === undefined ? routeOfFile({ key }, { settings }) !== undefined : isJobFile(key),
  );
  if (starts.length === 0) return undefined;
  const costs = costsSentence(costsOfFiles(starts, { settings }));
  return (
    `The inbox ${shownPath(inboxDir)} already holds ${counted(keys.length, 'file')}, ` +
    `for which ${serviceUrl} may charge: ${costs} ` +
    'Add --send-existing to send them, or name another folder with --inbox'
  );
}
