import { html, nothing, type PropertyValues, type TemplateResult } from 'lit';
import { repeat } from 'lit/directives/repeat.js';
import { isSuccess, TERMINAL_STATE_NAMES } from '../../functions/ledger/terminal-states.ts';
import { atItsTime, searchable, shownState } from '../../operations/shown-state.ts';
import type { RowState, UploadRow } from '../api.ts';
import type { ListExtent } from './feed.ts';
import { ICONS, STATE_ICONS } from './icons.ts';
import { LightElement } from './light-element.ts';
import { hasPicture } from './row-thumbnail.ts';
import { findUploads } from './server.ts';
import {
  ASKED_TO_WAIT,
  capitalised,
  count,
  dayOf,
  fullTime,
  plural,
  STATE_WORDS,
  STATES,
  shownName,
  size,
  timeAgo,
  waitLine,
} from './words.ts';

/** Height of a row in `rem`, as the style sheet has it. */
const ROW_REM = 4;
/** Rows that are drawn above and below what can be seen. */
const SPARE_ROWS = 6;
/** Rows that are drawn before the list knows its place. */
const FIRST_ROWS = 20;
/** Time after the last key press until the server is asked for older uploads, in milliseconds. */
const SEARCH_MS = 300;
const FOUND_MAX = 100;

/** States that are on offer although no upload is in them. */
const ALWAYS_OFFERED: readonly RowState[] = ['waiting', 'running', ...TERMINAL_STATE_NAMES];

/** What can be done with all uploads in a state at once. */
const BULK_ACTIONS: Readonly<Partial<Record<RowState, 'retry' | 'cancel'>>> = {
  failed: 'retry',
  waiting: 'cancel',
  undecided: 'cancel',
  running: 'cancel',
};

/** What `act-on-all` tells. */
export interface BulkRequest {
  readonly action: 'retry' | 'cancel';
  readonly state: RowState;
  readonly code: string | undefined;
  /** The ids, if the user has also filtered by name. */
  readonly uploads: readonly string[] | undefined;
}

interface Filter {
  readonly state: RowState | undefined;
  readonly name: string;
  readonly code: string | undefined;
}

/**
 * The uploads, newest first. Only the rows that can be seen are in the document. The arrow keys go from row to row, so
 * the list is one stop for the Tab key. New rows do not move what the user reads.
 *
 * A chain is one row, with the state of the whole. It opens to its later stages. While the list is filtered by a state,
 * each upload has a row of its own.
 */
export class UploadList extends LightElement {
  static override readonly properties = {
    rows: { attribute: false },
    isLoaded: { attribute: false },
    extent: { attribute: false },
    found: { state: true },
    selected: { attribute: false },
    now: { attribute: false },
    filter: { state: true },
    opened: { state: true },
    range: { state: true },
  };
  declare rows: readonly UploadRow[];
  declare isLoaded: boolean;
  declare extent: ListExtent | undefined;
  /** What the server found by name, because the list has no such upload. */
  declare found: readonly UploadRow[];
  declare selected: string | undefined;
  declare now: number;
  declare filter: Filter;
  /** The ids of the first files of the chains that are open. */
  declare opened: ReadonlySet<string>;
  declare range: readonly [number, number];
  /** The later stages of each chain that is one row, by the id of its first file. */
  #stages: ReadonlyMap<string, readonly UploadRow[]> = new Map();
  /** The upload that was selected, until it has a row. */
  #toOpen: string | undefined;
  #shown: readonly UploadRow[] = [];
  #counts: Readonly<Record<string, number>> = {};
  #codes: Readonly<Record<string, number>> = {};
  #toFocus: number | undefined;
  #search: number | undefined;
  /** The row that the Tab key reaches. */
  #current: string | undefined;

  constructor() {
    super();
    this.rows = [];
    this.found = [];
    this.filter = { state: undefined, name: '', code: undefined };
    this.opened = new Set();
    this.range = [0, FIRST_ROWS];
  }

