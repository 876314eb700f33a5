/** Refusals, each after others were answered, that make a subject a suspect. */
const STRIKES_MAX = 3;

/** Subjects that are remembered. The oldest is forgotten first. */
const SUBJECTS_MAX = 1_000;

/**
 * How long a contradicted subject goes after all others once its wait is over, in milliseconds. A poisoned one must not
 * keep others from their turn, and under a real limit an unlucky one must not starve.
 */
const PUT_BACK_MS = 10_000;

interface RefusedSubject {
  /** Refusals that another subject's answer contradicted; the first one counts too. */
  strikes: number;
  refusedTurn: number;
  /** Whether another subject was answered in a later turn. */
  isContradicted: boolean;
  /** Milliseconds since the epoch: this subject does not go before. */
  heldUntil: number;
}

/**
 * The flows or uploads that were refused and not answered since.
 *
 * It tells one flow's own trouble from a limit of the service: under a limit, a subject that is refused soon gets
 * through; a poisoned one is refused again and again, while others that were sent later are answered.
 */
export class RefusedSubjects {
  readonly #subjects = new Map<string, RefusedSubject>();
  /** The rate before it was lowered, and for whom, until one of them shows that the limit is real. */
  #lowered: { readonly rate: number | undefined; readonly subjects: Set<string> } | undefined;

  has(subject: string): boolean {
    return this.#subjects.has(subject);
  }

  isContradicted(subject: string): boolean {
    return this.#subjects.get(subject)?.isContradicted === true;
  }

  /** Whether a subject goes after all others: it was refused a moment ago, and others were answered since. */
  isPutBack(subject: string, now: number): boolean {
    const known = this.#subjects.get(subject);
    return known?.isContradicted === true && now < known.heldUntil + PUT_BACK_MS;
  }

  isSuspect(subject: string): boolean {
    return this.#subjects.get(subject)?.strikes === STRIKES_MAX;
  }

  heldUntil(subject: string): number {
    return this.#subjects.get(subject)?.heldUntil ?? 0;
  }

  /** A subject was refused. A suspect's refusals say nothing about others. */
  refused(subject: string, turn: number, heldUntil: number): 'suspect' | 'anybody' {
    const known = this.#subjects.get(subject);
    const strikes = this.#hasSuspectSibling(subject)
      ? STRIKES_MAX
      : Math.min(STRIKES_MAX, (known?.strikes ?? 1) + (known?.isContradicted ? 1 : 0));
    this.#subjects.delete(subject); // So that it stands at the end, as the newest.
    this.#subjects.set(subject, { strikes, refusedTurn: turn, isContradicted: false, heldUntil });
    const [oldest] = this.#subjects.keys();
    if (this.#subjects.size > SUBJECTS_MAX && oldest !== undefined) this.#subjects.delete(oldest);
    return strikes >= STRIKES_MAX ? 'suspect' : 'anybody';
  }

  /** One suspect asset of a flow makes all its assets suspects: a flow may have a thousand of them. */
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
    // It was refused and got through later: the limit is real, and nobody's own trouble.
    if (this.#lowered?.subjects.has(subject)) this.#lowered = undefined;
    for (const other of this.#subjects.values()) if (other.refusedTurn < turn) other.isContradicted = true;
  }

  /** Remembers the rate from before the first refusal that may have been one subject's own. */
  keepRateBefore(rate: number | undefined): void {
    this.#lowered ??= { rate, subjects: new Set() };
  }

  noteLowered(subject: string): void {
    this.#lowered?.subjects.add(subject);
  }

  /** The rate to return to, if all that lowered it were suspects. It is returned once. */
  takeRateBeforeSuspects(): { readonly rate: number | undefined } | undefined {
    const lowered = this.#lowered;
    if (lowered === undefined) return undefined;
    const areAllSuspects = [...lowered.subjects].every((subject) => this.isSuspect(subject));
    if (!areAllSuspects) return undefined;
    this.#lowered = undefined;
    return lowered;
  }
}

/** The flow of an asset; undefined for any other subject. */
const parentOf = (subject: string): string | undefined =>
  subject.includes('/') ? subject.slice(0, subject.indexOf('/')) : undefined;

/** The subject of a request about one asset. */
export const assetSubject = (flowId: string, assetId: string): string =>
  `${encodeURIComponent(flowId)}/${encodeURIComponent(assetId)}`;
