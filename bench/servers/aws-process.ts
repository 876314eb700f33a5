import { entryKey } from '../../functions/ledger/keys.ts';
import { secondDigits } from '../../functions/uploads/upload.ts';
import { answerCalls } from '../child.ts';
import { BUCKETS, FILE_MODIFIED } from '../names.ts';
import { Aws } from './aws.ts';
import { wireServer } from './wire.ts';

const DAY_MS = 86_400_000;
const WEEK_MS = 7 * DAY_MS;
const YEAR_MS = 365 * DAY_MS;

const aws = new Aws();

const calls = {
  ...wireServer(aws.handle),
  put(objects: readonly { bucket: string; key: string; body: string }[]): void {
    for (const { bucket, key, body } of objects) aws.put(bucket, key, Buffer.from(body));
  },
  /** Adds entries of uploads that ended in the year before. */
  fill({ entries }: { entries: number }): void {
    const body = Buffer.from('{}');
    const firstAt = Date.parse(FILE_MODIFIED) - YEAR_MS;
    for (let index = 0; index < entries; index += 1) {
      const endedAt = firstAt + Math.floor(((YEAR_MS - WEEK_MS) * index) / entries);
      const id = `${secondDigits(endedAt)}${index.toString(16).padStart(32, '0')}`;
      aws.put(BUCKETS.ledger, entryKey(id), body, { lastModified: endedAt });
    }
  },
  text: ({ bucket, key }: { bucket: string; key: string }) => aws.get(bucket, key)?.body.toString(),
  clear: () => aws.clear(),
  takeCounts: () => aws.takeCounts(),
  takeMessages: () => aws.takeMessages(),
};
export type AwsCalls = typeof calls;

answerCalls(calls);
