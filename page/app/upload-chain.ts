import { html, nothing, type PropertyValues, type TemplateResult } from 'lit';
import { printable } from '../../functions/base/printable.ts';
import { isTerminalState } from '../../functions/ledger/terminal-states.ts';
import type { About, PlanRequest, RowState, ShownChain, UploadRow } from '../api.ts';
import { STATE_ICONS } from './icons.ts';
import { LightElement } from './light-element.ts';
import { getChain, messageOf } from './server.ts';
import { clockTime, duration, fullTime, plural, STATE_WORDS } from './words.ts';

/**
 * Time until a chain is read again whose uploads have all ended, in milliseconds. It hears of an end a moment after the
 * entry that the list shows.
 */
const SETTLE_MS = 1_500;

/** Time after which a file that succeeded has surely begun its later stages, in milliseconds. */
const BEGUN_MS = 10_000;

type Line = ShownChain['tree'];
type Node = Extract<Line, { kind: 'upload' }>['node'];

/** The chain of an upload as a tree of links, with what can be done with all of it. Empty if it is part of none. */
export class UploadChain extends LightElement {
  static override readonly properties = {
    uploadId: { attribute: false },
    row: { attribute: false },
    rows: { attribute: false },
    about: { attribute: false },
    now: { attribute: false },
    chain: { state: true },
    answeredId: { state: true },
    problem: { state: true },
  };
  /** The upload that is open. */
  declare uploadId: string;
  declare row: UploadRow | undefined;
  declare rows: readonly UploadRow[];
  declare about: About | undefined;
  declare now: number;
  declare chain: ShownChain | undefined;
  /** The upload whose chain, or that it has none, was read last. */
  declare answeredId: string | undefined;
  declare problem: string | undefined;
  /** What the list said of the uploads of the chain when it was read. */
  #read = '';
  #timer: number | undefined;
  #isLoading = false;

