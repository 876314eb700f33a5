import { hash } from 'node:crypto';
import { isDeepStrictEqual } from 'node:util';
import { DeleteObjectCommand } from '@aws-sdk/client-s3';
import * as z from 'zod/mini';
import { encodedId } from '../base/key-segment.ts';
import { Document, type LedgerPorts } from '../ledger/document.ts';
import { presentRouteOf, type StoredAsset, type TerminalEntry } from '../ledger/entry.ts';
import { count, LEDGER_FORMAT, readonlyObject, uploadId } from '../ledger/entry-schema.ts';
import { aliasStateKey } from '../ledger/keys.ts';
import { ContendedError, parsedObject, UnreadableEntryError } from '../ledger/store.ts';
import { isSuccess } from '../ledger/terminal-states.ts';
import { MultipartUpload } from '../results/multipart-upload.ts';
import { isActiveContent } from '../results/results.ts';
import { aliasKey, FLOW_METADATA, UPLOAD_METADATA } from '../results/results-keys.ts';
import { isConditionUnmet, isConflict, isRefused } from '../s3/errors.ts';
import { headObject } from '../s3/objects.ts';
import type { Settings } from '../settings/environment.ts';
import { firstOf, ordinalOf, type Upload } from '../uploads/upload.ts';
import type { Receipt } from './report-schemas.ts';

/** Assets of one success that get an alias. Each takes four requests. */
const ALIASES_MAX = 100;

/** Tries to make aliases while others make them too. The next attempt to publish goes on. */
const TRIES_MAX = 10;

/** Metadata of an alias: the file that owns it, and which success it shows. */
export const ALIAS_METADATA = 'flowdrop-alias';
const SHOWS = 'flowdrop-alias-of';

const DIGITS = 20;
const hashOf = (...facts: readonly unknown[]): string => hash('sha256', JSON.stringify(facts)).slice(0, DIGITS);

const fileSchema = readonlyObject({
  alias: z.string(),
  bucket: z.string(),
  key: z.string(),
  etag: z.string(),
  bytes: count,
  mediaType: z.string(),
});

/** What the aliases of a file, or of a later stage of its chain, show. It alone decides which success is the newest. */
const stateSchema = readonlyObject({
  schema: z.literal(LEDGER_FORMAT),
  /** Sorts the successes of a file: the later one is greater. */
  order: z.string(),
  upload: uploadId,
  flow: z.string(),
  files: z.readonly(z.array(fileSchema)),
  /** Aliases of earlier successes that this one does not have. */
  stale: z.readonly(z.array(z.string())),
});
type AliasState = z.infer<typeof stateSchema>;

/** An object stands at an alias that is none of this file. It is left as it is. */
class AliasTakenError extends Error {
  override readonly name = 'AliasTakenError';
}

/** A success of a file, which need not be its newest one. */
export interface OtherSuccess {
  /** The id of its upload. */
  readonly upload: string;
  /** The id of its flow. */
  readonly flow: string;
  readonly assets: readonly StoredAsset[];
}

/** What came of making aliases. */
interface Made {
  /** False if another process has changed one of them. */
  readonly isDone: boolean;
  /** What is wrong with some of them. */
  readonly issues: ReadonlyMap<string, string>;
}

type AliasOwner = Pick<Upload, 'id' | 'key' | 'stage'>;

type AliasSettings = Pick<Settings, 'routes' | 'resultsBucket' | 'resultsPrefix' | 'ledgerBucket'>;

/** The aliases of a success that its receipt names, and why others could not be made. */
type Told = Pick<Receipt, 'aliases' | 'aliasIssue'>;

/**
 * Copies of the newest success of a file, at keys that do not change.
 *
 * The state of a file's aliases is written first, if this success is newer than the one that it names. Then the aliases are
 * made as it says, whoever wrote it, and at last it is read once more. So a writer that was late finds the newer state and
 * makes the aliases as that says, and one that died is repeated from its running marker. ETags alone would not do: two
 * successes may have the same bytes.
 */
export class Aliases {
  readonly #ports: Omit<LedgerPorts, 'bucket'>;
  readonly #settings: AliasSettings;

  constructor(ports: Omit<LedgerPorts, 'bucket'>, settings: AliasSettings) {
    this.#ports = ports;
    this.#settings = settings;
  }

