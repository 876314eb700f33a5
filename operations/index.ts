/** The package's export `flowdrop/operations`: what the command does, for scripts of your own. */

export type { Json, JsonObject } from '../functions/base/json.ts';
export { ConfigurationError } from '../functions/base/validation.ts';
export { act, type HeldFlows, heldFlows, type Plan, plan, type Selection, tried } from './act.ts';
export type { Acted, Action, Asked, PlannedStage } from './actions.ts';
export { type AwsCredentials, AwsRequestError } from './aws-requests.ts';
export { type CanaryFile, canaryOf } from './canary.ts';
export type { ChainNode, ChainView } from './chains.ts';
export { type Checked, type Diagnosis, isFaulty, type Severity } from './checks.ts';
export { FunctionFailedError } from './collecting-function.ts';
export { type Generation, generationsOf } from './compare.ts';
export { type CostRow, type CostsBy, type CostsView, costs } from './costs.ts';
export {
  type AwsPlace,
  connectFunction,
  connectLocal,
  connectStack,
  type Deployment,
  ForeignStackError,
  type FunctionPlace,
  issueOfConnection,
  type QueueDepth,
  type StackPlace,
} from './deployment.ts';
export { doctor } from './doctor.ts';
export { explain, NothingToExplainError, RoutesUnknownError } from './explain.ts';
export type { Explanation } from './explanation.ts';
export { follow } from './follow.ts';
export {
  type FlowLeft,
  forget,
  type KeyTraces,
  LaterStageError,
  type Traces,
  tracesOf,
  tracesOfAll,
  UnderWayError,
  UnknownUploadError,
} from './forget.ts';
export { DamagedResultError, type Fetched, get, type WriteResult } from './get.ts';
export {
  type BudgetView,
  changeHold,
  type HeldCount,
  type HoldChange,
  type HoldReason,
  type HoldRequest,
  type HoldsView,
  type HoldView,
  holdsOf,
  type SendingCount,
} from './holds.ts';
export { type Listed, type ListedState, type ListQuery, list } from './list.ts';
export { NoLocalRunError, UntrustedRunError } from './local-run.ts';
export { type FileLogLine, type FileLogs, type LogName, logs } from './logs.ts';
export { type FileToPut, put } from './put.ts';
export type { Overrides, Put, PutTerms } from './put-body.ts';
export { routeOfFile } from './route-file.ts';
export type { ServiceAnswer } from './service-answer.ts';
export {
  type CollectorStatus,
  type PipelineStatus,
  type PrefixStatus,
  status,
  type UploadStatus,
} from './status.ts';
export { type SweepPass, type SweepRequest, sweep } from './sweep.ts';
export { type OfferedTemplate, TemplatesUnknownError, templates } from './templates.ts';
export type { UploadView } from './upload-view.ts';
