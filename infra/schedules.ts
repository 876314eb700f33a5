import { Duration, Stack } from 'aws-cdk-lib';
import { Role, ServicePrincipal } from 'aws-cdk-lib/aws-iam';
import type { IFunction } from 'aws-cdk-lib/aws-lambda';
import { CfnSchedule } from 'aws-cdk-lib/aws-scheduler';
import { Construct } from 'constructs';
import { allow } from './permissions.ts';

/** Shortest interval that EventBridge Scheduler knows. Shorter polls go round again inside their tick. */
const INTERVAL_MIN = Duration.minutes(1);

/** A tick that could not be started on time is not wanted later: the next one does the same. Scheduler's minimum. */
export const TICK_AGE_MAX = Duration.seconds(60);

export interface SchedulesProps {
  readonly function: IFunction;
  readonly pollIntervalSeconds: number;
  readonly collectors: number;
}

/** How often a tick is started: as often as young flows are polled, but not more often than once a minute. */
export function tickInterval(pollIntervalSeconds: number): Duration {
  return Duration.minutes(Math.max(INTERVAL_MIN.toMinutes(), Math.floor(pollIntervalSeconds / 60)));
}

/** What starts the collecting function: a schedule for each collector. */
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
    const minutes = tickInterval(props.pollIntervalSeconds).toMinutes();
    for (let collector = 0; collector < props.collectors; collector += 1) {
      const schedule = new CfnSchedule(this, `Collector${collector}`, {
        description: `Tick of collector ${collector} of ${props.collectors}`,
        scheduleExpression: `rate(${minutes} ${minutes === 1 ? 'minute' : 'minutes'})`,
        flexibleTimeWindow: { mode: 'OFF' },
        target: {
          arn: props.function.functionArn,
          roleArn: role.roleArn,
          input: JSON.stringify({ collector: { index: collector, of: props.collectors } }),
          retryPolicy: { maximumRetryAttempts: 0, maximumEventAgeInSeconds: TICK_AGE_MAX.toSeconds() },
        },
      });
      // A schedule whose role may not start anything yet would fail its first ticks.
      schedule.node.addDependency(role);
    }
  }
}
