import { GetObjectCommand, PutObjectCommand, type S3Client } from '@aws-sdk/client-s3';
import * as z from 'zod/mini';
import { isAbsent } from '../objects/s3-errors.ts';
import type { Log } from '../telemetry.ts';
import { SWEEP_KEY } from './keys.ts';

/** Where a pass stands: first it goes through the versions in the inbox, then through the entries of the ledger. */
export type SweepPosition =
  | { readonly in: 'inbox'; readonly after?: { readonly key: string; readonly versionId: string } | undefined }
  | { readonly in: 'ledger'; readonly after?: string | undefined };

/** A pass that has not come to its end yet. Times in milliseconds since the epoch. */
export interface SweepPass {
  readonly startedAt: number;
  /** False where a person said from when on. */
  readonly isScheduled: boolean;
  /** How many missed uploads are submitted in a second. */
  readonly uploadsPerSecond: number;
  /** What is older than this is left alone. */
  readonly since: number;
  readonly position: SweepPosition;
  /** Until when a run is at it. */
  readonly heldUntil: number;
}

export interface SweepState {
  /** When this deployment began: what was in the inbox before is submitted only when somebody asks for it. */
  readonly firstDay: number;
  /** Up to here the passes have seen to everything. */
  readonly watermark: number;
  readonly pass?: SweepPass | undefined;
}

const position = z.discriminatedUnion('in', [
  z.object({
    in: z.literal('inbox'),
    after: z.optional(z.object({ key: z.string(), versionId: z.string() })),
  }),
  z.object({ in: z.literal('ledger'), after: z.optional(z.string()) }),
]);

/** How far into the future a time may lie that another machine's clock has told, in milliseconds. */
const CLOCK_SKEW_MS = 60 * 60_000;

function stateSchema(now: number) {
  const time = z.number().check(z.gte(0), z.lte(now + CLOCK_SKEW_MS));
  return z.object({
    firstDay: time,
    watermark: time,
    pass: z.optional(
      z.object({
        startedAt: time,
        isScheduled: z.boolean(),
        uploadsPerSecond: z.number().check(z.positive()),
        since: z.number(),
        position,
        heldUntil: time,
      }),
    ),
  });
}

/**
 * What the sweep remembers between its runs. Two runs at once would only do the same work twice, so the last write
 * wins. Where nothing is remembered, or nothing that can be read, the deployment begins now.
 */
export class SweepMemory {
  readonly #s3: S3Client;
  readonly #log: Log;
  readonly #where: { readonly Bucket: string; readonly Key: string };

  constructor(s3: S3Client, bucket: string, log: Log) {
    this.#s3 = s3;
    this.#log = log;
    this.#where = { Bucket: bucket, Key: SWEEP_KEY };
  }

  async read(now: number, signal: AbortSignal): Promise<SweepState> {
    let text: string | undefined;
    try {
      const { Body } = await this.#s3.send(new GetObjectCommand(this.#where), { abortSignal: signal });
      text = await Body?.transformToString();
    } catch (error) {
      if (!isAbsent(error)) throw error;
    }
    const remembered = text === undefined ? undefined : parsedState(text, now);
    if (remembered !== undefined) return remembered;
    if (text !== undefined) {
      this.#log.error('The state of the sweep cannot be read: it begins anew, and submits nothing from before now', {
        key: SWEEP_KEY,
      });
    }
    // S3 dates objects in whole seconds, so that one of this very second would seem to be older.
    const firstSecond = Math.floor(now / 1000) * 1000;
    const first: SweepState = { firstDay: firstSecond, watermark: firstSecond };
    await this.write(first, signal);
    return first;
  }

  async write(state: SweepState, signal: AbortSignal): Promise<void> {
    const Body = JSON.stringify(state);
    await this.#s3.send(new PutObjectCommand({ ...this.#where, Body, ContentType: 'application/json' }), {
      abortSignal: signal,
    });
  }
}

function parsedState(text: string, now: number): SweepState | undefined {
  try {
    return stateSchema(now).safeParse(JSON.parse(text)).data;
  } catch {
    return undefined; // The caller says so.
  }
}
