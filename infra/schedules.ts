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
    const minutes = tickInterval(props.pollIntervalSeconds).toMinutes();
    const rate = `rate(${minutes} ${minutes === 1 ? 'minute' : 'minutes'})`;
    for (let index = 0; index < props.collectors; index += 1) {
      const event = { collector: { index, of: props.collectors } };
      this.#schedule(
        `Collector${index}`,
        `Tick of collector ${index} of ${props.collectors}`,
        rate,
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
