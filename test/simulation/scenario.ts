import type { JsonObject } from '../../functions/base/json.ts';
import type { PipelineSettings } from '../../functions/settings/settings.ts';
import type { Route } from '../../functions/uploads/route.ts';
import type { Versioning } from '../../local/aws/s3/catalog.ts';
import type { Limits as ServiceLimits } from '../../local/flow-service/limiter.ts';
import type { Variation } from '../../local/flow-service/variation.ts';
import type { CallKind, Fault, FaultPlanOptions } from './faults.ts';
import type { StormHolds } from './storm-holds.ts';
import type { RouteChange } from './storm-routes.ts';

/** Size of an asset of three parts, in bytes. A connection breaks half-way, which is after the first part. */
export const BIG_ASSET_BYTES = 10.25 * 1024 * 1024;

/** Largest asset of all others, in bytes. */
export const ASSET_BYTES_MAX = 2 * 1024 * 1024;

/** One change of the inbox. Times of a scenario are in milliseconds from its beginning. */
export type Step =
  | {
      readonly at: number;
      readonly kind: 'put';
      readonly key: string;
      readonly content: Buffer;
      readonly mediaType: string;
      /** True if a multipart upload puts it. All of these are begun before the first step. */
      readonly isMultipart?: boolean;
    }
  | { readonly at: number; readonly kind: 'delete'; readonly key: string }
  /** The object is copied onto itself, if there is one. */
  | { readonly at: number; readonly kind: 'copy'; readonly key: string };

export const putStep = (
  at: number,
  key: string,
  content: string | Buffer,
  mediaType = 'application/octet-stream',
): Extract<Step, { readonly kind: 'put' }> => {
  // A text is no asset of the type of a picture, and the service returns what it got.
  const isPicture = (mediaType === 'image/png' || key.endsWith('.png')) && content.length > 0;
  const beginning = Buffer.from(isPicture ? '\x89PNG\r\n' : '', 'latin1');
  return { at, kind: 'put', key, content: Buffer.concat([beginning, Buffer.from(content)]), mediaType };
};

/** A deployment: a corrected route, another name of the pipeline, another inbox, or lower limits. */
export type Change = 'route' | 'pipeline' | 'inbox' | 'limits';

/** The limits after they were lowered. */
export const LOWERED_SETTINGS = { inputBytesMax: 300, textBytesMax: 200, attemptsMax: 1, pollConcurrency: 1 } as const;

/** Size from which the body of a creation is that of a poisoned upload, in bytes. Bodies of others are smaller. */
export const POISONED_BODY_BYTES_MIN = 5_000;

/** The key of a poisoned upload begins with this, as does the path of what is stored of it. */
export const POISONED_PREFIX = 'echo/';

/** A fault that single flows, assets or uploads meet at every call, for ever or in spans of time. */
export interface Poison {
  readonly fault: Fault;
  /** The calls that meet it. */
  readonly calls: readonly CallKind[];
  /**
   * The first flows that are polled, or the first assets that are asked for, are poisoned: `count` of them. Uploads are
   * known by {@link POISONED_PREFIX}, and in a creation by {@link POISONED_BODY_BYTES_MIN}. `all`: every call.
   */
  readonly of: 'flow' | 'asset' | 'upload' | 'all';
  readonly count: number;
  /** When they meet it, in milliseconds from the beginning. Default: always. */
  readonly spans?: readonly (readonly [from: number, to: number])[] | undefined;
}

