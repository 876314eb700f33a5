import * as z from 'zod/mini';
import { quoted } from '../functions/base/printable.ts';
import { Semaphore } from '../functions/base/semaphore.ts';
import { isDenied } from './aws-requests.ts';
import { type Deployment, issueOfConnection } from './deployment.ts';

/** What the service answers about the flow of an upload; or why there is no answer. Nothing of it is kept in the ledger. */
export interface ServiceAnswer {
  readonly askedAt: string;
  /** In a sentence, the word and the progress. */
  readonly says?: string | undefined;
  /** The service's own word for the state. Absent if it has none. */
  readonly word?: string | undefined;
  /** False if the description of the service does not declare the word. Then the flow counts as running. */
  readonly isDeclared?: boolean | undefined;
  /** How far the flow is, as the service counts. */
  readonly progress?: number | undefined;
  /** JSON of several lines: without the token and the queries of addresses, and with its long texts cut. */
  readonly answer?: string | undefined;
  /** Why there is no answer. */
  readonly issue?: string | undefined;
}

const answerSchema = z.union([
  z.object({
    flow: z.object({
      word: z.optional(z.string()),
      isDeclared: z.optional(z.boolean()),
      progress: z.optional(z.number()),
      answer: z.string(),
    }),
  }),
  z.object({ issue: z.object({ message: z.string() }) }),
]);

/** An answer counts for so long, in milliseconds. The service limits all requests with this token. */
const ANSWER_KEPT_MS = 5_000;

/** Longest time for an answer, in milliseconds. A person waits for it. */
const ANSWER_MS_MAX = 10_000;

/**
 * Asks the service about the flows of uploads, by its collecting function. A question costs nothing, and changes nothing.
 * There is one question at a time, and within {@link ANSWER_KEPT_MS} none about the same upload in the same state.
 */
export class ServiceQuestions {
  readonly #deployment: Deployment;
  readonly #signal: AbortSignal;
  readonly #turn = new Semaphore(1);
  readonly #asked = new Map<string, Promise<ServiceAnswer>>();

  constructor(deployment: Deployment, signal: AbortSignal) {
    this.#deployment = deployment;
    this.#signal = signal;
  }

  /**
   * Returns the issue instead of throwing it: an upload is shown without the service, too.
   * @param state of the upload. In another state, an earlier answer is out of date.
   */
  ask(uploadId: string, state: string): Promise<ServiceAnswer> {
    const subject = `${uploadId} ${state}`;
    let asked = this.#asked.get(subject);
    if (asked === undefined) {
      asked = this.#turn.through(() => this.#answer(uploadId));
      this.#asked.set(subject, asked);
      asked.then(() => setTimeout(() => this.#asked.delete(subject), ANSWER_KEPT_MS).unref());
    }
    return asked;
  }

  async #answer(uploadId: string): Promise<ServiceAnswer> {
    const askedAt = new Date(this.#deployment.clock.now()).toISOString();
    try {
      const signal = AbortSignal.any([this.#signal, AbortSignal.timeout(ANSWER_MS_MAX)]);
      const answer = answerSchema.parse(await this.#deployment.collecting.invoke({ ask: uploadId }, signal));
      if ('issue' in answer) return { askedAt, issue: answer.issue.message };
      return { askedAt, says: sentenceOf(answer.flow), ...answer.flow };
    } catch (error) {
      return { askedAt, issue: issueOf(error as Error) };
    }
  }
}

function issueOf(error: Error): string {
  if (isDenied(error)) return 'You may not have it asked: that needs grantOperate.';
  return error.name === 'TimeoutError'
    ? `It did not come within ${ANSWER_MS_MAX / 1000} seconds.`
    : (issueOfConnection(error) ?? error.message);
}

function sentenceOf({ word, isDeclared, progress }: Omit<ServiceAnswer, 'askedAt'>): string {
  const state = word === undefined ? 'names no state' : `says ${quoted(word)}`;
  const far = progress === undefined ? '' : `, progress ${Math.round(100 * progress) / 100}`;
  const counts = isDeclared === false ? ' This is not declared, so it counts as running.' : '';
  return `The service ${state}${far}.${counts}`;
}
