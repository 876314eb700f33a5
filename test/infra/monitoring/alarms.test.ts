import { readFileSync } from 'node:fs';
import { Aspects, type Stack } from 'aws-cdk-lib';
import { PolicyStatement, ServicePrincipal } from 'aws-cdk-lib/aws-iam';
import { type ITopic, Subscription, SubscriptionProtocol, Topic, TopicPolicy } from 'aws-cdk-lib/aws-sns';
import { EmailSubscription } from 'aws-cdk-lib/aws-sns-subscriptions';
import { describe, expect, it } from 'vitest';
import { defaultPipeline, type Synthesis, synthesisePipeline } from '../synthesis.ts';
import { only, resources } from '../template.ts';

interface AlarmProperties {
  readonly AlarmName: string;
  readonly AlarmDescription: string;
  readonly TreatMissingData: string;
  readonly ComparisonOperator: string;
  readonly EvaluationPeriods: number;
  readonly DatapointsToAlarm: number;
  readonly Threshold: number;
  readonly Period?: number;
  readonly AlarmActions?: readonly unknown[];
  readonly OKActions?: readonly unknown[];
  readonly Metrics?: readonly { readonly Expression?: string; readonly MetricStat?: { readonly Period: number } }[];
}

const TOPIC_ARN = 'arn:aws:sns:eu-central-1:123456789012:alarms';
const RUNBOOK_URL = 'https://wiki.example.com/flowdrop';
const RUNBOOK = readFileSync(new URL('../../../docs/runbook.md', import.meta.url), 'utf8');

const alarmsOf = ({ template }: Synthesis): readonly AlarmProperties[] => resources(template, 'AWS::CloudWatch::Alarm');

const alarms = alarmsOf(synthesisePipeline({ collectors: 2 }));
const named = (name: string): AlarmProperties => {
  const found = alarms.find(({ AlarmName }) => AlarmName === `flowdrop-${name}`);
  expect(found).toBeDefined();
  return found as AlarmProperties;
};

