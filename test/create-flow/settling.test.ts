import { DeleteObjectCommand } from '@aws-sdk/client-s3';
import { describe, expect, it } from 'vitest';
import type { Entry } from '../../functions/ledger/entry.ts';
import type { Fault } from '../../local/flow-service/fault.ts';
import { complete, uploadParts } from '../support/s3-calls.ts';
import { dyingAt, ECHO, INBOX, LEDGER, MINUTE, SECOND, start, type WorldOptions, world } from '../support/world.ts';

// A route with `settleSeconds` sends a file once its key has not changed for so long.

/** A service that lists no flows, and honours the key of a request. */
const KEYS: WorldOptions = {
  speaks: { list: null },
  service: { variation: { idempotencyHours: 24, listFlows: 404 } },
};

const STILL = { ...ECHO, settleSeconds: 60 };

const begin = (options: WorldOptions = {}): Promise<void> => start({ routes: [STILL], ...options });

/** Lets time pass until all has ended. */
const passMinutes = (minutes = 4): Promise<void> => world.deliverAndTick(4 * minutes, 15 * SECOND);

const ends = async () =>
  (await world.entries()).map((entry) => (entry.state === 'failed' ? entry.failure.code : entry.state)).toSorted();

const flowCount = (): number => world.service.flows.length;

/** Sends messages that were held back. */
async function announce(messages: readonly string[]): Promise<void> {
  for (const message of messages) await world.ports.queue.send(message, AbortSignal.timeout(5_000));
}

/** Puts a file. Returns a message about it that says that it is a copy. */
async function putUnannouncedCopy(content: string): Promise<string> {
  await world.upload('a', content);
  const record = JSON.parse(world.takeMessages()[0] as string).Records[0];
  return JSON.stringify({ Records: [{ ...record, eventName: 'ObjectCreated:Copy' }] });
}

const putCopy = async (content: string): Promise<void> => announce([await putUnannouncedCopy(content)]);

/** Delivers what is due, in an invocation that dies at this write to the ledger. */
async function dieAtWrite(n: number): Promise<void> {
  await world.tick();
  const revive = dyingAt(world.ports.ledger, 'replace', n);
  await world.deliverAll();
  revive();
}

