import { html, nothing, type TemplateResult } from 'lit';
import { costsText, laterText, sumOfCosts } from '../../operations/cost-texts.ts';
import type { About, AboutRoute, RoutedFile } from '../api.ts';
import { type Choice, chosenFiles, droppedFiles } from './chosen-files.ts';
import { ICONS } from './icons.ts';
import { LightElement } from './light-element.ts';
import { isJob, type Outbox, type OutboxItem, type Phase } from './outbox.ts';
import { count, plural, size, splitKey } from './words.ts';

/** Files of the list that are drawn. The others are counted. */
const SHOWN_MAX = 100;

/** Files are drawn in this order, so that what needs the user is on top. What was sent is in the list of uploads. */
const ORDER: readonly Phase[] = ['failed', 'refused', 'stopped', 'sending', 'queued', 'checking', 'ready'];

const NEEDS_USER: readonly Phase[] = ['failed', 'refused', 'stopped'];

const PHASE_WORDS: Readonly<Record<Phase, string>> = {
  checking: 'Checking',
  ready: 'Ready',
  refused: 'Refused',
  queued: 'Next',
  sending: 'Sending',
  sent: 'Sent',
  stopped: 'Stopped',
  failed: 'Not sent',
};

/** Where files are dropped, and the list of what was dropped until it is sent. */
export class DropZone extends LightElement {
  static override readonly properties = {
    outbox: { attribute: false },
    about: { attribute: false },
    /** Counts the changes of the outbox, which is the same object all the time. */
    change: { attribute: false },
    isOver: { state: true },
    note: { state: true },
  };
  declare outbox: Outbox;
  declare about: About | undefined;
  declare change: number;
  declare isOver: boolean;
  declare note: string;
  /** Each element below the pointer says that the pointer enters and leaves. */
  #depth = 0;

  constructor() {
    super();
    this.isOver = false;
    this.note = '';
  }

