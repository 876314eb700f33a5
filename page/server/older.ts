import type { Deployment } from '../../operations/deployment.ts';
import { findUpload } from '../../operations/find.ts';
import { holdsFor } from '../../operations/holds.ts';
import type { UploadRow } from '../api.ts';
import { rowOf } from './rows.ts';

/** The upload of an exact key or id, however old it is. A part of a key is found among the newer uploads only. */
export async function olderRow(
  name: string,
  deployment: Deployment,
  signal: AbortSignal,
): Promise<UploadRow | undefined> {
  const { entry } = (await findUpload(name, deployment, signal)) ?? {};
  return entry && rowOf(entry, await holdsFor([entry], deployment, signal), deployment, signal);
}
