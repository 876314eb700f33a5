import { Annotations, Aspects, Stack, Stage } from 'aws-cdk-lib';
import { Alarm, ComparisonOperator, type CreateAlarmOptions, TreatMissingData } from 'aws-cdk-lib/aws-cloudwatch';
import { SnsAction } from 'aws-cdk-lib/aws-cloudwatch-actions';
import { PolicyStatement, ServicePrincipal } from 'aws-cdk-lib/aws-iam';
import { CfnTopicPolicy, type ITopic, Topic, TopicPolicy } from 'aws-cdk-lib/aws-sns';
import { Construct, type IConstruct } from 'constructs';
import type { AlarmName } from '../../functions/settings/alarm-names.ts';
import { allowSending, statementOfSending } from '../constructs/encryption.ts';
import { printed } from '../constructs/permissions.ts';
import { isSameInApp } from '../same-in-app.ts';
import { type Condition, conditions, type Monitored, type Severity } from './alarm-conditions.ts';

/** What an app changes of an alarm, and who is told of it. */
export interface AlarmChange extends Partial<Omit<CreateAlarmOptions, 'alarmName' | 'alarmDescription'>> {
  /** `page`: the `alarmTopic` is notified. `ticket`: the `ticketTopic`. */
  readonly severity?: Severity;
}

/** What an app changes, by the name of the alarm. `false` leaves it out. */
export type AlarmChanges = Readonly<Partial<Record<AlarmName, false | AlarmChange>>>;

/** By name. Of `collector-missing` and `notify-failed` there may be several, each with its number. */
export type AlarmsByName = Readonly<Partial<Record<AlarmName | `${AlarmName}-${number}`, Alarm>>>;

export interface AlarmsProps extends Monitored {
  readonly changes: AlarmChanges | undefined;
  /** Address of the runbook. It has one heading for each alarm. */
  readonly runbookUrl: string;
  /**
   * The topic of each severity. It is notified when an alarm starts, and not when it ends: every new alarm is OK after
   * its first look, so the first deployment would send a mail for each.
   * @see https://docs.aws.amazon.com/AmazonCloudWatch/latest/APIReference/API_PutMetricAlarm.html
   */
  readonly topics: Readonly<Record<Severity, ITopic | undefined>>;
}

const CLOUDWATCH = 'cloudwatch.amazonaws.com';

/** One alarm for each of the {@link conditions}, unless the app leaves it out. */
export class Alarms extends Construct {
  readonly all: readonly Alarm[];
  readonly byName: AlarmsByName;

  constructor(scope: Construct, id: string, props: AlarmsProps) {
    super(scope, id);
    const made = conditions(props).flatMap((condition) => {
      const change = props.changes?.[condition.name];
      if (change === false) return [];
      const name = [condition.name, condition.number].filter((part) => part !== undefined).join('-');
      return [[name, this.#alarm(name, condition, change, props)] as const];
    });
    this.all = made.map(([, alarm]) => alarm);
    this.byName = Object.fromEntries(made);
    for (const topic of new Set(Object.values(props.topics))) if (topic !== undefined) allowAlarms(this, topic);
  }

  #alarm(
    id: string,
    { name, severity: usual, meaning, action, metric, threshold, periods = [1, 1] }: Condition,
    { severity = usual, ...change }: AlarmChange = {},
    { pipeline, runbookUrl, topics }: AlarmsProps,
  ): Alarm {
    const changes = Object.entries(change).filter(([, value]) => value !== undefined);
    const changed = changes.map(([member]) => member).join(', ');
    const note = changed === '' ? '' : ` Changed by the app: ${changed}.`;
    const alarm = new Alarm(this, id, {
      alarmName: `${pipeline}-${id}`,
      alarmDescription: `${meaning} ${action}${note} Severity: ${severity}. Runbook: ${runbookUrl}#${name}`,
      metric,
      threshold,
      comparisonOperator: ComparisonOperator.GREATER_THAN_OR_EQUAL_TO_THRESHOLD,
      datapointsToAlarm: periods[0],
      evaluationPeriods: periods[1],
      // The functions write a count of failures only if there is one.
      treatMissingData: TreatMissingData.NOT_BREACHING,
      ...Object.fromEntries(changes),
    });
    const topic = topics[severity];
    if (topic !== undefined) alarm.addAlarmAction(new SnsAction(topic));
    return alarm;
  }
}

/**
 * Lets the alarms of this account publish to a topic, and use its key.
 *
 * A topic without a policy has SNS's default one, which lets the services of its account publish. Any other policy
 * replaces the default. An example is the policy that `enforceSSL` brings. So a policy gets one more statement, but no
 * policy is made. A warning at synth asks for the statement if the policy is not made by a construct of this app: alarms
 * that a policy refuses reach no one, and no error tells of it.
 * @see https://docs.aws.amazon.com/sns/latest/dg/sns-access-policy-use-cases.html
 */
function allowAlarms(scope: Construct, topic: ITopic): void {
  allowSending(scope, topic.masterKey, CLOUDWATCH);
  if (topic.masterKey === undefined && !(topic instanceof Topic)) {
    Annotations.of(scope).addWarningV2(
      `flowdrop:topic-key-${topic.node.addr}`,
      `If a key of KMS encrypts the topic ${topic.topicName}, alarms reach no one until the policy of the key has this statement: ${statementOfSending(scope, CLOUDWATCH)}. AWS's own key (alias/aws/sns) cannot have it.`,
    );
  }
  const statement = new PolicyStatement({
    principals: [new ServicePrincipal(CLOUDWATCH)],
    actions: ['sns:Publish'],
    resources: [topic.topicArn],
    conditions: { StringEquals: { 'aws:SourceAccount': Stack.of(scope).account } },
  });
  const warnOfPolicy = (which: string): void =>
    Annotations.of(scope).addWarningV2(
      `flowdrop:topic-policy-${topic.node.addr}`,
      `${which} If it has one that does not let alarms publish, they reach no one. Add this statement to it: ${printed(scope, statement)}`,
    );
  const isOfTopic = (policy: CfnTopicPolicy) => policy.topics.some((each) => isSameInApp(each, topic.topicArn));
  // Only at synth is it known which policies the app has. Each is an object of its own, which names its topics. The
  // aspects of an app do not enter its stages, which are synthesised by themselves.
  for (const stage of scope.node.scopes.filter(Stage.isStage)) {
    Aspects.of(stage).add({
      visit(node: IConstruct) {
        if (!(node instanceof TopicPolicy)) return;
        const policy = node.node.defaultChild as CfnTopicPolicy;
        if (isOfTopic(policy)) node.document.addStatements(statement);
      },
    });
  }
  scope.node.addValidation({
    validate: () => {
      const all = scope.node.root.node.findAll().filter((each) => each instanceof CfnTopicPolicy && isOfTopic(each));
      const others = all.filter((each) => !(each.node.scope instanceof TopicPolicy));
      for (const { node } of others)
        warnOfPolicy(`This app cannot change the policy ${node.path} of the topic for alarms.`);
      if (all.length === 0 && !(topic instanceof Topic)) {
        warnOfPolicy(`The topic ${topic.topicName} is not of this app, which cannot change its policy.`);
      }
      return [];
    },
  });
}
