import { systemClock } from '../functions/base/clock.ts';
import { Semaphore } from '../functions/base/semaphore.ts';
import { SUPERSEDED } from '../functions/ledger/terminal-states.ts';
import { EVENT_NAMES, EVENT_SOURCE, notifyRuleName, TEST_EVENT } from '../functions/publish/completion-event.ts';
import { type NotifyTarget, PIPELINE_HEADER } from '../infra/notify.ts';
import { uploadName } from '../operations/upload-name.ts';
import { LOCAL_ACCOUNT, REGION } from './aws/endpoint.ts';
import type { DeliveredEvent, EventRule } from './aws/event-bridge.ts';
import { Queue } from './aws/sqs.ts';

/** Time for an answer, in milliseconds: that of an API destination. */
const ANSWER_MS_MAX = 5_000;

/** Posts at a time to one address. */
const POSTS_MAX = 10;

/** An event that a target was told of, or should have been. */
export interface Told {
  /** Of the target, 1 for the first. */
  readonly number: number;
  /** The host of its address, or its queue. The path of an address may be a secret. */
  readonly where: string;
  readonly event: DeliveredEvent;
  /** `queue`: this machine does not reach the queue, so nothing was sent. */
  readonly outcome: { readonly status: number } | { readonly error: string } | 'queue';
}

interface NotifierOptions {
  readonly pipeline: string;
  readonly onTold: (told: Told) => void;
}

/**
 * Tells the targets of `deployment.notify`, in place of EventBridge: by the rules of the bus, each with a dead-letter
 * queue. Unlike EventBridge, it posts each event once, and knows no secret.
 */
export class Notifier {
  readonly rules: readonly EventRule[];
  readonly deadLetters: readonly Queue[];
  readonly #pending = new Set<Promise<void>>();
  readonly #closing = new AbortController();

  constructor(targets: readonly NotifyTarget[], options: NotifierOptions) {
    this.deadLetters = targets.map((_, index) => new Queue({ name: `notify-${index + 1}-dead`, clock: systemClock }));
    this.rules = targets.map((target, index) => this.#ruleOf(target, index, options));
  }

  /** Resolves when nothing is being posted. */
  async idle(): Promise<void> {
    while (this.#pending.size > 0) await Promise.allSettled(this.#pending);
  }

  /** Ends the posts that are under way. */
  async close(): Promise<void> {
    this.#closing.abort();
    await this.idle();
  }

  #ruleOf(target: NotifyTarget, index: number, { pipeline, onTold }: NotifierOptions): EventRule {
    const { url, queueArn, events = EVENT_NAMES } = target;
    const deadLetters = this.deadLetters[index] as Queue;
    const names: readonly string[] = [...events, TEST_EVENT];
    const number = index + 1;
    const arnOf = (service: string, resource: string) => `arn:aws:${service}:${REGION}:${LOCAL_ACCOUNT}:${resource}`;
    const posts = new Semaphore(POSTS_MAX);
    const post = async (event: DeliveredEvent, address: string): Promise<void> => {
      const where = new URL(address).host;
      const outcome = await posts.through(() =>
        posted(event, address, { pipeline, target, signal: this.#closing.signal }),
      );
      if (this.#closing.signal.aborted) return;
      const why = whyNot(outcome);
      if (why !== undefined) {
        deadLetters.send(inAscii(event), {
          messageAttributes: { ERROR_CODE: 'SDK_CLIENT_ERROR', ERROR_MESSAGE: why },
        });
      }
      onTold({ number, where, event, outcome });
    };
    return {
      name: notifyRuleName(pipeline, number),
      targetArn: queueArn ?? arnOf('events', `api-destination/notify-${number}`),
      deadLettersArn: arnOf('sqs', deadLetters.name),
      matches: ({ source, detail, ...event }) =>
        source === EVENT_SOURCE &&
        detail.pipeline === pipeline &&
        names.includes(event['detail-type']) &&
        (detail.failure as { readonly code?: string } | undefined)?.code !== SUPERSEDED,
      deliver: (event) => {
        if (url === undefined) {
          onTold({ number, where: `the queue ${queueArn?.split(':').at(-1)}`, event, outcome: 'queue' });
          return;
        }
        const done = post(event, url).finally(() => this.#pending.delete(done));
        this.#pending.add(done);
      },
    };
  }
}

/** Why a target did not take an event. Undefined if it did. */
function whyNot(outcome: Told['outcome']): string | undefined {
  if (outcome === 'queue') return undefined;
  if ('error' in outcome) return outcome.error;
  return outcome.status >= 200 && outcome.status < 300 ? undefined : `it answered ${outcome.status}`;
}

/** JSON without the characters that SQS refuses. */
const inAscii = (event: DeliveredEvent): string =>
  JSON.stringify(event).replaceAll(
    /[\u007f-\uffff]/g,
    (letter) => `\\u${letter.charCodeAt(0).toString(16).padStart(4, '0')}`,
  );

/** A line for the screen. */
export function toldLine({ where, event, outcome }: Told): string {
  const { upload, route } = event.detail as { readonly upload?: { readonly key?: string }; readonly route?: string };
  const name = upload?.key === undefined ? route : uploadName(upload.key);
  const what = `${name ?? 'notify'}  ${event['detail-type']}`;
  if (outcome === 'queue') return `${what}: would go to ${where}, which a local run does not reach`;
  const why = whyNot(outcome);
  return why === undefined ? `${what}: told ${where}` : `! ${what}: ${where} was not told: ${why}`;
}

interface Post {
  readonly pipeline: string;
  readonly target: NotifyTarget;
  readonly signal: AbortSignal;
}

async function posted(
  event: DeliveredEvent,
  url: string,
  { pipeline, target, signal }: Post,
): Promise<{ readonly status: number } | { readonly error: string }> {
  try {
    const response = await fetch(url, {
      method: 'POST',
      headers: {
        'content-type': 'application/json; charset=utf-8',
        ...(target.headerSecret === undefined && { [PIPELINE_HEADER]: pipeline }),
      },
      body: JSON.stringify(event),
      redirect: 'manual',
      signal: AbortSignal.any([signal, AbortSignal.timeout(ANSWER_MS_MAX)]),
    });
    await response.body?.cancel();
    return { status: response.status };
  } catch (error) {
    const { message, cause } = error as Error;
    return { error: cause instanceof Error && cause.message !== '' ? cause.message : message };
  }
}
