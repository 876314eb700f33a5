import { createServer } from 'node:http';
import { describe, expect, it, vi } from 'vitest';
import type { Route } from '../../functions/uploads/route.ts';
import type { NotifyTarget } from '../../infra/notify.ts';
import { type Told, toldLine } from '../../local/notify.ts';
import { Operated, ROUTES } from '../operations/support.ts';
import { PATIENCE } from '../support/patience.ts';
import { listening, web } from '../support/servers.ts';

vi.mock('../../operations/wait.ts', () => import('../operations/quick-wait.ts'));

const QUEUE_ARN = 'arn:aws:sqs:eu-central-1:123456789012:orders';

/** What an address got. */
interface Got {
  readonly path: string | undefined;
  readonly headers: Readonly<Record<string, unknown>>;
  readonly event: {
    readonly id: string;
    readonly 'detail-type': string;
    readonly detail: { readonly upload?: object };
  };
}

/** An address that takes what is posted, and refuses what is posted to `/refusing`. */
async function hook(): Promise<{ readonly origin: string; readonly got: Got[] }> {
  const got: Got[] = [];
  const server = createServer(async (request, response) => {
    let body = '';
    for await (const chunk of request) body += chunk;
    const { method, url: path, headers } = request;
    expect(method).toBe('POST');
    got.push({ path, headers, event: JSON.parse(body) });
    response.writeHead(path === '/refusing' ? 401 : 204).end();
  });
  return { origin: `http://${await listening(server)}`, got };
}

/** A pipeline with these targets, and what it says of each event. */
async function telling(notify: readonly NotifyTarget[], more: Partial<Route> = {}) {
  const told: Told[] = [];
  const routes = [
    ...ROUTES.map((route) => ({ ...route, ...more })),
    { name: 'later', input: 'file', template: 'bytes_echo', after: 'texts' },
  ] as const;
  const operated = await Operated.forTest({ notify, routes, onTold: (each) => told.push(each) });
  return { operated, told };
}

const typesOf = (got: readonly Got[]) => got.map(({ path, event }) => `${path} ${event['detail-type']}`).sort();

describe('the targets of notify in a local run', () => {
  it('are told of the events that they want, in the form of EventBridge', async () => {
    const { origin, got } = await hook();
    const { operated, told } = await telling([
      { url: `${origin}/all` },
      { url: `${origin}/chains?of=mine`, events: ['Chain Succeeded', 'Chain Failed'] },
      { queueArn: QUEUE_ARN, events: ['Flow Succeeded'] },
    ]);
    await operated.put('one.png', 'succeeded');
    await operated.put('two.txt', 'succeeded');
    const expected = [
      '/all Chain Succeeded',
      ...Array(3).fill('/all Flow Succeeded'),
      '/chains?of=mine Chain Succeeded',
    ];
    await vi.waitFor(() => expect(typesOf(got)).toEqual(expected), PATIENCE);
    const first = got.find(({ event }) => JSON.stringify(event).includes('"one.png"'));
    expect(first).toMatchObject({
      headers: { 'content-type': 'application/json; charset=utf-8', 'x-flowdrop-pipeline': 'operated' },
      event: {
        ...{ version: '0', source: 'flowdrop', id: expect.any(String) },
        time: expect.stringMatching(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$/),
        detail: { pipeline: 'operated', upload: { key: 'one.png' }, results: { receiptKey: 'one.png/receipt.json' } },
      },
    });
    await vi.waitFor(() => expect(told).toHaveLength(8), PATIENCE);
    const lines = told.map(toldLine);
    expect(lines).toContain(`one.png  Flow Succeeded: told ${new URL(origin).host}`);
    expect(lines).toContain('one.png  Flow Succeeded: would go to the queue orders, which a local run does not reach');
  });

  it('are told of no file that a newer one has replaced', async () => {
    const { origin, got } = await hook();
    const { operated } = await telling([{ url: origin }], { settleSeconds: 1 });
    await operated.upload('one.png', 'one');
    await operated.put('one.png', 'succeeded', 'another');
    await vi.waitFor(async () => {
      const { output } = await operated.run('list', '--failed', '--json');
      expect(JSON.parse(output).uploads).toMatchObject([{ failure: { code: 'superseded' } }]);
    }, PATIENCE);
    await vi.waitFor(() => expect(typesOf(got)).toEqual(['/ Flow Succeeded']), PATIENCE);
  });

  it('get no header in place of their secret, which the run does not read', async () => {
    const { origin, got } = await hook();
    const headerSecret = 'arn:aws:secretsmanager:eu-central-1:123456789012:secret:hook-AbCdEf';
    const { operated } = await telling([{ url: origin, headerSecret, events: ['Flow Succeeded'] }]);
    await operated.put('one.png', 'succeeded');
    await vi.waitFor(() => expect(got).toHaveLength(1), PATIENCE);
    expect(got[0]?.headers).not.toHaveProperty('authorization');
    expect(got[0]?.headers).not.toHaveProperty('x-flowdrop-pipeline');
  });

  it('that refuse an event or cannot be reached are named, and files go on', async () => {
    const { origin } = await hook();
    const closed = createServer();
    const gone = await listening(closed);
    closed.close();
    const { operated, told } = await telling([{ url: `${origin}/refusing` }, { url: `http://${gone}` }]);
    await operated.put(`${'\ufffe'}one.png`, 'succeeded');
    await vi.waitFor(() => expect(told).toHaveLength(2), PATIENCE);
    const lines = told.map(toldLine).join('\n');
    expect(lines).toContain(`Flow Succeeded: ${new URL(origin).host} was not told: it answered 401`);
    expect(lines).toMatch(new RegExp(`Flow Succeeded: ${gone} was not told: .*ECONNREFUSED`));
  });
});

