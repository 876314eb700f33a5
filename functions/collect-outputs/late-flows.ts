/**
 * Flows that are late: after its turn, an asset of theirs failed, or lost its slot to another asset. Until they end,
 * their assets come after those of all others: see `AssetSlots`. The collector remembers them from tick to tick.
 */
export class LateFlows {
  /** Upload ids, in the order of their last failures. */
  readonly #uploadIds: Set<string>;

  constructor(remembered: readonly string[] = []) {
    this.#uploadIds = new Set(remembered);
  }

  has(uploadId: string): boolean {
    return this.#uploadIds.has(uploadId);
  }

  /** Notes a failure. The flow is then the last one among the late ones. */
  add(uploadId: string): void {
    this.#uploadIds.delete(uploadId);
    this.#uploadIds.add(uploadId);
  }

  /** Forgets the flows that run no more. */
  retain(uploadIds: ReadonlySet<string>): void {
    for (const id of this.#uploadIds) if (!uploadIds.has(id)) this.#uploadIds.delete(id);
  }

  /** The upload ids, the one that has waited longest first. Undefined if there is none. */
  get remembered(): readonly string[] | undefined {
    return this.#uploadIds.size === 0 ? undefined : [...this.#uploadIds];
  }
}
