/** Throttled requests, each after others were answered, that make a subject a suspect. */
const STRIKES_MAX = 3;

/** Subjects that are remembered. The oldest is forgotten first. */
const SUBJECTS_MAX = 1_000;

/**
 * How long a contradicted subject goes after all others once its wait is over, in milliseconds. A poisoned subject must
 * not take the turns of others. Under a real limit, an unlucky subject must not starve.
 */
const DEFER_MS = 10_000;

interface ThrottledSubject {
  /** Throttled requests that another subject's answer contradicted. The first one counts too. */
  strikes: number;
  throttledTurn: number;
  /** True if another subject was answered in a later turn. */
  isContradicted: boolean;
  /** The subject gets no turn before this time, in milliseconds since the epoch. */
  heldUntil: number;
}

/**
 * The flows and uploads that were throttled and not answered since.
 *
 * Tells the trouble of one flow from a limit of the service. Under a limit, a throttled subject soon gets through. A
 * poisoned subject is throttled again and again, while others that were sent later are answered.
 */
export class ThrottledSubjects {
  readonly #subjects = new Map<string, ThrottledSubject>();
  /** The rate before it was lowered, and the subjects that lowered it. Cleared once one of them proves a real limit. */
  #lowered: { readonly rate: number | undefined; readonly subjects: Set<string> } | undefined;

  has(subject: string): boolean {
    return this.#subjects.has(subject);
  }

  isContradicted(subject: string): boolean {
    return this.#subjects.get(subject)?.isContradicted === true;
  }

  /** True if a subject goes after all others: it was throttled a moment ago, and others were answered since. */
  isDeferred(subject: string, now: number): boolean {
    const known = this.#subjects.get(subject);
    return known?.isContradicted === true && now < known.heldUntil + DEFER_MS;
  }

  isSuspect(subject: string): boolean {
    return this.#subjects.get(subject)?.strikes === STRIKES_MAX;
  }

  heldUntil(subject: string): number {
    return this.#subjects.get(subject)?.heldUntil ?? 0;
  }

  throttled(subject: string, turn: number, heldUntil: number): void {
    const known = this.#subjects.get(subject);
    const strikes = this.#hasSuspectSibling(subject)
      ? STRIKES_MAX
      : Math.min(STRIKES_MAX, (known?.strikes ?? 1) + (known?.isContradicted ? 1 : 0));
    this.#subjects.delete(subject); // Inserts it again at the end, as the newest.
    this.#subjects.set(subject, { strikes, throttledTurn: turn, isContradicted: false, heldUntil });
    const [oldest] = this.#subjects.keys();
    if (this.#subjects.size > SUBJECTS_MAX && oldest !== undefined) this.#subjects.delete(oldest);
  }

  /** One suspect asset makes all assets of its flow suspects: a flow may have a thousand of them. */
  #hasSuspectSibling(subject: string): boolean {
    const parent = parentOf(subject);
    return (
      parent !== undefined &&
      [...this.#subjects].some(([other, { strikes }]) => strikes === STRIKES_MAX && parentOf(other) === parent)
    );
  }

  answered(subject: string, turn: number): void {
    if (this.#subjects.size === 0) return;
    this.#subjects.delete(subject);
    // The subject was throttled and got through later. So the limit is real.
    if (this.#lowered?.subjects.has(subject)) this.#lowered = undefined;
    for (const other of this.#subjects.values()) if (other.throttledTurn < turn) other.isContradicted = true;
  }

  /** Forgets that a subject is a suspect. */
  pardon(subject: string): void {
    if (!this.isSuspect(subject)) return;
    this.#subjects.delete(subject);
    this.#lowered?.subjects.delete(subject);
  }

  /** Remembers the rate before the first throttled request that may be the trouble of one subject. */
  keepRateBefore(rate: number | undefined): void {
    this.#lowered ??= { rate, subjects: new Set() };
  }

  noteLowered(subject: string): void {
    this.#lowered?.subjects.add(subject);
  }

  /** The rate to restore if all subjects that lowered it are suspects. Returns it once. */
  takeRateBeforeSuspects(): { readonly rate: number | undefined } | undefined {
    const lowered = this.#lowered;
    if (lowered === undefined) return undefined;
    const areAllSuspects = [...lowered.subjects].every((subject) => this.isSuspect(subject));
    if (!areAllSuspects) return undefined;
    this.#lowered = undefined;
    return lowered;
  }
}

/** The flow of an asset. Undefined for any other subject. */
const parentOf = (subject: string): string | undefined =>
  subject.includes('/') ? subject.slice(0, subject.indexOf('/')) : undefined;

/** The subject of a request about one flow. Encoded: a flow whose id holds a slash is no asset of another. */
export const flowSubject = (flowId: string): string => encodeURIComponent(flowId);

/** The subject of a request about one asset. */
export const assetSubject = (flowId: string, assetId: string): string =>
  `${encodeURIComponent(flowId)}/${encodeURIComponent(assetId)}`;

/**
 * The subject of a redirected request about an asset. Not the asset's: its redirect is answered each time, which would
 * hide that the target is always throttled.
 */
export const redirectSubject = (subject: string): string => `${subject}/redirected`;
