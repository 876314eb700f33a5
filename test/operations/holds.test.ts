import { DeleteObjectCommand, PutObjectCommand } from '@aws-sdk/client-s3';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { HOLDS_KEY } from '../../functions/ledger/keys.ts';
import { LEDGER_BUCKET } from '../../local/pipeline.ts';
import type { Deployment } from '../../operations/deployment.ts';
import { changeHold, differences, holdsOf } from '../../operations/holds.ts';
import { issuesOf } from '../support/json-schema.ts';
import { PATIENCE } from '../support/patience.ts';
import { checkOf, later, Operated, ROUTES, signal } from './support.ts';

vi.mock('../../operations/wait.ts', () => import('./quick-wait.ts'));

const HOUR_MS = 3_600_000;

/** The deployment with other routes or another budget, as after a deployment. */
const withSettings = (deployment: Deployment, settings: Partial<Deployment['settings']>): Deployment => ({
  ...deployment,
  settings: { ...deployment.settings, ...settings },
});

it('two operators who pause each see the reason of the other, also before one of them resumes', async () => {
  const operated = await Operated.forTest();
  await operated.run('pause', '--why', 'The template is wrong');
  for (const why of ['Maintenance until six.', 'Maintenance until six.']) {
    const { output } = await operated.run('pause', '--why', why);
    expect(output).toMatch(/^The pipeline is paused\. The template is wrong\. Maintenance until six\.\n/);
  }
  expect((await operated.run('pause')).output).toContain('is wrong. Maintenance until six.\n');
  await operated.put('new.png', 'waiting');
  expect((await operated.run('resume')).errors).toMatch(
    /^The pipeline is paused\. The template is wrong\. Maintenance until six\. 1 file waits for the end of a pause/,
  );
});

describe('a paused pipeline', () => {
  it('keeps new and retried files in the ledger, where they can be cancelled, and collects the flows that run', async () => {
    let aheadMs = 0;
    let flowMs = HOUR_MS;
    const clock = { now: () => Date.now() + aheadMs };
    const operated = await Operated.forTest({ standIn: { flowMs: () => flowMs, clock } });
    const { standIn } = operated;
    await operated.putRefused('bad.png');
    await operated.put('running.png', 'running');
    expect(await operated.run('pause', '--why', 'The invoice is not paid.')).toMatchObject({
      code: 0,
      output:
        'The pipeline is paused. The invoice is not paid.\nFiles wait. Results are still collected.\nTo go on: npm run -s flowdrop -- resume\n',
    });
    aheadMs = HOUR_MS;
    await operated.becomes('running.png', 'succeeded');
    flowMs = 0;

    await operated.put('new.png', 'waiting');
    await operated.put('other.png', 'waiting');
    await operated.put('unwanted.png', 'waiting');
    expect(await operated.run('retry', 'bad.png', '--yes')).toMatchObject({
      code: 0,
      errors:
        'The pipeline is paused. The invoice is not paid. 1 flow waits until that ends. To go on: npm run -s flowdrop -- resume\n',
    });
    await vi.waitFor(async () => {
      const { output } = await operated.run('status');
      expect(output).toMatch(/ held +The pipeline is paused\. The invoice is not paid\. Since .* Files: 4\.\n/);
    }, PATIENCE);
    expect((await operated.run('status')).output).toContain('\nPipeline: To go on: npm run -s flowdrop -- resume\n');
    const { output } = await operated.run('status', 'new.png');
    expect(output).toContain('waits (paused) since');
    expect(output).toContain(': The pipeline is paused. The invoice is not paid.\n');
    expect(output).toContain('  To go on: npm run -s flowdrop -- resume\n');
    expect(output).not.toContain('next try');
    expect((await operated.run('explain', 'new.png')).output).toContain(
      'It would be held. The pipeline is paused. The invoice is not paid. To go on: npm run -s flowdrop -- resume\n',
    );
    expect((await operated.run('list', '--waiting', '--code', 'paused')).output).toMatch(
      /^new\.png .* held: The pipeline is paused\./m,
    );
    expect((await operated.run('cancel', 'unwanted.png', '--yes')).output).toMatch(/^unwanted\.png +cancelled/);

    // A tick may look at one of them at that moment.
    await vi.waitFor(async () => {
      expect(await operated.run('resume')).toMatchObject({
        code: 2,
        errors: expect.stringMatching(/3 files wait for the end of a pause, and may be paid for: 3 flows\. Resume\?/),
      });
    }, PATIENCE);
    expect(standIn.flows).toHaveLength(1);
    expect((await operated.run('resume', '--yes')).output).toBe('The pipeline goes on within a minute.\n');
    for (const key of ['new.png', 'other.png', 'bad.png']) await operated.becomes(key, 'succeeded');
    expect(standIn.flows).toHaveLength(4);
    expect((await operated.run('status')).output).not.toContain('held');
    expect(await operated.run('resume')).toMatchObject({ code: 0, output: 'The pipeline is not paused.\n' });
  });

  it('is a finding of doctor: a note on the first day, and then a warning', async () => {
    const { deployment } = await Operated.forTest();
    await changeHold({ action: 'pause' }, deployment, signal);
    expect(await checkOf('holds', deployment)).toEqual({
      check: 'holds',
      result: 'note',
      what: expect.stringMatching(/^The pipeline is paused\. For (less than a second|\d+ s)\.$/),
      todo: 'To go on: npm run -s flowdrop -- resume',
    });
    expect(await checkOf('holds', later(25 * HOUR_MS, deployment))).toMatchObject({ result: 'warning' });
  });
});

