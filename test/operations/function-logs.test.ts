import { describe, expect, it } from 'vitest';
import type { Deployment } from '../../operations/deployment.ts';
import { examineErrors, examineRuns } from '../../operations/function-logs.ts';
import { deploymentAt } from './aws-answers.ts';

const signal = new AbortController().signal;
const NOW = Date.parse('2026-01-02T12:00:00Z');

interface Page {
  readonly events?: readonly { readonly timestamp: number; readonly message: string }[];
  readonly nextToken?: string;
}

/** A deployed pipeline whose logs have these pages. A question that follows another one has its token. */
async function withLogs(pages: (log: string, token: string | undefined) => Page) {
  const { deployment, asked } = await deploymentAt((body) => {
    const { logGroupName, nextToken } = JSON.parse(body);
    return JSON.stringify(pages(logGroupName, nextToken));
  });
  const more = {
    isLocal: false,
    clock: { now: () => NOW },
    collecting: { name: 'flowdrop-collect-outputs' },
  };
  return { deployment: { ...deployment, ...more } as unknown as Deployment, asked };
}

const line = (message: string, ago = 1_000) => ({ timestamp: NOW - ago, message });
const ownLine = (more: object) => JSON.stringify({ level: 'ERROR', function_name: 'any', ...more });

describe('the check of the errors', () => {
  it('is good if the logs of both functions have none, and asks for those of a day', async () => {
    const { deployment, asked } = await withLogs(() => ({ events: [] }));
    expect(await examineErrors(deployment, signal)).toBe('good');
    expect(asked.map((each) => each.split(' ')[0])).toEqual(Array(2).fill('Logs_20140328.FilterLogEvents'));
    const questions = asked.map((each) => JSON.parse(each.slice(each.indexOf('{'))));
    expect(questions).toEqual(
      ['create-flow', 'collect-outputs'].map((name) => ({
        logGroupName: `/aws/lambda/flowdrop-${name}`,
        startTime: NOW - 24 * 60 * 60_000,
        filterPattern: expect.stringContaining('?"ERROR"'),
      })),
    );
  });

  it('counts the errors of each function, and quotes the last in short', async () => {
    const error = { name: 'TimeoutError', message: 'no answer' };
    const lines = [
      line(ownLine({ message: 'This delivery failed.', error })),
      line('2026-01-02T11:00:00Z 0123 Task timed out after 900.00 seconds\n\n', 3_600_000),
    ];
    const { deployment } = await withLogs((log) => (log.endsWith('create-flow') ? { events: lines } : {}));
    expect(await examineErrors(deployment, signal)).toEqual({
      severity: 'warning',
      what:
        'flowdrop-create-flow logged 2 errors in 24 hours, the last at 2026-01-02T11:59:59.000Z: ' +
        'This delivery failed: TimeoutError: no answer',
      todo: 'In Logs Insights, the saved queries "flowdrop/errors" and "flowdrop/invocations cut short" list them.',
    });
  });

  it.each([
    ['', 'says', {}],
    ['User: any is not authorized to perform: s3:PutObject on resource: "arn" with an explicit deny', 'says', {}],
    ['User: any is not authorized to perform: s3:PutObject on resource: "arn"', 'does not say', { encryption: {} }],
    ['User: any is not authorized to perform: s3:PutObjectTagging on resource: "arn"', 'does not say', {}],
    ['User: any is not authorized to perform: kms:GenerateDataKey on resource: "arn"', 'does not say', {}],
  ])(
    'of a request that AWS denied with "%s" %s that a policy may demand encryption headers',
    async (why, says, more) => {
      const error = { name: 'AccessDenied', message: why };
      const { deployment } = await withLogs(() => ({
        events: [line(ownLine({ message: 'The invocation failed', error }))],
      }));
      const settings = { ...deployment.settings, ...more };
      const { todo } = (await examineErrors({ ...deployment, settings }, signal)) as { readonly todo: string };
      expect(todo.includes('set deployment.encryptionHeader')).toBe(says === 'says');
    },
  );

  it('quotes a line of Lambda itself, without its end if it is long', async () => {
    const long = `0123 Error: Runtime exited with error: signal: killed ${'x'.repeat(1_000)}`;
    const { deployment } = await withLogs((log) =>
      log.endsWith('collect-outputs') ? { events: [line(long)] } : { events: [] },
    );
    const outcome = await examineErrors(deployment, signal);
    expect(outcome).toMatchObject({
      what: expect.stringMatching(/^flowdrop-collect-outputs logged 1 error .* signal: killed x+…$/),
    });
    expect((outcome as { what: string }).what.length).toBeLessThan(450);
  });

  it('counts no line of another level that has the term in a key or in the words of the service', async () => {
    const lines = [
      line(JSON.stringify({ level: 'INFO', message: 'Flow created', key: 'ERROR.png' })),
      line(JSON.stringify({ level: 'WARN', message: 'The upload could not be sent', error: { message: 'ERROR 503' } })),
    ];
    const { deployment } = await withLogs(() => ({ events: lines }));
    expect(await examineErrors(deployment, signal)).toBe('good');
  });

  it('reads on after a page without lines', async () => {
    const { deployment } = await withLogs((log, token) => {
      if (!log.endsWith('create-flow')) return {};
      return token === undefined ? { nextToken: 'more' } : { events: [line('Task timed out after 900.00 seconds')] };
    });
    expect(await examineErrors(deployment, signal)).toMatchObject({ what: expect.stringContaining('logged 1 error ') });
  });

  it('reads a part of a log without end, and says so', async () => {
    const endless = await withLogs((log) => (log.endsWith('create-flow') ? { nextToken: 'more' } : {}));
    expect(await examineErrors(endless.deployment, signal)).toEqual({
      notChecked: 'too much was logged: the first 20 pages of flowdrop-create-flow have no error',
    });
    const mixed = await withLogs((log) =>
      log.endsWith('create-flow') ? { nextToken: 'more' } : { events: [line('ERROR')] },
    );
    expect(await examineErrors(mixed.deployment, signal)).toMatchObject({
      what: expect.stringMatching(
        /^flowdrop-collect-outputs logged 1 error in 24 hours.*\nNot all was read: too much was logged: the first 20 pages of flowdrop-create-flow have no error\.$/,
      ),
    });
    const erring = await withLogs(() => ({ events: [line('ERROR')], nextToken: 'more' }));
    expect(await examineErrors(erring.deployment, signal)).toMatchObject({
      what: expect.stringContaining('logged at least 20 errors in 24 hours, one of them at 2026-'),
    });
  });
});

describe('the check of the runs', () => {
  it('asks for nothing if the queue is empty', async () => {
    const { deployment, asked } = await withLogs(() => ({}));
    expect(await examineRuns(0, deployment, signal)).toBe('good');
    expect(asked).toEqual([]);
  });

  it('is good if the function has logged a line lately', async () => {
    const { deployment, asked } = await withLogs(() => ({ events: [line('START RequestId: 0123')] }));
    expect(await examineRuns(3, deployment, signal)).toBe('good');
    expect(asked).toEqual([expect.stringContaining(`"startTime":${NOW - 15 * 60_000},"limit":1`)]);
  });

  it('is a warning if uploads wait and the function does not run', async () => {
    const { deployment } = await withLogs(() => ({ events: [] }));
    expect(await examineRuns(3, deployment, signal)).toEqual({
      severity: 'warning',
      what: 'The queue holds 3 uploads, and flowdrop-create-flow has not run for 15 minutes.',
      todo: 'If the uploads came in the last minutes, ask again. Otherwise the event source mapping may be off, as after a pause of an older version: see docs/runbook.md, uploads-stopped.',
    });
  });
});
