import type { Clock } from '../base/clock.ts';
import type { Telemetry } from '../base/telemetry.ts';
import { isInChain } from '../chains/chain.ts';
import type { ChainStore } from '../chains/chain-store.ts';
import { FlowServiceError, NotFoundError, NotServedError } from '../flow-service/errors.ts';
import { LISTING_DELAY_MAX_MS } from '../flow-service/flow-search.ts';
import type { FlowService, OfUpload } from '../flow-service/types.ts';
import {
  deletionBegun,
  deletionDueAt,
  deletionEnded,
  flowsToDelete,
  isTerminal,
  type TerminalEntry,
} from '../ledger/entry.ts';
import { type Ledger, readableOr, type Stored } from '../ledger/store.ts';
import { isPublished } from '../publish/publish.ts';
import type { Settings } from '../settings/environment.ts';
import { firstOf } from '../uploads/upload.ts';

/** Time of a round in which deletions begin, in milliseconds. Files that wait are sent by the same round. */
const ROUND_MS = 10_000;

/** Time after a round's deletions until those that had no turn are due again, in milliseconds. */
const NEXT_MS = 60_000;

interface DeletionPorts {
  readonly ledger: Ledger;
  readonly chains: Pick<ChainStore, 'read'>;
  readonly flows: Pick<FlowService, 'delete' | 'get' | 'outputs'>;
  readonly clock: Clock;
  readonly telemetry: Telemetry;
  readonly settings: Pick<Settings, 'routes'>;
}

/**
 * Deletes flows at the service, as `deleteFlow` of their routes asks. A waiting marker leads to each.
 *
 * A deletion must not hide a lost flow from a search. A search is for the tag of one generation of an upload, and only
 * the flows of generations that have ended are deleted. The deletion is written into the entry before it is done, so
 * that nobody collects the flow at the same time.
 */
export class FlowDeletions {
  readonly #ports: DeletionPorts;
  #startBy = 0;

  constructor(ports: DeletionPorts) {
    this.#ports = ports;
  }

  /** Begins the time in which deletions have their turns. */
  beginRound(): void {
    this.#startBy = this.#ports.clock.now() + ROUND_MS;
  }

  /**
   * Deletes the flow of an ended upload, if that is due.
   * @returns when to look at the upload again. Undefined if nothing is left to do.
   */
  async goOn(stored: Stored, signal: AbortSignal): Promise<number | undefined> {
    const { ledger, clock, settings } = this.#ports;
    const { entry } = stored;
    const dueAt = isTerminal(entry) ? deletionDueAt(entry, settings.routes) : undefined;
    const now = clock.now();
    if (dueAt === undefined || dueAt > now || !isTerminal(entry)) return dueAt;
    // An upload may have several markers. All are put again at this time, and so become one.
    const nextRoundAt = this.#startBy + NEXT_MS;
    if (now >= this.#startBy) return nextRoundAt;
    if (!(await this.#isOver(entry, signal))) return nextLook(entry, now);
    const begun = await ledger.replace(stored, deletionBegun(entry, now), signal);
    if (!begun.won) return nextRoundAt;
    const message = await this.#delete(entry, signal);
    const next = deletionEnded(deletionBegun(entry, now), clock.now(), message);
    await ledger.replace(begun.stored, next, signal);
    const again = deletionDueAt(next, settings.routes);
    this.#report(next, message, again === undefined);
    return again;
  }

  /** True if the upload and its whole chain have ended, and nothing of them is left to publish. */
  async #isOver(entry: TerminalEntry, signal: AbortSignal): Promise<boolean> {
    const { ledger, chains, settings } = this.#ports;
    if (!(await isPublished(entry, ledger, signal))) return false;
    if (!isInChain(entry, settings.routes)) return true;
    const chain = await readableOr(chains.read(firstOf(entry.upload).id, signal), () => ({ endedAt: undefined }));
    return chain === undefined || chain.endedAt !== undefined;
  }

  /** @returns why a flow was not deleted. */
  async #delete(entry: TerminalEntry, signal: AbortSignal): Promise<string | undefined> {
    const { flows, settings } = this.#ports;
    const of = { uploadId: entry.upload.id, template: entry.route.template, startBy: this.#startBy };
    for (const flowId of flowsToDelete(entry, settings.routes)) {
      const result = await deleteFlow(flowId, flows, of, signal);
      if (result instanceof FlowServiceError) return result.message;
    }
    return undefined;
  }

  #report({ upload, flow }: TerminalEntry, message: string | undefined, isLast: boolean): void {
    const { log, metrics } = this.#ports.telemetry;
    const about = { uploadId: upload.id, flowId: flow?.id };
    if (message === undefined) log.info('The flow was deleted at the service', about);
    else log.warn('The flow could not be deleted at the service', { ...about, why: message, isLast });
    if (message === undefined) metrics.add('FlowsDeleted');
    else if (isLast) metrics.add('FlowsNotDeleted');
  }
}

/**
 * When the end of a chain is looked for again. It may take weeks, so each time is twice as far from the upload's end as the
 * one before.
 */
function nextLook({ endedAt }: TerminalEntry, now: number): number {
  let sinceMs = LISTING_DELAY_MAX_MS;
  while (endedAt + sinceMs <= now) sinceMs *= 2;
  return endedAt + sinceMs;
}

/** Deletes a flow at the service. `gone` if the service does not know it any more. @returns why it could not. */
export async function deleteFlow(
  flowId: string,
  flows: Pick<FlowService, 'delete' | 'get' | 'outputs'>,
  of: OfUpload & { readonly startBy?: number },
  signal: AbortSignal,
): Promise<'deleted' | 'gone' | FlowServiceError> {
  const error = await flows.delete(flowId, signal, of);
  if (error === undefined) return 'deleted';
  // A service that does not serve the request may answer 404 too.
  return error instanceof NotFoundError && (await isGone(flowId, flows, signal, of)) ? 'gone' : error;
}

/** True if the service knows neither a flow nor its outputs. A service may serve only the outputs. */
async function isGone(
  flowId: string,
  flows: Pick<FlowService, 'get' | 'outputs'>,
  signal: AbortSignal,
  { uploadId, template }: OfUpload,
): Promise<boolean> {
  for (const what of ['get', 'outputs'] as const) {
    try {
      await flows[what](flowId, signal, { uploadId, template });
      return false;
    } catch (error) {
      if (!(error instanceof FlowServiceError)) throw error;
      if (error instanceof NotServedError && what === 'get') continue;
      if (!(error instanceof NotFoundError)) return false;
      if (error.knownToBeServed) return true;
    }
  }
  return true;
}
