/** What an app of one's own imports: the construct, and the types of what it is given. */

export type { Json, JsonObject } from '../functions/base/json.ts';
export { ConfigurationError } from '../functions/base/validation.ts';
export type { PipelineSettings } from '../functions/settings/settings.ts';
export { FlowPipeline, type FlowPipelineProps, type RouteProps } from './flow-pipeline.ts';
