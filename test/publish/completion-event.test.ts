import { describe, expect, it } from 'vitest';
import { completionEvent, EVENT_SOURCE } from '../../functions/publish/completion-event.ts';
import { asset, failed, receipt } from './support.ts';

const where = { bucket: 'results', key: 'a.png/receipt.json' };

describe('the event of an upload that ended', () => {
  it('holds the receipt and its address, and has the same id each time', () => {
    const event = completionEvent(receipt, 'mine', where);
    expect(event.detailType).toBe('Flow Succeeded');
    expect(JSON.parse(event.detail)).toEqual({
      id: `${'ab'.repeat(20)}-1-1767225660000`,
      pipeline: 'mine',
      ...receipt,
      results: {
        bucket: 'results',
        receiptKey: 'a.png/receipt.json',
        assetCount: 1,
        failedOutputCount: 0,
        isCut: false,
      },
    });
    expect(completionEvent(receipt, 'mine', where)).toEqual(event);
  });

  it.each([
    ['ended again', { endedAt: '2026-01-01T00:01:00.001Z' }, '-1-1767225660001'],
    ['ended after a retry', { generation: 2 }, '-2-1767225660000'],
  ])('has another id if the upload %s', (_, change, end) => {
    const { detail } = completionEvent({ ...receipt, ...change }, 'mine', where);
    expect(JSON.parse(detail).id).toBe(`${'ab'.repeat(20)}${end}`);
  });

  it('of a failure has a type of its own', () => {
    expect(completionEvent({ ...receipt, ...failed }, 'mine', where).detailType).toBe('Flow Failed');
  });

  it('counts the assets and leaves them to the receipt if they do not fit into an event', () => {
    const many = { ...receipt, assets: Array.from({ length: 5_000 }, () => asset) };
    const { detail } = completionEvent(many, 'mine', where);
    expect(Buffer.byteLength(detail)).toBeLessThan(256 * 1024);
    const cut = { assets: [], failedOutputs: [], results: { assetCount: 5_000, failedOutputCount: 0, isCut: true } };
    expect(JSON.parse(detail)).toMatchObject(cut);
  });

  it('is whole up to exactly 240 KiB', () => {
    const ofLength = (length: number) => {
      const event = (message: string) =>
        completionEvent({ ...receipt, failedOutputs: [{ id: 'f', code: 'c', message }] }, 'mine', where).detail;
      return event('x'.repeat(length - Buffer.byteLength(event(''))));
    };
    expect(JSON.parse(ofLength(240 * 1024)).results.isCut).toBe(false);
    expect(JSON.parse(ofLength(240 * 1024 + 1)).results.isCut).toBe(true);
  });

  it('has our source', () => {
    expect(EVENT_SOURCE).toBe('flowdrop');
  });
});
