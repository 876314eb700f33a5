import { asset } from './bytes.ts';
import type { WireAnswer, WireRequest } from './wire.ts';

/** The id of a flow describes it: `done-<bytes>-<n>`, or `running-<n>`. */
export const doneFlow = (bytes: number, index: number): string => `done-${bytes}-${index}`;
export const runningFlow = (index: number): string => `running-${index}`;

/** A flow service that accepts every flow and reads all answers from flow ids. It keeps nothing but its counts. */
export class FlowService {
  #counts: Record<string, number> = {};
  #created = 0;
  #received = 0;
  #endsWithBytes: number | undefined;

  /** Flows that are created from now on end at once, with one asset of this length. Without one, they run. */
  endAtOnce({ bytes }: { bytes?: number }): void {
    this.#endsWithBytes = bytes;
  }

  /** Requests by operation since the last call, and the bytes of all of them with their heads. */
  takeCounts(): Readonly<Record<string, number>> {
    const counts = { ...this.#counts, receivedBytes: this.#received };
    this.#counts = {};
    this.#received = 0;
    return counts;
  }

  readonly handle = ({ method, url, bodyBytes, headBytes }: WireRequest): WireAnswer => {
    this.#received += bodyBytes + headBytes;
    const [, , flowId = '', outputs, assetId] = url.pathname.split('/');
    if (method === 'POST') {
      this.#count('create');
      this.#created += 1;
      const ends = this.#endsWithBytes;
      const flowId = ends === undefined ? runningFlow(this.#created) : doneFlow(ends, this.#created);
      return json({ flow_id: flowId, state: 'created' }, 201);
    }
    if (assetId !== undefined) {
      this.#count('asset');
      const bytes = Number(flowId.split('-')[1]);
      return { status: 200, headers: { 'Content-Type': 'application/json' }, body: asset(bytes) };
    }
    if (outputs !== undefined) {
      this.#count('outputs');
      return json({ flow_id: flowId, outputs: [{ asset_id: 'asset', status: 'ready' }] });
    }
    this.#count('get');
    return json({ flow_id: flowId, state: flowId.startsWith('running-') ? 'running' : 'completed' });
  };

  #count(operation: string): void {
    this.#counts[operation] = (this.#counts[operation] ?? 0) + 1;
  }
}

const json = (value: object, status = 200): WireAnswer => ({
  status,
  headers: { 'Content-Type': 'application/json' },
  body: JSON.stringify(value),
});
