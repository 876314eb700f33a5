import { DeleteObjectCommand, PutBucketVersioningCommand } from '@aws-sdk/client-s3';
import { describe, expect, it } from 'vitest';
import { answer, ECHO, HOUR, INBOX, LEDGER, MINUTE, start, world } from '../support/world.ts';

// S3 announces a change of metadata, storage class or encryption as a copy. Its content is no new upload.

/** Puts an object, and announces it as a copy, in the form of S3 or of EventBridge. */
async function copy(form: 's3' | 'bridge', ...upload: Parameters<typeof world.upload>): Promise<void> {
  world.takeMessages();
  await world.upload(...upload);
  for (const message of world.takeMessages()) {
    const [record] = JSON.parse(message).Records;
    const { bucket, object } = record.s3;
    const detail = {
      bucket: { name: bucket.name },
      object: {
        ...{ key: decodeURIComponent(object.key), size: object.size, etag: object.eTag, sequencer: object.sequencer },
        'version-id': object.versionId,
      },
      reason: 'CopyObject',
    };
    const event = { source: 'aws.s3', 'detail-type': 'Object Created', time: record.eventTime, detail };
    const announced = form === 's3' ? { Records: [{ ...record, eventName: 'ObjectCreated:Copy' }] } : event;
    await world.ports.queue.send(JSON.stringify(announced), new AbortController().signal);
  }
}

const JOB_FILE = JSON.stringify({ inputs: ['front.png'] });

const laterBy = (ms: number) => world.clock.advance(ms);

it.each([
  ['superseded', () => world.upload('a', 'other')],
  ['upload-gone', () => world.remove('a')],
] as const)(
  'is sent if it was put while the one before it ended as %s, and only the sweep finds it',
  async (code, act) => {
    await start({ versioning: undefined });
    await world.collect({ hold: { action: 'pause' } });
    await world.send('a', 'x');
    laterBy(MINUTE);
    await act();
    let isPut = false;
    world.beforeS3(async (call, { Key, Body }) => {
      if (isPut || call !== 'PutObject' || !Key?.startsWith('uploads/')) return;
      if (JSON.parse(String(Body)).state !== 'failed') return;
      isPut = true;
      // S3's clock is two seconds behind.
      laterBy(-2_000);
      await world.upload('a', 'x');
      laterBy(2_000);
      world.takeMessages();
    });
    world.takeMessages();
    await world.collect({ hold: { action: 'resume' } });
    await world.settle();
    expect(await world.entries()).toMatchObject([{ state: 'failed', failure: { code } }]);
    laterBy(HOUR);
    await world.sweep({ since: '2026-01-01' });
    await world.settle();
    expect((await world.entries()).map(({ state }) => state)).toEqual(['failed', 'succeeded']);
  },
);

