import { iso } from '../base/clock.ts';
import { presentRouteOf, type WaitingEntry } from '../ledger/entry.ts';
import type { Settings } from '../settings/environment.ts';
import { firstOf } from '../uploads/upload.ts';
import type { CompletionEvent } from './completion-event.ts';
import { approveCommand, type RetrySettings } from './retry-command.ts';

/** Maximum number of inputs that the event names. */
const INPUTS_MAX = 20;

/** The event for an upload that waits for an approval. It may be sent more than once, always with the same id. */
export function reviewEvent(
  entry: WaitingEntry,
  settings: RetrySettings & Pick<Settings, 'pipeline' | 'routes'>,
): CompletionEvent {
  const { upload, route, generation, review, inputs = [] } = entry;
  const wantedAt = review?.wantedAt ?? 0;
  const { reviewHours } = presentRouteOf(entry, settings.routes) ?? {};
  const detail = {
    id: `${upload.id}-${generation}-${wantedAt}`,
    pipeline: settings.pipeline,
    upload: { id: upload.id, key: upload.key },
    first: firstOf(upload),
    route: route.name,
    template: route.template,
    price: route.price,
    inputs: inputs.slice(0, INPUTS_MAX),
    inputCount: inputs.length,
    wantedAt: iso(wantedAt),
    ...(reviewHours !== undefined && { endsAt: iso(wantedAt + reviewHours * 3_600_000) }),
    approve: approveCommand(settings, upload),
  };
  return { detailType: 'Review Wanted', detail: JSON.stringify(detail) };
}