describe('alarms', () => {
  it('cover every condition that the operator should look into', () => {
    expect(alarms.map(({ AlarmName }) => AlarmName.replace('flowdrop-', '')).sort()).toEqual([
      'collect-outputs-errors',
      'collect-outputs-throttles',
      'collector-missing-0',
      'collector-missing-1',
      'create-flow-errors',
      'create-flow-throttles',
      'dead-letters',
      'doubts-held',
      'entries-unreadable',
      'flow-overdue',
      'flows-failed',
      'flows-shared',
      'nothing-finishes',
      'service-misaddressed',
      'sweep-missing',
      'sweep-state-damaged',
      'tick-missing',
      'token-rejected',
      'uploads-delayed',
      'uploads-denied',
      'uploads-missed',
      'uploads-returned',
      'uploads-stopped',
      'uploads-waiting',
    ]);
  });

  it('have one for a missing collector only if there are several collectors', () => {
    const names = alarmsOf(defaultPipeline()).map(({ AlarmName }) => AlarmName);
    expect(names).not.toContainEqual(expect.stringContaining('collector-missing'));
    expect(names).toHaveLength(alarms.length - 2);
  });

  it.each(alarms.map((alarm) => [alarm.AlarmName, alarm] as const))(
    '%s links to its runbook entry, which says what it means, how to look and what to do',
    (name, { AlarmDescription }) => {
      const anchor = name.replace('flowdrop-', '').replace(/-\d+$/, '');
      expect(AlarmDescription).toMatch(new RegExp(`docs/runbook\\.md#${anchor}$`));
      const entry = RUNBOOK.split(/^## /m).find((each) => each.startsWith(`${anchor}\n`));
      expect(entry).toMatch(/\*\*What it means\.\*\*[\s\S]+\*\*How to look\.\*\*[\s\S]+\*\*What to do\.\*\*/);
    },
  );

  it('count a missing datapoint as good, except for the heartbeats', () => {
    const breaching = alarms.filter(({ TreatMissingData }) => TreatMissingData === 'breaching');
    expect(breaching.map(({ AlarmName }) => AlarmName)).toEqual([
      'flowdrop-tick-missing',
      'flowdrop-collector-missing-0',
      'flowdrop-collector-missing-1',
    ]);
    const good = alarms.filter(({ TreatMissingData }) => TreatMissingData === 'notBreaching');
    expect(good).toHaveLength(alarms.length - 3);
  });

  it.each([
    ['tick-missing', 'TicksCompleted'],
    ['collector-missing-0', 'TicksOfCollector0'],
    ['collector-missing-1', 'TicksOfCollector1'],
  ])('%s waits for a tick longer than a tick may take, and does not count one that was cut short', (name, metric) => {
    const { EvaluationPeriods, Metrics, ComparisonOperator } = named(name);
    const period = Metrics?.find(({ MetricStat }) => MetricStat !== undefined)?.MetricStat?.Period ?? 0;
    // 40 minutes, as the description and the runbook say. The longest tick takes 15.
    expect(EvaluationPeriods * period).toBe(40 * 60);
    expect(ComparisonOperator).toBe('LessThanThreshold');
    expect(Metrics).toMatchObject([
      { Expression: 'FILL(measured, 0)' },
      { MetricStat: { Metric: { MetricName: metric }, Stat: 'Sum' } },
    ]);
  });

  it('report an old flow only if no other flow ends', () => {
    const expressions = named('nothing-finishes').Metrics?.flatMap(({ Expression }) => Expression ?? []);
    expect(expressions).toEqual(['IF(oldest >= 21600 AND (oldest * 0 + succeeded + failed) < 1, 1, 0)']);
  });

  it('report a flow that is open an hour after twice its maximum age of a week', () => {
    expect(named('flow-overdue').Threshold).toBe(2 * 7 * 24 * 3600 + 3600);
  });

  it('report an upload that has waited for six hours', () => {
    const { Threshold, ComparisonOperator } = named('uploads-waiting');
    expect(Threshold).toBe(6 * 3600);
    expect(ComparisonOperator).toBe('GreaterThanOrEqualToThreshold');
  });

  it('report that no daily sweep has ended for two days', () => {
    const { Threshold, ComparisonOperator } = named('sweep-missing');
    expect(Threshold).toBe(2 * 24 * 3600);
    expect(ComparisonOperator).toBe('GreaterThanOrEqualToThreshold');
  });

  it.each([
    ['token-rejected', 'TokenRejected', 'Sum', 15 * 60],
    ['service-misaddressed', 'ServiceMisaddressed', 'Sum', 15 * 60],
    ['uploads-waiting', 'OldestWaitingSeconds', 'Maximum', 60 * 60],
    ['sweep-missing', 'SweepAgeSeconds', 'Maximum', 15 * 60],
    ['flow-overdue', 'OldestRunningSeconds', 'Maximum', 20 * 60],
    ['doubts-held', 'DoubtsHeld', 'Sum', 60 * 60],
    ['flows-shared', 'FlowsShared', 'Sum', 15 * 60],
    ['entries-unreadable', 'EntriesUnreadable', 'Sum', 60 * 60],
  ])('%s lasts until its metric has had no datapoint for two periods', (name, metric, statistic, seconds) => {
    const { Metrics, EvaluationPeriods, DatapointsToAlarm } = named(name);
    expect({ EvaluationPeriods, DatapointsToAlarm }).toEqual({ EvaluationPeriods: 2, DatapointsToAlarm: 1 });
    expect(Metrics).toMatchObject([
      { Expression: 'FILL(measured, 0)' },
      { MetricStat: { Metric: { MetricName: metric }, Stat: statistic, Period: seconds } },
    ]);
  });

  it('use the namespace and the dimension of the functions', () => {
    const metrics = JSON.stringify(named('flows-failed'));
    expect(metrics).toContain('"Namespace":"Flowdrop"');
    expect(metrics).toContain('{"Name":"service","Value":"flowdrop"}');
  });

  it('report an old flow sooner if flows may not become that old', () => {
    const short = alarmsOf(synthesisePipeline({ settings: { flowAgeMaxSeconds: 3600 } }));
    expect(JSON.stringify(short)).toContain('oldest >= 1800 AND');
  });
});

describe('alarms with an imported topic and a runbook URL', () => {
  const synthesis = synthesisePipeline((stack) => ({
    alarmTopic: Topic.fromTopicArn(stack, 'Topic', TOPIC_ARN),
    runbookUrl: RUNBOOK_URL,
  }));

  it('notify the topic when they start and when they end', () => {
    for (const { AlarmActions, OKActions } of alarmsOf(synthesis)) {
      expect(AlarmActions).toEqual([TOPIC_ARN]);
      expect(OKActions).toEqual([TOPIC_ARN]);
    }
  });

  it('link to that runbook', () => {
    const descriptions = alarmsOf(synthesis).map(({ AlarmDescription }) => AlarmDescription);
    expect(descriptions.join('\n')).toContain(`${RUNBOOK_URL}#dead-letters`);
  });

  it('cause no warning', () => {
    expect(synthesis.messages.join()).not.toMatch(/notified of alarms|Notifications of alarms/);
  });
});

describe('a topic of the app for alarms', () => {
  const UNSUBSCRIBED = 'No one is notified of alarms: the topic test/Topic has no subscription in this app.';
  const warnings = (subscribe: (topic: Topic, stack: Stack) => void) =>
    synthesisePipeline((stack) => {
      const alarmTopic = new Topic(stack, 'Topic', { enforceSSL: true });
      subscribe(alarmTopic, stack);
      return { alarmTopic };
    }).messages.join('\n');

  it('causes warnings at synth if it has no subscription and if there is no runbook URL', () => {
    const given = warnings(() => {});
    expect(given).toContain(UNSUBSCRIBED);
    expect(given).toContain('Notifications of alarms name docs/runbook.md');
    expect(defaultPipeline().messages.join()).not.toContain('Notifications of alarms name');
  });

  it.each<[string, (topic: Topic, stack: Stack) => unknown]>([
    ['added to it', (topic) => topic.addSubscription(new EmailSubscription('ops@example.com'))],
    [
      'made elsewhere in the app',
      (topic, stack) => {
        const options = { protocol: SubscriptionProtocol.HTTPS, endpoint: 'https://alarms.example.com' };
        new Subscription(stack, 'Elsewhere', { ...options, topic });
      },
    ],
  ])('causes no such warning with a subscription %s', (_, subscribe) => {
    expect(warnings(subscribe)).not.toContain(UNSUBSCRIBED);
  });
});

describe('alarms with a topic for those that can wait', () => {
  const TICKETS_ARN = 'arn:aws:sns:eu-central-1:123456789012:tickets';
  const all = alarmsOf(
    synthesisePipeline((stack) => ({
      alarmTopic: Topic.fromTopicArn(stack, 'Pages', TOPIC_ARN),
      ticketTopic: Topic.fromTopicArn(stack, 'Tickets', TICKETS_ARN),
    })),
  );

  it('notify the topic of the severity that their description names', () => {
    for (const { AlarmActions, OKActions, AlarmDescription } of all) {
      const [, severity] = /Severity: (page|ticket)\. Runbook/.exec(AlarmDescription) ?? [];
      const topic = severity === 'ticket' ? TICKETS_ARN : TOPIC_ARN;
      expect([AlarmActions, OKActions]).toEqual([[topic], [topic]]);
    }
  });

  it('page if files wait until an operator acts', () => {
    const pages = all.filter(({ AlarmActions }) => AlarmActions?.[0] === TOPIC_ARN);
    const names = pages.map(({ AlarmName }) => AlarmName.replace('flowdrop-', ''));
    expect(names).toEqual(
      expect.arrayContaining(['dead-letters', 'tick-missing', 'token-rejected', 'uploads-returned']),
    );
    expect(names).not.toContain('flows-failed');
  });
});

describe('the policy of a topic of the app', () => {
  const ALLOWS_ALARMS = {
    Effect: 'Allow',
    Principal: { Service: 'cloudwatch.amazonaws.com' },
    Action: 'sns:Publish',
    Condition: { StringEquals: { 'aws:SourceAccount': { Ref: 'AWS::AccountId' } } },
  };
  const policies = (topicOf: (stack: Stack) => ITopic) =>
    resources(synthesisePipeline((stack) => ({ alarmTopic: topicOf(stack) })).template, 'AWS::SNS::TopicPolicy').map(
      ({ PolicyDocument }) => PolicyDocument.Statement,
    );

  it.each<[string, (stack: Stack) => Topic]>([
    ['before', (stack) => new Topic(stack, 'Topic', { enforceSSL: true })],
    [
      'after the pipeline',
      (stack) => {
        const topic = new Topic(stack, 'Topic');
        const statement = new PolicyStatement({
          principals: [new ServicePrincipal('budgets.amazonaws.com')],
          actions: ['sns:Publish'],
          resources: [topic.topicArn],
        });
        Aspects.of(stack).add({
          visit: (node) => {
            if (node === stack) topic.addToResourcePolicy(statement);
          },
        });
        return topic;
      },
    ],
    [
      'as a construct of its own, on the stack',
      (stack) => {
        const topic = new Topic(stack, 'Topic');
        new TopicPolicy(stack, 'Policy', { topics: [topic], enforceSSL: true });
        return topic;
      },
    ],
    [
      'as a construct of its own, on the topic',
      (stack) => {
        const topic = new Topic(stack, 'Topic');
        new TopicPolicy(topic, 'Mine', { topics: [topic], enforceSSL: true });
        return topic;
      },
    ],
  ])('lets alarms publish if it has one, given %s', (_, topicOf) => {
    const [statements, ...others] = policies(topicOf);
    expect(others).toEqual([]);
    expect(statements).toContainEqual(expect.objectContaining(ALLOWS_ALARMS));
  });

  it('stays the default of SNS if it has none, because the default lets alarms publish', () => {
    expect(policies((stack) => new Topic(stack, 'Topic'))).toEqual([]);
  });
});

describe('the dashboard', () => {
  const body = only(resources(defaultPipeline().template, 'AWS::CloudWatch::Dashboard')).DashboardBody;

  it('is one, and shows whether it works, how much, how fast and what failed', () => {
    const json = JSON.stringify(body);
    for (const metric of [
      'UploadsReceived',
      'FlowsSucceeded',
      'UploadsFailed',
      'SecondsToResult',
      'OldestRunningSeconds',
      'OldestWaitingSeconds',
      'DoubtsHeld',
      'FlowsShared',
      'EntriesUnreadable',
      'SweepStateDamaged',
      'UploadsDenied',
    ]) {
      expect(json).toContain(metric);
    }
  });

  it('fills each row of the grid, in whole columns', () => {
    const parts: readonly unknown[] = body['Fn::Join'][1];
    const { widgets } = JSON.parse(parts.map((part) => (typeof part === 'string' ? part : 'x')).join('')) as {
      readonly widgets: readonly { readonly y: number; readonly width: number }[];
    };
    expect(widgets.filter(({ width }) => !Number.isInteger(width))).toEqual([]);
    const rows = Map.groupBy(widgets, ({ y }) => y);
    for (const row of rows.values()) expect(row.reduce((sum, { width }) => sum + width, 0)).toBe(24);
    expect(rows.size).toBe(4);
  });

  it('shows the median and the slow end of the times to a result, and the running flows of all collectors', () => {
    const json = JSON.stringify(body).replaceAll('\\', '');
    const statistics = (metric: string) =>
      (json.match(new RegExp(`"${metric}","service","flowdrop",\\{[^}]*\\}`, 'g')) ?? []).map(
        (each) => /"stat":"(\w+)"/.exec(each)?.[1],
      );
    expect(statistics('SecondsToResult')).toEqual(['p50', 'p95']);
    // Each collector counts the flows of all collectors, so the maximum is the total.
    expect(statistics('FlowsRunning')).toEqual(['Maximum']);
  });
});
