import type { CompletionEvent } from './completion-event.ts';

/** The event bus, as a sender sees it. */
export interface EventBus {
  send(event: CompletionEvent, signal: AbortSignal): Promise<void>;
}
