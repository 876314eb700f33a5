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

/** The upload and the generation that the beginning of a request for a flow names. Undefined for any other request. */
export function tagInRequest(chunk: Uint8Array): { readonly upload: string; readonly generation: number } | undefined {
  const head = Buffer.from(chunk.buffer, chunk.byteOffset, Math.min(chunk.byteLength, 2_000)).toString();
  const [, upload, generation] = /"upload":"([0-9a-f]{40})","generation":(\d+)/.exec(head) ?? [];
  return upload === undefined ? undefined : { upload, generation: Number(generation) };
}
