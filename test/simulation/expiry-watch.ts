import type { Entry } from '../../functions/ledger/entry.ts';
import type { ChainWatch } from './chain-watch.ts';
import { isTerminal } from './invariants/facts.ts';
import type { OrderChecker } from './order-checker.ts';
import type { CompletedCall } from './s3.ts';

/** The tag by which S3 expires assets, in a header and in a body. */
const EXPIRES = /^flowdrop=asset$|<Value>asset<\/Value>/;

/** Watches which assets S3 may expire, and finds those that a later stage still needs. */
export class ExpiryWatch {
  readonly #order: OrderChecker;
  readonly #chains: ChainWatch;
  /** The keys of the assets that have the tag. */
  readonly #expiring = new Set<string>();
  /** What the uploads of later stages take that are under way, by their ids. */
  readonly #needed = new Map<string, readonly string[]>();

  constructor(order: OrderChecker, chains: ChainWatch) {
    this.#order = order;
    this.#chains = chains;
  }

  /** A call of S3 took effect. The order checker and the watch of the chains have seen it. */
  sees({ kind, key, body, tagging = body }: CompletedCall): void {
    if (kind === 'entry.create' || kind === 'entry.replace') this.#seesEntry(JSON.parse(body) as Entry);
    else if (kind === 'asset.put' || kind === 'asset.begin' || kind === 'asset.tag') {
      if (!EXPIRES.test(tagging)) this.#expiring.delete(key);
      else this.#seesExpiry(key, kind === 'asset.tag');
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
    for (const key of keys) if (this.#expiring.has(key)) this.#breaks(key);
  }

  #seesExpiry(key: string, isLater: boolean): void {
    this.#expiring.add(key);
    const isNeeded = [...this.#needed.values()].some((keys) => keys.includes(key));
    if (isNeeded || (isLater && this.#isOfOpenChain(key))) this.#breaks(key);
  }

  /** True if a chain that has not ended has the upload that made an asset. */
  #isOfOpenChain(key: string): boolean {
    const end = [...this.#order.endings.values()].find(({ assets }) => assets.some((asset) => asset.key === key));
    const chain = end && this.#chains.chainOf(end);
    return chain !== undefined && this.#chains.isUnderWay(chain);
  }

  #breaks(key: string): void {
    this.#order.broken.push(`S3 may expire an asset that is still needed: ${key}`);
  }
}
