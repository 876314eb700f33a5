import { FlowServiceError, type FlowServiceErrorCode } from '../flow-service/errors.ts';
import type { FlowService } from '../flow-service/types.ts';

/** What the flow service offers; or why it did not say so. */
export type OfferedTemplates =
  | { readonly templates: readonly unknown[]; readonly issue?: undefined }
  | { readonly issue: { readonly code: FlowServiceErrorCode; readonly message: string } };

/**
 * Asks the flow service for its templates, on behalf of an operator. The question goes from where the function is, and
 * with its token, so the answer also tells whether the service can be reached and takes the token. It costs nothing.
 */
export async function offeredTemplates(
  flows: Pick<FlowService, 'templates'>,
  signal: AbortSignal,
): Promise<OfferedTemplates> {
  try {
    return { templates: await flows.templates(signal) };
  } catch (error) {
    if (!(error instanceof FlowServiceError)) throw error;
    return { issue: { code: error.code, message: error.message } };
  }
}
