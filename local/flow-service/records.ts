import type { Flow, Output, State } from './flow.ts';
import { TEMPLATES } from './templates.ts';
import type { Variation } from './variation.ts';

/** A flow as the service's answers show it. */
export function flowRecord(
  flow: Flow,
  now: number,
  { flowIdName }: Pick<Variation, 'flowIdName'>,
): Record<string, unknown> {
  const state = flow.state(now);
  return {
    [flowIdName]: flow.id,
    template: flow.template.name,
    state,
    progress: flow.progress(now),
    created_at: iso(flow.createdAt),
    started_at: iso(flow.startedAt),
    finished_at: flow.isTerminal(now) ? iso(flow.endsAt) : null,
    parameters: flow.parameters ?? null,
    additional: flow.additional ?? null,
    ...(state === 'failed' && { error: flow.error }),
  };
}

/** An output as the service's answers show it. */
export function outputRecord(
  { assetId, additional, error }: Output,
  /** Undefined while the flow runs. */
  finishedAt: number | undefined,
  { assetIdName, outputStatus }: Pick<Variation, 'assetIdName' | 'outputStatus'>,
): Record<string, unknown> {
  const isFinished = finishedAt !== undefined;
  const status = isFinished ? (error === undefined ? 'ready' : 'failed') : 'pending';
  return {
    [assetIdName]: assetId,
    ...(outputStatus && { status }),
    processed: iso(finishedAt),
    additional: additional ?? null,
    ...(isFinished && error !== undefined && { error }),
  };
}

export function templateRecords(): Record<string, unknown>[] {
  return TEMPLATES.map(({ id, name, description, parameters, inputTypes, outputTypes }) => ({
    id,
    name,
    description,
    parameters,
    input_types: inputTypes.length === 0 ? ['*/*'] : inputTypes,
    output_types: outputTypes.length === 0 ? ['*/*'] : outputTypes,
  }));
}

function iso(ms: number | undefined): string | null {
  return ms === undefined ? null : new Date(ms).toISOString();
}

/** Everything that the service knows of a flow, for tests. Times are milliseconds since the epoch. */
export interface FlowView {
  readonly id: string;
  readonly template: string;
  readonly parameters: unknown;
  readonly additional: unknown;
  readonly inputs: readonly {
    readonly mediaType: string;
    readonly bytes: number;
    readonly sha256: string;
    readonly additional: unknown;
  }[];
  /** The outputs that the flow will have, unless it is aborted. */
  readonly outputs: readonly {
    readonly assetId: string;
    readonly mediaType: string;
    readonly bytes: number;
    readonly additional: unknown;
    readonly error: string | undefined;
  }[];
  readonly state: State;
  readonly createdAt: number;
  readonly startedAt: number | undefined;
  readonly finishedAt: number | undefined;
  readonly aborted: boolean;
  readonly deleted: boolean;
}

export function flowView(flow: Flow, now: number): FlowView {
  return {
    id: flow.id,
    template: flow.template.name,
    parameters: flow.parameters,
    additional: flow.additional,
    inputs: flow.inputs.map(({ mediaType, blob, additional }) => ({
      mediaType,
      bytes: blob.bytes,
      sha256: blob.sha256,
      additional,
    })),
    outputs: flow.outputs.map(({ assetId, mediaType, content, additional, error }) => ({
      assetId,
      mediaType,
      bytes: content.bytes,
      additional,
      error,
    })),
    state: flow.state(now),
    createdAt: flow.createdAt,
    startedAt: flow.startedAt,
    finishedAt: flow.isTerminal(now) ? flow.endsAt : undefined,
    aborted: flow.aborted,
    deleted: flow.deleted,
  };
}
