import { CreateBucketCommand } from '@aws-sdk/client-s3';
import { describe, expect, it } from 'vitest';
import { createFlows } from '../../functions/create-flow/batch.ts';
import { ClaimHeldError } from '../../functions/create-flow/delivery.ts';
import {
  type ClaimedEntry,
  type Entry,
  ended,
  type RunningEntry,
  retried,
  running,
} from '../../functions/ledger/entry.ts';
import type { Route } from '../../functions/uploads/route.ts';
import type { Fault } from '../../local/flow-service/fault.ts';
import { viewOf } from '../../operations/upload-view.ts';
import {
  answer,
  ECHO,
  INBOX,
  LEDGER,
  MINUTE,
  RESULTS,
  start,
  TOKEN,
  type World,
  type WorldOptions,
  world,
} from '../support/world.ts';

/** A refusal in the form of the service. */
const NOT_YOURS = { detail: 'Not yours' };

/** Uploads a file, and takes its message out of the queue. */
async function uploaded(...upload: Parameters<World['upload']>): Promise<string> {
  await world.upload(...upload);
  return world.takeMessages()[0] ?? '';
}

/** The same, and delivers it. */
async function sent(...upload: Parameters<World['upload']>): Promise<string> {
  const body = await uploaded(...upload);
  world.queue.send(body);
  await world.deliver();
  return body;
}

const failuresOfDelivery = async () => (await world.deliver())?.batchItemFailures.length;
const failuresOfSending = async (...upload: Parameters<World['send']>) =>
  (await world.send(...upload))?.batchItemFailures.length;

describe('an upload that a route wants', () => {
  it('becomes a flow with the file as its input, an entry and a marker', async () => {
    await start({
      routes: [{ ...ECHO, parameters: { copies: 2 }, additional: { team: 'blue' } }],
    });
    expect(await failuresOfSending('in/photo 1.png', 'not really a picture', { ContentType: 'image/png' })).toBe(0);

    const [flow, ...others] = world.service.flows;
    expect(others).toEqual([]);
    const entry = (await world.entry()) as RunningEntry;
    expect(flow).toMatchObject({
      template: 'bytes_echo',
      parameters: { copies: 2 },
      additional: { team: 'blue', flowdrop: { pipeline: 'test', upload: entry.upload.id, generation: 1 } },
      inputs: [
        {
          mediaType: 'image/png',
          bytes: 20,
          additional: { bucket: INBOX, key: 'in/photo 1.png', versionId: entry.upload.versionId },
        },
      ],
    });
    expect(entry).toMatchObject({ state: 'running', flow: { id: flow?.id } });
    const created = new Date(entry.flow.createdAt).toISOString();
    expect(await world.keys(LEDGER)).toEqual([
      `running/${created}/${entry.upload.id}/${flow?.id}`,
      // That the route works.
      'state/holds.json',
      `uploads/${entry.upload.id}.json`,
    ]);
  });
});

describe('an upload with more than one event', () => {
  it('is one flow, even if it is delivered many times at once', async () => {
    await start();
    const body = await uploaded('a');
    for (let i = 0; i < 8; i += 1) world.queue.send(body);
    await world.deliver();
    world.clock.advance(3 * MINUTE);
    expect(await failuresOfDelivery()).toBe(0);
    expect(world.service.flows).toHaveLength(1);
    expect(world.queue.counts()).toEqual({ visible: 0, inFlight: 0, delayed: 0 });
  });

  it('gets a lost marker back', async () => {
    await start();
    const body = await sent('a');
    const [marker = ''] = await world.keys(LEDGER, 'running/');
    await world.remove(marker, LEDGER);
    world.queue.send(body);
    await world.deliver();
    expect(await world.keys(LEDGER, 'running/')).toEqual([marker]);
    expect(world.service.flows).toHaveLength(1);
  });

  it('gets a lost receipt back', async () => {
    await start({ settings: { inputBytesMax: 3 } });
    const body = await sent('a', 'too long');
    await world.remove('a/receipt.json', RESULTS);
    world.queue.send(body);
    await world.deliver();
    expect((await world.receipt('a')).failure?.code).toBe('input-too-large');
  });

  it('is left to its live claim, and its message stays in the queue', async () => {
    await start();
    const body = await uploaded('a');
    world.queue.send(body);
    world.queue.send(body);
    const response = await world.deliver();
    expect(response?.batchItemFailures).toHaveLength(1);
    expect(world.logged.filter(({ level }) => level === 'error')).toEqual([]);
    expect(world.logged.find(({ fields }) => fields.error instanceof ClaimHeldError)).toMatchObject({ level: 'info' });
    expect(world.service.flows).toHaveLength(1);
  });
});

