/** What an app of one's own imports: the construct, and the types of what it is given. */

export type { Json, JsonObject } from '../functions/base/json.ts';
export { ConfigurationError, type PipelineSettings } from '../functions/settings/config.ts';
export { FlowPipeline, type FlowPipelineProps, type RouteProps } from './flow-pipeline.ts';
