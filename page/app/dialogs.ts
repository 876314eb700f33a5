import { html, nothing, type TemplateResult } from 'lit';
import type { Json } from '../../functions/base/json.ts';
import { printable } from '../../functions/base/printable.ts';
import { costsText, type ExpectedCosts, laterText } from '../../operations/cost-texts.ts';
import type { ActAnswer, DoctorAnswer, PlannedAction, PlanRequest, UploadDetail } from '../api.ts';
import { ICONS, STATE_ICONS } from './icons.ts';
import { LightElement } from './light-element.ts';
import { enteredValue, type Field, fieldsOf, undescribed } from './parameter-fields.ts';
import { act, examine, getTemplates, messageOf, plan } from './server.ts';
import { plural } from './words.ts';

/** Skipped uploads and failed actions that are listed. The others are counted. */
const LISTED_MAX = 20;

/** A modal window. The browser keeps the keyboard inside, and closes it with Escape. */
export abstract class Dialog extends LightElement {
  protected override render(): TemplateResult {
    // An id is unique on the page, and there are several dialogs.
    const title = `${this.localName}-title`;
    return html`<dialog aria-labelledby=${title} @close=${() => this.onClose()}>
      <div class="dialog">
        <header>
          <h2 id=${title}>${this.heading()}</h2>
          <button type="button" class="icon-button" @click=${() => this.close()}>
            ${ICONS.close}<span class="visually-hidden">Close</span>
          </button>
        </header>
        ${this.content()}
      </div>
    </dialog>`;
  }

  protected abstract heading(): string;
  protected abstract content(): TemplateResult;
  protected onClose(): void {}

  protected async show(): Promise<void> {
    await this.updateComplete;
    const dialog = this.querySelector('dialog');
    if (dialog?.open === false) dialog.showModal();
  }

  close(): void {
    this.querySelector('dialog')?.close();
  }
}

const VERBS = {
  retry: { heading: 'Retry', done: 'retried', will: 'will be retried' },
  cancel: { heading: 'Cancel', done: 'cancelled', will: 'will be cancelled' },
  approve: { heading: 'Approve', done: 'approved', will: 'will be approved and sent' },
  again: { heading: 'Make anew', done: 'begun anew', will: 'will be made anew' },
  begin: { heading: 'Begin', done: 'begun', will: 'will begin' },
  collect: { heading: 'Collect again', done: 'collected again', will: 'will be collected again' },
} as const;

/** Shows what an action would do and what it costs, and does it when the user agrees. */
export class ActionDialog extends Dialog {
  static override readonly properties = {
    request: { state: true },
    planned: { state: true },
    answer: { state: true },
    problem: { state: true },
    isBusy: { state: true },
    fields: { state: true },
  };
  declare request: PlanRequest | undefined;
  declare planned: PlannedAction | undefined;
  declare answer: ActAnswer | undefined;
  declare problem: string | undefined;
  declare isBusy: boolean;
  /** The parameters of the template. Undefined if no others can be given. Empty if the service does not tell them. */
  declare fields: readonly Field[] | undefined;
  #detail: UploadDetail | undefined;