describe.each([
  ['Enabled', 's3'],
  ['Enabled', 'bridge'],
  [undefined, 's3'],
  [undefined, 'bridge'],
] as const)('a copy onto itself, with versioning %s, announced by %s', (versioning, form) => {
  it('is skipped and counted after a success, and so is a copy of the copy', async () => {
    await start({ versioning });
    await world.send('a', 'x');
    await world.settle();
    for (const type of ['text/plain', 'text/html']) {
      laterBy(HOUR);
      await copy(form, 'a', 'x', { ContentType: type });
      await world.settle();
    }
    expect(world.service.flows).toHaveLength(1);
    expect(world.count('UploadsSkipped')).toBe(2);
    expect(await world.entries()).toHaveLength(1);
  });

  it('is sent if the entry of the upload is damaged, because nobody knows what became of that', async () => {
    await start({ versioning });
    await world.send('a', 'x');
    const [damaged = ''] = await world.keys(LEDGER, 'uploads/');
    await world.put(LEDGER, damaged, 'no JSON');
    laterBy(HOUR);
    await copy(form, 'a', 'x');
    await world.deliverAll();
    expect(world.service.flows).toHaveLength(2);
    expect(await world.keys(LEDGER, 'uploads/')).toHaveLength(2);
  });

  it('is sent if the entry of the upload has expired', async () => {
    await start({ versioning, settings: { ledgerRetentionDays: 30 } });
    await world.send('a', 'x');
    await world.settle();
    laterBy(31 * 24 * HOUR);
    for (const key of await world.keys(LEDGER, 'uploads/'))
      await world.s3.send(new DeleteObjectCommand({ Bucket: LEDGER, Key: key }));
    await copy(form, 'a', 'x');
    await world.deliverAll();
    expect(world.service.flows).toHaveLength(2);
  });

  it('is skipped while the upload is under way, or waits', async () => {
    await start({ versioning });
    await world.collect({ hold: { action: 'pause' } });
    await world.send('a', 'x');
    laterBy(1_000);
    await copy(form, 'a', 'x');
    await world.deliverAll();
    expect(await world.entries()).toHaveLength(1);
    expect(world.count('UploadsSkipped')).toBe(1);
  });

  it('is not sent if the upload before it fails later, when it is announced again or the sweep finds it', async () => {
    await start({ versioning });
    await world.collect({ hold: { action: 'pause' } });
    await world.send('a', 'x');
    laterBy(MINUTE);
    await copy(form, 'a', 'x');
    const announced = world.takeMessages();
    laterBy(MINUTE);
    world.fault('createFlow', answer({ detail: 'No' }, 422), 1);
    await world.collect({ hold: { action: 'resume' } });
    await world.settle();
    expect((await world.entries()).map(({ state }) => state)).toEqual(['failed']);
    for (const message of announced) await world.ports.queue.send(message, new AbortController().signal);
    await world.deliverAll();
    laterBy(HOUR);
    await world.sweep({ since: '2026-01-01' });
    await world.settle();
    expect(world.service.flows).toEqual([]);
    expect(await world.entries()).toHaveLength(1);
  });

  it('is not sent either if the put before it is announced again', async () => {
    await start({ versioning });
    await world.upload('a', 'x');
    const [announced = ''] = world.takeMessages();
    await world.ports.queue.send(announced, new AbortController().signal);
    await world.settle();
    laterBy(MINUTE);
    await copy(form, 'a', 'x');
    await world.ports.queue.send(announced, new AbortController().signal);
    await world.settle();
    expect(world.service.flows).toHaveLength(1);
    expect(await world.entries()).toHaveLength(1);
  });

  it('does not replace an upload that waits', async () => {
    await start({ versioning });
    await world.collect({ hold: { action: 'pause' } });
    await world.send('a', 'x');
    for (let times = 0; times < 2; times += 1) {
      laterBy(MINUTE);
      await copy(form, 'a', 'x');
      await world.deliverAll();
    }
    await world.collect({ hold: { action: 'resume' } });
    await world.settle();
    expect(world.service.flows).toHaveLength(1);
    expect((await world.entries()).map(({ state }) => state)).toEqual(['succeeded']);
  });

  it('does not replace the first file of a chain', async () => {
    await start({ versioning, routes: [ECHO, { ...ECHO, name: 'then', after: 'echo' }] });
    await world.send('a', 'x');
    await world.tickAfter(10 * MINUTE);
    laterBy(MINUTE);
    await copy(form, 'a', 'x');
    await world.settle();
    expect(world.service.flows).toHaveLength(2);
    expect((await world.entries()).map(({ state }) => state)).toEqual(['succeeded', 'succeeded']);
  });

  it('does not replace a job that waits for its inputs', async () => {
    await start({ versioning, routes: [{ ...ECHO, jobs: 'jobs/' }] });
    const job = JSON.stringify({ inputs: ['front.png'] });
    await world.send('jobs/job.json', job);
    laterBy(MINUTE);
    await copy(form, 'jobs/job.json', job);
    await world.deliverAll();
    await world.send('jobs/front.png', 'front');
    expect(world.service.flows).toHaveLength(1);
    await world.settle();
    expect((await world.entries()).map(({ state }) => state)).toEqual(['succeeded']);
  });

  it.each([
    ['skipped if the inputs are the same', 'front', 'back', 1],
    ['skipped if an input is gone', 'front', undefined, 1],
    ['sent if an input has other content', 'front', 'edge', 2],
  ])('of a job file is %s', async (_, front, back, flows) => {
    await start({ versioning, routes: [{ ...ECHO, jobs: 'jobs/' }] });
    const job = JSON.stringify({ inputs: ['front.png', 'back.png'] });
    for (const side of ['front', 'back']) await world.send(`jobs/${side}.png`, side);
    await world.send('jobs/job.json', job);
    await world.settle();
    laterBy(HOUR);
    await world.send('jobs/front.png', front);
    if (back === undefined) await world.remove('jobs/back.png');
    else await world.send('jobs/back.png', back);
    await copy(form, 'jobs/job.json', job);
    await world.settle();
    laterBy(2 * HOUR);
    await world.settle();
    expect(world.service.flows).toHaveLength(flows);
    expect((await world.entries()).map(({ state }) => state)).toEqual(Array(flows).fill('succeeded'));
  });

  it('is not sent if its message comes again after a newer file has taken the place of both', async () => {
    await start({ versioning, routes: [{ ...ECHO, settleSeconds: 60 }] });
    await world.send('a', 'x');
    laterBy(1_000);
    await copy(form, 'a', 'x');
    const announced = world.takeMessages();
    await world.send('a', 'other');
    await world.settle();
    for (const message of announced) await world.ports.queue.send(message, new AbortController().signal);
    await world.settle();
    expect((await world.entries()).map(({ state }) => state)).toEqual(['failed', 'succeeded']);
  });

  it('is sent after a failure', async () => {
    await start({ versioning });
    world.fault('createFlow', answer({ detail: 'No' }, 422), 1);
    await world.send('a', 'x');
    laterBy(HOUR);
    await copy(form, 'a', 'x');
    await world.settle();
    expect(world.service.flows).toHaveLength(1);
  });

  it('is sent with other metadata of a flow, and skipped with others', async () => {
    await start({ versioning, routes: [{ ...ECHO, overrides: true }] });
    await world.upload('a', 'x', { Metadata: { 'flow-parameters': '{"copies":1}' } });
    await world.settle();
    laterBy(HOUR);
    await copy(form, 'a', 'x', { Metadata: { 'flow-parameters': '{"copies":1}', owner: 'me' } });
    await world.settle();
    expect(world.service.flows).toHaveLength(1);
    laterBy(HOUR);
    await copy(form, 'a', 'x', { Metadata: { 'flow-parameters': '{"copies":2}' } });
    await world.settle();
    expect(world.service.flows.map(({ parameters }) => parameters)).toEqual([{ copies: 1 }, { copies: 2 }]);
  });

  it('is skipped whatever replaced parts of the route: the operator, a job file, or a newer configuration', async () => {
    const routes = [
      { ...ECHO, overrides: true, jobs: 'jobs/' },
      { ...ECHO, name: 'files', overrides: true },
    ];
    await start({ versioning, routes });
    await world.upload('a', 'x', { Metadata: { 'flow-parameters': '{"copies":1}' } });
    const job = JSON.stringify({ inputs: [{ text: 'x' }], parameters: { copies: 2 } });
    await world.upload('jobs/job.json', job);
    await world.settle();
    const id = (await world.entries()).find(({ upload }) => upload.key === 'a')?.upload.id ?? '';
    await world.collect({ again: [id], parameters: { copies: 3 } });
    await world.settle();
    expect(world.service.flows.map(({ parameters }) => parameters)).toEqual([1, 2, 3].map((copies) => ({ copies })));
    world.redeploy({ routes: routes.map((each) => ({ ...each, template: 'other' })) });
    laterBy(HOUR);
    await copy(form, 'a', 'x', { Metadata: { 'flow-parameters': '{"copies":1}' } });
    await copy(form, 'jobs/job.json', job);
    await world.settle();
    expect(world.service.flows).toHaveLength(3);
  });

  it('is sent at another key, although that of its source begins with it', async () => {
    await start({ versioning });
    await world.send('a-copy', 'x');
    await world.settle();
    laterBy(HOUR);
    await copy(form, 'a', 'x');
    await world.settle();
    expect(world.service.flows).toHaveLength(2);
  });

  it('is skipped by its ETag, whatever checksums S3 keeps of both', async () => {
    await start({ versioning });
    await world.send('a', 'x', { ChecksumAlgorithm: 'CRC32' });
    await world.settle();
    laterBy(HOUR);
    await copy(form, 'a', 'x', { ChecksumAlgorithm: 'SHA256' });
    await world.settle();
    expect(world.service.flows).toHaveLength(1);
  });

  it('is sent with another content, and where nothing was before', async () => {
    await start({ versioning });
    await copy(form, 'a', 'x');
    await world.settle();
    laterBy(HOUR);
    await copy(form, 'a', 'y');
    await world.settle();
    expect(world.service.flows).toHaveLength(2);
  });
});