describe.each([undefined, 'Enabled'] as const)('in a bucket whose versioning is %s', (versioning) => {
  it('a file waits until it is still, and is then sent', async () => {
    await begin({ versioning });
    await world.send('a', 'x');
    const entry = await world.entry();
    const { lastModified, currentAt = lastModified } = entry.upload;
    expect(entry).toMatchObject({ state: 'waiting', reason: 'settling', notBefore: currentAt + MINUTE, waits: 0 });
    expect(entry).toMatchObject({ message: expect.stringContaining('It waits until it is still') });
    expect(flowCount()).toBe(0);
    await passMinutes();
    expect(await ends()).toEqual(['succeeded']);
  });

  it('five saves in a minute are one flow, of the last content', async () => {
    await begin({ versioning });
    for (let save = 1; save <= 5; save += 1) {
      await world.send('a', `save ${save}`);
      world.clock.advance(10 * SECOND);
    }
    await passMinutes();
    expect(await ends()).toEqual(['succeeded', 'superseded', 'superseded', 'superseded', 'superseded']);
    expect(flowCount()).toBe(1);
    expect(await world.receipt('a')).toMatchObject({ status: 'succeeded', upload: { bytes: 6 } });
    expect(world.count('UploadsFailed')).toBe(0);
  });

  it('five saves whose messages come late are one flow too', async () => {
    await begin({ versioning });
    for (let save = 1; save <= 5; save += 1) await world.upload('a', `save ${save}`);
    world.clock.advance(5 * MINUTE);
    await passMinutes();
    expect(flowCount()).toBe(1);
  });

  it('the same content put twice is one flow, although the second message comes late', async () => {
    await begin({ versioning });
    await world.send('a', 'x');
    world.clock.advance(10 * SECOND);
    await world.upload('a', 'x');
    const late = world.takeMessages();
    await passMinutes(3);
    expect(flowCount()).toBe(1);
    await announce(late);
    await passMinutes();
    expect(await ends()).toEqual(['succeeded', 'superseded']);
    expect(flowCount()).toBe(1);
  });

  it.each([
    [1, 'that lists its flows', {}],
    [2, 'that lists its flows', {}],
    [3, 'that lists its flows', {}],
    [1, 'that honours keys', KEYS],
    [2, 'that honours keys', KEYS],
    [3, 'that honours keys', KEYS],
  ])(
    'the same content put twice is one flow, although an invocation dies at its write %i, of a service %s',
    async (n, _, service) => {
      await begin({ versioning, ...service });
      await world.send('a', 'x');
      world.clock.advance(10 * SECOND);
      await world.upload('a', 'x');
      world.takeMessages();
      world.clock.advance(2 * MINUTE);
      await dieAtWrite(n);
      await passMinutes(30);
      expect(await ends()).toEqual(['succeeded', 'superseded']);
      expect(flowCount()).toBe(1);
    },
  );

  it.each(['message', 'sweep'])(
    'content that is put again after other content is one flow, although its %s comes late',
    async (how) => {
      await begin({ versioning });
      await world.send('a', 'x');
      world.clock.advance(10 * SECOND);
      await world.send('a', 'other');
      world.clock.advance(10 * SECOND);
      await world.upload('a', 'x');
      const late = world.takeMessages();
      world.clock.advance(5 * MINUTE);
      await world.tick();
      for (const message of world.takeMessages()) {
        await announce([message]);
        await world.deliver();
      }
      if (how === 'message') await announce(late);
      world.clock.advance(30 * MINUTE);
      if (how === 'sweep') await world.sweep({ since: new Date(0).toISOString() });
      await passMinutes();
      expect(await ends()).toEqual(['succeeded', 'superseded', 'superseded']);
      expect(flowCount()).toBe(1);
      expect((await world.receipt('a')).status).toBe('succeeded');
    },
  );

  it('the same content put after it was still is a new file, although its message comes late', async () => {
    await begin({ versioning });
    await world.send('a', 'x');
    await passMinutes();
    await world.upload('a', 'x');
    world.clock.advance(5 * MINUTE);
    await passMinutes();
    expect(await ends()).toEqual(['succeeded', 'succeeded']);
    expect(flowCount()).toBe(2);
  });

  it('the empty file of a mounted bucket gives way to its content, and is told as no failure', async () => {
    await begin({ versioning });
    await world.send('a', '');
    world.clock.advance(20 * SECOND);
    await world.send('a', 'content');
    await passMinutes();
    expect(await ends()).toEqual(['succeeded', 'superseded']);
    expect(world.count('UploadsFailed')).toBe(0);
  });

  it('an empty file that stays fails as empty', async () => {
    await begin({ versioning });
    await world.send('a', '');
    await passMinutes();
    expect(await ends()).toEqual(['input-empty']);
  });

  it('a temporary name that is deleted is not sent, and no failure', async () => {
    await begin({ versioning });
    await world.send('a.new', 'x');
    await world.send('a', 'x');
    await world.s3.send(new DeleteObjectCommand({ Bucket: INBOX, Key: 'a.new' }));
    await passMinutes();
    expect(await ends()).toEqual(['succeeded', 'superseded']);
    expect(flowCount()).toBe(1);
    expect(await world.receipt('a.new')).toMatchObject({
      failure: { code: 'superseded', message: 'The file was deleted before it was still.' },
    });
  });

  it('is not sent in two versions although the invocation that found it still has died', async () => {
    await begin({ versioning });
    await world.send('a', 'one');
    world.clock.advance(2 * MINUTE);
    await world.tick();
    const revive = dyingAt(world.ports.inbox, 'open');
    await world.deliverAll();
    revive();
    expect(await world.entry()).toMatchObject({ state: 'claimed', settles: true });
    await world.upload('a', 'another');
    await passMinutes(30);
    expect(await ends()).toEqual(['succeeded', 'superseded']);
    expect(flowCount()).toBe(1);
  });
});

const NO_FLOW: Fault = { status: 500, body: '' };
const LOST: Fault = { reset: 'after-effect' };

/** Sends a first file, and leaves it in doubt: its request gets this answer, and the listing fails. */
const sendInVain = async (fault: Fault): Promise<void> => {
  await world.send('a', 'x');
  world.clock.advance(2 * MINUTE);
  let isSent = false;
  world.service.intercept = (_, { operation }) => {
    if (operation === 'createFlow' && !isSent) {
      isSent = true;
      return fault;
    }
    return operation === 'listFlows' ? { status: 503 } : undefined;
  };
  world.remainingMs = 20 * SECOND;
  await world.deliverAndTick(2, 0);
  world.service.intercept = undefined;
  expect(await world.entry()).toMatchObject({ state: 'waiting', reason: 'in-doubt' });
};

