import type { PutObjectCommandInput } from '@aws-sdk/client-s3';
import { describe, expect, it } from 'vitest';
import { createFlows } from '../../functions/create-flow/batch.ts';
import type { Entry } from '../../functions/ledger/entry.ts';
import type { Route } from '../../functions/uploads/route.ts';
import { viewOf } from '../../operations/upload-view.ts';
import { dyingAt, ECHO, HOUR, INBOX, LEDGER, MINUTE, start, type WorldOptions, world } from '../support/world.ts';

const JOBS: Route = { ...ECHO, name: 'views', jobs: 'multi/' };
/** A job file of this route may have parameters. */
const OPEN_JOBS: Route = { ...JOBS, overrides: true };
const JOB = 'multi/chair/job.json';

/** A deadline that no test comes to. */
const LONG = { deadlineSeconds: 30 * 24 * 3_600 };

/** The files have words in place of pictures. No plain answer may have these under the type of a picture. */
const open = (options: WorldOptions = {}) =>
  start({ routes: [JOBS, ECHO], service: { variation: { assetForm: 'json' } }, ...options });
const jobFile = (inputs: readonly unknown[], more: object = {}) => JSON.stringify({ inputs, ...more });
const putJob = (inputs: readonly unknown[], more?: object) => world.upload(JOB, jobFile(inputs, more));
const put = (name: string, body = name) => world.upload(`multi/chair/${name}`, body);
const entries = async (): Promise<readonly Entry[]> => world.entries();
const entry = async (): Promise<Entry> => (await entries())[0] as Entry;
const states = async () => (await entries()).map(({ state }) => state);
const wait = async () => {
  const { state, reason, message, job } = (await entry()) as Extract<Entry, { state: 'waiting' }>;
  return { state, reason, message, missing: job?.missing };
};
const failure = async () => {
  const found = await entry();
  return 'failure' in found ? found.failure : undefined;
};
/** The keys of the files that each flow got, in their order. */
const sent = () =>
  world.service.flows.map(({ inputs }) => inputs.map(({ additional }) => Object(additional).key as string | undefined));
const keys = (...names: readonly string[]) => names.map((name) => `multi/chair/${name}`);

