import { type Acted, resultsSchema } from './actions.ts';
import type { Deployment } from './deployment.ts';
import { findUpload } from './find.ts';
import { UnknownUploadError } from './forget.ts';

/** What became of an alias. */
export interface Shown extends Acted {
  /** Why it does not show the flow. */
  readonly why?: string | undefined;
}

/**
 * Has the aliases of a file show another flow of it, until a newer success comes.
 * @param what its key, or the id of its newest upload. @throws {UnknownUploadError}
 */
export async function moveAlias(
  what: string,
  flow: string,
  deployment: Deployment,
  signal: AbortSignal,
): Promise<Shown> {
  const found = await findUpload(what, deployment, signal);
  if (found === undefined) throw new UnknownUploadError(`There is no upload ${what}.`);
  const { id, key } = found;
  const event = { alias: { upload: id, to: flow } };
  const [answer] = resultsSchema.parse(await deployment.collecting.invoke(event, signal));
  const { result = 'unknown', why } = answer ?? {};
  return { id, key, result, isDone: result === 'shown', ...(why !== undefined && { why }) };
}