describe('an event that leads to no flow', () => {
  it.each<[string, Parameters<World['upload']>, WorldOptions]>([
    ['a folder', ['folder/', ''], {}],
    ['a file with the key of a later stage', [`a/chain/next/${'0'.repeat(40)}`], {}],
    ['a file whose key fits no route', ['a.doc'], { routes: [{ ...ECHO, suffixes: ['.png', '/'] }] }],
    ['a file outside of the inbox', ['out/a'], { settings: { inboxPrefix: 'in/' } }],
    [
      'a file whose media type fits no route once it is opened',
      ['a.png', 'x', { ContentType: 'text/html' }],
      { routes: [{ ...ECHO, mediaTypes: ['image/*'] }] },
    ],
  ])('makes no entry: %s', async (_, upload, options) => {
    await start(options);
    expect(await failuresOfSending(...upload)).toBe(0);
    expect(world.service.counts.createFlow).toBe(0);
    expect(await world.keys(LEDGER)).toEqual([]);
    expect(world.count('UploadsSkipped') + world.count('UploadsUnrouted')).toBe(1);
  });

  it.each([undefined, 'Enabled', 'Suspended'] as const)(
    'may be of an upload that was replaced or deleted before it was read (versioning %s)',
    async (versioning) => {
      await start({ versioning });
      const first = await uploaded('a', 'first');
      await world.upload('a', 'second');
      await world.upload('b', 'x');
      await world.remove('b');
      world.queue.send(first);
      expect(await failuresOfDelivery()).toBe(0);
      await world.settle();
      // A versioned bucket still has a replaced version, and one that a delete marker hides.
      expect(world.sentKeys.sort()).toEqual(versioning === 'Enabled' ? ['a', 'a', 'b'] : ['a']);
    },
  );
});

describe('a file that waits, in a bucket without versions', () => {
  const endOfWaiting = async (change: () => Promise<unknown>) => {
    await start({ versioning: undefined });
    world.fault('createFlow', { status: 503 }, 1);
    await world.send('a', 'first');
    const { upload } = await world.entry();
    world.clock.advance(2_000);
    await change();
    await world.settle();
    return world.json(LEDGER, `uploads/${upload.id}.json`);
  };

  it('gives way to a newer one at its key, without an alarm', async () => {
    const end = await endOfWaiting(() => world.upload('a', 'second'));
    expect(end).toMatchObject({ failure: { code: 'superseded', message: `${INBOX}/a was replaced.` } });
    expect(world.count('UploadsFailed')).toBe(0);
    expect(world.count('UploadsSuperseded')).toBe(1);
    expect(await world.receipt('a')).toMatchObject({ status: 'succeeded', upload: { bytes: 6 } });
    // A count of failures leaves it out, without reading its entry.
    expect(await world.keys(LEDGER, 'failed/')).toEqual([expect.stringMatching(/\/replaced$/)]);
  });

  it('is gone if it is deleted', async () => {
    const end = await endOfWaiting(() => world.remove('a'));
    expect(end).toMatchObject({ failure: { code: 'upload-gone', message: `${INBOX}/a was deleted.` } });
    expect(world.count('UploadsFailed')).toBe(1);
    expect(await world.keys(LEDGER, 'failed/')).toEqual([expect.not.stringMatching(/\/replaced$/)]);
  });
});

describe('an S3 event without a queue', () => {
  it('is processed too, and fails as a whole so that it comes again', async () => {
    await start();
    const body = await uploaded('a');
    await world.invoke((invocation) => createFlows(JSON.parse(body), world.ports, invocation));
    expect(world.service.flows).toHaveLength(1);
    for (const event of [undefined, null, 'text', [], { Records: [{}] }, { Records: [{ messageId: '1', body: {} }] }]) {
      await expect(world.invoke((invocation) => createFlows(event, world.ports, invocation))).rejects.toBeInstanceOf(
        AggregateError,
      );
    }
  });
});

describe('a file that can never pass', () => {
  interface Given {
    readonly metadata?: Record<string, string>;
    readonly body?: Buffer;
    readonly type?: string;
    readonly encoding?: string;
  }
  const cases: [string, string, Route, Given][] = [
    ['input-empty', 'The file is empty', ECHO, { body: Buffer.alloc(0) }],
    ['input-too-large', '11 bytes, and at most 10', ECHO, { body: Buffer.alloc(11) }],
    ['invalid-text', 'UTF-8', { ...ECHO, input: 'text' }, { body: Buffer.from([0xc3, 0x28]) }],
    ['invalid-text', 'UTF-16', { ...ECHO, input: 'text' }, { body: Buffer.from('a red', 'utf16le') }],
    ['input-encoded', 'The file is compressed (Content-Encoding: gzip)', ECHO, { encoding: 'gzip' }],
    ['input-encoded', 'Content-Encoding: br', { ...ECHO, input: 'text' }, { encoding: 'utf-8, BR' }],
    ['input-encoded', 'curl by -T FILE', ECHO, { type: 'multipart/form-data; boundary=x' }],
    ['input-encoded', 'curl by -T FILE', { ...ECHO, mediaTypes: ['application/*'] }, { type: 'Multipart/Form-Data' }],
    ['rejected', 'There is no such template', { ...ECHO, template: 'no_such_template' }, {}],
    ['invalid-override', 'flow-parameters', { ...ECHO, overrides: true }, { metadata: { 'flow-parameters': '{' } }],
  ];
  it.each(cases)(
    'ends at once with a receipt: %s, %s',
    async (code, message, route, { body, metadata, type, encoding }) => {
      await start({ routes: [route], settings: { inputBytesMax: 10 } });
      const given = { Metadata: metadata, ContentEncoding: encoding, ...(type !== undefined && { ContentType: type }) };
      expect(await failuresOfSending('a.bin', body ?? Buffer.from('x'), given)).toBe(0);
      const receipt = await world.receipt('a.bin');
      expect(receipt).toMatchObject({ status: 'failed', failure: { code } });
      expect(receipt.failure?.message).toContain(message);
      const canHelp = ['input-too-large', 'rejected'].includes(code);
      expect(/\bretry\b/.test(receipt.failure?.advice ?? '')).toBe(canHelp);
      expect(receipt.failure?.retry ?? '').toContain(canHelp ? receipt.upload.id : '');
      expect(receipt.failure?.retry === undefined).toBe(!canHelp);
      expect(await world.entry()).toMatchObject({ state: 'failed' });
      expect(await world.keys(LEDGER)).toEqual([
        `failed/${receipt.endedAt}/${receipt.upload.id}`,
        ...(code === 'rejected' ? ['state/holds.json'] : []),
        `uploads/${receipt.upload.id}.json`,
      ]);
      expect(world.count('UploadsFailed')).toBe(1);
    },
  );
});

