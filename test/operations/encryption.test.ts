import { mkdtemp, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { put } from '../../operations/put.ts';
import { PATIENCE } from '../support/patience.ts';
import { Operated, signal } from './support.ts';

const keyOf = (part: string) => `arn:aws:kms:eu-central-1:123456789012:key/${part}`;
const saidOf = (part: string) => ({
  's3:x-amz-server-side-encryption': 'aws:kms:dsse',
  's3:x-amz-server-side-encryption-aws-kms-key-id': keyOf(part),
});

it(
  'the deployed functions and the operator say the encryption that the environment of the functions has',
  async () => {
    /** What each write said, by who made it and where. */
    const writes = new Map<string, object[]>();
    const record = (by: string, action: string, resource: string, context: object): void => {
      if (action !== 's3:PutObject') return;
      const place = `${by}: ${/^arn:aws:s3:::(\w+)/.exec(resource)?.[1]}`;
      writes.set(place, [...(writes.get(place) ?? []), context]);
    };
    const operated = await Operated.forTest({
      environment: {
        ENCRYPTION_HEADER: 'aws:kms:dsse',
        ...{ INBOX_KEY: keyOf('inbox'), RESULTS_KEY: keyOf('results'), LEDGER_KEY: keyOf('ledger') },
      },
      onCall: record,
      onOperatorCall: (...call) => record('operator', ...call),
    });
    const folder = await mkdtemp(join(operated.directory, 'files-'));
    const putFile = async (key: string, bytes: number) => {
      const path = join(folder, key);
      await writeFile(path, Buffer.alloc(bytes, 'x'));
      await put({ path, key }, {}, operated.deployment, { signal });
    };
    await putFile('small.png', 10);
    await operated.becomes('small.png', 'succeeded');
    expect([...writes.keys()].sort()).toEqual([
      'collect-outputs: ledger',
      'collect-outputs: results',
      'create-flow: ledger',
      'operator: inbox',
    ]);
    for (const [place, said] of writes) {
      for (const each of said) expect([place, each]).toEqual([place, saidOf(place.split(' ')[1] as string)]);
    }
    // The first request begins the upload. Its parts may not say it again.
    writes.clear();
    await putFile('large.png', 12_000_000);
    expect(writes.get('operator: inbox')?.slice(0, 2)).toEqual([saidOf('inbox'), {}]);
  },
  PATIENCE.timeout,
);
