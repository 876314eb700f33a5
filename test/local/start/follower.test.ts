import { appendFile, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { DeleteObjectCommand, PutObjectCommand, S3Client } from '@aws-sdk/client-s3';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { ResultsFolder } from '../../../command-line/results-folder.ts';
import { FLOWS } from '../../../functions/flow-service/services.ts';
import { ALIAS_METADATA } from '../../../functions/publish/aliases.ts';
import type { S3EventRecord } from '../../../local/aws/s3/events.ts';
import { s3RequestHandler } from '../../../local/aws/s3/request-handler.ts';
import { EmbeddedS3 } from '../../../local/aws/s3/s3.ts';
import { LEDGER_BUCKET, RESULTS_BUCKET } from '../../../local/pipeline.ts';
import { DeliveredReceipts, Follower, type Progress } from '../../../local/start/follower.ts';
import { temporaryFolder } from '../../support/folder.ts';
import { PATIENCE } from '../../support/patience.ts';

const ID = '0'.repeat(40);

/** A results folder whose first write of an asset takes until the test lets it end. */
class SlowFolder extends ResultsFolder {
  readonly held = Promise.withResolvers<void>();
  #isFirst = true;

  override async write(key: string, body: AsyncIterable<Uint8Array>): Promise<string> {
    const isHeld = this.#isFirst && key.endsWith('.glb');
    if (isHeld) this.#isFirst = false;
    if (isHeld) await this.held.promise;
    return super.write(key, body);
  }
}

describe('the follower', () => {
  let dir: string;
  let embedded: EmbeddedS3;
  let s3: S3Client;
  let results: SlowFolder;
  let progress: Progress[];
  let followed: Promise<void>[];
  /** True if the run that follows the pipeline was killed. */
  let isEnded: boolean;
  beforeEach(async () => {
    dir = await temporaryFolder();
    progress = [];
    followed = [];
    isEnded = false;
    const onEvent = (record: S3EventRecord) => {
      if (!isEnded) followed.push(follower.follow(record));
    };
    embedded = new EmbeddedS3({ onEvent });
    embedded.createBucket(RESULTS_BUCKET);
    s3 = new S3Client({
      endpoint: 'http://s3.test',
      region: 'us-east-1',
      credentials: { accessKeyId: 'fake', secretAccessKey: 'fake' },
      requestHandler: s3RequestHandler(embedded),
      forcePathStyle: true,
    });
    results = new SlowFolder(join(dir, 'results'));
    const follower = newFollower();
  });
  afterEach(() => {
    s3.destroy();
    embedded.close();
  });
  const newFollower = (aliasFolders = ['models/']) =>
    new Follower({
      s3,
      results,
      delivered: new DeliveredReceipts(join(dir, 'delivered')),
      receiptSettings: {
        ...{ collectFunction: 'collect-outputs', command: 'flowdrop', localInbox: '' },
        ...{ resultsBucket: RESULTS_BUCKET, resultsPrefix: '', service: FLOWS },
      },
      aliasFolders,
      onProgress: (each) => progress.push(each),
    });
  const put = (Key: string, Body: string) => s3.send(new PutObjectCommand({ Bucket: RESULTS_BUCKET, Key, Body }));
  /** An upload ends: its asset and its receipt are stored. */
  async function end(versionId: string) {
    const key = `a.png/flow-${versionId}/asset.glb`;
    await put(key, versionId);
    const assets = [{ id: 'asset', key, bytes: 2, mediaType: 'model/gltf-binary', sha256: '' }];
    const upload = { id: `id of ${versionId}`, key: 'a.png', versionId };
    await put(
      'a.png/receipt.json',
      JSON.stringify({ status: 'succeeded', upload, route: 'r', generation: 1, assets, failedOutputs: [] }),
    );
  }
  const receipt = async () => JSON.parse(await readFile(join(dir, 'results', 'a.png', 'receipt.json'), 'utf8'));

  it('leaves the receipt of the newer version in the folder, if the assets of the older one took longer', async () => {
    await end('v1');
    await vi.waitFor(() => expect(followed).toHaveLength(2), PATIENCE);
    await new Promise((resolve) => setTimeout(resolve, 50)); // The receipt of v1 is read by now.
    await end('v2');
    results.held.resolve();
    await Promise.all(followed);
    expect((await receipt()).upload.versionId).toBe('v2');
    expect(progress.map(({ versionId }) => versionId)).toEqual(['v1', 'v2']);
  });

  it('copies the aliases that a receipt names, unless they are gone', async () => {
    results.held.resolve();
    await put('models/a.glb', 'the newest');
    const upload = { id: 'id of v1', key: 'a.png', versionId: 'v1' };
    const aliases = ['models/a.glb', 'models/gone.glb'];
    const facts = { status: 'succeeded', upload, route: 'r', generation: 1, assets: [], failedOutputs: [], aliases };
    await put('a.png/receipt.json', JSON.stringify(facts));
    await Promise.all(followed);
    expect(await readFile(join(dir, 'results', 'models', 'a.glb'), 'utf8')).toBe('the newest');
    expect(progress).toMatchObject([{ kind: 'ended', receipt: { aliases } }]);
  });

  it('copies an alias that an operator has moved', async () => {
    results.held.resolve();
    await put('models/a.glb', 'one');
    await put('models/a.glb', 'another');
    await Promise.all(followed);
    expect(await readFile(join(dir, 'results', 'models', 'a.glb'), 'utf8')).toBe('another');
  });

  describe('the copy of an alias that is gone from the bucket', () => {
    const path = () => join(dir, 'results', 'models', 'a.glb');
    const at = { Bucket: RESULTS_BUCKET, Key: 'models/a.glb' };
    const remove = () => s3.send(new DeleteObjectCommand(at));
    const isThere = async () => (await readdir(join(dir, 'results', 'models'))).includes('a.glb');
    beforeEach(async () => {
      results.held.resolve();
      const Metadata = { [ALIAS_METADATA]: 'its owner' };
      await s3.send(new PutObjectCommand({ ...at, Body: 'an older one', Metadata }));
      await s3.send(new PutObjectCommand({ ...at, Body: 'the newest', Metadata }));
      await Promise.all(followed.splice(0));
    });

    it('is removed', async () => {
      await remove();
      await Promise.all(followed);
      expect(await isThere()).toBe(false);
    });

    it('stays if a person changed it, which is told once', async () => {
      await writeFile(path(), 'repaired by hand');
      await remove();
      const told = await Promise.allSettled(followed.splice(0));
      const message = `${path()} was changed after it was written, so it stays although the object is gone`;
      expect(told).toMatchObject([{ status: 'rejected', reason: { message } }]);
      expect(await readFile(path(), 'utf8')).toBe('repaired by hand');
      expect(await newFollower().leftovers()).toEqual({ uncopied: [], gone: [] });
    });

    it('is removed too if it was just being written', async () => {
      const body = 'large'.repeat(1_000_000);
      await s3.send(new PutObjectCommand({ ...at, Body: body, Metadata: { [ALIAS_METADATA]: 'its owner' } }));
      await remove();
      await Promise.all(followed);
      expect(await isThere()).toBe(false);
    });

    it('may have been moved away by a person', async () => {
      await rm(path());
      await remove();
      await Promise.all(followed);
    });

    it('is removed by the next run, which need not have the route any more', async () => {
      isEnded = true;
      await remove();
      const follower = newFollower([]);
      const { gone } = await follower.leftovers();
      expect(gone).toEqual(['models/a.glb']);
      for (const key of gone) await follower.copy(key);
      expect(await isThere()).toBe(false);
      expect((await newFollower().leftovers()).gone).toEqual([]);
    });

    it('is an asset below the same folder in no case', async () => {
      await put('models/b.png/flow/asset.glb', 'an asset');
      await s3.send(new DeleteObjectCommand({ ...at, Key: 'models/b.png/flow/asset.glb' }));
      await Promise.all(followed);
      const asset = join(dir, 'results', 'models', 'b.png', 'flow', 'asset.glb');
      expect(await readFile(asset, 'utf8')).toBe('an asset');
    });
  });

  it('reports an end whose receipt an earlier run has put with that receipt', async () => {
    embedded.createBucket(LEDGER_BUCKET);
    results.held.resolve();
    await end(ID);
    await Promise.all(followed);
    progress = [];
    const upload = { id: `id of ${ID}`, key: 'a.png', versionId: ID, lastModified: 0 };
    const entry = {
      state: 'succeeded',
      upload,
      route: { name: 'r' },
      generation: 1,
      endedAt: 0,
      assets: [],
      failedOutputs: [],
    };
    const key = `uploads/${ID}.json`;
    await s3.send(new PutObjectCommand({ Bucket: LEDGER_BUCKET, Key: key, Body: JSON.stringify(entry) }));
    const marker = `running/2026-01-01T00:00:00.000Z/${ID}/flow`;
    const s3Event = { bucket: { name: LEDGER_BUCKET }, object: { key: encodeURIComponent(marker) } };
    await newFollower().follow({ eventName: 'ObjectRemoved:Delete', s3: s3Event } as never);
    expect(progress).toMatchObject([{ kind: 'ended', receiptPath: join(dir, 'results', 'a.png', 'receipt.json') }]);
  });

  it('tells the next run what was copied, also if a killed run left half a line', async () => {
    results.held.resolve();
    await end('v1');
    await Promise.all(followed);
    const delivered = join(dir, 'delivered');
    const text = await readFile(delivered, 'utf8');
    progress = [];
    const catchUp = async () => {
      const follower = newFollower();
      for (const key of (await follower.leftovers()).uncopied) await follower.copy(key);
    };
    await catchUp();
    expect(progress).toEqual([]);

    await writeFile(delivered, text.slice(0, -3));
    await catchUp();
    expect(progress).toHaveLength(1);
    await appendFile(delivered, '\n["half');
    progress = [];
    await catchUp();
    expect(progress).toEqual([]);
  });
});