it('a copy is compared with the version before it, and not with a newer one', async () => {
  await start({ versioning: 'Enabled' });
  await world.send('a', 'x');
  await world.settle();
  laterBy(HOUR);
  await copy('s3', 'a', 'x');
  const announced = world.takeMessages();
  laterBy(HOUR);
  await world.send('a', 'y');
  for (const message of announced) await world.ports.queue.send(message, new AbortController().signal);
  await world.settle();
  expect(world.service.flows).toHaveLength(2);
});

it('a copy is sent if the upload that it repeats is not among the 20 newest versions', async () => {
  await start({ versioning: 'Enabled' });
  await world.send('a', 'x');
  await world.settle();
  const copyTimes = async (count: number) => {
    for (let times = 0; times < count; times += 1) await copy('s3', 'a', 'x');
    await world.settle();
  };
  await copyTimes(19);
  expect(world.service.flows).toHaveLength(1);
  await copyTimes(1);
  expect(world.service.flows).toHaveLength(2);
});

it.each([
  ['an hour', () => laterBy(HOUR)],
  ['a copy of the job file, which began nothing', () => copy('s3', 'jobs/job.json', JOB_FILE)],
])('a job file that is put again for new inputs is sent by the sweep, after %s', async (_, between) => {
  await start({ routes: [{ ...ECHO, jobs: 'jobs/' }] });
  await world.send('jobs/front.png', 'front');
  await world.send('jobs/job.json', JOB_FILE);
  await world.settle();
  await between();
  await world.settle();
  await world.send('jobs/front.png', 'another');
  await world.upload('jobs/job.json', JOB_FILE);
  world.takeMessages();
  laterBy(HOUR);
  await world.sweep({ since: '2026-01-01' });
  await world.settle();
  expect((await world.entries()).map(({ state }) => state)).toEqual(['succeeded', 'succeeded']);
});

