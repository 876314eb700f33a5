import { answerCalls } from '../child.ts';
import { BUCKETS } from '../names.ts';
import { Aws } from './aws.ts';
import { wireServer } from './wire.ts';

const aws = new Aws();

const calls = {
  ...wireServer(aws.handle),
  put(objects: readonly { bucket: string; key: string; body: string }[]): void {
    for (const { bucket, key, body } of objects) aws.put(bucket, key, Buffer.from(body));
  },
  /** Adds entries of ended uploads to the ledger. */
  fill({ entries }: { entries: number }): void {
    const body = Buffer.from('{}');
    for (let index = 0; index < entries; index += 1) {
      aws.put(BUCKETS.ledger, `uploads/${index.toString(16).padStart(40, '0')}.json`, body);
    }
  },
  text: ({ bucket, key }: { bucket: string; key: string }) => aws.get(bucket, key)?.body.toString(),
  lastMessage: () => aws.lastMessage,
  clear: () => aws.clear(),
  takeCounts: () => aws.takeCounts(),
};
export type AwsCalls = typeof calls;

answerCalls(calls);
