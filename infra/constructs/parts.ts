import type { CompletionEvents } from './completion-events.ts';
import type { Inbox } from './inbox.ts';
import type { Ledger } from './ledger.ts';
import type { Results } from './results.ts';
import type { Token } from './token.ts';
import type { RoundQueue, UploadQueue } from './upload-queue.ts';

/** The resources that both functions use. Each part has the methods that grant access to it. */
export interface Parts {
  readonly inbox: Inbox;
  readonly results: Results;
  readonly ledger: Ledger;
  readonly token: Token;
  readonly uploads: UploadQueue;
  readonly rounds: RoundQueue;
  readonly events: CompletionEvents;
}
