import { html, nothing, type PropertyValues, type TemplateResult } from 'lit';
import { TERMINAL_STATE_NAMES } from '../../functions/ledger/terminal-states.ts';
import { shownState } from '../../operations/shown-state.ts';
import type { Costs, HoldRequest, PlanQuery, PlanRequest, Status, UploadDetail, UploadRow } from '../api.ts';
import type { CostsDialog } from './costs-dialog.ts';
import type { ActionDialog, DoctorDialog } from './dialogs.ts';
import { Feed } from './feed.ts';
import type { HoldDialog } from './hold-dialog.ts';
import { LightElement } from './light-element.ts';
import { Outbox } from './outbox.ts';
import type { PageHeader } from './page-header.ts';
import { getCosts } from './server.ts';
import type { UploadDetailView } from './upload-detail.ts';
import type { BulkRequest, UploadList } from './upload-list.ts';
import { plural, shownName } from './words.ts';
import './costs-dialog.ts';
import './dialogs.ts';
import './drop-zone.ts';
import './hold-dialog.ts';
import './page-header.ts';
import './upload-detail.ts';
import './upload-list.ts';

/** Ends are announced together, so that a hundred of them are one sentence. In milliseconds. */
const ANNOUNCE_MS = 1_000;
/** Time between two drawings of the relative times, in milliseconds. */
const CLOCK_MS = 1_000;
/** Time between two looks at what the flows cost, in milliseconds. A look reads an object for each of 30 days. */
const COSTS_MS = 60_000;

/** Time in which the layout may still change after everything has come, in milliseconds. */
const SETTLE_MS = 3_000;

/** Events by which a user chooses a place on the page. After them, the page does not scroll by itself. */
const USER_ACTS = ['wheel', 'touchmove', 'pointerdown', 'keydown'] as const;

const UPLOAD_ADDRESS = /^#\/uploads\/(.+)$/;

/** The whole page. It holds the state, and the elements below draw it. */
export class FlowdropPage extends LightElement {
  static override readonly properties = {
    selected: { state: true },
    now: { state: true },
    announced: { state: true },
    change: { state: true },
    costs: { state: true },
  };
  declare selected: string | undefined;
  declare now: number;
  declare announced: string;
  declare change: number;
  declare costs: Costs | undefined;
  readonly #feed = new Feed();
  readonly #outbox = new Outbox();
  #ended: UploadRow[] = [];
  /** The upload that was opened, until it and its row are in the window. */
  #toShow: string | undefined;
  /** When the page keeps its layout, in milliseconds since 1970. Undefined until all has come. */
  #settledAt: number | undefined;
  #clock: number | undefined;
  #costsAt = Number.NEGATIVE_INFINITY;