it.each(['utf-8', 'base64', 'identity'])('a file with the Content-Encoding %s is sent', async (encoding) => {
  await start();
  expect(await failuresOfSending('a.bin', Buffer.from('x'), { ContentEncoding: encoding })).toBe(0);
  expect(world.service.counts.createFlow).toBe(1);
});

describe('an upload that the service does not take now', () => {
  it.each<[string, Fault, number, number]>([
    ['throttled', { status: 429 }, 0, 0],
    ['throttled', { status: 402 }, 0, 0],
    ['throttled', { status: 429, headers: { 'retry-after': '600' } }, 0, 600_000],
    ['forbidden', answer(NOT_YOURS, 403), 1, 30_000],
    ['unavailable', { reset: 'before-body' }, 0, 2_500],
  ])('waits in the ledger and is sent again: %s after %j', async (reason, fault, attempts, waitMs) => {
    await start();
    world.fault('createFlow', fault, 1);
    const before = world.clock.now();
    expect(await failuresOfSending('a')).toBe(0);
    const entry = await world.entry();
    expect(entry).toMatchObject({ state: 'waiting', reason, attempts });
    expect(entry.state === 'waiting' && entry.notBefore - before).toBeGreaterThanOrEqual(waitMs);
    expect(await world.keys(LEDGER, 'waiting/')).toHaveLength(1);
    expect(world.queue.counts()).toMatchObject({ visible: 0, inFlight: 0 });
    expect((await world.settled('a')).status).toBe('succeeded');
    expect(world.service.flows).toHaveLength(1);
  });

  /** The service refuses the first creation, and at the second one the entry is read. */
  const seenWhileRefused = (fault: Fault, operation = 'createFlow') => {
    let seen: ReturnType<World['entry']> | undefined;
    let calls = 0;
    world.service.intercept = (_, call) => {
      if (call.operation !== operation) return undefined;
      calls += 1;
      if (calls === 1) return fault;
      seen ??= world.entry();
      return undefined;
    };
    return () => seen;
  };
  const refused: Fault = { status: 429, headers: { 'retry-after': '10' }, body: '{"detail":"Slow down"}' };

  it('says in its claim what the service answered, while it waits to be sent again', async () => {
    await start();
    world.remainingMs = 2 * MINUTE;
    const seen = seenWhileRefused(refused);
    await world.send('a');
    expect(await seen()).toMatchObject({ state: 'claimed', answer: { message: 'create: 429: Slow down' } });
    const entry = await world.entry();
    expect(entry).toMatchObject({ state: 'running' });
    expect(entry.answer).toBeUndefined();
  });

  it('says the same of an upload that has to wait for its turn', async () => {
    await start();
    world.remainingMs = 2 * MINUTE;
    world.fault('createFlow', refused, 1);
    await world.send('first');
    for (let n = 0; n < 9; n += 1) await world.upload(`${n}`);
    let seen: Promise<Entry[]> | undefined;
    const watched = world.clock.sleep(3_500).then(() => {
      seen = world.entries();
    });
    await world.deliver();
    await watched;
    const claimed = ((await seen) ?? []).filter(({ state }) => state === 'claimed');
    expect(claimed.length).toBeGreaterThan(1);
    for (const { answer } of claimed) expect(answer?.message).toBe('create: 429: Slow down');
    expect(await world.entries()).toSatisfy((entries: Entry[]) => entries.every(({ state }) => state === 'running'));
  });

  /** From now on S3 writes what a claim tells, and its answer is lost. */
  const loseTellings = (): void => {
    world.s3.middlewareStack.add(
      (next, { commandName }) =>
        async (args) => {
          const result = await next(args);
          const { Body = '' } = args.input as { Body?: unknown };
          const isTelling =
            commandName === 'PutObjectCommand' && /"claimed".*Slow down|Slow down.*"claimed"/s.test(String(Body));
          if (isTelling) throw new Error('lost');
          return result;
        },
      { step: 'initialize' },
    );
  };

  it.each<[string, Fault | undefined, object, flows: number]>([
    ['becomes one flow', undefined, { state: 'running' }, 1],
    ['waits', refused, { state: 'waiting', reason: 'throttled' }, 0],
    ['fails', { status: 422, body: '{"detail":"No"}' }, { state: 'failed' }, 0],
  ])('%s although the answer to that was lost', async (_, then, entry, flows) => {
    await start();
    world.remainingMs = 2 * MINUTE;
    loseTellings();
    world.service.intercept = (_request, { operation, n }) =>
      operation !== 'createFlow' ? undefined : n === 1 ? refused : then;
    await world.send('a');
    expect(await world.entry()).toMatchObject(entry);
    expect(world.service.flows).toHaveLength(flows);
  });

  it('keeps the last answer of the service while it waits, with the time since which it is the same', async () => {
    await start();
    world.fault('createFlow', { status: 402, body: '{"detail":"No credit left"}' });
    const from = world.clock.now();
    await world.send('a');
    await world.deliverAndTick(1, 10 * MINUTE);
    await world.deliver();
    const { answer } = await world.entry();
    expect(answer?.message).toBe('create: 402: No credit left');
    expect((answer?.since ?? 0) - from).toBeLessThan(MINUTE);
    expect((answer?.at ?? 0) - from).toBeGreaterThan(9 * MINUTE);
  });

  it('waits in the ledger after one attempt that did not reach the service, however much time is left', async () => {
    await start();
    world.remainingMs = 10 * MINUTE;
    world.fault('createFlow', { reset: 'before-body' }, 1);
    const before = world.clock.now();
    await world.send('a');
    expect(await world.entry()).toMatchObject({ state: 'waiting', reason: 'unavailable', attempts: 0 });
    expect(world.clock.now() - before).toBeLessThan(1_000);
    await world.deliverAndTick(1, MINUTE);
    await world.deliver();
    expect(await world.entry()).toMatchObject({ state: 'running' });
  });

  it.each([
    ['for its turn', '2'],
    ['in the ledger', '20'],
  ])('tells until when the service asks to wait %s', async (_, seconds) => {
    await start();
    world.fault('createFlow', { status: 429, headers: { 'retry-after': seconds } });
    const untils: number[] = [];
    world.beforeS3((call, { Bucket, Key = '', Body }) => {
      if (call !== 'PutObject' || Bucket !== LEDGER || !Key.startsWith('uploads/')) return;
      const { wait } = viewOf(JSON.parse(String(Body)), world.ports.settings);
      if (wait?.askedUntil !== undefined) untils.push(Date.parse(wait.askedUntil) - world.clock.now());
    });
    await world.send('a');
    expect(untils[0]).toBeGreaterThan(0);
    expect(untils[0]).toBeLessThanOrEqual(Number(seconds) * 1_000);
    expect(viewOf(await world.entry(), world.ports.settings).wait).toHaveProperty('askedUntil');
  });

  it('is not sent once the time of its invocation is over, although its machine slept and its timers are late', async () => {
    await start();
    const { holds } = world.ports;
    const read = holds.read.bind(holds);
    holds.read = (signal) => {
      world.clock.advance(20 * MINUTE);
      holds.read = read;
      return read(signal);
    };
    await world.send('a');
    expect(world.service.flows).toHaveLength(0);
    expect(await world.entry()).toMatchObject({ state: 'waiting', reason: 'out-of-time' });
    expect((await world.settled('a')).status).toBe('succeeded');
    expect(world.service.flows).toHaveLength(1);
  });

  it('is not sent in a hot loop if the service keeps saying Retry-After: 0', async () => {
    await start();
    world.remainingMs = 50_000;
    world.fault('createFlow', { status: 429, headers: { 'retry-after': '0' } });
    await world.send('a');
    expect(await world.entry()).toMatchObject({ state: 'waiting', reason: 'throttled' });
    // It may be sent for 9 seconds at 0.8 requests a second, the lowest rate after a request got through.
    expect(world.service.counts.createFlow).toBeLessThanOrEqual(8);
  });

  it('ends after its attempts if the file could be the cause', async () => {
    await start({ settings: { attemptsMax: 3 } });
    world.fault('createFlow', { status: 403 });
    await world.upload('a', 'x');
    expect(await world.settled('a')).toMatchObject({ status: 'failed', failure: { code: 'attempts-exhausted' } });
    expect(world.service.counts.createFlow).toBe(3);
    expect(world.deadLetters.counts().visible).toBe(0);
  });

  it('waits for a new token without using up attempts', async () => {
    await start({ settings: { attemptsMax: 2 } });
    world.token = 'expired';
    await world.upload('a', 'x');
    await world.deliverAndTick(5, 20 * MINUTE);
    expect(await world.entry()).toMatchObject({ state: 'waiting', reason: 'unauthorised', attempts: 0 });
    expect(world.count('TokenRejected')).toBeGreaterThan(0);
    expect(world.count('UploadsFailed')).toBe(0);
    world.token = TOKEN;
    expect((await world.settled('a')).status).toBe('succeeded');
  });
});