describe('a job', () => {
  it('sends its files and texts as the inputs of one flow, in the order of the job file', async () => {
    await open({ routes: [OPEN_JOBS] });
    await put('front.png', 'the front');
    await put('sides/left.png', 'the left');
    await putJob(['sides/left.png', { text: 'oak, matt' }, { name: 'front.png', additional: { view: 'front' } }], {
      parameters: { copies: 1 },
    });
    await world.deliverAll();
    const [flow, ...others] = world.service.flows;
    expect(others).toEqual([]);
    expect(flow).toMatchObject({
      template: 'bytes_echo',
      parameters: { copies: 1 },
      inputs: [
        { bytes: 8, additional: { bucket: INBOX, key: 'multi/chair/sides/left.png' } },
        { bytes: 9, mediaType: 'text/plain', additional: {} },
        { bytes: 9, additional: { bucket: INBOX, key: 'multi/chair/front.png', view: 'front' } },
      ],
    });
  });

  it('ends with a receipt that names the versions that were sent', async () => {
    await open();
    await put('front.png');
    await putJob(['front.png', { text: 'oak' }]);
    await world.settle();
    const { inputs, status, upload } = await world.receipt(JOB);
    expect([status, upload.key]).toEqual(['succeeded', JOB]);
    const { versionId } = Object(world.service.flows[0]?.inputs[0]?.additional);
    expect(inputs).toMatchObject([{ bucket: INBOX, key: 'multi/chair/front.png', versionId, bytes: 9 }]);
  });

  it.each([
    ['the job first', ['job.json', 'front.png', 'back.png']],
    ['the job last', ['front.png', 'back.png', 'job.json']],
    ['the job between', ['front.png', 'job.json', 'back.png']],
    ['the job last, the files in another order', ['back.png', 'front.png', 'job.json']],
  ])('begins when all are there: %s', async (_, order) => {
    await open();
    for (const name of order) {
      expect(world.service.flows).toEqual([]);
      if (name === 'job.json') await putJob(['front.png', 'back.png']);
      else await put(name);
      await world.deliverAll();
    }
    expect(sent()).toEqual([keys('front.png', 'back.png')]);
  });

  it('begins once, if all of its messages come at once and many times', async () => {
    await open();
    const names = Array.from({ length: 12 }, (_, index) => `${index}.png`);
    await putJob(names);
    const job = world.takeMessages();
    for (const name of names) await put(name);
    const messages = [...world.takeMessages(), ...world.takeMessages(), ...job];
    for (const message of [...messages, ...messages]) world.queue.send(message);
    for (let i = 0; i < 5; i += 1) {
      await world.deliverAll();
      world.clock.advance(3 * MINUTE);
    }
    expect(sent()).toEqual([keys(...names)]);
    expect(world.queue.counts()).toEqual({ visible: 0, inFlight: 0, delayed: 0 });
  });

  it('names what is missing while it waits, and again when one input has come', async () => {
    await open();
    await putJob(['front.png', 'back.png', { name: 'top.png', optional: true }]);
    await world.deliverAll();
    expect(await wait()).toEqual({
      state: 'waiting',
      reason: 'inputs',
      message: 'Missing inputs: front.png, back.png.',
      missing: ['front.png', 'back.png'],
    });
    await put('front.png');
    await world.deliverAll();
    expect((await wait()).missing).toEqual(['back.png']);
  });

  it.each([
    ['an input', 'back.png'],
    ['an optional input', { name: 'back.png', optional: true }],
  ])('waits for the content of %s that is empty, as a mounted bucket puts it first', async (_, back) => {
    await open();
    await putJob(['front.png', back]);
    await put('back.png', '');
    await put('front.png');
    await world.deliverAll();
    expect(await wait()).toMatchObject({
      message: 'Missing inputs: back.png. back.png is empty.',
      missing: ['back.png'],
    });
    await put('back.png');
    await world.deliverAll();
    expect(sent()).toEqual([keys('front.png', 'back.png')]);
  });

  it('fails at its deadline if an input is still empty, and takes its content when it is retried', async () => {
    await open();
    await put('front.png', '');
    await putJob(['front.png']);
    await world.deliverAll();
    world.clock.advance(HOUR + MINUTE);
    await world.settle();
    expect(await failure()).toMatchObject({
      code: 'inputs-missing',
      message: expect.stringMatching(/^1 input was not there by .*: front\.png\. front\.png is empty\.$/),
    });
    await put('front.png');
    await world.retry();
    await world.settle();
    expect(sent()).toEqual([keys('front.png')]);
  });

  it.each<[string, Partial<Route>, string | Uint8Array, Partial<PutObjectCommandInput>]>([
    ['input-encoded', {}, 'x', { ContentEncoding: 'gzip' }],
    ['input-blank', { input: 'text' }, ' ', {}],
    ['invalid-text', { input: 'text' }, Uint8Array.of(0xff), {}],
  ])('says that it takes a corrected input when it is retried: %s', async (code, route, body, how) => {
    await open({ routes: [{ ...JOBS, ...route }] });
    await world.upload('multi/chair/front.png', body, how);
    await putJob(['front.png']);
    await world.settle();
    expect((await world.receipt(JOB)).failure).toMatchObject({
      code,
      advice: expect.stringMatching(/\. Then retry the job\.$/),
      retry: expect.stringContaining(' retry '),
    });
    expect(viewOf(await entry(), world.ports.settings).failure?.canRetryHelp).toBe(true);
    await put('front.png');
    await world.settle();
    expect(sent()).toEqual([]);
    await world.retry();
    await world.settle();
    expect(sent()).toEqual([keys('front.png')]);
  });

  it('takes an optional input that is there, and begins without one that is not', async () => {
    await open();
    await put('top.png');
    await putJob([{ name: 'side.png', optional: true }, 'front.png', { name: 'top.png', optional: true }]);
    await put('front.png');
    await world.deliverAll();
    expect(sent()).toEqual([keys('front.png', 'top.png')]);
  });

  it('takes the versions that are current when it begins, and no later ones', async () => {
    await open({ service: { limits: { places: 1 } } });
    await world.send('busy', 'x');
    await put('front.png', 'first');
    await put('front.png', 'second one');
    await putJob(['front.png']);
    await world.deliverAll();
    await put('front.png', 'the third one');
    await world.settle();
    const job = world.service.flows.filter(({ inputs }) => Object(inputs[0]?.additional).key !== 'busy');
    expect(job.map(({ inputs }) => inputs[0]?.bytes)).toEqual([10]);
  });

  it('is not begun again by an input that is put again, but by a new job file', async () => {
    await open({ routes: [OPEN_JOBS] });
    await put('front.png');
    await putJob(['front.png']);
    await world.settle();
    await put('front.png', 'another one');
    await world.settle();
    expect(world.service.flows).toHaveLength(1);
    await putJob(['front.png'], { parameters: { copies: 2 } });
    await world.settle();
    expect(world.service.flows.map(({ inputs }) => inputs[0]?.bytes)).toEqual([9, 11]);
  });

  it('fails as superseded if a newer job file comes while it waits', async () => {
    await open();
    await putJob(['frnot.png']);
    await world.deliverAll();
    world.clock.advance(2_000);
    await putJob(['front.png']);
    await put('front.png');
    await world.deliverAll();
    expect(sent()).toEqual([keys('front.png')]);
    expect((await states()).sort()).toEqual(['failed', 'running']);
    await world.settle();
    expect((await entries()).map((each) => ('failure' in each ? each.failure.code : each.state)).sort()).toEqual([
      'succeeded',
      'superseded',
    ]);
    expect((await world.receipt(JOB)).status).toBe('succeeded');
    expect(world.service.flows).toHaveLength(1);
  });

  it.each([
    ['cannot be used', '{ not JSON', 'failed', 'invalid-job'],
    ['has no content', '', 'failed', 'invalid-job'],
    ['is too large', ' '.repeat(256 * 1024 + 1), 'failed', 'invalid-job'],
    ['waits too', jobFile(['back.png'], LONG), 'waiting', 'inputs'],
  ])('fails as superseded if a newer job file comes that %s', async (_, content, state, why) => {
    await open();
    await putJob(['front.png'], LONG);
    await world.deliverAll();
    const older = (await entry()).upload.id;
    world.clock.advance(2_000);
    await world.upload(JOB, content);
    await world.deliverAll();
    const ends = (await entries()).map((each) => [
      each.upload.id === older,
      each.state,
      'failure' in each ? each.failure.code : Object(each).reason,
    ]);
    expect(ends).toEqual([
      [true, 'failed', 'superseded'],
      [false, state, why],
    ]);
    await put('front.png');
    await world.deliverAll();
    expect(world.service.flows).toEqual([]);
  });

  it('fails as superseded if S3 refuses to hand out the newer job file', async () => {
    await open();
    await putJob(['front.png'], LONG);
    await world.deliverAll();
    world.clock.advance(2_000);
    let isDenied = false;
    world.beforeS3((call, { Key }) => {
      if (isDenied || call !== 'GetObject' || Key !== JOB) return;
      isDenied = true;
      throw Object.assign(new Error('Denied'), { name: 'AccessDenied', $metadata: { httpStatusCode: 403 } });
    });
    await putJob(['front.png']);
    await world.deliverAll();
    expect((await states()).sort()).toEqual(['failed', 'waiting']);
  });

  it('fails as superseded also if the invocation dies that receives the newer job file', async () => {
    await open();
    await putJob(['front.png'], LONG);
    await world.deliverAll();
    world.clock.advance(2_000);
    await world.upload(JOB, '{ not JSON');
    const revive = dyingAt(world.ports.ledger, 'create');
    await world.deliver().catch(() => {});
    revive();
    await world.deliverAndTick(2, 20 * MINUTE);
    expect(await states()).toEqual(['failed', 'failed']);
  });

  it('may be the first stage of a chain', async () => {
    await open({ routes: [JOBS, { ...ECHO, name: 'next', after: 'views' }] });
    await put('front.png');
    await putJob(['front.png']);
    await world.settle();
    const ended = (await entries()).map(({ route, state }) => `${route.name} ${state}`);
    expect(ended.sort()).toEqual(['next succeeded', 'views succeeded']);
    expect((await world.keys('results')).filter((key) => key.endsWith('chain.json'))).toEqual([`${JOB}/chain.json`]);
  });
});

