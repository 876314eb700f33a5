import { GetObjectCommand, PutObjectCommand, type S3Client } from '@aws-sdk/client-s3';
import { isAbsent } from '../objects/s3-errors.ts';
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

/**
 * What the sweep remembers between its runs. Two runs at once would only do the same work twice, so the last write
 * wins. Where nothing is remembered, the deployment begins now.
 */
export class SweepMemory {
  readonly #s3: S3Client;
  readonly #where: { readonly Bucket: string; readonly Key: string };

  constructor(s3: S3Client, bucket: string) {
    this.#s3 = s3;
    this.#where = { Bucket: bucket, Key: SWEEP_KEY };
  }

  async read(now: number, signal: AbortSignal): Promise<SweepState> {
    try {
      const { Body } = await this.#s3.send(new GetObjectCommand(this.#where), { abortSignal: signal });
      return JSON.parse((await Body?.transformToString()) ?? '') as SweepState;
    } catch (error) {
      if (!isAbsent(error)) throw error;
      // S3 dates objects in whole seconds, so that one of this very second would seem to be older.
      const firstSecond = Math.floor(now / 1000) * 1000;
      const first: SweepState = { firstDay: firstSecond, watermark: firstSecond };
      await this.write(first, signal);
      return first;
    }
  }

  async write(state: SweepState, signal: AbortSignal): Promise<void> {
    const Body = JSON.stringify(state);
    await this.#s3.send(new PutObjectCommand({ ...this.#where, Body, ContentType: 'application/json' }), {
      abortSignal: signal,
    });
  }
}
