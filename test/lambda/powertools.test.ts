import { afterEach, describe, expect, it, vi } from 'vitest';
import type { Monitoring } from '../../functions/base/telemetry.ts';
import { powertools } from '../../functions/lambda/powertools.ts';

afterEach(() => {
  vi.restoreAllMocks();
});

it('writes the fields of a log, those of the line, and the invocation, into each line', () => {
  const written: string[] = [];
  vi.spyOn(console, 'info').mockImplementation((line) => void written.push(line));
  vi.stubEnv('POWERTOOLS_DEV', 'true'); // Powertools writes to the console that a test can see.
  const { logger, telemetry } = powertools('pipeline');
  vi.unstubAllEnvs();
  const log = telemetry.log.with({ key: 'a.bin' });
  const flowLog = log.with({ flowId: 'f' });
  logger.addContext({ awsRequestId: 'request', functionName: 'create-flow' } as never);
  flowLog.info('One', { code: 'c' });
  log.info('Two');
  telemetry.log.info('Three');
  const facts = written.map((line) => {
    const { message, key, flowId, code, service, function_request_id } = JSON.parse(line);
    return { message, key, flowId, code, service, function_request_id };
  });
  const each = { service: 'pipeline', function_request_id: 'request' };
  expect(facts).toEqual([
    { message: 'One', key: 'a.bin', flowId: 'f', code: 'c', ...each },
    { message: 'Two', key: 'a.bin', ...each },
    { message: 'Three', ...each },
  ]);
});

describe('metrics', () => {
  const written = (monitoring: Monitoring): readonly string[] => {
    const { metrics, telemetry } = powertools('pipeline', monitoring);
    for (const name of ['TicksCompleted', 'TicksOfCollector1', 'AssetsStored'] as const) telemetry.metrics.add(name);
    return Object.values(metrics.serializeMetrics()._aws.CloudWatchMetrics).flatMap(({ Metrics }) =>
      Metrics.map(({ Name }) => Name),
    );
  };

  it('are all written, or those that alarms read, or none', () => {
    expect(written('full')).toEqual(['TicksCompleted', 'TicksOfCollector1', 'AssetsStored']);
    expect(written('alarms')).toEqual(['TicksCompleted', 'TicksOfCollector1']);
    expect(written('none')).toEqual([]);
  });
});
