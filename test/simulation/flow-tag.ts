import type { FlowView } from '../../local/flow-service/flow.ts';

/** The tag that a flow of the pipeline bears. */
export interface FlowTag {
  readonly pipeline: string;
  readonly upload: string;
  readonly generation: number;
}

export function flowTagOf({ additional }: Pick<FlowView, 'additional'>): FlowTag | undefined {
  return (additional as { flowdrop?: FlowTag } | undefined)?.flowdrop;
}
