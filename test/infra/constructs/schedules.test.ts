import { Match, type Template } from 'aws-cdk-lib/assertions';
import { describe, expect, it } from 'vitest';
import { COLLECTORS_MAX, parseCollectEvent } from '../../../functions/operator/collect-event.ts';
import { lineOf, permissionsOf } from '../policies.ts';
import { defaultPipeline, synthesisePipeline } from '../synthesis.ts';
import { only, resources } from '../template.ts';

const { template } = defaultPipeline();

describe('ticks', () => {
  const schedules = (of: Template) =>
    resources(of, 'AWS::Scheduler::Schedule').map((each) => ({
      ...each,
      id: each.id.replace('PipelineCollectOutputs', ''),
    }));

  it.each([1, 3600])('start every minute, whatever the poll interval: %i s', (pollIntervalSeconds) => {
    const { template: ticking } = synthesisePipeline({ settings: { pollIntervalSeconds } });
    const { ScheduleExpression } = only(schedules(ticking).filter(({ id }) => id.includes('Collector0')));
    expect(ScheduleExpression).toBe('rate(1 minute)');
  });

  it('that could not start are not retried, neither by the schedule nor by Lambda', () => {
    template.allResourcesProperties('AWS::Scheduler::Schedule', {
      FlexibleTimeWindow: { Mode: 'OFF' },
      Target: { RetryPolicy: { MaximumRetryAttempts: 0, MaximumEventAgeInSeconds: 60 } },
    });
    template.hasResourceProperties('AWS::Lambda::EventInvokeConfig', {
      FunctionName: { Ref: Match.stringLikeRegexp('CollectOutputs') },
      MaximumRetryAttempts: 0,
      MaximumEventAgeInSeconds: 60,
    });
  });

  it('of several collectors have events that the function can parse', () => {
    const { template: shared } = synthesisePipeline({ collectors: 3 });
    const collectors = schedules(shared).filter(({ id }) => id.includes('Collector'));
    const events = collectors.map(({ Target }) => parseCollectEvent(JSON.parse(Target.Input)));
    expect(events.map(({ collector }) => collector)).toEqual([
      { index: 0, of: 3 },
      { index: 1, of: 3 },
      { index: 2, of: 3 },
    ]);
  });

  it('are all that is scheduled: they begin the daily sweep', () => {
    expect(only(schedules(template)).id).toContain('Collector0');
  });

  it('can have as many collectors as the function supports, and no more', () => {
    expect(() => synthesisePipeline({ collectors: COLLECTORS_MAX })).not.toThrow();
    expect(() => synthesisePipeline({ collectors: COLLECTORS_MAX + 1 })).toThrow(
      `test/Pipeline.collectors: expected a whole number from 1 to ${COLLECTORS_MAX}, got ${COLLECTORS_MAX + 1}`,
    );
  });

  it('have a role that may start the collecting function and nothing else', () => {
    expect(permissionsOf(template, 'SchedulesRole').map(lineOf)).toEqual([
      'lambda:InvokeFunction function:flowdrop-collect-outputs',
    ]);
  });
});