describe.each([undefined, 'Enabled'] as const)(
  'after a request without a usable answer, with versioning %s',
  (versioning) => {
    /** The message of a file that is put now, and comes late. */
    const putUnannounced = async (content: string): Promise<() => Promise<void>> => {
      await world.upload('a', content);
      const late = world.takeMessages();
      return () => announce(late);
    };
    const sentAfter = (time: number) => world.service.flows.filter(({ createdAt }) => createdAt > time).length;

    it.each([
      ['made no flow', NO_FLOW],
      ['made a flow that is found later', { ...NO_FLOW, at: 'after-effect' } as Fault],
    ])(
      'the same content put again is sent although its message comes late, if the first request %s',
      async (_, fault) => {
        await begin({ versioning });
        await sendInVain(fault);
        const announceLate = await putUnannounced('x');
        const putAt = world.clock.now();
        world.clock.advance(50 * SECOND);
        await announceLate();
        await passMinutes(15);
        expect(sentAfter(putAt)).toBe(1);
        expect((await ends()).filter((end) => end === 'succeeded')).toHaveLength(flowCount());
      },
    );

    it('the same content put again is sent, although its message comes after the first request was repeated', async () => {
      await begin({ versioning, ...KEYS });
      await sendInVain(LOST);
      const announceLate = await putUnannounced('x');
      const putAt = world.clock.now();
      await passMinutes(10);
      expect(flowCount()).toBe(1);
      await announceLate();
      await passMinutes();
      expect(sentAfter(putAt)).toBe(1);
      expect(await ends()).toEqual(['succeeded', 'succeeded']);
    });
  },
);

it('a file whose request got no answer has its flow collected, although a newer file has come', async () => {
  await begin({ versioning: 'Enabled', ...KEYS });
  await sendInVain(LOST);
  await world.send('a', 'another');
  await passMinutes(10);
  expect(await ends()).toEqual(['succeeded', 'succeeded']);
  expect(flowCount()).toBe(2);
});

it.each([undefined, 'Enabled'] as const)(
  'a file that a hold keeps after it was still gives way to a newer one, with versioning %s',
  async (versioning) => {
    await begin({ versioning });
    await world.collect({ hold: { action: 'pause', route: 'echo' } });
    await world.send('a', 'one');
    await passMinutes();
    await world.send('a', 'another');
    await passMinutes();
    await world.collect({ hold: { action: 'resume', route: 'echo' } });
    await passMinutes();
    expect(await ends()).toEqual(['succeeded', 'superseded']);
    expect(flowCount()).toBe(1);
  },
);

it('a file that is deleted while a hold keeps it after it was still is sent all the same, in its version', async () => {
  await begin();
  await world.collect({ hold: { action: 'pause', route: 'echo' } });
  await world.send('a', 'one');
  await passMinutes();
  await world.remove('a');
  await world.collect({ hold: { action: 'resume', route: 'echo' } });
  await passMinutes();
  expect(await ends()).toEqual(['succeeded']);
});

it.each([undefined, 'Enabled'] as const)(
  'a file is sent although an earlier one with its content gives way at that moment, with versioning %s',
  async (versioning) => {
    await begin({ versioning });
    await world.send('a', 'x');
    const first = (await world.entry()).upload.id;
    await world.upload('a', 'other');
    let isPut = false;
    world.takeMessages();
    world.beforeS3(async (call, { Key }) => {
      // The other file was seen at the key.
      if (isPut || call !== 'GetObject' || !Key?.startsWith('uploads/') || Key.includes(first)) return;
      isPut = true;
      await world.upload('a', 'x');
      world.takeMessages();
      world.clock.advance(2 * SECOND);
    });
    await passMinutes();
    expect(isPut).toBe(true);
    world.clock.advance(30 * MINUTE);
    await world.sweep({ since: new Date(0).toISOString() });
    await passMinutes();
    const sent = (await world.entries()).filter(({ state }) => state === 'succeeded');
    expect(sent.map(({ upload }) => upload.bytes)).toContain(1);
  },
);

it('a copy onto itself takes the place of the file, and makes it wait for as long again', async () => {
  await begin({ versioning: 'Enabled' });
  await world.send('a', 'x');
  world.clock.advance(50 * SECOND);
  const copied = await putUnannouncedCopy('x');
  world.clock.advance(20 * SECOND);
  await world.deliverAndTick(1, 0);
  expect(flowCount()).toBe(0);
  await announce([copied]);
  await passMinutes();
  expect(await ends()).toEqual(['succeeded', 'superseded']);
  expect(flowCount()).toBe(1);
});

