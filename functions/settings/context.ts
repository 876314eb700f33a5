import * as z from 'zod/mini';
import { deepFreeze } from '../base/deep-freeze.ts';
import { ConfigurationError, check, strictObject } from '../base/validation.ts';
import { type Route, routesSchema } from '../uploads/routes.ts';
import { issuesOfRoutes } from './route-checks.ts';
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
  /** The part that only infrastructure needs. Infrastructure checks it. */
  readonly deployment: unknown;
}

const contextSchema = strictObject(
  {
    pipeline: z._default(pipelineNameSchema, PIPELINE_DEFAULT),
    baseUrl: baseUrlSchema,
    routes: routesSchema,
    settings: z._default(settingsSchema, SETTINGS_DEFAULT),
    deployment: z.optional(z.unknown()),
  },
  'an object with baseUrl and routes, such as ' +
    '{"baseUrl": "https://flows.example.com", "routes": [{"name": "all", "template": "the name of a template"}]}',
);

/**
 * Parses a configuration with the schemas that the functions use.
 * @throws {ConfigurationError} It names every issue with its path (`flowdrop.routes[1].suffixes[0]`) and value.
 */
export function parseContext(value: unknown, where = 'flowdrop'): Context {
  const { issues, data } = check(contextSchema, value, where);
  if (data === undefined) throw new ConfigurationError(issues);
  const { pipeline, baseUrl, routes, settings, deployment } = data;
  const deadRoutes = issuesOfRoutes(routes, settings.inboxPrefix, `${where}.routes`);
  if (deadRoutes.length > 0) throw new ConfigurationError(deadRoutes);
  return { pipeline, baseUrl, routes: deepFreeze(routes), settings: Object.freeze(settings), deployment };
}
