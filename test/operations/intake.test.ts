import { describe, expect, it, onTestFinished } from 'vitest';
import type { Deployment } from '../../operations/deployment.ts';
import { intakeOf, pause, resume } from '../../operations/intake.ts';
import { web } from '../support/servers.ts';
import { checkOf, deployedAs, later, Operated, signal, withEndpoints } from './support.ts';

const HOUR_MS = 3_600_000;

/** The deployment with a Lambda that answers so for its event source mapping. */
async function withMapping(
  { deployment }: Operated,
  answers: (method: string | undefined, count: number) => { readonly status?: number; readonly body: object },
): Promise<{ readonly deployment: Deployment; readonly asked: string[] }> {
  const asked: string[] = [];
  const { origin } = await web(async (request, response) => {
    let sent = '';
    for await (const chunk of request) sent += chunk;
    asked.push(`${request.method} ${sent}`.trimEnd());
    const { status = 200, body } = answers(request.method, asked.length);
    response.writeHead(status).end(JSON.stringify(body));
  });
  return { asked, deployment: withEndpoints(deployment, { lambda: origin }) };
}

const mapping = (State: string, more: object = {}) => ({ body: { UUID: 'any', State, LastModified: 1.6e9, ...more } });

describe('a paused pipeline', () => {
  it('keeps new and retried files in the queue, collects on, and loses nothing', async () => {
    const operated = await Operated.forTest();
    await operated.putRefused('bad.png');
    const paused = await operated.run('pause');
    expect(paused.output).toMatch(/^New flows: paused since /);
    expect(paused.code).toBe(0);

    await operated.upload('new.png', 'a picture');
    await operated.upload('other.png', 'a picture');
    // A tick may send a retried upload for a second time, which does no harm.
    expect(await operated.run('retry', 'bad.png', '--yes')).toMatchObject({
      code: 0,
      errors: 'New flows are paused, so files wait in the queue. To start them, run flowdrop resume.\n',
    });
    const { output } = await operated.run('status');
    expect(output).toMatch(/ new flows +paused since .* UTC {2}\(\d+ s ago\)\n/);
    expect(output).toMatch(/ queue +[34] uploads to begin, 0 at work\n/);
    expect(output).toContain('Files wait in the queue, 14 days at most. Go on: flowdrop resume');
    expect((await operated.run('status', 'new.png')).output).toContain(
      'new.png: not begun\n  The pipeline is paused, so it waits in the queue',
    );
    expect((await operated.run('cancel', 'new.png', '--yes')).errors).toBe(
      'new.png: nothing is done: it waits in the queue, or no route takes it\n',
    );
    expect(operated.pipeline.standIn?.flows).toHaveLength(0);

    const unasked = await operated.run('resume');
    expect(unasked).toMatchObject({
      code: 2,
      errors: expect.stringMatching(/^The queue holds [34] messages\./),
    });
    expect(operated.pipeline.standIn?.flows).toHaveLength(0);
    const resumed = await operated.run('resume', '--yes');
    expect(resumed.output).toMatch(/^New flows begin again\.\n/);
    for (const key of ['new.png', 'other.png', 'bad.png']) await operated.becomes(key, 'succeeded');
    expect(operated.pipeline.standIn?.flows).toHaveLength(3);
    expect((await operated.run('status')).output).not.toContain('new flows');
  });

  it('collects the flows that run', async () => {
    let aheadMs = 0;
    const clock = { now: () => Date.now() + aheadMs };
    const operated = await Operated.forTest({ standIn: { flowMs: HOUR_MS, clock } });
    await operated.put('running.png', 'running');
    await operated.run('pause');
    aheadMs = HOUR_MS;
    await operated.becomes('running.png', 'succeeded');
  });

  it('is reached in the same way through a stack', async () => {
    const operated = await Operated.forTest();
    await using stack = await deployedAs('paused', operated.pipeline);
    const deployment = await stack.connect();
    onTestFinished(() => deployment.close());
    expect(await pause(deployment, signal)).toMatchObject({ state: 'paused', isByUser: true });
    expect(await pause(deployment, signal)).toMatchObject({ state: 'paused' });
    expect(await resume(deployment, signal)).toMatchObject({ state: 'on' });
  });

  it('is a finding of doctor: a note on the first day, then a warning, and at last a fault', async () => {
    const operated = await Operated.forTest();
    await pause(operated.deployment, signal);
    const result = (deployment: Deployment) => checkOf('new flows', deployment);
    expect(await result(operated.deployment)).toEqual({
      check: 'new flows',
      result: 'note',
      what: 'The pipeline has been paused for 0 minutes: no new flows begin.',
      todo: 'Uploads wait in the queue, 14 days at most. To start new flows, run flowdrop resume.',
    });
    expect(await result(later(25 * HOUR_MS, operated.deployment))).toMatchObject({
      result: 'warning',
      what: expect.stringContaining('for 25 hours'),
      todo: expect.stringMatching(
        /If the pause began more than 14 days ago, then run flowdrop sweep --since <its first day>\.$/,
      ),
    });

    expect(await result(later(15 * 24 * HOUR_MS, operated.deployment))).toMatchObject({
      result: 'fault',
      todo: expect.stringMatching(/Then flowdrop sweep --since 20\S+Z submits the files that the queue has dropped\.$/),
    });

    const byLambda = await withMapping(operated, (method) =>
      method === 'GET' ? mapping('Disabled', { StateTransitionReason: 'LAMBDA_INITIATED' }) : mapping('Disabled'),
    );
    expect(await result(byLambda.deployment)).toMatchObject({
      result: 'fault',
      what: 'Lambda itself turned off the event source mapping, so no new flows begin.',
    });
    expect(await result({ ...operated.deployment, uploadMapping: undefined })).toMatchObject({ result: 'not checked' });
  });
});

