import { randomUUID } from 'node:crypto';
import { describe, expect } from 'vitest';
import { systemClock } from '../../functions/base/clock.ts';
import { HoldStore } from '../../functions/holds/hold-store.ts';
import { type Attempt, admit, type Holds } from '../../functions/holds/holds.ts';
import { read } from '../support/s3-calls.ts';
import { behaviour } from './support.ts';

const PROCESSES = 64;
const UPLOADS_OF_EACH = 3;
const FLOWS = 100;
const TIMES = 5;

const attempt = (uploadId: string): Attempt => ({
  ...{ uploadId, generation: 1, routeName: 'r', prefix: '', isPresent: true, isResent: false, nonce: randomUUID() },
  request: { template: 't', input: 'file' },
  sent: { template: 't', input: 'file' },
  pipeline: { flows: FLOWS, per: 'month', timezone: 'UTC' },
  route: undefined,
  price: undefined,
});

describe('the meter of a budget', () => {
  behaviour(
    'of 64 processes that count at the same time, exactly as many flows pass as the cap allows',
    'any',
    async (given) => {
      const signal = new AbortController().signal;
      for (let time = 0; time < TIMES; time += 1) {
        const where = { ...given, Key: `${given.Key}-${time}` };
        const { client: s3, Bucket: bucket, Key: key } = where;
        const passed = await Promise.all(
          Array.from({ length: PROCESSES }, async (_, process) => {
            const store = new HoldStore({ s3, bucket, key, clock: systemClock, nonce: randomUUID });
            let count = 0;
            for (let upload = 0; upload < UPLOADS_OF_EACH; upload += 1) {
              const one = attempt(`${process}-${upload}`);
              if ((await store.change((draft) => admit(draft, one, Date.now()), signal)) === undefined) count += 1;
            }
            return count;
          }),
        );
        expect(passed.reduce((sum, count) => sum + count, 0)).toBe(FLOWS);
        expect((JSON.parse((await read(where)) ?? '') as Holds).pipeline.spent?.flows).toBe(FLOWS);
      }
    },
  );
});