it('the newest file has the receipt, although it came in the second in which a copy before it was begun', async () => {
  await begin({ versioning: 'Enabled' });
  await world.send('a', 'x');
  world.clock.advance(10 * SECOND);
  await putCopy('x');
  await world.deliverAll();
  world.clock.advance(2 * MINUTE);
  await world.tick();
  await world.deliverAll();
  world.clock.advance(300);
  await world.upload('a', 'newest');
  await passMinutes(10);
  expect(await world.receipt('a')).toMatchObject({ status: 'succeeded', upload: { bytes: 6 } });
});

it.each([undefined, 'Enabled'] as const)(
  'a copy is sent although an invocation died right after it had begun it, with versioning %s',
  async (versioning) => {
    await begin({ versioning });
    await world.send('a', 'x');
    const first = (await world.entry()).upload.id;
    world.clock.advance(50 * SECOND);
    await putCopy('x');
    await world.deliverAll();
    world.clock.advance(15 * SECOND);
    await world.tick();
    let isDead = false;
    let isOver = false;
    world.beforeS3((call, { Key }) => {
      if (isOver) return;
      if (call === 'PutObject' && Key?.startsWith('waiting/') && !Key.includes(first)) isDead = true;
      if (isDead) throw Object.assign(new Error('killed'), { name: 'Killed', $metadata: { httpStatusCode: 400 } });
    });
    await world.deliverAll().catch(() => undefined);
    expect(isDead).toBe(true);
    isOver = true;
    await passMinutes(60);
    expect(flowCount()).toBe(1);
  },
);

it.each([3, 4, 6])(
  'a copy is sent, and nothing else, although the service lists no flows and an invocation dies at its write %i',
  async (n) => {
    const service = { variation: { listFlows: 404 } } as const;
    await begin({ versioning: 'Enabled', speaks: { list: null }, service, settings: { inDoubt: 'ask' } });
    await world.send('a', 'x');
    await putCopy('x');
    await world.deliverAll();
    world.clock.advance(2 * MINUTE);
    await dieAtWrite(n);
    await passMinutes(30);
    expect(await ends()).toEqual(['succeeded', 'superseded']);
    expect(flowCount()).toBe(1);
  },
);

it('content that is copied back over other content is sent, without versions', async () => {
  await begin({ versioning: undefined });
  await world.send('a', 'x');
  await passMinutes();
  await world.send('a', 'other');
  world.clock.advance(10 * SECOND);
  await putCopy('x');
  await passMinutes(10);
  expect(flowCount()).toBe(2);
  expect((await world.receipt('a')).status).toBe('succeeded');
});

it('so is content that is copied back over a multipart upload that was begun before it was first put', async () => {
  await begin({ versioning: undefined });
  const place = { client: world.s3, Bucket: INBOX, Key: 'a' };
  const multipart = await uploadParts(place, ['y']);
  world.clock.advance(10 * SECOND);
  await world.send('a', 'x');
  await passMinutes();
  await complete(place, multipart);
  await world.deliver();
  world.clock.advance(10 * SECOND);
  await putCopy('x');
  await passMinutes(10);
  expect(await ends()).toEqual(['succeeded', 'succeeded', 'superseded']);
  expect(flowCount()).toBe(2);
});

it('the request of an invocation that died after it has its flow collected, although a newer file has come', async () => {
  await begin({ versioning: 'Enabled', ...KEYS });
  await world.send('a', 'x');
  world.clock.advance(2 * MINUTE);
  await world.tick();
  let isDead = false;
  world.service.intercept = (_, { operation }) => {
    if (operation === 'createFlow') isDead = true;
    return undefined;
  };
  world.beforeS3(() => {
    if (isDead) throw new Error('killed');
  });
  await world.deliverAll().catch(() => undefined);
  expect(isDead).toBe(true);
  isDead = false;
  world.service.intercept = undefined;
  await world.send('a', 'another');
  await passMinutes(60);
  expect(await ends()).toEqual(['succeeded', 'succeeded']);
});

it('a copy of a file that was sent is not begun by the file before it, whose message comes late', async () => {
  await begin({ versioning: 'Enabled' });
  await world.upload('a', 'x');
  const late = world.takeMessages();
  world.clock.advance(10 * SECOND);
  await world.send('a', 'x');
  await passMinutes();
  await putCopy('x');
  await passMinutes();
  await announce(late);
  await passMinutes(10);
  expect(await ends()).toEqual(['succeeded', 'superseded']);
  expect(flowCount()).toBe(1);
});

