import { Duration, Stack } from 'aws-cdk-lib';
import { Role, ServicePrincipal } from 'aws-cdk-lib/aws-iam';
import type { IFunction } from 'aws-cdk-lib/aws-lambda';
import { CfnSchedule, CfnScheduleGroup } from 'aws-cdk-lib/aws-scheduler';
import { Construct } from 'constructs';
import { allow } from './permissions.ts';

/** Scheduler's minimum. */
export const EVENT_AGE_MIN = Duration.seconds(60);

export interface SchedulesProps {
  readonly function: IFunction;
  /** What they start, in words. */
  readonly what: string;
}

export interface ScheduleProps {
  readonly description: string;
  /** An expression such as `rate(1 minute)`, which is the shortest interval of EventBridge Scheduler. */
  readonly rate: string;
  /** The event that the function gets. */
  readonly event: object;
}

/** Schedules that invoke one function. An event that is late by more than {@link EVENT_AGE_MIN} is dropped. */
export class Schedules extends Construct {
  readonly #function: IFunction;
  readonly #role: Role;
  readonly #group: CfnScheduleGroup;

  constructor(scope: Construct, id: string, props: SchedulesProps) {
    super(scope, id);
    this.#function = props.function;
    this.#role = this.#newRole(`Starts ${props.what}`);
    // A schedule cannot have tags, and its group can. See
    // https://docs.aws.amazon.com/scheduler/latest/UserGuide/managing-schedule-group.html
    this.#group = new CfnScheduleGroup(this, 'Group');
  }

  #newRole(description: string): Role {
    const role = new Role(this, 'Role', {
      // Only schedules of this account. Otherwise a schedule of another account could use the role.
      assumedBy: new ServicePrincipal('scheduler.amazonaws.com', {
        conditions: { StringEquals: { 'aws:SourceAccount': Stack.of(this).account } },
      }),
      description,
    });
    allow(role, { actions: ['lambda:InvokeFunction'], resources: [this.#function.functionArn] });
    return role;
  }

  add(id: string, { description, rate, event }: ScheduleProps): void {
    const schedule = new CfnSchedule(this, id, {
      description,
      groupName: this.#group.ref,
      scheduleExpression: rate,
      flexibleTimeWindow: { mode: 'OFF' },
      target: {
        arn: this.#function.functionArn,
        roleArn: this.#role.roleArn,
        input: JSON.stringify(event),
        retryPolicy: { maximumRetryAttempts: 0, maximumEventAgeInSeconds: EVENT_AGE_MIN.toSeconds() },
      },
    });
    // Without this, the first events could fail because the role has no permissions yet.
    schedule.node.addDependency(this.#role);
  }
}
