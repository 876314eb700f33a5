import { inspect } from 'node:util';
import { tokenSpellings } from '../../support/token-spellings.ts';
import { demand } from '../demand.ts';
import { LEDGER, RESULT_BUCKETS } from '../names.ts';
import type { World } from '../world.ts';

/** Larger objects are assets, which hold no token. Reading all of them takes too long. */
const OBJECT_BYTES_MAX = 1024 * 1024;

/** The token is only in the secret and in the memory of the functions, however it is spelled. */
export async function checkNoToken({ observed, inspector }: World): Promise<void> {
  const { tokens, logged, thrown, published } = observed;
  const spellings = tokens.flatMap(tokenSpellings);
  const has = (text: string): boolean => spellings.some((spelling) => text.includes(spelling));
  for (const line of logged) demand(!has(inspect(line, { depth: 10 })), 'the token is in a log', line);
  for (const error of thrown) demand(!has(inspect(error, { depth: 10 })), 'the token is in an error', error);
  for (const event of published) demand(!has(event.detail), 'the token is in an event', event);
  for (const bucket of [...RESULT_BUCKETS, LEDGER]) {
    for (const { key } of await inspector.list(bucket)) {
      const opened = await inspector.open(bucket, key);
      if (opened === undefined || opened.body.byteLength > OBJECT_BYTES_MAX) continue;
      const said = [key, opened.mediaType ?? '', opened.body.toString('latin1')];
      demand(!said.some(has), 'the token is in a bucket', bucket, key);
    }
  }
}
