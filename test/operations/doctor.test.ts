import { copyFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import {
  type NotificationConfiguration,
  PutBucketNotificationConfigurationCommand,
  PutObjectCommand,
  S3Client,
} from '@aws-sdk/client-s3';
import { afterAll, afterEach, beforeAll, describe, expect, it, onTestFinished, vi } from 'vitest';
import { running, runningMarkerOf, waiting, waitingMarkerOf } from '../../functions/ledger/entry.ts';
import { runningKey, type WaitingMarker, waitingKey } from '../../functions/ledger/keys.ts';
import { INBOX_BUCKET } from '../../local/pipeline.ts';
import { canaryOf, examineCanary } from '../../operations/canary.ts';
import type { Checked } from '../../operations/checks.ts';
import { CollectingFunction } from '../../operations/collecting-function.ts';
import type { Deployment } from '../../operations/deployment.ts';
import { World } from '../page/world.ts';
import { BUCKET, startS3 } from '../support/embedded-s3.ts';
import { PATIENCE } from '../support/patience.ts';
import { answering, web } from '../support/servers.ts';
import { deploymentAt } from './aws-answers.ts';
import { checkOf, deployedAs, later, Operated, runFlowdrop, signal, withEndpoints } from './support.ts';

vi.mock('../../operations/wait.ts', () => import('./quick-wait.ts'));

const MINUTE_MS = 60_000;
const HOUR_MS = 60 * MINUTE_MS;
const DAY_MS = 24 * HOUR_MS;

let operated: Operated;
/** The stack of the same pipeline. */
let deployed: Deployment;
/** The duration of a new flow, in milliseconds. */
let flowMs = 0;
const closing = new AsyncDisposableStack();
beforeAll(async () => {
  operated = closing.use(await Operated.start({ standIn: { flowMs: () => flowMs } }));
  const stack = closing.use(await deployedAs('flowdrop-test', operated.pipeline));
  deployed = await stack.connect();
  closing.defer(() => deployed.close());
  await vi.waitFor(async () => expect(await resultOf('ticks')).toEqual({ check: 'ticks', result: 'good' }), PATIENCE);
}, 180_000);
afterEach(() => operated.refuse(undefined));
afterAll(() => closing.disposeAsync());

/** What one check says, of the local run or of a deployment in its place. */
const resultOf = (check: string, deployment = operated.deployment) => checkOf(check, deployment);

/** From now on until the end of the test, the service answers a question for its templates so. */
function answerTemplates(fault: object): void {
  operated.standIn.intercept = (_, { operation }) => (operation === 'listTemplates' ? fault : undefined);
}

/** The local run with one route, which is its first one with these changes. */
function withRoute(changes: object): Deployment {
  const { deployment } = operated;
  const routes = deployment.settings.routes.slice(0, 1).map((each) => ({ ...each, ...changes }));
  return { ...deployment, settings: { ...deployment.settings, routes } };
}

describe('flowdrop doctor', () => {
  it('says that the functions use a proxy, whose login it does not know', async () => {
    const proxies = { http: new URL('http://me:fake@127.0.0.1:9') };
    const service = { url: 'http://127.0.0.1:1', token: 'fake-token', proxies };
    const { deployment, pipeline } = await Operated.forTest({ service });
    expect(pipeline.functions['create-flow'].environment).toMatchObject({ HTTP_PROXY: 'http://me:fake@127.0.0.1:9' });
    expect(deployment.settings.proxies.http?.href).toBe('http://127.0.0.1:9/');
    expect(await resultOf('the proxy', deployment)).toEqual({
      ...{ check: 'the proxy', result: 'good' },
      what: expect.stringMatching(/^Requests to 127\.0\.0\.1:1 go through the proxy http:\/\/127\.0\.0\.1:9, /),
    });
  });

  it('of a healthy run finds every check good', async () => {
    const { code, output } = await operated.run('doctor', '--json');
    const { checks } = JSON.parse(output);
    expect(checks).toHaveLength(18);
    // What only a deployment has is left out.
    const names = checks.map(({ check }: Checked) => check);
    for (const name of [
      'alarms',
      'alarms that are on',
      'hourly canary',
      'runs of create-flow',
      'errors of the functions',
    ])
      expect(names).not.toContain(name);
    expect(checks.filter(({ result }: Checked) => result !== 'good')).toEqual([]);
    expect(code).toBe(0);
    expect((await operated.run('doctor')).output).toMatch(/^the local run:\n {2}credentials and connection: good\n/);
  });

  it('prints a fault with what to do, and exits with 1', async () => {
    answerTemplates({ status: 401 });
    const { code, output } = await operated.run('doctor');
    expect(code).toBe(1);
    expect(output).toContain('  the flow service: fault\n    The service at http://');
    expect(output).toContain('\n    Store a valid token in the secret: see docs/runbook.md, token-rejected.\n');
    expect(output).toContain('templates of the routes: not checked, because the service does not say');
    expect(output).toMatch(/\n1 fault, 0 warnings, 1 not checked\n$/);
  });

  it('says so if there is no connection', async () => {
    const directory = fileURLToPath(new URL('.', import.meta.url));
    const { code, output } = await runFlowdrop(['doctor', '--local', '--json'], { directory });
    expect(code).toBe(1);
    expect(JSON.parse(output).checks).toEqual([
      {
        check: 'credentials and connection',
        result: 'fault',
        what: expect.stringContaining('No local run watches a folder'),
        todo: 'Then run the doctor again.',
      },
    ]);
  });
});

describe('the check of the service', () => {
  it('tells a wrong address', async () => {
    answerTemplates({ status: 302, headers: { location: 'https://example.com/login' } });
    expect(await resultOf('the flow service')).toMatchObject({
      result: 'fault',
      todo: 'Correct baseUrl, and deploy: see docs/runbook.md, service-misaddressed.',
    });
  });

  it('is not made if the operator may not ask the function', async () => {
    const denied = { 'x-amzn-errortype': 'AccessDeniedException' };
    const { origin } = await web(answering(403, { Message: 'not authorized' }, denied));
    const { access, collecting } = operated.deployment;
    // Without the agent of the run: this server stands for AWS, which proves nothing to it.
    const refused = new CollectingFunction(collecting.name, {
      ...access,
      endpoints: { lambda: origin },
      fetch: undefined,
    });
    const viewer = { ...operated.deployment, collecting: refused };
    expect(await resultOf('the flow service', viewer)).toMatchObject({
      result: 'not checked',
      what: expect.stringContaining('AWS does not allow you to look: lambda'),
    });
    expect(await resultOf('templates of the routes', viewer)).toMatchObject({ result: 'not checked' });
  });
});

describe('the check of the templates', () => {
  it('names a route whose template the service does not know', async () => {
    expect(await resultOf('templates of the routes', withRoute({ template: 'byte_echo' }))).toEqual({
      check: 'templates of the routes',
      result: 'fault',
      what: 'The service does not know the template byte_echo (route pictures).',
      todo: 'Correct the routes, and deploy. What there is: npm run -s flowdrop -- templates',
    });
  });

  it('names media types that the template does not take', async () => {
    const route = { template: 'model_generate_fromimage', mediaTypes: ['image/*', 'application/pdf'] };
    expect(await resultOf('templates of the routes', withRoute(route))).toMatchObject({
      result: 'warning',
      what: expect.stringContaining(
        'route pictures sends application/pdf, and model_generate_fromimage takes image/png',
      ),
      todo: 'Correct the media types of the route, or its template, and deploy.',
    });
  });

  it.each([
    ['note', { type: 'object', properties: { copies: { type: 'integer' } } }],
    ['warning', { type: 'object', properties: { copies: {} }, additionalProperties: false }],
    ['good', { type: 'object', properties: { copis: {} }, additionalProperties: false }],
    // These say nothing of names that are not listed.
    ['good', { copies: { type: 'integer' } }],
    ['good', [{ name: 'copies' }]],
    ['good', undefined],
  ])('compares the parameters with a JSON schema, and with nothing else: %s of %j', async (result, parameters) => {
    const body = JSON.stringify([{ name: 'bytes_echo', parameters }]);
    answerTemplates({ status: 200, headers: { 'content-type': 'application/json' }, body });
    const found = await resultOf('templates of the routes', withRoute({ parameters: { copis: 2 } }));
    expect(found?.result).toBe(result);
    if (result === 'good') return;
    expect(found?.what).toBe(
      'A template does not list a parameter that its route sends: route pictures sends copis, and bytes_echo lists copies.',
    );
  });

  const EUROS = { amount: 0.4, currency: 'EUR' };
  it.each([
    ['note', EUROS, undefined, 'route pictures names no price'],
    ['warning', EUROS, { amount: 0.3, currency: 'EUR' }, 'route pictures says 0.30 EUR'],
    ['warning', EUROS, { amount: 0.4, currency: 'USD' }, 'route pictures says 0.40 USD'],
    ['good', EUROS, EUROS, undefined],
    ['good', undefined, EUROS, undefined],
    // These do not say what is meant.
    ['good', 0.4, undefined, undefined],
    ['good', { credits: 3 }, undefined, undefined],
  ])(
    'compares prices that the service lists with those of the routes: %s of %j',
    async (result, listed, price, says) => {
      const body = JSON.stringify([{ name: 'bytes_echo', price: listed }]);
      answerTemplates({ status: 200, headers: { 'content-type': 'application/json' }, body });
      const found = await resultOf('templates of the routes', withRoute({ price }));
      expect(found?.result).toBe(result);
      if (says === undefined) return;
      expect(found?.what).toBe(`A flow of bytes_echo costs 0.40 EUR, as the service lists it, and ${says}.`);
      expect(found?.todo).toBe('Give the route "price": {"amount":0.4,"currency":"EUR"}, and deploy.');
    },
  );

  it('is not made if the routes are not known', async () => {
    const unknown = { ...operated.deployment, areRoutesKnown: false };
    expect(await resultOf('templates of the routes', unknown)).toMatchObject({ result: 'not checked' });
  });
});

it('a stack without alarms is warned of, and a local run needs none', async () => {
  expect(await resultOf('alarms')).toBeUndefined();
  expect(await resultOf('alarms', deployed)).toMatchObject({
    result: 'warning',
    what: 'There is no alarm of the pipeline operated, so trouble goes unnoticed.',
  });
});

it('a bucket that is gone is named', async () => {
  const { deployment } = operated;
  const lost = { ...deployment, settings: { ...deployment.settings, resultsBucket: 'lost' } };
  expect(await resultOf('outputs and resources', lost)).toMatchObject({
    result: 'fault',
    what: 'There is no bucket lost, which the functions use.',
  });
});

it('a bucket in another region is named', async () => {
  const body = '<Error><Code>AuthorizationHeaderMalformed</Code><Message>Use another endpoint.</Message></Error>';
  const { origin } = await web((_, response) => {
    response.writeHead(400, { 'content-type': 'application/xml', 'x-amz-bucket-region': 'eu-west-1' }).end(body);
  });
  const credentials = { accessKeyId: 'fake', secretAccessKey: 'fake' };
  const s3 = new S3Client({ region: 'us-east-1', endpoint: origin, forcePathStyle: true, credentials });
  onTestFinished(() => s3.destroy());
  expect(await resultOf('outputs and resources', { ...operated.deployment, s3 })).toMatchObject({
    result: 'fault',
    what: 'The bucket inbox is in another region than the pipeline, so S3 refuses the requests of the functions.',
  });
});

it('a dead-letter queue that the stack does not name is not called empty', async () => {
  const { operator } = operated.pipeline;
  await using stack = await deployedAs('nameless', operated.pipeline, { CollectFunction: operator.collectFunction });
  const nameless = await stack.connect();
  expect(await resultOf('outputs and resources', nameless)).toMatchObject({ result: 'note' });
  expect(await resultOf('dead letters', nameless)).toEqual({
    check: 'dead letters',
    result: 'not checked',
    what: 'no output DeadLetterQueue of a stack names the queue',
  });
  nameless.close();
});

describe('the check of the notifications', () => {
  const configure = (configuration: NotificationConfiguration) =>
    operated.pipeline.s3.send(
      new PutBucketNotificationConfigurationCommand({ Bucket: INBOX_BUCKET, NotificationConfiguration: configuration }),
    );
  const queueArn = (): string => {
    const [account, name] = new URL(deployed.settings.queueUrl).pathname.split('/').slice(-2);
    return `arn:aws:sqs:us-east-1:${account}:${name}`;
  };
  const toQueue = (prefix?: string): NotificationConfiguration => ({
    QueueConfigurations: [
      {
        QueueArn: queueArn(),
        Events: ['s3:ObjectCreated:*'],
        ...(prefix !== undefined && { Filter: { Key: { FilterRules: [{ Name: 'prefix', Value: prefix }] } } }),
      },
    ],
  });
  const sentence = async (deployment = deployed) => (await resultOf('notifications', deployment))?.what;

  it('finds a bucket that announces nothing, only some, or all to the queue', async () => {
    await configure({});
    expect(await sentence()).toMatch(
      /^The bucket inbox announces its uploads neither to the queue .* nor to EventBridge/,
    );
    expect((await resultOf('notifications', deployed))?.todo).toContain('--revert-drift');
    await configure(toQueue('elsewhere/'));
    expect(await sentence()).toBe('The bucket inbox announces only some of its uploads to the queue.');
    await configure(toQueue());
    expect(await resultOf('notifications', deployed)).toMatchObject({ result: 'good' });
  });

  it.each([
    ['eu-central-1', 'aws'],
    ['cn-north-1', 'aws-cn'],
    ['us-gov-west-1', 'aws-us-gov'],
    ['eusc-de-east-1', 'aws-eusc'],
  ])('knows the queue in %s by its ARN in the partition %s', async (region, partition) => {
    const arn = queueArn().replace('arn:aws:sqs:us-east-1', `arn:${partition}:sqs:${region}`);
    const announced = `<QueueConfiguration><Queue>${arn}</Queue><Event>s3:ObjectCreated:*</Event></QueueConfiguration>`;
    const statement = { Effect: 'Allow', Principal: { Service: 's3.amazonaws.com' }, Action: 'sqs:SendMessage' };
    const { origin } = await web((request, response) => {
      const isOfS3 = request.headers['x-amz-target'] === undefined;
      const attributes = { Attributes: { Policy: JSON.stringify({ Statement: [statement] }) } };
      const body = `<NotificationConfiguration>${announced}</NotificationConfiguration>`;
      response.end(isOfS3 ? body : JSON.stringify(attributes));
    });
    const credentials = { accessKeyId: 'fake', secretAccessKey: 'fake' };
    const s3 = new S3Client({ region, endpoint: origin, forcePathStyle: true, credentials });
    onTestFinished(() => s3.destroy());
    const there = withEndpoints({ ...deployed, s3, access: { ...deployed.access, region } }, { sqs: origin });
    expect(await resultOf('notifications', there)).toMatchObject({ result: 'good' });
  });

  it('finds a rule that is absent, off, or on', async () => {
    await configure({ EventBridgeConfiguration: {} });
    let names: readonly string[] = [];
    let state = 'DISABLED';
    const { origin } = await web((request, response) => {
      const isList = request.headers['x-amz-target'] === 'AWSEvents.ListRuleNamesByTarget';
      response.end(JSON.stringify(isList ? { RuleNames: names } : { State: state }));
    });
    const existing = withEndpoints(deployed, { events: origin });
    expect(await sentence(existing)).toMatch(/sends its events to EventBridge, and no rule brings them to the queue/);
    names = ['uploads'];
    expect(await sentence(existing)).toBe('The rule uploads, which brings uploads to the queue, is off.');
    state = 'ENABLED';
    expect(await resultOf('notifications', existing)).toMatchObject({ result: 'good' });
  });

  it('is not made if the operator may not see the rules', async () => {
    await configure({ EventBridgeConfiguration: {} });
    const denied = { __type: 'AccessDeniedException', message: 'no events:ListRuleNamesByTarget' };
    const { origin } = await web(answering(400, denied));
    expect(await resultOf('notifications', withEndpoints(deployed, { events: origin }))).toMatchObject({
      result: 'not checked',
      what: expect.stringContaining('no events:ListRuleNamesByTarget'),
    });
  });

  it('of a local run looks for the folder', async () => {
    const { deployment } = operated;
    const gone = { ...deployment, settings: { ...deployment.settings, localInbox: join(operated.directory, 'gone') } };
    expect(await sentence(gone)).toMatch(/^The folder .*gone, whose files are the uploads, is gone\.$/);
  });
});

describe('by the ledger', () => {
  const ago = (ms: number): number => Date.now() - ms;

  /** A stack whose ledger no function changes, and the state of its collector or of its sweep. */
  async function quiet(states: Readonly<Record<string, object>> = {}) {
    const world = await World.start();
    for (const [name, state] of Object.entries(states)) {
      await world.putObject(`state/${name}.json`, JSON.stringify(state));
    }
    const { access } = (await deploymentAt(() => '{}')).deployment;
    return { world, deployment: { ...world.deployment, isLocal: false, access } };
  }

  it.each([
    ['fault', /^All ticks were cut short for 41 min\.$/, () => ({ tickCompletedAt: ago(41 * MINUTE_MS) })],
    ['warning', /^No tick has come to its end yet\.$/, () => ({})],
    [
      'warning',
      /^Ticks are cut short: a round over the running flows began 3 h ago\.$/,
      () => ({ tickCompletedAt: ago(0), unfinishedRound: { startedAt: ago(3 * HOUR_MS), after: 'running/' } }),
    ],
  ])('the check of the ticks tells a %s: %s', async (result, what, state) => {
    const { deployment } = await quiet({ 'collector-0': { heldUntil: 0, ...state() } });
    expect(await resultOf('ticks', deployment)).toMatchObject({ result, what: expect.stringMatching(what) });
  });

  it('the check of the ticks tells that none runs any more, or that none ever ran', async () => {
    const { deployment } = await quiet({ 'collector-0': { heldUntil: 0, tickCompletedAt: Date.now() } });
    expect(await resultOf('ticks', deployment)).toMatchObject({ result: 'good' });
    expect(await resultOf('ticks', later(6 * MINUTE_MS, deployment))).toMatchObject({
      result: 'fault',
      what: 'No tick has run for 6 min.',
      todo: 'See docs/runbook.md, tick-missing.',
    });
    expect(await resultOf('ticks', (await quiet()).deployment)).toMatchObject({
      result: 'fault',
      what: expect.stringContaining('has ever run'),
    });
  });

  it.each([
    [0.2, 'warning'],
    [12, 'note'],
  ])('the pace of %s requests a second is a %s', async (requestsPerSecond, result) => {
    const pace = { requestsPerSecond, throttledAt: Date.now() };
    const { deployment } = await quiet({ 'collector-0': { heldUntil: 0, pace } });
    expect(await resultOf('pace', deployment)).toMatchObject({ result, what: expect.stringContaining(' a second.') });
  });

  it('words of the service that are not declared are a fault, once several polls in a row saw one', async () => {
    const twice = { word: 'queued', polls: 2 };
    const unclear = { a: { word: 'succeed', polls: 3 }, b: { word: 'succeed', polls: 40 }, c: twice };
    const { deployment } = await quiet({ 'collector-0': { heldUntil: 0, unclear } });
    expect(await resultOf('words of the service', deployment)).toMatchObject({
      result: 'fault',
      what: 'The service shows 2 flows as "succeed", a word that its description does not declare. Nothing of them is collected.',
      todo: expect.stringContaining('words-undeclared'),
    });
    const { deployment: other } = await quiet({ 'collector-0': { heldUntil: 0, unclear: { c: twice } } });
    expect(await resultOf('words of the service', other)).toMatchObject({ result: 'good' });
  });

  it.each([
    ['note', 'No daily sweep has ended yet.', undefined],
    ['fault', 'The last daily sweep ended 3 d ago, so missed uploads stay missed.', { age: 3 * DAY_MS, missed: 0 }],
    ['warning', /uploads that no notification told of: 3\.$/, { age: HOUR_MS, missed: 3 }],
    ['good', undefined, { age: HOUR_MS, missed: 0 }],
  ])('the check of the daily sweep tells a %s: %s', async (result, what, last) => {
    const endedAt = ago(last?.age ?? 0);
    const counts = { compared: 3, missed: last?.missed ?? 0, repaired: 0 };
    const ended = last && { daily: { since: 0, startedAt: endedAt, endedAt, counts } };
    const { deployment } = await quiet({ sweep: { schema: 6, firstDay: 0, watermark: 0, ended } });
    expect(await resultOf('daily sweep', deployment)).toMatchObject({
      result,
      ...(what !== undefined && { what: expect.stringMatching(what) }),
    });
  });

  it.each([5, 99])('format %i is a fault: of the state of the sweep, and of a running entry', async (format) => {
    const { world, deployment } = await quiet({ sweep: { schema: format, firstDay: 0 } });
    const ofSweep = new RegExp(
      `^state/sweep\\.json has format ${format} of the ledger: .* Until then, no sweep runs\\.$`,
    );
    const told = { result: 'fault', what: expect.stringMatching(ofSweep) };
    expect(await resultOf('format of the ledger', deployment)).toMatchObject(told);
    await world.putObject('state/sweep.json', '{"schema": 6}');
    expect(await resultOf('format of the ledger', deployment)).toMatchObject({ result: 'good' });
    const flow = { id: 'f', createdAt: world.now };
    const runs = running(world.claimed('long.png'), flow);
    await world.put({ ...runs, schema: format } as never);
    await world.putObject(runningKey(runningMarkerOf(runs.upload, flow)));
    expect(await resultOf('format of the ledger', deployment)).toMatchObject({
      result: 'fault',
      what: expect.stringMatching(new RegExp(`has format ${format} .* Until then, its upload does not go on\\.$`)),
      todo: 'See docs/runbook.md, entries-unreadable.',
    });
  });

  it('files that run or wait for long, that are undecided and that cannot be started are told of', async () => {
    const { world, deployment } = await quiet();
    const flow = { id: 'f', createdAt: world.now };
    const runs = running(world.claimed('long.png'), flow);
    await world.put(runs);
    await world.putObject(runningKey(runningMarkerOf(runs.upload, flow)));
    const waits = waiting(world.claimed('doubt.png'), {
      reason: 'undecided',
      message: '',
      notBefore: 1,
      counted: false,
    });
    await world.put(waits);
    await world.putObject(waitingKey(waitingMarkerOf(waits, { inboxPrefix: '', routes: [] }) as WaitingMarker));

    expect(await resultOf('oldest running', deployment)).toMatchObject({ result: 'good' });
    expect(await resultOf('oldest running', later(4 * DAY_MS, deployment))).toMatchObject({
      result: 'warning',
      what: 'The oldest running flow (of 1) began 4 d ago. At 7 d it counts as failed.',
    });
    expect(await resultOf('oldest waiting', later(2 * HOUR_MS, deployment))).toMatchObject({
      result: 'warning',
      what: 'The oldest waiting file (of 1) came 2 h ago (1 undecided).',
    });
    expect(await resultOf('undecided files', deployment)).toMatchObject({
      result: 'warning',
      what: 'Files wait for your decision, because a flow of each may exist: 1, such as doubt.png.',
    });
    expect(await resultOf('dead letters', { ...deployment, deadLetterCount: async () => 1 })).toMatchObject({
      result: 'fault',
      what: 'The dead-letter queue holds 1 upload that could not be started.',
    });
  });
});

it.each([
  [6 * MINUTE_MS, 'The clock of this machine is 6 min ahead of that of S3.'],
  [-7 * MINUTE_MS, /^The clock of this machine is [67] min behind that of S3\.$/],
])('a clock that is %d ms off is a fault', async (ms, what) => {
  expect(await resultOf('clocks', later(ms, operated.deployment))).toMatchObject({
    result: 'fault',
    what: expect.stringMatching(what),
  });
});

describe('the canary', () => {
  const sample = fileURLToPath(new URL('../../examples/robot.png', import.meta.url));
  const examined = (more: object = {}, deployment = operated.deployment) => {
    const file = canaryOf(sample, operated.deployment);
    if (file === undefined) throw new Error('No route takes it');
    return examineCanary({ ...file, ...more }, deployment, signal);
  };

  it('is followed to its receipt, and costs nothing without an answer', async () => {
    const flows = () => operated.standIn.flows.length;
    const paid = flows();
    copyFileSync(sample, join(operated.directory, 'robot.png'));
    const words = ['doctor', '--canary', 'robot.png'];
    expect(await operated.run(...words)).toMatchObject({
      code: 2,
      errors: expect.stringContaining('would be uploaded, and paid for'),
    });
    expect(flows()).toBe(paid);
    expect((await operated.run(...words, '--yes')).output).toContain('\n  canary: good\n');
    expect(flows()).toBe(paid + 1);
    expect(await operated.run('doctor', '--canary', 'none.png', '--yes')).toMatchObject({ code: 2 });

    operated.refuse(422);
    const failed = await operated.run(...words, '--yes');
    expect(failed.code).toBe(1);
    expect(failed.output).toMatch(/canary: fault\n {4}The canary canary-\S+\/robot\.png failed: rejected: .*422/);
  });

  it('whose receipt is not where it belongs is a fault', async () => {
    const { deployment } = operated;
    const elsewhere = { ...deployment, settings: { ...deployment.settings, resultsPrefix: 'elsewhere/' } };
    expect(await examined({}, elsewhere)).toMatchObject({
      severity: 'fault',
      what: expect.stringMatching(/^The canary canary-\S+ ended, and there is no receipt of it\.$/),
    });
  });

  it('that S3 refuses is not called good, and the reason may be a policy that demands encryption headers', async () => {
    const { client: s3 } = await startS3({ authorize: ({ action }) => action !== 's3:PutObject' });
    const settings = { ...operated.deployment.settings, inboxBucket: BUCKET };
    const refusing = { ...operated.deployment, s3, settings };
    const denied = 'AWS does not allow you to put the file: Access Denied.';
    expect(await examined({}, refusing)).toEqual({
      notChecked: expect.stringMatching(`^${denied} If a policy .* set deployment.encryptionHeader`),
    });
    expect(await examined({}, { ...refusing, settings: { ...settings, encryption: {} } })).toEqual({
      notChecked: denied,
    });
  });

  it('has a key that a route takes, below the prefix of the route', () => {
    expect(canaryOf(sample, withRoute({ prefixes: ['photos/'] }))?.key).toMatch(/^photos\/canary-[^/]+\/robot\.png$/);
    expect(canaryOf(sample, withRoute({ suffixes: ['.zip'] }))).toBeUndefined();
  });

  it('that does not end in time, or waits for the operator, is a fault', async () => {
    flowMs = HOUR_MS;
    expect(await examined({ withinMs: 1_000 })).toMatchObject({
      severity: 'fault',
      what: expect.stringContaining('has not ended within 1 s.'),
    });
    operated.refuse(401);
    expect(await examined()).toMatchObject({
      severity: 'fault',
      what: expect.stringMatching(/^The canary canary-\S+ waits: .*401/),
    });
  });
});

describe('the check of the hourly canary', () => {
  const CHECK = 'hourly canary';
  const KEY = 'canary/robot.png';
  const withCanary = (canaryKey = KEY, routes = deployed.settings.routes): Deployment => ({
    ...deployed,
    settings: { ...deployed.settings, canaryKey, routes },
  });
  const put = (bytes: number) =>
    operated.deployment.s3.send(new PutObjectCommand({ Bucket: INBOX_BUCKET, Key: KEY, Body: Buffer.alloc(bytes, 1) }));

  it('is good without the setting, and not made in a local run, which puts none', async () => {
    expect(await resultOf(CHECK, deployed)).toEqual({ check: CHECK, result: 'good' });
    const local = { ...operated.deployment, settings: { ...operated.deployment.settings, canaryKey: KEY } };
    expect(await resultOf(CHECK, local)).toBeUndefined();
  });

  it('finds a file that is absent, too large, or taken by no route', async () => {
    expect(await resultOf(CHECK, withCanary('none.png'))).toEqual({
      check: CHECK,
      result: 'fault',
      what: 'The canary inbox/none.png is not there, so none is put again, and the alarm canary-missing is raised.',
      todo: 'Put it once: aws s3 cp <file> s3://inbox/none.png',
    });
    await put(1_048_577);
    expect((await resultOf(CHECK, withCanary()))?.what).toBe(
      'The canary inbox/canary/robot.png has 1048577 bytes, and may have 1048576.',
    );
    await put(5);
    expect(await resultOf(CHECK, withCanary())).toEqual({ check: CHECK, result: 'good' });
    const { routes } = withRoute({ suffixes: ['.zip'] }).settings;
    expect((await resultOf(CHECK, withCanary(KEY, routes)))?.what).toMatch(
      /^No flow is made of the canary inbox\/canary\/robot\.png\. No route takes this file/,
    );
  });
});
