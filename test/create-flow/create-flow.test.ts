import { CreateBucketCommand, DeleteObjectCommand, PutObjectCommand } from '@aws-sdk/client-s3';
import { describe, expect, it } from 'vitest';
import { createFlows } from '../../functions/create-flow/batch.ts';
import { ClaimHeldError } from '../../functions/create-flow/delivery.ts';
import { UnauthorisedError } from '../../functions/flow-service/errors.ts';
import { type ClaimedEntry, firstClaim, type RunningEntry } from '../../functions/ledger/entry.ts';
import { retryUploads } from '../../functions/resubmit/retry.ts';
import type { Route } from '../../functions/uploads/routes.ts';
import { eventBridgeEvent, type S3EventRecord, testEvent } from '../../local/aws/s3/events.ts';
import { never } from '../flow-service/scripted.ts';
import { ECHO, INBOX, LEDGER, openWorld, type World, type WorldOptions } from '../support/world.ts';

const MINUTE = 60_000;

let world: World;
const start = async (options?: WorldOptions) => {
  world = await openWorld(options);
};

/** Takes all messages out of the queue and returns their bodies. */
function takeMessages(): string[] {
  return world.queue.receive({ max: 10 }).map(({ receiptHandle, body }) => {
    world.queue.delete(receiptHandle);
    return body;
  });
}

/** Holds every creation back until the function that it returns is called. */
function holdCreations(): () => void {
  const { flows } = world.ports;
  const { create } = flows;
  const { promise, resolve } = Promise.withResolvers<void>();
  flows.create = async (request, signal) => {
    await promise;
    return create.call(flows, request, signal);
  };
  return resolve;
}

const failuresOfDelivery = async () => (await world.deliver())?.batchItemFailures.length;

describe('an upload that a route wants', () => {
  it('becomes a flow with the file as its input, an entry and a marker', async () => {
    await start({
      routes: [{ ...ECHO, parameters: { copies: 2 }, additional: { team: 'blue' } }],
    });
    await world.upload('in/photo 1.png', 'not really a picture', { ContentType: 'image/png' });
    expect(await failuresOfDelivery()).toBe(0);

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
      `uploads/${entry.upload.id}.json`,
    ]);
  });

  it.each<[string, Buffer]>([
    ['one byte', Buffer.from([0])],
    ['two bytes', Buffer.from([255, 0])],
    ['every byte', Buffer.from(Array.from({ length: 256 }, (_, i) => i))],
    ['several megabytes', Buffer.alloc(5_000_001, 'flowdrop')],
  ])('arrives unchanged: %s', async (_, bytes) => {
    await start();
    await world.upload('a.bin', bytes);
    await world.settle();
    const [asset] = (await world.receipt('a.bin')).assets;
    expect((await world.object('results', asset?.key ?? '')).bytes.equals(bytes)).toBe(true);
  });

  it('on a text route is given to the flow as the text itself', async () => {
    await start({
      routes: [{ name: 'prompts', suffixes: ['.txt'], input: 'text', template: 'model_generate_fromprompt' }],
    });
    await world.upload('a.txt', 'a "red" chair\n\u{1FA91}');
    await world.deliver();
    expect(world.service.flows[0]?.inputs[0]).toMatchObject({ mediaType: 'text/plain', bytes: 18 });
  });

  it('overrides its route by metadata only if the route allows it', async () => {
    const metadata = { 'flow-template': 'bytes_echo', 'flow-parameters': '{"copies":3}', 'flow-additional': '{"a":1}' };
    await start({ routes: [{ ...ECHO, parameters: { copies: 1 }, overrides: true }] });
    await world.upload('a', 'x', { Metadata: metadata });
    await world.deliver();
    expect(world.service.flows[0]).toMatchObject({ parameters: { copies: 3 }, additional: { a: 1 } });

    await start({ routes: [{ ...ECHO, parameters: { copies: 1 } }] });
    await world.upload('a', 'x', { Metadata: metadata });
    await world.deliver();
    expect(world.service.flows[0]).toMatchObject({ parameters: { copies: 1 } });
    expect(world.service.flows[0]?.additional).not.toHaveProperty('a');
  });
});

