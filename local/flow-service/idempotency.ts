import { createHash } from 'node:crypto';
import { type Answer, json, Refusal } from './answer.ts';
import type { ServiceRequest } from './call.ts';

const HOUR_MS = 60 * 60_000;

/** What became of the first request with a key. */
interface Known {
  readonly at: number;
  /** Undefined until the body was read to its end. */
  sha256?: string;
  /** Undefined until the request is answered. */
  answer?: Answer;
}

/** The idempotency keys that a service has seen. */
export class IdempotencyKeys {
  readonly #known = new Map<string, Known>();

  /**
   * Runs the request, unless one with its key was run before.
   * @param hours for which a key is honoured.
   * @param run takes the request. Its error is no answer, and is not kept, unless it is a {@link Refusal}.
   * @throws {Refusal}
   */
  async run(
    request: ServiceRequest,
    { hours, now }: { readonly hours: number; readonly now: () => number },
    run: (request: ServiceRequest) => Promise<Answer>,
  ): Promise<Answer> {
    const key = request.headers['idempotency-key'];
    if (key === undefined || hours === 0) return run(request);
    const hash = createHash('sha256');
    const body = (async function* () {
      for await (const chunk of request.body) {
        hash.update(chunk);
        yield chunk;
      }
    })();
    const first = this.#known.get(key);
    if (first !== undefined && now() < first.at + hours * HOUR_MS) {
      for await (const _ of body);
      if (first.answer === undefined) throw new Refusal(409, 'A request with this key is not answered yet');
      if (first.sha256 !== hash.digest('hex')) throw new Refusal(422, 'This key was used for another request');
      return first.answer;
    }
    const known: Known = { at: now() };
    this.#known.set(key, known);
    try {
      known.answer = await answerOf(() => run({ ...request, body }));
    } catch (error) {
      // The request was not read to its end.
      this.#known.delete(key);
      throw error;
    }
    known.sha256 = hash.digest('hex');
    return known.answer;
  }
}

async function answerOf(run: () => Promise<Answer>): Promise<Answer> {
  try {
    return await run();
  } catch (error) {
    if (!(error instanceof Refusal)) throw error;
    return json(error.status, { detail: error.detail }, error.headers);
  }
}
