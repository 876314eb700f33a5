import { ConfigurationError } from '../functions/base/validation.ts';
import { type ListingAnswer, listingAnswer, offeredTemplates } from '../functions/operator/questions.ts';
import type { Context } from '../functions/settings/context.ts';
import type { checkProxies } from '../functions/settings/proxies.ts';
import { idleBudgets, warningsOfRoutes } from '../functions/settings/route-checks.ts';
import { warningOfExampleHost } from '../functions/settings/service-address.ts';
import { type Diagnosis, type NamedCheck, type Outcome, once, runChecks } from './checks.ts';
import { clientOf, outcomeOfListing, outcomeOfLostAnswer, outcomeOfWords } from './flow-listing.ts';
import { type PlannedAccount, RESOURCE_CHECKS } from './planned-resources.ts';
import { outcomeOfTemplates } from './route-templates.ts';
import { examineSample, type Sample } from './sample.ts';
import { issueOfService, issueOfToken, proxyInUse, type Service, type ServiceIssue } from './service-check.ts';
import { TemplatesUnknownError, templatesIn } from './templates.ts';

/** Offered templates that are named to an operator who has named another. */
const NAMED_MAX = 20;

/** How the operator changes what the check of the service finds. */
const SERVICE_WORDS = { address: 'baseUrl', goOn: 'deploy all the same' };

/** What there is before a deployment: its configuration, and the token of the flow service. */
export interface PlannedDeployment {
  /** Where the configuration stands, such as `flowdrop.json`. */
  readonly source: string;
  /** The configuration, or all that is wrong with it. */
  readonly configuration: Context | ConfigurationError;
  /** The token of the service. Undefined if it is not known. The service is not asked then. */
  readonly token: string | undefined;
  /** The proxies of this machine, or what is wrong with them. */
  readonly proxies: ReturnType<typeof checkProxies>;
  /** Answers that were copied from the service's documentation. Undefined if none are given. */
  readonly sample?: Sample | undefined;
  /** The account to deploy to, or why AWS is not asked. */
  readonly aws: PlannedAccount | { readonly notChecked: string };
}

/** What the checks look at. They share the answer of the service. */
interface Subject {
  readonly plan: PlannedDeployment;
  readonly signal: AbortSignal;
  /** What is wrong with the service. Undefined if it can be used. */
  readonly issue: () => Promise<ServiceIssue | undefined>;
  /** What its listing of flows shows. Only if it can be used. */
  readonly listing: () => Promise<ListingAnswer>;
}

const CHECKS: readonly NamedCheck<Subject>[] = [
  ['configuration', examineConfiguration],
  ['routes', examineRoutes],
  ['the flow service', examineService],
  ['the token', examineToken],
  ['templates of the routes', examineTemplates],
  ['listing of flows', examineFlowListing],
  ['words and pages', examineWords],
  ['a lost answer', examineLostAnswer],
];

const SAMPLE_CHECKS: readonly NamedCheck<Subject>[] = [
  ['sample: the creation', (subject) => examinePart('create', subject)],
  ['sample: the state', (subject) => examinePart('state', subject)],
  ['sample: the outputs', (subject) => examinePart('outputs', subject)],
];

/**
 * Checks what can be checked before there is a pipeline. It asks the flow service from this machine, and AWS of the
 * account, if there are credentials. Nothing is changed, and nothing is paid for.
 * @throws the signal's reason.
 */
export async function doctorBeforeDeployment(plan: PlannedDeployment, signal: AbortSignal): Promise<Diagnosis> {
  const issue = once(async () => issueOfService(serviceOf(plan), SERVICE_WORDS, signal));
  const listing = once(async () => {
    const { settings } = plan.configuration as Context;
    return listingAnswer(clientOf(serviceOf(plan), settings), signal);
  });
  const { aws, sample } = plan;
  const checks = [...examineProxy(plan), ...CHECKS, ...(sample === undefined ? [] : SAMPLE_CHECKS)];
  const [ofService, ofAws] = await Promise.all([
    runChecks(checks, { plan, signal, issue, listing }),
    'notChecked' in aws
      ? runChecks([['the account', () => aws]], { signal })
      : runChecks(RESOURCE_CHECKS, { aws, signal }),
  ]);
  return { deployment: `the configuration in ${plan.source}`, checks: [...ofService, ...ofAws] };
}

/** Why the service of a plan is not asked. Undefined if it can be asked. */
export function reasonNotToAsk({ configuration, token, proxies }: PlannedDeployment): string | undefined {
  if (configuration instanceof ConfigurationError) return 'the configuration cannot be used';
  if (warningOfExampleHost(configuration.baseUrl) !== undefined) return 'baseUrl is still the example';
  if (proxies.issues.length > 0) return 'the address of the proxy cannot be used';
  if (token === undefined) return 'there is no token: set the environment variable FLOWDROP_TOKEN';
  return issueOfToken(token) === undefined ? undefined : 'no request can carry the token';
}

/** Only for a plan without a {@link reasonNotToAsk}. */
function serviceOf({ configuration, token = '', proxies }: PlannedDeployment): Service {
  const { baseUrl, service } = configuration as Context;
  return { url: baseUrl.href.replace(/\/+$/, ''), token, speaks: service, proxies: proxies.proxies };
}

function examineConfiguration({ plan: { source, configuration } }: Subject): Outcome {
  if (!(configuration instanceof ConfigurationError)) return 'good';
  return { severity: 'fault', what: configuration.message, todo: `Correct ${source}.` };
}

