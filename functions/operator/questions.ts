import { FlowServiceError, type FlowServiceErrorCode } from '../flow-service/errors.ts';
import type { FlowService, ListingSample, ShownFlow } from '../flow-service/types.ts';
import type { OperatorPorts } from './changes.ts';

/** Why the flow service did not answer a question. */
interface Unanswered {
  readonly issue: { readonly code: FlowServiceErrorCode; readonly message: string };
}

/** What the flow service offers; or why it did not say so. */
export type OfferedTemplates = { readonly templates: readonly unknown[]; readonly issue?: undefined } | Unanswered;

/** What the listing of flows shows; or why it was not read. */
export type ListingAnswer = { readonly listing: ListingSample; readonly issue?: undefined } | Unanswered;

/** What the service answers about a flow; or why it was not asked, or did not answer. */
export type FlowAnswer =
  | { readonly flow: ShownFlow; readonly issue?: undefined }
  | { readonly issue: { readonly code: FlowServiceErrorCode | 'without-flow'; readonly message: string } };

/** Asks the flow service how the flow of an upload is, by the request of a poll. It changes nothing, and costs nothing. */
export async function flowAnswer(
  uploadId: string,
  { ledger, flows }: Pick<OperatorPorts, 'flows' | 'ledger'>,
  signal: AbortSignal,
): Promise<FlowAnswer> {
  const { entry } = (await ledger.read(uploadId, signal)) ?? {};
  if (entry === undefined || !('flow' in entry) || entry.flow === undefined) {
    return { issue: { code: 'without-flow', message: 'The upload has no flow.' } };
  }
  const { flow, route } = entry;
  return answered(async () => ({ flow: await flows.show(flow.id, signal, { uploadId, template: route.template }) }));
}

/**
 * Asks the flow service for its templates. The question goes from where the function is, and with its token, so the
 * answer also tells whether the service can be reached and takes the token. It costs nothing.
 */
export async function offeredTemplates(
  flows: Pick<FlowService, 'templates'>,
  signal: AbortSignal,
): Promise<OfferedTemplates> {
  return answered(async () => ({ templates: await flows.templates(signal) }));
}

/** Reads two pages of the listing of flows, as the service shows it to the function. It costs nothing either. */
export async function listingAnswer(flows: Pick<FlowService, 'sample'>, signal: AbortSignal): Promise<ListingAnswer> {
  return answered(async () => ({ listing: await flows.sample(signal) }));
}

async function answered<T>(ask: () => Promise<T>): Promise<T | Unanswered> {
  try {
    return await ask();
  } catch (error) {
    if (!(error instanceof FlowServiceError)) throw error;
    return { issue: { code: error.code, message: error.message } };
  }
}
