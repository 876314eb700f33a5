import { Duration, Stack } from 'aws-cdk-lib';
import { Role, ServicePrincipal } from 'aws-cdk-lib/aws-iam';
import type { IFunction } from 'aws-cdk-lib/aws-lambda';
import { CfnSchedule, CfnScheduleGroup } from 'aws-cdk-lib/aws-scheduler';
import { Construct } from 'constructs';
import { allow } from './permissions.ts';

/**
 * How often a tick starts, whatever the poll interval, because ticks also resubmit waiting uploads. It is the shortest
 * interval of EventBridge Scheduler. With a shorter poll interval, one tick polls several times.
 */
const TICK_RATE = 'rate(1 minute)';

/** A tick that is late by more than this is dropped: the next one does the same. Scheduler's minimum. */
export const TICK_AGE_MAX = Duration.seconds(60);

export interface SchedulesProps {
  readonly function: IFunction;
  readonly collectors: number;
}

/** The schedules that start the collecting function, one for each collector. The first one also begins sweeps. */
export class Schedules extends Construct {
  readonly #function: IFunction;
  readonly #role: Role;
  readonly #group: CfnScheduleGroup;

  constructor(scope: Construct, id: string, props: SchedulesProps) {
    super(scope, id);
    this.#function = props.function;
    this.#role = this.#newRole();
    // A schedule cannot have tags, and its group can. See
    // https://docs.aws.amazon.com/scheduler/latest/UserGuide/managing-schedule-group.html
    this.#group = new CfnScheduleGroup(this, 'Group');
    for (let index = 0; index < props.collectors; index += 1) {
      this.#schedule({ index, of: props.collectors });
    }
  }

  #newRole(): Role {
    const role = new Role(this, 'Role', {
      // Only schedules of this account. Otherwise a schedule of another account could use the role.
      assumedBy: new ServicePrincipal('scheduler.amazonaws.com', {
        conditions: { StringEquals: { 'aws:SourceAccount': Stack.of(this).account } },
      }),
      description: 'Starts the ticks of the collecting function',
    });
    allow(role, { actions: ['lambda:InvokeFunction'], resources: [this.#function.functionArn] });
    return role;
  }

  /**
   * The id has a hyphen, so that it differs from the ids of the schedules before they had a group: CloudFormation
   * cannot move a schedule into a group, and fails. With another id it makes a new schedule and deletes the old one.
   * @see https://github.com/aws/aws-cdk/issues/34216
   */
  #schedule(collector: { readonly index: number; readonly of: number }): void {
    const schedule = new CfnSchedule(this, `Collector-${collector.index}`, {
      description: `Tick of collector ${collector.index} of ${collector.of}`,
      groupName: this.#group.ref,
      scheduleExpression: TICK_RATE,
      flexibleTimeWindow: { mode: 'OFF' },
      target: {
        arn: this.#function.functionArn,
        roleArn: this.#role.roleArn,
        input: JSON.stringify({ collector }),
        retryPolicy: { maximumRetryAttempts: 0, maximumEventAgeInSeconds: TICK_AGE_MAX.toSeconds() },
      },
    });
    // Without this, the first ticks could fail because the role has no permissions yet.
    schedule.node.addDependency(this.#role);
  }
}