describe('a pause', () => {
  it('names the files that are being sent when it returns, which become flows, and no others', async () => {
    const answers = Promise.withResolvers<void>();
    const clock = { now: () => Date.now(), sleep: () => answers.promise };
    const operated = await Operated.forTest({ standIn: { flowMs: 0, clock } });
    await operated.put('done.png', 'succeeded');
    const reached = Promise.withResolvers<void>();
    operated.standIn.intercept = (_, { operation }) => {
      if (operation !== 'createFlow') return undefined;
      reached.resolve();
      return { delayMs: 1 };
    };
    await operated.upload('slow.png', 'slow');
    await reached.promise;
    const texts = await operated.run('pause', '--route', 'texts', '--json');
    expect(JSON.parse(texts.output)).toMatchObject({ result: 'paused', sending: { count: 0, isSample: false } });
    expect(issuesOf('holdAnswer', JSON.parse(texts.output))).toBe('');
    expect((await operated.run('pause', '--why', 'No money.')).output).toBe(
      'The pipeline is paused. No money.\n1 file is being sent, and may still become a flow.\n' +
        'Other files wait. Results are still collected.\nTo go on: npm run -s flowdrop -- resume\n',
    );
    expect(operated.standIn.flows).toHaveLength(1);
    await operated.put('waiting.png', 'waiting');
    answers.resolve();
    await operated.becomes('slow.png', 'succeeded');
    expect((await operated.run('pause')).output).not.toContain('being sent');
    expect(operated.standIn.flows).toHaveLength(2);
  });
});

describe('a paused route', () => {
  it('is named, with its own command', async () => {
    const operated = await Operated.forTest();
    expect(await operated.run('pause', '--route', 'nope')).toMatchObject({
      code: 1,
      output: 'There is no route nope. The routes are pictures, texts.\n',
    });
    await operated.run('pause', '--route', 'pictures');
    expect(await operated.run('resume')).toMatchObject({
      code: 1,
      output:
        'The pipeline is not paused.\nThe route pictures is paused.\n  To go on: npm run -s flowdrop -- resume --route pictures\n',
    });
  });

  it('holds also a file that waited for the service before, and says so in every place', async () => {
    const operated = await Operated.forTest();
    await operated.run('pause', '--route', 'pictures', '--why', 'Not now.');
    await operated.put('before.png', 'waiting');
    await operated.waitsInstead('before.png', { reason: 'throttled', message: 'create: 429: Too many.' });
    const { output } = await operated.run('status', 'before.png');
    expect(output).toMatch(/ {2}waits \(paused\) since .*: The route pictures is paused\. Not now\.\n/);
    expect(output).toContain('    before that: create: 429: Too many.\n');
    expect(output).toContain('  To go on: npm run -s flowdrop -- resume --route pictures\n');
    expect(output).not.toContain('next try');
    const { id, hold } = JSON.parse((await operated.run('status', 'before.png', '--json')).output);
    expect(hold).toMatchObject({ reason: 'paused', route: 'pictures' });
    expect((await operated.run('explain', id)).output).toContain('It would be held. The route pictures is paused.');
    expect((await operated.run('status')).output).toMatch(/ held +The route pictures is paused\..* Files: 1\.\n/);
    expect((await operated.run('status')).output).toMatch(/waiting +1 {2}\(1 paused\)/);
    expect((await operated.run('list', '--waiting', '--code', 'paused')).output).toMatch(
      /^before\.png .* held: The route pictures is paused\./m,
    );
    expect((await operated.run('list', '--waiting', '--code', 'throttled')).output).toBe(
      'No file matches these options.\n',
    );
    expect((await operated.run('resume', '--route', 'pictures')).errors).toMatch(/ 1 file waits/);

    // What waits for something that the operator must do says that.
    await operated.waitsInstead('before.png', { reason: 'unauthorised', message: 'create: 401' });
    expect((await operated.run('status', 'before.png')).output).toContain('waits (unauthorised) since');
    await operated.waitsInstead('before.png', { reason: 'undecided', message: 'It is unknown whether a flow exists.' });
    expect((await operated.run('status', 'before.png')).output).toContain('waits (undecided) since');
    expect((await operated.run('status')).output).toMatch(
      /\(1 undecided\)[\s\S]*Some wait for your decision: .* list --undecided/,
    );
    for (const words of [['--undecided'], ['--waiting', '--code', 'undecided']])
      expect((await operated.run('list', ...words)).output).toMatch(/^before\.png .*: It is unknown whether/m);
    await operated.waitsInstead('before.png', { reason: 'unavailable', message: 'create: 503' });
    expect((await operated.run('status', 'before.png')).output).toContain('waits (paused) since');
    await operated.run('resume', '--route', 'pictures', '--yes');
    expect((await operated.run('status', 'before.png')).output).not.toContain('paused');
  });

  it('that no deployment knows any more is a warning', async () => {
    const { deployment } = await Operated.forTest();
    await changeHold({ action: 'pause', route: 'texts' }, deployment, signal);
    expect(await checkOf('holds', withSettings(deployment, { routes: [] }))).toMatchObject({
      result: 'warning',
      what: expect.stringMatching(
        /^The route texts is paused\. For (less than a second|\d+ s)\. No route has this name any more\.$/,
      ),
    });
  });
});

