/** The package's exports: the construct, and the types of its props. */

export type { Json, JsonObject } from '../functions/base/json.ts';
export { ConfigurationError } from '../functions/base/validation.ts';
export type { PipelineSettings } from '../functions/settings/settings.ts';
export { FlowPipeline } from './flow-pipeline.ts';
export type { BudgetProps, FlowPipelineProps, RouteProps, SettingsProps } from './flow-pipeline-props.ts';
export type { AlarmChange, AlarmChanges } from './monitoring/alarms.ts';
