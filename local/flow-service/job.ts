import { once } from './blob.ts';
import { contactSheet } from './contact-sheet.ts';
import { type Input, type Made, TEMPLATES, type Work } from './templates.ts';

export type JobState = 'queued' | 'running' | 'done' | 'failed' | 'cancelled';

/** The share of its duration for which a job is queued. */
const QUEUED_PART = 0.2;

/** One job of a service that takes one input: its state follows from the time since it was made. */
export class Job {
  readonly id: string;
  /** The model, the endpoint, the process: what the caller named. */
  readonly template: string;
  readonly input: Input;
  readonly createdAt: number;
  /** True if a client had it deleted. Then the service does not know it any more. */
  isDeleted = false;
  readonly #durationMs: number;
  readonly #work: Work;
  #cancelledAt: number | undefined;

  constructor(
    parts: Pick<Job, 'id' | 'template' | 'input' | 'createdAt'>,
    { durationMs, isToFail }: { readonly durationMs: number; readonly isToFail: boolean },
  ) {
    this.id = parts.id;
    this.template = parts.template;
    this.input = parts.input;
    this.createdAt = parts.createdAt;
    this.#durationMs = durationMs;
    this.#work = isToFail ? FAILED : workOf(parts.input);
  }

  state(now: number): JobState {
    if (this.#cancelledAt !== undefined) return 'cancelled';
    const age = now - this.createdAt;
    if (age < this.#durationMs) return age < this.#durationMs * QUEUED_PART ? 'queued' : 'running';
    return this.#work.error === undefined ? 'done' : 'failed';
  }

  /** Why it failed. */
  get error(): string {
    return this.#work.error ?? '';
  }

  /** A percentage. */
  progress(now: number): number {
    if (this.#durationMs === 0) return 100;
    return Math.floor(Math.min(1, (now - this.createdAt) / this.#durationMs) * 100);
  }

  cancel(now: number): void {
    this.#cancelledAt ??= now;
  }

  /** The files that it made: the result, and a picture of it. */
  get files(): { readonly result: Made; readonly preview: Made } {
    const [result] = this.#work.outputs;
    if (result === undefined) throw new Error(`Job ${this.id} has no result.`);
    const sheet = contactSheet([[...Buffer.from(this.input.blob.sha256, 'hex').subarray(0, 3)]]);
    const content = { bytes: sheet.length, open: () => once(sheet) };
    return { result, preview: { mediaType: 'image/png', content, additional: undefined } };
  }
}

const FAILED: Work = { outputs: [], error: 'The job was asked to fail.', partial: 0 };

/** A picture and a text become models, as at the stand-in flow service. Any other file comes back as it was. */
function workOf(input: Input): Work {
  const kind = input.mediaType.startsWith('image/')
    ? 'model_generate_fromimage'
    : input.mediaType === 'text/plain'
      ? 'model_generate_fromprompt'
      : 'bytes_echo';
  const template = TEMPLATES.find(({ name }) => name === kind);
  if (template === undefined) throw new Error(`There is no template ${kind}.`);
  return template.work([input], {});
}
