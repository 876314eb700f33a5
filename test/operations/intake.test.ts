import { describe, expect, it, vi } from 'vitest';
import { intakeOf, pause, resume } from '../../operations/intake.ts';
import { deploymentAt } from './aws-answers.ts';
import { checkOf, later, Operated, signal, withEndpoints } from './support.ts';

vi.mock('../../operations/wait.ts', () => import('./quick-wait.ts'));

const HOUR_MS = 3_600_000;

/** What Lambda says of an event source mapping. */
const mapping = (State: string, more: object = {}): string =>
  JSON.stringify({ UUID: 'any', State, LastModified: 1.6e9, ...more });

describe('a paused pipeline', () => {
  it('keeps new and retried files in the queue, collects the flows that run, and loses nothing', async () => {
    let aheadMs = 0;
    let flowMs = HOUR_MS;
    const clock = { now: () => Date.now() + aheadMs };
    const operated = await Operated.forTest({ standIn: { flowMs: () => flowMs, clock } });
    const { standIn } = operated.pipeline;
    await operated.putRefused('bad.png');
    await operated.put('running.png', 'running');
    const paused = await operated.run('pause');
    expect(paused).toMatchObject({ code: 0, output: expect.stringMatching(/^New flows: paused since /) });
    aheadMs = HOUR_MS;
    await operated.becomes('running.png', 'succeeded');
    flowMs = 0;

    await operated.upload('new.png', 'a picture');
    await operated.upload('other.png', 'a picture');
    // A tick may send a retried upload for a second time, which does no harm.
    expect(await operated.run('retry', 'bad.png', '--yes')).toMatchObject({
      code: 0,
      errors: 'New flows are paused, so files wait in the queue. To start them: npm run -s flowdrop -- resume\n',
    });
    const { output } = await operated.run('status');
    expect(output).toMatch(/ new flows +paused since .* UTC {2}\(\d+ s ago\)\n/);
    expect(output).toMatch(/ queue +[34] uploads to begin, 0 at work\n/);
    expect(output).toContain('Files wait in the queue, 14 days at most. Go on: npm run -s flowdrop -- resume');
    expect((await operated.run('status', 'new.png')).output).toContain(
      'new.png: not begun\n  The pipeline is paused, so it waits in the queue',
    );
    expect((await operated.run('cancel', 'new.png', '--yes')).errors).toBe(
      'new.png: nothing is done: it waits in the queue, or no route takes it\n',
    );

    const unasked = await operated.run('resume');
    expect(unasked).toMatchObject({ code: 2, errors: expect.stringMatching(/^The queue holds [34] messages\./) });
    expect(standIn?.flows).toHaveLength(1);
    const resumed = await operated.run('resume', '--yes');
    expect(resumed.output).toMatch(/^New flows begin again\.\n/);
    for (const key of ['new.png', 'other.png', 'bad.png']) await operated.becomes(key, 'succeeded');
    expect(standIn?.flows).toHaveLength(4);
    expect((await operated.run('status')).output).not.toContain('new flows');
  });

  it('is a finding of doctor: a note on the first day, then a warning, and at last a fault', async () => {
    const { deployment } = await Operated.forTest();
    await pause(deployment, signal);
    expect(await checkOf('new flows', deployment)).toEqual({
      check: 'new flows',
      result: 'note',
      what: 'The pipeline has been paused for 0 minutes: no new flows begin.',
      todo: 'Uploads wait in the queue, 14 days at most. To start new flows: npm run -s flowdrop -- resume',
    });
    expect(await checkOf('new flows', later(25 * HOUR_MS, deployment))).toMatchObject({
      result: 'warning',
      what: expect.stringContaining('for 25 hours'),
      todo: expect.stringMatching(
        /If the pause began more than 14 days ago, then run this as well: \S.* sweep --since <its first day>$/,
      ),
    });
    expect(await checkOf('new flows', later(15 * 24 * HOUR_MS, deployment))).toMatchObject({
      result: 'fault',
      todo: expect.stringMatching(/and then submit the files that the queue has dropped: \S.* sweep --since 20\S+Z$/),
    });

    const { deployment: byLambda } = await deploymentAt(() =>
      mapping('Disabled', { StateTransitionReason: 'LAMBDA_INITIATED' }),
    );
    const { endpoints: { lambda } = {} } = byLambda.access;
    expect(await checkOf('new flows', withEndpoints(deployment, { lambda }))).toMatchObject({
      result: 'fault',
      what: 'Lambda itself turned off the event source mapping, so no new flows begin.',
    });
    expect(await checkOf('new flows', { ...deployment, uploadMapping: undefined })).toMatchObject({
      result: 'not checked',
    });
    expect(await resume(deployment, signal)).toMatchObject({ state: 'on' });
  });
});

describe('pausing', () => {
  it('waits for a change that is under way, and for the end of its own, which it orders once', async () => {
    // The fifth is the answer to the order. The one after it is older than the order.
    const states = ['Enabling', 'Enabled', 'busy', 'Enabled', 'Disabling', 'Enabled', 'Disabling', 'Disabled'];
    const { deployment, asked } = await deploymentAt((_, count) => {
      const state = states[count - 1] ?? 'Disabled';
      return state === 'busy' ? { status: 400, body: '{"__type":"ResourceInUseException"}' } : mapping(state);
    });
    const since = '2020-09-13T12:26:40.000Z';
    expect(await pause(deployment, signal)).toEqual({ state: 'paused', since, isByUser: true });
    const off = 'PUT {"Enabled":false}';
    expect(asked).toEqual(['GET', 'GET', off, 'GET', off, 'GET', 'GET', 'GET']);
  });

  it('does not undo a later change of another client', async () => {
    const answers = [mapping('Enabled'), mapping('Disabling', { LastModified: 1.6e9 + 1 })];
    const { deployment, asked } = await deploymentAt(
      (_, count) => answers[count - 1] ?? mapping('Enabled', { LastModified: 1.6e9 + 60 }),
    );
    await expect(pause(deployment, signal)).rejects.toThrow(
      'The pause was undone at 2020-09-13T12:27:40.000Z, most likely by another client.',
    );
    expect(asked).toEqual(['GET', 'PUT {"Enabled":false}', 'GET']);
  });

  it('says so if the stack has no output for it, and the state is not known', async () => {
    const { deployment } = await deploymentAt(() => mapping('Enabled'));
    const unnamed = { ...deployment, uploadMapping: undefined };
    await expect(pause(unnamed, signal)).rejects.toThrow(
      /^No output UploadMapping of a stack names the event source mapping of the stack any\./,
    );
    expect(await intakeOf(unnamed, signal)).toBeUndefined();
  });

  it('is an error for an operator who may not, and the state is not known', async () => {
    const body = '{"__type":"AccessDeniedException","Message":"no lambda:GetEventSourceMapping"}';
    const { deployment } = await deploymentAt(() => ({ status: 403, body }));
    await expect(pause(deployment, signal)).rejects.toThrow('lambda:GetEventSourceMapping');
    expect(await intakeOf(deployment, signal)).toBeUndefined();
  });
});
