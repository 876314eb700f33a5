import { html, nothing, type TemplateResult } from 'lit';
import type { About, Status } from '../api.ts';
import type { Connection } from './feed.ts';
import { ICONS } from './icons.ts';
import { LightElement } from './light-element.ts';
import { count, fullTime, timeAgo } from './words.ts';

/** A tick comes every minute. After three without one, the header says so. */
const TICK_LATE_MS = 3 * 60_000;

const CONNECTION_WORDS: Readonly<Record<Connection, string>> = {
  connecting: 'Connecting',
  live: 'Live',
  lost: 'Reconnecting',
  'no-access': 'No access',
};

/** How the pipeline is doing, at a glance. Tells `examine` if the user wants to know more. */
export class PageHeader extends LightElement {
  static override readonly properties = {
    about: { attribute: false },
    status: { attribute: false },
    connection: { attribute: false },
    now: { attribute: false },
  };
  declare about: About | undefined;
  declare status: Status | undefined;
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
      <dl class="figures">${status === undefined ? nothing : this.#figures(status)}</dl>
      <div class="header-actions">
        <span class="connection" data-connection=${connection}>
          <span class="dot" aria-hidden="true"></span>${CONNECTION_WORDS[connection]}
        </span>
        <button type="button" class="quiet" @click=${() => this.tell('examine')}>${ICONS.pulse} Check</button>
      </div>
    `;
  }

  #figures(status: Status): readonly (TemplateResult | typeof nothing)[] {
    const { waiting, running, failed, collectors } = status;
    const pace = Math.min(...collectors.map(({ requestsPerSecond }) => requestsPerSecond ?? Number.POSITIVE_INFINITY));
    const lastTick = collectors
      .flatMap(({ tickCompletedAt }) => tickCompletedAt ?? [])
      .toSorted()
      .at(-1);
    const isLate = lastTick !== undefined && this.now - Date.parse(lastTick) > TICK_LATE_MS;
    return [
      status.isPaused === true ? figure('Pipeline', 'Paused', { isBad: true }) : nothing,
      figure('Waiting', count(waiting.count + status.queue.visible)),
      figure('Running', count(running.count)),
      figure('Failed in 24 h', count(failed.count), { isBad: failed.count > 0 }),
      figure('Pace', Number.isFinite(pace) ? `${pace < 10 ? pace.toFixed(1) : Math.round(pace)}/s` : 'Free', {
        title: Number.isFinite(pace) ? 'Requests a second that the service allows' : 'The service sets no limit',
      }),
      figure('Last tick', lastTick === undefined ? '–' : timeAgo(lastTick, this.now), {
        isBad: isLate,
        ...(lastTick !== undefined && { title: fullTime(lastTick) }),
      }),
    ];
  }
}

function figure(
  label: string,
  value: string,
  { isBad = false, title }: { readonly isBad?: boolean; readonly title?: string } = {},
): TemplateResult {
  return html`<div class=${isBad ? 'figure bad' : 'figure'} title=${title ?? nothing}>
    <dt>${label}</dt>
    <dd>${value}</dd>
  </div>`;
}

customElements.define('page-header', PageHeader);