describe('flowdrop doctor --notify', () => {
  const checkIn = (output: string) =>
    JSON.parse(output).checks.find(({ check }: { readonly check: string }) => check === 'notify');

  it('sends a test event to all targets, whatever events they want', async () => {
    const { origin, got } = await hook();
    const { operated } = await telling([
      { url: origin, events: ['Chain Failed'] },
      { queueArn: QUEUE_ARN, events: ['Chain Failed'] },
    ]);
    const { output } = await operated.run('doctor', '--notify', '--json');
    expect(got.map(({ event }) => event['detail-type'])).toEqual(['Notification Test']);
    const { result, what } = checkIn(output);
    expect(result).toBe('good');
    expect(what).toContain('match it: 1 (an address), 2 (the queue orders).');
    expect(what).toContain(`look there for "Notification Test", id ${got[0]?.event.id}`);
  });

  it('says which target did not get it, and why, and exits with 1', async () => {
    const { origin, got } = await hook();
    const { operated } = await telling([{ url: origin }, { url: `${origin}/refusing` }]);
    const { output, code } = await operated.run('doctor', '--notify', '--json');
    expect(got).toHaveLength(2);
    expect([code, checkIn(output)]).toEqual([
      1,
      {
        ...{ check: 'notify', result: 'fault', todo: 'See docs/runbook.md, notify-failed.' },
        what: expect.stringMatching(
          /^Target 2 \(an address\) did not get the test event: SDK_CLIENT_ERROR: it answered 401\n.*match it: 1 \(an address\)\./,
        ),
      },
    ]);
  });

  it('warns of earlier events that did not arrive', async () => {
    let status = 500;
    const { origin } = await web((_, response) => void response.writeHead(status).end());
    const { operated, told } = await telling([{ url: origin }]);
    await operated.put('one.png', 'succeeded');
    await vi.waitFor(() => expect(told).toHaveLength(1), PATIENCE);
    status = 200;
    const { output } = await operated.run('doctor', '--notify', '--json');
    expect(checkIn(output)).toMatchObject({
      result: 'warning',
      what: expect.stringContaining('its dead-letter queue has 1. The test event is not among the first of them.'),
    });
  });

  it('checks nothing where nobody is to be told, and sends nothing without the option', async () => {
    const { operated, told } = await telling([]);
    expect(checkIn((await operated.run('doctor', '--notify', '--json')).output)).toMatchObject({
      result: 'not checked',
      what: expect.stringContaining('npm start was started without --notify'),
    });
    expect(checkIn((await operated.run('doctor', '--json')).output)).toBeUndefined();
    expect(told).toEqual([]);
  });
});
