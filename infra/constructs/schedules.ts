import { Duration, Stack } from 'aws-cdk-lib';
import { Role, ServicePrincipal } from 'aws-cdk-lib/aws-iam';
import type { IFunction } from 'aws-cdk-lib/aws-lambda';
import { CfnSchedule } from 'aws-cdk-lib/aws-scheduler';
import { Construct } from 'constructs';
import { allow } from './permissions.ts';

/**
 * How often a tick is started, whatever the poll interval: what waits is sent again by it. It is also the shortest that
 * EventBridge Scheduler knows; shorter polls go round again inside their tick.
 */
const TICK_RATE = 'rate(1 minute)';

/** A tick that could not be started on time is not wanted later: the next one does the same. Scheduler's minimum. */
export const TICK_AGE_MAX = Duration.seconds(60);

export interface SchedulesProps {
  readonly function: IFunction;
  readonly collectors: number;
}

/** What starts the collecting function: a schedule for each collector, and one for the sweep. */
export class Schedules extends Construct {
  constructor(scope: Construct, id: string, props: SchedulesProps) {
    super(scope, id);
    const { account } = Stack.of(this);
    const role = new Role(this, 'Role', {
      // On behalf of a schedule of this account alone, lest the service be used by a stranger's.
      assumedBy: new ServicePrincipal('scheduler.amazonaws.com', {
        conditions: { StringEquals: { 'aws:SourceAccount': account } },
      }),
      description: 'Starts the ticks of the collecting function',
    });
    allow(role, { actions: ['lambda:InvokeFunction'], resources: [props.function.functionArn] });
    for (let index = 0; index < props.collectors; index += 1) {
      const event = { collector: { index, of: props.collectors } };
      this.#schedule(
        `Collector${index}`,
        `Tick of collector ${index} of ${props.collectors}`,
        TICK_RATE,
        event,
        role,
        props,
      );
    }
    this.#schedule('Sweep', 'Daily comparison of inbox and ledger', 'rate(1 day)', { sweep: {} }, role, props);
  }

  #schedule(
    id: string,
    description: string,
    scheduleExpression: string,
    event: object,
    role: Role,
    { function: { functionArn } }: SchedulesProps,
  ): void {
    const schedule = new CfnSchedule(this, id, {
      description,
      scheduleExpression,
      flexibleTimeWindow: { mode: 'OFF' },
      target: {
        arn: functionArn,
        roleArn: role.roleArn,
        input: JSON.stringify(event),
        retryPolicy: { maximumRetryAttempts: 0, maximumEventAgeInSeconds: TICK_AGE_MAX.toSeconds() },
      },
    });
    // A schedule whose role may not start anything yet would fail its first ticks.
    schedule.node.addDependency(role);
  }
}
