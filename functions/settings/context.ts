import * as z from 'zod/mini';
import { deepFreeze } from '../base/deep-freeze.ts';
import {
  ConfigurationError,
  check,
  compareMembers,
  type IsSound,
  type Refuse,
  strictObject,
} from '../base/validation.ts';
import {
  inputUrlSeconds,
  keyHonouredMs,
  type ServiceDescription,
  takesSeveralInputs,
} from '../flow-service/service-description.ts';
import { FLOWS } from '../flow-service/services.ts';
import { priceIssueOf } from '../uploads/budget.ts';
import { pathTo } from '../uploads/chain-routes.ts';
import { aliasFolderOf } from '../uploads/results-key-pattern.ts';
import type { Route } from '../uploads/route.ts';
import { routesSchema } from '../uploads/routes.ts';
import { deadMembers, deadRoutes } from './route-checks.ts';
import { serviceSchema } from './service.ts';
import { baseUrlSchema } from './service-address.ts';
import { type PipelineSettings, pipelineNameSchema, SETTINGS_DEFAULT, settingsSchema } from './settings.ts';

/** Name of a pipeline whose configuration names none. */
export const PIPELINE_DEFAULT = 'flowdrop';

/** The configuration: `flowdrop.json`, or the context `flowdrop` of cdk.json. */
export interface Context {
  readonly pipeline: string;
  readonly baseUrl: URL;
  readonly routes: readonly Route[];
  readonly settings: PipelineSettings;
  /** How the flow service speaks. */
  readonly service: ServiceDescription;
  /** The part that only infrastructure needs. Infrastructure checks it. */
  readonly deployment: unknown;
}

/**
 * The schema of a configuration.
 * @param deployment that of the part which only infrastructure needs.
 * @internal
 */
export const contextSchema = <D extends z.ZodMiniType>(deployment: D) =>
  strictObject(
    {
      pipeline: z._default(pipelineNameSchema, PIPELINE_DEFAULT),
      baseUrl: baseUrlSchema,
      routes: routesSchema,
      settings: z._default(settingsSchema, SETTINGS_DEFAULT),
      service: z._default(serviceSchema, FLOWS),
      deployment,
      // Editors read it. Nothing else does.
      $schema: z.optional(z.string({ error: 'expected the path of a JSON schema' })),
    },
    'an object with baseUrl and routes, such as ' +
      '{"baseUrl": "https://flows.example.com", "routes": [{"name": "all", "template": "the name of a template"}]}',
  ).check(
    compareMembers(({ routes, settings, service }, isSound, refuse) => {
      if (!Array.isArray(routes)) return;
      const refuseEach = (member: keyof Route, whyNot: (route: Route) => string | undefined): void => {
        for (const [index, route] of routes.entries()) {
          const message = isSound('routes', index, member) ? whyNot(route) : undefined;
          if (message !== undefined) refuse(['routes', index, member], message);
        }
      };
      if (isSound('settings', 'budget') && settings.budget !== 'unlimited') {
        const { budget } = settings;
        refuseEach('price', ({ price }) => priceIssueOf(budget, price));
      }
      // A description with an unknown member is not read any further.
      if (isSound('service') && service.create !== undefined) {
        if (!takesSeveralInputs(service)) {
          const why = 'expected none: the service takes one input for each flow, as its description says';
          refuseEach('inputs', ({ inputs }) => (inputs === 'all' ? why : undefined));
          refuseEach('jobs', ({ jobs }) => (jobs === undefined ? undefined : why));
        }
        if (inputUrlSeconds(service) !== undefined) {
          const why = 'expected "file": the service gets an address of the file ({inputUrl}), and no text';
          refuseEach('input', ({ input }) => (input === 'text' ? why : undefined));
        }
        const whyKept = isSound('settings', 'inDoubt') ? whyFlowsStay(service, settings.inDoubt) : undefined;
        refuseEach('deleteFlow', ({ deleteFlow }) => (deleteFlow && whyKept ? `expected none: ${whyKept}` : undefined));
      }
      if (isSound('routes') && isSound('settings', 'resultsKey')) refuseAliases(routes, settings, refuse);
      const dead = routes.map((route, index) => deadMembers(soundConditions(route, isSound, index)));
      for (const [index, members] of dead.entries()) {
        for (const { path, message } of members) {
          refuse(['routes', index, ...path], message, { isQuoted: true });
        }
      }
      if (!isSound('settings', 'inboxPrefix')) return;
      const isReadable = (index: number) => isSound('routes', index) && dead[index]?.length === 0;
      const sound = routes.map((route, index) => (isReadable(index) ? route : undefined));
      for (const { index, message } of deadRoutes(sound, settings.inboxPrefix)) {
        refuse(['routes', index], message, { isQuoted: true });
      }
    }),
  );

