import { html, nothing, type PropertyValues, type TemplateResult } from 'lit';
import { amountText } from '../../functions/base/money.ts';
import { printable, printableJson } from '../../functions/base/printable.ts';
import type { Generation } from '../../operations/compare.ts';
import { isUntimed, shownState } from '../../operations/shown-state.ts';
import type {
  About,
  RowState,
  ServiceAnswer,
  Step,
  StepKind,
  StoredObject,
  UploadDetail,
  UploadRow,
  Wait,
} from '../api.ts';
import { ICONS, STATE_ICONS } from './icons.ts';
import { LightElement } from './light-element.ts';
import { getUpload, messageOf, moveAlias, RequestFailedError } from './server.ts';
import {
  ASKED_TO_WAIT,
  atItsTimeWords,
  clockTime,
  duration,
  fullTime,
  STATE_WORDS,
  shownName,
  size,
  splitKey,
  TERMINAL_WORDS,
} from './words.ts';
import './copy-button.ts';
import './stored-object.ts';
import './upload-chain.ts';
import './upload-service.ts';

/** What follows an end, as receipt and alias, comes a moment after it. Time between two looks for it, in milliseconds. */
const SETTLE_MS = 1_500;
const LOOKS_MAX = 5;

/** Assets that are shown at once. More come when the user asks. */
const ASSETS_SHOWN = 6;

const STEP_WORDS: Readonly<Record<StepKind, string>> = {
  put: 'Put into the inbox',
  arrived: 'Came to the pipeline',
  waiting: 'Waits',
  claimed: 'Being sent',
  running: 'Runs',
  outputs: 'Outputs stored',
  ...TERMINAL_WORDS,
  replaced: STATE_WORDS.replaced,
  receipt: 'Receipt',
};

/** Steps at which something is still to come. */
const UNDER_WAY: readonly StepKind[] = ['put', 'arrived', 'waiting', 'claimed', 'running'];

/** In the order of the buttons. */
const ACTION_WORDS = {
  approve: 'Approve…',
  retry: 'Retry…',
  again: 'Make anew…',
  collect: 'Collect again…',
  cancel: 'Cancel…',
} as const;

/** All of one upload: what came out, what happened when, and what can be done. */
export class UploadDetailView extends LightElement {
  static override readonly properties = {
    uploadId: { attribute: false },
    /** The row of the list. Another one means that the upload has changed. */
    row: { attribute: false },
    rows: { attribute: false },
    about: { attribute: false },
    now: { attribute: false },
    detail: { state: true },
    problem: { state: true },
    service: { state: true },
    assetsShown: { state: true },
    moving: { state: true },
  };
  declare uploadId: string;
  declare row: UploadRow | undefined;
  /** All rows of the list: those of its chain among them tell that the chain has changed. */
  declare rows: readonly UploadRow[];
  declare about: About | undefined;
  declare now: number;
  declare detail: UploadDetail | undefined;
  declare problem: string | undefined;
  /** What the service last said of the flow. */
  declare service: ServiceAnswer | undefined;
  declare assetsShown: number;
  /** `busy` while the aliases are moved. Otherwise why they were not. */
  declare moving: string | undefined;

  #hadFocus = false;
  /** Looks for what follows the end. */
  #looks = 0;
  #timer: number | undefined;

  protected override willUpdate(changed: PropertyValues): void {
    this.#hadFocus = this.contains(document.activeElement);
    if (changed.has('uploadId')) {
      this.detail = undefined;
      this.problem = undefined;
      this.service = undefined;
      this.assetsShown = ASSETS_SHOWN;
      this.moving = undefined;
    }
    if (!changed.has('uploadId') && !changed.has('row')) return;
    this.#looks = 0;
    void this.#load();
  }