describe('a budget', () => {
  const budget = { flows: 2, per: 'day', timezone: 'UTC' } as const;

  it('is shown with what is spent, and says when it goes on', async () => {
    const price = { amount: 0.4, currency: 'EUR' };
    const routes = ROUTES.map((route) => ({ ...route, price }));
    const operated = await Operated.forTest({
      routes,
      settings: { budget: { ...budget, amount: 5, currency: 'EUR' } },
    });
    for (const key of ['one.png', 'two.png']) await operated.put(key, 'succeeded');
    await operated.put('three.png', 'waiting');
    // A tick may go by what was spent a second before, and have it tried once more.
    const output = await vi.waitFor(async () => {
      const ran = await operated.run('status');
      expect(ran.output).toMatch(/ held +The pipeline has no room left in its budget\. Files: 1\.\n/);
      return ran.output;
    }, PATIENCE);
    expect(output).toMatch(
      / budget +2 of 2 flows spent, 0 left; 0\.80 of 5\.00 EUR spent, 4\.20 left: 100% in \S+ \(UTC\), which ends in \d+/,
    );
    const ending = /It goes on at \S+T00:00:00Z, or after a start with a higher budget\.\n/;
    expect(output).toMatch(ending);
    await vi.waitFor(async () => expect((await operated.run('status', 'three.png')).output).toMatch(ending), PATIENCE);
    expect(await checkOf('budgets', operated.deployment)).toMatchObject({
      result: 'warning',
      what: expect.stringMatching(
        /^100% of the budget of the pipeline is spent in .*\nthe budget of the pipeline: amount can never matter, because 2 flows cost 0\.80 EUR at most\.$/,
      ),
    });
  });

  it('that has room for the cheap route only holds the dear one', async () => {
    const { deployment } = await Operated.forTest();
    const [pictures, texts] = ROUTES.map((route, at) => ({ ...route, price: { amount: at + 1, currency: 'EUR' } }));
    if (pictures === undefined || texts === undefined) throw new Error();
    const dear = withSettings(deployment, {
      routes: [pictures, texts],
      budget: { amount: 1, currency: 'EUR', per: 'day', timezone: 'UTC' },
    });
    expect((await holdsOf(dear, signal)).holds).toMatchObject([{ reason: 'budget', route: 'texts' }]);
  });
});

