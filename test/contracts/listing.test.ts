import {
  ListMultipartUploadsCommand,
  ListObjectsCommand,
  ListObjectsV2Command,
  ListObjectVersionsCommand,
} from '@aws-sdk/client-s3';
import { describe, expect } from 'vitest';
import { put, refusal, remove, uploadParts } from '../support/s3-calls.ts';
import { behaviour, type Given } from './support.ts';

const KEYS = ['a', 'b/', 'b/1', 'b/2/3', 'b0', 'c', 'd/1', 'd/2'];

async function fill(given: Given, names: readonly string[]): Promise<void> {
  for (const name of names) await put({ ...given, Key: `${given.Key}/${name}` }, 'x');
}

/** Makes a function that removes the prefix of the test from a key. */
function below({ Key }: Given): (key: string | undefined) => string {
  return (key = '') => key.slice(Key.length + 1);
}

describe('ListObjectsV2', () => {
  behaviour('selects keys by prefix, delimiter and start-after', 'any', async (given) => {
    const { client, Bucket, Key } = given;
    await fill(given, KEYS.slice(0, 5));
    const page = async (input: { Prefix?: string; Delimiter?: string; StartAfter?: string; MaxKeys?: number }) => {
      const Prefix = `${Key}/${input.Prefix ?? ''}`;
      const StartAfter = input.StartAfter && `${Key}/${input.StartAfter}`;
      const got = await client.send(new ListObjectsV2Command({ Bucket, ...input, Prefix, StartAfter }));
      expect(got.IsTruncated).toBe(false);
      const keys = (got.Contents ?? []).map((object) => below(given)(object.Key));
      return [keys, (got.CommonPrefixes ?? []).map((common) => below(given)(common.Prefix))];
    };
    expect(await page({ Prefix: 'b/' })).toEqual([['b/', 'b/1', 'b/2/3'], []]);
    expect(await page({ Prefix: 'b/', Delimiter: '/' })).toEqual([['b/', 'b/1'], ['b/2/']]);
    expect(await page({ Prefix: 'b' })).toEqual([['b/', 'b/1', 'b/2/3', 'b0'], []]);
    expect(await page({ Prefix: 'x' })).toEqual([[], []]);
    expect(await page({ Delimiter: '/2/' })).toEqual([['a', 'b/', 'b/1', 'b0'], ['b/2/']]);
    expect(await page({ StartAfter: 'a', Prefix: 'b/2' })).toEqual([['b/2/3'], []]);
    expect(await page({ StartAfter: 'c', Prefix: 'b' })).toEqual([[], []]);
    expect(await page({ StartAfter: 'b/1', Delimiter: '/' })).toEqual([['b0'], []]);
    expect(await page({ MaxKeys: 0 })).toEqual([[], []]);
  });

  behaviour('counts a common prefix as one entry of a page', 'any', async (given) => {
    const { client, Bucket, Key } = given;
    await fill(given, [...KEYS, '～/1', '😀/1']);
    for (const MaxKeys of [1, 2, 3, 1000]) {
      const seen: string[] = [];
      let ContinuationToken: string | undefined;
      do {
        const page = await client.send(
          new ListObjectsV2Command({ Bucket, Prefix: `${Key}/`, MaxKeys, ContinuationToken, Delimiter: '/' }),
        );
        const entries = [
          ...(page.Contents ?? []).map((object) => below(given)(object.Key)),
          ...(page.CommonPrefixes ?? []).map(({ Prefix }) => below(given)(Prefix)),
        ];
        expect(entries).toHaveLength(page.KeyCount ?? 0);
        expect(entries.length).toBeLessThanOrEqual(MaxKeys);
        expect(page.IsTruncated).toBe(page.NextContinuationToken !== undefined);
        seen.push(...entries);
        ContinuationToken = page.NextContinuationToken;
      } while (ContinuationToken !== undefined);
      expect(seen.toSorted()).toEqual(['a', 'b/', 'b0', 'c', 'd/', '😀/', '～/']);
    }
  });

  behaviour('refuses a token that it did not give out', 'any', async ({ client, Bucket }) => {
    const listing = client.send(new ListObjectsV2Command({ Bucket, ContinuationToken: 'nonsense' }));
    expect(await refusal(listing)).toBe('400 InvalidArgument');
  });
});

