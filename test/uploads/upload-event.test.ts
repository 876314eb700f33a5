import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { pinnedVersion } from '../../functions/uploads/upload.ts';
import {
  isFolderMarker,
  isFolderType,
  messageFor,
  UnrecognisedEventError,
  uploadsOf,
} from '../../functions/uploads/upload-event.ts';

/** An S3 notification as S3 documents it, with the key as S3 encodes it. */
const notification = (object: object, eventName = 'ObjectCreated:Put') => ({
  Records: [
    {
      eventVersion: '2.1',
      eventSource: 'aws:s3',
      eventName,
      s3: { bucket: { name: 'inbox', arn: 'arn:aws:s3:::inbox' }, object },
    },
  ],
});

const bridged = (object: object, detailType = 'Object Created') => ({
  source: 'aws.s3',
  'detail-type': detailType,
  detail: { bucket: { name: 'inbox' }, object, reason: 'PutObject' },
});

const KEYS: readonly (readonly [what: string, key: string, encoded: string])[] = [
  ['spaces', 'my summer photo.png', 'my+summer+photo.png'],
  ['a plus sign', '1+1=2.png', '1%2B1%3D2.png'],
  ['a percent sign', '100%.png', '100%25.png'],
  ['a key that looks encoded already', 'a%20b+c.png', 'a%2520b%2Bc.png'],
  ['unicode', 'Straße/写真 🖼.png', 'Stra%C3%9Fe/%E5%86%99%E7%9C%9F+%F0%9F%96%BC.png'],
  ['a question mark and a hash', 'who?#1.png', 'who%3F%231.png'],
  ['a newline', 'two\nlines.png', 'two%0Alines.png'],
];

describe('an S3 notification', () => {
  it.each(KEYS)('has its key decoded once: %s', (_, key, encoded) => {
    expect(uploadsOf(notification({ key: encoded, size: 3, eTag: 'abc', versionId: 'v1' }))).toEqual([
      { bucket: 'inbox', key, versionId: 'v1', etag: 'abc', bytes: 3, uploadId: undefined },
    ]);
  });

  it('has an upload per record', () => {
    const [first] = notification({ key: 'a' }).Records;
    const [second] = notification({ key: 'b' }).Records;
    expect(uploadsOf({ Records: [first, second] }).map(({ key }) => key)).toEqual(['a', 'b']);
  });

  it.each([
    'ObjectCreated:Post',
    'ObjectCreated:Copy',
    'ObjectCreated:CompleteMultipartUpload',
    's3:ObjectCreated:Put',
  ])('of %s is an upload', (eventName) => {
    expect(uploadsOf(notification({ key: 'a' }, eventName))).toHaveLength(1);
  });

  it.each([
    ['ObjectCreated:Copy', true],
    ['s3:ObjectCreated:Copy', true],
    ['ObjectCreated:Put', undefined],
  ])('of %s says whether it is a copy', (eventName, isCopy) => {
    expect(uploadsOf(notification({ key: 'a' }, eventName))[0]?.isCopy).toBe(isCopy);
  });

  it.each(['ObjectRemoved:Delete', 'ObjectTagging:Put', 'LifecycleExpiration:Delete'])('of %s is none', (eventName) => {
    expect(uploadsOf(notification({ key: 'a' }, eventName))).toEqual([]);
  });

  it('from a bucket without versions has no version id', () => {
    expect(uploadsOf(notification({ key: 'a', versionId: '' }))[0]?.versionId).toBeUndefined();
    expect(uploadsOf(notification({ key: 'a', versionId: 'null' }))[0]?.versionId).toBeUndefined();
  });

  it('for a test has no upload', () => {
    expect(uploadsOf({ Service: 'Amazon S3', Event: 's3:TestEvent', Bucket: 'inbox' })).toEqual([]);
  });
});

describe('an EventBridge event', () => {
  it.each(KEYS)('has its key taken without decoding: %s', (_, key) => {
    expect(uploadsOf(bridged({ key, size: 3, etag: 'abc', 'version-id': 'v1' }))).toEqual([
      { bucket: 'inbox', key, versionId: 'v1', etag: 'abc', bytes: 3 },
    ]);
  });

  it.each([
    ['CopyObject', true],
    ['PutObject', undefined],
  ])('with the reason %s says whether it is a copy', (reason, isCopy) => {
    const event = bridged({ key: 'a' });
    expect(uploadsOf({ ...event, detail: { ...event.detail, reason } })[0]?.isCopy).toBe(isCopy);
  });

  it('of another kind has no upload', () => {
    expect(uploadsOf(bridged({ key: 'a' }, 'Object Deleted'))).toEqual([]);
  });
});

