import { html, svg, type TemplateResult } from 'lit';
import type { RowState } from '../api.ts';

const drawn = (content: TemplateResult, name = ''): TemplateResult =>
  html`<svg class="icon ${name}" viewBox="0 0 20 20" aria-hidden="true" focusable="false">${content}</svg>`;

const RING = svg`<circle cx="10" cy="10" r="7.25" />`;

/** Each state has a shape of its own, so that it is recognised without its colour. */
export const STATE_ICONS: Readonly<Record<RowState, TemplateResult>> = {
  waiting: drawn(svg`${RING}<path d="M10 6v4.2l2.8 1.7" />`),
  undecided: drawn(svg`<path d="M10 2.6 17.6 16.4H2.4Z" /><path d="M10 8v3.6M10 13.9v.2" />`),
  claimed: drawn(svg`${RING}<path d="M10 13.4V6.8M7.3 9.3 10 6.6l2.7 2.7" />`),
  running: drawn(
    svg`<circle class="track" cx="10" cy="10" r="7.25" /><path class="turning" d="M10 2.75A7.25 7.25 0 0 1 17.25 10" />`,
  ),
  succeeded: drawn(
    svg`<circle class="filled" cx="10" cy="10" r="8" /><path class="on-filled" d="m6.6 10.3 2.3 2.3 4.6-5" />`,
  ),
  replaced: drawn(svg`${RING}<path d="M7 8.2h6L11.2 6.4M13 11.8H7l1.8 1.8" />`),
  failed: drawn(
    svg`<rect class="filled" x="2" y="2" width="16" height="16" rx="4" /><path class="on-filled" d="m7 7 6 6m0-6-6 6" />`,
  ),
};

export const ICONS = {
  dot: drawn(svg`<circle cx="10" cy="10" r="3.5" />`),
  receipt: drawn(svg`<path d="M5 2.8h10v14.4l-2.5-1.5L10 17.2l-2.5-1.5L5 17.2Z" /><path d="M8 7h4M8 10.5h4" />`),
  drop: drawn(svg`<path d="M10 2.5v9M6.2 7.9 10 11.7l3.8-3.8M3 13.2v2.3a2 2 0 0 0 2 2h10a2 2 0 0 0 2-2v-2.3" />`),
  back: drawn(svg`<path d="M12 4.5 6.5 10l5.5 5.5" />`),
  close: drawn(svg`<path d="m5 5 10 10M15 5 5 15" />`),
  copy: drawn(
    svg`<rect x="7" y="7" width="9.5" height="9.5" rx="2" /><path d="M13 4.2V4a1.5 1.5 0 0 0-1.5-1.5H5A1.5 1.5 0 0 0 3.5 4v7A1.5 1.5 0 0 0 5 12.5h.2" />`,
  ),
  download: drawn(svg`<path d="M10 3v9.5M6.2 8.9 10 12.7l3.8-3.8M4 16.8h12" />`),
  expand: drawn(svg`<path d="M12 3.5h4.5V8M8 16.5H3.5V12M16.5 3.5 11.7 8.3M3.5 16.5l4.8-4.8" />`),
  unfold: drawn(svg`<path d="m6 8 4 4 4-4" />`, 'unfold'),
  search: drawn(svg`<circle cx="9" cy="9" r="5.5" /><path d="m13.2 13.2 3.6 3.6" />`),
  pulse: drawn(svg`<path d="M2.5 10.5h3.2L8 4.5l4 11 2.3-5h3.2" />`),
  pause: drawn(svg`<path d="M7 4.5v11M13 4.5v11" />`),
  resume: drawn(svg`<path d="M6.5 4.2v11.6l9-5.8Z" />`),
  retry: drawn(svg`<path d="M15.8 7.4A6.5 6.5 0 1 0 16.5 10M16.4 3.6v4h-4" />`),
} as const;