it.each([
  ['of the same content', 'x'],
  ['of other content', 'y'],
])(
  'a claim that dies before its file was seen to be still leaves no doubt, and gives way to a file %s',
  async (_, content) => {
    await begin({ versioning: 'Enabled', ...KEYS });
    await world.send('a', 'x');
    world.clock.advance(2 * MINUTE);
    await dieAtWrite(2);
    await world.upload('a', content);
    const late = world.takeMessages();
    await passMinutes(40);
    await announce(late);
    await passMinutes(20);
    expect(await ends()).toEqual(['succeeded', 'superseded']);
    expect(flowCount()).toBe(1);
  },
);

it.each([1, 2, 3, 4, 5, 6])(
  'the file that took the place of another is begun again if the invocation died at write %i, and used up the attempts of both',
  async (n) => {
    await begin({ versioning: 'Enabled', settings: { attemptsMax: 1 } });
    await world.send('a', 'x');
    world.clock.advance(10 * SECOND);
    await putUnannouncedCopy('x');
    world.clock.advance(2 * MINUTE);
    await dieAtWrite(n);
    await passMinutes(60);
    expect((await world.entries()).map(({ state }) => state).filter((state) => state === 'claimed')).toEqual([]);
  },
);

it.each([1, 2, 3, 4, 5, 6])(
  'the file that took the place of another ends if the invocation died at write %i, and a third one came',
  async (n) => {
    await begin({ versioning: 'Enabled' });
    await world.send('a', 'x');
    world.clock.advance(10 * SECOND);
    await putUnannouncedCopy('x');
    world.clock.advance(2 * MINUTE);
    await dieAtWrite(n);
    await world.upload('a', 'newest');
    await passMinutes(60);
    expect((await world.entries()).map(({ state }) => state).filter((state) => state === 'claimed')).toEqual([]);
    expect((await world.receipt('a')).upload.bytes).toBe(6);
  },
);

it.each([
  ['is damaged', '{'],
  ['is of another format', '{"schema":99}'],
])('a file gives way to one of the same content whose entry %s', async (_, unreadable) => {
  await begin({ versioning: 'Enabled' });
  await world.send('a', 'x');
  const { upload } = await world.entry();
  world.clock.advance(10 * SECOND);
  await world.send('a', 'x');
  const [later = ''] = (await world.keys(LEDGER, 'uploads/')).filter((key) => !key.includes(upload.id));
  await world.put(LEDGER, later, unreadable);
  await passMinutes(10);
  expect(await world.json<Entry>(LEDGER, `uploads/${upload.id}.json`)).toMatchObject({
    state: 'failed',
    failure: { code: 'superseded' },
  });
  expect(flowCount()).toBe(0);
});

it('a copy of a file in doubt is no new file', async () => {
  await begin({ versioning: 'Enabled', ...KEYS });
  await world.send('a', 'x');
  world.clock.advance(2 * MINUTE);
  await dieAtWrite(3);
  expect(flowCount()).toBe(1);
  await putCopy('x');
  await passMinutes(30);
  expect(await ends()).toEqual(['succeeded']);
  expect(flowCount()).toBe(1);
});

it('an old file that the sweep finds is sent at once', async () => {
  await begin();
  await world.upload('a', 'x');
  world.takeMessages();
  world.clock.advance(30 * MINUTE);
  await world.sweep({ since: new Date(0).toISOString() });
  await world.deliverAll();
  expect(await world.entry()).toMatchObject({ state: 'running' });
});

it('a retry by the operator sends a file that waits until it is still', async () => {
  await begin();
  await world.send('a', 'x');
  await world.collect({ retry: [(await world.entry()).upload.id] });
  await world.deliverAll();
  expect(await world.entry()).toMatchObject({ state: 'running' });
});

it('a file that was throttled after it was still does not wait for that again', async () => {
  await begin();
  await world.send('a', 'x');
  world.clock.advance(2 * MINUTE);
  world.fault('createFlow', { status: 503, body: '' }, 1);
  await passMinutes(1);
  await passMinutes(10);
  expect(flowCount()).toBe(1);
});

it('a file that S3 refused at first is not sent in two versions', async () => {
  await begin({ versioning: 'Enabled' });
  let isDenied = true;
  world.beforeS3((call) => {
    if (isDenied && call === 'GetObject') {
      isDenied = false;
      throw Object.assign(new Error('Access Denied'), { name: 'AccessDenied', $metadata: { httpStatusCode: 403 } });
    }
  });
  await world.send('a', 'one');
  expect(await world.entry()).toMatchObject({ state: 'waiting', reason: 'forbidden' });
  await world.send('a', 'two');
  await passMinutes(10);
  expect(await ends()).toEqual(['succeeded', 'superseded']);
});
