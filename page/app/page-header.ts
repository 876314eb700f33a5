import { html, nothing, type TemplateResult } from 'lit';
import type { About, Status } from '../api.ts';
import type { Connection } from './feed.ts';
import { ICONS } from './icons.ts';
import { LightElement } from './light-element.ts';
import { clockTime, count, fullTime, plural, timeAgo } from './words.ts';

/** A tick comes every minute. After three without one, the header says so. */
const TICK_LATE_MS = 3 * 60_000;

const QUEUE_TITLE = 'Uploads that no function has received yet. The list shows them from then on.';

const CONNECTION_WORDS: Readonly<Record<Connection, string>> = {
  connecting: 'Connecting',
  live: 'Live',
  lost: 'Reconnecting',
  'no-access': 'No access',
};

/**
 * How the pipeline is doing, at a glance. Tells `examine` if the user wants to know more, and `change-intake` with
 * `pause` or `resume`.
 */
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
        ${this.#intakeButton()}
        <button type="button" class="quiet" @click=${() => this.tell('examine')}>${ICONS.pulse} Check</button>
      </div>
      ${this.#pauseNote()}
    `;
  }

  /** One button for both, which keeps the keyboard when the pause begins or ends. */
  #intakeButton(): TemplateResult | typeof nothing {
    const { intake, queue } = this.status ?? {};
    if (intake === undefined) return nothing;
    const { state } = intake;
    const change = state === 'on' ? 'pause' : 'resume';
    const isChanging = state !== 'on' && state !== 'paused';
    const waiting = queue?.visible ?? 0;
    const words = {
      on: 'Pause…',
      paused: waiting === 0 ? 'Resume…' : `Resume: pay for up to ${plural(waiting, 'upload')}…`,
      pausing: 'Pausing…',
      resuming: 'Resuming…',
      changing: 'Changing…',
    }[state];
    return html`<button
      type="button"
      class=${state === 'paused' ? 'primary' : 'quiet'}
      aria-disabled=${isChanging || nothing}
      @click=${() => isChanging || this.tell('change-intake', change)}
    >
      ${state === 'on' ? ICONS.pause : state === 'paused' ? ICONS.resume : nothing} ${words}
    </button>`;
  }

  #pauseNote(): TemplateResult | typeof nothing {
    const { intake, queue } = this.status ?? {};
    if (intake?.state !== 'paused') return nothing;
    const { since, isByUser } = intake;
    const waiting = queue?.visible ?? 0;
    return html`<p class="pause-note">
      <strong>
        New flows are paused${since === undefined ? nothing : html` (since <time datetime=${since} title=${fullTime(since)}>${clockTime(since, this.now)}</time>)`}.
      </strong>
      ${isByUser ? nothing : 'Lambda itself stopped reading the queue. For details, press Check.'}
      ${
        waiting === 0
          ? 'New files wait in the queue.'
          : `${plural(waiting, 'upload waits', 'uploads wait')} in the queue, and may be paid for when you resume. The list shows them from then on.`
      }
      Results are collected as before.
    </p>`;
  }

  #figures(status: Status): readonly TemplateResult[] {
    const { queue, waiting, running, failed, collectors } = status;
    const pace = Math.min(...collectors.map(({ requestsPerSecond }) => requestsPerSecond ?? Number.POSITIVE_INFINITY));
    const lastTick = collectors
      .flatMap(({ tickCompletedAt }) => tickCompletedAt ?? [])
      .toSorted()
      .at(-1);
    const isLate = lastTick !== undefined && this.now - Date.parse(lastTick) > TICK_LATE_MS;
    return [
      ...(queue.visible > 0 ? [figure('In the queue', count(queue.visible), { title: QUEUE_TITLE })] : []),
      figure('Waiting', count(waiting.count)),
      figure('Running', count(running.count)),
      figure('Failed in 24 h', count(failed.count), { isBad: failed.count > 0 }),
      figure('Pace', Number.isFinite(pace) ? `${pace < 10 ? pace.toFixed(1) : Math.round(pace)}/s` : 'No limit', {
        title: Number.isFinite(pace) ? 'Requests a second that the service allows' : 'No limit is known',
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