  override connectedCallback(): void {
    super.connectedCallback();
    // A file that is dropped beside the zone would replace the page.
    window.addEventListener('dragenter', this.#enter);
    window.addEventListener('dragleave', this.#leave);
    window.addEventListener('dragover', allow);
    window.addEventListener('drop', this.#drop);
  }

  override disconnectedCallback(): void {
    super.disconnectedCallback();
    window.removeEventListener('dragenter', this.#enter);
    window.removeEventListener('dragleave', this.#leave);
    window.removeEventListener('dragover', allow);
    window.removeEventListener('drop', this.#drop);
  }

  protected override render(): TemplateResult {
    const { items } = this.outbox;
    return html`
      <section class="drop" data-over=${this.isOver || nothing} aria-labelledby="drop-title">
        <div class="drop-icon" aria-hidden="true">${ICONS.drop}</div>
        <div class="drop-text">
          <h2 id="drop-title">${this.isOver ? 'Let go to add them' : 'Drop files or folders'}</h2>
          <p class="muted">${this.#whatIsTaken()}</p>
        </div>
        <div class="drop-buttons">
          <label class="button">Choose files<input class="visually-hidden" type="file" multiple @change=${this.#choose} /></label>
          <label class="button quiet"
            >Choose a folder<input class="visually-hidden" type="file" webkitdirectory @change=${this.#choose}
          /></label>
        </div>
      </section>
      ${items.length === 0 && this.note === '' ? nothing : this.#tray(items)}
    `;
  }

  #whatIsTaken(): string {
    if (this.about === undefined) return '';
    const { routes, areRoutesKnown } = this.about;
    if (!areRoutesKnown) return 'The routes of this deployment are not known here before its first tick.';
    const ofFiles = routes.filter(({ after }) => after === undefined);
    const shown = ofFiles.slice(0, 4).map((each) => `${each.name}${conditionOf(each)}`);
    const more = ofFiles.length - shown.length;
    return `Routes: ${shown.join(', ')}${more > 0 ? `, and ${more} more` : ''}`;
  }

  #tray(items: readonly OutboxItem[]): TemplateResult {
    const of = (...phases: readonly Phase[]) => items.filter(({ phase }) => phases.includes(phase));
    const ready = of('ready');
    const costs = sumOfCosts(ready.flatMap(({ routed }) => routed?.costs ?? []));
    const underWay = of('sending', 'queued');
    const jobs = new Set(items.flatMap(({ routed }) => (routed !== undefined && isJob(routed) ? [routed.key] : [])));
    // A job is one row. An input has a row of its own if it needs the user.
    const isPartOfJob = ({ phase, routed }: OutboxItem) =>
      !NEEDS_USER.includes(phase) && routed?.inputOf?.some((key) => jobs.has(key)) === true;
    const sorted = of(...ORDER)
      .filter((item) => !isPartOfJob(item))
      .sort((a, b) => ORDER.indexOf(a.phase) - ORDER.indexOf(b.phase));
    return html`
      <section class="tray" aria-labelledby="tray-title">
        <header>
          <h2 id="tray-title">${titleOf(items)}</h2>
          <div class="buttons">
            ${
              underWay.length > 0
                ? html`<button type="button" class="quiet" @click=${() => this.outbox.stop()}>Stop</button>`
                : html`<button type="button" class="quiet" @click=${this.#clear}>
                    ${ready.length > 0 ? 'Discard' : 'Clear'}
                  </button>`
            }
            ${
              ready.length > 0
                ? html`<button type="button" class="primary" id="send" @click=${this.#send}>
                    Send ${plural(ready.length, 'file')}${costs.flows === 0 ? nothing : `: pay for ${costsText(costs)}`}
                  </button>`
                : nothing
            }
          </div>
        </header>
        ${underWay.length > 0 ? this.#total(of('sending', 'queued', 'sent')) : nothing}
        ${this.note === '' ? nothing : html`<p class="note">${this.note}</p>`}
        ${costs.later === 0 ? nothing : html`<p class="muted">${laterText(costs)}</p>`}
        ${
          sorted.length === 0
            ? nothing
            : html`<ul role="list">
                ${sorted.slice(0, SHOWN_MAX).map((item) => this.#item(item))}
              </ul>`
        }
        ${
          sorted.length > SHOWN_MAX
            ? html`<p class="muted more">And ${plural(sorted.length - SHOWN_MAX, 'more file', 'more files')}</p>`
            : nothing
        }
      </section>
    `;
  }

  #total(items: readonly OutboxItem[]): TemplateResult {
    const bytes = items.reduce((sum, { file }) => sum + file.size, 0);
    const sent = items.reduce((sum, { sentBytes }) => sum + sentBytes, 0);
    return html`<div class="total">
      <progress aria-label="All files" max=${Math.max(bytes, 1)} .value=${sent}></progress>
      <span class="muted figures-text">${size(sent)} of ${size(bytes)}</span>
    </div>`;
  }

  #item(item: OutboxItem): TemplateResult {
    const { problem, routed } = item;
    const inputs = this.outbox.inputsOf(item);
    const phase = item.phase === 'queued' && inputs.some((each) => each.phase === 'sending') ? 'sending' : item.phase;
    const all = [item, ...inputs];
    const bytes = all.reduce((sum, { file }) => sum + file.size, 0);
    const sentBytes = all.reduce((sum, each) => sum + each.sentBytes, 0);
    const { folder, name } = splitKey(routed !== undefined && isJob(routed) ? routed.key : item.key);
    return html`<li class="tray-item" data-phase=${phase}>
      <div class="tray-name">
        <span class="name"><span class="folder">${folder}</span><bdi>${name}</bdi></span>
        <span class="muted detail-line">
          ${
            problem !== undefined
              ? html`<span class="problem">${problem}</span>`
              : routed?.route !== undefined
                ? html`Route <strong>${routed.route}</strong>, template ${routed.template}${filesOfJob(routed, inputs)}`
                : routed?.inputOf !== undefined
                  ? html`Input of <strong>${routed.inputOf.join(', ')}</strong>`
                  : phase === 'ready'
                    ? 'The route is not known here'
                    : 'Looking for its route'
          }
        </span>
      </div>
      <span class="muted figures-text">
        ${phase === 'sending' ? `${size(sentBytes)} of ${size(bytes)}` : size(bytes)}
      </span>
      <span class="phase">
        ${
          phase === 'sending'
            ? html`<progress aria-label=${name} max=${Math.max(bytes, 1)} .value=${sentBytes}></progress>`
            : PHASE_WORDS[phase]
        }
      </span>
      <span class="tray-actions">
        ${
          phase === 'failed' || phase === 'stopped'
            ? html`<button type="button" class="quiet small" @click=${() => this.outbox.sendAgain(item)}>
                ${ICONS.retry} Try again<span class="visually-hidden"> to send ${name}</span>
              </button>`
            : nothing
        }
        ${
          phase === 'sending' || phase === 'queued'
            ? nothing
            : html`<button type="button" class="icon-button" @click=${() => this.outbox.remove(item)}>
                ${ICONS.close}<span class="visually-hidden">Remove ${name} from this list</span>
              </button>`
        }
      </span>
    </li>`;
  }

  async #add(choice: Choice | Promise<Choice>): Promise<void> {
    try {
      const { files, hidden } = await choice;
      const { leftOut, replaced } = await this.outbox.add(files);
      const notes = [
        files.length === 0 ? 'There is no file in it.' : '',
        hidden > 0 ? `${plural(hidden, 'hidden file was', 'hidden files were')} left out.` : '',
        leftOut > 0 ? `${plural(leftOut, 'file was', 'files were')} left out: send what is here first.` : '',
        replaced.length > 0 ? replacedNote(replaced) : '',
      ];
      this.note = notes.filter((each) => each !== '').join(' ');
    } catch (error) {
      this.note = `The browser could not read them: ${(error as Error).message}`;
    }
    await this.updateComplete;
    // The next key press sends them.
    this.querySelector<HTMLElement>('#send')?.focus();
    this.tell('say', titleOf(this.outbox.items));
  }

  #send = (): void => {
    this.outbox.send();
  };

  #clear = (): void => {
    this.note = '';
    this.outbox.clear();
  };

  #choose = (event: Event): void => {
    const input = event.currentTarget as HTMLInputElement;
    if (input.files !== null) void this.#add(chosenFiles(input.files));
    // The same file can be chosen again.
    input.value = '';
  };

  #enter = (event: DragEvent): void => {
    if (!hasFiles(event)) return;
    this.#depth += 1;
    this.isOver = true;
  };

  #leave = (event: DragEvent): void => {
    if (!hasFiles(event)) return;
    this.#depth -= 1;
    this.isOver = this.#depth > 0;
  };

