import { describe, expect, it } from 'vitest';
import { nextStages, planOf } from '../../functions/chains/chain.ts';
import type { Chain } from '../../functions/chains/chain-schema.ts';
import { fittingOutputs, OUTPUTS_BYTES_MAX } from '../../functions/collect-outputs/flow-assets.ts';
import { ID_BYTES_MAX } from '../../functions/flow-service/answers.ts';
import { FLOWS } from '../../functions/flow-service/services.ts';
import { answered, ended, firstClaim, running, type TerminalEntry } from '../../functions/ledger/entry.ts';
import { ENTRY_BYTES_MAX } from '../../functions/ledger/entry-schema.ts';
import { CHAIN_REPORT_BYTES_MAX, chainEvent, chainReport } from '../../functions/publish/chain-report.ts';
import { completionEvent, DETAIL_BYTES_MAX } from '../../functions/publish/completion-event.ts';
import { RECEIPT_BYTES_MAX, receiptOf } from '../../functions/publish/receipts.ts';
import type { ChainReport } from '../../functions/publish/report-schemas.ts';
import { KEY_BYTES_MAX } from '../../functions/s3/limits.ts';
import type { Route } from '../../functions/uploads/route.ts';
import { uploadId } from '../../functions/uploads/upload.ts';

/** Each of them takes six bytes in JSON. */
const control = (length: number) => '\u0001'.repeat(length);
const bytesOf = (value: unknown) => Buffer.byteLength(JSON.stringify(value));
const PLACES = {
  ...{ resultsBucket: 'r'.repeat(63), resultsPrefix: '', command: 'flowdrop', service: FLOWS },
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

  /** Routes that each take every asset. */
  const taking: readonly Route[] = Array.from({ length: 199 }, (_, index) => ({
    ...{ name: `${index}`.padStart(64, '-'), input: 'file', template: 't'.repeat(256), after: 'n'.repeat(64) },
    parameters: { note: 'p'.repeat(1_000) },
  }));

  /**
   * The largest entry: of a flow with many inputs, long parameters and long messages. If its assets are taken, the one of
   * a success whose assets begin as many uploads as a chain has room for.
   */
  const made = new Map<string, TerminalEntry>();
  function largest(are: 'stored' | 'failed' | 'taken'): TerminalEntry {
    const entry = made.get(are) ?? makeLargest(are);
    made.set(are, entry);
    return entry;
  }
  function makeLargest(are: 'stored' | 'failed' | 'taken'): TerminalEntry {
    const parameters = 'p'.repeat(256 * 1024);
    const route = {
      name: 'n'.repeat(64),
      input: 'file',
      template: 't'.repeat(256),
      parameters,
      additional: {},
    } as const;
    const claim = firstClaim(upload, route, { claimedAt: 10_000, deadline: 70_000, pipeline: 'mine', keyScope: '' });
    const told = ['1', '2', '3'].reduce((entry, n) => answered(entry, { message: n + message, at: 1 }), claim);
    const flow = { id: idOf(0), createdAt: 20_000 };
    const inputs = Array.from({ length: 1_000 }, () => ({ bucket, key, versionId, etag, mediaType, bytes: 1 }));
    const assets = are === 'failed' ? [] : outputs.map(({ assetId: id }) => ({ id, ...stored }));
    const code = 'unintelligible-answer';
    const failedOutputs = are === 'failed' ? outputs.map(({ assetId: id }) => ({ id, code, message })) : [];
    const failure = { code: 'outputs-failed', message } as const;
    const runs = { ...running(told, flow), inputs };
    if (are !== 'taken') return ended(runs, { assets, failedOutputs, failure }, 30_000);
    const next = nextStages(runs, assets, taking);
    return ended(runs, { assets, failedOutputs, next, plan: planOf(runs, taking) }, 30_000);
  }

  it('as many outputs are taken as fit into an entry', () => {
    if (fitting !== undefined) expect(outputs).toHaveLength(fitting);
    expect(outputs.length).toBeGreaterThan(1_000);
    expect(fittingOutputs(listed, key, 20)).toEqual(listed.slice(0, 20));
    for (const are of ['stored', 'failed', 'taken'] as const) {
      const { assets, failedOutputs } = largest(are);
      expect(bytesOf([assets, failedOutputs])).toBeLessThanOrEqual(OUTPUTS_BYTES_MAX);
    }
  });

  it.each(['stored', 'failed', 'taken'] as const)(
    'no entry, receipt or event exceeds its size: all outputs %s',
    (are) => {
      const entry = largest(are);
      expect(bytesOf(entry)).toBeLessThanOrEqual(ENTRY_BYTES_MAX);
      const receipt = receiptOf(entry, PLACES);
      expect(bytesOf(receipt)).toBeLessThanOrEqual(RECEIPT_BYTES_MAX);
      const { detail } = completionEvent(receipt, 'mine', { bucket, key });
      expect(Buffer.byteLength(detail)).toBeLessThanOrEqual(DETAIL_BYTES_MAX);
      expect(JSON.parse(detail).results.isCut).toBe(true);
    },
  );
});