  /** @param detail the upload that it is about, if it is one. */
  async open(request: PlanRequest, detail?: UploadDetail): Promise<void> {
    this.request = request;
    this.#detail = request.action === 'again' && detail?.takesOthers === true ? detail : undefined;
    this.fields = undefined;
    this.planned = undefined;
    this.answer = undefined;
    this.problem = undefined;
    this.isBusy = true;
    await this.show();
    try {
      const [planned, fields] = await Promise.all([plan(request), this.#offeredFields()]);
      if (this.request === request) Object.assign(this, { planned, fields });
    } catch (error) {
      if (this.request === request) this.problem = messageOf(error);
    }
    if (this.request !== request) return;
    this.isBusy = false;
    await this.updateComplete;
    this.querySelector<HTMLElement>('#confirm')?.focus();
  }

  async #offeredFields(): Promise<readonly Field[] | undefined> {
    if (this.#detail === undefined) return undefined;
    const { template, parameters } = this.#detail.upload;
    const offered = await getTemplates().catch(() => []);
    const own = offered.find(({ id, name }) => name === template || id === template);
    return fieldsOf(own?.parameters, parameters as Json | undefined);
  }

  protected override heading(): string {
    const { from, chain } = this.request ?? {};
    const { heading } = this.#verb;
    if (from === undefined) return chain === undefined ? heading : `${heading} in the chain`;
    if (this.planned === undefined) return `The stage ${printable(from)}`;
    return this.planned.isAdded ? `Begin ${printable(from)}` : `Make ${printable(from)} anew`;
  }

  /** The words for what is done. A stage that is in no chain yet begins. */
  get #verb(): (typeof VERBS)[keyof typeof VERBS] {
    return this.planned?.isAdded ? VERBS.begin : VERBS[this.request?.action ?? 'retry'];
  }

  protected override content(): TemplateResult {
    const { planned, answer, problem, isBusy } = this;
    return html`
      ${problem === undefined ? nothing : html`<p class="note problem" role="alert">${problem}</p>`}
      ${isBusy && planned === undefined ? html`<p class="muted" role="status">Counting…</p>` : nothing}
      ${answer !== undefined ? this.#outcome(answer) : planned === undefined ? nothing : this.#plan(planned)}
      <footer class="buttons">
        <button type="button" class="quiet" @click=${() => this.close()}>${answer === undefined && !isBusy ? 'Do nothing' : 'Close'}</button>
        ${
          planned !== undefined && planned.uploads > 0 && answer === undefined
            ? html`<button type="button" id="confirm" class="primary" ?disabled=${isBusy} @click=${this.#act}>
                ${isBusy ? 'Working…' : this.#confirmation(planned)}
              </button>`
            : nothing
        }
      </footer>
    `;
  }

  #confirmation({ uploads, costs }: PlannedAction): string {
    const { heading } = this.#verb;
    return costs.flows > 0 ? `${heading}: pay for ${costsText(costs)}` : `${heading}: ${plural(uploads, 'upload')}`;
  }

  #plan({ uploads, costs, inDoubt, skipped, held }: PlannedAction): TemplateResult {
    return html`
      <p class="plan">
        <strong>${plural(uploads, 'upload')} ${this.#verb.will}.</strong>
        ${this.#verb === VERBS.again && uploads > 0 ? 'The old results stay.' : nothing}
        ${costs.flows === 0 ? 'No flow is paid for.' : paidFor(costs)}
        ${
          inDoubt === 0
            ? nothing
            : html`<strong>${plural(inDoubt, 'upload')} may have a flow already, and may be paid for twice.</strong>`
        }
      </p>
      ${held.map(
        ({ hold, count, ending }) =>
          html`<p class="note">${hold.message} ${plural(count, 'flow waits', 'flows wait')} until that ends. ${ending}</p>`,
      )}
      ${
        skipped.length === 0
          ? nothing
          : html`<p>${plural(skipped.length, 'upload is', 'uploads are')} left out:</p>
              ${listed(skipped.map(({ name, reason }) => ({ name, text: reason })))}`
      }
      ${uploads === 0 ? nothing : this.#form()}
    `;
  }

  /** The parameters with which it is made anew. */
  #form(): TemplateResult | typeof nothing {
    const { fields } = this;
    if (fields === undefined) return nothing;
    return html`<form @submit=${this.#submit}>
      ${
        fields.length > 0
          ? html`<div class="fields">${fields.map(fieldView)}</div>`
          : html`<label class="field">
              <span>Parameters, as JSON</span>
              <textarea name="json" rows="6" spellcheck="false">${JSON.stringify(this.#detail?.upload.parameters ?? {}, undefined, 2)}</textarea>
              <span class="muted">The parameters of the template are not known here.</span>
            </label>`
      }
    </form>`;
  }

  /** The plan that is carried out: with the parameters of the form, if somebody has changed them. */
  async #agreed(request: PlanRequest, planned: PlannedAction): Promise<PlannedAction> {
    const { fields } = this;
    const form = this.querySelector('form');
    if (fields === undefined || form === null) return planned;
    const present = this.#detail?.upload.parameters as Json | undefined;
    const entered = new FormData(form);
    const parameters =
      fields.length === 0 ? (JSON.parse(String(entered.get('json'))) as Json) : parametersOf(entered, fields, present);
    if (JSON.stringify(parameters) === JSON.stringify(present ?? {})) return planned;
    return plan({ ...request, parameters });
  }

  #outcome({ results }: ActAnswer): TemplateResult {
    const { done } = this.#verb;
    const failed = results.filter(({ isDone }) => !isDone);
    return html`
      <p role="status">
        <strong>${plural(results.length - failed.length, 'upload')} ${done}.</strong>
        ${failed.length === 0 ? nothing : `${plural(failed.length, 'upload')} not confirmed as ${done}:`}
      </p>
      ${listed(failed.map(({ name, message }) => ({ name, text: message ?? '' })))}
    `;
  }

  /** The Enter key in a field does what the button does. */
  #submit = (event: Event): void => {
    event.preventDefault();
    void this.#act();
  };

  #act = async (): Promise<void> => {
    const { request, planned } = this;
    if (request === undefined || planned === undefined || this.isBusy) return;
    this.isBusy = true;
    const verb = this.#verb;
    try {
      const answer = await act((await this.#agreed(request, planned)).plan);
      const done = answer.results.filter(({ isDone }) => isDone).length;
      const words = `${done} of ${plural(answer.results.length, 'upload')} ${verb.done}`;
      if (this.request !== request) {
        this.tell('say', words);
        return;
      }
      this.answer = answer;
      if (done === answer.results.length) {
        this.tell('say', `${plural(done, 'upload')} ${verb.done}`);
        this.close();
      }
    } catch (error) {
      if (this.request !== request) {
        this.tell('say', messageOf(error));
        return;
      }
      this.problem = error instanceof SyntaxError ? `This is not JSON: ${error.message}` : messageOf(error);
      // A plan is used once.
      if (!(error instanceof SyntaxError)) this.planned = undefined;
    }
    this.isBusy = false;
  };

  protected override onClose(): void {
    this.request = undefined;
  }
}