describe('a route whose files fail alike', () => {
  it('says which customers they are of, what changed since its last success, what waits, and what to do', async () => {
    const [pictures, texts] = ROUTES;
    if (pictures === undefined || texts === undefined) throw new Error();
    const operated = await Operated.forTest();
    await operated.put('good.png', 'succeeded');
    operated.refuse(422);
    const bad = [...Array(21).keys()].map((n) => `${n < 11 ? 'anna' : 'ben'}/${n}.png`);
    for (const key of bad) await operated.upload(key, key);
    for (const key of bad) await operated.becomes(key, 'failed');
    const what = 'The last files of the route pictures failed alike: create: 422';
    const where = /They are in (anna\/ and in ben\/|ben\/ and in anna\/)\. What was submitted in bulk waits\./;
    const todo =
      'If the route is wrong, correct it and start again. The bulk goes on after a success, or at once: ' +
      'npm run -s flowdrop -- resume --route pictures. New files are sent as before. ' +
      'To stop them: npm run -s flowdrop -- pause --route pictures';
    const { deployment } = operated;
    const unasked = await operated.run('retry', '--failed');
    expect(unasked.errors).toContain(what);
    expect(unasked.errors).toContain(
      ` 21 flows wait until that ends. ${todo}\n21 files would be sent again, and may be paid for: 21 flows.`,
    );
    // Few files are no bulk.
    const few = JSON.parse((await operated.run('retry', 'anna/0.png', '--yes', '--json')).output);
    expect(few).not.toHaveProperty('held');
    expect(few).toMatchObject({ results: [{ key: 'anna/0.png', isDone: true }] });
    await operated.becomes('anna/0.png', 'failed');
    const { held, results } = JSON.parse((await operated.run('retry', '--failed', '--yes', '--json')).output);
    expect(held).toEqual([{ hold: expect.objectContaining({ reason: 'failing' }), count: 21, ending: todo }]);
    expect(issuesOf('change', { action: 'retry', results, held, left: [], skipped: [] })).toBe('');
    const output = await vi.waitFor(async () => {
      const ran = await operated.run('status');
      expect(ran.output).toContain(' Files: 21.\n');
      return ran.output;
    }, PATIENCE);
    expect(output).toContain(` ${what}`);
    expect(output).toMatch(where);
    expect(output).toContain(`Route pictures: ${todo}\n`);
    expect(issuesOf('status', JSON.parse((await operated.run('status', '--json')).output))).toBe('');
    expect((await operated.run('status', 'anna/0.png')).output).toContain(what);
    expect(JSON.parse((await operated.run('list', '--waiting', '--code', 'failing', '--json')).output)).toMatchObject({
      uploads: expect.objectContaining({ length: 21 }),
    });
    expect(await checkOf('holds', deployment)).toMatchObject({
      result: 'warning',
      what: expect.stringMatching(/The route has not changed since a file of it last succeeded\.$/),
      todo,
    });
    const changed = [{ ...pictures, template: 'bytes_ehco', parameters: { size: { width: 3 } } }, texts];
    expect(await checkOf('holds', withSettings(deployment, { routes: changed }))).toMatchObject({
      what: expect.stringMatching(
        /it has changed: template was "bytes_echo", and is "bytes_ehco"; parameters\.size\.width was absent, and is 3\.$/,
      ),
    });

    operated.refuse(undefined);
    expect(await operated.run('resume')).toMatchObject({
      code: 1,
      output: expect.stringMatching(/^The pipeline is not paused\.\nThe last files of the route pictures failed alike/),
    });
    expect(await operated.run('resume', '--route', 'pictures')).toMatchObject({
      errors: expect.stringContaining('21 files wait, and may be paid for: 21 flows. Resume?'),
    });
    expect(await operated.run('resume', '--route', 'pictures', '--yes')).toMatchObject({
      code: 0,
      output: 'The route pictures goes on within a minute.\n',
    });
    for (const key of bad) await operated.becomes(key, 'succeeded');
    expect(await holdsOf(deployment, signal)).toEqual({ holds: [], budgets: [] });
  });
});

it('holds that cannot be read are a fault, and status says that nothing is sent', async () => {
  const { pipeline, deployment, ...operated } = await Operated.forTest();
  const where = { Bucket: LEDGER_BUCKET, Key: HOLDS_KEY };
  await pipeline.s3.send(new PutObjectCommand({ ...where, Body: '{"schema": 99}' }));
  onTestFinished(async () => void (await pipeline.s3.send(new DeleteObjectCommand(where))));
  expect(operated).toBeDefined();
  expect(await checkOf('holds', deployment)).toMatchObject({
    result: 'fault',
    what: expect.stringMatching(/^state\/holds\.json has format 99 .* Until then, nothing is sent\.$/),
    todo: 'See docs/runbook.md, holds-unreadable.',
  });
});

it('the differences of two requests are named by their paths', () => {
  const was = { template: 'a', input: 'file', parameters: { same: [1], list: [1, 2], gone: {} } } as const;
  const is = { template: 'a', input: 'text', parameters: { same: [1], list: [1, 3], more: null } } as const;
  expect(differences(was, is)).toEqual([
    'input was "file", and is "text"',
    'parameters.list.1 was 2, and is 3',
    'parameters.gone was {}, and is absent',
    'parameters.more was absent, and is null',
  ]);
});