/** Refuses aliases that would meet each other, or other objects of the results. */
function refuseAliases(routes: readonly Route[], settings: Pick<PipelineSettings, 'resultsKey'>, refuse: Refuse): void {
  const first = (route: Route | undefined) => route && pathTo(routes, route)[0];
  for (const [index, { alias }] of routes.entries()) {
    if (alias === undefined) continue;
    const twin = routes.findIndex((route) => route.alias === alias && first(route) === first(routes[index]));
    if (twin < index) {
      const message = `expected another than that of routes[${twin}]: both belong to one chain, and would replace each other's copies`;
      refuse(['routes', index, 'alias'], message);
    }
    const folder = aliasFolderOf(alias);
    const begins = (text: string): boolean => text.startsWith(folder);
    const taker = routes.findIndex(({ prefixes = [], jobs }) => [...prefixes, ...(jobs ? [jobs] : [])].some(begins));
    if (taker === -1 && !begins(settings.resultsKey)) continue;
    const whose = taker === -1 ? 'settings.resultsKey' : `files of routes[${taker}]`;
    const message = `expected another folder at its beginning: results of ${whose} lie in ${folder}`;
    refuse(['routes', index, 'alias'], message);
  }
}

/** Why no flow may be deleted. Undefined if it may. */
function whyFlowsStay(service: ServiceDescription, inDoubt: PipelineSettings['inDoubt']): string | undefined {
  if (service.delete === undefined) return 'the description of the service has no "delete"';
  if (service.list === undefined || inDoubt === 'ask' || keyHonouredMs(service) > 0) return undefined;
  return (
    'after a lost answer, only the listing of flows proves whether a file was sent, and it proves less if flows are deleted. ' +
    'Set settings.inDoubt to "ask", or service.create.idempotency if the service honours a key'
  );
}

/** The conditions of a route that can be read, though its other members may be wrong. */
function soundConditions(route: Route, isSound: IsSound, index: number): Partial<Route> {
  const members = ['prefixes', 'suffixes', 'mediaTypes', 'jobs'] as const;
  return Object.fromEntries(
    members.filter((name) => isSound('routes', index, name)).map((name) => [name, route[name]]),
  );
}

const anyDeployment = contextSchema(z.optional(z.unknown()));

/**
 * Parses a configuration with the schemas that the functions use.
 * @throws {ConfigurationError} It names every issue with its path (`flowdrop.routes[1].suffixes[0]`) and value.
 */
export function parseContext(value: unknown, where = 'flowdrop'): Context {
  const { issues, data } = check(anyDeployment, value, where);
  if (data === undefined) throw new ConfigurationError(issues);
  return frozenContext(data);
}

/** @internal */
export const frozenContext = ({
  pipeline,
  baseUrl,
  routes,
  settings,
  service,
  deployment,
}: Omit<Context, 'deployment'> & Partial<Context>): Context => ({
  ...{ pipeline, baseUrl, deployment },
  routes: deepFreeze(routes),
  settings: Object.freeze(settings),
  service: deepFreeze(service),
});
