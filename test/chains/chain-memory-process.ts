import { randomUUID } from 'node:crypto';
import { systemClock } from '../../functions/base/clock.ts';
import { ChainStore } from '../../functions/chains/chain-store.ts';
import { s3Client } from '../../functions/s3/client.ts';
import { peakKib } from '../support/peak-memory.ts';

/* A process with the memory of a function, which changes chains side by side. */
process.on('message', async ({ endpoint, ids }: { readonly endpoint: string; readonly ids: readonly string[] }) => {
  const credentials = { accessKeyId: 'fake', secretAccessKey: 'fake' };
  const s3 = s3Client({ endpoint, forcePathStyle: true, region: 'us-east-1', credentials });
  const store = new ChainStore({ s3, bucket: 'ledger', clock: systemClock, nonce: randomUUID });
  const never = new AbortController().signal;
  const results = await Promise.all(
    ids.map((id) => store.update(id, (chain) => chain && { ...chain, generation: 2 }, never)),
  );
  const changed = results.filter((chain) => chain?.generation === 2).length;
  process.send?.({ changed, mib: Math.round(peakKib() / 1024) });
});
