import { Stack } from 'aws-cdk-lib';
import type { Metric } from 'aws-cdk-lib/aws-cloudwatch';
import { expect, it } from 'vitest';
import { FlowPipeline } from '../../../infra/flow-pipeline.ts';
import { MeasuredPipeline } from '../../../infra/monitoring/measured-pipeline.ts';
import { PROPS, synthesise } from '../synthesis.ts';
import { only, resources } from '../template.ts';

it('a pipeline has a method for each metric of the functions that the dashboard shows, with the same statistic', () => {
  let measured: readonly (readonly [string, string])[] = [];
  const { template } = synthesise((app) => {
    const stack = new Stack(app, 'test');
    const pipeline = new FlowPipeline(stack, 'Pipeline', { ...PROPS, name: 'models' });
    const methods = Object.getOwnPropertyNames(MeasuredPipeline.prototype).filter((name) => name.startsWith('metric'));
    measured = methods.map((method) => {
      const metric: Metric = Reflect.get(pipeline, method).call(pipeline, { color: '#000000' });
      expect([metric.dimensions, metric.color]).toEqual([{ service: 'models' }, '#000000']);
      expect(method).toBe(`metric${metric.metricName}`);
      return [metric.metricName, metric.statistic] as const;
    });
    return stack;
  });
  const { DashboardBody } = only(resources(template, 'AWS::CloudWatch::Dashboard'));
  const body = JSON.stringify(DashboardBody).replaceAll('\\', '');
  const shown = Array.from(body.matchAll(/\["Flowdrop","(\w+)","service","models",\{[^}]*"stat":"(\w+)"/g), (match) =>
    match.slice(1).join(' '),
  );
  expect(shown.length).toBeGreaterThan(25);
  // Of the two percentiles on the dashboard, the method has the higher one by default.
  const expected = new Set(shown.filter((each) => each !== 'SecondsToResult p50'));
  expect(new Set(measured.map((each) => each.join(' ')))).toEqual(expected);
});
