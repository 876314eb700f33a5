import { LEDGER_FORMAT } from '../../functions/ledger/entry-schema.ts';
import { SWEEP_KEY } from '../../functions/ledger/keys.ts';
import { isTerminal } from './invariants/facts.ts';
import { LEDGER } from './names.ts';
import { MINUTE } from './timeline.ts';
import type { World } from './world.ts';

/** Removes an entry whose end is fully published, as the lifecycle rule of the ledger does after a while. */
export async function expireEntry(world: World): Promise<void> {
  const { observed, inspector, randoms, timeline } = world;
  const published = new Set(observed.published.map(({ detail }) => (JSON.parse(detail) as { id: string }).id));
  const markers = [...(await inspector.list(LEDGER, 'running/')), ...(await inspector.list(LEDGER, 'waiting/'))];
  const candidates = (await world.entries()).filter(
    (entry) =>
      isTerminal(entry) &&
      [...published].some((id) => id.startsWith(`${entry.upload.id}-${entry.generation}`)) &&
      !markers.some(({ key }) => key.includes(entry.upload.id)),
  );
  if (candidates.length === 0) return;
  const { upload } = randoms.changes.pick(candidates);
  world.trace(`an entry expires: ${upload.key}`);
  observed.noteExpired(upload.id, timeline.now());
  await inspector.delete(LEDGER, `uploads/${upload.id}.json`);
}

/** Makes the entry of an upload that waits or runs unreadable. */
export async function damageEntry(world: World): Promise<void> {
  const candidates = (await world.entries()).filter(({ state }) => state === 'waiting' || state === 'running');
  if (candidates.length === 0) return;
  const { upload } = world.randoms.changes.pick(candidates);
  world.trace(`an entry is damaged: ${upload.key}`);
  world.observed.damaged = upload;
  const half = Buffer.from('{"schema":6,"st');
  await world.inspector.put(LEDGER, `uploads/${upload.id}.json`, half, 'application/json');
}

/** Moves one of the times that tell where the next daily pass begins into the future. */
export async function damageSweepState(world: World): Promise<void> {
  const { inspector, randoms, timeline } = world;
  const member = randoms.changes.pick(['firstDay', 'watermark']);
  world.trace(`the state of the sweep is damaged: ${member}`);
  if (member === 'firstDay') world.observed.firstDayLostAt = timeline.now();
  const state = await inspector.json<object>(LEDGER, SWEEP_KEY);
  const damaged = JSON.stringify({ schema: LEDGER_FORMAT, ...state, [member]: timeline.now() + 24 * 60 * MINUTE });
  await inspector.put(LEDGER, SWEEP_KEY, Buffer.from(damaged), 'application/json');
}
