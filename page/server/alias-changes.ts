import * as z from 'zod/mini';
import { moveAlias } from '../../operations/alias.ts';
import type { Deployment } from '../../operations/deployment.ts';
import { isUploadId } from '../../operations/stored-bytes.ts';
import type { AliasAnswer } from '../api.ts';
import { notFound, notPossible } from './answers.ts';
import { jsonBody } from './json-body.ts';
import type { Call } from './router.ts';

const requestSchema = z.object({ upload: z.string(), flow: z.string() });

/** `POST /api/alias` @throws {PageError} */
export async function changeAlias({ request, signal }: Call, deployment: Deployment): Promise<AliasAnswer> {
  const { upload, flow } = await jsonBody(request, requestSchema);
  if (!isUploadId(upload)) throw notFound('There is no such upload.');
  const shown = await moveAlias(upload, flow, deployment, signal);
  if (!shown.isDone) throw notPossible(shown.why ?? `Nothing was done: ${shown.result}.`);
  return shown;
}
