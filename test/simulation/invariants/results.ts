import type { Entry, StoredAsset } from '../../../functions/ledger/entry.ts';
import { demand } from '../demand.ts';
import { flowTagOf } from '../flow-tag.ts';
import { RESULT_BUCKETS, RESULTS } from '../names.ts';
import { isAlias } from '../s3-calls.ts';
import type { World } from '../world.ts';
import { isTerminal, sha256 } from './facts.ts';
import { isJobFile } from './jobs.ts';

/** Every asset is whole, under its own key, and written once. Each generation of an upload has assets of one flow. */
export async function checkResults(world: World, entries: readonly Entry[]): Promise<void> {
  const { scenario, inspector, observed } = world;
  const prefix = scenario.settings.resultsPrefix;
  const collected = new Map<string, Set<string>>();
  const listed = RESULT_BUCKETS.map(async (bucket) =>
    (await inspector.list(bucket)).map(({ key }) => ({ bucket, key })),
  );
  for (const object of (await Promise.all(listed)).flat()) {
    const { key } = object;
    demand(key.startsWith(prefix), 'a result is outside its prefix', key);
    if (/\/(receipt|chain)\.json$/.test(key) || isAlias(key)) continue;
    const { name, flowId, assetId } = originOf(world, key, prefix);
    await checkAsset(world, object, world.service.asset(flowId, assetId));
    collected.set(name, (collected.get(name) ?? new Set()).add(flowId));
  }
  for (const [name, flowIds] of collected) {
    const expired = observed.expired.get(name.split(' ')[0] ?? '')?.length ?? 0;
    demand(flowIds.size <= 1 + expired, 'two flows of one generation were collected', name, flowIds);
  }
  for (const { assets } of entries.filter(isTerminal)) {
    for (const asset of assets) await checkStored(world, asset);
  }
}

/** The output of the service that a key of the results is for, and its upload and generation. */
function originOf({ service, orderChecker }: World, key: string, prefix: string) {
  const [, uploadKey = '', flowPart = '', assetPart = ''] =
    /^(.*)\/([^/]+)\/([^/]+)$/s.exec(key.slice(prefix.length)) ?? [];
  const flowId = decodeURIComponent(flowPart);
  const flow = service.flows.find(({ id }) => id === flowId);
  const tag = flow && flowTagOf(flow);
  const input = flow?.inputs[0]?.additional as { bucket: string; key: string } | undefined;
  // Assets of a later stage are in the folder of their upload, below the key of the first file. Its input is an asset.
  const [, firstKey, id] = /^(.*)\/chain\/[^/]+\/([^/]+)$/s.exec(uploadKey) ?? [];
  const isOfLaterStage =
    id === tag?.upload &&
    input !== undefined &&
    isResults(input.bucket) &&
    input.key.startsWith(`${prefix}${firstKey}/`);
  // The inputs of a job are other files of its folder. Its entry may have expired or be damaged by now.
  const isOfJob = isJobFile(uploadKey) && orderChecker.uploads.get(tag?.upload ?? '')?.key === uploadKey;
  const isOwn = input?.key === uploadKey || isOfLaterStage || isOfJob;
  demand(tag !== undefined && isOwn, 'a result is under a wrong key', key, flow);
  // The id may end in what looks like an extension.
  const names = [assetPart, assetPart.replace(/\.\w+$/, '')].map(decodeURIComponent);
  const assetId = flow?.outputs.find((output) => names.includes(output.assetId))?.assetId ?? '';
  demand(assetId !== '', 'a result is of no output', key, flow);
  return { name: `${tag?.upload} ${tag?.generation}`, flowId, assetId };
}

type MadeAsset = ReturnType<World['service']['asset']>;

const isResults = (bucket: string): boolean => RESULT_BUCKETS.some((name) => name === bucket);

/** What is at a key in any of the results buckets, the first bucket first. */
export async function openResults(
  { inspector }: Pick<World, 'inspector'>,
  key: string,
): Promise<readonly NonNullable<Awaited<ReturnType<World['inspector']['open']>>>[]> {
  const opened = await Promise.all(RESULT_BUCKETS.map((bucket) => inspector.open(bucket, key)));
  return opened.flatMap((one) => one ?? []);
}

/** Bytes that tell whether an asset is a text. */
const HEAD_BYTES = 4 * 1024;

async function checkAsset(
  world: World,
  { bucket, key }: { readonly bucket: string; readonly key: string },
  made: MadeAsset,
): Promise<void> {
  const { inspector, observed } = world;
  const opened = await inspector.open(bucket, key);
  const isWhole = opened !== undefined && sha256(opened.body) === (await made.sha256());
  const sizes = { stored: opened?.body.byteLength, made: made.content.bytes };
  demand(isWhole, 'a result is not what the service made', key, sizes);
  const { mediaType } = opened ?? {};
  // A type that says nothing is judged by the extension, which some ids of assets have, and by the first bytes. Those of a
  // file are random, and may be the first of an MP3. A text with control characters at its beginning is none.
  const beginning = opened?.body.subarray(0, HEAD_BYTES) ?? Buffer.alloc(0);
  const isNoText = made.mediaType === 'text/plain' && beginning.some((byte) => byte <= 8);
  const saysNothing = made.mediaType === 'application/octet-stream' || isNoText;
  const isAudio = beginning[0] === 0xff && [0xf2, 0xf3, 0xfa, 0xfb].includes(beginning[1] ?? 0);
  const judged = key.endsWith('.glb') ? 'model/gltf-binary' : isAudio ? 'audio/mpeg' : made.mediaType;
  const expected = saysNothing ? judged : made.mediaType;
  demand(mediaType === expected, 'a result has another media type', key, mediaType, expected);
  const writes = observed.resultWrites.get(`${bucket}/${key}`);
  demand(writes === 1, 'a result was written more than once', key, writes);
}

async function checkStored({ inspector }: World, asset: StoredAsset): Promise<void> {
  const { body, etag } = (await inspector.open(asset.bucket ?? RESULTS, asset.key)) ?? {};
  const isSame = body !== undefined && body.byteLength === asset.bytes && sha256(body) === asset.sha256;
  // Later stages read the asset by its ETag.
  demand(isSame && etag === asset.etag, 'an asset is not there as its entry says', asset, body?.byteLength, etag);
}

/** Parts cost money: a process completes a multipart upload or tries to abort it, unless it is killed meanwhile. */
export async function checkMultipartUploads({ inspector, observed }: World): Promise<void> {
  const open = await Promise.all(RESULT_BUCKETS.map((bucket) => inspector.multipartUploads(bucket)));
  for (const { key, uploadId } of open.flat()) {
    const process = observed.begun.get(uploadId);
    const isTried = observed.abortTried.has(uploadId);
    const isExcused = process === undefined || process.isDead || process.wasFrozen || isTried;
    demand(isExcused, 'the parts of an asset were left behind', key, process?.name);
  }
}