  override connectedCallback(): void {
    super.connectedCallback();
    window.addEventListener('scroll', this.#measure, { passive: true });
    window.addEventListener('resize', this.#measure);
  }

  override disconnectedCallback(): void {
    super.disconnectedCallback();
    window.removeEventListener('scroll', this.#measure);
    window.removeEventListener('resize', this.#measure);
  }

  /** Moves the keyboard to the row of an upload. */
  focusUpload(id: string): void {
    const index = this.#indexOf(id);
    if (index >= 0) this.#focusRow(index);
  }

  /** Scrolls the row of an upload into the window, if the list is there. */
  showUpload(id: string): void {
    const index = this.#indexOf(id);
    if (index >= 0 && this.checkVisibility()) this.#scrollTo(index);
  }

  /** The place of its row, or of the row of its chain. */
  #indexOf(id: string): number {
    const index = this.#shown.findIndex((row) => row.id === id);
    if (index >= 0) return index;
    const [first] = [...this.#stages].find(([, stages]) => stages.some((row) => row.id === id)) ?? [];
    return this.#shown.findIndex((row) => row.id === first);
  }

  protected override willUpdate(changed: PropertyValues): void {
    if (changed.has('selected')) this.#toOpen = this.selected;
    const isSame = ['rows', 'filter', 'found', 'opened', 'selected'].every((each) => !changed.has(each));
    if (isSame) return;
    const before = this.#shown;
    const name = searchable(this.filter.name.trim());
    const listed = name === '' ? this.rows : this.rows.filter(({ key }) => searchable(key).includes(name));
    const named = listed.length > 0 || name === '' ? listed : this.found;
    const { state, code } = this.filter;
    const inState = state === undefined ? named : named.filter((row) => shownState(row) === state);
    this.#counts = countBy(named, shownState);
    this.#codes = countBy(inState, (row) => codeOf(row) ?? '');
    const wanted = code === undefined ? inState : inState.filter((row) => codeOf(row) === code);
    this.#stages = state === undefined ? stagesIn(wanted) : new Map();
    this.#openSelected(wanted);
    this.#shown = wanted.flatMap((row) => this.#rowsOf(row));
    if (changed.has('rows') && !changed.has('filter')) this.#keepPlace(before);
  }

  /** A row with the later stages of an open chain, in the order in which they began. A stage has no other place. */
  #rowsOf(row: UploadRow): readonly UploadRow[] {
    if (row.first !== undefined && this.#stages.has(row.first.id)) return [];
    return this.opened.has(row.id) ? [row, ...(this.#stages.get(row.id) ?? [])] : [row];
  }

  /** Opens the chain of an upload that the address names, once. */
  #openSelected(rows: readonly UploadRow[]): void {
    const row = this.#toOpen === undefined ? undefined : rows.find(({ id }) => id === this.#toOpen);
    if (row === undefined) return;
    this.#toOpen = undefined;
    if (row.first !== undefined && !this.opened.has(row.first.id))
      this.opened = new Set([...this.opened, row.first.id]);
  }

  #toggle(id: string, isOpen = !this.opened.has(id)): void {
    if (!this.#stages.has(id) || isOpen === this.opened.has(id)) return;
    const others = [...this.opened].filter((each) => each !== id);
    this.opened = new Set(isOpen ? [...others, id] : others);
  }

  /** Scrolls by the rows that came above the first one that can be seen. */
  #keepPlace(before: readonly UploadRow[]): void {
    const top = this.#top();
    if (top === undefined || top >= 0) return;
    const first = Math.floor(-top / this.#rowHeight());
    const row = before[first];
    if (row === undefined) return;
    const now = this.#shown.findIndex(({ id }) => id === row.id);
    if (now < 0 || now === first) return;
    const by = (now - first) * this.#rowHeight();
    this.range = [this.range[0] + now - first, this.range[1] + now - first];
    // The list has its new height only after the update.
    void this.updateComplete.then(() => window.scrollBy({ top: by, behavior: 'instant' }));
  }

  protected override render(): TemplateResult {
    const rows = this.#shown;
    const [from, to] = this.#drawn();
    const drawn = rows.slice(from, to);
    const reachable = drawn.some(({ id }) => id === this.#current) ? this.#current : drawn[0]?.id;
    return html`
      <section class="list" aria-labelledby="list-title">
        <div class="filters">
          <h2 id="list-title" class="visually-hidden">Uploads</h2>
          <label class="search">
            ${ICONS.search}<span class="visually-hidden">Filter by name</span>
            <input type="search" placeholder="Filter by name" .value=${this.filter.name} @input=${this.#filterByName} />
          </label>
          <div class="states" role="group" aria-label="Filter by state">
            ${this.#stateButton(undefined)}${STATES.map((state) => this.#stateButton(state))}
          </div>
        </div>
        ${this.#bulk(rows.length)}
        ${
          rows.length === 0
            ? this.#empty()
            : html`<ol role="list" class="rows" ?data-pictured=${rows.some(({ thumbnail }) => thumbnail !== undefined && hasPicture(thumbnail))} @keydown=${this.#move} @focusin=${this.#remember}>
                ${repeat(
                  drawn,
                  ({ id }) => id,
                  (row, at) =>
                    this.#row(row, { index: from + at, size: rows.length, isReachable: row.id === reachable }),
                )}
              </ol>`
        }
        ${this.#end()}
      </section>
    `;
  }

  #stateButton(state: RowState | undefined): TemplateResult | typeof nothing {
    const isOn = this.filter.state === state;
    const total = state === undefined ? sum(this.#counts) : (this.#counts[state] ?? 0);
    if (state !== undefined && total === 0 && !isOn && !ALWAYS_OFFERED.includes(state)) return nothing;
    return html`<button
      type="button"
      class="state-filter"
      aria-pressed=${isOn}
      data-state=${state ?? nothing}
      @click=${() => this.#filterBy({ state, code: undefined })}
    >
      ${state === undefined ? nothing : STATE_ICONS[state]}${state === undefined ? 'All' : STATE_WORDS[state]}
      <span class="count">${count(total)}</span>
    </button>`;
  }

  #bulk(number: number): TemplateResult | typeof nothing {
    const { state, code, name } = this.filter;
    const action = state && BULK_ACTIONS[state];
    if (state === undefined || action === undefined || sum(this.#codes) === 0) return nothing;
    const codes = Object.entries(this.#codes).filter(([each]) => each !== '');
    return html`<div class="bulk">
      <label>
        <span>${state === 'failed' ? 'Failure' : 'Reason'}</span>
        <select @change=${this.#filterByCode}>
          <option value="" ?selected=${code === undefined}>All (${count(sum(this.#codes))})</option>
          ${codes.map(
            ([each, many]) => html`<option value=${each} ?selected=${each === code}>${each} (${count(many)})</option>`,
          )}
        </select>
      </label>
      <button
        type="button"
        class="quiet"
        ?disabled=${number === 0}
        @click=${() => {
          const uploads = name.trim() === '' ? undefined : this.#shown.map(({ id }) => id);
          this.tell('act-on-all', { action, state, code, uploads } satisfies BulkRequest);
        }}
      >
        ${action === 'retry' ? 'Retry' : 'Cancel'} ${number === 1 ? 'it' : `all ${count(number)}`}…
      </button>
    </div>`;
  }

  /** What the list does not show. */
  #end(): TemplateResult | typeof nothing {
    if (this.extent === undefined || !this.isLoaded) return nothing;
    const { since, isComplete, unreadable } = this.extent;
    return html`<p class="list-end muted">
      ${isComplete ? nothing : 'Older uploads are still being read.'}
      ${unreadable > 0 ? `${plural(unreadable, 'entry', 'entries')} of the ledger cannot be read.` : nothing}
      The list goes back to <time datetime=${since} title=${fullTime(since)}>${dayOf(since)}</time>. Enter the whole key of
      an older file to find it.
    </p>`;
  }

  #empty(): TemplateResult {
    if (!this.isLoaded) return html`<p class="empty muted">Loading the uploads…</p>`;
    const isFiltered = this.filter.state !== undefined || this.filter.name !== '';
    if (!isFiltered) {
      return html`<div class="empty"><p>Nothing here yet.</p><p class="muted">Drop a file: it appears here at once.</p></div>`;
    }
    return html`<div class="empty">
      <p>No upload matches.</p>
      <button type="button" class="quiet" @click=${() => this.#filterBy({ state: undefined, name: '', code: undefined })}>
        Show all
      </button>
    </div>`;
  }

  #row(
    row: UploadRow,
    {
      index,
      size: setSize,
      isReachable,
    }: { readonly index: number; readonly size: number; readonly isReachable: boolean },
  ): TemplateResult {
    const { id, bytes } = row;
    const stages = this.#stages.get(id);
    // A chain whose next stage has no row yet is under way all the same.
    const isWhole = this.filter.state === undefined && row.first === undefined && row.chain !== undefined;
    const state = isWhole ? stateOfAll(row, stages ?? []) : shownState(row);
    const { folder, name } = shownName(row);
    const isSelected = id === this.selected;
    const isStage = row.first !== undefined && this.#stages.has(row.first.id);
    const time = lastTimeOf([row, ...(stages ?? [])]);
    return html`<li
      class="row"
      aria-setsize=${setSize}
      aria-posinset=${index + 1}
      data-kind=${stages !== undefined ? 'chain' : isStage ? 'stage' : nothing}
    >
      <a
        href="#/uploads/${encodeURIComponent(id)}"
        data-index=${index}
        data-id=${id}
        data-state=${state}
        tabindex=${isReachable ? 0 : -1}
        aria-current=${isSelected ? 'true' : nothing}
      >
        <span class="state-icon" data-state=${state}>${STATE_ICONS[state]}</span>
        <row-thumbnail .thumbnail=${row.thumbnail}></row-thumbnail>
        <span class="row-main">
          <span class="name"><span class="folder">${folder}</span><bdi>${name}</bdi></span>
          <span class="detail-line">
            <span class="state-word" data-state=${state}>${STATE_WORDS[state]}</span>
            <span class="muted">${stages === undefined ? whatElse(row, this.now) : ofChain(row, stages)}</span>
          </span>
        </span>
        <span class="row-end muted">
          <time datetime=${time} title=${fullTime(time)}>${timeAgo(time, this.now)}</time>
          <span>${size(bytes)}</span>
        </span>
      </a>
      ${stages === undefined ? nothing : this.#toggleButton(id, name, isReachable)}
    </li>`;
  }

  #toggleButton(id: string, name: string, isReachable: boolean): TemplateResult {
    return html`<button
      type="button"
      class="icon-button chain-toggle"
      tabindex=${isReachable ? 0 : -1}
      aria-expanded=${this.opened.has(id)}
      @click=${() => this.#toggle(id)}
    >
      ${ICONS.unfold}<span class="visually-hidden">Later stages of ${name}</span>
    </button>`;
  }

  protected override updated(): void {
    const list = this.querySelector<HTMLElement>('.rows');
    if (list !== null) {
      const [from, to] = this.#drawn();
      // An attribute would be an inline style, which the page's policy forbids.
      list.style.paddingBlockStart = `${from * ROW_REM}rem`;
      list.style.paddingBlockEnd = `${(this.#shown.length - to) * ROW_REM}rem`;
    }
    this.#measure();
    if (this.#toFocus === undefined) return;
    const row = this.querySelector<HTMLElement>(`[data-index="${this.#toFocus}"]`);
    if (row === null) return;
    this.#toFocus = undefined;
    row.focus({ preventScroll: true });
  }

  #drawn(): readonly [number, number] {
    const { length } = this.#shown;
    const to = Math.min(Math.max(this.range[1], FIRST_ROWS), length);
    return [Math.max(0, Math.min(this.range[0], to - 1)), to];
  }

  #measure = (): void => {
    const top = this.#top();
    if (top === undefined) return;
    const height = this.#rowHeight();
    const first = Math.max(0, Math.floor(-top / height) - SPARE_ROWS);
    const last = Math.ceil((window.innerHeight - top) / height) + SPARE_ROWS;
    if (first !== this.range[0] || last !== this.range[1]) this.range = [first, last];
  };

  /** Place of the list's first row in the window, in pixels. Negative if it is scrolled away. */
  #top(): number | undefined {
    return this.querySelector('.rows')?.getBoundingClientRect().top;
  }

  #rowHeight(): number {
    return ROW_REM * Number.parseFloat(getComputedStyle(document.documentElement).fontSize);
  }

  #move = (event: KeyboardEvent): void => {
    const link = linkIn(event);
    const { index } = link?.dataset ?? {};
    if (index === undefined || event.altKey || event.ctrlKey || event.metaKey) return;
    if (event.key === 'ArrowRight' || event.key === 'ArrowLeft') {
      this.#openOrClose(event, Number(index));
      return;
    }
    const page = Math.max(1, Math.floor(window.innerHeight / this.#rowHeight()) - 3);
    const at = Number(index);
    const last = this.#shown.length - 1;
    const places: Readonly<Record<string, number>> = {
      ...{ ArrowDown: at + 1, ArrowUp: at - 1, PageDown: at + page, PageUp: at - page, Home: 0, End: last },
    };
    const place = places[event.key];
    if (place === undefined) return;
    event.preventDefault();
    this.#focusRow(Math.max(0, Math.min(place, last)));
  };

  /** As in a tree: to the right a chain opens. To the left it closes, also from one of its stages. */
  #openOrClose(event: KeyboardEvent, index: number): void {
    const row = this.#shown[index];
    if (row === undefined) return;
    const chain = row.first !== undefined && this.#stages.has(row.first.id) ? row.first.id : row.id;
    if (!this.#stages.has(chain)) return;
    event.preventDefault();
    this.#toggle(chain, event.key === 'ArrowRight');
    if (chain !== row.id && event.key === 'ArrowLeft') void this.updateComplete.then(() => this.focusUpload(chain));
  }

  #focusRow(index: number): void {
    if (!this.#scrollTo(index)) return;
    this.#toFocus = index;
    this.requestUpdate();
  }

  /** Returns false if there is no list. */
  #scrollTo(index: number): boolean {
    const top = this.#top();
    if (top === undefined) return false;
    const height = this.#rowHeight();
    const covered = this.querySelector('.filters')?.getBoundingClientRect().height ?? 0;
    const above = top + index * height - covered;
    const below = top + (index + 1) * height - window.innerHeight;
    if (above < 0) window.scrollBy({ top: above, behavior: 'instant' });
    else if (below > 0) window.scrollBy({ top: below, behavior: 'instant' });
    this.#measure();
    return true;
  }

  #remember = (event: FocusEvent): void => {
    const { id } = linkIn(event)?.dataset ?? {};
    if (id === undefined || id === this.#current) return;
    this.#current = id;
    this.requestUpdate();
  };

  #filterByName = (event: Event): void => {
    this.#filterBy({ name: (event.currentTarget as HTMLInputElement).value });
    window.clearTimeout(this.#search);
    this.#search = window.setTimeout(() => void this.#findOlder(), SEARCH_MS);
  };

  async #findOlder(): Promise<void> {
    const name = this.filter.name.trim();
    if (name === '' || (this.#shown.length > 0 && this.found.length === 0)) return;
    // The list works without it.
    const page = await findUploads(name, FOUND_MAX).catch(() => undefined);
    if (this.filter.name.trim() === name) this.found = page?.uploads ?? [];
  }

  #filterByCode = (event: Event): void => {
    const { value } = event.currentTarget as HTMLSelectElement;
    this.#filterBy({ code: value === '' ? undefined : value });
  };

  #filterBy(change: Partial<Filter>): void {
    this.filter = { ...this.filter, ...change };
    void this.updateComplete.then(() => this.tell('say', `${plural(this.#shown.length, 'upload')}`));
  }
}

/** The link of the row in which something happens. */
const linkIn = ({ target }: Event): HTMLElement | null | undefined =>
  (target as HTMLElement).closest('.row')?.querySelector<HTMLElement>('[data-index]');

/** The later stages of the chains whose first files are listed, in the order in which they began. */
function stagesIn(rows: readonly UploadRow[]): ReadonlyMap<string, readonly UploadRow[]> {
  const ids = new Set(rows.map(({ id }) => id));
  const stages = rows.filter(({ first }) => first !== undefined && ids.has(first.id));
  return Map.groupBy(stages.toReversed(), ({ first }) => first?.id ?? '');
}

/** The state of a whole chain: what needs the user, or else how it ended, or else what goes on. */
function stateOfAll(row: UploadRow, stages: readonly UploadRow[]): RowState {
  const states = [row, ...stages].map(shownState);
  if (states.includes('undecided')) return 'undecided';
  if (row.chain !== undefined && row.chain !== 'under way') return row.chain;
  const underWay = [row, ...stages].filter(({ endedAt }) => endedAt === undefined).map(shownState);
  return underWay.length > 0 && underWay.every((state) => state === 'waiting') ? 'waiting' : 'running';
}

/** What the row of a chain says beside its state: `Chain of 4: 1 failed`. */
function ofChain(row: UploadRow, stages: readonly UploadRow[]): string {
  const counts = countBy([row, ...stages], shownState);
  const others = STATES.filter((state) => state !== 'succeeded' && counts[state] !== undefined);
  const looked = stages.filter(({ wait }) => wait?.reason === 'review').length;
  const told = others.map((state) => {
    const words = `${count(counts[state] ?? 0)} ${STATE_WORDS[state].toLowerCase()}`;
    if (state !== 'waiting' || looked === 0) return words;
    return looked === counts[state] ? `${words} for your approval` : `${words} (${count(looked)} for your approval)`;
  });
  if (row.chain === 'failed' && told.length === 0) told.push('a stage did not begin');
  return [`Chain of ${count(stages.length + 1)}`, ...(told.length === 0 ? [] : [told.join(', ')])].join(': ');
}

/** When the last of these uploads ended, or came. */
const lastTimeOf = (rows: readonly UploadRow[]): string =>
  rows.map(({ endedAt, arrivedAt }) => endedAt ?? arrivedAt).reduce((one, other) => (one > other ? one : other));

/** What a row says beside its state. */
function whatElse(row: UploadRow, now: number): string {
  const { state, route, wait, obstacle, failure, assetCount, chain } = row;
  if (isSuccess(state) && (chain === 'failed' || chain === 'replaced'))
    return `Its chain ${chain === 'failed' ? 'failed' : 'was replaced'} · ${plural(assetCount, 'asset')} · ${route}`;
  if (isSuccess(state)) return `${plural(assetCount, 'asset')} · ${route}`;
  if (obstacle !== undefined) return `Results not stored yet · ${obstacle.message}`;
  const why = failure?.message ?? wait?.message;
  if (why === undefined) return route;
  const askedUntil = wait?.askedUntil;
  if (askedUntil !== undefined && Date.parse(askedUntil) > now) return waitLine(why, askedUntil, now, ASKED_TO_WAIT);
  const isTriedAgain = wait?.until !== undefined && shownState(row) !== 'undecided';
  if (!isTriedAgain) return why;
  return waitLine(why, wait.until, now, capitalised(atItsTime(wait.reason)));
}

/** The code of its failure, or the reason of its wait. */
const codeOf = ({ failure, wait }: UploadRow): string | undefined => failure?.code ?? wait?.reason;

function countBy(rows: readonly UploadRow[], of: (row: UploadRow) => string): Readonly<Record<string, number>> {
  const counts: Record<string, number> = Object.create(null);
  for (const row of rows) counts[of(row)] = (counts[of(row)] ?? 0) + 1;
  return counts;
}

const sum = (counts: Readonly<Record<string, number>>): number => Object.values(counts).reduce((a, b) => a + b, 0);

customElements.define('upload-list', UploadList);