/** A message as SNS puts it into a queue. */
const bySns = (message: unknown, type = 'Notification') => ({
  Type: type,
  MessageId: '6f5e9b1c-0000-4000-8000-000000000000',
  TopicArn: 'arn:aws:sns:eu-central-1:111122223333:uploads',
  Message: JSON.stringify(message),
  Timestamp: '2026-01-02T03:04:05.678Z',
});

/** An event as SNS gives it to a function. */
const snsEvent = (...messages: readonly unknown[]) => ({
  Records: messages.map((message) => ({ EventSource: 'aws:sns', EventVersion: '1.0', Sns: bySns(message) })),
});

describe('an event that SNS wraps', () => {
  const event = notification({ key: 'a+b%C3%BC.png', size: 3, eTag: 'e', versionId: 'v', sequencer: '0A' });
  const eventOfBridge = bridged({ key: 'a b\u00fc.png', size: 3, etag: 'e', 'version-id': 'v', sequencer: '0A' });
  const test = { Service: 'Amazon S3', Event: 's3:TestEvent', Bucket: 'inbox' };

  it.each([
    ['of S3', event],
    ['of EventBridge', eventOfBridge],
    ['of S3, with several uploads', { Records: [...event.Records, ...notification({ key: 'c' }).Records] }],
    ['of a deletion', notification({ key: 'a' }, 'ObjectRemoved:Delete')],
    ['of a test', test],
  ])('has the uploads of the event in it: %s', (_, wrapped) => {
    expect(uploadsOf(bySns(wrapped))).toEqual(uploadsOf(wrapped));
    expect(uploadsOf(snsEvent(wrapped))).toEqual(uploadsOf(wrapped));
  });

  it('has the uploads of all events in it, each wrapped by itself', () => {
    const all = snsEvent(event, test, notification({ key: 'c' }));
    expect(uploadsOf(all).map(({ key }) => key)).toEqual(['a b\u00fc.png', 'c']);
  });

  it('is refused with the reason for which the event in it is refused', () => {
    const reason = 'Neither an S3 notification nor an EventBridge event: {"a":1}';
    for (const wrapped of [bySns({ a: 1 }), snsEvent({ a: 1 })]) expect(() => uploadsOf(wrapped)).toThrow(reason);
  });

  it('is refused if it holds no JSON', () => {
    const text = { ...bySns({}), Message: 'hello' };
    expect(() => uploadsOf(text)).toThrow(new UnrecognisedEventError('A message of SNS that is not JSON: "hello"'));
    for (const Message of [5, null, undefined, '']) {
      expect(() => uploadsOf({ ...bySns({}), Message })).toThrow(UnrecognisedEventError);
      expect(() => uploadsOf({ Records: [{ EventSource: 'aws:sns', Sns: { Message } }] })).toThrow(
        UnrecognisedEventError,
      );
    }
    expect(() => uploadsOf({ Records: [{ EventSource: 'aws:sns', Sns: null }] })).toThrow(UnrecognisedEventError);
  });

  it.each(['SubscriptionConfirmation', 'UnsubscribeConfirmation'])('is none if SNS asks for something: %s', (type) => {
    const asked = { ...bySns({}, type), Message: 'You have chosen to …', SubscribeURL: 'https://sns.example.com/?t=1' };
    const topic = 'arn:aws:sns:eu-central-1:111122223333:uploads';
    expect(() => uploadsOf(asked)).toThrow(UnrecognisedEventError);
    expect(() => uploadsOf(asked)).toThrow(
      `SNS sent "${type}" for the topic "${topic}". To subscribe the queue, open the SubscribeURL in this message.`,
    );
  });
});

