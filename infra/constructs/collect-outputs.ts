import { EventInvokeConfig } from 'aws-cdk-lib/aws-lambda';
import type { Construct } from 'constructs';
import type { Parts } from './parts.ts';
import { type FunctionSettings, PipelineFunction } from './pipeline-function.ts';
import { Schedules, TICK_AGE_MAX } from './schedules.ts';

export interface CollectOutputsProps extends FunctionSettings {
  readonly parts: Parts;
  readonly collectors: number;
}

/** The function that fetches the outputs of ended flows, and the schedules that start it. */
export class CollectOutputs extends PipelineFunction {
  constructor(scope: Construct, id: string, props: CollectOutputsProps) {
    const { parts, collectors, ...settings } = props;
    super(scope, id, {
      ...settings,
      entry: 'collect-outputs',
      functionName: settings.environment.COLLECT_FUNCTION,
      description: 'Fetches the outputs of ended flows, and resubmits waiting uploads',
    });
    parts.inbox.grantCompare(this.role);
    parts.results.grantStore(this.role);
    parts.ledger.grantCollect(this.role);
    parts.token.grantRead(this.role);
    parts.uploads.grantSend(this.role);
    parts.events.grantPut(this.role);
    new EventInvokeConfig(this, 'Ticks', { function: this.function, retryAttempts: 0, maxEventAge: TICK_AGE_MAX });
    new Schedules(this, 'Schedules', { function: this.function, collectors });
  }
}