  constructor() {
    super();
    this.now = Date.now();
    this.announced = '';
    this.change = 0;
    this.selected = selectedInAddress();
    this.#feed.addEventListener('change', this.#draw);
    this.#feed.addEventListener('end', (event) => this.#announceEnd((event as CustomEvent<UploadRow>).detail));
    this.#outbox.addEventListener('change', this.#draw);
    this.addEventListener('say', (event) => this.#say((event as CustomEvent<string>).detail));
  }

  override connectedCallback(): void {
    super.connectedCallback();
    // What stands here until the script runs.
    this.replaceChildren();
    this.#feed.start();
    window.addEventListener('hashchange', this.#followAddress);
    window.addEventListener('beforeunload', this.#warn);
    for (const each of USER_ACTS) window.addEventListener(each, this.#leaveInPlace, { passive: true });
    void this.#lookAtCosts();
    this.#clock = window.setInterval(() => {
      if (document.visibilityState !== 'visible') return;
      this.now = Date.now();
      if (this.now - this.#costsAt >= COSTS_MS) void this.#lookAtCosts();
    }, CLOCK_MS);
  }

  override disconnectedCallback(): void {
    super.disconnectedCallback();
    this.#feed.stop();
    window.removeEventListener('hashchange', this.#followAddress);
    window.removeEventListener('beforeunload', this.#warn);
    for (const each of USER_ACTS) window.removeEventListener(each, this.#leaveInPlace);
    window.clearInterval(this.#clock);
  }

  protected override render(): TemplateResult {
    const { about, status, connection, rows, isLoaded } = this.#feed;
    const { selected, now } = this;
    return html`
      <a class="skip button" href="#main" @click=${this.#skip}>Skip to the uploads</a>
      <page-header
        role="banner"
        .about=${about}
        .status=${status}
        .costs=${this.costs !== undefined && isCounted(this.costs) ? this.costs : undefined}
        .connection=${connection}
        .now=${now}
        @examine=${() => this.querySelector<DoctorDialog>('doctor-dialog')?.open()}
        @show-costs=${() => this.querySelector<CostsDialog>('costs-dialog')?.open()}
        @change-hold=${this.#changeHold}
      ></page-header>
      ${this.#connectionNote()}
      <main id="main" tabindex="-1" data-detail=${selected !== undefined || nothing}>
        <div class="work">
          <drop-zone .outbox=${this.#outbox} .about=${about} .change=${this.change}></drop-zone>
          <upload-list
            .rows=${rows}
            .extent=${this.#feed.extent}
            .isLoaded=${isLoaded}
            .selected=${selected}
            .now=${now}
            @act-on-all=${this.#actOnAll}
          ></upload-list>
        </div>
        ${
          selected === undefined
            ? nothing
            : html`<upload-detail
                .uploadId=${selected}
                .row=${this.#feed.row(selected)}
                .rows=${rows}
                .about=${about}
                .now=${now}
                @leave=${this.#leave}
                @keydown=${this.#leaveByKey}
                @act=${this.#act}
                @act-on-chain=${this.#actOnChain}
              ></upload-detail>`
        }
      </main>
      <action-dialog></action-dialog>
      <hold-dialog .about=${about} @holds=${this.#setHolds}></hold-dialog>
      <costs-dialog .costs=${this.costs} @costs=${this.#setCosts}></costs-dialog>
      <doctor-dialog></doctor-dialog>
      <p class="visually-hidden" role="status" aria-live="polite" id="announcements">${this.announced}</p>
    `;
  }

  #connectionNote(): TemplateResult | typeof nothing {
    const { connection, problem } = this.#feed;
    if (connection === 'no-access') {
      return html`<p class="banner" role="alert">
        This page has no valid key. Its run may have ended. Open the address that npm start or flowdrop open printed.
      </p>`;
    }
    if (connection !== 'lost') return nothing;
    return html`<p class="banner" role="alert">${problem ?? 'The connection was lost.'} The page connects again by itself.</p>`;
  }

  protected override updated(changed: PropertyValues): void {
    if (changed.has('selected')) {
      const before = changed.get('selected') as string | undefined;
      this.#toShow = this.selected;
      if (this.selected !== undefined) void this.#detail?.updateComplete.then(() => this.#detail?.focusTitle());
      else if (before !== undefined) this.#list?.focusUpload(before);
    }
    const { isLoaded, status } = this.#feed;
    if (isLoaded && status !== undefined && this.costs !== undefined) this.#settledAt ??= Date.now() + SETTLE_MS;
    if (this.#toShow !== undefined) void this.#showSelected(this.#toShow);
  }

  get #detail(): UploadDetailView | null {
    return this.querySelector<UploadDetailView>('upload-detail');
  }

  get #list(): UploadList | null {
    return this.querySelector<UploadList>('upload-list');
  }

  /**
   * Brings an opened file and its row into the window. While the page loads, the rows come, and the header grows even a
   * moment later, when it has measured its numbers. So this is done again until then, or until the user does something.
   */
  async #showSelected(selected: string): Promise<void> {
    if (this.#settledAt !== undefined && Date.now() >= this.#settledAt) this.#toShow = undefined;
    const header = this.querySelector<PageHeader>('page-header');
    await Promise.all([header, this.#detail, this.#list].map((each) => each?.updateComplete));
    const detail = this.#detail;
    if (selected !== this.selected || detail === null) return;
    // On a narrow window the detail takes the place of the list, below a high header.
    const { top } = detail.getBoundingClientRect();
    if (top < 0 || top > window.innerHeight / 4) detail.scrollIntoView({ block: 'start' });
    this.#list?.showUpload(selected);
  }

  #leaveInPlace = (): void => {
    this.#toShow = undefined;
  };

  #draw = (): void => {
    this.change += 1;
  };

  async #lookAtCosts(): Promise<void> {
    this.#costsAt = Date.now();
    try {
      this.costs = await getCosts();
    } catch {
      // The next look comes in a minute. The dialog says what is wrong.
    }
  }

  #setCosts = ({ detail: costs }: CustomEvent<Costs>): void => {
    this.costs = costs;
  };

  #say(text: string): void {
    // The same words again would not be read again.
    this.announced = this.announced === text ? `${text}\u00a0` : text;
  }

  #announceEnd(row: UploadRow): void {
    this.#ended.push(row);
    if (this.#ended.length > 1) return;
    setTimeout(() => {
      this.#say(sentenceOf(this.#ended));
      this.#ended = [];
    }, ANNOUNCE_MS);
  }

  #followAddress = (): void => {
    this.selected = selectedInAddress();
  };

  #leave = (): void => {
    window.location.hash = '#/';
  };

  #leaveByKey = (event: KeyboardEvent): void => {
    if (event.key === 'Escape' && document.fullscreenElement === null) this.#leave();
  };

  #skip = (event: Event): void => {
    event.preventDefault();
    this.querySelector<HTMLElement>('#main')?.focus();
  };

  #act = ({ detail }: CustomEvent<{ action: PlanRequest['action']; detail: UploadDetail }>): void => {
    this.#plan({ action: detail.action, uploads: [detail.detail.row.id] }, detail.detail);
  };

  #actOnChain = ({ detail }: CustomEvent<PlanRequest>): void => this.#plan(detail);

  #actOnAll = ({ detail: { action, state, code, uploads } }: CustomEvent<BulkRequest>): void => {
    // Older failures are not in the list that the user has before them.
    const since = state === 'failed' ? this.#feed.extent?.since : undefined;
    if (uploads !== undefined) this.#plan({ action, uploads });
    else this.#plan({ action, query: { state: state as PlanQuery['state'], code, since } });
  };

  #changeHold = ({ detail }: CustomEvent<HoldRequest>): void => {
    void this.querySelector<HoldDialog>('hold-dialog')?.open(detail);
  };

