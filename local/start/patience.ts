/** A run that processes files and exits gives up after this time in which every file waits, in milliseconds. */
export const ALL_WAIT_MAX_MS = 5 * 60_000;
const CHECK_MS = 250;

/** Watches for the time in which no file goes on. */
export class Patience implements Disposable {
  #goesOnAt = Date.now();
  #isOver = false;
  readonly #check: NodeJS.Timeout;

  /**
   * @param doAllWait tells whether there are files and every one of them waits.
   * @param onOver called once, when this has lasted for `maxMs` milliseconds.
   */
  constructor(maxMs: number, doAllWait: () => boolean, onOver: () => void) {
    this.#check = setInterval(() => {
      if (!doAllWait()) this.#goesOnAt = Date.now();
      if (Date.now() - this.#goesOnAt < maxMs) return;
      this.#isOver = true;
      clearInterval(this.#check);
      onOver();
    }, CHECK_MS).unref(); // An interrupted run ends although its files have not.
  }

  get isOver(): boolean {
    return this.#isOver;
  }

  [Symbol.dispose](): void {
    clearInterval(this.#check);
  }
}
