import { html, nothing, type TemplateResult } from 'lit';
import { printable } from '../../functions/base/printable.ts';
import { sharesText } from '../../operations/cost-texts.ts';
import type { About, BudgetView, CostRow, Costs, HoldRequest, HoldView, Status } from '../api.ts';
import type { Connection } from './feed.ts';
import { countHeld } from './hold-dialog.ts';
import { ICONS } from './icons.ts';
import { LightElement } from './light-element.ts';
import { clockTime, count, fullTime, money, paidTwice, plural, timeAgo } from './words.ts';

/** A tick comes every minute. After three without one, the header says so. */
const TICK_LATE_MS = 3 * 60_000;

const QUEUE_TITLE = 'Uploads that no function has received yet. The list shows them from then on.';

const FAILING_TODO =
  'If the route is wrong, deploy the corrected one. The bulk goes on after a success, or when you resume it. New files are sent as before.';

const CONNECTION_WORDS: Readonly<Record<Connection, string>> = {
  connecting: 'Connecting',
  live: 'Live',
  lost: 'Reconnecting',
  'no-access': 'No access',
};

/**
 * How the pipeline is doing, at a glance. Tells `examine` or `show-costs` if the user wants to know more, and
 * `change-hold` with what is to be paused or to go on.
 */
export class PageHeader extends LightElement {
  static override readonly properties = {
    about: { attribute: false },
    status: { attribute: false },
    costs: { attribute: false },
    connection: { attribute: false },
    now: { attribute: false },
  };
  declare about: About | undefined;
  declare status: Status | undefined;
  /** Undefined if nothing is counted, or it is not known yet. */
  declare costs: Costs | undefined;
  declare connection: Connection;
  declare now: number;

  protected override render(): TemplateResult {
    const { about, status, connection } = this;
    return html`
      <div class="brand">
        <img src="/assets/icon.svg" alt="" width="32" height="32" />
        <div>
          <h1>Flowdrop</h1>
          <p class="muted">${about?.deployment ?? nothing}</p>
        </div>
      </div>
      <div class="figures">${status === undefined ? nothing : this.#figures(status)}</div>
      <div class="header-actions">
        <span class="connection" data-connection=${connection}>
          <span class="dot" aria-hidden="true"></span>${CONNECTION_WORDS[connection]}
        </span>
        ${this.#pauseButton()}
        <button type="button" class="quiet" @click=${() => this.tell('examine')}>${ICONS.pulse} Check</button>
      </div>
      ${this.#holdNotes()}
    `;
  }