describe('an input that comes while its job looks', () => {
  it('is not missed', async () => {
    await open();
    await putJob(['front.png']);
    let delivered: Promise<unknown> | undefined;
    world.beforeS3(async (call, { Bucket, Body = '' }) => {
      if (delivered !== undefined || call !== 'PutObject' || Bucket !== LEDGER) return;
      if (!`${Body}`.includes('"reason":"inputs"')) return;
      // The job has looked in vain. It goes on while the message of its input waits for it.
      await put('front.png');
      delivered = world.deliver();
      await world.clock.sleep(100);
    });
    await world.deliver();
    await delivered;
    expect(sent()).toEqual([keys('front.png')]);
  });

  it('begins nothing, if another invocation has taken the job over', async () => {
    await open();
    await put('front.png');
    await putJob(['front.png']);
    world.beforeS3(async (call, { Key }) => {
      if (call !== 'HeadObject' || Key !== keys('front.png')[0]) return;
      const { upload, ...facts } = await entry();
      await world.put(LEDGER, `uploads/${upload.id}.json`, JSON.stringify({ upload, ...facts, claimedAt: 0 }));
    });
    expect((await world.deliver())?.batchItemFailures).toHaveLength(1);
    expect(world.service.flows).toEqual([]);
  });
});

describe('a job whose inputs do not come', () => {
  it('fails at its deadline, with a receipt that names them', async () => {
    await open();
    await putJob(['front.png', 'back.png'], { deadlineSeconds: 600 });
    await put('front.png');
    await world.deliverAll();
    await world.deliverAndTick(2, 5 * MINUTE + 1_000);
    await world.deliverAll();
    const { status, failure } = await world.receipt(JOB);
    expect([status, failure?.code]).toEqual(['failed', 'inputs-missing']);
    expect(failure?.message).toMatch(/^1 input was not there by .*: back\.png\.$/);
    expect(world.service.flows).toEqual([]);
  });

  it('does not fail for one that came while it looked, even if its deadline has passed meanwhile', async () => {
    await open();
    // They are looked up eight at a time, so the last one is looked up after the first.
    const others = Array.from({ length: 9 }, (_, index) => `${index}.png`);
    for (const name of others) await put(name);
    world.takeMessages();
    await putJob(['front.png', ...others], { deadlineSeconds: 1 });
    let isLate = false;
    world.beforeS3(async (call, { Key }) => {
      if (isLate || call !== 'HeadObject' || Key !== keys('8.png')[0]) return;
      isLate = true;
      await put('front.png');
      world.clock.advance(2_000);
    });
    await world.deliver();
    expect(isLate).toBe(true);
    expect((await wait()).missing).toEqual(['front.png']);
    await world.deliverAll();
    expect(sent()).toEqual([keys('front.png', ...others)]);
  });

  it.each([
    ['of the route', { ...JOBS, deadlineSeconds: 7_200 }, {}, 2 * HOUR],
    ['of the job file before that of the route', { ...JOBS, deadlineSeconds: 7_200 }, { deadlineSeconds: 60 }, MINUTE],
    ['of an hour, if neither says it', JOBS, {}, HOUR],
  ])('has the deadline %s', async (_, route, more, ms) => {
    await open({ routes: [route] });
    await putJob(['front.png'], more);
    await world.deliverAll();
    const { job, arrivedAt } = await entry();
    expect(job && job.deadline - arrivedAt).toBe(ms);
  });

  it('is sent when it is retried after they have come, with a deadline of its own', async () => {
    await open();
    await putJob(['front.png']);
    await world.deliverAll();
    await world.tickAfter(HOUR);
    await world.deliverAll();
    expect((await failure())?.code).toBe('inputs-missing');
    await world.retry();
    await world.deliverAll();
    expect((await wait()).missing).toEqual(['front.png']);
    expect((await entry()).job?.deadline).toBeGreaterThan(world.clock.now() + 59 * MINUTE);
    await put('front.png');
    await world.deliverAll();
    expect(sent()).toEqual([keys('front.png')]);
  });

  it('begins at its deadline, if only the message of its last input was lost', async () => {
    await open();
    await putJob(['front.png']);
    await world.deliverAll();
    await put('front.png');
    world.takeMessages();
    await world.tickAfter(HOUR);
    await world.deliverAll();
    expect(sent()).toEqual([keys('front.png')]);
  });

  it('looks at its deadline, if its file was deleted while it waited', async () => {
    await open();
    await putJob(['front.png']);
    await world.deliver();
    await world.remove(JOB);
    await put('front.png');
    await world.deliver();
    expect(await states()).toEqual(['waiting']);
    await world.tickAfter(HOUR);
    await world.deliver();
    expect(sent()).toEqual([keys('front.png')]);
  });

  it('counts its deadline from when its message came into the queue', async () => {
    await open();
    await putJob(['front.png'], { deadlineSeconds: 60 });
    const [body = ''] = world.takeMessages();
    const attributes = { SentTimestamp: `${world.clock.now() - 5_000}` };
    await world.invoke((invocation) =>
      createFlows({ Records: [{ messageId: '1', body, attributes }] }, world.ports, invocation),
    );
    expect((await entry()).job?.deadline).toBe(world.clock.now() + 55_000);
  });

  it('counts no attempt, and lengthens no backoff, however often it looks', async () => {
    await open();
    await putJob(['front.png', 'back.png', 'top.png']);
    await world.deliver();
    for (const name of ['front.png', 'back.png']) {
      await put(name);
      await world.deliver();
    }
    expect(await entry()).toMatchObject({ state: 'waiting', reason: 'inputs', attempts: 0, waits: 0 });
  });

  it('tries again if its inputs could not be looked up', async () => {
    await open();
    await put('front.png');
    await putJob(['front.png']);
    let isBroken = true;
    world.beforeS3((call, { Key }) => {
      if (isBroken && call === 'HeadObject' && Key === keys('front.png')[0]) throw new Error('S3 is broken');
    });
    await world.deliverAll();
    expect(await entry()).toMatchObject({ state: 'waiting', reason: 'unavailable', attempts: 1 });
    isBroken = false;
    await world.tickAfter(3 * MINUTE);
    await world.deliver();
    expect(sent()).toEqual([keys('front.png')]);
  });

  it('waits again if an input is deleted before the last one comes', async () => {
    await open();
    await put('front.png');
    await putJob(['front.png', 'back.png']);
    await world.deliverAll();
    await world.remove(keys('front.png')[0] as string);
    await put('back.png');
    await world.deliverAll();
    expect((await wait()).missing).toEqual(['front.png']);
    await put('front.png');
    await world.deliverAll();
    expect(sent()).toEqual([keys('front.png', 'back.png')]);
  });

  it('is retried with other parameters, if its route allows that', async () => {
    await open({ routes: [OPEN_JOBS] });
    await putJob(['front.png'], { deadlineSeconds: 60, parameters: { copies: 3 } });
    await world.deliver();
    await world.tickAfter(2 * MINUTE);
    await world.deliver();
    await put('front.png');
    await world.deliver();
    expect(await world.retry({ parameters: { copies: 2 } })).toBe('resubmitted');
    await world.deliver();
    expect(world.service.flows).toMatchObject([{ parameters: { copies: 2 }, inputs: [{ bytes: 9 }] }]);
  });

  it('is an upload like any other, if no route has jobs when it is retried', async () => {
    await open();
    await putJob(['front.png'], { deadlineSeconds: 60 });
    await world.deliver();
    await world.tickAfter(2 * MINUTE);
    await world.deliver();
    world.redeploy({ routes: [ECHO] });
    await world.retry();
    await world.deliver();
    expect(sent()).toEqual([[JOB]]);
    expect((await entry()).job).toBeUndefined();
  });

  it('costs a tick no request, however many wait', async () => {
    await open();
    for (let i = 0; i < 50; i += 1) await world.upload(`multi/${i}/job.json`, jobFile(['front.png']));
    await world.deliverAll();
    const calls: string[] = [];
    world.beforeS3((call, { Key = '' }) => calls.push(`${call} ${Key}`));
    await world.tick();
    expect(calls.filter((call) => call.includes('uploads/'))).toEqual([]);
  });

  it('ends with the operator who cancels it, and takes all inputs anew in a retry', async () => {
    await open();
    await putJob(['front.png']);
    await world.deliverAll();
    const { id } = (await entry()).upload;
    expect(await world.collect({ cancel: [id] })).toMatchObject([{ result: 'cancelled' }]);
    await put('front.png');
    await world.deliverAll();
    expect(await states()).toEqual(['failed']);
    await world.retry();
    await world.deliverAll();
    expect(sent()).toEqual([keys('front.png')]);
  });
});

