import { expect, it } from 'vitest';
import { createFlowsOrPutCanary } from '../../functions/create-flow/create-event.ts';
import type { Route } from '../../functions/uploads/route.ts';
import type { S3Access } from '../../local/aws/s3/call.ts';
import { DAY, ECHO, INBOX, LEDGER, MINUTE, openWorld, RESULTS } from '../support/world.ts';

const keyOf = (bucket: string) => `arn:aws:kms:eu-central-1:123456789012:key/${bucket}`;
const encryption = Object.fromEntries(
  [INBOX, RESULTS, LEDGER].map((bucket) => [
    bucket,
    { ServerSideEncryption: 'aws:kms' as const, SSEKMSKeyId: bucket === LEDGER ? undefined : keyOf(bucket) },
  ]),
);

const ROUTES: readonly Route[] = [
  { ...ECHO, prefixes: ['a/'], price: { amount: 1, currency: 'EUR' }, alias: 'alias/{key}/{n}{ext}' },
  { ...ECHO, name: 'later', after: 'echo' },
  { ...ECHO, name: 'paused', prefixes: ['paused/'] },
];

/** A kind of object, and how it was written: at once, or in parts that began so. */
function kindOf({ resource, request: { query } }: S3Access): string {
  const [, bucket = '', key = ''] = /^arn:aws:s3:::([^/]+)\/(.*)$/s.exec(resource) ?? [];
  const name = key.split('/').at(-1) ?? '';
  const isReport = name === 'receipt.json' || name === 'chain.json';
  const [folder = '', inFolder = ''] = key.split('/');
  const ofLedger = folder === 'state' ? `state/${inFolder.replace(/-\d+\.json$/, '')}` : folder;
  const ofResults = folder === 'alias' ? folder : isReport ? name : 'an asset';
  const kind = bucket === LEDGER ? ofLedger : bucket === RESULTS ? ofResults : 'an upload';
  return `${bucket}: ${kind}${query.has('uploads') ? ', in parts' : ''}`;
}

/** Answers as the policies of companies do that demand the headers of every new object. */
function policy(written: Set<string>, refused: Set<string>) {
  return (access: S3Access): boolean => {
    const { action, resource, request, context } = access;
    // To S3, the parts of an upload have the headers with which it began.
    if (action !== 's3:PutObject' || request.query.has('uploadId')) return true;
    const [, bucket = ''] = /^arn:aws:s3:::([^/]+)/.exec(resource) ?? [];
    const isAllowed =
      context['s3:x-amz-server-side-encryption'] === 'aws:kms' &&
      context['s3:x-amz-server-side-encryption-aws-kms-key-id'] === encryption[bucket]?.SSEKMSKeyId;
    written.add(kindOf(access));
    if (!isAllowed) refused.add(kindOf(access));
    return isAllowed;
  };
}

it('every write of the functions says its encryption, and the key of its bucket, where a policy demands it', async () => {
  const [written, refused] = [new Set<string>(), new Set<string>()];
  const world = await openWorld({
    ...{ routes: ROUTES, encryption, settings: { canaryKey: 'a/canary.bin' } },
    s3: { authorize: policy(written, refused) },
  });
  world.redeploy({ areRoutesBeside: true });
  const run = async (times: number, ms: number) => {
    for (let i = 0; i < times; i += 1) {
      await world.deliverAll();
      world.clock.advance(ms);
      await world.collect();
    }
  };
  await world.upload('a/canary.bin');
  await world.invoke((invocation) => createFlowsOrPutCanary({ canary: true }, world.ports, invocation));
  // A file whose results are stored in parts, one that waits, and one that the service refuses.
  await world.upload('a/large.bin', Buffer.alloc(6_000_000, 'flow drop'));
  await world.collect({ hold: { action: 'pause', route: 'paused' } });
  await world.upload('paused/b.bin');
  await run(4, 10 * MINUTE);
  world.fault('createFlow', { status: 422 });
  await world.upload('a/refused.bin');
  await world.collect({ sweep: {} });
  await run(2, DAY);
  expect([...refused]).toEqual([]);
  expect([...written].sort()).toEqual([
    'inbox: an upload',
    'ledger: chains',
    'ledger: failed',
    'ledger: running',
    'ledger: state/aliases',
    'ledger: state/collector',
    'ledger: state/costs',
    'ledger: state/holds.json',
    'ledger: state/routes.json',
    'ledger: state/sweep.json',
    'ledger: uploads',
    'ledger: waiting',
    'results: alias, in parts',
    'results: an asset',
    'results: an asset, in parts',
    'results: chain.json',
    'results: receipt.json',
  ]);
});