describe('chain.json', () => {
  const sizeOf = (report: ChainReport) => bytesOf(report) + 1;

  function chainOf(count: number, key: string, assets: number, routes = ['each']): Chain {
    const object = {
      bucket: 'i'.repeat(63),
      key,
      versionId: 'v'.repeat(1_024),
      etag: 'e'.repeat(40),
      lastModified: 1_000,
    };
    const first = { id: uploadId(object), ...object, bytes: 5, mediaType: 'm'.repeat(255) };
    const stored = { key, id: 'a'.repeat(24), bytes: 1, mediaType: 'image/png', sha256: '0'.repeat(64) };
    const facts = { generation: 1, arrivedAt: 1, endedAt: 2, assets: Array(assets).fill(stored), failedOutputs: 0 };
    const later = Array.from({ length: count }, (_, index) => ({
      ...{
        id: `${index}`.padStart(40, '0'),
        route: routes[index % routes.length] as string,
        parent: first.id,
        ...facts,
      },
      // The last ones fail.
      ...(index < count - 5
        ? { state: 'succeeded' as const }
        : { state: 'failed' as const, failure: { code: 'rejected', message: 'No' } }),
    }));
    const uploads = [{ id: first.id, route: 'first', state: 'succeeded' as const, ...facts }, ...later];
    return { schema: 6, first, generation: 1, uploads, closed: [], gathered: [], withheld: [], endedAt: 3 };
  }

  it('has all as long as it is not larger than its limit, then numbers of assets, and then numbers of uploads', () => {
    const report = (count: number) => chainReport(chainOf(count, 'photos/a.png', 4), '');
    const each = sizeOf(report(200)) - sizeOf(report(199));
    const fit = 199 + Math.floor((CHAIN_REPORT_BYTES_MAX - sizeOf(report(199))) / each);
    const last = report(fit - 10);
    expect(sizeOf(last)).toBeGreaterThan(CHAIN_REPORT_BYTES_MAX - 100 * each);
    expect(last.stages[1]?.uploads[0]?.assets).toHaveLength(4);
    const lean = report(fit + 10);
    expect(sizeOf(lean)).toBeLessThan(CHAIN_REPORT_BYTES_MAX);
    expect(lean.stages[1]).not.toHaveProperty('more');
    expect(lean.stages[1]?.uploads).toHaveLength(fit + 10);
    expect(lean.stages[1]?.uploads[0]).toMatchObject({ assetCount: 4 });
  });

  it.each([
    ['plain', 'k'.repeat(KEY_BYTES_MAX - 20)],
    ['control characters', control(KEY_BYTES_MAX - 20)],
  ])('never exceeds its limit, and names failures first: a key of %s', (_, key) => {
    const routes = ['one', 'two', 'three'];
    const report = chainReport(chainOf(9_999, key, 2, routes), 'p'.repeat(200));
    expect(sizeOf(report)).toBeLessThanOrEqual(CHAIN_REPORT_BYTES_MAX);
    expect(sizeOf(report)).toBeGreaterThan(0.9 * CHAIN_REPORT_BYTES_MAX);
    const failed = report.stages.flatMap(({ uploads }) => uploads.filter(({ status }) => status === 'failed'));
    expect(failed).toHaveLength(5);
    for (const { uploads, more } of report.stages.slice(1)) {
      expect(uploads.length).toBeGreaterThan(100);
      expect(uploads.length + (more?.succeeded ?? 0) + (more?.failed ?? 0)).toBe(3_333);
    }
    const event = chainEvent(report, 'mine', { bucket: 'results', key: 'k' });
    expect(Buffer.byteLength(event.detail)).toBeLessThanOrEqual(DETAIL_BYTES_MAX);
  });
});