/** What is paid for, and what that leaves open. */
const paidFor = (costs: ExpectedCosts): TemplateResult =>
  html`<strong>${costsText(costs)}</strong> ${costs.flows === 1 ? 'is' : 'are'} paid for. ${laterText(costs) ?? nothing}`;

function listed(lines: readonly { readonly name: string; readonly text: string }[]): TemplateResult | typeof nothing {
  if (lines.length === 0) return nothing;
  return html`<ul class="listed">
    ${lines.slice(0, LISTED_MAX).map(({ name, text }) => html`<li><bdi class="name">${printable(name)}</bdi> <span class="muted">${text}</span></li>`)}
    ${lines.length > LISTED_MAX ? html`<li class="muted">And ${plural(lines.length - LISTED_MAX, 'more', 'more')}</li>` : nothing}
  </ul>`;
}

/**
 * Fields that are left empty are left to the template. What nobody touched stays as it was sent, and so do parameters
 * that the service does not describe.
 */
function parametersOf(form: FormData, fields: readonly Field[], present: Json | undefined): Json {
  const entries = fields.flatMap((field) => {
    const value = enteredValue(field, String(form.get(field.name) ?? ''));
    return value === undefined ? [] : [[field.name, value] as const];
  });
  return { ...undescribed(fields, present), ...Object.fromEntries(entries) };
}

function fieldView({ name, kind, options, minimum, maximum, value, description }: Field): TemplateResult {
  return html`<label class="field">
    <span>${name}</span>
    ${
      options !== undefined
        ? html`<select name=${name}>
            <option value="" ?selected=${value === ''}>As the template has it</option>
            ${options.map((each) => html`<option value=${each} ?selected=${each === value}>${each}</option>`)}
          </select>`
        : html`<input
            name=${name}
            type=${kind === 'number' || kind === 'integer' ? 'number' : 'text'}
            step=${kind === 'integer' ? '1' : 'any'}
            min=${minimum ?? nothing}
            max=${maximum ?? nothing}
            placeholder="As the template has it"
            .value=${value}
          />`
    }
    ${description === undefined ? nothing : html`<span class="muted">${description}</span>`}
  </label>`;
}

const RESULT_SHAPES = {
  good: 'succeeded',
  fault: 'failed',
  warning: 'undecided',
  note: 'claimed',
  'not checked': 'waiting',
} as const;
const RESULT_WORDS = {
  good: 'Good',
  fault: 'Fault',
  warning: 'Warning',
  note: 'Note',
  'not checked': 'Not checked',
} as const;

/** What the doctor finds, the worst first. */
export class DoctorDialog extends Dialog {
  static override readonly properties = { answer: { state: true }, problem: { state: true } };
  declare answer: DoctorAnswer | undefined;
  declare problem: string | undefined;

  async open(): Promise<void> {
    this.answer = undefined;
    this.problem = undefined;
    await this.show();
    try {
      this.answer = await examine();
    } catch (error) {
      this.problem = messageOf(error);
    }
  }

  protected override heading(): string {
    return 'Check of the pipeline';
  }

  protected override content(): TemplateResult {
    const { answer, problem } = this;
    if (problem !== undefined) return html`<p class="note problem" role="alert">${problem}</p>`;
    if (answer === undefined)
      return html`<p class="muted" role="status">Looking at every part. This takes some seconds.</p>`;
    const order = Object.keys(RESULT_WORDS).filter((each) => each !== 'good');
    const findings = answer.checks
      .filter(({ result }) => result !== 'good')
      .toSorted((a, b) => order.indexOf(a.result) - order.indexOf(b.result));
    const good = answer.checks.filter(({ result }) => result === 'good');
    return html`
      <p role="status">
        <strong>${findings.length === 0 ? 'All is well.' : `${plural(findings.length, 'finding')}.`}</strong>
        ${plural(good.length, 'check')} passed.
      </p>
      <ul class="findings" role="list">
        ${findings.map(
          ({ check, result, what, todo }) => html`<li>
            <p class="words-title">
              <span class="state-icon" data-state=${RESULT_SHAPES[result]}>${STATE_ICONS[RESULT_SHAPES[result]]}</span>
              ${RESULT_WORDS[result]}: ${check}
            </p>
            ${what === undefined ? nothing : html`<p>${what}</p>`}
            ${todo === undefined ? nothing : html`<p class="muted">${todo}</p>`}
          </li>`,
        )}
      </ul>
      ${
        good.length === 0
          ? nothing
          : html`<details>
              <summary>What passed</summary>
              <ul class="listed">
                ${good.map(({ check }) => html`<li>${check}</li>`)}
              </ul>
            </details>`
      }
    `;
  }
}

customElements.define('action-dialog', ActionDialog);
customElements.define('doctor-dialog', DoctorDialog);
