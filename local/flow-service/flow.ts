import type { Input, Made, Template, Work } from './templates.ts';

export type State = 'created' | 'starting' | 'running' | 'aborting' | 'completed' | 'failed' | 'aborted';

/** The shares of a flow's duration that it spends starting and aborting. */
const STARTING_PART = 0.1;
const ABORTING_PART = 0.1;

export interface Output extends Made {
  readonly assetId: string;
}

/**
 * One flow. Its state follows from the time since its start:
 *
 *             start             10 %            100 % of durationMs
 *   created ────────▶ starting ──────▶ running ─────────────────────▶ completed, failed
 *      │ abort           │ abort          │ abort        10 %
 *      ▼                 └────────────────┴────▶ aborting ──▶ aborted
 *   aborted
 */
export class Flow {
  readonly id: string;
  readonly template: Template;
  readonly parameters: unknown;
  readonly additional: unknown;
  readonly createdAt: number;
  /** When the flow appears in the listing, in milliseconds since the epoch. */
  readonly listedFrom: number;
  readonly inputs: Input[] = [];
  deleted = false;
  #started:
    | { readonly at: number; readonly durationMs: number; readonly work: Work; readonly outputs: Output[] }
    | undefined;
  #aborted: { readonly at: number; readonly endsAt: number } | undefined;

  constructor(parts: Pick<Flow, 'id' | 'template' | 'parameters' | 'additional' | 'createdAt' | 'listedFrom'>) {
    this.id = parts.id;
    this.template = parts.template;
    this.parameters = parts.parameters;
    this.additional = parts.additional;
    this.createdAt = parts.createdAt;
    this.listedFrom = parts.listedFrom;
  }

  start(now: number, durationMs: number, newAssetId: () => string): void {
    const work = this.template.work(this.inputs, (this.parameters ?? {}) as Record<string, unknown>);
    const outputs = work.outputs.map((made) => ({ ...made, assetId: newAssetId() }));
    this.#started = { at: now, durationMs, work, outputs };
  }

  abort(now: number): void {
    this.#aborted = { at: now, endsAt: now + (this.#started?.durationMs ?? 0) * ABORTING_PART };
  }

  get aborted(): boolean {
    return this.#aborted !== undefined;
  }

  get startedAt(): number | undefined {
    return this.#started?.at;
  }

  /** When the flow ends, in milliseconds since the epoch. Undefined before its start. */
  get endsAt(): number | undefined {
    return this.#aborted?.endsAt ?? (this.#started && this.#started.at + this.#started.durationMs);
  }

  get error(): string | undefined {
    return this.aborted ? undefined : this.#started?.work.error;
  }

  state(now: number): State {
    if (this.#aborted) return now < this.#aborted.endsAt ? 'aborting' : 'aborted';
    if (!this.#started) return 'created';
    const { at, durationMs, work } = this.#started;
    if (now < at + durationMs * STARTING_PART) return 'starting';
    if (now < at + durationMs) return 'running';
    return work.error === undefined ? 'completed' : 'failed';
  }

  isTerminal(now: number): boolean {
    return ['completed', 'failed', 'aborted'].includes(this.state(now));
  }

  /** 0 to 1. */
  progress(now: number): number {
    if (!this.#started) return 0;
    const { at, durationMs } = this.#started;
    const until = this.#aborted?.at ?? now;
    return durationMs === 0 ? 1 : Math.min(1, (until - at) / durationMs);
  }

  /** The outputs that the flow has at its end: all of them, or those that a failed or aborted flow leaves. */
  get outputs(): readonly Output[] {
    if (!this.#started) return [];
    const { work, outputs } = this.#started;
    return work.error === undefined && !this.aborted ? outputs : outputs.slice(0, work.partial);
  }
}