  #drop = (event: DragEvent): void => {
    if (!hasFiles(event)) return;
    event.preventDefault();
    this.#depth = 0;
    this.isOver = false;
    if (event.dataTransfer !== null) void this.#add(droppedFiles(event.dataTransfer));
  };
}

function replacedNote([first = '', ...others]: readonly string[]): string {
  const more = others.length > 0 ? ` and ${count(others.length)} more` : '';
  return `Files with the same name replace each other. Only the last is kept: ${first}${more}.`;
}

const hasFiles = ({ dataTransfer }: DragEvent): boolean => dataTransfer?.types.includes('Files') === true;

function allow(event: DragEvent): void {
  if (!hasFiles(event)) return;
  event.preventDefault();
  if (event.dataTransfer !== null) event.dataTransfer.dropEffect = 'copy';
}

/** The files that a job has, and those that it would wait for. */
function filesOfJob({ missing = [], hints = [] }: RoutedFile, { length }: readonly OutboxItem[]): string {
  const has = length === 0 ? '' : `, with ${plural(length, 'input')}`;
  return missing.length === 0
    ? has
    : [`${has}. It waits for ${missing.join(', ')}${hints.length === 0 ? '' : '.'}`, ...hints].join(' ');
}

function conditionOf({ suffixes, mediaTypes, prefixes, jobs }: AboutRoute): string {
  if (jobs !== undefined) return ' (folders with a job.json)';
  const each = [...(prefixes ?? []), ...(suffixes ?? []), ...(mediaTypes ?? [])];
  if (each.length === 0) return '';
  return ` (${each.slice(0, 4).join(', ')}${each.length > 4 ? ' …' : ''})`;
}

function titleOf(items: readonly OutboxItem[]): string {
  const number = (...phases: readonly Phase[]) => items.filter(({ phase }) => phases.includes(phase)).length;
  const parts = [
    [number('checking'), 'being checked'],
    [number('ready'), 'ready to send'],
    [number('sending', 'queued'), 'being sent'],
    [number('sent'), 'sent'],
    [number('failed', 'stopped'), 'not sent'],
    [number('refused'), 'refused'],
  ] as const;
  const shown = parts.filter(([n]) => n > 0);
  const [first, ...others] = shown;
  if (first === undefined) return 'No files';
  return [`${plural(first[0], 'file')} ${first[1]}`, ...others.map(([n, word]) => `${count(n)} ${word}`)].join(', ');
}

customElements.define('drop-zone', DropZone);