  protected override willUpdate(changed: PropertyValues): void {
    if (!changed.has('uploadId') && !changed.has('rows') && !changed.has('row')) return;
    const first = this.#firstId();
    if (this.chain !== undefined && this.chain.first.id !== first) this.chain = undefined;
    const ofChain = this.rows.filter((row) => row.id === first || row.first?.id === first);
    const seen = [
      first,
      ...ofChain.map(({ id, state, wait, arrivedAt }) => `${id} ${state} ${wait?.message} ${arrivedAt}`),
    ];
    if (seen.join() === this.#read) return;
    this.#read = seen.join();
    void this.#load();
  }

  override disconnectedCallback(): void {
    super.disconnectedCallback();
    window.clearTimeout(this.#timer);
  }

  /** An upload that is older than the list has no row until its detail is there. */
  #firstId(): string {
    const isInChain = this.chain !== undefined && idsIn(this.chain.tree).includes(this.uploadId);
    return isInChain && this.chain !== undefined ? this.chain.first.id : (this.row?.first?.id ?? this.uploadId);
  }

  /** One request at a time: the uploads of a stage may end in one burst, and a chain may have thousands. */
  async #load(): Promise<void> {
    window.clearTimeout(this.#timer);
    if (this.#isLoading) return;
    this.#isLoading = true;
    const { uploadId } = this;
    const read = this.#read;
    const answer = await getChain(uploadId).catch((error: unknown) => messageOf(error));
    this.#isLoading = false;
    if (!this.isConnected) return;
    if (read !== this.#read) return this.#load();
    // The detail says it if the upload is gone.
    this.problem = typeof answer === 'string' && this.chain !== undefined ? answer : undefined;
    if (typeof answer === 'string') return;
    this.chain = answer.chain;
    this.answeredId = uploadId;
    if (answer.chain?.state === 'under way' && !hasUnderWay(answer.chain.tree)) {
      this.#timer = window.setTimeout(() => void this.#load(), SETTLE_MS);
    }
  }

  protected override render(): TemplateResult | typeof nothing {
    const { chain, problem } = this;
    // A file without later stages looks as ever.
    if (chain === undefined || chain.tree.branches.length === 0) return this.#added();
    const { tree, isSample, generation } = chain;
    const state = stateOf(chain);
    return html`<section class="chain" aria-labelledby="chain-title">
      <h3 id="chain-title">
        Chain
        <span class="chain-state" data-state=${shapeOf(state)}>${STATE_ICONS[shapeOf(state)]}${wordOf(state)}</span>
        <span class="muted">${this.#facts(chain)}</span>
      </h3>
      <ol class="chain-tree" role="list">${this.#line(tree)}</ol>
      ${isSample ? html`<p class="muted">More uploads are under way. What they wait for was not read.</p>` : nothing}
      ${generation > 1 ? html`<p class="muted">Stages were made anew or added ${plural(generation - 1, 'time')}.</p>` : nothing}
      ${problem === undefined ? nothing : html`<p class="note problem">${problem}</p>`}
      ${this.#actions(chain)}
    </section>`;
  }

  #facts({ tree, stages, endedAt }: ShownChain): string {
    const count = stages.length + withheldIn(tree).length;
    const took = endedAt !== undefined && tree.kind === 'upload' ? spanOf(tree.node.arrivedAt, endedAt) : undefined;
    return [plural(count, 'stage'), ...(took === undefined ? [] : [`took ${took}`])].join(' · ');
  }

  #line(line: Line): TemplateResult {
    return html`<li>
      ${this.#content(line)}
      ${line.branches.length === 0 ? nothing : html`<ol role="list">${line.branches.map((each) => this.#line(each))}</ol>`}
    </li>`;
  }

  #content(line: Line): TemplateResult {
    switch (line.kind) {
      case 'upload':
        return this.#upload(line.node);
      case 'summary': {
        const counts = Object.entries(line.counts).map(([state, many]) => `${many} ${wordOf(state).toLowerCase()}`);
        const state = Object.keys(line.counts).find((each) => each !== 'succeeded') ?? 'succeeded';
        return stageLine(line.route, shapeOf(state), `${plural(line.uploads, 'upload')}: ${counts.join(', ')}`);
      }
      case 'more':
        return html`<p class="muted">And ${line.failed} more that failed</p>`;
      case 'withheld':
        return stageLine(line.route, 'undecided', `did not begin after ${line.after}`, line.why);
    }
  }

  /** One upload: a link that opens it, with its input, its results and its models. */
  #upload(node: Node): TemplateResult {
    const { id, route, state, since, reason, assets, takes, arrivedAt } = node;
    const hasEnded = isEnd(state);
    const when = hasEnded ? `took ${spanOf(arrivedAt, since)}` : `for ${duration(this.now - Date.parse(since))}`;
    const said = [
      ...(assets === 0 ? [] : [plural(assets, 'result')]),
      ...(takes ? [`takes all of ${printable(takes.route)}: ${plural(takes.assets, 'asset')}`] : []),
    ];
    return html`<a
      class="chain-node"
      href="#/uploads/${encodeURIComponent(id)}"
      data-state=${shapeOf(state)}
      aria-current=${id === this.uploadId ? 'true' : nothing}
    >
      <span class="state-icon">${STATE_ICONS[shapeOf(state)]}</span>
      <span class="chain-words">
        <span class="chain-name">
          <strong>${printable(route)}</strong>
          <span class="state-word">${wordOf(state)}</span>
          <span class="muted">${said.map((each) => `${each} · `)}<time datetime=${since} title=${fullTime(since)}>${when}</time>${hasEnded ? ` · ${clockTime(since, this.now)}` : nothing}</span>
        </span>
        ${reason === undefined ? nothing : html`<span class="chain-reason">${printable(reason)}</span>`}
      </span>
    </a>`;
  }

  #actions({ first, state, tree, stages }: ShownChain): TemplateResult {
    const tell = (request: Omit<PlanRequest, 'chain'>) => () =>
      this.tell('act-on-chain', { ...request, chain: first.id } satisfies PlanRequest);
    const isUnderWay = state === 'under way';
    const canRetry = !isUnderWay && hasFailure(tree);
    const looked = this.rows.find((row) => row.first?.id === first.id && row.wait?.reason === 'review');
    return html`<div class="chain-actions">
      ${looked === undefined || looked.id === this.uploadId ? nothing : html`<a class="button primary" href="#/uploads/${encodeURIComponent(looked.id)}">Look at what waits for approval</a>`}
      ${canRetry ? html`<button type="button" class="primary" @click=${tell({ action: 'retry' })}>Retry what failed in the chain…</button>` : nothing}
      ${isUnderWay ? html`<button type="button" class="quiet" @click=${tell({ action: 'cancel' })}>Cancel the chain…</button>` : nothing}
      ${isUnderWay ? nothing : this.#stages('Make anew, with all stages after it:', stages, first.id)}
      ${isUnderWay ? nothing : this.#stages('Begin, with all stages after it:', this.#unbegun(stages, tree), first.id)}
    </div>`;
  }

  /** The stages that were added to the routes after a file had succeeded. */
  #added(): TemplateResult | typeof nothing {
    const { row, about } = this;
    if (row?.state !== 'succeeded' || row.first !== undefined || this.answeredId !== row.id) return nothing;
    if (this.now < Date.parse(row.endedAt ?? '') + BEGUN_MS) return nothing;
    const added = (about?.routes ?? []).filter(({ after }) => after === row.route);
    return this.#stages(
      'Begin from its results:',
      added.map(({ name }) => name),
      row.id,
    );
  }

  /** A button for each of some stages. */
  #stages(label: string, names: readonly string[], chain: string): TemplateResult | typeof nothing {
    if (names.length === 0) return nothing;
    const tell = (from: string) => () =>
      this.tell('act-on-chain', { action: 'again', from, chain } satisfies PlanRequest);
    return html`<div class="chain-anew" role="group" aria-label=${label}>
      <span class="muted">${label}</span>
      ${names.map((name) => html`<button type="button" class="quiet small" @click=${tell(name)}>${printable(name)}…</button>`)}
    </div>`;
  }

  /** The stages that were withheld, and those that the routes have by now. */
  #unbegun(stages: readonly string[], tree: Line): readonly string[] {
    const names = new Set([...stages, ...withheldIn(tree)]);
    const routes = this.about?.routes ?? [];
    for (const name of names) {
      // What is added while a set is walked through is walked through too.
      for (const route of routes) if (route.after === name) names.add(route.name);
    }
    return [...names].filter((name) => !stages.includes(name));
  }
}

const withheldIn = ({ branches }: Line): readonly string[] =>
  branches.flatMap((line) => [...(line.kind === 'withheld' ? [line.route] : []), ...withheldIn(line)]);

const idsIn = (line: Line): readonly string[] => [
  ...(line.kind === 'upload' ? [line.node.id] : []),
  ...line.branches.flatMap(idsIn),
];

const some = (line: Line, is: (state: string) => boolean): boolean =>
  (line.kind === 'upload' && is(line.node.state)) ||
  (line.kind === 'summary' && Object.keys(line.counts).some(is)) ||
  line.branches.some((each) => some(each, is));

const isEnd = (state: string): boolean => isTerminalState(state) || state === 'replaced';
const hasUnderWay = (line: Line): boolean => some(line, (state) => !isEnd(state));
/** A chain of which nothing goes on waits. */
const stateOf = ({ state, tree }: ShownChain): string =>
  state === 'under way' && hasUnderWay(tree) && !some(tree, (each) => !isEnd(each) && each !== 'waiting')
    ? 'waiting'
    : state;
const hasFailure = (line: Line): boolean => some(line, (state) => state === 'failed');

/** `under way`: its entry was not read. It looks as if it runs. */
const shapeOf = (state: string): RowState => (state in STATE_WORDS ? (state as RowState) : 'running');
const wordOf = (state: string): string => (state in STATE_WORDS ? STATE_WORDS[state as RowState] : 'Under way');

const spanOf = (from: string, to: string): string => duration(Date.parse(to) - Date.parse(from));

function stageLine(route: string, state: RowState, said: string, reason?: string): TemplateResult {
  return html`<div class="chain-node" data-state=${state}>
    <span class="state-icon">${STATE_ICONS[state]}</span>
    <span class="chain-words">
      <span class="chain-name"><strong>${printable(route)}</strong> <span class="muted">${said}</span></span>
      ${reason === undefined ? nothing : html`<span class="chain-reason">${printable(reason)}</span>`}
    </span>
  </div>`;
}

customElements.define('upload-chain', UploadChain);
