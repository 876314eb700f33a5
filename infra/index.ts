/** What an app of one's own imports: the construct, and the types of what it is given. */
export { ConfigurationError, type Limits } from '../functions/config.ts';
export type { Json, JsonObject } from '../functions/json.ts';
export { FlowPipeline, type FlowPipelineProps, type RouteProps } from './flow-pipeline.ts';
