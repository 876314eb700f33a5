import type { Deployment } from '../../operations/deployment.ts';
import { droppedSince, intakeOf, pause, resume } from '../../operations/intake.ts';
import type { IntakeAnswer } from '../api.ts';
import { notPossible } from './answers.ts';

type Change = 'pause' | 'resume';

const UNDER_WAY: Readonly<Record<Change, string>> = { pause: 'being paused', resume: 'being resumed' };

/** Pauses and resumes new flows. One change is under way at a time, because two opposite ones would undo each other. */
export class IntakeChanges {
  readonly #deployment: Deployment;
  readonly #closing: AbortSignal;
  #underWay: { readonly change: Change; readonly done: Promise<IntakeAnswer> } | undefined;

  /** @param closing aborts when the server closes. A change goes on if the visitor leaves. */
  constructor(deployment: Deployment, closing: AbortSignal) {
    this.#deployment = deployment;
    this.#closing = closing;
  }

  /**
   * `POST /api/pause` and `POST /api/resume`. Equal requests share one change.
   * @throws {PageError} the opposite change is under way. @throws {IntakeUnknownError} @throws {IntakeOvertakenError}
   */
  make(change: Change): Promise<IntakeAnswer> {
    this.#underWay ??= {
      change,
      done: this.#carryOut(change).finally(() => {
        this.#underWay = undefined;
      }),
    };
    if (this.#underWay.change === change) return this.#underWay.done;
    const now = UNDER_WAY[this.#underWay.change];
    throw notPossible(`The pipeline is ${now}, which usually takes up to a minute. Try again then.`);
  }

  async #carryOut(change: Change): Promise<IntakeAnswer> {
    const deployment = this.#deployment;
    if (change === 'pause') return { intake: await pause(deployment, this.#closing) };
    const before = await intakeOf(deployment, this.#closing);
    const dropped = before && droppedSince(before, deployment.clock.now());
    return { intake: await resume(deployment, this.#closing), dropped };
  }
}
