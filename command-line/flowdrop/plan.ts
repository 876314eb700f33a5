import { ConfigurationError } from '../../functions/base/validation.ts';
import { readTrackedContext } from '../../infra/configuration.ts';
import { readStackContext } from '../../infra/deployment.ts';
import { type PlannedDeployment, reasonNotToAsk } from '../../operations/before-deployment.ts';
import { type Explanation, explainFile } from '../../operations/explain.ts';
import { UsageError } from '../options.ts';
import { NoDeploymentError, type Offline } from './run.ts';

/** Reads the configuration of the folder as `npm run synth` does, and asks for the token if it is needed. */
export async function readPlan(
  { directory, env, console, signal }: Offline,
  stage: string | undefined,
): Promise<PlannedDeployment> {
  const read = configurationIn(directory, stage);
  const given = env.FLOWDROP_TOKEN?.trim() || undefined;
  const plan: PlannedDeployment = { ...read, token: given };
  // With any token the service could be asked, so only the token is missing.
  const isWanted = given === undefined && reasonNotToAsk({ ...plan, token: 'any' }) === undefined;
  if (!isWanted || !console.canAsk) return plan;
  const typed = await console.secret('The token of the flow service (it is not shown, and not stored)', signal);
  return { ...plan, token: typed.trim() || undefined };
}

/** The configuration of a folder, and where it stands. An error tells what is wrong with it. */
export function configurationIn(
  dir: string,
  wanted: string | undefined,
): Pick<PlannedDeployment, 'source' | 'configuration'> {
  try {
    const { flowdrop, stage } = readTrackedContext(dir);
    const { context, source } = readStackContext({ dir, context: flowdrop, stage: wanted ?? stage });
    return { configuration: context, source };
  } catch (error) {
    if (!(error instanceof ConfigurationError)) throw error;
    return { configuration: error, source: error.source ?? 'cdk.json' };
  }
}

/**
 * Explains a file of this machine by the configuration of the folder.
 * @param error why there is no pipeline to ask. It is thrown if one was named.
 * @throws {UsageError}
 */
export async function explainOffline(
  error: unknown,
  { directory, path, signal }: Offline,
  what: string,
): Promise<Explanation> {
  if (!(error instanceof NoDeploymentError)) throw error;
  const { configuration } = configurationIn(directory, undefined);
  if (configuration instanceof ConfigurationError) throw new UsageError(configuration.message);
  const { pipeline, routes, settings } = configuration;
  const explanation = await explainFile(
    path(what),
    { ...settings, pipeline, routes, inboxBucket: 'the inbox' },
    signal,
  );
  if (explanation === undefined) throw new UsageError(`There is no file ${what}. ${error.message}`);
  return explanation;
}
