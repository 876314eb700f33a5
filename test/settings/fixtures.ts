import { ConfigurationError } from '../../functions/base/validation.ts';
import type { Env } from '../../functions/settings/environment.ts';

export const route = { name: 'pictures', mediaTypes: ['image/*'], input: 'file', template: 'model_generate_fromimage' };

const ENV: Env = {
  PIPELINE: 'flowdrop',
  FLOW_SERVICE_URL: 'https://flows.example.com/v1',
  TOKEN_SECRET_ID: 'flowdrop-token',
  INBOX_BUCKET: 'the-inbox',
  RESULTS_BUCKET: 'the-results',
  LEDGER_BUCKET: 'the-ledger',
  QUEUE_URL: 'https://sqs.eu-central-1.amazonaws.com/123456789012/uploads',
  COLLECT_FUNCTION: 'collect-outputs',
  EVENT_BUS: 'default',
  ROUTES: JSON.stringify([route]),
  SETTINGS: '{}',
};

/** A whole environment, with these variables changed. */
export const env = (changes: Partial<Record<keyof Env | 'LAMBDA_TASK_ROOT', string | undefined>> = {}) => ({
  ...ENV,
  ...changes,
});
/** A whole environment with these settings. */
export const envWith = (value: object) => env({ SETTINGS: JSON.stringify(value) });

/** The issues of the error that an action throws. Empty if it throws none. */
export function messagesOf(act: () => unknown): readonly string[] {
  try {
    act();
  } catch (error) {
    if (error instanceof ConfigurationError) return error.issues;
    throw error;
  }
  return [];
}
