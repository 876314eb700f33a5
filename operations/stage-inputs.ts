import * as z from 'zod/mini';
import type { StoredAsset } from '../functions/ledger/entry.ts';
import type { Outcome } from './checks.ts';
import { FunctionFailedError, invoke } from './collecting-function.ts';
import type { Deployment } from './deployment.ts';
import { creatingFunction } from './function-logs.ts';
import { list } from './list.ts';
import { readEntry } from './listing.ts';

/** The newest uploads, among which one with an asset is looked for. */
const UPLOADS_MAX = 100;

/** Assets that are tried, because the newest may have been deleted or archived. */
const ASSETS_MAX = 5;

const answerSchema = z.object({
  asset: z.enum(['readable', 'gone', 'refused', 'unread']),
  message: z._default(z.string(), ''),
});

/**
 * Tells whether the creating function may read the assets with which later stages begin. The function itself tries it
 * with one of the newest assets: no other role shows what its role, the bucket and the key of the bucket allow together.
 */
export async function examineStageInputs(deployment: Deployment, signal: AbortSignal): Promise<Outcome> {
  const { settings, isLocal, areRoutesKnown } = deployment;
  if (isLocal) return 'good'; // The S3 of a local run refuses its functions nothing.
  if (!areRoutesKnown) return { notChecked: 'the first tick after the deployment has not told the routes yet' };
  const later = settings.routes.filter(({ after }) => after !== undefined).map(({ name }) => name);
  if (later.length === 0) return 'good';
  const name = creatingFunction(deployment);
  const assets = await newestAssets(deployment, signal);
  for (const { key, versionId, etag, bytes } of assets) {
    const answer = await ask(name, { asset: { key, versionId, etag, bytes } }, deployment, signal);
    if (typeof answer === 'string') return { notChecked: answer };
    const place = `${settings.resultsBucket}/${key}`;
    if (answer.asset === 'readable') return 'good';
    if (answer.asset === 'refused') {
      return {
        severity: 'fault',
        what: `${name} may not read ${place}, so no later stage can begin (${later.join(', ')}). It says: ${answer.message}`,
        todo:
          'Deploy the stack again. If the bucket is your own, let the function read: in the policy of the bucket and of ' +
          'its key, and with deployment.resultsKeyArn. See docs/own-resources.md.',
      };
    }
    if (answer.asset === 'unread') return { notChecked: `${name} could not read ${place} just now: ${answer.message}` };
  }
  return {
    notChecked:
      assets.length === 0
        ? `the newest uploads have no asset with which ${name} could try it`
        : `the newest assets are gone or archived, so ${name} could not try it`,
  };
}

/** Assets of the newest uploads, one of each. */
async function newestAssets(deployment: Deployment, signal: AbortSignal): Promise<readonly StoredAsset[]> {
  const { uploads } = await list({ state: 'any', limit: UPLOADS_MAX }, deployment, signal);
  const withAssets = uploads.filter(({ assets }) => assets.length > 0).slice(0, ASSETS_MAX);
  const { resultsBucket } = deployment.settings;
  const isHere = ({ bucket }: StoredAsset): boolean => bucket === resultsBucket;
  const entries = await Promise.all(withAssets.map(({ id }) => readEntry(id, deployment, signal)));
  return entries.flatMap(({ entry }) =>
    entry !== undefined && 'assets' in entry ? (entry.assets?.filter(isHere).slice(0, 1) ?? []) : [],
  );
}

/** Returns a text that says why there is no answer. A function of an earlier version takes the question for an upload. */
async function ask(
  name: string,
  question: object,
  { access }: Deployment,
  signal: AbortSignal,
): Promise<z.infer<typeof answerSchema> | string> {
  try {
    const answer = answerSchema.safeParse(await invoke(name, question, access, signal));
    return answer.data ?? `${name} does not know the question: deploy this version`;
  } catch (error) {
    if (!(error instanceof FunctionFailedError)) throw error;
    return `${name} failed at the question: ${error.errorType}: ${error.message}. Deploy this version`;
  }
}
