import { inspect } from 'node:util';
import { demand } from '../demand.ts';
import { LEDGER, RESULTS } from '../names.ts';
import type { World } from '../world.ts';

/** Larger objects are assets, which hold no token. Reading all of them takes too long. */
const OBJECT_BYTES_MAX = 1024 * 1024;

/** The token is only in the secret and in the memory of the functions. */
export async function checkNoToken({ observed, inspector }: World): Promise<void> {
  const { tokens, logged, thrown, published } = observed;
  const has = (text: string): boolean => tokens.some((token) => text.includes(token));
  for (const line of logged) demand(!has(inspect(line, { depth: 10 })), 'the token is in a log', line);
  for (const error of thrown) demand(!has(inspect(error, { depth: 10 })), 'the token is in an error', error);
  for (const event of published) demand(!has(event.detail), 'the token is in an event', event);
  for (const bucket of [RESULTS, LEDGER]) {
    for (const { key } of await inspector.list(bucket)) {
      const opened = await inspector.open(bucket, key);
      if (opened === undefined || opened.body.byteLength > OBJECT_BYTES_MAX) continue;
      demand(!has(key) && !has(opened.body.toString('latin1')), 'the token is in a bucket', bucket, key);
    }
  }
}
