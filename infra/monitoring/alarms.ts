import { Alarm, ComparisonOperator, TreatMissingData } from 'aws-cdk-lib/aws-cloudwatch';
import { SnsAction } from 'aws-cdk-lib/aws-cloudwatch-actions';
import type { ITopic } from 'aws-cdk-lib/aws-sns';
import { Construct } from 'constructs';
import { type Condition, conditions, type Monitored } from './conditions.ts';

export interface AlarmsProps extends Monitored {
  /** Address of the runbook. It has one heading for each alarm. */
  readonly runbookUrl: string;
  /** Topic that is notified when an alarm starts and when it ends. */
  readonly topic: ITopic | undefined;
}

/** One alarm for each of the {@link conditions}. */
export class Alarms extends Construct {
  readonly all: readonly Alarm[];

  constructor(scope: Construct, id: string, props: AlarmsProps) {
    super(scope, id);
    this.all = conditions(props).map((condition) => this.#alarm(condition, props));
  }

  #alarm(condition: Condition, { pipeline, runbookUrl, topic }: AlarmsProps): Alarm {
    const { id, meaning, action, metric, threshold, whenBelow, periods = [1, 1], missingIsBad } = condition;
    const alarm = new Alarm(this, id, {
      alarmName: `${pipeline}-${id}`,
      alarmDescription: `${meaning} ${action} Runbook: ${runbookUrl}#${id}`,
      metric,
      threshold,
      comparisonOperator: whenBelow
        ? ComparisonOperator.LESS_THAN_THRESHOLD
        : ComparisonOperator.GREATER_THAN_OR_EQUAL_TO_THRESHOLD,
      datapointsToAlarm: periods[0],
      evaluationPeriods: periods[1],
      treatMissingData: missingIsBad ? TreatMissingData.BREACHING : TreatMissingData.NOT_BREACHING,
    });
    if (topic !== undefined) {
      alarm.addAlarmAction(new SnsAction(topic));
      alarm.addOkAction(new SnsAction(topic));
    }
    return alarm;
  }
}
