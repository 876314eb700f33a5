import { readFileSync } from 'node:fs';
import { Duration, Stack } from 'aws-cdk-lib';
import { Topic } from 'aws-cdk-lib/aws-sns';
import { expect, it } from 'vitest';
import { ALARM_NAMES } from '../../../functions/settings/alarm-names.ts';
import { FlowPipeline } from '../../../infra/flow-pipeline.ts';
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
