import { readFileSync } from 'node:fs';
import type { Stack } from 'aws-cdk-lib';
import { Subscription, SubscriptionProtocol, Topic } from 'aws-cdk-lib/aws-sns';
import { EmailSubscription } from 'aws-cdk-lib/aws-sns-subscriptions';
import { describe, expect, it } from 'vitest';
import { type Synthesis, synthesisePipeline } from '../synthesis.ts';

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

const alarmsOf = ({ template }: Synthesis): readonly AlarmProperties[] =>
  Object.values(template.findResources('AWS::CloudWatch::Alarm')).map(({ Properties }) => Properties);

const alarms = alarmsOf(synthesisePipeline());
const named = (name: string): AlarmProperties => {
  const found = alarms.find(({ AlarmName }) => AlarmName === `flowdrop-${name}`);
  expect(found).toBeDefined();
  return found as AlarmProperties;
};

const TOPIC_ARN = 'arn:aws:sns:eu-central-1:123456789012:alarms';

const runbook = readFileSync(new URL('../../../docs/runbook.md', import.meta.url), 'utf8');

describe('alarms', () => {
  it('are there for everything that an operator should look into', () => {
    expect(alarms.map(({ AlarmName }) => AlarmName.replace('flowdrop-', '')).sort()).toEqual([
      'collect-outputs-errors',
      'collect-outputs-throttles',
      'create-flow-errors',
      'create-flow-throttles',
      'dead-letters',
      'doubts-held',
      'entries-unreadable',
      'flows-failed',
      'flows-shared',
      'nothing-finishes',
      'tick-missing',
      'token-rejected',
      'uploads-delayed',
      'uploads-waiting',
    ]);
  });

  it.each(alarms.map((alarm) => [alarm.AlarmName, alarm] as const))(
    '%s links to its entry in the runbook, which says what it means, how to look and what to do',
    (name, { AlarmDescription }) => {
      const anchor = name.replace('flowdrop-', '');
      expect(AlarmDescription).toMatch(new RegExp(`docs/runbook\\.md#${anchor}$`));
      const entry = runbook.split(/^## /m).find((each) => each.startsWith(`${anchor}\n`));
      expect(entry).toMatch(/\*\*What it means\.\*\*[\s\S]+\*\*How to look\.\*\*[\s\S]+\*\*What to do\.\*\*/);
    },
  );

  it('link to the runbook where it is said to be', () => {
    const elsewhere = alarmsOf(synthesisePipeline({ runbookUrl: 'https://wiki.example.com/flowdrop' }));
    expect(elsewhere.map(({ AlarmDescription }) => AlarmDescription).join('\n')).toContain(
      'https://wiki.example.com/flowdrop#dead-letters',
    );
  });

  it('take silence for good, but for the heartbeat', () => {
    const silent = alarms.filter(({ TreatMissingData }) => TreatMissingData === 'breaching');
    expect(silent.map(({ AlarmName }) => AlarmName)).toEqual(['flowdrop-tick-missing']);
    expect(alarms.filter(({ TreatMissingData }) => TreatMissingData === 'notBreaching')).toHaveLength(
      alarms.length - 1,
    );
  });

  it('miss a tick only after longer than a tick may take, and do not count one that was cut short', () => {
    const { EvaluationPeriods, Metrics, ComparisonOperator } = named('tick-missing');
    const period = Metrics?.find(({ MetricStat }) => MetricStat !== undefined)?.MetricStat?.Period ?? 0;
    // As its description and the runbook say, and longer than the 15 minutes of the longest tick.
    expect(EvaluationPeriods * period).toBe(40 * 60);
    expect(ComparisonOperator).toBe('LessThanThreshold');
    expect(Metrics).toMatchObject([
      { Expression: 'FILL(measured, 0)' },
      { MetricStat: { Metric: { MetricName: 'TicksCompleted' }, Stat: 'Sum' } },
    ]);
  });

  it('know of an old flow only where no other ends', () => {
    const expressions = named('nothing-finishes').Metrics?.flatMap(({ Expression }) => Expression ?? []);
    expect(expressions).toEqual(['IF(oldest >= 21600 AND (oldest * 0 + succeeded + failed) < 1, 1, 0)']);
  });

  it('know of an upload that waits for ever', () => {
    const { Threshold, ComparisonOperator } = named('uploads-waiting');
    expect(Threshold).toBe(6 * 3600);
    expect(ComparisonOperator).toBe('GreaterThanOrEqualToThreshold');
  });

  it.each([
    ['token-rejected', 'TokenRejected', 'Sum', 15 * 60],
    ['uploads-waiting', 'OldestWaitingSeconds', 'Maximum', 60 * 60],
    ['doubts-held', 'DoubtsHeld', 'Sum', 60 * 60],
    ['flows-shared', 'FlowsShared', 'Sum', 15 * 60],
    ['entries-unreadable', 'EntriesUnreadable', 'Sum', 60 * 60],
  ])('%s lasts until it has not been measured for two periods', (name, metric, statistic, seconds) => {
    const { Metrics, EvaluationPeriods, DatapointsToAlarm } = named(name);
    expect({ EvaluationPeriods, DatapointsToAlarm }).toEqual({ EvaluationPeriods: 2, DatapointsToAlarm: 1 });
    expect(Metrics).toMatchObject([
      { Expression: 'FILL(measured, 0)' },
      { MetricStat: { Metric: { MetricName: metric }, Stat: statistic, Period: seconds } },
    ]);
  });

  it('take a flow for old sooner where flows may not become so old', () => {
    const short = alarmsOf(synthesisePipeline({ settings: { flowAgeMaxSeconds: 3600 } }));
    expect(JSON.stringify(short)).toContain('oldest >= 1800 AND');
  });

  it('tell the topic when they begin and when they are over', () => {
    for (const { AlarmActions, OKActions } of alarmsOf(
      synthesisePipeline((stack) => ({ alarmTopic: Topic.fromTopicArn(stack, 'Topic', TOPIC_ARN) })),
    )) {
      expect(AlarmActions).toEqual([TOPIC_ARN]);
      expect(OKActions).toEqual([TOPIC_ARN]);
    }
  });

  it('warn at synth where they are sent to a topic of the app that nobody is subscribed to', () => {
    const warned = (subscribe: (topic: Topic, stack: Stack) => void) =>
      synthesisePipeline((stack) => {
        const alarmTopic = new Topic(stack, 'Topic', { enforceSSL: true });
        subscribe(alarmTopic, stack);
        return { alarmTopic };
      }).messages.join('\n');
    const warning = 'No one is notified of alarms: the topic test/Topic has no subscription in this app.';
    expect(warned(() => {})).toContain(warning);
    expect(warned((topic) => topic.addSubscription(new EmailSubscription('ops@example.com')))).not.toContain(warning);
    expect(
      warned((topic, stack) => {
        const options = { protocol: SubscriptionProtocol.HTTPS, endpoint: 'https://alarms.example.com' };
        new Subscription(stack, 'Elsewhere', { ...options, topic });
      }),
    ).not.toContain(warning);
    const another = (stack: Stack) => ({ alarmTopic: Topic.fromTopicArn(stack, 'Topic', TOPIC_ARN) });
    expect(synthesisePipeline(another).messages.join()).not.toContain('has no subscription');
  });

  it('warn at synth where they are sent without an address of the runbook that can be followed', () => {
    const sent = (stack: Stack) => ({ alarmTopic: Topic.fromTopicArn(stack, 'Topic', TOPIC_ARN) });
    const warning = 'Notifications of alarms name docs/runbook.md';
    expect(synthesisePipeline(sent).messages.join()).toContain(warning);
    expect(synthesisePipeline().messages.join()).not.toContain(warning);
    const runbookUrl = 'https://wiki.example.com/flowdrop';
    expect(synthesisePipeline((stack) => ({ ...sent(stack), runbookUrl })).messages.join()).not.toContain(warning);
  });

  it('look where the functions measure', () => {
    const metrics = JSON.stringify(named('flows-failed'));
    expect(metrics).toContain('"Namespace":"Flowdrop"');
    expect(metrics).toContain('{"Name":"service","Value":"flowdrop"}');
  });
});

describe('the dashboard', () => {
  it('is one, and answers whether it works, how much, how fast and what failed', () => {
    const { template } = synthesisePipeline();
    const dashboards = Object.values(template.findResources('AWS::CloudWatch::Dashboard'));
    expect(dashboards).toHaveLength(1);
    const body = JSON.stringify(dashboards[0]?.Properties.DashboardBody);
    for (const metric of [
      'UploadsReceived',
      'FlowsSucceeded',
      'FlowsFailed',
      'SecondsToResult',
      'OldestRunningSeconds',
      'OldestWaitingSeconds',
      'DoubtsHeld',
      'FlowsShared',
      'EntriesUnreadable',
    ]) {
      expect(body).toContain(metric);
    }
  });

  it('fills each row of the grid, in whole columns', () => {
    const { template } = synthesisePipeline();
    const [dashboard] = Object.values(template.findResources('AWS::CloudWatch::Dashboard'));
    const parts: readonly unknown[] = dashboard?.Properties.DashboardBody['Fn::Join'][1];
    const { widgets } = JSON.parse(parts.map((part) => (typeof part === 'string' ? part : 'x')).join('')) as {
      readonly widgets: readonly { readonly y: number; readonly width: number }[];
    };
    expect(widgets.filter(({ width }) => !Number.isInteger(width))).toEqual([]);
    const rows = Map.groupBy(widgets, ({ y }) => y);
    for (const row of rows.values()) expect(row.reduce((sum, { width }) => sum + width, 0)).toBe(24);
    expect(rows.size).toBe(4);
  });

  it('shows the middle and the slow end of the times to a result, and the running flows of all collectors', () => {
    const { template } = synthesisePipeline({ collectors: 4 });
    const [dashboard] = Object.values(template.findResources('AWS::CloudWatch::Dashboard'));
    const body = JSON.stringify(dashboard?.Properties.DashboardBody).replaceAll('\\', '');
    const shown = (metric: string) => body.match(new RegExp(`"${metric}","service","flowdrop",\\{[^}]*\\}`, 'g')) ?? [];
    expect(shown('SecondsToResult').map((each) => /"stat":"(\w+)"/.exec(each)?.[1])).toEqual(['p50', 'p95']);
    // Each collector measures the flows of all, so the highest count is theirs together.
    expect(shown('FlowsRunning').map((each) => /"stat":"(\w+)"/.exec(each)?.[1])).toEqual(['Maximum']);
  });
});