/** Everything about the world of a seed except the faults of single calls. */
export interface Scenario {
  /** A storm is everything at once, and it ends. The other kinds have one trouble, which stays. */
  readonly kind:
    | 'storm'
    | 'limits'
    | 'poison'
    | 'backfill'
    | 'long rounds'
    | 'lagging replica'
    | 'replicas'
    | 'slow counterpart';
  readonly versioning: Versioning | undefined;
  readonly routes: readonly Route[];
  readonly settings: PipelineSettings;
  /** What differs in the description of the service, beside what its variation asks for. */
  readonly speaks?: JsonObject;
  /** True if a job API stands in front of the service. */
  readonly isJobApi?: boolean;
  readonly variation: Partial<Variation>;
  /** Number of replicas of the service, each of which knows only the flows that it has made. Default: 1. */
  readonly replicas?: number | undefined;
  readonly collectors: number;
  readonly createLimitMs: number;
  readonly collectLimitMs: number;
  readonly visibilitySeconds: number;
  readonly receivesMax: number;
  readonly flowMsMin: number;
  readonly flowMsMax: number;
  /** Duration of flows of the template `text`, in milliseconds. Default: as other flows. */
  readonly textFlowMs?: number | undefined;
  /** Limits of the service. They may be lowered some time after the first upload. */
  readonly serviceLimits: ServiceLimits;
  readonly lowered?: { readonly at: number; readonly limits: ServiceLimits } | undefined;
  /** The fault that never heals. */
  readonly poison?: Poison | undefined;
  /** Largest deviation of a process's clock, in milliseconds, and whether a claim allows for less. */
  readonly skewMs: number;
  readonly isSkewWild: boolean;
  /** True if each clock deviates by the largest deviation, ahead or behind, and not by a random part of it. */
  readonly isSkewExtreme: boolean;
  /** Share of invocations in whose middle the clock steps to another deviation, and whether a frozen machine sleeps. */
  readonly clockSteps?: { readonly share: number; readonly areAsleep: boolean } | undefined;
  /** Share of creations whose flow is made late, and by how much at most after the connection broke, in milliseconds. */
  readonly lateFlows?: { readonly share: number; readonly msMax: number } | undefined;
  /** True if notifications are lost and dead letters stay dead, so that only the sweep finds the uploads. */
  readonly isLossy: boolean;
  readonly faultPlan: FaultPlanOptions;
  readonly steps: readonly Step[];
  /** When the service takes another token, and when the secret gets it. */
  readonly rotations: readonly { readonly at: number; readonly secretAt: number }[];
  /** Share of invocations whose process dies at a random moment. */
  readonly suddenDeaths: number;
  /** Duration of the storm. */
  readonly chaosMs: number;
  readonly tickGapMs: { readonly min: number; readonly max: number };
  readonly sweepGapMs: { readonly min: number; readonly max: number };
  /** True if operators retry failed uploads during the storm. */
  readonly areRetried: boolean;
  /** True if operators also cancel uploads, and have stages of chains made anew. */
  readonly isOperated: boolean;
  /** Share of messages that are delivered again while an invocation works on them. */
  readonly againEarly: number;
  /** Deployments during the storm. */
  readonly changes: readonly { readonly at: number; readonly what: Change }[];
  /** When a terminal entry expires, and when an entry is damaged. */
  readonly expiriesAt: readonly number[];
  readonly damageAt?: number | undefined;
  /** When a time in the state of the sweep is moved into the future. */
  readonly sweepDamageAt?: number | undefined;
  /** When an operator asks for a sweep from the beginning of time. */
  readonly backfillsAt: readonly number[];
  /** Pace of a backfill. */
  readonly uploadsPerSecond?: number | undefined;
  /** True if all failed and held uploads are retried after the healing. */
  readonly areAllRetried: boolean;
  /** True if neighbours use the same account of the service, and delete flows. */
  readonly hasNeighbours: boolean;
  readonly doNeighboursDelete: boolean;
  /** Time between two flows of other clients, if they use the account all the time. */
  readonly busyGapMs?: { readonly min: number; readonly max: number } | undefined;
  /** Other routes that are deployed while uploads are held. */
  readonly routeChanges?: readonly RouteChange[] | undefined;
  /** What holds uploads back. */
  readonly holds?: StormHolds | undefined;
  /** Most pages of the listing of flows that a search reads. Default: that of the functions. */
  readonly findPagesMax?: number | undefined;
  /** Keys on a page of a listing of S3. */
  readonly keysMax: number;
  /** Seconds for which files must be still before they are sent. */
  readonly settleSeconds?: number | undefined;
  /** True if the operator has to approve some later stages. */
  readonly isReviewed?: boolean | undefined;
  /** Days after which assets expire. */
  readonly resultsRetentionDays?: number | undefined;
  /** True if ids of flows and assets need encoding. */
  readonly hasOddIds: boolean;
}

export const ROUTES: readonly Route[] = [
  { name: 'echo', prefixes: ['echo/'], input: 'file', template: 'bytes_echo', additional: { of: 'us' } },
  { name: 'two', prefixes: ['two/'], input: 'file', template: 'bytes_echo', parameters: { copies: 2 } },
  {
    name: 'odd',
    prefixes: ['odd/'],
    input: 'file',
    template: 'bytes_echo',
    parameters: { copies: 3, failed_outputs: 1 },
  },
  { name: 'fail', prefixes: ['fail/'], input: 'file', template: 'bytes_echo', parameters: { fail: true, partial: 1 } },
  {
    name: 'none',
    prefixes: ['none/'],
    input: 'file',
    template: 'bytes_echo',
    parameters: { copies: 1, failed_outputs: 1 },
  },
  { name: 'text', prefixes: ['text/'], input: 'text', template: 'text' },
  { name: 'bad', prefixes: ['bad/'], input: 'file', template: 'no_such_template' },
  { name: 'big', prefixes: ['big/'], input: 'file', template: 'bytes_echo', parameters: { bytes: BIG_ASSET_BYTES } },
];

/** The routes after the one whose template does not exist was corrected. */
export const corrected = (routes: readonly Route[]): readonly Route[] =>
  routes.map((route) => (route.name === 'bad' ? { ...route, template: 'bytes_echo' } : route));
