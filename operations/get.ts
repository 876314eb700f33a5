import { createHash } from 'node:crypto';
import { GetObjectCommand } from '@aws-sdk/client-s3';
import pMap from 'p-map';
import * as z from 'zod/mini';
import { keptWords } from '../functions/flow-service/service-description.ts';
import { TERMINAL_STATE_NAMES, type TerminalState } from '../functions/ledger/terminal-states.ts';
import { RECEIPT_NAME, receiptKey } from '../functions/results/results-keys.ts';
import { isAbsent } from '../functions/s3/errors.ts';
import { CHAIN_FOLDER, type Upload } from '../functions/uploads/upload.ts';
import { type Deployment, issueOfConnection } from './deployment.ts';
import { findUpload, keyInOtherForm, withPrefix } from './find.ts';
import { objects } from './listing.ts';
import { entryOf } from './stored-bytes.ts';
import { isStageKeyOf, stageOfName } from './upload-name.ts';

/** Results that are fetched side by side. */
const CONCURRENCY = 8;

/** Writes an object to a place that it chooses, and returns the place. It may be called for several at a time. */
export type WriteResult = (key: string, body: AsyncIterable<Uint8Array>) => Promise<string>;

const receiptSchema = z.object({
  status: z.enum(TERMINAL_STATE_NAMES),
  upload: z.object({ id: z.string(), key: z.string() }),
  assets: z.array(z.object({ key: z.string(), bytes: z.number(), sha256: z.string() })),
});

export interface Fetched {
  readonly receipts: readonly {
    readonly key: string;
    readonly status: TerminalState;
    readonly path: string;
  }[];
  readonly files: readonly { readonly key: string; readonly path: string; readonly bytes: number }[];
  /** What could not be fetched, with the reason. */
  readonly issues: readonly { readonly key: string; readonly why: string }[];
}

/** The bytes of a result are not those that its receipt names. */
export class DamagedResultError extends Error {
  override readonly name = 'DamagedResultError';
}

/**
 * Fetches receipts, and the results that they name: those of a file and of its later stages, or of all files below a
 * prefix. Each result is checked against its size and SHA-256. One that differs is not kept.
 *
 * A file is named by its key, or by the id of its upload if that upload has the receipt at the key. An upload of a later
 * stage may also be named as `robot.png › optimised`.
 * @throws {AmbiguousNameError}
 */
export async function get(
  what: string,
  write: WriteResult,
  deployment: Deployment,
  signal: AbortSignal,
): Promise<Fetched> {
  const receipts: { key: string; status: TerminalState; path: string }[] = [];
  const files: { key: string; path: string; bytes: number }[] = [];
  const issues: { key: string; why: string }[] = [];
  const named = await namedUpload(what, deployment, signal);
  const { keys, first } = await receiptKeys(named?.key ?? what, deployment, signal);
  const fetchOne = async (key: string): Promise<void> => {
    try {
      const text = await textOf(key, deployment, signal);
      const { status, upload, assets } = receiptSchema.parse(JSON.parse(text));
      // A file of the inbox may have a key below the folder of the chain, without being a part of the chain.
      if (first !== undefined && upload.key !== first && !isStageKeyOf(first, upload.key)) return;
      if (named !== undefined && upload.key === named.key && upload.id !== named.id) {
        issues.push({ key, why: `it is the receipt of another upload at the same key: ${upload.id}` });
        return;
      }
      await pMap(
        assets,
        async (asset) => {
          const path = await write(asset.key, checked(asset, deployment, signal)).catch((error: Error) => {
            if (signal.aborted) throw error;
            issues.push({ key: asset.key, why: whyOf(error, deployment) });
            return undefined;
          });
          if (path !== undefined) files.push({ key: asset.key, path, bytes: asset.bytes });
        },
        { concurrency: CONCURRENCY },
      );
      receipts.push({ key: upload.key, status, path: await write(key, bytesOf(text)) });
    } catch (error) {
      if (signal.aborted) throw error;
      issues.push({ key, why: whyOf(error, deployment) });
    }
  };
  await pMap(keys, fetchOne, { concurrency: CONCURRENCY });
  return { receipts, files, issues };
}

/** The upload that is named by its id, or by the name of a later stage. @throws {AmbiguousNameError} */
async function namedUpload(what: string, deployment: Deployment, signal: AbortSignal): Promise<Upload | undefined> {
  const byId = (await entryOf(what, deployment, signal))?.entry?.upload;
  if (byId !== undefined || stageOfName(what) === undefined) return byId;
  const byName = (await findUpload(what, deployment, signal))?.entry?.upload;
  return byName?.stage === undefined ? undefined : byName;
}

const whyOf = (error: unknown, { command, settings: { service } }: Deployment): string =>
  isAbsent(error)
    ? `it is not in the results bucket any more.${keptWords(service)} To fetch it again: ${command} collect`
    : (issueOfConnection(error) ?? (error as Error).message);

/**
 * The keys of the receipt of the file with that key and of those of its later stages, or else of all receipts below the
 * prefix. `first` is the key of the file, if it is one.
 */
async function receiptKeys(
  what: string,
  deployment: Deployment,
  signal: AbortSignal,
): Promise<{ readonly keys: readonly string[]; readonly first?: string }> {
  const { s3, settings } = deployment;
  const { resultsBucket: bucket, resultsPrefix } = settings;
  const key = withPrefix(what, deployment);
  const own = receiptKey(resultsPrefix, key);
  const below = async (prefix: string): Promise<readonly string[]> => {
    const keys: string[] = [];
    for await (const { Key = '' } of objects({ s3, bucket, prefix }, signal)) {
      if (Key.endsWith(`/${RECEIPT_NAME}`)) keys.push(Key);
    }
    return keys;
  };
  const prefix = `${resultsPrefix}${key}`;
  for await (const { Key } of objects({ s3, bucket, prefix: own }, signal)) {
    if (Key === own) return { keys: [own, ...(await below(`${prefix}/${CHAIN_FOLDER}/`))], first: key };
  }
  const found = await below(prefix);
  const other = found.length > 0 ? undefined : await keyInOtherForm(key, deployment, signal);
  return other === undefined ? { keys: found } : receiptKeys(other, deployment, signal);
}

async function textOf(Key: string, { s3, settings }: Deployment, abortSignal: AbortSignal): Promise<string> {
  const { Body } = await s3.send(new GetObjectCommand({ Bucket: settings.resultsBucket, Key }), { abortSignal });
  return (await Body?.transformToString()) ?? '';
}

async function* bytesOf(text: string): AsyncGenerator<Uint8Array> {
  yield Buffer.from(text);
}

/** The bytes of a result. Throws at their end if they are not those of the receipt. */
async function* checked(
  { key, bytes, sha256 }: { readonly key: string; readonly bytes: number; readonly sha256: string },
  { s3, settings }: Deployment,
  abortSignal: AbortSignal,
): AsyncGenerator<Uint8Array> {
  const { Body } = await s3.send(new GetObjectCommand({ Bucket: settings.resultsBucket, Key: key }), { abortSignal });
  const hash = createHash('sha256');
  let count = 0;
  for await (const chunk of Body as AsyncIterable<Uint8Array>) {
    hash.update(chunk);
    count += chunk.byteLength;
    yield chunk;
  }
  if (count === bytes && hash.digest('hex') === sha256) return;
  throw new DamagedResultError(`${key} is not what its receipt says: its size or its SHA-256 differs`);
}
