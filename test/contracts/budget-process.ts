import { randomUUID } from 'node:crypto';
import { S3Client, type S3ClientConfig } from '@aws-sdk/client-s3';
import { systemClock } from '../../functions/base/clock.ts';
import { HoldStore } from '../../functions/holds/hold-store.ts';
import { type Attempt, admit } from '../../functions/holds/holds.ts';
import { ContendedError } from '../../functions/ledger/store.ts';
import { attemptOf } from '../support/attempt.ts';

/** What a process of the test of the budget has to do. It does one after another. */
export interface BudgetTask {
  /** Leads to the S3 of the test. */
  readonly s3: S3ClientConfig;
  readonly bucket: string;
  readonly key: string;
  /** The cap of the pipeline. */
  readonly flows: number;
  /** What each writer of this process asks to be admitted, one after another. A writer has a store of its own. */
  readonly writers: readonly (readonly string[])[];
}

const signal = new AbortController().signal;

/** Returns how many uploads of a writer were admitted. */
async function write(uploadIds: readonly string[], s3: S3Client, { bucket, key, flows }: BudgetTask): Promise<number> {
  const store = new HoldStore({ s3, bucket, key, clock: systemClock, nonce: randomUUID });
  let passed = 0;
  for (const _ of uploadIds) {
    const attempt = attemptOf({ pipeline: { flows, per: 'month', timezone: 'UTC' } });
    if (await isAdmitted(store, attempt)) passed += 1;
  }
  return passed;
}

/** What others kept from being written for long is tried again, as a tick does. The test has an end. */
async function isAdmitted(store: HoldStore, attempt: Attempt): Promise<boolean> {
  try {
    const now = Date.now();
    return (await store.change((draft) => admit(draft, attempt, now), signal)).held === undefined;
  } catch (error) {
    if (!(error instanceof ContendedError)) throw error;
    return await isAdmitted(store, attempt);
  }
}

/** Returns how many uploads of all writers were admitted. */
async function perform(task: BudgetTask): Promise<number> {
  const s3 = new S3Client(task.s3);
  const passed = await Promise.all(task.writers.map((uploadIds) => write(uploadIds, s3, task)));
  s3.destroy();
  return passed.reduce((sum, count) => sum + count, 0);
}

// The process ends when its parent does, or wants it to.
process.on('message', async (task: BudgetTask) => process.send?.(await perform(task)));
process.send?.('ready');