describe('a name in a job', () => {
  /** As macOS writes it, and with the blank in the names of its screenshots. */
  const DECOMPOSED = 'vorne-u\u0308.png';
  const COMPOSED = 'vorne-\u00fc.png';

  it.each([
    ['decomposed, for a composed name', COMPOSED, DECOMPOSED],
    ['composed, for a decomposed name', DECOMPOSED, COMPOSED],
    ['with U+202F for a space', 'um 10.15 pm.png', 'um 10.15\u202fpm.png'],
    ['with a space for U+00A0', 'a\u00a0b.png', 'a b.png'],
    ['in a folder', `vo\u0308rn/${COMPOSED}`, `v\u00f6rn/${DECOMPOSED}`],
  ])('fits a file that is written in another form: %s', async (_, name, file) => {
    await open();
    await putJob([{ text: 'oak' }, name]);
    await world.deliverAll();
    expect(await wait()).toMatchObject({ message: `Missing inputs: ${name}.` });
    await put(file);
    await world.deliverAll();
    expect(sent()).toEqual([[undefined, ...keys(file)]]);
    await world.settle();
    expect((await world.receipt(JOB)).inputs).toMatchObject([{ key: `multi/chair/${file}` }]);
  });

  it('fits such a file that came first, also if the input is optional', async () => {
    await open();
    await put(DECOMPOSED);
    await put('a.png');
    await putJob(['a.png', { name: COMPOSED, optional: true }]);
    await world.deliverAll();
    expect(sent()).toEqual([keys('a.png', DECOMPOSED)]);
  });

  it('fits the file with exactly this name, if there is one', async () => {
    await open();
    for (const name of [COMPOSED, DECOMPOSED]) await put(name);
    await putJob([DECOMPOSED, COMPOSED]);
    await world.deliverAll();
    expect(sent()).toEqual([keys(DECOMPOSED, COMPOSED)]);
  });

  it('does not fit a file that another name of the job fits exactly', async () => {
    await open();
    await put(COMPOSED);
    await putJob([DECOMPOSED, COMPOSED]);
    await world.deliverAll();
    expect(await wait()).toMatchObject({ state: 'waiting', missing: [DECOMPOSED] });
  });

  it('is a mistake if it fits two files, and neither exactly: both are named', async () => {
    await open();
    for (const blank of ['\u00a0', '\u202f']) await put(`a${blank}b.png`);
    await putJob(['a b.png']);
    await world.deliverAll();
    expect(await failure()).toEqual({
      code: 'invalid-job',
      message: String.raw`job.json names "a b.png", and "a\u00a0b.png" and "a\u202fb.png" fit. Name one of them exactly as it is.`,
    });
    expect(world.service.flows).toEqual([]);
  });

  it.each([
    ['vorne.png', 'vorne.PNG'],
    ['Vorne/a.png', 'vorne/a.png'],
    ['vorne links.png', 'vorne%20links.png'],
    ['vorne%20links.png', 'vorne links.png'],
    ['\u00fc.png', 'U\u0308.PNG'],
    ['links\\vorne.png', 'links/vorne.png'],
  ])('that differs only in case, in an encoded blank or in a backslash is said to: %s, %s', async (name, file) => {
    for (const order of [
      [name, file],
      [file, name],
    ]) {
      await open();
      for (const each of order) await (each === name ? putJob([name]) : put(file));
      await world.deliverAll();
      const message = `Missing inputs: ${name}. ${file} is there; the job names ${name}.`;
      expect(await wait()).toMatchObject({ message, missing: [name] });
    }
    world.clock.advance(2 * HOUR);
    await world.settle();
    expect(await failure()).toMatchObject({
      code: 'inputs-missing',
      message: expect.stringContaining(`${file} is there; the job names ${name}.`),
    });
  });
});