describe('an upload in doubt', () => {
  const lost = { reset: 'after-effect' } as const;

  it.each<[string, object]>([
    ['the connection broke', lost],
    ['something else answered', { status: 302, at: 'after-effect' }],
    ['something forbade it', { status: 403, at: 'after-effect' }],
    ['something refused it', { status: 409, at: 'after-effect' }],
    ['the service refused it', { ...answer(NOT_YOURS, 409), at: 'after-effect' }],
  ])('adopts the flow that the listing shows with its tag: %s', async (_, fault) => {
    await start();
    world.fault('createFlow', fault, 1);
    expect(await failuresOfSending('a')).toBe(0);
    await world.settle();
    expect(world.service.flows).toHaveLength(1);
    expect((await world.receipt('a')).flow?.id).toBe(world.service.flows[0]?.id);
    expect(world.count('FlowsAdopted')).toBe(1);
  });

  it.each([
    [403, { state: 'waiting', reason: 'forbidden', attempts: 1 }],
    [409, { state: 'failed', failure: { code: 'rejected' } }],
  ])('has no flow after %i in the form of the service, although no listing proves it', async (status, entry) => {
    await start({ service: { variation: { listFlows: 404 } }, settings: { inDoubt: 'ask' } });
    world.fault('createFlow', answer(NOT_YOURS, status));
    await world.send('a');
    expect(await world.entry()).toMatchObject(entry);
  });

  it.each([404, 409])(
    'fails, if something refused it (%i), once the listing shows that it has no flow',
    async (status) => {
      await start();
      world.fault('createFlow', { status });
      await world.send('a');
      expect(await world.entry()).toMatchObject({ state: 'waiting', reason: 'in-doubt', attempts: 1 });
      expect(await world.settled('a')).toMatchObject({ status: 'failed', failure: { code: 'rejected' } });
      expect(world.service.counts.createFlow).toBe(1);
      expect(world.count('ServiceMisaddressed')).toBe(0);
    },
  );

  it('is looked for until its flow is listed, and by its old tag if the pipeline was renamed', async () => {
    await start({ service: { variation: { listingDelayMs: 3 * MINUTE } } });
    world.fault('createFlow', lost, 1);
    await world.send('a');
    expect(await world.entry()).toMatchObject({ state: 'waiting', reason: 'in-doubt' });
    world.redeploy({ pipeline: 'renamed' });
    await world.settle();
    expect(world.service.flows).toHaveLength(1);
    expect(world.count('FlowsAdopted')).toBe(1);
  });

  it.each([
    ['may take ten minutes to make it', 9 * MINUTE, { create: { answerSeconds: 600 } }, lost],
    [
      'says that it took too long to answer',
      3 * MINUTE,
      {},
      { ...answer({ detail: 'Timeout' }, 408), at: 'after-effect' } as const,
    ],
  ])('is looked for until its flow is listed, if the service %s', async (_, listingDelayMs, speaks, fault) => {
    await start({ speaks, service: { variation: { listingDelayMs } } });
    world.fault('createFlow', fault, 1);
    await world.send('a');
    await world.deliverAndTick(4, 2 * MINUTE);
    await world.settle();
    expect(world.service.flows).toHaveLength(1);
    expect(world.count('FlowsAdopted')).toBe(1);
  });

  it('is looked for again while the listing lacks a flow of the same minute, as if a replica knew only its own', async () => {
    await start({ service: { variation: { paging: 'none' } } });
    await world.send('before');
    await world.settle();
    const [{ id, additional, createdAt } = { id: '', createdAt: 0 }] = world.service.flows;
    const before = { flow_id: id, state: 'completed', additional, created_at: new Date(createdAt).toISOString() };
    let isOtherReplica = true;
    world.service.intercept = (_, { operation, n }) => {
      if (operation === 'createFlow') return n === 2 ? lost : undefined;
      return operation === 'listFlows' && isOtherReplica ? answer({ flows: [before] }) : undefined;
    };
    for (const key of ['a', 'b']) await world.send(key);
    await world.deliverAndTick(5, 2 * MINUTE);
    expect(world.service.flows).toHaveLength(3);
    isOtherReplica = false;
    await world.settle();
    expect(world.service.flows).toHaveLength(3);
    expect((await world.receipt('a')).status).toBe('succeeded');
    expect(world.count('DoubtsRetried')).toBe(0);
  });

  it('is sent again after five minutes if no flow was made', async () => {
    await start();
    world.fault('createFlow', { status: 500 }, 1);
    await world.send('a');
    await world.tickAfter(4 * MINUTE);
    await world.deliver();
    expect(world.service.flows).toHaveLength(0);
    await world.tickAfter(2 * MINUTE);
    await world.deliver();
    expect(world.service.flows).toHaveLength(1);
    expect((await world.settled('a')).status).toBe('succeeded');
    expect(world.count('DoubtsRetried')).toBe(0);
  });

  it('uses up no attempt if the service is busy and says until when', async () => {
    await start({ settings: { attemptsMax: 1 } });
    world.fault('createFlow', { status: 503, headers: { 'retry-after': '1200' } }, 1);
    await world.send('a');
    expect(await world.entry()).toMatchObject({ state: 'waiting', reason: 'in-doubt', attempts: 0 });
    await world.tickAfter(19 * MINUTE);
    await world.deliver();
    expect(world.service.counts.createFlow).toBe(1);
    expect((await world.settled('a')).status).toBe('succeeded');
    expect(world.service.counts.createFlow).toBe(2);
  });

  it('uses up no attempt if the search takes half of the invocation, and is not searched again', async () => {
    await start({ settings: { attemptsMax: 2 } });
    world.service.intercept = (_, { operation, n }) => {
      // The first search is made at once.
      if (operation === 'listFlows' && n === 2) world.clock.advance(10_000);
      return operation === 'createFlow' && n === 1 ? { status: 500 } : undefined;
    };
    await world.send('a');
    await world.tickAfter(6 * MINUTE);
    await world.deliver();
    expect(await world.entry()).toMatchObject({ state: 'waiting', reason: 'unavailable', attempts: 1 });
    expect(world.service.counts.createFlow).toBe(1);
    await world.tickAfter(MINUTE);
    await world.deliver();
    expect(world.service.flows).toHaveLength(1);
    expect(world.service.counts.listFlows).toBe(2);
  });

  it.each([
    ['is found if it is listed by then', undefined],
    ['is not given up if the listing fails then', { status: 503 }],
    ['is not given up if the listing is throttled then', { status: 429 }],
  ])('is looked into within minutes if the service is busy for hours; its flow %s', async (_, fault) => {
    await start({ service: { variation: { listingDelayMs: 3 * MINUTE } } });
    let listings = 0;
    world.service.intercept = (_request, { operation, n }) => {
      if (operation === 'createFlow' && n === 1) {
        return { status: 503, headers: { 'retry-after': '7200' }, at: 'after-effect' };
      }
      // The second look is the first at which the flow is listed.
      if (operation === 'listFlows') listings += 1;
      return operation === 'listFlows' && listings === 2 ? fault : undefined;
    };
    await world.upload('a', 'x');
    await world.deliverAndTick(10, 2 * MINUTE);
    await world.settle();
    expect(world.service.flows).toHaveLength(1);
    expect((await world.receipt('a')).status).toBe('succeeded');
    expect(world.count('DoubtsRetried')).toBe(0);
  });

  it.each(
    [
      { flows: [], error: 'search backend timed out' },
      { flows: null, detail: 'internal error' },
      { success: false, flows: [] },
      { detail: 'internal error' },
    ].flatMap((body) => (['ask', 'retry'] as const).map((inDoubt) => ({ body, inDoubt }))),
  )('is not sent again because of a listing that says that it failed: $body, $inDoubt', async ({ body, inDoubt }) => {
    await start({ settings: { inDoubt } });
    let isListed = false;
    world.service.intercept = (_, { operation, n }) => {
      if (operation === 'createFlow' && n === 1) return { status: 502, body: 'bad gateway', at: 'after-effect' };
      return operation === 'listFlows' && !isListed ? answer(body) : undefined;
    };
    await world.send('a');
    await world.deliverAndTick(4, 6 * MINUTE);
    expect(await world.entry()).toMatchObject({ state: 'waiting', message: expect.stringContaining('it failed') });
    isListed = true;
    await world.deliverAndTick(3, 30 * MINUTE);
    await world.settle();
    expect((await world.receipt('a')).status).toBe('succeeded');
    expect(world.service.flows).toHaveLength(1);
  });

  it.each<[string, object]>([
    ['is not served', { status: 404 }],
    ['makes no sense', { status: 200, body: '{}' }],
    ['fails for more than a day', { status: 500 }],
  ])('is sent again once in the end, and counted, if the listing %s', async (_, fault) => {
    await start();
    world.service.intercept = (_, { operation, n }) => {
      if (operation === 'createFlow') return n === 1 ? lost : undefined;
      return operation === 'listFlows' ? fault : undefined;
    };
    await world.upload('a', 'x');
    await world.settle(250);
    expect(world.service.flows).toHaveLength(2);
    expect(await world.receipt('a')).toMatchObject({ status: 'succeeded', flow: { id: world.service.flows[1]?.id } });
    expect(world.count('DoubtsRetried')).toBe(1);
  });

  it('counts as sent again only once it is', async () => {
    await start();
    world.service.intercept = (_, { operation, n }) => {
      if (operation === 'createFlow') return n === 1 ? lost : undefined;
      return operation === 'listFlows' ? { status: 404 } : undefined;
    };
    await world.send('a', 'x');
    await world.collect({ hold: { action: 'pause' } });
    await world.deliverAndTick(40, 2 * MINUTE);
    expect(await world.entry()).toMatchObject({ state: 'waiting', reason: 'paused' });
    expect(world.count('DoubtsRetried')).toBe(0);
    await world.collect({ hold: { action: 'resume' } });
    await world.settle(60);
    expect(world.service.flows).toHaveLength(2);
    expect(world.count('DoubtsRetried')).toBe(1);
  });

  it('shares the search with the others of its batch', async () => {
    await start({ service: { flowMs: 1_000, variation: { paging: 'cursor', pageSize: 2 } } });
    for (const key of ['1', '2', '3', '4', '5']) await world.upload(key);
    await world.settle();
    world.fault('createFlow', { status: 500 });
    const doubtful = ['a', 'b', 'c', 'd', 'e', 'f'];
    for (const key of doubtful) await world.upload(key);
    await world.deliver();
    const before = world.service.counts.listFlows;
    world.service.intercept = undefined;
    await world.deliverAndTick(4, 2 * MINUTE);
    // Six searches of their own would read three pages twice each.
    expect(world.service.counts.listFlows - before).toBeLessThan((6 * 6) / 2);
    await world.settle();
    for (const key of doubtful) expect((await world.receipt(key)).status).toBe('succeeded');
    expect(world.service.flows).toHaveLength(11);
  });

  it('is not settled by a listing that was read before its flow had to be listed, however late it comes', async () => {
    let isFrozen = false;
    await start({
      service: { variation: { listingDelayMs: 3 * MINUTE } },
      transport: (direct) => async (request, signal) => {
        const answer = await direct(request, signal);
        if (request.method === 'GET' && request.url.pathname.endsWith('/flows') && !isFrozen) {
          isFrozen = true;
          world.clock.advance(6 * MINUTE); // The process is frozen after the service has answered.
        }
        return answer;
      },
    });
    world.fault('createFlow', lost, 1);
    await world.send('a');
    expect(isFrozen).toBe(true);
    expect(await world.entry()).toMatchObject({ state: 'waiting', reason: 'in-doubt' });
    await world.settle();
    expect(world.service.flows).toHaveLength(1);
    expect((await world.receipt('a')).status).toBe('succeeded');
  });
});

