import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { AwsError } from '../aws/aws-json.ts';
import type { ServedMapping } from '../aws/lambda.ts';
import type { EventSource } from './event-source.ts';

/**
 * How long the mapping takes to change its state, in milliseconds. Lambda takes up to a minute. It is not zero, so that
 * a caller that does not wait for the end of the change fails here too.
 */
const CHANGE_MS = 300;

/** Lambda's record of an event source, which an operator turns off and on. */
export class EventSourceMapping implements ServedMapping {
  readonly id = randomUUID();
  readonly functionName: string;
  readonly #source: Pick<EventSource, 'start' | 'stop'>;
  #state: 'Enabled' | 'Enabling' | 'Disabled' | 'Disabling' = 'Enabled';
  #lastModifiedMs = Date.now();

  constructor(functionName: string, source: Pick<EventSource, 'start' | 'stop'>) {
    this.functionName = functionName;
    this.#source = source;
  }

  describe(): object {
    return {
      UUID: this.id,
      State: this.#state,
      StateTransitionReason: 'USER_INITIATED',
      LastModified: this.#lastModifiedMs / 1_000,
    };
  }

  update({ Enabled }: { readonly Enabled?: boolean | undefined }): object {
    if (this.#state === 'Enabling' || this.#state === 'Disabling') {
      const message = `Cannot update the event source mapping because it is in use (${this.#state}).`;
      throw new AwsError('ResourceInUseException', message, { status: 400 });
    }
    if (Enabled !== undefined && Enabled !== (this.#state === 'Enabled')) void this.#change(Enabled);
    return this.describe();
  }

  async #change(isOn: boolean): Promise<void> {
    this.#become(isOn ? 'Enabling' : 'Disabling');
    if (!isOn) this.#source.stop();
    await sleep(CHANGE_MS, undefined, { ref: false });
    if (isOn) this.#source.start();
    this.#become(isOn ? 'Enabled' : 'Disabled');
  }

  #become(state: 'Enabled' | 'Enabling' | 'Disabled' | 'Disabling'): void {
    this.#state = state;
    this.#lastModifiedMs = Date.now();
  }
}