behaviour('ListObjects continues after a marker', 'any', async (given) => {
  const { client, Bucket, Key } = given;
  await fill(given, ['a', 'b/1', 'b/2', 'c']);
  const list = (input: object) =>
    client.send(new ListObjectsCommand({ Bucket, Prefix: `${Key}/`, MaxKeys: 2, ...input }));
  const first = await list({ Delimiter: '/' });
  expect(first.Contents?.map((object) => below(given)(object.Key))).toEqual(['a']);
  expect(first.CommonPrefixes?.map(({ Prefix }) => below(given)(Prefix))).toEqual(['b/']);
  expect(below(given)(first.NextMarker)).toBe('b/');
  const second = await list({ Delimiter: '/', Marker: first.NextMarker });
  expect([second.Contents?.map((object) => below(given)(object.Key)), second.IsTruncated]).toEqual([['c'], false]);
  const plain = await list({});
  expect([plain.IsTruncated, plain.NextMarker]).toEqual([true, undefined]);
});

describe('ListObjectVersions', () => {
  behaviour('lists every version in pages, newest first within a key', 'Enabled', async (given) => {
    const { client, Bucket, Key } = given;
    const written: string[] = [];
    for (const name of ['a', 'b/1', 'a', 'a', 'c']) {
      written.push(`${name} ${(await put({ ...given, Key: `${Key}/${name}` }, 'x')).VersionId}`);
    }
    const [first, other, second, third, last] = written;
    for (const MaxKeys of [1, 2, 3, 1000]) {
      const seen: string[] = [];
      let next: { KeyMarker?: string; VersionIdMarker?: string } = {};
      for (;;) {
        const page = await client.send(new ListObjectVersionsCommand({ Bucket, Prefix: `${Key}/`, MaxKeys, ...next }));
        seen.push(...(page.Versions ?? []).map((version) => `${below(given)(version.Key)} ${version.VersionId}`));
        if (!page.IsTruncated) break;
        next = { KeyMarker: page.NextKeyMarker, VersionIdMarker: page.NextVersionIdMarker };
      }
      expect(seen).toEqual([third, second, first, other, last]);
    }
  });

  behaviour(
    'lists delete markers apart, marks the latest, and groups keys by common prefix',
    'Enabled',
    async (given) => {
      const { client, Bucket, Key } = given;
      await fill(given, ['a', 'b/1', 'c']);
      await remove({ ...given, Key: `${Key}/a` });
      const page = await client.send(new ListObjectVersionsCommand({ Bucket, Prefix: `${Key}/`, Delimiter: '/' }));
      expect(page.DeleteMarkers?.map((marker) => [below(given)(marker.Key), marker.IsLatest])).toEqual([['a', true]]);
      expect(page.Versions?.map((version) => [below(given)(version.Key), version.IsLatest])).toEqual([
        ['a', false],
        ['c', true],
      ]);
      expect(page.CommonPrefixes?.map(({ Prefix }) => below(given)(Prefix))).toEqual(['b/']);
      const current = await client.send(new ListObjectsV2Command({ Bucket, Prefix: `${Key}/` }));
      expect(current.Contents?.map((object) => below(given)(object.Key))).toEqual(['b/1', 'c']);
    },
  );
});

behaviour('ListMultipartUploads lists those below a prefix, in the order of their keys', 'any', async (given) => {
  const { client, Bucket, Key } = given;
  for (const name of ['c +', '😀', '～', 'a']) await uploadParts({ ...given, Key: `${Key}/${name}` }, []);
  await uploadParts({ ...given, Key: `${Key}-beside` }, []);
  const input = { Bucket, Prefix: `${Key}/`, EncodingType: 'url' } as const;
  const { Uploads } = await client.send(new ListMultipartUploadsCommand(input));
  const keys = Uploads?.map((each) => decodeURIComponent((each.Key ?? '').replaceAll('+', ' ')));
  expect(keys?.map(below(given))).toEqual(['a', 'c +', '～', '😀']);
});
