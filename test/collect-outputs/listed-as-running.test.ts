import { expect, it } from 'vitest';
import { ListedAsRunning } from '../../functions/collect-outputs/listed-as-running.ts';
import type { FlowRecord, FlowService } from '../../functions/flow-service/types.ts';
import type { RunningMarker } from '../../functions/ledger/keys.ts';
import { VirtualTime } from '../support/virtual-time.ts';

const idOf = (n: number) => ((n * 2654435761) % 2 ** 32).toString(16).padStart(24, '0');
const marker = (flowId: string): RunningMarker => ({ ageFrom: 0, uploadId: flowId, flowId });

/** A service whose listing calls every flow running for ever. */
function lying(flowIds: readonly string[], pageSize: number): FlowService {
  return {
    async *list() {
      for (let at = 0; at < flowIds.length; at += pageSize) {
        yield flowIds.slice(at, at + pageSize).map((flowId) => ({ flowId, state: 'running' }) as FlowRecord);
      }
    },
  } as unknown as FlowService;
}

/** Goes through rounds 15 seconds apart. Returns the due flows that are ever left to a poll. */
async function leftToPolls(rounds: number, ids: readonly string[], dueIn: (round: number) => readonly string[]) {
  const clock = new VirtualTime();
  const listed = new ListedAsRunning({ flows: lying(ids, 50), clock });
  const asked = new Set<string>();
  await clock.during(async () => {
    for (let round = 0; round < rounds; round += 1) {
      const due = dueIn(round);
      const running = await listed.running(due.map(marker), new AbortController().signal);
      for (const id of due) if (!running.has(id)) asked.add(id);
      await clock.sleep(15_000);
    }
  }, 1e9);
  return asked;
}

it('leaves every flow that the listing calls running to a poll at last', async () => {
  const ids = Array.from({ length: 1_000 }, (_, n) => idOf(n));
  expect((await leftToPolls(500, ids, () => ids)).size).toBe(1_000);
});

it('keeps the count of a flow that is not due in every round', async () => {
  const ids = Array.from({ length: 40 }, (_, n) => idOf(n));
  const halfOf = (round: number) => (round % 2 === 0 ? ids.slice(0, 20) : ids.slice(20));
  expect((await leftToPolls(1_000, ids, halfOf)).size).toBe(40);
});