describe('the error for a refused message', () => {
  const said = (message: unknown): unknown => {
    try {
      return uploadsOf(message);
    } catch (error) {
      return error;
    }
  };
  const NEITHER = 'Neither an S3 notification nor an EventBridge event';
  const RECORD = 'A record without s3.bucket.name and s3.object.key';
  const EVENT = 'An event without detail.bucket.name and detail.object.key';
  it.each([
    [NEITHER, '"hello"'],
    [NEITHER, 'null'],
    [NEITHER, '[]'],
    [NEITHER, '{}'],
    [NEITHER, '{"Records":{}}'],
    [NEITHER, '{"source":"aws.s3"}'],
    [NEITHER, '{"source":"aws.s3","detail-type":"Object Created","detail":"text"}'],
    [NEITHER, '{"source":"aws.ec2","detail-type":"Object Created","detail":{}}'],
    [EVENT, '{"source":"aws.s3","detail-type":"Object Created","detail":{"object":{"key":"a"}}}'],
    [EVENT, '{"source":"aws.s3","detail-type":"Object Created","detail":{"bucket":{"name":"b"}}}'],
    [EVENT, '{"source":"aws.s3","detail-type":"Object Created","detail":{"bucket":"b","object":{"key":"a"}}}'],
    [RECORD, '{"eventName":"ObjectCreated:Put"}'],
    [RECORD, '{"s3":null}'],
    [RECORD, '{"s3":"text"}'],
    [RECORD, '{"s3":{}}'],
    [RECORD, 'null'],
    [RECORD, '[]'],
    [RECORD, '{"s3":{"object":{"key":"a"}}}'],
    [RECORD, '{"s3":{"bucket":"b","object":{"key":"a"}}}'],
    [RECORD, '{"s3":{"bucket":{"name":["b"]},"object":{"key":"a"}}}'],
    [RECORD, '{"s3":{"bucket":{"name":""},"object":{"key":"a"}}}'],
    [RECORD, '{"s3":{"bucket":{"name":"b"}}}'],
    [RECORD, '{"s3":{"bucket":{"name":"b"},"object":{"size":1}}}'],
    [RECORD, '{"s3":{"bucket":{"name":"b"},"object":{"key":""}}}'],
    [RECORD, '{"s3":{"bucket":{"name":"b"},"object":{"key":5}}}'],
  ])('%s: %s', (reason, quoted) => {
    const refused = reason === RECORD ? { Records: [JSON.parse(quoted)] } : JSON.parse(quoted);
    expect(said(refused)).toMatchObject({ name: 'UnrecognisedEventError', message: `${reason}: ${quoted}` });
  });

  it.each<[string, unknown]>([
    [`${NEITHER}: undefined`, undefined],
    ['A key that is not URL-encoded UTF-8: "%zz"', notification({ key: '%zz' })],
    ['A key that is not URL-encoded UTF-8: "%ff"', notification({ key: '%ff' })],
    ['A key that S3 would not take: "a\\ud800"', bridged({ key: 'a\ud800' })],
  ])('%s', (message, refused) => {
    expect(said(refused)).toMatchObject({ name: 'UnrecognisedEventError', message });
  });

  it('quotes only the beginning, at any depth', () => {
    expect(said({ a: 'x'.repeat(1_000) })).toMatchObject({ message: expect.stringMatching(/^.{240,260}$/) });
    const deep = JSON.parse('['.repeat(50_000) + ']'.repeat(50_000));
    expect(said(deep)).toMatchObject({ message: expect.stringContaining('nested too deeply to be shown') });
  });

  it('has no version and no sequencer if the upload has none', () => {
    const facts = { id: `69570ee5${'ab'.repeat(16)}`, bucket: 'inbox', key: 'a', etag: 'e', bytes: 1 };
    const [record] = JSON.parse(messageFor(facts as never)).Records;
    expect(Object.keys(record.s3.object)).toEqual(['key', 'size', 'eTag']);
  });

  it('has its cause', () => {
    expect(said(notification({ key: '%zz' }))).toMatchObject({ cause: expect.any(URIError) });
  });
});

describe('a key', () => {
  it.each([
    ['a'.repeat(1024), true],
    ['a'.repeat(1025), false],
    ['ä'.repeat(512), true],
    ['ä'.repeat(513), false],
    ['\udc00', false],
  ])('%#: is possible: %s', (key, canBe) => {
    const parse = () => uploadsOf(bridged({ key }));
    if (canBe) expect(parse()).toHaveLength(1);
    else expect(parse).toThrow(UnrecognisedEventError);
  });
});

describe('an upload id in a message', () => {
  const idIn = (uploadId: unknown) =>
    uploadsOf({ Records: [{ ...notification({ key: 'a' }).Records[0], flowdrop: { uploadId } }] })[0]?.uploadId;
  it('is ignored unless it has the form of one', () => {
    expect(idIn('0123456789abcdef0123456789abcdef01234567')).toBe('0123456789abcdef0123456789abcdef01234567');
    const a40 = 'a'.repeat(40);
    for (const id of ['a', 'a'.repeat(39), 'a'.repeat(41), 'g'.repeat(40), `../${a40}`, `${a40}/`, 5]) {
      expect(idIn(id)).toBeUndefined();
    }
  });
});

describe('facts of an upload in a message', () => {
  it('are ignored if they have the wrong type', () => {
    const [upload] = uploadsOf(notification({ key: 'a', size: '5', eTag: 5, versionId: {} }));
    expect(upload).toEqual({ bucket: 'inbox', key: 'a' });
    const [record] = notification({ key: 'a' }).Records;
    expect(uploadsOf({ Records: [{ ...record, flowdrop: 'text' }] })[0]?.uploadId).toBeUndefined();
  });

  it('of another kind of event have no upload', () => {
    for (const eventName of [5, null, ['ObjectCreated:Put'], 'Fake:ObjectCreated:Put', 'xs3:ObjectCreated:Put']) {
      expect(uploadsOf(notification({ key: 'a' }, eventName as string))).toEqual([]);
    }
  });
});