describe('another invocation that took the upload over', () => {
  /** Delivers an upload, and changes its entry before its flow is made. */
  async function overtaken(change: (entry: ClaimedEntry) => object) {
    await start();
    const { flows } = world.ports;
    const { create } = flows;
    flows.create = async (request, signal) => {
      const entry = (await world.entry()) as ClaimedEntry;
      const changed = { ...entry, nonce: 'theirs', ...change(entry) };
      await world.put(LEDGER, `uploads/${entry.upload.id}.json`, JSON.stringify(changed));
      flows.create = create;
      return create.call(flows, request, signal);
    };
    return world.send('a');
  }

  it('and waits in doubt is given our flow', async () => {
    const waiting = ({ claimedAt }: { claimedAt: number }) => ({
      state: 'waiting',
      reason: 'in-doubt',
      message: '',
      notBefore: claimedAt + 600_000,
      doubt: { claimedAt, sentBy: claimedAt },
    });
    expect((await overtaken(waiting))?.batchItemFailures).toEqual([]);
    expect(await world.entry()).toMatchObject({ state: 'running', flow: { id: world.service.flows[0]?.id } });
    expect(world.service.flows[0]?.aborted).toBe(false);
    expect((await world.settled('a')).status).toBe('succeeded');
  });

  it('and is at work on it is given our flow', async () => {
    const theirClaim = ({ claimedAt }: ClaimedEntry) => ({ claimedAt: claimedAt + 1, deadline: claimedAt + 60_000 });
    expect((await overtaken(theirClaim))?.batchItemFailures).toEqual([]);
    expect(await world.entry()).toMatchObject({ state: 'running', flow: { id: world.service.flows[0]?.id } });
    expect(world.service.flows[0]?.aborted).toBe(false);
    expect((await world.settled('a')).status).toBe('succeeded');
    expect(world.service.flows).toHaveLength(1);
  });

  it('and is making a second flow, because a search proved that there was none, makes that one the orphan', async () => {
    const areBothSent = Promise.withResolvers<void>();
    const isOursWritten = Promise.withResolvers<void>();
    let creations = 0;
    let theirs: Promise<unknown> | undefined;
    await start({
      transport: (direct) => async (request, signal) => {
        if (request.method !== 'POST') return direct(request, signal);
        creations += 1;
        if (creations === 1) {
          world.clock.advance(20 * MINUTE); // Our process is frozen before the request leaves it.
          theirs = world.deliver();
          await areBothSent.promise;
        } else {
          areBothSent.resolve();
          await isOursWritten.promise;
        }
        return direct(request, signal);
      },
    });
    expect(await failuresOfSending('a')).toBe(0);
    isOursWritten.resolve();
    await theirs;
    expect(await world.entry()).toMatchObject({ state: 'running', flow: { id: world.service.flows[0]?.id } });
    expect(world.service.flows.map(({ aborted }) => aborted)).toEqual([false, true]);
    expect(world.count('FlowsOrphaned')).toBe(1);
    expect((await world.settled('a')).status).toBe('succeeded');
  });

  it.each([
    ['succeeded', false],
    ['waiting', true],
  ])('and has ended our flow leaves it as it is, if the upload is %s by now', async (state, isRetried) => {
    await start();
    const { flows } = world.ports;
    const create = flows.create.bind(flows);
    flows.create = async (request, signal) => {
      const made = await create(request, signal);
      const claimed = (await world.entry()) as ClaimedEntry;
      const { claimedAt: at, upload } = claimed;
      const end = ended(running(claimed, { id: made.flowId, createdAt: at }), { assets: [], failedOutputs: [] }, at);
      const theirs = { ...(isRetried ? retried(end, at) : end), nonce: 'theirs' };
      await world.put(LEDGER, `uploads/${upload.id}.json`, JSON.stringify(theirs));
      return made;
    };
    expect(await failuresOfSending('a')).toBe(0);
    expect(await world.entry()).toMatchObject({ state, nonce: 'theirs' });
    expect(world.count('FlowsOrphaned')).toBe(0);
    expect(world.service.flows[0]?.aborted).toBe(false);
  });

  it('is noticed while ours waits for its turn, and ours is neither sent again nor counted', async () => {
    await start({
      settings: { budget: { flows: 5, per: 'day', timezone: 'UTC' } },
      transport: (direct) => async (request, signal) => {
        const answer = await direct(request, signal);
        if (answer.status !== 429) return answer;
        const entry = (await world.entry()) as ClaimedEntry;
        const theirs = { ...entry, nonce: 'theirs', claimedAt: entry.claimedAt + 1 };
        await world.put(LEDGER, `uploads/${entry.upload.id}.json`, JSON.stringify(theirs));
        return answer;
      },
    });
    world.remainingMs = 2 * MINUTE;
    world.fault('createFlow', { status: 429, headers: { 'retry-after': '10' } }, 1);
    expect(await failuresOfSending('a')).toBe(1);
    expect(world.service.flows).toHaveLength(0);
    expect(await world.json(LEDGER, 'state/holds.json')).toMatchObject({ pipeline: { spent: { flows: 0 } } });
  });

  it('and has another flow makes ours an orphan, which is aborted and counted', async () => {
    const theirFlow = ({ claimedAt }: ClaimedEntry) => ({
      state: 'running',
      flow: { id: 'their-flow', createdAt: claimedAt },
    });
    expect((await overtaken(theirFlow))?.batchItemFailures).toEqual([]);
    expect(await world.entry()).toMatchObject({ flow: { id: 'their-flow' } });
    expect(world.count('FlowsOrphaned')).toBe(1);
    expect(world.service.flows[0]?.aborted).toBe(true);
    expect(await world.keys(LEDGER, 'running/')).toEqual([]);
  });
});

