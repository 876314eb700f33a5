import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { PutObjectCommand, S3Client } from '@aws-sdk/client-s3';
import pMap from 'p-map';
import { beforeAll, expect, it } from 'vitest';
import { ended, firstClaim, running } from '../../../functions/ledger/entry.ts';
import { entryKey } from '../../../functions/ledger/keys.ts';
import { uploadId } from '../../../functions/uploads/upload.ts';
import { s3RequestHandler } from '../../../local/aws/s3/request-handler.ts';
import { EmbeddedS3 } from '../../../local/aws/s3/s3.ts';
import { INBOX_BUCKET, LEDGER_BUCKET } from '../../../local/pipeline.ts';
import { describeInBrowser, PATIENCE_MS, type Shown, START_MS, type Visit } from './support.ts';

const UPLOADS = 990;
/** Rows in the document. A tall window shows about twenty. */
const ROWS_MAX = 80;
const CONCURRENCY = 16;

const viewport = { width: 1280, height: 800 };

describeInBrowser('hundreds of uploads', withUploads, (shown) => {
  let visit: Visit;
  beforeAll(async () => {
    // One window for all tests: so many rows take some seconds to come.
    visit = shown.closing.use(await shown.open({ viewport }));
    await visit.page.getByRole('button', { name: 'All 990' }).waitFor();
  }, START_MS);

  it('are all in the list, of which the document holds a screenful', async () => {
    const { page } = visit;
    const rows = page.locator('.row');
    await visit.row('file-00000.png').waitFor();
    expect(await rows.count()).toBeLessThan(ROWS_MAX);
    expect(await rows.first().getAttribute('aria-setsize')).toBe('990');

    await page.evaluate(() => window.scrollTo(0, document.documentElement.scrollHeight));
    await visit.row('file-00989.png').waitFor();
    expect(await rows.count()).toBeLessThan(ROWS_MAX);
    await page.evaluate(() => window.scrollTo(0, document.documentElement.scrollHeight / 2));
    await visit.row('file-00500.png').waitFor();
    expect(await rows.count()).toBeLessThan(ROWS_MAX);
  });

  it('are filtered by name and state', async () => {
    const { page } = visit;
    await page.getByRole('searchbox').fill('FILE-0012');
    await page.getByRole('button', { name: 'All 10' }).waitFor();
    await visit.row('file-00125.png').waitFor();
    await page.getByRole('button', { name: 'Failed 1' }).click();
    await expect.poll(() => page.locator('.row').count(), { timeout: PATIENCE_MS }).toBe(1);
    await visit.row('file-00120.png').waitFor();
    await page.getByRole('button', { name: 'All 10' }).click();
    await page.getByRole('searchbox').fill('');
    await page.getByRole('button', { name: 'All 990' }).waitFor();
  });

  it('stay in their place while others come', async () => {
    const { page } = visit;
    await page.evaluate(() => window.scrollTo(0, 9_600));
    const row = visit.row('file-00150.png');
    await row.waitFor();
    const before = await row.boundingBox();
    await shown.operated.upload('echo/new.bin', 'new');
    await page.getByRole('button', { name: 'All 991' }).waitFor();
    expect((await row.boundingBox())?.y).toBeCloseTo(before?.y ?? Number.NaN, 0);
  });
});

/** The options of a pipeline whose ledger has that many ended uploads. */
async function withUploads({ closing }: Shown) {
  const stateDir = await mkdtemp(join(tmpdir(), 'flowdrop-many-'));
  closing.defer(() => rm(stateDir, { recursive: true, force: true, maxRetries: 5 }));
  await fillLedger(stateDir);
  return { stateDir };
}

/** Writes the entries into the ledger before the pipeline starts: every tenth has failed. */
async function fillLedger(stateDir: string): Promise<void> {
  const embedded = new EmbeddedS3({ dir: join(stateDir, 's3') });
  const s3 = new S3Client({
    region: 'us-east-1',
    forcePathStyle: true,
    credentials: { accessKeyId: 'fake', secretAccessKey: 'obviously-fake' },
    requestHandler: s3RequestHandler(embedded),
  });
  embedded.createBucket(LEDGER_BUCKET);
  const start = Math.floor(Date.now() / 1_000) * 1_000 - 60_000;
  await pMap(
    Array.from({ length: UPLOADS }, (_, number) => number),
    async (number) => {
      const key = `shelf/file-${String(number).padStart(5, '0')}.png`;
      // One came each second, so their order is known.
      const facts = { bucket: INBOX_BUCKET, key, etag: 'e', lastModified: start - number * 1_000 };
      const upload = { ...facts, id: uploadId(facts), bytes: 10_000 + number, mediaType: 'image/png' };
      const terms = { claimedAt: facts.lastModified, deadline: facts.lastModified, pipeline: 'operated' };
      const route = { name: 'pictures', input: 'file', template: 'model_generate_fromimage' } as const;
      const flow = { id: `flow-${number}`, createdAt: facts.lastModified };
      const entry = running(firstClaim(upload, route, terms), flow);
      const failure = { code: 'flow-failed', message: 'The flow failed: the picture is empty.' } as const;
      const body = JSON.stringify(ended(entry, number % 10 === 0 ? { failure } : {}, facts.lastModified + 500));
      await s3.send(new PutObjectCommand({ Bucket: LEDGER_BUCKET, Key: entryKey(upload.id), Body: Buffer.from(body) }));
    },
    { concurrency: CONCURRENCY },
  );
  s3.destroy();
  embedded.close();
}