describe('a job in a folder of thousands of files', () => {
  it('compares the name of each of them once, however many inputs are missing', async () => {
    await open({ isVirtual: true });
    const files = 4_000;
    const long = '%20'.repeat(300);
    for (let i = 0; i < files; i += 1) await put(`${i}${long}`);
    for (let taken = 0; taken < files; ) taken += world.takeMessages().length;
    const processorMs = async (missing: number): Promise<number> => {
      await putJob(Array.from({ length: missing }, (_, index) => `${index} is missing${long}`));
      const from = process.cpuUsage();
      await world.deliver();
      const { user, system } = process.cpuUsage(from);
      return (user + system) / 1_000;
    };
    const one = await processorMs(1);
    // Meanwhile, this invocation sends nothing of others.
    expect(await processorMs(32)).toBeLessThan(2 * one + 200);
    expect((await entries()).filter(({ state }) => state === 'waiting')).toHaveLength(1);
  });
});

describe('a job that cannot be sent', () => {
  it('says all that is wrong with its file at once, with path and value', async () => {
    await open();
    await putJob(['../a.png', { name: 'b.png', txt: 'x' }, { text: '' }, 7], { deadlineSeconds: 0, paramters: {} });
    await world.deliverAll();
    const { code, message = '' } = (await failure()) ?? {};
    expect(code).toBe('invalid-job');
    for (const part of [
      'job.json cannot be used: (1) inputs[0]: expected the name of a file in the folder of the job.json',
      'and no job.json, got "../a.png"',
      'inputs[1].txt: unknown',
      'Did you mean text?',
      'inputs[2].text: expected a text that is not empty, got ""',
      'inputs[3]: expected the name of a file, or an object with "name" or "text", got 7',
      'deadlineSeconds: expected a whole number of seconds from 1 to 2592000, got 0',
      'paramters: unknown',
      'Did you mean parameters?',
    ]) {
      expect(message).toContain(part);
    }
    const { retry } = (await world.receipt(JOB)).failure ?? {};
    expect(retry).toBeUndefined();
  });

  it('fails if a number of it would be sent with other digits', async () => {
    await open({ routes: [OPEN_JOBS] });
    await world.send(
      JOB,
      '{"inputs": [{"name": "a", "additional": {"n": 1e400}}], "parameters": {"seed": 653247040368672771}}',
    );
    const { message = '' } = (await world.receipt(JOB)).failure ?? {};
    expect(message).toContain('(1) inputs[0].additional.n: expected no number beyond 2^53');
    expect(message).toContain('(2) parameters: expected no number beyond 2^53');
    expect(world.service.counts.createFlow ?? 0).toBe(0);
  });

  it('fails if a text of it has half a character, which no receiver may take', async () => {
    await open({ routes: [OPEN_JOBS] });
    const inputs = String.raw`[{"name": "a", "additional": {"\udc00": 1}}, {"text": "oak \ud83d"}]`;
    await world.send(JOB, String.raw`{"inputs": ${inputs}, "parameters": {"list": [{"seed": "\ud83d"}]}}`);
    const { message = '' } = (await world.receipt(JOB)).failure ?? {};
    for (const place of ['(1) inputs[0].additional.', '(2) inputs[1].text', '(3) parameters']) {
      expect(message).toContain(place);
    }
    expect(message.match(/expected whole characters/g)).toHaveLength(3);
    expect(world.service.counts.createFlow ?? 0).toBe(0);
    // A whole one may be written as two escapes.
    await world.send('multi/whole/job.json', String.raw`{"inputs": [{"text": "\ud83d\ude00"}]}`);
    expect(await states()).toEqual(expect.arrayContaining(['failed', 'running']));
  });

  const deep = (depth: number) => '['.repeat(depth) + ']'.repeat(depth);
  it.each([
    ['parameters', (json: string) => `{"inputs": ["a"], "parameters": ${json}}`],
    ['additional of an input', (json: string) => `{"inputs": [{"name": "a", "additional": {"a": ${json}}}]}`],
    ['inputs', (json: string) => `{"inputs": ${json}}`],
    ['a member that no job has', (json: string) => `{"inputs": ["a"], "more": ${json}}`],
    ['the whole of it', (json: string) => json],
  ])('fails with its receipt if it is nested deeper than a stack: %s', async (_, content) => {
    await open({ routes: [OPEN_JOBS] });
    await world.upload('multi/0/job.json', content(deep(4_457)));
    await world.upload('multi/1/job.json', content(deep(130_000)));
    await world.deliverAll();
    expect(world.queue.counts()).toEqual({ visible: 0, inFlight: 0, delayed: 0 });
    for (const each of await entries()) {
      expect(each).toMatchObject({ state: 'failed', failure: { code: 'invalid-job' }, isTold: true });
      const { failure, upload } = await world.receipt(each.upload.key);
      expect([failure?.message.length, upload.id]).toEqual([
        expect.toSatisfy((length) => length < 400),
        each.upload.id,
      ]);
    }
    expect(await entries()).toHaveLength(2);
  });

  it.each<[string, (count: number) => string]>([
    ['members', (count) => `{"inputs":["a"]${Array.from({ length: count }, (_, i) => `,"m${i}":1`).join('')}}`],
    [
      'members of an input',
      (count) => `{"inputs":[{"text":"a"${Array.from({ length: count }, (_, i) => `,"m${i}":1`).join('')}}]}`,
    ],
    [
      'long members',
      (count) =>
        `{"inputs":["a"]${Array.from({ length: count / 1_000 }, (_, i) => `,"m${i}${'m'.repeat(9_000)}":1`).join('')}}`,
    ],
  ])('tells ten of its 20,000 mistakes, and how many more there are: %s', async (_, contentOf) => {
    await open();
    await world.upload(JOB, contentOf(20_000));
    await world.deliverAll();
    const { code, message = '' } = (await failure()) ?? {};
    expect(code).toBe('invalid-job');
    expect(message).toMatch(/^job\.json cannot be used: \(1\) .*; \(10\) .*; and (19,990|10) more$/);
    expect(message.length).toBeLessThan(8_000);
    const [entryKey = ''] = await world.keys(LEDGER, 'uploads/');
    const stored = [await world.object(LEDGER, entryKey), await world.object('results', `${JOB}/receipt.json`)];
    for (const { bytes } of stored) expect(bytes.length).toBeLessThan(20_000);
    expect(world.events.map(({ detail }) => Buffer.byteLength(JSON.stringify(detail)) < 20_000)).toEqual([true]);
  });

  it.each([{ copies: 3 }, null, 'text', {}])('has parameters %j, and its route no overrides', async (parameters) => {
    await open();
    await put('front.png');
    await putJob(['front.png', 7], { parameters });
    await world.deliverAll();
    const { code, message } = (await failure()) ?? {};
    expect(code).toBe('invalid-job');
    expect(message).toMatch(/\(1\) inputs\[1\]: .*; \(2\) parameters: expected none, because the route views does not/);
    world.redeploy({ routes: [{ ...OPEN_JOBS, parameters: { copies: 1 } }] });
    await putJob(['front.png'], { parameters: { copies: 2 } });
    await world.deliverAll();
    expect(world.service.flows).toMatchObject([{ parameters: { copies: 2 } }]);
  });

  it.each([
    ['is no JSON', '{"inputs": [', /^job\.json is not JSON in UTF-8: /],
    ['is empty', '', /^job\.json is not JSON in UTF-8: /],
    ['is too large', `"${'x'.repeat(256 * 1024)}"`, /^job\.json has 262146 bytes, and at most 262144 are read\.$/],
    [
      'names an input twice',
      jobFile(['a', { name: 'a' }]),
      /inputs\[1\]: expected a name that inputs\[0\] does not have/,
    ],
    ['has only optional inputs', jobFile([{ name: 'a', optional: true }]), /at least one input that is not optional/],
    ['has a name that is too long', jobFile(['a'.repeat(1_020)]), /inputs\[0\]: expected a name that makes a key of/],
    ['has too many inputs', jobFile(Array.from({ length: 33 }, (_, i) => `${i}`)), /a list of 1 to 32 inputs/],
    ['has neither name nor text', jobFile([{ optional: true }]), /inputs\[0\]: expected either "name" or "text"/],
    ['has an optional text', jobFile([{ text: 'a', optional: true }]), /expected "optional" only beside "name"/],
  ])('fails with its receipt if the file %s', async (_, content, message) => {
    await open();
    await world.upload(JOB, content);
    await world.deliverAll();
    expect(await failure()).toMatchObject({ code: 'invalid-job', message: expect.stringMatching(message) });
    expect((await world.receipt(JOB)).status).toBe('failed');
  });

  it.each([
    ['input-encoded', 'The job file is compressed (Content-Encoding: gzip)', { ContentEncoding: 'gzip' }],
    ['input-encoded', 'The job file was put as a form', { ContentType: 'multipart/form-data; boundary=x' }],
  ])('fails with its receipt if the file is none by itself: %s, %s', async (code, message, given) => {
    await open();
    await world.upload(JOB, jobFile(['a']), given);
    await world.deliverAll();
    expect(await failure()).toMatchObject({ code, message: expect.stringContaining(message) });
  });

  it.each([
    ['is compressed (Content-Encoding: br)', { ContentEncoding: 'br' }],
    ['The input multi/chair/a was put as a form', { ContentType: 'multipart/form-data' }],
  ])('fails with its receipt if an input of it is no file by itself: %s', async (message, given) => {
    await open();
    await world.upload(JOB.replace('job.json', 'a'), 'x', given);
    await world.upload(JOB, jobFile(['a']));
    await world.deliverAll();
    expect(await failure()).toMatchObject({ code: 'input-encoded', message: expect.stringContaining(message) });
    expect(world.service.flows).toEqual([]);
  });

  it('is never sent as a file of its own, if its retry is cut off between two writes', async () => {
    await open();
    await world.upload(JOB, '{"inputs": [');
    await world.deliverAll();
    await world.retry();
    let cutOff = 0;
    world.beforeS3(async (call, { Body = '' }) => {
      if (call !== 'PutObject' || cutOff > 0 || !`${Body}`.includes('"state":"failed"')) return;
      cutOff += 1;
      throw new Error('Simulated: cut off');
    });
    await world.deliver();
    expect(cutOff).toBe(1);
    await world.deliverAndTick(4, 10 * MINUTE);
    await world.deliverAll();
    expect(world.service.flows).toEqual([]);
    expect(await entry()).toMatchObject({ state: 'failed', generation: 2, failure: { code: 'invalid-job' } });
  });

  it('fails if one of its inputs is too large, and names that', async () => {
    await open({ settings: { inputBytesMax: 10 } });
    await put('a.png', 'small');
    await put('b.png', 'this is too large');
    await world.upload(JOB, jobFile(['a.png', 'b.png']));
    await world.deliverAll();
    expect(await failure()).toEqual({
      code: 'input-too-large',
      message: 'The input multi/chair/b.png has 17 bytes, and at most 10 are sent as file.',
    });
  });

  it.each([
    ['the job file', JOB],
    ['an input', 'multi/chair/a.png'],
  ])('fails if %s was archived while it waited', async (_, archived) => {
    await open();
    await putJob(['a.png', 'b.png'], LONG);
    await put('a.png');
    await world.deliverAll();
    world.beforeS3((call, { Key }) => {
      if (call !== 'GetObject' || Key !== archived) return;
      throw Object.assign(new Error('Archived'), { name: 'InvalidObjectState', $metadata: { httpStatusCode: 403 } });
    });
    await put('b.png');
    await world.deliverAll();
    expect((await failure())?.code).toBe('input-archived');
  });

  it('fails if an input that it has taken is gone before it is sent, and a retry takes the present one', async () => {
    await open({ versioning: undefined });
    await put('a.png', 'first');
    await putJob(['a.png']);
    world.fault('createFlow', { status: 503 });
    await world.deliverAll();
    world.service.intercept = undefined;
    await put('a.png', 'second');
    await world.deliverAndTick(5, 20 * MINUTE);
    expect(await failure()).toMatchObject({ code: 'input-gone' });
    await world.retry();
    await world.deliverAll();
    expect(world.service.flows.map(({ inputs }) => inputs[0]?.bytes)).toEqual([6]);
  });

  it('is sent once, in the versions that it had taken, after an outage', async () => {
    await open();
    await put('a.png', 'first');
    await putJob(['a.png', { text: 'oak' }]);
    world.fault('createFlow', { status: 503 }, 3);
    await world.deliverAll();
    await put('a.png', 'second');
    await world.deliverAndTick(5, 20 * MINUTE);
    await world.settle();
    expect(world.service.flows.map(({ inputs }) => inputs.map(({ bytes }) => bytes))).toEqual([[5, 3]]);
  });
});