  /** Has the aliases of its file show a success, unless a newer one has them. @throws an error worth another attempt. */
  async show(entry: TerminalEntry, signal: AbortSignal): Promise<Told> {
    const mine = this.#stateOf(entry, 'assets' in entry ? entry.assets : []);
    if (mine === undefined) return {};
    const isNewer = (there: AliasState | undefined) => there === undefined || there.order < mine.order;
    const moved = (there: AliasState | undefined) =>
      isNewer(there) ? { ...mine, stale: staleOf(there, mine) } : there;
    return this.#change(entry.upload, mine.flow, moved, signal);
  }

  /**
   * Has the aliases show another success of the file, until a newer one comes.
   * @param entry that of the file's newest upload.
   * @returns undefined if its route has no alias.
   */
  async showOther(
    entry: TerminalEntry,
    { upload, flow, assets }: OtherSuccess,
    signal: AbortSignal,
  ): Promise<Told | undefined> {
    const other = this.#stateOf({ ...entry, state: 'succeeded', flow: { id: flow, createdAt: 0 } }, assets);
    if (other === undefined) return undefined;
    const moved = (there: AliasState | undefined): AliasState | undefined => {
      const order = there !== undefined && there.order > other.order ? there.order : other.order;
      const next = { ...other, upload, order, stale: staleOf(there, other) };
      return isDeepStrictEqual(there, next) ? there : next;
    };
    return this.#change(entry.upload, flow, moved, signal);
  }

  /** Undefined if it is no success, or its route has no alias. */
  #stateOf(entry: TerminalEntry, assets: readonly StoredAsset[]): AliasState | undefined {
    const { upload, flow } = entry;
    const pattern = presentRouteOf(entry, this.#settings.routes)?.alias;
    if (pattern === undefined || flow === undefined || !isSuccess(entry.state)) return undefined;
    const { key } = firstOf(upload);
    const max = pattern.includes('{n}') ? ALIASES_MAX : 1;
    const files = assets.slice(0, max).map(({ bucket, key: from, etag, bytes, mediaType }, index) => {
      const alias = aliasKey(this.#settings.resultsPrefix, pattern, { key, mediaType, n: index + 1 });
      return { alias, bucket, key: from, etag, bytes, mediaType };
    });
    return { schema: LEDGER_FORMAT, order: orderOf(entry), upload: upload.id, flow: flow.id, files, stale: [] };
  }

  async #change(
    upload: Upload,
    flow: string,
    change: (there: AliasState | undefined) => AliasState | undefined,
    signal: AbortSignal,
  ): Promise<Told> {
    const document = this.#documentOf(upload);
    try {
      let value = await document.update(change, signal);
      for (let tries = 0; value !== undefined && tries < TRIES_MAX; tries += 1) {
        const { isDone, issues } = await this.#make(value, fileOf(upload), signal);
        const { value: now } = await document.read(signal);
        if (isDone && (now === undefined || shownBy(now) === shownBy(value))) return told(value, flow, issues);
        value = now;
      }
    } catch (error) {
      if (!isRefused(error) && !(error instanceof UnreadableEntryError)) throw error;
      return { aliasIssue: (error as Error).message };
    }
    throw new ContendedError(`The aliases of ${upload.key} were moved ${TRIES_MAX} times while they were put`);
  }

