import type { Clock } from '../../functions/base/clock.ts';
import type { Entry } from '../../functions/ledger/entry.ts';
import type { ChainWatch } from './chain-watch.ts';
import { isTerminal } from './invariants/facts.ts';
import type { OrderChecker } from './order-checker.ts';
import type { CompletedCall } from './s3.ts';

/** The tag by which S3 expires assets, in a header and in a body. */
const EXPIRES = /^flowdrop=asset$|<Value>asset<\/Value>/;

/**
 * Time for which an asset that is needed may have the tag, in milliseconds: S3 looks once a day. If the invocation dies
 * that was about to take the tag away, a tick does so after sixteen minutes.
 */
const LASTING_MS = 60 * 60_000;

/** Watches which assets S3 may expire, and finds those that a later stage still needs. */
export class ExpiryWatch {
  readonly #order: OrderChecker;
  readonly #chains: ChainWatch;
  readonly #clock: Pick<Clock, 'now'>;
  /** The keys of the assets that have the tag. True if they had got it after they were stored. */
  readonly #expiring = new Map<string, boolean>();
  /** Since when an asset is needed, and has the tag. */
  readonly #endangered = new Map<string, number>();
  /** What the uploads of later stages take that are under way, by their ids. */
  readonly #needed = new Map<string, readonly string[]>();

  constructor(order: OrderChecker, chains: ChainWatch, clock: Pick<Clock, 'now'>) {
    this.#order = order;
    this.#chains = chains;
    this.#clock = clock;
  }

  /** A call of S3 took effect. The order checker and the watch of the chains have seen it. */
  sees({ kind, key, body, tagging = body }: CompletedCall): void {
    for (const endangered of this.#endangered.keys()) this.#look(endangered);
    if (kind === 'entry.create' || kind === 'entry.replace') this.#seesEntry(JSON.parse(body) as Entry);
    else if (kind === 'asset.put' || kind === 'asset.begin' || kind === 'asset.tag') {
      if (EXPIRES.test(tagging)) this.#expiring.set(key, kind === 'asset.tag');
      else this.#expiring.delete(key);
      this.#look(key);
    }
  }

  #seesEntry(entry: Entry): void {
    const { upload, inputs = [] } = entry;
    if (upload.stage === undefined || isTerminal(entry)) {
      this.#needed.delete(upload.id);
      return;
    }
    const keys = inputs.map(({ key }) => key);
    this.#needed.set(upload.id, keys);
    for (const key of keys) this.#look(key);
  }

  #look(key: string): void {
    const isLater = this.#expiring.get(key);
    const isNeeded = [...this.#needed.values()].some((keys) => keys.includes(key));
    if (isLater === undefined || !(isNeeded || this.#isOfOpenChain(key, isLater))) {
      this.#endangered.delete(key);
      return;
    }
    const now = this.#clock.now();
    const since = this.#endangered.get(key) ?? now;
    this.#endangered.set(key, since);
    if (now - since > LASTING_MS) this.#breaks(key);
  }

  /**
   * True if a chain that has not ended has the upload that made an asset.
   * @param isLater true if the asset had got its tag after it was stored. One that no stage takes has it from the beginning.
   */
  #isOfOpenChain(key: string, isLater: boolean): boolean {
    const end = [...this.#order.endings.values()].find(({ assets }) => assets.some((asset) => asset.key === key));
    if (!isLater && (end?.plan ?? []).length === 0) return false;
    const chain = end && this.#chains.chainOf(end);
    return chain !== undefined && this.#chains.isUnderWay(chain);
  }

  #breaks(key: string): void {
    this.#order.broken.push(`S3 may expire an asset that is still needed: ${key}`);
  }
}
