import { expect, it, vi } from 'vitest';
import { noted } from '../../functions/chains/chain.ts';
import { collectedAgain, type Ending, ended, running, runningMarkerOf, told } from '../../functions/ledger/entry.ts';
import { chainKey, runningKey } from '../../functions/ledger/keys.ts';
import { chainReport } from '../../functions/publish/chain-report.ts';
import { Receipts, receiptOf } from '../../functions/publish/receipts.ts';
import { follow, followChains } from '../../operations/follow.ts';
import { forget, tracesOf, UnderWayError } from '../../operations/forget.ts';
import { World } from '../page/world.ts';
import { signal } from './support.ts';

vi.mock('../../operations/wait.ts', () => import('./quick-wait.ts'));

const failure = { code: 'rejected', message: 'no' } as const;

/** A ledger with one upload that has just ended, and whose receipt is not out yet. */
async function justEnded(how: Ending) {
  const world = await World.start();
  const flow = { id: 'f1', createdAt: world.now };
  const entry = ended(running(world.claimed('a.png'), flow), how, world.now);
  const marker = runningKey(runningMarkerOf(entry.upload, flow));
  await world.put(entry);
  await world.putObject(marker);
  return { world, entry, marker };
}

type Ended = Awaited<ReturnType<typeof justEnded>>;

async function putReceipt({ world, entry }: Ended): Promise<unknown> {
  const { s3, settings } = world.deployment;
  const receipts = new Receipts(s3, settings);
  return receipts.put(receiptOf(entry, { ...settings, collectFunction: 'flowdrop-collect-outputs' } as never), signal);
}

it.each<[string, object, (its: Ended) => Promise<unknown>]>([
  ['the receipt of a success', {}, putReceipt],
  ['the removal of the marker of a success', {}, ({ world, marker }) => world.remove(marker)],
  ['the receipt of a failure', { failure }, putReceipt],
  [
    'the note in a failure that all is out',
    { failure },
    ({ world, entry }) => world.put(entry.state === 'failed' ? told(entry) : entry),
  ],
])('follow waits for %s', async (_, how, publish) => {
  const its = await justEnded(how);
  const { deployment } = its.world;
  let reads = 0;
  const [view] = await follow([its.entry.upload.id], deployment, signal, () => {
    reads += 1;
    if (reads === 2) void publish(its);
  });
  expect(reads).toBeGreaterThan(1);
  expect(view).toMatchObject({ state: its.entry.state, endedAt: expect.any(String) });
});

it('followChains waits for the object of a chain that its first file says will come, and for chain.json', async () => {
  const next = [{ route: { name: 'later', input: 'file', template: 'bytes_echo' }, assets: [] }] as const;
  const its = await justEnded({ next });
  const { deployment, now } = its.world;
  await putReceipt(its);
  await its.world.remove(its.marker);
  const routes = [{ name: 'later', input: 'file', template: 'bytes_echo', after: 'echo' }] as const;
  const chain = noted(undefined, [its.entry], routes);
  if (chain === undefined) throw new Error('There is no chain');
  const steps = [
    async () => undefined,
    () => its.world.putObject(chainKey(its.entry.upload.id), JSON.stringify(chain)),
    async () => undefined,
    () => new Receipts(deployment.s3, deployment.settings).putChain(chainReport(chain, ''), signal),
  ];
  expect(chain.endedAt).toBe(now);
  const { uploads, chains } = await followChains([its.entry.upload.id], deployment, signal, () => {
    void steps.shift()?.();
  });
  expect(steps).toEqual([]);
  expect([uploads, chains]).toMatchObject([[{ state: 'succeeded' }], [{ state: 'succeeded' }]]);
});

it.each([
  ['a success', {}, true],
  ['a failure', { failure }, false],
])('forget refuses %s whose end is not published, or its receipt would stay', async (_, how, hasMarker) => {
  const { world, entry, marker } = await justEnded(how);
  if (!hasMarker) await world.remove(marker);
  const found = tracesOf(entry.upload.id, world.deployment, signal);
  await expect(found).rejects.toThrow(UnderWayError);
  await expect(found).rejects.toThrow('The receipt of a.png is being written. Try again in a minute.');
});

it('forget deletes nothing if the flow was collected again meanwhile', async () => {
  const { world, entry, marker } = await justEnded({});
  await world.remove(marker);
  const traces = await tracesOf(entry.upload.id, world.deployment, signal);
  if (entry.flow === undefined) throw new Error('It had no flow');
  await world.put(collectedAgain(entry, entry.flow, [], world.now));
  await expect(forget(traces, world.deployment, signal)).rejects.toThrow('a.png is running. Cancel it first');
  expect((await world.deployment.ledger.read(entry.upload.id, signal))?.entry.state).toBe('running');
});
