import type { Route } from './routes.ts';

/**
 * The environment of both functions, and the only way in which infrastructure tells them anything. The stack is
 * checked against this type by the compiler, and a function parses it once, at its cold start.
 */
export interface Env {
  /** Name of the deployment; it is part of every flow's mark. */
  readonly PIPELINE: string;
  /** The flow service's base address, `https://...`, without a trailing slash. */
  readonly FLOW_SERVICE_URL: string;
  /** ARN or name of the secret that holds the token. */
  readonly TOKEN_SECRET_ID: string;
  readonly INBOX_BUCKET: string;
  readonly RESULTS_BUCKET: string;
  readonly LEDGER_BUCKET: string;
  /** The queue that uploads come from, and that waiting ones are sent to again. */
  readonly QUEUE_URL: string;
  /** Name of the collecting function: it is in the command that retries a failed upload. */
  readonly COLLECT_FUNCTION: string;
  /** JSON: the routes. */
  readonly ROUTES: string;
  /** JSON: those of {@link Limits} that differ from the defaults. */
  readonly LIMITS: string;
}

/** Every limit and choice that has a default. Units come last in a name. */
export interface Limits {
  /** Uploads sent side by side within one invocation. Default 4. */
  readonly uploadConcurrency: number;
  /** Largest upload that is sent, in bytes. Default 5 GiB. */
  readonly inputBytesMax: number;
  /** Largest text upload, in bytes; text is held in memory. Default 1 MiB. */
  readonly textBytesMax: number;
  /** Largest asset that is stored, in bytes. Default 20 GiB. */
  readonly assetBytesMax: number;
  /** Most outputs of one flow that are stored. Default 1,000. */
  readonly outputsMax: number;
  /** Failures that the file may be the cause of before it ends as failed. Default 5. */
  readonly attemptsMax: number;
  /** What becomes of a doubt that cannot be settled: `retry` may pay twice, `hold` waits for a person. Default retry. */
  readonly inDoubt: 'retry' | 'hold';
  /** Seconds between two polls of a young flow. Default 60. */
  readonly pollIntervalSeconds: number;
  /** Flows polled at a time. Default 64. */
  readonly pollConcurrency: number;
  /** Assets streamed at a time. Default 4. */
  readonly assetConcurrency: number;
  /** Oldest that a running flow may become before it ends as failed, in seconds. Default 7 days. */
  readonly flowAgeMaxSeconds: number;
  /** Where the outputs listing is: found out, or pinned to one of the two spellings. Default auto. */
  readonly outputsPath: 'auto' | 'flows' | 'root';
  /** Key of an asset in the results bucket: `{key}`, `{flowId}`, `{assetId}` and `{ext}` are replaced. */
  readonly resultsKey: string;
}

/** What both functions run on: the environment, parsed and frozen. */
export interface Settings extends Limits {
  readonly pipeline: string;
  readonly baseUrl: URL;
  readonly tokenSecretId: string;
  readonly inboxBucket: string;
  readonly resultsBucket: string;
  readonly ledgerBucket: string;
  readonly queueUrl: string;
  readonly collectFunction: string;
  readonly routes: readonly Route[];
}
