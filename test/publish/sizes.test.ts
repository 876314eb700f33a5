import { describe, expect, it } from 'vitest';
import { fittingOutputs, OUTPUTS_BYTES_MAX } from '../../functions/collect-outputs/flow-assets.ts';
import { ID_BYTES_MAX } from '../../functions/flow-service/schemas.ts';
import { answered, ended, firstClaim, running, type TerminalEntry } from '../../functions/ledger/entry.ts';
import { ENTRY_BYTES_MAX } from '../../functions/ledger/entry-schema.ts';
import { completionEvent, DETAIL_BYTES_MAX } from '../../functions/publish/completion-event.ts';
import { RECEIPT_BYTES_MAX, receiptOf } from '../../functions/publish/receipts.ts';
import { KEY_BYTES_MAX } from '../../functions/s3/limits.ts';
import { uploadId } from '../../functions/uploads/upload.ts';

/** Each of them takes six bytes in JSON. */
const control = (length: number) => '\u0001'.repeat(length);
const bytesOf = (value: unknown, indent?: number) => Buffer.byteLength(JSON.stringify(value, undefined, indent));
const PLACES = {
  ...{ resultsBucket: 'r'.repeat(63), resultsPrefix: '', command: 'flowdrop' },
  ...{ collectFunction: 'collect', localInbox: undefined },
};

const EXTREMES = [
  [
    'plain keys and ids of 24 characters',
    'k'.repeat(KEY_BYTES_MAX),
    (index: number) => `${index}`.padStart(24, '0'),
    10_000,
  ],
  [
    'keys and ids of control characters',
    control(KEY_BYTES_MAX),
    (index: number) => `${index}`.padStart(ID_BYTES_MAX, control(1)),
    undefined,
  ],
] as const;

describe.each(EXTREMES)('with %s', (_, key, idOf, fitting) => {
  const listed = Array.from({ length: 10_000 }, (_, index) => ({ assetId: idOf(index), status: 'ready' as const }));
  const outputs = fittingOutputs(listed, key, 10_000);
  const object = {
    bucket: 'i'.repeat(63),
    key,
    versionId: 'v'.repeat(1_024),
    etag: 'e'.repeat(40),
    lastModified: 1_000,
  };
  const upload = { id: uploadId(object), ...object, bytes: 5, mediaType: 'm'.repeat(255) };
  const { bucket, versionId, etag, mediaType } = upload;
  const stored = { bucket, key, versionId, etag, mediaType, bytes: Number.MAX_SAFE_INTEGER, sha256: '0'.repeat(64) };
  const message = control(1_800_000);

  /** The largest entry: of a flow with many inputs, long parameters and long messages. */
  function largest(are: 'stored' | 'failed'): TerminalEntry {
    const parameters = 'p'.repeat(256 * 1024);
    const route = {
      name: 'n'.repeat(64),
      input: 'file',
      template: 't'.repeat(256),
      parameters,
      additional: {},
    } as const;
    const claim = firstClaim(upload, route, { claimedAt: 10_000, deadline: 70_000, pipeline: 'mine' });
    const told = ['1', '2', '3'].reduce((entry, n) => answered(entry, { message: n + message, at: 1 }), claim);
    const flow = { id: idOf(0), createdAt: 20_000 };
    const inputs = Array.from({ length: 1_000 }, () => ({ bucket, key, versionId, etag, mediaType, bytes: 1 }));
    const assets = are === 'stored' ? outputs.map(({ assetId: id }) => ({ id, ...stored })) : [];
    const code = 'unintelligible-answer';
    const failedOutputs = are === 'failed' ? outputs.map(({ assetId: id }) => ({ id, code, message })) : [];
    const failure = { code: 'outputs-failed', message } as const;
    return ended({ ...running(told, flow), inputs }, { assets, failedOutputs, failure }, 30_000);
  }

  it('as many outputs are taken as fit into an entry', () => {
    if (fitting !== undefined) expect(outputs).toHaveLength(fitting);
    expect(outputs.length).toBeGreaterThan(1_000);
    expect(fittingOutputs(listed, key, 20)).toEqual(listed.slice(0, 20));
    for (const are of ['stored', 'failed'] as const) {
      const { assets, failedOutputs } = largest(are);
      expect(bytesOf([assets, failedOutputs])).toBeLessThanOrEqual(OUTPUTS_BYTES_MAX);
    }
  });

  it.each(['stored', 'failed'] as const)('no entry, receipt or event exceeds its size: all outputs %s', (are) => {
    const entry = largest(are);
    expect(bytesOf(entry)).toBeLessThanOrEqual(ENTRY_BYTES_MAX);
    const receipt = receiptOf(entry, PLACES);
    expect(bytesOf(receipt, 2)).toBeLessThanOrEqual(RECEIPT_BYTES_MAX);
    const { detail } = completionEvent(receipt, 'mine', { bucket, key });
    expect(Buffer.byteLength(detail)).toBeLessThanOrEqual(DETAIL_BYTES_MAX);
    expect(JSON.parse(detail).results.isCut).toBe(true);
  });

  it('the event of an entry with a long message of an older version is sent', () => {
    const entry = { ...largest('stored'), failure: { code: 'rejected', message } } as TerminalEntry;
    const { detail } = completionEvent(receiptOf(entry, PLACES), 'mine', { bucket, key });
    expect(Buffer.byteLength(detail)).toBeLessThanOrEqual(DETAIL_BYTES_MAX);
  });
});
