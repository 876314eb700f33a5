import type { Receipt } from './receipts.ts';

/** The `source` of every event of ours on the bus. */
export const EVENT_SOURCE = 'flowdrop';

/**
 * EventBridge's limit on an event is 256 KB, for the detail and what is around it; this is what we let the detail be, in
 * bytes. (Amazon EventBridge User Guide, "Calculating PutEvents event entry size".)
 */
const DETAIL_BYTES_MAX = 240 * 1024;

/** An event that tells how an upload ended. */
export interface CompletionEvent {
  readonly detailType: 'Flow Succeeded' | 'Flow Failed';
  /** JSON of {@link CompletionDetail}. */
  readonly detail: string;
}

/** The receipt's facts, and where the receipt is. */
export interface CompletionDetail extends Receipt {
  /**
   * Identifies this end of the upload. The event may be sent more than once, always with the same id, so a receiver can
   * drop an id that it has seen. If the upload is retried and ends again, that end has another id.
   */
  readonly id: string;
  readonly pipeline: string;
  readonly results: {
    readonly bucket: string;
    readonly receiptKey: string;
    readonly assetCount: number;
    readonly failedOutputCount: number;
    /** True where there were too many for an event: then `assets` and `failedOutputs` are empty, and the receipt has all. */
    readonly isCut: boolean;
  };
}

/** @param where bucket and key of the receipt. */
export function completionEvent(
  receipt: Receipt,
  pipeline: string,
  where: { readonly bucket: string; readonly key: string },
): CompletionEvent {
  const { assets, failedOutputs } = receipt;
  const detail: CompletionDetail = {
    id: `${receipt.upload.id}-${receipt.generation}-${Date.parse(receipt.endedAt)}`,
    pipeline,
    ...receipt,
    results: {
      bucket: where.bucket,
      receiptKey: where.key,
      assetCount: assets.length,
      failedOutputCount: failedOutputs.length,
      isCut: false,
    },
  };
  const json = JSON.stringify(detail);
  return {
    detailType: receipt.status === 'succeeded' ? 'Flow Succeeded' : 'Flow Failed',
    detail:
      Buffer.byteLength(json) <= DETAIL_BYTES_MAX
        ? json
        : JSON.stringify({ ...detail, assets: [], failedOutputs: [], results: { ...detail.results, isCut: true } }),
  };
}
