import type { Entry } from '../../functions/ledger/entry.ts';
import type { ChainReport } from '../../functions/publish/report-schemas.ts';
import { NEXT_RESULTS, RESULTS } from './names.ts';
import type { OrderChecker } from './order-checker.ts';
import type { CompletedCall } from './s3.ts';

/** An upload in the object of a chain. */
interface Listed {
  readonly id: string;
  readonly generation: number;
  readonly state: string;
}

interface ListedChain {
  readonly uploads: readonly Listed[];
  readonly endedAt?: number;
}

/**
 * Watches what is written about chains when it takes effect, and finds what was begun or told too early. The state at
 * the end would not show it: what begins too early is an upload like any other.
 */
export class ChainWatch {
  /** What the chains told at their ends, the last one last, by the upload ids of their first files. */
  readonly reports = new Map<string, ChainReport[]>();
  readonly #order: OrderChecker;
  /** The uploads of each chain as they were written last, by the upload id of the first file. */
  readonly #listed = new Map<string, readonly Listed[]>();
  readonly #texts = new Map<string, string>();
  /** The chains that had ended when they were written last, by the upload ids of their first files. */
  readonly ended = new Set<string>();
  /** When each chain has ended last, in milliseconds since the epoch. */
  readonly #lastEnds = new Map<string, number>();
  /** When each chain's end was written. */
  readonly #endsWrittenAt = new Map<string, number>();
  readonly #now: () => number;

  constructor(order: OrderChecker, now: () => number) {
    this.#order = order;
    this.#now = now;
  }

  /** True if a chain has begun, and had not ended when it was written last. */
  isUnderWay(first: string): boolean {
    return this.#listed.has(first) && !this.ended.has(first);
  }

  /** When the end of a chain was last written. Undefined if it never was. */
  endWrittenAt(first: string): number | undefined {
    return this.#endsWrittenAt.get(first);
  }

  /** True if a chain has ended after one of its uploads. An operator may have had it go on since. */
  hasEndedAfter(first: string, uploadEndedAt: number): boolean {
    return this.ended.has(first) || (this.#lastEnds.get(first) ?? 0) >= uploadEndedAt;
  }

  /** The chain that an upload is a part of, by its first file. Undefined if it has none, or forgot this generation. */
  chainOf({ upload, generation }: Pick<Entry, 'upload' | 'generation'>): string | undefined {
    const first = upload.stage?.first.id ?? upload.id;
    const isIt = (listed: Listed): boolean => listed.id === upload.id && listed.generation === generation;
    return this.#listed.get(first)?.some(isIt) === true ? first : undefined;
  }

  /** A call of S3 took effect. The order checker has seen it. */
  sees({ kind, key, body }: CompletedCall): void {
    if (kind === 'chain.put') this.#seesChain(key, JSON.parse(body) as ListedChain);
    else if (kind === 'entry.create') this.#seesBegin(JSON.parse(body) as Entry);
    else if (kind === 'receipt.put' && key.endsWith('/chain.json')) this.#seesReport(body);
  }

  /** A chain says that an upload has ended only after its entry says so. */
  #seesChain(key: string, { uploads, endedAt }: ListedChain): void {
    const first = /^chains\/(.*)\.json$/.exec(key)?.[1] ?? '';
    this.#listed.set(first, uploads);
    if (endedAt === undefined) this.ended.delete(first);
    else {
      if (!this.ended.has(first)) this.#endsWrittenAt.set(first, this.#now());
      this.ended.add(first);
      this.#lastEnds.set(first, endedAt);
    }
    for (const { id, generation, state } of uploads) {
      if (state === 'under way' || this.#order.hasEnded(id, generation)) continue;
      this.#order.broken.push(`a chain says of an upload that it has ended, and its entry does not: ${key}, ${id}`);
    }
  }

  /** A later stage begins after its chain names it, with what the stage before has made. */
  #seesBegin({ upload, route }: Entry): void {
    const { stage } = upload;
    if (stage === undefined) return;
    const listed = this.#listed.get(stage.first.id) ?? [];
    const { parent } = stage;
    if (!listed.some(({ id }) => id === upload.id)) {
      this.#order.broken.push(`a later stage began before its chain named it: ${upload.key}`);
    }
    if (parent.asset !== undefined) {
      const ends = [...this.#order.endings.values()].filter(
        (end) => end.upload.id === parent.id && end.generation === parent.generation && end.state === 'succeeded',
      );
      if (ends.some(({ assets }) => assets.some(({ id }) => id === parent.asset))) return;
      this.#order.broken.push(`a later stage began with an asset that no upload has: ${upload.key}, ${route.name}`);
    }
  }

  /** A chain tells of its end after the receipts of all its later stages, and tells of one end in one way. */
  #seesReport(body: string): void {
    const report = JSON.parse(body) as ChainReport;
    const { upload: first, generation, endedAt, stages } = report;
    const before = this.reports.get(first.id) ?? [];
    this.reports.set(first.id, [...before, report]);
    const name = `${first.id} ${generation} ${endedAt}`;
    const { sourceIssue: _, ...told } = report;
    const text = JSON.stringify(told).replaceAll(NEXT_RESULTS, RESULTS);
    if ((this.#texts.get(name) ?? text) !== text) {
      this.#order.broken.push(`a chain told of one end in two ways: ${first.key}, ${name}`);
    }
    this.#texts.set(name, text);
    for (const { id, generation: ended } of stages.flatMap(({ uploads }) => uploads)) {
      // The receipt of the first file is not put if a newer file has the address.
      const isPut = id === first.id ? this.#order.hasEnded(id, ended) : this.#order.receipted.has(`${id}-${ended}`);
      if (!isPut)
        this.#order.broken.push(`a chain told of its end before a receipt of it was put: ${first.key}, ${id}`);
    }
  }
}
