import { TERMINAL_STATES } from '../ledger/terminal-states.ts';
import type { Receipt } from './report-schemas.ts';

/** The `source` of every event that we send to the bus. */
export const EVENT_SOURCE = 'flowdrop';

/**
 * Maximum size of an event's detail, in bytes. EventBridge takes 1 MB with the fields around it since January 2026.
 * Before, that was 256 KB, and what a rule sends events to may still take no more. (AWS Compute Blog, "More room to build:
 * serverless services now support payloads up to 1 MB".)
 */
export const DETAIL_BYTES_MAX = 240 * 1024;

/** The `detail-type` of every event that we send to the bus. */
export const EVENT_NAMES = [
  TERMINAL_STATES.succeeded.detailType,
  TERMINAL_STATES.failed.detailType,
  'Chain Succeeded',
  'Chain Failed',
  'Budget Reached',
  'Failures Alike',
  'Review Wanted',
] as const;

/** Most targets of a pipeline. Each has a rule, and a bus has 300 by default. */
export const NOTIFY_MAX = 20;

/** The `detail-type` of the event by which `flowdrop doctor --notify` tries the targets. Every rule matches it. */
export const TEST_EVENT = 'Notification Test';

/** The name of the rule of a target. `flowdrop doctor` finds the targets by it. @param number 1 for the first target. */
export const notifyRuleName = (pipeline: string, number: number): string => `${pipeline}-notify-${number}`;

/** The event of an upload, or of a chain, that ended. */
export interface CompletionEvent {
  readonly detailType: (typeof EVENT_NAMES)[number];
  /** JSON of the receipt, of the chain, or of the hold. */
  readonly detail: string;
}

/** What is left out of an event whose lists are too long: the receipt has them. */
const NO_LISTS = {
  ...({ assets: [], failedOutputs: [], inputs: [], children: [] } as const),
  parameters: undefined,
  previous: undefined,
};

/**
 * The event of an upload that ended: the facts of its receipt, and where that is.
 * @param where the bucket and key of the receipt.
 */
export function completionEvent(
  receipt: Receipt,
  pipeline: string,
  where: { readonly bucket: string; readonly key: string },
): CompletionEvent {
  const { assets, failedOutputs } = receipt;
  const detail = {
    // Identifies this end of the upload. The event may be sent more than once, always with the same id. A receiver can
    // drop an id that it has seen. If the upload is retried and ends again, that end has another id.
    id: `${receipt.upload.id}-${receipt.generation}-${Date.parse(receipt.endedAt)}`,
    pipeline,
    ...receipt,
    results: {
      bucket: where.bucket,
      receiptKey: where.key,
      assetCount: assets.length,
      failedOutputCount: failedOutputs.length,
      // True if the lists were too long.
      isCut: false,
    },
  };
  return { detailType: TERMINAL_STATES[receipt.status].detailType, detail: fittingDetail(detail, NO_LISTS) };
}

/** The detail of an event as JSON. @param instead replaces the lists if these are too long for an event. */
export function fittingDetail(detail: { readonly results: object }, instead: object): string {
  const json = JSON.stringify(detail);
  if (Buffer.byteLength(json) <= DETAIL_BYTES_MAX) return json;
  return JSON.stringify({ ...detail, ...instead, results: { ...detail.results, isCut: true } });
}