describe('an upload outside of the present inbox', () => {
  const replaceInbox = () => world.redeploy({ inboxBucket: 'new-inbox' });
  const isAllowed = ({ resource }: { readonly resource: string }) =>
    world.ports.settings.inboxBucket === INBOX || !/:::inbox(\/|$)/.test(resource);

  it.each([
    ['waits', { status: 429 }],
    ['is in doubt and has no flow', { status: 500 }],
  ])('ends as failed if it %s, with a receipt that says so', async (_, fault) => {
    await start({ s3: { authorize: isAllowed } });
    world.fault('createFlow', fault, 1);
    await world.send('a');
    replaceInbox();
    await world.settle();
    const failure = { code: 'outside-inbox', message: expect.stringContaining('new-inbox') };
    expect(await world.receipt('a')).toMatchObject({ status: 'failed', failure });
    expect(world.service.flows).toEqual([]);
  });

  it('is collected if it is in doubt and its flow is found', async () => {
    await start({ s3: { authorize: isAllowed }, service: { variation: { listingDelayMs: 3 * MINUTE } } });
    world.fault('createFlow', { reset: 'after-effect' }, 1);
    await world.send('a');
    expect(await world.entry()).toMatchObject({ state: 'waiting', reason: 'in-doubt' });
    replaceInbox();
    expect(await world.settled('a')).toMatchObject({ status: 'succeeded' });
    expect(world.count('FlowsAdopted')).toBe(1);
  });

  it('has the later stages of its chain sent, which need no file of the inbox', async () => {
    const routes = [ECHO, { ...ECHO, name: 'later', after: 'echo' }];
    await start({ routes, s3: { authorize: isAllowed } });
    await world.collect({ hold: { action: 'pause', route: 'later' } });
    await world.send('a');
    for (let n = 0; n < 3; n += 1) await world.deliverAndTick(1, 5 * MINUTE);
    expect((await world.entries()).map(({ state }) => state).sort()).toEqual(['succeeded', 'waiting']);
    replaceInbox();
    await world.collect({ hold: { action: 'resume', route: 'later' } });
    await world.settle();
    expect(await world.json(RESULTS, 'a/chain.json')).toMatchObject({ status: 'succeeded' });
    expect(world.service.flows).toHaveLength(2);
  });

  it('is collected if it runs, beside a newer upload at its key in the present inbox', async () => {
    await start({ s3: { authorize: isAllowed } });
    await world.send('a', 'old');
    await world.s3.send(new CreateBucketCommand({ Bucket: 'new-inbox' }));
    replaceInbox();
    await world.put('new-inbox', 'a', 'newer');
    const s3 = { bucket: { name: 'new-inbox' }, object: { key: 'a' } };
    world.queue.send(JSON.stringify({ Records: [{ eventName: 'ObjectCreated:Put', s3 }] }));
    await world.settle();
    expect(world.service.flows).toHaveLength(2);
    expect((await world.receipt('a')).upload.bucket).toBe('new-inbox');
  });
});
