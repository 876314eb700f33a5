import { ConfigurationError } from '../../functions/base/validation.ts';
import { checkProxies } from '../../functions/settings/proxies.ts';
import { readTrackedContext } from '../../infra/configuration.ts';
import { type Deployment, readStackContext } from '../../infra/deployment.ts';
import { COLLECTORS, MAX_CONCURRENCY_DEFAULT } from '../../infra/ranges.ts';
import { type PlannedDeployment, reasonNotToAsk } from '../../operations/before-deployment.ts';
import { explainFile } from '../../operations/explain.ts';
import type { Explanation } from '../../operations/explanation.ts';
import { plannedAccount } from '../../operations/planned-resources.ts';
import { UsageError } from '../options.ts';
import { NoDeploymentError, type Offline, sentenceOf, useProxy } from './run.ts';

/**
 * AWS is asked only if one of these variables is set. Otherwise the SDK would look for credentials in the network of the
 * machine, which takes seconds where there are none.
 */
const CREDENTIALS = [
  'AWS_PROFILE',
  'AWS_ACCESS_KEY_ID',
  'AWS_WEB_IDENTITY_TOKEN_FILE',
  'AWS_CONTAINER_CREDENTIALS_RELATIVE_URI',
  'AWS_CONTAINER_CREDENTIALS_FULL_URI',
];

/** Reads the configuration of the folder as `npm run synth` does, and asks for the token if it is needed. */
export async function readPlan(
  { directory, env, console, signal }: Offline,
  stage: string | undefined,
): Promise<PlannedDeployment> {
  const { deployment, ...read } = configurationIn(directory, stage);
  const given = env.FLOWDROP_TOKEN?.trim() || undefined;
  const plan: PlannedDeployment = {
    ...{ ...read, token: given, proxies: checkProxies(env) },
    aws: await accountOf(deployment, read.configuration, env),
  };
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
): Pick<PlannedDeployment, 'source' | 'configuration'> & { readonly deployment?: Deployment } {
  try {
    const { flowdrop, stage } = readTrackedContext(dir);
    const { context, deployment, source } = readStackContext({ dir, context: flowdrop, stage: wanted ?? stage });
    return { configuration: context, deployment, source };
  } catch (error) {
    if (!(error instanceof ConfigurationError)) throw error;
    return { configuration: error, source: error.source ?? 'cdk.json' };
  }
}

/** The account of the credentials in the environment, with what the configuration says of it. */
async function accountOf(
  deployment: Deployment | undefined,
  configuration: PlannedDeployment['configuration'],
  env: Offline['env'],
): Promise<PlannedDeployment['aws']> {
  if (deployment === undefined || configuration instanceof ConfigurationError) {
    return { notChecked: 'the configuration cannot be used' };
  }
  if (!CREDENTIALS.some((name) => env[name])) {
    return { notChecked: 'the environment has no credentials of AWS: set AWS_PROFILE to have AWS asked too' };
  }
  const { maxConcurrency = MAX_CONCURRENCY_DEFAULT, collectors = COLLECTORS.min, region } = deployment;
  const hasCanary = configuration.settings.canaryKey !== '';
  try {
    useProxy(env);
    const { ledgerRetentionDays } = configuration.settings;
    const planned = { ...deployment, hasCanary, maxConcurrency, collectors, ledgerRetentionDays };
    return await plannedAccount(planned, { region });
  } catch (error) {
    return { notChecked: sentenceOf(error) };
  }
}

/**
 * Explains a file of this machine by the configuration of the folder.
 * @param error why there is no pipeline to ask. It is thrown if one was named.
 * @throws {UsageError}
 */
export async function explainOffline(error: unknown, { directory, path }: Offline, what: string): Promise<Explanation> {
  if (!(error instanceof NoDeploymentError)) throw error;
  const { configuration } = configurationIn(directory, undefined);
  if (configuration instanceof ConfigurationError) throw new UsageError(configuration.message);
  const { pipeline, routes, settings, service } = configuration;
  const explanation = await explainFile(path(what), {
    ...settings,
    pipeline,
    routes,
    service,
    inboxBucket: 'the inbox',
  });
  if (explanation === undefined) throw new UsageError(`There is no file ${what}. ${error.message}`);
  return explanation;
}