it('a copied job file begins no job for an input that was put after it, by its message or by the sweep', async () => {
  await start({ routes: [{ ...ECHO, jobs: 'jobs/' }] });
  await world.send('jobs/front.png', 'front');
  await world.send('jobs/job.json', JOB_FILE);
  await world.settle();
  laterBy(HOUR);
  await copy('s3', 'jobs/job.json', JOB_FILE);
  const announced = world.takeMessages();
  laterBy(HOUR);
  await world.send('jobs/front.png', 'another');
  for (const message of announced) await world.ports.queue.send(message, new AbortController().signal);
  await world.settle();
  laterBy(HOUR);
  await world.sweep({ since: '2026-01-01' });
  await world.settle();
  expect(world.service.flows).toHaveLength(1);
});

it('a copy of a job file is skipped if its inputs have the same content by the checksums of S3', async () => {
  await start({ routes: [{ ...ECHO, jobs: 'jobs/' }] });
  const { facts } = world.ports.inbox;
  await world.send('jobs/front.png', 'front');
  await world.send('jobs/job.json', JOB_FILE);
  await world.settle();
  const [entry] = await world.entries();
  laterBy(HOUR);
  // With a key of KMS, each object has an ETag of its own.
  await world.send('jobs/front.png', 'again');
  const checksums = ['one', 'one', 'one', 'other'];
  const asked: (string | undefined)[] = [];
  world.ports.inbox.facts = async (object, signal) => {
    if (object.key !== 'jobs/front.png') return facts.call(world.ports.inbox, object, signal);
    asked.push(object.versionId);
    return { metadata: '{}', checksum: checksums.shift() };
  };
  await copy('s3', 'jobs/job.json', JOB_FILE);
  await world.settle();
  expect(world.service.flows).toHaveLength(1);
  expect(asked).toEqual([
    expect.not.stringMatching(entry?.inputs?.[0]?.versionId ?? ''),
    entry?.inputs?.[0]?.versionId,
  ]);
  await copy('s3', 'jobs/job.json', JOB_FILE);
  await world.settle();
  expect(world.service.flows).toHaveLength(2);
});

it('the same content that is put, and not copied, is meant', async () => {
  await start();
  await world.send('a', 'x');
  await world.settle();
  await world.send('a', 'x');
  await world.settle();
  expect(world.service.flows).toHaveLength(2);
});

it.each(['Enabled', undefined] as const)(
  'the sweep sends no copy, and does not count it as missed: versioning %s',
  async (versioning) => {
    await start({ versioning });
    await world.send('a', 'x');
    await world.settle();
    laterBy(HOUR);
    await world.upload('a', 'x');
    world.takeMessages();
    laterBy(HOUR);
    await world.sweep({ since: '2026-01-01' });
    await world.settle();
    expect(world.service.flows).toHaveLength(1);
    expect([world.count('UploadsMissed'), world.count('UploadsBackfilled')]).toEqual([0, 0]);
  },
);

it.each([
  ['Enabled', 'Suspended'],
  ['Suspended', 'Enabled'],
] as const)('a copy is skipped if versioning was %s before it, and is %s now', async (before, Status) => {
  await start({ versioning: before });
  await world.send('a', 'x');
  await world.settle();
  await world.s3.send(new PutBucketVersioningCommand({ Bucket: INBOX, VersioningConfiguration: { Status } }));
  for (const type of ['text/plain', 'text/html']) {
    laterBy(HOUR);
    await copy('s3', 'a', 'x', { ContentType: type });
    await world.settle();
  }
  expect(world.service.flows).toHaveLength(1);
  expect(world.count('UploadsSkipped')).toBe(2);
  laterBy(HOUR);
  await world.send('a', 'y');
  await world.settle();
  laterBy(HOUR);
  await copy('s3', 'a', 'x');
  await world.settle();
  expect(world.service.flows).toHaveLength(3);
});

