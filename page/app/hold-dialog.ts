import { html, nothing, type TemplateResult } from 'lit';
import { costsText, type ExpectedCosts, laterText, sumOfCosts, timesCosts } from '../../operations/cost-texts.ts';
import type { About, HoldRequest, Status } from '../api.ts';
import { Dialog } from './dialogs.ts';
import { changeHold, getStatus, messageOf } from './server.ts';
import { plural } from './words.ts';

type Action = HoldRequest['action'];

const WORDS = {
  pause: { heading: 'Pause', done: 'New flows are paused' },
  resume: { heading: 'Resume', done: 'New flows begin again' },
} as const;

/** Explains what a pause or its end does and costs. If the user agrees, makes it and tells `holds`. */
export class HoldDialog extends Dialog {
  static override readonly properties = {
    about: { attribute: false },
    action: { state: true },
    route: { state: true },
    status: { state: true },
    problem: { state: true },
    isBusy: { state: true },
  };
  declare about: About | undefined;
  declare action: Action;
  /** Undefined for the pipeline. */
  declare route: string | undefined;
  /** As it was when the dialog was opened. */
  declare status: Status | undefined;
  declare problem: string | undefined;
  declare isBusy: boolean;
  #opened = 0;

  constructor() {
    super();
    this.action = 'pause';
  }

  async open({ action, route }: HoldRequest): Promise<void> {
    this.#opened += 1;
    const opened = this.#opened;
    this.action = action;
    this.route = route;
    this.status = undefined;
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
    this.querySelector<HTMLElement>('#confirm-hold')?.focus();
  }

  protected override heading(): string {
    return WORDS[this.action].heading;
  }

  protected override content(): TemplateResult {
    const { status, problem, isBusy } = this;
    return html`
      ${problem === undefined ? nothing : html`<p class="note problem" role="alert">${problem}</p>`}
      ${
        status !== undefined
          ? this.#meaning(status)
          : problem === undefined
            ? html`<p class="muted" role="status">Counting…</p>`
            : nothing
      }
      <footer class="buttons">
        <button type="button" class="quiet" @click=${() => this.close()}>${isBusy ? 'Close' : 'Do nothing'}</button>
        ${
          status === undefined
            ? nothing
            : html`<button type="button" id="confirm-hold" class="primary" ?disabled=${isBusy} @click=${this.#make}>
                ${this.#confirmation(status)}
              </button>`
        }
      </footer>
    `;
  }

  #meaning(status: Status): TemplateResult {
    const { action, route, about } = this;
    if (action === 'resume') {
      const count = countHeld(status, route);
      const costs = this.#costs(status);
      if (count === 0) return html`<p class="plan">No file waits. New files become flows again.</p>`;
      return html`<p class="plan">
        <strong>${plural(count, 'file goes on', 'files go on')}.</strong>
        Up to ${costsText(costs)} may be paid for. ${laterText(costs) ?? nothing}
      </p>`;
    }
    const { running } = status;
    const routes = about?.routes ?? [];
    return html`
      <p class="plan">
        <strong>No new flow begins until you resume.</strong> Files can still be sent, and wait.
        ${
          running.count === 0
            ? nothing
            : `${plural(running.count, 'flow')} that ${running.count === 1 ? 'runs goes' : 'run go'} on, and`
        }
        results are collected as before.
      </p>
      ${
        routes.length < 2
          ? nothing
          : html`<label class="field">
              For
              <select name="route">
                <option value="">the pipeline</option>
                ${routes.map(({ name }) => html`<option value=${name}>the route ${name}</option>`)}
              </select>
            </label>`
      }
      <label class="field">Why (everybody sees it) <input name="why" maxlength="200" autocomplete="off" /></label>
    `;
  }

  #confirmation(status: Status): string {
    const { action, route } = this;
    if (action === 'pause') return 'Pause';
    const count = countHeld(status, route);
    return count === 0 ? 'Resume' : `Resume: pay for up to ${costsText(this.#costs(status))}`;
  }

  /** What the files that wait may cost. */
  #costs(status: Status): ExpectedCosts {
    const { routes = [] } = this.about ?? {};
    const all = heldBy(status, this.route).map(({ route, count }) => {
      const one = routes.find(({ name }) => name === route)?.costs ?? { flows: 1, later: 0, unpriced: 1, amounts: {} };
      return timesCosts(one, count);
    });
    return sumOfCosts(all);
  }

  #field(name: string): string | undefined {
    const value = this.querySelector<HTMLInputElement | HTMLSelectElement>(`[name=${name}]`)?.value.trim();
    return value === '' ? undefined : value;
  }

  #make = async (): Promise<void> => {
    if (this.isBusy) return;
    const { action } = this;
    const opened = this.#opened;
    const isOpen = () => opened === this.#opened;
    const isPause = action === 'pause';
    const route = isPause ? this.#field('route') : this.route;
    this.isBusy = true;
    this.problem = undefined;
    try {
      const {
        result: _,
        sending,
        ...holds
      } = await changeHold({
        action,
        route,
        why: isPause ? this.#field('why') : undefined,
      });
      this.tell('holds', holds);
      const still = sending === undefined || sending.count === 0 ? '' : `. ${sentWords(sending.count)}`;
      this.tell('say', `${WORDS[action].done}${still}`);
      if (isOpen()) this.close();
    } catch (error) {
      if (isOpen()) this.problem = messageOf(error);
      else this.tell('say', `${WORDS[action].heading} failed. ${messageOf(error)}`);
    }
    if (isOpen()) this.isBusy = false;
  };

  protected override onClose(): void {
    this.#opened += 1;
  }
}

const sentWords = (count: number): string =>
  `${plural(count, 'file is', 'files are')} being sent, and may still become ${count === 1 ? 'a flow' : 'flows'}`;

/** The number of files that a resume of the pipeline or of a route lets go on. */
export const countHeld = (status: Status, route: string | undefined): number =>
  heldBy(status, route).reduce((sum, { count }) => sum + count, 0);

const heldBy = ({ waiting }: Status, route: string | undefined): Status['waiting']['held'] =>
  waiting.held.filter((each) =>
    route === undefined ? each.reason === 'paused' : each.reason !== 'budget' && each.route === route,
  );

customElements.define('hold-dialog', HoldDialog);