  /** What the aliases of an upload's file show. Undefined if it never had any. @throws {UnreadableEntryError} */
  async read(upload: AliasOwner, signal: AbortSignal): Promise<AliasState | undefined> {
    return (await this.#documentOf(upload).read(signal)).value;
  }

  #documentOf(upload: AliasOwner): Document<AliasState> {
    const key = aliasKeyOf(upload);
    const parse = (text: string) => parsedObject<AliasState>(key, text, stateSchema, 'its aliases stay').object;
    return new Document({ ...this.#ports, bucket: this.#settings.ledgerBucket, key, parse });
  }

  /** Makes the aliases as a state says. What is wrong with one of them keeps none of the others. */
  async #make(state: AliasState, owner: string, signal: AbortSignal): Promise<Made> {
    const issues = new Map<string, string>();
    let isDone = true;
    const step = async (alias: string, what: string, act: () => Promise<boolean>): Promise<void> => {
      try {
        isDone = (await act()) && isDone;
      } catch (error) {
        if (!(error instanceof AliasTakenError) && !isRefused(error)) throw error;
        issues.set(alias, `The alias ${alias} could not be ${what}: ${(error as Error).message}`);
      }
    };
    for (const file of state.files) await step(file.alias, 'put', () => this.#put(file, state, owner, signal));
    for (const alias of state.stale) await step(alias, 'removed', () => this.#remove(alias, owner, signal));
    return { isDone, issues };
  }

  /** @returns false if somebody else has changed the alias in between. It may show a newer success now. */
  async #put(
    file: AliasState['files'][number],
    state: AliasState,
    owner: string,
    signal: AbortSignal,
  ): Promise<boolean> {
    const { s3 } = this.#ports;
    const at = { Bucket: this.#settings.resultsBucket, Key: file.alias };
    const shows = shownBy(state);
    const there = await headObject(s3, at, signal);
    if (there !== undefined && there.Metadata?.[ALIAS_METADATA] !== owner) {
      throw new AliasTakenError('it is an object of something else, and was left as it is.');
    }
    if (there?.Metadata?.[SHOWS] === shows) return true;
    const metadata = { [ALIAS_METADATA]: owner, [SHOWS]: shows, [UPLOAD_METADATA]: state.upload };
    const upload = new MultipartUpload(
      s3,
      {
        ...{ ...at, ContentType: file.mediaType, Metadata: { ...metadata, [FLOW_METADATA]: encodedId(state.flow) } },
        ...(isActiveContent(file.mediaType) && { ContentDisposition: 'attachment' }),
      },
      signal,
    );
    try {
      await upload.copy(file);
      return await isWon(upload.complete(there === undefined ? { IfNoneMatch: '*' } : { IfMatch: there.ETag }));
    } finally {
      await upload.abort();
    }
  }

  /** Removes an alias that the newest success does not have: it would show an older one. @returns as {@link #put} does. */
  async #remove(alias: string, owner: string, signal: AbortSignal): Promise<boolean> {
    const { s3 } = this.#ports;
    const at = { Bucket: this.#settings.resultsBucket, Key: alias };
    const there = await headObject(s3, at, signal);
    if (there?.Metadata?.[ALIAS_METADATA] !== owner) return true;
    return isWon(s3.send(new DeleteObjectCommand({ ...at, IfMatch: there.ETag }), { abortSignal: signal }));
  }
}

/** False if somebody else has changed the object in between. */
async function isWon(write: Promise<unknown>): Promise<boolean> {
  try {
    await write;
    return true;
  } catch (error) {
    if (isConditionUnmet(error) || isConflict(error)) return false;
    throw error;
  }
}

function told({ flow, files }: AliasState, own: string, issues: Made['issues']): Told {
  const [aliasIssue] = issues.values();
  const aliases = files.map(({ alias }) => alias).filter((alias) => !issues.has(alias));
  const isTold = flow === own && aliases.length > 0;
  return { ...(isTold && { aliases }), ...(aliasIssue !== undefined && { aliasIssue }) };
}

/** Tells a state from those before and after it. */
const shownBy = ({ order, flow }: AliasState): string => hashOf(order, flow);

/** A file owns its aliases, whichever stage of its chain they show: the alias of one route may move to another. */
const fileOf = (upload: AliasOwner): string => hashOf(firstOf(upload).key);

/** The key in the ledger of what they show. Each stage has its own. */
export const aliasKeyOf = (upload: AliasOwner): string =>
  aliasStateKey(hashOf(firstOf(upload).key, upload.stage?.route));

function staleOf(there: AliasState | undefined, { files }: AliasState): readonly string[] {
  const own = new Set(files.map(({ alias }) => alias));
  const before = [...(there?.stale ?? []), ...(there?.files ?? []).map(({ alias }) => alias)];
  return [...new Set(before)].filter((alias) => !own.has(alias));
}

/**
 * Sorts the successes of a file: first by the upload, as receipts do, then by generation and end. A later stage may have
 * several uploads, so there the generation is that of the chain.
 */
function orderOf({ upload, generation, endedAt }: TerminalEntry): string {
  const { lastModified, currentAt = 0, stage } = upload;
  const seconds = Math.floor(Math.max(lastModified, currentAt) / 1000);
  return [
    String(seconds).padStart(12, '0'),
    ordinalOf(upload),
    firstOf(upload).id,
    String(stage === undefined ? generation : (stage.generation ?? 0)).padStart(6, '0'),
    String(endedAt).padStart(15, '0'),
  ].join(' ');
}