  #setHolds = ({ detail: holds }: CustomEvent<Status['holds']>): void => this.#feed.setHolds(holds);

  #plan(request: PlanRequest, detail?: UploadDetail): void {
    void this.querySelector<ActionDialog>('action-dialog')?.open(request, detail);
  }

  #warn = (event: BeforeUnloadEvent): void => {
    if (this.#outbox.isSending) event.preventDefault();
  };
}

/** False if no route has a price or a budget, and none had one lately. */
const isCounted = ({ lately }: Costs): boolean => lately.isCounted || lately.total.flows > 0;

function selectedInAddress(): string | undefined {
  const id = UPLOAD_ADDRESS.exec(window.location.hash)?.[1];
  try {
    return id === undefined ? undefined : decodeURIComponent(id);
  } catch {
    return undefined;
  }
}

/** `fox.txt succeeded`, `12 uploads succeeded, 1 failed` */
function sentenceOf(rows: readonly UploadRow[]): string {
  const [only] = rows;
  if (only !== undefined && rows.length === 1) return `${shownName(only).name} ${shownState(only)}`;
  const byState = Map.groupBy(rows, shownState);
  const ends = ([...TERMINAL_STATE_NAMES, 'replaced'] as const).flatMap((state) => {
    const ofState = byState.get(state);
    return ofState === undefined ? [] : [`${plural(ofState.length, 'upload')} ${state}`];
  });
  return ends.join(', ');
}

customElements.define('flowdrop-page', FlowdropPage);
