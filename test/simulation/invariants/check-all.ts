import { demand } from '../demand.ts';
import type { World } from '../world.ts';
import { checkAliases } from './aliases.ts';
import { checkChains } from './chains.ts';
import { checkCopies } from './copies.ts';
import { checkDeletions } from './deletions.ts';
import { checkEndings } from './endings.ts';
import { checkEntries, checkFailedMarkers, checkMarkers } from './entries.ts';
import { isTerminal } from './facts.ts';
import { checkFlows } from './flows.ts';
import { checkHolds } from './holds.ts';
import { checkJobs } from './jobs.ts';
import { checkEvents, checkReceipts } from './publications.ts';
import { checkMultipartUploads, checkResults } from './results.ts';
import { checkRetention } from './retention.ts';
import { checkReviews } from './reviews.ts';
import { checkSettling } from './settling.ts';
import { checkSources } from './sources.ts';
import { checkNoToken } from './token.ts';

/**
 * Checks all that must hold of a world that has come to rest. Each check reads the buckets, the service and the
 * logs. It computes what it expects from what was put into the inbox and what the service made, and not with code of
 * the functions.
 */
export async function checkAll(world: World): Promise<void> {
  const { broken } = world.orderChecker;
  demand(broken.length === 0, broken[0] ?? '');
  const entries = await world.entries();
  const terminal = entries.filter(isTerminal);
  await checkEntries(world, entries);
  await checkMarkers(world, entries);
  await checkFailedMarkers(world, entries);
  checkEndings(world, terminal);
  checkFlows(world, entries);
  checkJobs(world, entries);
  checkCopies(world, entries);
  checkSettling(world, entries);
  checkReviews(world, entries);
  checkHolds(world);
  await checkResults(world, entries);
  await checkMultipartUploads(world);
  await checkReceipts(world, terminal);
  checkEvents(world, terminal);
  await checkChains(world, entries);
  await checkSources(world, terminal);
  checkDeletions(world, terminal);
  await checkAliases(world);
  await checkRetention(world, terminal);
  await checkNoToken(world);
}
