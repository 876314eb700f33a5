import { type CfnFunction, EventInvokeConfig, EventSourceMapping } from 'aws-cdk-lib/aws-lambda';
import type { Construct } from 'constructs';
import type { Route } from '../../functions/uploads/route.ts';
import type { Parts } from './parts.ts';
import { type FunctionSettings, PipelineFunction } from './pipeline-function.ts';
import { EVENT_AGE_MIN, Schedules } from './schedules.ts';

/** How often a tick starts, whatever the poll interval. With a shorter interval, one tick polls several times. */
const TICK_RATE = 'rate(1 minute)';

/** A late tick is dropped: the next one does the same. */
const TICK_AGE_MAX = EVENT_AGE_MIN;

export interface CollectOutputsProps extends FunctionSettings {
  readonly parts: Parts;
  readonly collectors: number;
  /** What routes have as their `afterSuccess`. */
  readonly afterSuccess: ReadonlySet<Route['afterSuccess']>;
  /** The first folders of the aliases of routes. */
  readonly aliasFolders: ReadonlySet<string>;
  /** True if assets expire. */
  readonly expire: boolean;
}

/** The function that fetches the outputs of ended flows, and the schedules that start it. */
export class CollectOutputs extends PipelineFunction {
  constructor(scope: Construct, id: string, props: CollectOutputsProps) {
    const { parts, collectors, afterSuccess, aliasFolders, expire, ...settings } = props;
    super(scope, id, {
      ...settings,
      entry: 'collect-outputs',
      functionName: settings.environment.COLLECT_FUNCTION,
      description: 'Fetches the outputs of ended flows, and resubmits waiting uploads',
    });
    parts.inbox.grantCompare(this.role);
    if (afterSuccess.has('tag')) parts.inbox.grantTag(this.role);
    if (afterSuccess.has('delete')) parts.inbox.grantDelete(this.role);
    parts.results.grantStore(this.role);
    if (aliasFolders.size > 0) parts.results.grantAliases(this.role, aliasFolders);
    if (expire) parts.results.grantExpire(this.role);
    parts.ledger.grantCollect(this.role);
    parts.token.grantRead(this.role);
    parts.uploads.grantSend(this.role);
    parts.rounds.grantUse(this.role);
    parts.events.grantPut(this.role);
    new EventInvokeConfig(this, 'Ticks', { function: this.function, retryAttempts: 0, maxEventAge: TICK_AGE_MAX });
    const { queueArn: eventSourceArn } = parts.rounds.queue;
    const rounds = new EventSourceMapping(this, 'Rounds', { target: this.function, eventSourceArn, batchSize: 1 });
    // Lambda stops a function that has sent messages to itself some 16 times. A tick ends its own by the minute.
    // See https://docs.aws.amazon.com/lambda/latest/dg/invocation-recursion.html
    (this.function.node.defaultChild as CfnFunction).recursiveLoop = 'Allow';
    // Lambda creates the mapping only if the role may already receive messages.
    rounds.node.addDependency(this.role);
    const schedules = new Schedules(this, 'Schedules', {
      function: this.function,
      what: 'the ticks of the collecting function',
    });
    // The first collector also begins sweeps.
    for (let index = 0; index < collectors; index += 1) {
      // With a hyphen, so that the ids differ from those of the schedules before they had a group: CloudFormation cannot
      // move a schedule into a group, and fails. With another id it makes a new schedule and deletes the old one.
      // See https://github.com/aws/aws-cdk/issues/34216
      schedules.add(`Collector-${index}`, {
        description: `Tick of collector ${index} of ${collectors}`,
        rate: TICK_RATE,
        event: { collector: { index, of: collectors } },
      });
    }
  }
}
