import { html, nothing, type TemplateResult } from 'lit';
import type { About, IntakeAnswer, Status } from '../api.ts';
import { Dialog } from './dialogs.ts';
import { changeIntake, getStatus, messageOf } from './server.ts';
import { count, plural } from './words.ts';

type Change = 'pause' | 'resume';

const WORDS = {
  pause: { heading: 'Pause', busy: 'Pausing…', done: 'New flows are paused' },
  resume: { heading: 'Resume', busy: 'Resuming…', done: 'New flows begin again' },
} as const;

/** Explains what a pause or resume does and costs. If the user agrees, makes it and tells `intake` with the result. */
export class IntakeDialog extends Dialog {
  static override readonly properties = {
    about: { attribute: false },
    change: { state: true },
    status: { state: true },
    answer: { state: true },
    problem: { state: true },
    isBusy: { state: true },
  };
  declare about: About | undefined;
  declare change: Change;
  /** As it was when the dialog was opened. */
  declare status: Status | undefined;
  declare answer: IntakeAnswer | undefined;
  declare problem: string | undefined;
  declare isBusy: boolean;
  #opened = 0;

  constructor() {
    super();
    this.change = 'pause';
  }

  async open(change: Change): Promise<void> {
    this.#opened += 1;
    const opened = this.#opened;
    this.change = change;
    this.status = undefined;
    this.answer = undefined;
    this.problem = undefined;
    this.isBusy = false;
    await this.show();
    try {
      // The header's number of uploads may be some seconds old.
      const status = await getStatus();
      if (opened === this.#opened) this.status = status;
    } catch (error) {
      if (opened === this.#opened) this.problem = messageOf(error);
    }
    if (opened !== this.#opened) return;
    await this.updateComplete;
    this.querySelector<HTMLElement>('#confirm-intake')?.focus();
  }

  protected override heading(): string {
    return WORDS[this.change].heading;
  }

  protected override content(): TemplateResult {
    const { status, answer, problem, isBusy, change } = this;
    return html`
      ${problem === undefined ? nothing : html`<p class="note problem" role="alert">${problem}</p>`}
      ${
        answer !== undefined
          ? dropped(answer, this.about)
          : status !== undefined
            ? this.#meaning(status)
            : problem === undefined
              ? html`<p class="muted" role="status">Counting…</p>`
              : nothing
      }
      ${isBusy ? html`<p class="muted" role="status">This takes a minute as a rule. It goes on if you close this window.</p>` : nothing}
      <footer class="buttons">
        <button type="button" class="quiet" @click=${() => this.close()}>
          ${answer !== undefined || isBusy ? 'Close' : 'Do nothing'}
        </button>
        ${
          status === undefined || answer !== undefined
            ? nothing
            : html`<button type="button" id="confirm-intake" class="primary" ?disabled=${isBusy} @click=${this.#make}>
                ${isBusy ? WORDS[change].busy : confirmation(change, status)}
              </button>`
        }
      </footer>
    `;
  }

  #meaning({ queue, running }: Status): TemplateResult {
    const { about } = this;
    if (this.change === 'pause') {
      return html`<p class="plan">
        <strong>No new flow begins until you resume.</strong> Files can still be sent. They wait in the queue,
        ${about?.queueDays} days at most. ${
          running.count === 0
            ? nothing
            : `${plural(running.count, 'flow')} that
        ${running.count === 1 ? 'runs goes' : 'run go'} on, and`
        } results are collected as before.
      </p>`;
    }
    if (queue.visible === 0)
      return html`<p class="plan">No upload waits in the queue. New files become flows again.</p>`;
    return html`<p class="plan">
      <strong>${plural(queue.visible, 'upload waits', 'uploads wait')} in the queue.</strong>
      ${queue.visible === 1 ? 'It may become a flow, which is paid for.' : 'Each may become a flow, which is paid for.'}
    </p>`;
  }

  #make = async (): Promise<void> => {
    if (this.isBusy) return;
    const { change } = this;
    const opened = this.#opened;
    const isOpen = () => opened === this.#opened;
    this.isBusy = true;
    this.problem = undefined;
    try {
      const answer = await changeIntake(change);
      this.tell('intake', answer.intake);
      this.tell('say', WORDS[change].done);
      if (!isOpen()) return;
      if (answer.dropped === undefined) this.close();
      else this.answer = answer;
    } catch (error) {
      if (isOpen()) this.problem = messageOf(error);
      else this.tell('say', `${WORDS[change].heading} failed. ${messageOf(error)}`);
    }
    if (isOpen()) this.isBusy = false;
  };

  protected override onClose(): void {
    this.#opened += 1;
  }
}

function confirmation(change: Change, { queue }: Status): string {
  if (change === 'pause') return 'Pause';
  return queue.visible === 0 ? 'Resume' : `Resume: pay for up to ${plural(queue.visible, 'flow')}`;
}

/** The words at the end of a pause that was longer than the queue keeps files. */
function dropped({ dropped: since }: IntakeAnswer, about: About | undefined): TemplateResult {
  return html`<p role="status">
    <strong>New flows begin again.</strong> The queue drops files after ${count(about?.queueDays ?? 0)} days.
    Submit them: <code>flowdrop sweep --since ${since}</code>
  </p>`;
}

customElements.define('intake-dialog', IntakeDialog);