describe('the place of a put among those of its key', () => {
  const placeOf = (message: unknown) =>
    uploadsOf(message).map(({ currentAt, sequencer }) => ({ currentAt, sequencer }));
  const notified = (eventTime: unknown, sequencer: unknown) => {
    const { Records } = notification({ key: 'a', sequencer });
    return { Records: Records.map((record) => ({ ...record, eventTime })) };
  };
  const currentAt = Date.UTC(2026, 0, 2, 3, 4, 5, 678);

  it('is the time and the sequencer of its event', () => {
    expect(placeOf(notified('2026-01-02T03:04:05.678Z', '0055AED6DCD90281E5'))).toEqual([
      { currentAt, sequencer: '0055AED6DCD90281E5' },
    ]);
    expect(placeOf({ ...bridged({ key: 'a', sequencer: '617f08299329d189' }), time: '2026-01-02T03:04:05Z' })).toEqual([
      { currentAt: currentAt - 678, sequencer: '617f08299329d189' },
    ]);
  });

  it.each([undefined, null, 5, '', 'yesterday', '2026-01-02', '2026-99-02T03:04:05Z', '+275760-09-13T00:00:00.000Z'])(
    'has no time of another form: %j',
    (time) => {
      expect(placeOf(notified(time, '1'))).toEqual([{ currentAt: undefined, sequencer: '1' }]);
    },
  );

  it.each([undefined, null, 5, '', 'xyz', '-1', '1'.repeat(65), '1\r\nX-Evil: b'])(
    'has no sequencer of another form: %j',
    (sequencer) => {
      expect(placeOf(notified('2026-01-02T03:04:05.678Z', sequencer))).toEqual([{ currentAt, sequencer: undefined }]);
    },
  );

  it('stays with the upload when it is submitted again', () => {
    const upload = { id: 'f'.repeat(40), bucket: 'inbox', key: 'a', etag: 'e', bytes: 5, currentAt, sequencer: '00A1' };
    expect(placeOf(JSON.parse(messageFor(upload)))).toEqual([{ currentAt, sequencer: '00A1' }]);
  });
});

describe('a message that resubmits an upload', () => {
  it('is a notification as S3 would write it', () => {
    const upload = { id: 'f'.repeat(40), bucket: 'inbox', key: 'a b', etag: 'e', bytes: 5 };
    const s3 = { bucket: { name: 'inbox' }, object: { key: 'a%20b', size: 5, eTag: 'e' } };
    const record = {
      eventSource: 'aws:s3',
      eventName: 'ObjectCreated:Resubmitted',
      flowdrop: { uploadId: upload.id },
      s3,
    };
    expect(JSON.parse(messageFor(upload))).toStrictEqual({ Records: [record] });
    expect(JSON.parse(messageFor({ ...upload, versionId: 'v' }))).toMatchObject({
      Records: [{ s3: { object: { versionId: 'v' } } }],
    });
  });

  it('says that live files go first, if the upload has no entry that says so', () => {
    const upload = { id: 'f'.repeat(40), bucket: 'inbox', key: 'a', etag: 'e', bytes: 5 };
    const [late, live] = [messageFor(upload, true), messageFor(upload)].flatMap((text) => uploadsOf(JSON.parse(text)));
    expect(late?.late).toBe(true);
    expect(live?.late).toBeUndefined();
  });

  it('names the same upload, whatever its key', () => {
    fc.assert(
      fc.property(
        fc.string({ unit: 'grapheme', minLength: 1 }),
        fc.option(fc.stringMatching(/^[0-9a-zA-Z._]+$/), { nil: undefined }),
        (key, versionId) => {
          const facts = { bucket: 'inbox', key, etag: 'abc', bytes: 5 };
          const id = 'f'.repeat(40);
          expect(uploadsOf(JSON.parse(messageFor({ ...facts, id, versionId })))).toEqual([
            { ...facts, versionId: pinnedVersion(versionId), uploadId: id },
          ]);
        },
      ),
    );
  });
});

it('the media type of a folder is that of tools that mount a bucket, whatever its parameters', () => {
  const types = ['application/x-directory', 'Application/X-Directory; charset=UTF-8', 'application/x-zip', ''];
  expect(types.map(isFolderType)).toEqual([true, true, false, false]);
});

it('a folder marker is empty and ends with a slash', () => {
  expect(isFolderMarker({ key: 'a/', bytes: 0 })).toBe(true);
  expect(isFolderMarker({ key: 'a/' })).toBe(true);
  expect(isFolderMarker({ key: 'a/', bytes: 1 })).toBe(false);
  expect(isFolderMarker({ key: 'a', bytes: 0 })).toBe(false);
});