  override disconnectedCallback(): void {
    super.disconnectedCallback();
    window.clearTimeout(this.#timer);
  }

  async #load(): Promise<void> {
    window.clearTimeout(this.#timer);
    const { uploadId, row } = this;
    const isStale = () => uploadId !== this.uploadId || row !== this.row;
    try {
      const detail = await getUpload(uploadId);
      if (isStale()) return;
      this.detail = detail;
      this.problem = undefined;
      if (detail.upload.endedAt === undefined || detail.receipt !== undefined || this.#looks >= LOOKS_MAX) return;
      this.#looks += 1;
      this.#timer = window.setTimeout(() => void this.#load(), SETTLE_MS);
    } catch (error) {
      if (isStale()) return;
      const isGone = error instanceof RequestFailedError && error.code === 'not-found';
      this.problem = isGone ? 'The ledger does not know this upload any more.' : messageOf(error);
    }
  }

  /** A button that is gone must not take the keyboard with it. */
  protected override updated(): void {
    if (this.#hadFocus && document.activeElement === document.body) this.focusTitle();
  }

  /** Moves the keyboard here. */
  focusTitle(): void {
    this.querySelector<HTMLElement>('.detail-title')?.focus({ preventScroll: true });
  }

  protected override render(): TemplateResult {
    const row = this.detail?.row ?? this.row;
    const { folder, name } = row === undefined ? splitKey(this.uploadId) : shownName(row);
    return html`<section class="detail-pane" aria-labelledby="detail-title">
      <header class="detail-head">
        <a class="back button quiet small" href="#/" @click=${this.#leave}><span class="if-alone">${ICONS.back} All uploads</span><span class="if-beside">${ICONS.close} Close</span></a>
        <h2 id="detail-title" class="detail-title" tabindex="-1"><span class="folder">${folder}</span><bdi>${name}</bdi></h2>
        ${row === undefined ? nothing : this.#summary(row)}
      </header>
      <upload-chain .uploadId=${this.uploadId} .row=${row} .rows=${this.rows} .about=${this.about} .now=${this.now}></upload-chain>
      ${this.problem === undefined ? nothing : html`<p class="note problem">${this.problem}</p>`}
      ${this.detail === undefined ? nothing : this.#all(this.detail)}
      ${this.detail === undefined && this.problem === undefined ? html`<p class="muted empty">Loading…</p>` : nothing}
    </section>`;
  }

  #summary(row: UploadRow): TemplateResult {
    const { arrivedAt, endedAt, bytes, route } = row;
    const took = endedAt === undefined ? undefined : Date.parse(endedAt) - Date.parse(arrivedAt);
    return html`<p class="summary">
      ${badge(shownState(row))}
      <span class="muted">
        ${size(bytes)} · route ${route}
        ${took === undefined ? nothing : html`· took ${duration(took)}`}
      </span>
    </p>
    ${row.state === 'running' ? html`<p class="service-words">${this.#serviceWords()}</p>` : nothing}`;
  }

  #serviceWords(): string {
    if (this.service === undefined) return 'Asking the service…';
    return printable(this.service.says ?? 'It is not known what the service says.');
  }

  #all(detail: UploadDetail): TemplateResult {
    const actions = this.#actions(detail);
    return html`
      ${this.#words(detail)}${isLookedAt(detail) ? this.#objects(detail, actions) : [actions, this.#objects(detail)]}
      ${this.#alias(detail)}${this.#generations(detail)}${this.#timeline(detail.timeline)}
      <upload-service .detail=${detail} .now=${this.now} @service-answer=${this.#hear}></upload-service>
      ${this.#facts(detail)}
    `;
  }

  /** Why it failed or waits, with the service's own words. */
  #words(detail: UploadDetail): TemplateResult {
    const { row, upload, isCurrent, sooner } = detail;
    const { failure, wait, obstacle, failedOutputs } = upload;
    const shown = shownState(row);
    return html`
      ${
        failure === undefined
          ? nothing
          : html`<div class="words" data-state=${shown}>
              <p class="words-title">
                ${STATE_ICONS[shown]} ${shown === 'replaced' ? 'It was replaced' : 'It failed'}: <code>${failure.code}</code>
              </p>
              <blockquote>${failure.message}</blockquote>
              ${failure.advice === undefined ? nothing : html`<p>${failure.advice}</p>`}
            </div>`
      }
      ${
        wait === undefined
          ? nothing
          : html`<div class="words" data-state=${shown}>
              <p class="words-title">
                ${STATE_ICONS[shown]} ${shown === 'undecided' || isLookedAt(detail) ? 'It waits for your decision' : 'It waits'} since
                ${this.#time(wait.since)}
              </p>
              <blockquote>${wait.message}</blockquote>
              ${wait.before.map((earlier) => html`<p class="muted">Before that: ${earlier}</p>`)}
              ${shown === 'undecided' || isUntimed(wait) ? nothing : this.#nextTry(wait)}
              ${sooner === undefined || isLookedAt(detail) ? nothing : html`<p>${sooner}</p>`}
            </div>`
      }
      ${
        obstacle === undefined
          ? nothing
          : html`<div class="words" data-state="waiting">
              <p class="words-title">
                ${STATE_ICONS.waiting} Its results are not stored yet, since ${this.#time(obstacle.since)}
              </p>
              <blockquote>${obstacle.message}</blockquote>
              <p>It is tried again by itself.</p>
            </div>`
      }
      ${
        failedOutputs.length === 0
          ? nothing
          : html`<div class="words" data-state="waiting">
              <p class="words-title">Outputs that are missing</p>
              <ul>
                ${failedOutputs
                  .slice(0, 20)
                  .map(({ id, code, message }) => html`<li><code>${id}</code>: <code>${code}</code>. ${message}</li>`)}
              </ul>
              ${failedOutputs.length > 20 ? html`<p>And ${failedOutputs.length - 20} more: see the receipt.</p>` : nothing}
            </div>`
      }
      ${isCurrent ? nothing : html`<p class="note">Another version of ${row.first === undefined ? 'the file' : 'the first file of its chain'} is in the inbox by now, or none is.</p>`}
    `;
  }

  #nextTry({ reason, until, askedUntil }: Wait): TemplateResult {
    const isAsked = askedUntil !== undefined && Date.parse(askedUntil) > this.now;
    return html`
      ${isAsked ? html`<p>${ASKED_TO_WAIT} ${this.#time(askedUntil)}.</p>` : nothing}
      ${until === undefined ? (isAsked ? nothing : html`<p>Next try: every few seconds.</p>`) : html`<p>${atItsTimeWords(reason)}: ${this.#time(until)}.</p>`}
    `;
  }

  #actions({ actions: allowed, upload }: UploadDetail): TemplateResult | typeof nothing {
    const actions = (Object.keys(ACTION_WORDS) as (keyof typeof ACTION_WORDS)[]).filter((each) =>
      allowed.includes(each),
    );
    if (actions.length === 0) return nothing;
    return html`<div class="buttons actions">
      ${actions.map(
        (action) => html`<button
          type="button"
          class=${action === 'approve' || (action === 'retry' && upload.failure?.canRetryHelp === true) ? 'primary' : 'quiet'}
          @click=${() => this.tell('act', { action, detail: this.detail })}
        >
          ${ACTION_WORDS[action]}
        </button>`,
      )}
    </div>`;
  }

  /** @param decision buttons that stay in sight while the inputs are looked at. */
  #objects({ inputs, assets }: UploadDetail, decision: TemplateResult | typeof nothing = nothing): TemplateResult {
    const shown = assets.slice(0, this.assetsShown);
    const many = Math.max(inputs.length, assets.length);
    return html`<section class="objects" aria-labelledby="objects-title" data-assets=${Math.min(assets.length, 2)}>
      <div class="objects-head">
        <h3 id="objects-title">${assets.length === 0 ? 'Input' : 'Input and results'}</h3>
        ${decision}
      </div>
      <div class="object-grid">
        ${inputs.slice(0, this.assetsShown).map((input, at) => objectView(input, 'Input', at, inputs.length))}
        ${shown.map((asset, at) => objectView(asset, 'Result', at, assets.length))}
      </div>
      ${
        many > this.assetsShown
          ? html`<button type="button" class="quiet" @click=${this.#showMore}>
              Show ${Math.min(many - this.assetsShown, ASSETS_SHOWN)} more of ${many}
            </button>`
          : nothing
      }
    </section>`;
  }

  /** Where programs find the newest success, and which one is there. */
  #alias({ alias, upload, previous, receipt }: UploadDetail): TemplateResult | typeof nothing {
    if (alias === undefined) return nothing;
    const { pattern, flow, objects, missing } = alias;
    const own = upload.flow?.id;
    const earlier = previous.find((each) => each.id === upload.id && each.flow === flow)?.generation;
    const shows = flow === own ? 'the results above' : earlier === undefined ? `flow ${flow}` : `generation ${earlier}`;
    return html`<section class="alias" aria-labelledby="alias-title">
      <h3 id="alias-title">Alias</h3>
      <p>
        ${flow === undefined ? html`The newest success will be at <code>${pattern}</code>. Nothing is there yet.` : nothing}
        ${objects.length === 0 ? nothing : `It shows ${printable(shows)}, until a newer success comes.`}
        ${
          missing.length === 0
            ? nothing
            : `${printable(missing.join(', '))}: this does not show ${printable(shows)}. ${receipt?.aliasIssue ?? 'It is being put, or something else is there.'}`
        }
        ${upload.assets.length === 0 ? nothing : this.#aliasButton('Have it show the results above', own, missing.length > 0 ? undefined : flow)}
      </p>
      ${this.moving === undefined || this.moving === 'busy' ? nothing : html`<p class="note problem" role="alert">${this.moving}</p>`}
      <dl class="facts">
        ${objects.slice(0, this.assetsShown).map(
          ({ key, url }, at) => html`<div class="fact">
            <dt>${objects.length === 1 ? 'Address' : `Address ${at + 1} of ${objects.length}`}</dt>
            <dd><a href="${url}&download" download><code>${printable(key)}</code></a></dd>
            <dd class="fact-copy"><copy-button .text=${`s3://${upload.results.bucket}/${key}`} .label=${'the alias'}></copy-button></dd>
          </div>`,
        )}
      </dl>
    </section>`;
  }

  /** @param flow one with results. @param shown the flow that the aliases show. */
  #aliasButton(words: string, flow: string | undefined, shown: string | undefined): TemplateResult | typeof nothing {
    if (flow === undefined || flow === shown) return nothing;
    return html`<button type="button" class="quiet small move-alias" ?disabled=${this.moving === 'busy'} @click=${() => this.#moveAlias(flow)}>
      ${words}
    </button>`;
  }

  async #moveAlias(flow: string): Promise<void> {
    const { uploadId } = this;
    this.moving = 'busy';
    const problem = await moveAlias({ upload: uploadId, flow }).then(() => undefined, messageOf);
    this.tell('say', problem ?? 'The alias shows it now');
    if (uploadId !== this.uploadId) return;
    this.moving = problem;
    void this.#load();
  }

  /** The generations before, the latest first: with what each was made, beside what came of it. */
  #generations({ previous, alias, upload }: UploadDetail): TemplateResult | typeof nothing {
    if (previous.length === 0) return nothing;
    return html`<section class="objects" aria-labelledby="generations-title">
      <h3 id="generations-title">Earlier generations</h3>
      ${previous.toReversed().map(
        ({ objects, ...each }) => html`
          <h4>${generationName(each)}</h4>
          <dl class="facts">${factsOfGeneration(each).map(([name, text]) => fact(name, text))}</dl>
          ${alias === undefined || each.id !== upload.id || each.assetCount === 0 || upload.endedAt === undefined ? nothing : this.#aliasButton('Have the alias show these', each.flow, alias.flow)}
          <div class="object-grid">
            ${objects.map((object, at) => objectView(object, `${generationName(each)}, result`, at, objects.length))}
          </div>
        `,
      )}
    </section>`;
  }

  #timeline(steps: readonly Step[]): TemplateResult {
    return html`<section aria-labelledby="timeline-title">
      <h3 id="timeline-title">Timeline</h3>
      <ol class="timeline" role="list">
        ${steps.map(
          ({ kind, at, text, until, isNow }) => html`<li data-kind=${kind} aria-current=${isNow ? 'step' : nothing}>
            <span class="mark">${isNow ? shapeOf(kind) : shapeOfEnded(kind)}</span>
            <div>
              <p class="step-title">
                <strong>${STEP_WORDS[kind]}</strong>
                ${isNow && UNDER_WAY.includes(kind) ? html`<span class="now">Now</span>` : nothing}
                ${at === undefined ? nothing : html`<span class="muted">${this.#time(at)}</span>`}
              </p>
              <p class="step-text">${text}</p>
              ${
                until === undefined
                  ? nothing
                  : html`<p class="muted">
                      ${kind === 'claimed' ? 'At the latest until' : 'Next attempt due'} ${this.#time(until)}
                    </p>`
              }
            </div>
          </li>`,
        )}
      </ol>
    </section>`;
  }

  #facts({ upload, assets, receipt, command }: UploadDetail): TemplateResult {
    return html`<section aria-labelledby="facts-title">
      <h3 id="facts-title">Details</h3>
      <dl class="facts">
        ${fact('Key', upload.key)}
        ${fact('Upload id', upload.id)}
        ${fact('Template', upload.template)}
        ${upload.flow === undefined ? nothing : fact('Flow', upload.flow.id)}
        ${upload.parameters === undefined ? nothing : fact('Parameters', JSON.stringify(upload.parameters))}
        ${upload.generation > 1 ? fact('Generation', String(upload.generation)) : nothing}
        ${upload.revision === undefined ? nothing : fact('Revision', [upload.revision.name, upload.revision.hash].join(' ').trim())}
        ${upload.price === undefined ? nothing : fact('Price', amountText(upload.price.amount, upload.price.currency))}
        ${assets.slice(0, this.assetsShown).map(({ key, sha256 }, at) => {
          const which = assets.length === 1 ? 'the result' : `result ${at + 1}`;
          const address = `s3://${upload.results.bucket}/${key}`;
          return html`${fact(`Address of ${which}`, address)}${fact(`SHA-256 of ${which}`, sha256)}`;
        })}
        ${fact('Fetch all results', command.get)}${fact('In a shell', command.status)}
      </dl>
      ${receipt === undefined ? nothing : this.#receipt(receipt)}
    </section>`;
  }

  #receipt(receipt: object): TemplateResult {
    const text = printableJson(receipt);
    // biome-ignore format: the text begins and ends exactly at the tags
    return html`<details class="receipt">
      <summary>Receipt</summary>
      <copy-button .text=${text} .label=${'the receipt'}></copy-button>
      <pre class="text" tabindex="0" aria-label="Receipt">${text}</pre>
    </details>`;
  }

  #time(iso: string): TemplateResult {
    return html`<time datetime=${iso} title=${fullTime(iso)}>${clockTime(iso, this.now)}</time>`;
  }

  #hear = ({ detail }: CustomEvent<ServiceAnswer>): void => {
    this.service = detail;
  };

  #showMore = (): void => {
    this.assetsShown += ASSETS_SHOWN;
  };

  #leave = (event: Event): void => {
    event.preventDefault();
    this.tell('leave');
  };
}

/** True if an operator looks at its inputs, and decides beside them. */
const isLookedAt = ({ upload }: UploadDetail): boolean => upload.wait?.ending === 'look';

const badge = (state: RowState): TemplateResult =>
  html`<span class="badge" data-state=${state}>${STATE_ICONS[state]}${STATE_WORDS[state]}</span>`;

const objectView = (object: StoredObject, word: string, at: number, of: number): TemplateResult =>
  html`<stored-object .object=${object} .label=${of === 1 ? word : `${word} ${at + 1} of ${of}`}></stored-object>`;

const generationName = ({ generation, from }: Pick<UploadDetail['previous'][number], 'generation' | 'from'>): string =>
  `Generation ${generation}${from === undefined ? '' : `, from ${printable(from)}`}`;

/** With what a generation was made, and what came of it. */
function factsOfGeneration(each: Generation): readonly (readonly [string, string])[] {
  const { template, parameters, revision, price, arrivedAt, endedAt, assetCount, bytes } = each;
  const took = endedAt === undefined ? [] : [['Took', duration(Date.parse(endedAt) - Date.parse(arrivedAt))] as const];
  return [
    ['Template', template],
    ...(parameters === undefined ? [] : [['Parameters', JSON.stringify(parameters)] as const]),
    ...(revision === undefined ? [] : [['Revision', [revision.name, revision.hash].join(' ').trim()] as const]),
    ...(price === undefined ? [] : [['Price', amountText(price.amount, price.currency)] as const]),
    ...took,
    ['Results', `${assetCount}, ${size(bytes)}`],
  ];
}

function fact(name: string, text: string): TemplateResult {
  const value = printable(text);
  return html`<div class="fact">
    <dt>${name}</dt>
    <dd><code>${value}</code></dd>
    <dd class="fact-copy"><copy-button .text=${value} .label=${name}></copy-button></dd>
  </div>`;
}

/** A step looks like the state that it leads to. */
function shapeOf(kind: StepKind): TemplateResult {
  switch (kind) {
    case 'put':
    case 'arrived':
      return ICONS.dot;
    case 'outputs':
      return STATE_ICONS.succeeded;
    case 'receipt':
      return ICONS.receipt;
    default:
      return STATE_ICONS[kind];
  }
}

/** What was under way and is over does not turn any more. */
const shapeOfEnded = (kind: StepKind): TemplateResult => (UNDER_WAY.includes(kind) ? ICONS.dot : shapeOf(kind));

customElements.define('upload-detail', UploadDetailView);