describe('an invocation that dies', () => {
  const DEATHS = (['create', 'putWaitingMarker', 'replace', 'putRunningMarker'] as const).flatMap((method) =>
    [1, 2, 3, 4, 5, 6].map((at) => [method, at] as const),
  );
  it.each(DEATHS)(
    'at %s, call %i, loses no job, and nothing is in doubt before its inputs are written',
    async (method, at) => {
      await open({ settings: { inDoubt: 'ask' } });
      const revive = dyingAt(world.ports.ledger, method, at);
      await putJob(['front.png', 'back.png'], LONG);
      await world.deliver().catch(() => {});
      await put('front.png');
      await world.deliver().catch(() => {});
      await put('back.png');
      await world.deliver().catch(() => {});
      revive();
      await world.deliverAndTick(8, 20 * MINUTE);
      expect(sent()).toEqual([keys('front.png', 'back.png')]);
      expect(await states()).toEqual(['succeeded']);
    },
  );

  it('while the job looks leaves no doubt, because nothing was sent', async () => {
    await open();
    await put('front.png');
    await putJob(['front.png']);
    const revive = dyingAt(world.ports.ledger, 'replace');
    await world.deliver();
    revive();
    world.clock.advance(3 * MINUTE);
    await world.deliver();
    expect(sent()).toEqual([keys('front.png')]);
  });

  it('is followed by one that sends the job alone, by the message of its input', async () => {
    await open();
    await putJob(['front.png']);
    await world.deliver();
    await put('front.png');
    const revive = dyingAt(world.ports.ledger, 'replace', 2);
    await world.deliver();
    revive();
    world.clock.advance(3 * MINUTE);
    await world.upload('another', 'x');
    await world.deliver();
    expect(sent()).toEqual([['another'], keys('front.png')]);
  });

  it('before a retry has its route leaves no doubt, because nothing was sent', async () => {
    await open({ settings: { inDoubt: 'ask' } });
    await putJob(['front.png'], { deadlineSeconds: 60 });
    await world.deliver();
    await world.tickAfter(2 * MINUTE);
    await world.deliver();
    await put('front.png');
    await world.deliver();
    await world.retry();
    const revive = dyingAt(world.ports.ledger, 'replace', 2);
    await world.deliver();
    revive();
    expect(await entry()).toMatchObject({ state: 'claimed', reroute: true });
    world.clock.advance(3 * MINUTE);
    await world.deliver();
    expect(sent()).toEqual([keys('front.png')]);
  });

  it('after the service refused the job loses no job', async () => {
    await open();
    await putJob(['front.png'], LONG);
    await world.deliver();
    await put('front.png');
    world.fault('createFlow', { status: 503 }, 1);
    const revive = dyingAt(world.ports.ledger, 'putWaitingMarker');
    await world.deliver();
    revive();
    await world.deliverAndTick(8, 20 * MINUTE);
    expect(await states()).toEqual(['succeeded']);
  });

  it('before the receipt of a failed job is out loses no receipt', async () => {
    await open({ settings: { inputBytesMax: 3 } });
    await putJob(['front.png'], LONG);
    await world.deliver();
    await put('front.png', 'too large');
    const revive = dyingAt(world.ports.ledger, 'putFailedMarker');
    await world.deliver();
    revive();
    await world.deliverAndTick(1, 20 * MINUTE);
    await world.deliverAll();
    expect(await entry()).toMatchObject({ state: 'failed', failure: { code: 'input-too-large' }, isTold: true });
  });
});

