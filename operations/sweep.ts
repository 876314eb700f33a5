import * as z from 'zod/mini';
import { keptFrom } from '../functions/ledger/waits.ts';
import type { ExpectedCosts } from './cost-texts.ts';
import { expectedCosts } from './costs.ts';
import type { Deployment } from './deployment.ts';
import { sleepUntilNext } from './wait.ts';

const passSchema: z.ZodMiniType<SweepPass> = z.object({
  since: z.string(),
  startedAt: z.string(),
  endedAt: z.optional(z.string()),
  compared: z.number(),
  missed: z.number(),
  missedByRoute: z.optional(z.record(z.string(), z.number())),
  repaired: z.number(),
  unnamed: z.optional(z.number()),
  skipped: z.optional(z.number()),
});
const passesSchema = z.object({
  daily: z.optional(passSchema),
  backfill: z.optional(passSchema),
  dryRun: z.optional(passSchema),
});
const reportSchema = z.object({ underWay: passesSchema, ended: passesSchema });

/** How far a pass of the sweep is, or how it ended. Times are in ISO 8601. */
export interface SweepPass {
  readonly since: string;
  readonly startedAt: string;
  /** Undefined while it is under way. */
  readonly endedAt?: string | undefined;
  /** Uploads that were compared with the ledger. */
  readonly compared: number;
  /** Uploads that no notification told of. */
  readonly missed: number;
  /** Only of a dry run: how many of them each route would take, by its name. Undefined if there are none. */
  readonly missedByRoute?: Readonly<Record<string, number>> | undefined;
  /** Entries whose markers or receipts were put right. */
  readonly repaired: number;
  /** Files below the prefix of a jobs route that no job has taken. Undefined if there are none. */
  readonly unnamed?: number | undefined;
  /** Files that are no uploads, because their keys are those of later stages of chains. Undefined if there are none. */
  readonly skipped?: number | undefined;
}

export interface SweepRequest {
  /** Also uploads from before the deployment's first day, since then. Milliseconds since the epoch. */
  readonly since?: number | undefined;
  /** Count the missed uploads, and submit none. */
  readonly dryRun?: boolean | undefined;
  /** Go back further than entries are kept. See {@link expiredBefore}. */
  readonly force?: boolean | undefined;
}

/**
 * The time before which entries may have expired, if a pass reaches further back. A file from before then counts as
 * missed although a flow of it may have been paid for. Undefined if there is no such time. Milliseconds since the epoch.
 * @internal
 */
export function expiredBefore({ since }: SweepRequest, { settings, clock }: Deployment): number | undefined {
  const kept = keptFrom(settings, clock.now());
  return since !== undefined && since < kept ? kept : undefined;
}

/** The flows that the missed uploads of a pass begin, with those of later stages, and what they cost. */
export function costsOfSweep({ missed, missedByRoute = {} }: SweepPass, { settings }: Deployment): ExpectedCosts {
  const starts = Object.entries(missedByRoute).map(([route, count]) => ({ route, count }));
  const unknown = missed - starts.reduce((sum, { count }) => sum + count, 0);
  return expectedCosts(settings.routes, unknown > 0 ? [...starts, { route: undefined, count: unknown }] : starts);
}

/**
 * Runs a pass of the sweep to its end. The ticks do the work, a page at a time.
 * @param onProgress called whenever the state was asked for.
 * @throws {FunctionFailedError} another backfill or dry run is under way, or the time is before the kept entries
 * and nothing is forced.
 */
export async function sweep(
  { since, dryRun, force }: SweepRequest,
  deployment: Deployment,
  signal: AbortSignal,
  onProgress: (pass: SweepPass) => void = () => {},
): Promise<SweepPass> {
  const kind = dryRun === true ? 'dryRun' : since === undefined ? 'daily' : 'backfill';
  const request = {
    ...(since !== undefined && { since: new Date(since).toISOString() }),
    ...(dryRun === true && { dryRun }),
    ...(force === true && { force }),
  };
  const ask = async (event: object) => reportSchema.parse(await deployment.collecting.invoke({ sweep: event }, signal));
  const begun = (await ask(request)).underWay[kind];
  for (;;) {
    const { underWay, ended } = await ask({ status: true });
    const pass = underWay[kind];
    if (pass === undefined) {
      const last = ended[kind];
      if (last !== undefined && last.startedAt === begun?.startedAt) return last;
      throw new Error('The pass was stopped, or another pass of this kind has ended since.');
    }
    onProgress(pass);
    await sleepUntilNext(signal);
  }
}