describe('an upload with more than one event', () => {
  it('is one flow, even if it is delivered many times at once', async () => {
    await start();
    await world.upload('a', 'x');
    const [body = ''] = takeMessages();
    for (let i = 0; i < 8; i += 1) world.queue.send(body);
    await world.deliver();
    world.clock.advance(3 * MINUTE);
    expect(await failuresOfDelivery()).toBe(0);
    expect(world.service.flows).toHaveLength(1);
    expect(world.queue.counts()).toEqual({ visible: 0, inFlight: 0, delayed: 0 });
  });

  it('by S3 and by EventBridge is one flow', async () => {
    await start();
    await world.upload('a b+c%.png', 'x');
    const [body = ''] = takeMessages();
    const record = JSON.parse(body).Records[0] as S3EventRecord;
    world.queue.send(body);
    world.queue.send(JSON.stringify(eventBridgeEvent(record)));
    await world.deliver();
    world.clock.advance(3 * MINUTE);
    await world.deliver();
    expect(world.service.flows.map(({ inputs }) => inputs[0]?.additional)).toMatchObject([{ key: 'a b+c%.png' }]);
  });

  it('gets a lost marker back', async () => {
    await start();
    await world.upload('a', 'x');
    const [body = ''] = takeMessages();
    world.queue.send(body);
    await world.deliver();
    const [marker = ''] = await world.keys(LEDGER, 'running/');
    await world.s3.send(new DeleteObjectCommand({ Bucket: LEDGER, Key: marker }));
    world.queue.send(body);
    await world.deliver();
    expect(await world.keys(LEDGER, 'running/')).toEqual([marker]);
    expect(world.service.flows).toHaveLength(1);
  });

  it('gets a lost receipt back', async () => {
    await start({ settings: { inputBytesMax: 3 } });
    await world.upload('a', 'too long');
    const [body = ''] = takeMessages();
    world.queue.send(body);
    await world.deliver();
    await world.s3.send(new DeleteObjectCommand({ Bucket: 'results', Key: 'a/receipt.json' }));
    world.queue.send(body);
    await world.deliver();
    expect((await world.receipt('a')).failure?.code).toBe('input-too-large');
  });

  it('is left to its live claim, and its message stays in the queue', async () => {
    await start();
    await world.upload('a', 'x');
    const [body = ''] = takeMessages();
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
  it.each<[string, string, string]>([
    ['a folder', 'folder/', ''],
    ['a file that no route wants', 'a.doc', 'x'],
  ])('makes no entry: %s', async (_, key, body) => {
    await start({ routes: [{ ...ECHO, suffixes: ['.png', '/'] }] });
    await world.upload(key, body);
    expect(await failuresOfDelivery()).toBe(0);
    expect(world.service.counts.createFlow).toBe(0);
    expect(await world.keys(LEDGER)).toEqual([]);
    expect(world.count('UploadsSkipped') + world.count('UploadsUnrouted')).toBe(1);
  });

  it('makes no entry if the media type of the opened file fits no route', async () => {
    await start({ routes: [{ ...ECHO, mediaTypes: ['image/*'] }] });
    await world.upload('a.png', 'x', { ContentType: 'text/html' });
    await world.deliver();
    expect(await world.keys(LEDGER)).toEqual([]);
    expect(world.count('UploadsUnrouted')).toBe(1);
  });

  it('may be the test event of S3', async () => {
    await start();
    world.queue.send(JSON.stringify(testEvent(INBOX)));
    expect(await failuresOfDelivery()).toBe(0);
    expect(await world.keys(LEDGER)).toEqual([]);
  });

  it('may be an unrecognised message, which alone becomes a dead letter', async () => {
    await start();
    world.queue.send('{"hello":"world"}');
    world.queue.send('not JSON');
    await world.upload('a', 'x');
    expect(await failuresOfDelivery()).toBe(2);
    expect(world.service.flows).toHaveLength(1);
    for (let i = 0; i < 6; i += 1) {
      world.clock.advance(3 * MINUTE);
      await world.deliver();
    }
    expect(world.deadLetters.counts().visible).toBe(2);
  });

  it.each([undefined, 'Enabled', 'Suspended'] as const)(
    'may be of an upload that was replaced or deleted before it was read (versioning %s)',
    async (versioning) => {
      await start({ versioning });
      await world.upload('a', 'first');
      const [first = ''] = takeMessages();
      await world.upload('a', 'second');
      await world.upload('b', 'x');
      await world.remove('b');
      world.queue.send(first);
      expect(await failuresOfDelivery()).toBe(0);
      await world.settle();
      const keys = world.service.flows.map(
        ({ inputs }) => (inputs[0]?.additional as { key?: string } | undefined)?.key,
      );
      // A versioned bucket still has a replaced version, and one that a delete marker hides.
      expect(keys.sort()).toEqual(versioning === 'Enabled' ? ['a', 'a', 'b'] : ['a']);
    },
  );
});

describe('an S3 event without a queue', () => {
  it('is processed too, and fails as a whole so that it comes again', async () => {
    await start();
    await world.upload('a', 'x');
    const [body = ''] = takeMessages();
    await world.invoke((invocation) => createFlows(JSON.parse(body), world.ports, invocation));
    expect(world.service.flows).toHaveLength(1);
    await expect(
      world.invoke((invocation) => createFlows({ Records: [{}] }, world.ports, invocation)),
    ).rejects.toBeInstanceOf(AggregateError);
  });
});

describe('a file that can never pass', () => {
  const cases: [string, string, Route, { readonly metadata?: Record<string, string>; readonly body?: Buffer }][] = [
    ['input-empty', 'The file is empty', ECHO, { body: Buffer.alloc(0) }],
    ['input-too-large', '11 bytes, and at most 10', ECHO, { body: Buffer.alloc(11) }],
    ['invalid-text', 'UTF-8', { ...ECHO, input: 'text' }, { body: Buffer.from([0xc3, 0x28]) }],
    ['rejected', 'There is no such template', { ...ECHO, template: 'no_such_template' }, {}],
    ['invalid-override', 'flow-parameters', { ...ECHO, overrides: true }, { metadata: { 'flow-parameters': '{' } }],
    ['invalid-override', 'flow-additional', { ...ECHO, overrides: true }, { metadata: { 'flow-additional': '[]' } }],
  ];
  it.each(cases)('ends at once with a receipt: %s, %s', async (code, message, route, { body, metadata }) => {
    await start({ routes: [route], settings: { inputBytesMax: 10 } });
    await world.upload('a.bin', body ?? Buffer.from('x'), { Metadata: metadata });
    expect(await failuresOfDelivery()).toBe(0);
    const receipt = await world.receipt('a.bin');
    expect(receipt).toMatchObject({ status: 'failed', failure: { code } });
    expect(receipt.failure?.message).toContain(message);
    expect(receipt.failure?.advice).toMatch(/^[A-Z].*\. .*retry.*\.$/);
    const canHelp = ['input-too-large', 'rejected'].includes(code);
    expect(receipt.failure?.retry ?? '').toContain(canHelp ? receipt.upload.id : '');
    expect(receipt.failure?.retry === undefined).toBe(!canHelp);
    expect(await world.entry()).toMatchObject({ state: 'failed' });
    expect(await world.keys(LEDGER)).toEqual([
      `failed/${receipt.endedAt}/${receipt.upload.id}`,
      `uploads/${receipt.upload.id}.json`,
    ]);
    expect(world.count('UploadsFailed')).toBe(1);
  });
});

describe('a file in an archive storage class', () => {
  it('ends at once with a receipt that says what to do', async () => {
    await start();
    await world.upload('a', 'x');
    // The embedded S3 has no archive, so this gives the answer of S3.
    world.s3.middlewareStack.add(
      (next, { commandName }) =>
        async (args) => {
          if (commandName !== 'GetObjectCommand') return next(args);
          if ((args.input as { Bucket?: string }).Bucket !== INBOX) return next(args);
          throw Object.assign(new Error('archived'), {
            name: 'InvalidObjectState',
            $metadata: { httpStatusCode: 403 },
          });
        },
      { step: 'initialize' },
    );
    expect(await failuresOfDelivery()).toBe(0);
    expect(await world.receipt('a')).toMatchObject({ status: 'failed', failure: { code: 'input-archived' } });
  });
});

describe('an upload that the service does not take now', () => {
  const intercepted = (fault: object, times = Number.POSITIVE_INFINITY) => {
    world.service.intercept = (_, { operation, n }) => (operation === 'createFlow' && n <= times ? fault : undefined);
  };

  it.each([
    ['throttled', { status: 429 }, 0],
    ['throttled', { status: 402 }, 0],
    ['throttled', { status: 429, headers: { 'retry-after': '600' } }, 0],
    ['forbidden', { status: 403 }, 1],
    ['unavailable', { reset: 'before-body' }, 1],
  ])('waits in the ledger and is sent again: %s after %j', async (reason, fault, attempts) => {
    await start();
    intercepted(fault, 1);
    await world.upload('a', Buffer.alloc(3_000_000));
    expect(await failuresOfDelivery()).toBe(0);
    expect(await world.entry()).toMatchObject({ state: 'waiting', reason, attempts });
    expect(await world.keys(LEDGER, 'waiting/')).toHaveLength(1);
    expect(world.queue.counts()).toMatchObject({ visible: 0, inFlight: 0 });
    await world.settle();
    expect((await world.receipt('a')).status).toBe('succeeded');
    expect(world.service.flows).toHaveLength(1);
  });

  it('waits as long as the service says', async () => {
    await start();
    intercepted({ status: 429, headers: { 'retry-after': '600' } }, 1);
    await world.upload('a', 'x');
    const before = world.clock.now();
    await world.deliver();
    const entry = await world.entry();
    const waitMs = (entry.state === 'waiting' ? entry.notBefore : 0) - before;
    // Not earlier, and spread over a quarter more, because other uploads were told the same time.
    expect(waitMs).toBeGreaterThanOrEqual(600_000);
    expect(waitMs).toBeLessThan(755_000);
  });

  it('waits in place if the wait is short and the time allows it', async () => {
    await start({ speed: 10 });
    world.remainingMs = 120_000;
    intercepted({ status: 429, headers: { 'retry-after': '1' } }, 1);
    await world.upload('a', 'x');
    await world.deliver();
    expect(await world.entry()).toMatchObject({ state: 'running' });
    expect(world.service.counts.createFlow).toBe(2);
  });

  it('is not sent in a hot loop if the service keeps saying Retry-After: 0', async () => {
    await start({ speed: 10 });
    world.remainingMs = 50_000;
    intercepted({ status: 429, headers: { 'retry-after': '0' } });
    await world.upload('a', 'x');
    await world.deliver();
    expect(await world.entry()).toMatchObject({ state: 'waiting', reason: 'throttled' });
    // It may be sent for 9 seconds at 0.8 requests a second, the lowest rate after a request got through.
    expect(world.service.counts.createFlow).toBeLessThanOrEqual(8);
  });

  it('ends after its attempts if the file could be the cause', async () => {
    await start({ settings: { attemptsMax: 3 } });
    intercepted({ status: 403 });
    await world.upload('a', 'x');
    await world.settle();
    expect(await world.receipt('a')).toMatchObject({ status: 'failed', failure: { code: 'attempts-exhausted' } });
    expect(world.service.counts.createFlow).toBe(3);
    expect(world.deadLetters.counts().visible).toBe(0);
  });

  it('waits for a new token without using up attempts', async () => {
    await start({ settings: { attemptsMax: 2 } });
    world.token = 'expired';
    await world.upload('a', 'x');
    for (let i = 0; i < 5; i += 1) {
      await world.deliver();
      world.clock.advance(20 * MINUTE);
      await world.tick();
    }
    expect(await world.entry()).toMatchObject({ state: 'waiting', reason: 'unauthorised', attempts: 0 });
    expect(world.count('TokenRejected')).toBeGreaterThan(0);
    expect(world.count('UploadsFailed')).toBe(0);
    world.token = 'obviously-fake-token';
    await world.settle();
    expect((await world.receipt('a')).status).toBe('succeeded');
  });

  it('is sent with the new token after the token was rotated', async () => {
    await start();
    await world.upload('a', 'x');
    await world.deliver();
    world.service.setTokens(['rotated']);
    world.token = 'rotated';
    await world.upload('b', Buffer.alloc(1_000_000));
    expect(await failuresOfDelivery()).toBe(0);
    expect(world.service.flows).toHaveLength(2);
    expect(world.service.flows[1]?.inputs[0]?.bytes).toBe(1_000_000);
  });

  it('waits uncounted if the secret cannot be read', async () => {
    await start();
    world.token = new UnauthorisedError('The secret could not be read');
    await world.upload('a', 'x');
    expect(await failuresOfDelivery()).toBe(0);
    expect(await world.entry()).toMatchObject({ state: 'waiting', reason: 'unauthorised', attempts: 0 });
  });
});

describe('an upload in doubt', () => {
  const lost = { reset: 'after-effect' } as const;
  const losing = (times: number, fault: object = lost) => {
    world.service.intercept = (_, { operation, n }) => (operation === 'createFlow' && n <= times ? fault : undefined);
  };

  it.each<[string, object]>([
    ['the connection broke', lost],
    ['500 came', { status: 500, at: 'after-effect' }],
    ['503 came', { status: 503, at: 'after-effect' }],
    ['it named no flow', { status: 200, body: '{}', at: 'after-effect' }],
    ['it was cut', { truncate: 5 }],
  ])('adopts the flow that the listing shows with its tag: %s', async (_, fault) => {
    await start();
    losing(1, fault);
    await world.upload('a', 'x');
    expect(await failuresOfDelivery()).toBe(0);
    await world.settle();
    expect(world.service.flows).toHaveLength(1);
    expect((await world.receipt('a')).flow?.id).toBe(world.service.flows[0]?.id);
    expect(world.count('FlowsAdopted')).toBe(1);
  });

  it('is looked for by its old tag after the pipeline was renamed', async () => {
    await start({ service: { variation: { listingDelayMs: 3 * MINUTE } } });
    losing(1);
    await world.upload('a', 'x');
    await world.deliver();
    expect(await world.entry()).toMatchObject({ state: 'waiting', reason: 'in-doubt' });
    world.redeploy({ pipeline: 'renamed' });
    await world.settle();
    expect(world.service.flows).toHaveLength(1);
    expect(world.count('FlowsAdopted')).toBe(1);
  });

  it('makes no second flow if the first one is listed late', async () => {
    await start({ service: { variation: { listingDelayMs: 3 * MINUTE } } });
    losing(1);
    await world.upload('a', 'x');
    await world.deliver();
    expect(await world.entry()).toMatchObject({ state: 'waiting', reason: 'in-doubt' });
    await world.settle();
    expect(world.service.flows).toHaveLength(1);
    expect((await world.receipt('a')).status).toBe('succeeded');
  });

  it('is sent again after five minutes if no flow was made', async () => {
    await start();
    losing(1, { status: 500 });
    await world.upload('a', 'x');
    await world.deliver();
    world.clock.advance(4 * MINUTE);
    await world.tick();
    await world.deliver();
    expect(world.service.flows).toHaveLength(0);
    world.clock.advance(2 * MINUTE);
    await world.tick();
    await world.deliver();
    expect(world.service.flows).toHaveLength(1);
    await world.settle();
    expect((await world.receipt('a')).status).toBe('succeeded');
    expect(world.count('DoubtsRetried')).toBe(0);
  });

  it('uses up no attempt if the service is busy and says until when', async () => {
    await start({ settings: { attemptsMax: 2 } });
    losing(3, { status: 503, headers: { 'retry-after': '1200' } });
    await world.upload('a', 'x');
    await world.deliver();
    expect(await world.entry()).toMatchObject({ state: 'waiting', reason: 'in-doubt', attempts: 0 });
    world.clock.advance(19 * MINUTE);
    await world.tick();
    await world.deliver();
    expect(world.service.counts.createFlow).toBe(1);
    await world.settle();
    expect((await world.receipt('a')).status).toBe('succeeded');
    expect(world.service.counts.createFlow).toBe(4);
  });

  it.each([
    ['is found if it is listed by then', undefined],
    ['is not given up if the listing fails then', { status: 503 }],
    ['is not given up if the listing is throttled then', { status: 429 }],
  ])('is looked into within minutes if the service is busy for hours; its flow %s', async (_, fault) => {
    await start({ speed: 10, service: { variation: { listingDelayMs: 3 * MINUTE } } });
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
    for (let i = 0; i < 10; i += 1) {
      await world.deliver();
      world.clock.advance(2 * MINUTE);
      await world.tick();
    }
    await world.settle();
    expect(world.service.flows).toHaveLength(1);
    expect((await world.receipt('a')).status).toBe('succeeded');
    expect(world.count('DoubtsRetried')).toBe(0);
  });

  it('does not fail because of an outage of an hour', async () => {
    await start();
    const end = world.clock.now() + 60 * MINUTE;
    world.service.intercept = (_, { operation }) =>
      operation === 'createFlow' && world.clock.now() < end ? { status: 500 } : undefined;
    await world.upload('a', 'x');
    for (let i = 0; i < 20; i += 1) {
      await world.deliver();
      world.clock.advance(3 * MINUTE);
      await world.tick();
    }
    await world.settle();
    expect((await world.receipt('a')).status).toBe('succeeded');
  });

  it.each<[string, object]>([
    ['is forbidden', { status: 403 }],
    ['makes no sense', { status: 200, body: '{}' }],
    ['fails for hours', { status: 500 }],
  ])('is left to the setting in the end if the listing %s', async (_, fault) => {
    await start();
    world.service.intercept = (_, { operation, n }) => {
      if (operation === 'createFlow') return n === 1 ? lost : undefined;
      return operation === 'listFlows' ? fault : undefined;
    };
    await world.upload('a', 'x');
    await world.settle(60);
    expect((await world.receipt('a')).status).toBe('succeeded');
    expect(world.count('DoubtsRetried')).toBe(1);
  });

  it('is sent again once, and counted, if no listing is served', async () => {
    await start({ service: { variation: { listFlows: 404 } } });
    losing(1);
    await world.upload('a', 'x');
    await world.settle();
    expect(world.service.flows).toHaveLength(2);
    expect(world.count('DoubtsRetried')).toBe(1);
    expect((await world.receipt('a')).flow?.id).toBe(world.service.flows[1]?.id);
  });

  it('is held for the operator if no listing is served and the setting says so', async () => {
    await start({ service: { variation: { listFlows: 501 } }, settings: { inDoubt: 'hold' } });
    losing(1);
    await world.upload('a', 'x');
    await world.waitOutDoubt();
    expect(await world.entry()).toMatchObject({ state: 'waiting', reason: 'held' });
    expect(world.service.flows).toHaveLength(1);
    expect(world.count('DoubtsHeld')).toBeGreaterThan(0);

    const { id } = (await world.entry()).upload;
    const signal = new AbortController().signal;
    expect(await retryUploads([id], world.ports, signal)).toEqual([{ upload: id, result: 'resubmitted' }]);
    await world.settle();
    expect((await world.receipt('a')).status).toBe('succeeded');
    expect(world.service.flows).toHaveLength(2);
  });
});

describe('a claim whose invocation died', () => {
  /** Leaves the entry as a killed invocation leaves it. Returns the message. */
  async function abandoned(state: 'before the POST' | 'after the POST'): Promise<string> {
    await world.upload('a', 'x');
    const [body = ''] = takeMessages();
    world.queue.send(body);
    await world.deliver();
    const entry = (await world.entry()) as RunningEntry;
    const [marker = ''] = await world.keys(LEDGER, 'running/');
    await world.s3.send(new DeleteObjectCommand({ Bucket: LEDGER, Key: marker }));
    const { flow, ...rest } = entry;
    const claimed: ClaimedEntry = {
      ...rest,
      state: 'claimed',
      claimedAt: flow.createdAt,
      deadline: flow.createdAt + 80_000,
    };
    const key = `uploads/${entry.upload.id}.json`;
    await world.s3.send(new PutObjectCommand({ Bucket: LEDGER, Key: key, Body: JSON.stringify(claimed) }));
    if (state === 'before the POST') {
      const response = await fetch(new URL(`/flows/${flow.id}`, world.ports.settings.baseUrl), {
        method: 'PATCH',
        headers: { authorization: 'Bearer obviously-fake-token', 'content-type': 'application/json' },
        body: '{"action":"abort"}',
      });
      expect(response.status).toBeLessThan(300);
    }
    return body;
  }

  it('is left alone until its deadline, and so is its message', async () => {
    await start();
    world.queue.send(await abandoned('after the POST'));
    expect(await failuresOfDelivery()).toBe(1);
    expect(await world.entry()).toMatchObject({ state: 'claimed' });
  });

  it('is taken over after its deadline, and its flow is found', async () => {
    await start();
    world.queue.send(await abandoned('after the POST'));
    world.clock.advance(2 * MINUTE);
    expect(await failuresOfDelivery()).toBe(0);
    expect(await world.entry()).toMatchObject({ state: 'running', flow: { id: world.service.flows[0]?.id } });
    expect(world.service.flows).toHaveLength(1);
    await world.settle();
    expect((await world.receipt('a')).status).toBe('succeeded');
  });
});

describe('a file that kills every invocation', () => {
  it('fails after its attempts. Each attempt may have been paid for', async () => {
    await start({ settings: { attemptsMax: 3 }, service: { variation: { listFlows: 404 } } });
    await world.upload('a', 'x');
    const { replace } = world.ports.ledger;
    // The process dies after the service has answered and before the answer is written down.
    world.ports.ledger.replace = async (stored, entry, signal) => {
      if (entry.state === 'running') throw new Error('killed');
      return replace.call(world.ports.ledger, stored, entry, signal) as never;
    };
    for (let i = 0; i < 10; i += 1) {
      while ((await world.deliver()) !== undefined);
      world.clock.advance(20 * MINUTE);
      await world.tick();
    }
    expect(await world.receipt('a')).toMatchObject({ status: 'failed', failure: { code: 'attempts-exhausted' } });
    expect(world.service.flows.length).toBeLessThanOrEqual(3);
  });
});

describe('another invocation that took the upload over', () => {
  /** Delivers an upload, and changes its entry before its flow is made. */
  async function overtaken(change: (entry: ClaimedEntry) => object) {
    await world.upload('a', 'x');
    const release = holdCreations();
    const delivery = world.deliver();
    let key: string | undefined;
    while (key === undefined) [key] = await world.keys(LEDGER, 'uploads/');
    const entry = await world.json<ClaimedEntry>(LEDGER, key);
    await world.put(LEDGER, key, JSON.stringify({ ...entry, nonce: 'theirs', ...change(entry) }));
    release();
    return delivery;
  }

  it('and waits in doubt is given our flow', async () => {
    await start();
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
    await world.settle();
    expect((await world.receipt('a')).status).toBe('succeeded');
  });

  it('and is at work on it finds our flow, and the message stays in the queue', async () => {
    await start();
    const response = await overtaken(({ claimedAt }) => ({ claimedAt: claimedAt + 1, deadline: claimedAt + 60_000 }));
    expect(response?.batchItemFailures).toHaveLength(1);
    expect(world.service.flows[0]?.aborted).toBe(false);
    world.clock.advance(3 * MINUTE);
    await world.settle();
    expect((await world.receipt('a')).status).toBe('succeeded');
    expect(world.service.flows).toHaveLength(1);
  });

  it('and has another flow makes ours an orphan, which is aborted and counted', async () => {
    await start();
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

describe('an upload that is gone when it is sent again', () => {
  it('ends as failed, with a receipt that says so', async () => {
    await start({ versioning: undefined });
    world.service.intercept = (_, { operation, n }) =>
      operation === 'createFlow' && n === 1 ? { status: 429 } : undefined;
    await world.upload('a', 'x');
    await world.deliver();
    await world.remove('a');
    await world.settle();
    expect(await world.receipt('a')).toMatchObject({ status: 'failed', failure: { code: 'upload-gone' } });
    expect(world.service.flows).toEqual([]);
  });
});

describe('an upload outside of the present inbox', () => {
  const replaceInbox = () => world.redeploy({ inboxBucket: 'new-inbox' });
  const isAllowed = ({ resource }: { readonly resource: string }) =>
    world.ports.settings.inboxBucket === INBOX || !/:::inbox(\/|$)/.test(resource);

  it('ends as failed if it waits, with a receipt that says so', async () => {
    await start({ s3: { authorize: isAllowed } });
    world.service.intercept = (_, { operation, n }) =>
      operation === 'createFlow' && n === 1 ? { status: 429 } : undefined;
    await world.upload('a', 'x');
    await world.deliver();
    replaceInbox();
    await world.settle();
    const failure = { code: 'outside-inbox', message: expect.stringContaining('new-inbox') };
    expect(await world.receipt('a')).toMatchObject({ status: 'failed', failure });
    expect(world.service.flows).toEqual([]);
  });

  it('is collected if it is in doubt and its flow is found', async () => {
    await start({ s3: { authorize: isAllowed }, service: { variation: { listingDelayMs: 3 * MINUTE } } });
    world.service.intercept = (_, { operation, n }) =>
      operation === 'createFlow' && n === 1 ? { reset: 'after-effect' } : undefined;
    await world.upload('a', 'x');
    await world.deliver();
    expect(await world.entry()).toMatchObject({ state: 'waiting', reason: 'in-doubt' });
    replaceInbox();
    await world.settle();
    expect(await world.receipt('a')).toMatchObject({ status: 'succeeded' });
    expect(world.count('FlowsAdopted')).toBe(1);
  });

  it('ends as failed if it is in doubt and has no flow', async () => {
    await start({ s3: { authorize: isAllowed } });
    world.service.intercept = (_, { operation, n }) =>
      operation === 'createFlow' && n === 1 ? { status: 500 } : undefined;
    await world.upload('a', 'x');
    await world.deliver();
    replaceInbox();
    await world.settle();
    expect((await world.receipt('a')).failure?.code).toBe('outside-inbox');
    expect(world.service.flows).toEqual([]);
  });

  it('is found by the sweep if its claim died, although its message no longer leads to it', async () => {
    await start({ s3: { authorize: isAllowed } });
    await world.sweep();
    await world.upload('a', 'x');
    const { upload, discard } = await world.ports.inbox.open({ bucket: INBOX, key: 'a' }, never);
    discard();
    const claimedAt = world.clock.now();
    const claim = firstClaim(upload, ECHO, { claimedAt, deadline: claimedAt + MINUTE, pipeline: 'test' });
    await world.ports.ledger.create(claim, never);
    await world.s3.send(new CreateBucketCommand({ Bucket: 'new-inbox' }));
    replaceInbox();
    await world.settle();
    expect(await world.entry()).toMatchObject({ state: 'claimed' });
    world.clock.advance(60 * MINUTE);
    await world.sweep();
    await world.settle();
    expect((await world.receipt('a')).failure?.code).toBe('outside-inbox');
  });

  it('is collected if it runs, beside a newer upload at its key in the present inbox', async () => {
    await start({ s3: { authorize: isAllowed } });
    await world.upload('a', 'old');
    await world.deliver();
    await world.s3.send(new CreateBucketCommand({ Bucket: 'new-inbox' }));
    replaceInbox();
    await world.s3.send(new PutObjectCommand({ Bucket: 'new-inbox', Key: 'a', Body: 'newer' }));
    const s3 = { bucket: { name: 'new-inbox' }, object: { key: 'a' } };
    world.queue.send(JSON.stringify({ Records: [{ eventName: 'ObjectCreated:Put', s3 }] }));
    await world.settle();
    expect(world.service.flows).toHaveLength(2);
    expect((await world.receipt('a')).upload.bucket).toBe('new-inbox');
  });
});
