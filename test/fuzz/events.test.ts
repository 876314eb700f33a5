import fc from 'fast-check';
import { describe, expect } from 'vitest';
import { parseRunningKey, parseWaitingKey, runningKey, waitingKey } from '../../functions/ledger/keys.ts';
import { InvalidCollectEventError, parseCollectEvent } from '../../functions/operator/collect-event.ts';
import { InvalidOverrideError, snapshot } from '../../functions/uploads/route-snapshot.ts';
import { UnrecognisedEventError, uploadsOf } from '../../functions/uploads/upload-event.ts';
import { fuzz, jsonWith, mutated } from './fuzz.ts';

const notification = JSON.stringify({
  Records: [
    {
      eventSource: 'aws:s3',
      eventName: 'ObjectCreated:Put',
      s3: { bucket: { name: 'inbox' }, object: { key: 'a%2Fb+c', size: 3, eTag: 'e', versionId: 'v' } },
    },
  ],
});
const bridged = JSON.stringify({
  source: 'aws.s3',
  'detail-type': 'Object Created',
  detail: { bucket: { name: 'inbox' }, object: { key: 'a/b c', size: 3, etag: 'e', 'version-id': 'v' } },
});

/** As SNS puts it into a queue. */
const bySns = JSON.stringify({ Type: 'Notification', TopicArn: 'arn:aws:sns:x', Message: notification });

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return text; // Text that is not JSON never gets this far.
  }
}

const message = fc.oneof(
  mutated(fc.constantFrom(notification, bridged, bySns)).map(parsed),
  jsonWith(
    ...['Records', 'Event', 's3:TestEvent', 'eventName', 'ObjectCreated:Put', 's3', 'bucket', 'name', 'object', 'key'],
    ...['size', 'eTag', 'versionId', 'flowdrop', 'uploadId', 'source', 'aws.s3', 'detail-type', 'Object Created'],
    ...['detail', 'Type', 'Notification', 'Message', 'TopicArn', 'Sns'],
  ),
  fc.anything({ maxDepth: 4 }),
);

const OPEN = { name: 'open', input: 'file', template: 't', overrides: true } as const;

describe('random input', () => {
  fuzz('as a message names possible uploads, or fails with a known error', message, (value) => {
    try {
      for (const { bucket, key, versionId, etag, bytes, uploadId } of uploadsOf(value)) {
        expect(bucket).not.toBe('');
        expect(key.isWellFormed() && Buffer.byteLength(key) > 0 && Buffer.byteLength(key) <= 1024).toBe(true);
        expect(['undefined', 'string']).toContain(typeof versionId);
        expect(['undefined', 'string']).toContain(typeof etag);
        expect(['undefined', 'number']).toContain(typeof bytes);
        expect(uploadId ?? 'a'.repeat(40)).toMatch(/^[0-9a-f]{40}$/);
      }
    } catch (error) {
      if (!(error instanceof UnrecognisedEventError)) throw error;
      // The limit of a quotation counts code points, and a character beyond the BMP has two units.
      expect(Array.from(error.message).length).toBeLessThan(300);
    }
  });

  fuzz(
    'as an event of the collecting function is parsed, or fails with a known error',
    fc.oneof(
      jsonWith('collector', 'index', 'of', 'retry', 'sweep', 'since', 'dryRun', 'uploadsPerSecond'),
      fc.anything({ maxDepth: 3 }),
    ),
    (value) => {
      try {
        const { collector } = parseCollectEvent(value);
        expect(collector.index).toBeLessThan(collector.of);
      } catch (error) {
        if (!(error instanceof InvalidCollectEventError)) throw error;
      }
    },
  );

  const words = fc.constantFrom('=?UTF-8?B?', '=?utf-8?q?', '?=', '=C3', '{"a":1}', 'e30=', '"', ' ', '[', ']');
  fuzz(
    'as metadata is a possible override, or fails with a known error',
    fc.record({
      name: fc.constantFrom('flow-template', 'flow-parameters', 'flow-additional'),
      value: fc.oneof(
        fc.array(fc.oneof(words, fc.string()), { maxLength: 6 }).map((parts) => parts.join('')),
        jsonWith('flowdrop', 'a', '__proto__').map((value) => JSON.stringify(value)),
      ),
    }),
    ({ name, value }) => {
      try {
        const { template, additional } = snapshot(OPEN, { [name]: value });
        expect(template.length).toBeGreaterThan(0);
        expect(Object.hasOwn(additional ?? {}, 'flowdrop')).toBe(false);
      } catch (error) {
        if (!(error instanceof InvalidOverrideError)) throw error;
        expect(error.message).toContain(name);
      }
    },
  );

  const marker = `/2026-01-02T03:04:05.678Z/${'ab'.repeat(20)}`;
  fuzz(
    'as the key of a marker is one that we would write, or is rejected',
    mutated(fc.constantFrom(`running${marker}/flow%2F1`, `running${marker}/%2E.`, `waiting${marker}`)),
    (key) => {
      const running = parseRunningKey(key);
      const waiting = parseWaitingKey(key);
      if (running !== undefined) expect(runningKey(running)).toBe(key);
      if (waiting !== undefined) expect(waitingKey(waiting)).toBe(key);
    },
  );
});