it('the canary is meant, although its content never changes', async () => {
  await start({ settings: { canaryKey: 'canary.txt' } });
  await world.send('canary.txt', 'x');
  await world.settle();
  laterBy(HOUR);
  await copy('s3', 'canary.txt', 'x');
  await world.settle();
  expect(world.service.flows).toHaveLength(2);
});

it.each(['Enabled', undefined] as const)(
  'a copy over another content is sent, also of what was there before that: versioning %s',
  async (versioning) => {
    await start({ versioning });
    for (const content of ['x', 'y']) {
      await world.upload('a', content);
      await world.settle();
      laterBy(HOUR);
    }
    await copy('s3', 'a', 'x');
    await world.settle();
    expect(world.service.flows).toHaveLength(3);
  },
);

describe('without versions, while an upload waits', () => {
  /** What became of each upload in the ledger, the oldest first. */
  const ends = async () =>
    (await world.entries()).map((entry) => (entry.state === 'failed' ? entry.failure.code : entry.state));

  async function waits(content: string) {
    laterBy(HOUR);
    await world.collect({ hold: { action: 'pause' } });
    await world.send('a', content);
    laterBy(10_000);
  }
  async function goesOn() {
    await world.deliverAll();
    laterBy(MINUTE);
    await world.collect({ hold: { action: 'resume' } });
    await world.settle();
  }

  it('the same content that is put again replaces it', async () => {
    await start({ versioning: undefined });
    await waits('x');
    await world.send('a', 'x');
    await goesOn();
    expect(await ends()).toEqual(['superseded', 'succeeded']);
    expect(world.service.flows).toHaveLength(1);
  });

  it('a copy repeats it, and not an upload before it with the same content', async () => {
    await start({ versioning: undefined });
    await world.send('a', 'x');
    await world.settle();
    await waits('x');
    await copy('s3', 'a', 'x');
    await goesOn();
    expect(await ends()).toEqual(['succeeded', 'succeeded']);
    expect(world.service.flows).toHaveLength(2);
  });

  it('a copy repeats the newer of two with the same content', async () => {
    await start({ versioning: undefined });
    await waits('x');
    await world.send('a', 'x');
    laterBy(10_000);
    await copy('s3', 'a', 'x');
    await goesOn();
    expect(await ends()).toEqual(['superseded', 'succeeded']);
    expect(world.service.flows).toHaveLength(1);
  });

  it('a copy of what was there before it is sent', async () => {
    await start({ versioning: undefined });
    await world.send('a', 'x');
    await world.settle();
    await waits('y');
    await copy('s3', 'a', 'x');
    await goesOn();
    expect(await ends()).toEqual(['succeeded', 'superseded', 'succeeded']);
    expect(world.service.flows).toHaveLength(2);
  });

  it('a copy repeats it, although there are too many entries to find it among them', async () => {
    await start({ versioning: undefined, s3: { keysMax: 1 } });
    for (let index = 0; index < 12; index += 1) await world.upload(`b${index}`, 'y');
    const others = world.takeMessages();
    await world.collect({ hold: { action: 'pause' } });
    laterBy(1_000);
    await world.send('a', 'x');
    laterBy(1_000);
    await copy('s3', 'a', 'x');
    await world.deliverAll();
    for (const message of others) await world.ports.queue.send(message, new AbortController().signal);
    await goesOn();
    expect((await world.entries()).filter(({ state }) => state !== 'succeeded')).toEqual([]);
    expect(world.service.flows).toHaveLength(13);
  });

  it('a copy repeats the job that waits, and not one before it with the same content', async () => {
    await start({ versioning: undefined, routes: [{ ...ECHO, jobs: 'jobs/' }] });
    const job = JSON.stringify({ inputs: ['front.png'] });
    await world.send('jobs/front.png', 'front');
    await world.send('jobs/job.json', job);
    await world.settle();
    await world.s3.send(new DeleteObjectCommand({ Bucket: INBOX, Key: 'jobs/front.png' }));
    laterBy(HOUR);
    await world.send('jobs/job.json', job);
    laterBy(MINUTE);
    await copy('s3', 'jobs/job.json', job);
    await world.deliverAll();
    await world.send('jobs/front.png', 'front');
    await world.settle();
    expect(await ends()).toEqual(['succeeded', 'succeeded']);
  });
});
