import { request as httpRequest } from 'node:http';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { listenOnLoopback } from '../../local/loopback.ts';
import type { Deployment } from '../../operations/deployment.ts';
import type { ServeOptions } from '../../page/server/serve-page.ts';
import { PATIENCE } from '../support/patience.ts';
import { messageOf, QUICK, serve, Visitor } from './support.ts';
import { visitWorld, World } from './world.ts';

vi.mock('../../operations/wait.ts', () => import('../operations/quick-wait.ts'));

const SECOND_MS = 1_000;
const DAY_MS = 86_400_000;

/** A Lambda whose event source mapping is in the state that a test says. */
async function mappedWorld(options: ServeOptions = {}): Promise<{
  visitor: Visitor;
  lambda: { state: string; since: number; looks: number; orders: string[] };
}> {
  const lambda = { state: 'Enabled', since: Date.now(), looks: 0, orders: [] as string[] };
  const server = await listenOnLoopback(async (request, response) => {
    let sent = '';
    for await (const chunk of request) sent += chunk;
    if (request.method === 'GET') lambda.looks += 1;
    if (request.method === 'PUT') {
      lambda.orders.push(sent);
      lambda.state = JSON.parse(sent).Enabled ? 'Enabling' : 'Disabling';
    }
    response.end(JSON.stringify({ UUID: 'any', State: lambda.state, LastModified: lambda.since / SECOND_MS }));
  });
  onTestFinished(() => server.close());
  const { deployment } = await World.start();
  const credentials = async () => ({ accessKeyId: 'fake', secretAccessKey: 'obviously-fake' });
  const access: Deployment['access'] = { region: 'us-east-1', credentials, endpoints: { lambda: server.url } };
  const { url } = await serve({ ...deployment, access, uploadMapping: 'any' }, options);
  return { visitor: await Visitor.open(url), lambda };
}

describe('a pause', () => {
  it('and its end are answered, and told to all who watch', async () => {
    // By itself the feed looks at the pipeline once.
    const { visitor, lambda } = await mappedWorld({ pace: { ...QUICK, statusMs: DAY_MS } });
    const watching = visitor.listen();
    const states = () => watching.heard.flatMap(({ name, data }) => (name === 'status' ? data.intake.state : []));
    await vi.waitFor(() => expect(states()).toEqual(['on']), PATIENCE);
    for (const [change, under, end, state] of [
      ['pause', 'Disabling', 'Disabled', 'paused'],
      ['resume', 'Enabling', 'Enabled', 'on'],
    ] as const) {
      const changed = visitor.post(`/api/${change}`, {});
      await vi.waitFor(() => expect(lambda.state).toBe(under), PATIENCE);
      lambda.state = end;
      const { status, json } = await changed;
      expect([status, json.intake.state]).toEqual([200, state]);
      expect(json).not.toHaveProperty('dropped');
      await vi.waitFor(() => expect(states().at(-1)).toBe(state), PATIENCE);
    }
  });

  it('goes on if the visitor leaves', async () => {
    const { visitor, lambda } = await mappedWorld();
    // Lambda refuses a change while another one is under way, so the order is still to come when the visitor leaves.
    lambda.state = 'Updating';
    const { hostname, port } = new URL(visitor.url);
    const leaving = httpRequest({ hostname, port, path: '/api/pause', method: 'POST', headers: visitor.headers });
    leaving.on('error', () => {});
    leaving.end('{}');
    const looksOn = async () => {
      const { looks } = lambda;
      await vi.waitFor(() => expect(lambda.looks).toBeGreaterThan(looks + 1), PATIENCE);
    };
    await looksOn();
    leaving.destroy();
    await looksOn();
    lambda.state = 'Enabled';
    await vi.waitFor(() => expect(lambda.orders).toEqual(['{"Enabled":false}']), PATIENCE);
  });

  it('is not undone by a visitor who resumes at the same time', async () => {
    const { visitor, lambda } = await mappedWorld();
    const pausing = [visitor.post('/api/pause', {}), visitor.post('/api/pause', {})];
    await vi.waitFor(() => expect(lambda.state).toBe('Disabling'), PATIENCE);
    const refused = await visitor.post('/api/resume', {});
    expect(refused.status).toBe(409);
    expect(messageOf(refused)).toContain('The pipeline is being paused');
    lambda.state = 'Disabled';
    for (const { status } of await Promise.all(pausing)) expect(status).toBe(200);
    // All who wanted the same shared one order.
    expect(lambda.orders).toEqual(['{"Enabled":false}']);
  });

  it('tells at its end since when the queue has dropped files', async () => {
    const { visitor, lambda } = await mappedWorld();
    lambda.state = 'Disabled';
    lambda.since = Math.floor((Date.now() - 15 * DAY_MS) / SECOND_MS) * SECOND_MS;
    const resuming = visitor.post('/api/resume', {});
    await vi.waitFor(() => expect(lambda.orders).toEqual(['{"Enabled":true}']), PATIENCE);
    lambda.state = 'Enabled';
    expect((await resuming).json).toMatchObject({
      intake: { state: 'on' },
      dropped: new Date(lambda.since).toISOString(),
    });
  });

  it('cannot be made where the queue is not known: the answer says what to do', async () => {
    const { visitor } = await visitWorld();
    for (const change of ['pause', 'resume']) {
      const refused = await visitor.post(`/api/${change}`, {});
      expect(refused.status).toBe(409);
      expect(messageOf(refused)).toContain('UploadMapping');
    }
  });
});