/** Says which proxy is used, or what is wrong with it. Without a proxy there is nothing to say. */
function examineProxy({
  configuration,
  proxies: { issues, proxies },
}: PlannedDeployment): readonly NamedCheck<Subject>[] {
  const todo = 'Correct the environment variable.';
  if (issues.length > 0) return [['the proxy', () => ({ severity: 'fault', what: issues.join('\n'), todo })]];
  const used = configuration instanceof ConfigurationError ? undefined : proxyInUse(configuration.baseUrl, proxies);
  return used === undefined ? [] : [['the proxy', () => ({ good: used })]];
}

/** The configuration itself refuses a route that can never match. These are mistakes in routes that can. */
function examineRoutes({ plan: { source, configuration } }: Subject): Outcome {
  if (configuration instanceof ConfigurationError) return { notChecked: 'the configuration cannot be used' };
  const { routes, settings } = configuration;
  const warnings = [...warningsOfRoutes(routes, 'routes'), ...idleBudgets(routes, settings.budget)];
  if (warnings.length === 0) return 'good';
  return { severity: 'warning', what: warnings.join('\n'), todo: `Correct ${source}, if this is not meant.` };
}

async function examineService({ plan, issue }: Subject): Promise<Outcome> {
  const { source, configuration } = plan;
  const example = configuration instanceof ConfigurationError ? undefined : warningOfExampleHost(configuration.baseUrl);
  if (example !== undefined) return { severity: 'fault', what: example, todo: `Set baseUrl in ${source}.` };
  const reason = reasonNotToAsk(plan);
  if (reason !== undefined) return { notChecked: reason };
  const found = await issue();
  if (found === undefined) return 'good';
  return found.of === 'answer' ? findingOf(found, plan) : { notChecked: 'it does not accept the token' };
}

async function examineToken({ plan, issue }: Subject): Promise<Outcome> {
  const malformed = plan.token === undefined ? undefined : issueOfToken(plan.token);
  if (malformed !== undefined) {
    return { severity: 'fault', what: `The token ${malformed}.`, todo: 'Set FLOWDROP_TOKEN to the token alone.' };
  }
  const reason = reasonNotToAsk(plan);
  if (reason !== undefined) return { notChecked: reason };
  const found = await issue();
  if (found === undefined) return 'good';
  return found.of === 'token' ? findingOf(found, plan) : { notChecked: 'the service does not answer as it should' };
}

const findingOf = ({ severity, what, todo }: ServiceIssue, plan: PlannedDeployment): Outcome => ({
  severity,
  what: `The flow service at ${serviceOf(plan).url} ${what}.`,
  todo: `${todo}.`,
});

const NO_LISTING = { notChecked: 'the description has no listing of flows' };

async function examineFlowListing({ plan, issue, listing }: Subject): Promise<Outcome> {
  const reason = reasonNotToAsk(plan);
  if (reason !== undefined) return { notChecked: reason };
  if ((await issue()) !== undefined) return { notChecked: 'the service cannot be asked: see above' };
  const { list } = serviceOf(plan).speaks;
  return list === undefined ? NO_LISTING : outcomeOfListing(list.order, await listing());
}

/** The words and pages that the listing shows, as they are declared. */
async function examineWords({ plan, issue, listing }: Subject): Promise<Outcome> {
  const reason = reasonNotToAsk(plan);
  if (reason !== undefined) return { notChecked: reason };
  if ((await issue()) !== undefined) return { notChecked: 'the service cannot be asked: see above' };
  if (serviceOf(plan).speaks.list === undefined) return NO_LISTING;
  const answer = await listing();
  if (answer.issue !== undefined) return { notChecked: `the service does not list its flows: ${answer.issue.code}` };
  return outcomeOfWords(answer.listing);
}

function examinePart(part: 'create' | 'state' | 'outputs', { plan }: Subject): Outcome {
  const { configuration, sample, token } = plan;
  if (configuration instanceof ConfigurationError) return { notChecked: 'the configuration cannot be used' };
  return examineSample(part, sample as Sample, configuration.service, token);
}

function examineLostAnswer({ plan: { configuration } }: Subject): Outcome {
  if (configuration instanceof ConfigurationError) return { notChecked: 'the configuration cannot be used' };
  return outcomeOfLostAnswer(configuration);
}

async function examineTemplates({ plan, issue, signal }: Subject): Promise<Outcome> {
  const reason = reasonNotToAsk(plan);
  if (reason !== undefined) return { notChecked: reason };
  if ((await issue()) !== undefined) return { notChecked: 'the service cannot be asked: see above' };
  const { routes, settings } = plan.configuration as Context;
  const flows = clientOf(serviceOf(plan), settings);
  try {
    const offered = templatesIn(await offeredTemplates(flows, signal));
    const names = offered.flatMap(({ id, name = id }) => name ?? []);
    const more = names.length > NAMED_MAX ? ` and ${names.length - NAMED_MAX} more` : '';
    const list =
      names.length === 0 ? 'The service offers none.' : `There is ${names.slice(0, NAMED_MAX).join(', ')}${more}.`;
    return outcomeOfTemplates(routes, offered, { next: 'try again', list });
  } catch (error) {
    if (!(error instanceof TemplatesUnknownError)) throw error;
    const { code, answer, severity, isUnlisted } = error;
    if (isUnlisted) return { notChecked: `the service lists no templates (${answer})` };
    const what = `The service at ${serviceOf(plan).url} does not say what it offers: ${code}: ${answer}`;
    return { severity, what, todo: 'Check that baseUrl is that of the flow service.' };
  }
}