describe('pausing', () => {
  it('waits for a change that is under way, and for the end of its own, which it orders once', async () => {
    const operated = await Operated.forTest();
    // The fifth is the answer to the order. The one after it is older than the order.
    const states = ['Enabling', 'Enabled', 'busy', 'Enabled', 'Disabling', 'Enabled', 'Disabling', 'Disabled'];
    const { deployment, asked } = await withMapping(operated, (_, count) => {
      const state = states[count - 1] ?? 'Disabled';
      return state === 'busy' ? { status: 400, body: { __type: 'ResourceInUseException' } } : mapping(state);
    });
    expect(await pause(deployment, signal)).toEqual({
      state: 'paused',
      since: '2020-09-13T12:26:40.000Z',
      isByUser: true,
    });
    const off = 'PUT {"Enabled":false}';
    expect(asked).toEqual(['GET', 'GET', off, 'GET', off, 'GET', 'GET', 'GET']);
  });

  it('does not undo a later change of another client', async () => {
    const operated = await Operated.forTest();
    const answers = [mapping('Enabled'), mapping('Disabling', { LastModified: 1.6e9 + 1 })];
    const { deployment, asked } = await withMapping(
      operated,
      (_, count) => answers[count - 1] ?? mapping('Enabled', { LastModified: 1.6e9 + 60 }),
    );
    await expect(pause(deployment, signal)).rejects.toThrow(
      'The pause was undone at 2020-09-13T12:27:40.000Z, most likely by another client.',
    );
    expect(asked).toEqual(['GET', 'PUT {"Enabled":false}', 'GET']);
  });

  it('says so if the stack has no output for it, and the state is not known', async () => {
    const operated = await Operated.forTest();
    const { operator } = operated.pipeline;
    await using stack = await deployedAs('old', operated.pipeline, { CollectFunction: operator.collectFunction });
    const deployment = await stack.connect();
    onTestFinished(() => deployment.close());
    await expect(pause(deployment, signal)).rejects.toThrow(
      /^No output UploadMapping of a stack names the event source mapping of the stack old in us-east-1\./,
    );
    expect(await intakeOf(deployment, signal)).toBeUndefined();
  });

  it('is an error for an operator who may not, and the state is not known', async () => {
    const operated = await Operated.forTest();
    const { deployment } = await withMapping(operated, () => ({
      status: 403,
      body: { __type: 'AccessDeniedException', Message: 'not authorized to perform: lambda:GetEventSourceMapping' },
    }));
    await expect(pause(deployment, signal)).rejects.toThrow('lambda:GetEventSourceMapping');
    expect(await intakeOf(deployment, signal)).toBeUndefined();
  });
});
