import { readFileSync } from 'node:fs';
import { Duration, Stack } from 'aws-cdk-lib';
import { Topic } from 'aws-cdk-lib/aws-sns';
import { expect, it } from 'vitest';
import { NOTIFY_MAX } from '../../../functions/publish/completion-event.ts';
import { ALARM_NAMES } from '../../../functions/settings/alarm-names.ts';
import { FlowPipeline } from '../../../infra/flow-pipeline.ts';
import type { FlowPipelineProps } from '../../../infra/flow-pipeline-props.ts';
import { COLLECTORS } from '../../../infra/ranges.ts';
import { PROPS, synthesise } from '../synthesis.ts';
import { only, resources } from '../template.ts';

it('each alarm can be left out or changed by its name, and be used by it', () => {
  let names: readonly string[] = [];
  const { template } = synthesise((app) => {
    const stack = new Stack(app, 'test');
    const pipeline = new FlowPipeline(stack, 'Pipeline', {
      ...PROPS,
      collectors: 2,
      alarmTopic: new Topic(stack, 'Pages'),
      ticketTopic: new Topic(stack, 'Tickets'),
      alarms: {
        'flows-failed': false,
        'collector-missing': { evaluationPeriods: 4 },
        'uploads-delayed': { threshold: Duration.hours(2).toSeconds(), severity: 'page', actionsEnabled: undefined },
      },
    });
    names = Object.keys(pipeline.alarms);
    pipeline.alarms['collector-missing-1']?.addOkAction({ bind: () => ({ alarmActionArn: 'arn:aws:sns:a:1:ok' }) });
    return stack;
  });
  const all = resources(template, 'AWS::CloudWatch::Alarm');
  expect(all.map(({ AlarmName }) => AlarmName).sort()).toEqual(names.map((name) => `flowdrop-${name}`).sort());
  expect(names).toContain('tick-missing');
  expect(names).not.toContain('flows-failed');
  const alarm = (name: string) => only(all.filter(({ AlarmName }) => AlarmName === `flowdrop-${name}`));
  const delayed = alarm('uploads-delayed');
  expect(delayed.Threshold).toBe(7200);
  expect(delayed.AlarmActions).toEqual([{ Ref: expect.stringMatching(/^Pages/) }]);
  expect(delayed.AlarmDescription).toMatch(/ Changed by the app: threshold\. Severity: page\. Runbook: /);
  expect(['0', '1'].map((index) => alarm(`collector-missing-${index}`).EvaluationPeriods)).toEqual([4, 4]);
  expect(alarm('collector-missing-1').OKActions).toEqual(['arn:aws:sns:a:1:ok']);
  expect(JSON.stringify(resources(template, 'AWS::CloudWatch::Dashboard'))).not.toContain('Alarmsflowsfailed');
});

it('the names of alarms are the headings of their entries in the runbook', () => {
  const runbook = readFileSync(new URL('../../../docs/runbook.md', import.meta.url), 'utf8');
  expect(ALARM_NAMES.filter((name) => !runbook.includes(`\n## ${name}\n`))).toEqual([]);
});

const LONG = `https://wiki.example.com/${'r'.repeat(475)}`;

it.each<readonly [string, Partial<FlowPipelineProps>]>([
  [
    'as many alarms as a pipeline can have, and the longest addresses',
    {
      collectors: COLLECTORS.max,
      notify: Array.from({ length: NOTIFY_MAX }, (_, index) => ({ url: `https://hooks.example.com/${index}` })),
      settings: { canaryKey: 'c'.repeat(512), budget: { per: 'day', flows: 500 } },
      runbookUrl: LONG,
      alarms: Object.fromEntries(ALARM_NAMES.map((name) => [name, { evaluationPeriods: 5, datapointsToAlarm: 5 }])),
    },
  ],
  ['no alarms', { alarms: Object.fromEntries(ALARM_NAMES.map((name) => [name, false])) }],
])('CloudWatch takes %s', (_, props) => {
  const { template } = synthesise((app) => {
    const stack = new Stack(app, 'test');
    new FlowPipeline(stack, 'Pipeline', { ...PROPS, ...props });
    return stack;
  });
  const alarms = resources(template, 'AWS::CloudWatch::Alarm');
  for (const { AlarmDescription } of alarms) expect(AlarmDescription.length).toBeLessThanOrEqual(1024);
  for (const { Description } of resources(template, 'AWS::Scheduler::Schedule'))
    expect(Description.length).toBeLessThanOrEqual(512);
  const { DashboardBody } = only(resources(template, 'AWS::CloudWatch::Dashboard'));
  const body = JSON.stringify(DashboardBody).replaceAll('\\', '');
  // Each has from 1 to 100 of them.
  const widgets = body.split('"type":"').filter((each) => each.startsWith('alarm"'));
  const shown = widgets.map((each) => each.match(/Fn::GetAtt":\["\w*Alarms/g)?.length ?? 0);
  expect(shown.filter((count) => count === 0 || count > 100)).toEqual([]);
  expect(shown.reduce((sum, count) => sum + count, 0)).toBe(alarms.length);
});

it('an address of the runbook that no description has room for is refused', () => {
  expect(() => new FlowPipeline(new Stack(), 'Pipeline', { ...PROPS, runbookUrl: `${LONG}r` })).toThrow(
    'Pipeline.runbookUrl: expected at most 500 characters',
  );
});