describe('a file below the prefix of jobs', () => {
  it('is nobody’s upload if no job names it', async () => {
    await open();
    await put('notes.txt');
    await world.deliverAll();
    await putJob(['front.png']);
    await put('other.txt');
    await world.deliverAll();
    expect((await entries()).map(({ upload }) => upload.key)).toEqual([JOB]);
    expect(await world.keys(LEDGER, 'uploads/')).toHaveLength(1);
    expect(world.service.flows).toEqual([]);
  });

  it('may be eight folders below its job, and no deeper', async () => {
    const deep = '1/2/3/4/5/6/7/8/a.png';
    await open();
    await putJob([deep]);
    await world.deliver();
    await put(deep);
    await put(`9/${deep}`);
    await world.deliver();
    expect(sent()).toEqual([keys(deep)]);
  });

  it('wakes the jobs of all folders above it that wait for it', async () => {
    await open();
    await world.upload('multi/job.json', jobFile(['a/b/c.png']));
    await world.upload('multi/a/job.json', jobFile(['b/c.png']));
    await world.upload('multi/a/b/job.json', jobFile(['d.png']));
    await world.deliverAll();
    await world.upload('multi/a/b/c.png');
    await world.deliverAll();
    expect(sent()).toEqual([['multi/a/b/c.png'], ['multi/a/b/c.png']]);
  });

  it('is logged with the upload and the flow of each job alone, and at last with those of none', async () => {
    await open();
    await world.upload('multi/job.json', jobFile(['a/b.png', 'c.png']));
    await world.upload('multi/a/job.json', jobFile(['b.png']));
    await world.deliverAll();
    const logged = world.logged.length;
    await world.upload('multi/a/b.png');
    await world.deliverAll();
    const idOf = async (key: string) => (await entries()).find(({ upload }) => upload.key === key)?.upload.id;
    const [inner, outer] = [await idOf('multi/a/job.json'), await idOf('multi/job.json')];
    const flowId = world.service.flows[0]?.id;
    const lines = world.logged.slice(logged).map(({ message, fields }) => ({
      message,
      uploadId: fields.uploadId,
      flowId: fields.flowId,
    }));
    expect(lines).toEqual([
      { message: 'The service has made a flow', uploadId: inner, flowId },
      { message: 'Flow created', uploadId: inner, flowId },
      { message: 'The upload waits', uploadId: outer, flowId: undefined },
      { message: 'An input of jobs, or a file that no job names', uploadId: undefined, flowId: undefined },
    ]);
  });

  it('leads to no job files outside of the inbox, which the function may not read', async () => {
    const authorize = ({ action, resource }: { readonly action: string; readonly resource: string }) => {
      const isRead = action === 's3:ListBucketVersions' || action.startsWith('s3:GetObject');
      return !isRead || !resource.includes(`:::${INBOX}`) || resource.includes(`:::${INBOX}/multi/in/`);
    };
    await open({ settings: { inboxPrefix: 'multi/in/' }, s3: { authorize } });
    await world.upload('multi/in/a/job.json', jobFile(['b.png']));
    await world.deliver();
    await world.upload('multi/in/a/b.png');
    expect((await world.deliver())?.batchItemFailures).toEqual([]);
    expect(sent()).toEqual([['multi/in/a/b.png']]);
  });

  it.each([
    ['nearest', 'multi/a/job.json'],
    ['farthest', 'multi/job.json'],
  ])('wakes the other job, if the entry of the %s one cannot be read', async (_, damaged) => {
    await open();
    await world.upload('multi/job.json', jobFile(['a/b.png']));
    await world.upload('multi/a/job.json', jobFile(['b.png']));
    await world.deliverAll();
    const { upload } = (await entries()).find((each) => each.upload.key === damaged) as Entry;
    await world.put(LEDGER, `uploads/${upload.id}.json`, '{}');
    await world.upload('multi/a/b.png');
    const { batchItemFailures } = (await world.deliver()) ?? {};
    expect(sent()).toEqual([['multi/a/b.png']]);
    // It would fail at each delivery, and the marker of the damaged job tells of it.
    expect(batchItemFailures).toEqual([]);
    expect(world.logged.filter(({ level }) => level === 'error')).toMatchObject([{ fields: { uploadId: upload.id } }]);
  });

  it('comes again if a newer version has written the entry of the job', async () => {
    await open();
    await world.upload('multi/a/job.json', jobFile(['b.png']));
    await world.deliverAll();
    const [{ upload } = {} as Entry] = await entries();
    await world.put(LEDGER, `uploads/${upload.id}.json`, '{"schema":99}');
    await world.upload('multi/a/b.png');
    expect((await world.deliver())?.batchItemFailures).toHaveLength(1);
  });
});