  /** One button for both, which keeps the keyboard when the pause begins or ends. */
  #pauseButton(): TemplateResult | typeof nothing {
    const { status } = this;
    if (status === undefined) return nothing;
    const isPaused = status.holds.holds.some(({ reason, route }) => reason === 'paused' && route === undefined);
    const waiting = countHeld(status, undefined);
    const resume = waiting === 0 ? 'Resume…' : `Resume: pay for up to ${plural(waiting, 'upload')}…`;
    return html`<button
      type="button"
      class=${isPaused ? 'primary' : 'quiet'}
      @click=${() => this.#tellChange({ action: isPaused ? 'resume' : 'pause' })}
    >
      ${isPaused ? ICONS.resume : ICONS.pause} ${isPaused ? resume : 'Pause…'}
    </button>`;
  }

  #tellChange(request: HoldRequest): void {
    this.tell('change-hold', request);
  }

  #holdNotes(): TemplateResult | typeof nothing {
    const { status } = this;
    const { holds = [], issue } = status?.holds ?? {};
    if (status === undefined || (holds.length === 0 && issue === undefined)) return nothing;
    return html`<ul class="hold-notes">
      ${issue === undefined ? nothing : html`<li>${issue}</li>`} ${holds.map((hold) => this.#holdNote(hold, status))}
    </ul>`;
  }

  #holdNote({ reason, route, message, since, endsAt }: HoldView, { waiting }: Status): TemplateResult {
    const count = waiting.held
      .filter((each) => each.reason === reason && (route === undefined || each.route === route))
      .reduce((sum, each) => sum + each.count, 0);
    const more = waiting.isSample ? ' or more' : '';
    return html`<li data-reason=${reason}>
      <p>
        <strong>${message}</strong>
        ${since === undefined ? nothing : html`Since ${this.#time(since)}.`}
        ${count === 0 ? nothing : `${plural(count, 'file')}${more} ${count === 1 ? 'waits' : 'wait'}.`}
        ${reason === 'paused' ? 'Results are collected as before.' : nothing}
        ${reason === 'budget' && endsAt !== undefined ? html`It goes on at ${this.#time(endsAt)}, or with a higher budget.` : nothing}
        ${reason === 'failing' ? FAILING_TODO : nothing}
      </p>
      ${
        route === undefined || reason === 'budget'
          ? nothing
          : html`<button
              type="button"
              class="quiet"
              @click=${() => this.#tellChange({ action: 'resume', route })}
            >
              Resume ${route}…
            </button>`
      }
    </li>`;
  }

  #time(iso: string): TemplateResult {
    return html`<time datetime=${iso} title=${fullTime(iso)}>${clockTime(iso, this.now)}</time>`;
  }

  /** A few numbers, which are always there. The others are behind a button, so that none wraps or moves another one. */
  #figures(status: Status): TemplateResult {
    const { holds, queue, waiting, running, failed, collectors } = status;
    const pace = Math.min(...collectors.map(({ requestsPerSecond }) => requestsPerSecond ?? Number.POSITIVE_INFINITY));
    const lastTick = collectors
      .flatMap(({ tickCompletedAt }) => tickCompletedAt ?? [])
      .toSorted()
      .at(-1);
    const isLate = lastTick !== undefined && this.now - Date.parse(lastTick) > TICK_LATE_MS;
    const [today, ...lately] = this.#costFigures();
    const isSpent = holds.budgets.some(({ percent }) => percent >= 100);
    const others = [
      figure('In the queue', count(queue.visible), { title: QUEUE_TITLE }),
      ...holds.budgets.map((budget) => budgetFigure(budget)),
      ...lately,
      figure('Pace', Number.isFinite(pace) ? `${pace < 10 ? pace.toFixed(1) : Math.round(pace)}/s` : 'No limit', {
        title: Number.isFinite(pace) ? 'Requests a second that the service allows' : 'No limit is known',
      }),
      figure('Last tick', lastTick === undefined ? '–' : timeAgo(lastTick, this.now), {
        isBad: isLate,
        ...(lastTick !== undefined && { title: fullTime(lastTick) }),
      }),
    ];
    return html`
      <dl class="figures-few">
        ${figure('Waiting', count(waiting.count))} ${figure('Running', count(running.count))}
        ${figure('Failed in 24 h', count(failed.count), { isBad: failed.count > 0 })} ${today ?? nothing}
      </dl>
      <details class=${isLate || isSpent ? 'figures-more bad' : 'figures-more'}>
        <summary>More numbers</summary>
        <dl>${others}</dl>
      </details>
    `;
  }

  /** What was spent, with a button that shows more. Without a price, the number of flows. */
  #costFigures(): readonly TemplateResult[] {
    const { costs } = this;
    if (costs === undefined) return [];
    const currencies = Object.keys(costs.lately.total.amounts);
    const what = currencies.length === 0 ? 'Flows' : 'Spent';
    const nothingSpent = Object.fromEntries(currencies.map((currency) => [currency, 0]));
    return [
      { label: `${what} today`, view: costs.today },
      { label: `${what} in 30 days`, view: costs.lately },
    ].map(({ label, view: { rows, total } }) => {
      const words = money(total.flows > 0 ? total : { flows: 0, amounts: nothingSpent });
      const button = html`<button
        type="button"
        aria-haspopup="dialog"
        aria-label=${`${label}: ${told(words, total)}. Show it by route`}
        @click=${() => this.tell('show-costs')}
      >
        ${words}
      </button>`;
      const routes = rows.map((row) => `${printable(row.name)}: ${told(money(row), row)}`);
      return figure(label, button, routes.length === 0 ? {} : { title: routes.join('\n') });
    });
  }
}

const told = (words: string, row: CostRow): string => [words, paidTwice(row) ?? []].flat().join(', ');

function budgetFigure(budget: BudgetView): TemplateResult {
  const { route, percent, period, timezone, endsAt } = budget;
  const title = `${sharesText(budget)} in ${period} (${timezone}), which ends ${fullTime(endsAt)}`;
  return figure(route === undefined ? 'Budget' : `Budget of ${route}`, `${percent}%`, { isBad: percent >= 100, title });
}

function figure(
  label: string,
  value: string | TemplateResult,
  { isBad = false, title }: { readonly isBad?: boolean; readonly title?: string } = {},
): TemplateResult {
  return html`<div class=${isBad ? 'figure bad' : 'figure'} title=${title ?? nothing}>
    <dt>${label}</dt>
    <dd>${value}</dd>
  </div>`;
}

customElements.define('page-header', PageHeader);
