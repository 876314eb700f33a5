import * as z from 'zod/mini';
import { isObject, type Json, type JsonObject } from '../base/json.ts';
import type { PlannedStage } from '../uploads/chain-routes.ts';
import type { RouteSnapshot } from '../uploads/route-snapshot.ts';
import { type Stage, UPLOAD_ID, type Upload } from '../uploads/upload.ts';
import { TERMINAL_STATE_NAMES } from './terminal-states.ts';
import { WAIT_REASONS } from './waits.ts';

/**
 * The format of the ledger, and the only one that this version reads. Each entry, each chain, the holds and the state of
 * the sweep name it in `schema`. An object of another format, older or newer, is left as it is and told of, and nothing is
 * sent for it.
 *
 * A version drops the members that it does not know. A function of an older deployment would therefore lose a new member
 * when it writes the object again. Add a format with every new member that must not be lost. Only objects with such a
 * member get the new number, so that an older version can read the others, and this format stays readable. Also add
 * fixtures to `test/ledger/formats/`.
 *
 * The state of a collector has no format: without it, a tick repeats some work.
 */
export const LEDGER_FORMAT = 6;

/** The last millisecond that ISO 8601 writes with four digits of a year. Keys of markers need such times. */
const TIME_MAX = Date.parse('9999-12-31T23:59:59.999Z');

/** Milliseconds since the epoch. @internal */
export const time = z.number().check(z.gte(0), z.lte(TIME_MAX));

/** @internal */
export const count = z.int().check(z.gte(0));

/** @internal */
export const uploadId = z.string().check(z.regex(UPLOAD_ID));

const first = z.object({ id: uploadId, key: z.string() });

const stage: z.ZodMiniType<Stage> = z.object({
  first,
  route: z.string(),
  generation: z.optional(count),
  parent: z.extend(first, { generation: count, asset: z.optional(z.string()) }),
});

/** @internal */
export const uploadSchema: z.ZodMiniType<Upload> = z.object({
  id: uploadId,
  bucket: z.string(),
  key: z.string(),
  versionId: z.optional(z.string()),
  etag: z.string(),
  bytes: count,
  lastModified: time,
  mediaType: z.string(),
  currentAt: z.optional(time),
  sequencer: z.optional(z.string()),
  stage: z.optional(stage),
});

const parameters = z.custom<Json>((value) => value !== undefined);

/** @internal */
export const readonlyObject = <T extends z.core.$ZodShape>(shape: T) => z.readonly(z.object(shape));

/**
 * What one flow costs.
 * @internal
 */
export const price = readonlyObject({
  /** The amount, in that currency. */
  amount: z.number(),
  /** In three capital letters, such as `EUR`. */
  currency: z.string(),
});

/**
 * What a route said when it was read.
 * @internal
 */
export const revision = readonlyObject({
  /** The same for two routes that make the same flows: 12 hexadecimal digits. */
  hash: z.string(),
  /** The deployment's own name for it, `revision` of the route. */
  name: z.optional(z.string()),
});

/** What was sent, and the revision of the route that said so. @internal */
export const sent = {
  /** Id or name of the template. */
  template: z.string(),
  /** The parameters of the flow. */
  parameters: z.optional(parameters),
  /** What the route said, without what metadata or an operator replaced. */
  revision: z.optional(revision),
};

/** @internal */
export const routeSchema: z.ZodMiniType<RouteSnapshot> = z.object({
  name: z.string(),
  input: z.enum(['file', 'text']),
  ...sent,
  additional: z.optional(z.custom<JsonObject>(isObject)),
  metadata: z.optional(z.string()),
  price: z.optional(price),
});

const flow = readonlyObject({
  id: z.string().check(z.minLength(1)),
  /** When the service had answered, by our clock. */
  createdAt: time,
  /** When an operator last asked for its results again. */
  collectedAgainAt: z.optional(time),
});

const asset = readonlyObject({
  /** Its id at the service. */
  id: z.string(),
  /** The bucket that it is in. */
  bucket: z.string(),
  /** Its key in that bucket. */
  key: z.string(),
  /** Its size, in bytes. */
  bytes: count,
  /** Its media type, without parameters. */
  mediaType: z.string(),
  /** Hexadecimal SHA-256 of the stored bytes. */
  sha256: z.string(),
  /** Without quotes. */
  etag: z.string(),
  /** Absent if the bucket is not versioned. */
  versionId: z.optional(z.string()),
});

/** @internal */
export const assets = z.readonly(z.array(asset));

/** Members that say why something failed. */
const why = {
  /** Stable and machine-readable: see docs/failures.md. */
  code: z.string(),
  /** A sentence for a person. */
  message: z.string(),
};

const failedOutput = readonlyObject({
  /** Its id at the service. */
  id: z.string(),
  ...why,
});

/** @internal */
export const failedOutputs = z.readonly(z.array(failedOutput));

/** @internal */
export const failure = readonlyObject(why);

/**
 * An object that is sent, in exactly this version.
 * @internal
 */
export const input = readonlyObject({
  /** The bucket that it is in. */
  bucket: z.string(),
  /** Its key in that bucket. */
  key: z.string(),
  /** Absent if the bucket is not versioned. */
  versionId: z.optional(z.string()),
  /** Without quotes. */
  etag: z.string(),
  /** Its size, in bytes. */
  bytes: count,
  /** Its media type, without parameters. */
  mediaType: z.string(),
});

/** What a job waits for. */
const job = readonlyObject({
  /** When the job fails if its inputs are not there. */
  deadline: time,
  /** Names of the inputs that were not there when the job last looked. Empty before it has looked. */
  missing: z.readonly(z.array(z.string())),
});

/**
 * The later stages of a chain, as they were planned. Each stands behind the one that it comes after.
 * @internal
 */
export const plan: z.ZodMiniType<readonly PlannedStage[]> = z.readonly(
  z.array(readonlyObject({ route: z.string(), after: z.string(), inputs: z.optional(z.literal('all')) })),
);

/** Later stages that begin with assets of an upload that succeeded. */
const nextStage = readonlyObject({
  route: routeSchema,
  /** The ids of the assets that the route wants. Each of them starts an upload. */
  assets: z.readonly(z.array(z.string())),
});

/** Maximum number of earlier ends in an entry, and of the assets that it names of each. */
export const PREVIOUS_MAX = 10;
export const PREVIOUS_ASSETS_MAX = 6;

/** How an earlier generation ended. Its results stay where they are. @internal */
export const previousFacts = {
  /** The number of that generation. */
  generation: count,
  ...sent,
  /** What its flow cost, as the route said when it was sent. */
  price: z.optional(price),
  /** The id of its flow. */
  flow: z.string(),
  /** The first assets that were stored. */
  assets,
  /** Number of all of them. */
  assetCount: count,
  /** The size of all of them, in bytes. */
  bytes: count,
};

const previous = readonlyObject({
  ...previousFacts,
  state: z.enum(TERMINAL_STATE_NAMES),
  arrivedAt: time,
  endedAt: time,
});

const doubt = readonlyObject({
  /** When the earliest POST in doubt was claimed. A flow listing must reach back to here. */
  claimedAt: time,
  /** When the last byte of the latest POST in doubt had been sent, at the latest. */
  sentBy: time,
  /** When another attempt may be made, if no flow is found. This way an outage does not use up all attempts. */
  nextAttemptAt: z.optional(time),
  /** Why the upload fails if no flow is found: the latest answer means that the service rejects it for good. */
  rejection: z.optional(z.string()),
  /**
   * True if the service answered with a success that cannot be read. Most probably the flow exists, so the upload is sent
   * again only after a proof that it does not, or if the operator says so.
   */
  isAccepted: z.optional(z.literal(true)),
  /**
   * True if the operator has decided that the upload is sent although a flow may exist. No more searches are made for the
   * flow of the attempts before.
   */
  isDismissed: z.optional(z.literal(true)),
  /**
   * True if the upload is not sent again because of its key: a request with it was refused, or the file cannot be sent any
   * more. The flow of the request before may exist all the same, so it is searched for.
   */
  isKeySpent: z.optional(z.literal(true)),
  /** The attempt that began it does not count yet: it counts if the upload is sent again without a proof of absence. */
  isUncounted: z.optional(z.literal(true)),
});

const countedFlow = readonlyObject({
  /** The price of the flow, in millionths. */
  micros: count,
  /** The currency of the price. Empty without a price. */
  currency: z.string(),
  /** When it was counted. */
  at: time,
  /** The period of the pipeline's budget in which it is counted, and that of the route's budget. */
  pipeline: z.optional(z.string()),
  route: z.optional(z.string()),
  /** True if an earlier request of the upload may have made a flow too. */
  isAgain: z.optional(z.literal(true)),
});
/** A flow that is counted for budgets and costs. */
export type CountedFlow = z.infer<typeof countedFlow>;

/** Maximum number of counted flows in an entry. Earlier ones stay counted. */
export const COUNTED_FLOWS_MAX = 20;

const answer = readonlyObject({
  message: z.string(),
  /** When an attempt first, and last, came to this. */
  since: time,
  at: time,
  /** Until when the service asks to wait. */
  until: z.optional(time),
});

/** Longest message in an entry, in characters. Most hold words of the service, of the network or of a job file. */
export const MESSAGE_CHARS_MAX = 8_000;

/** Longest message about one output, in characters. A flow may have 10,000 outputs. */
export const OUTPUT_MESSAGE_CHARS_MAX = 400;

/**
 * Maximum size of an entry, in bytes. Most of it are its outputs, see `OUTPUTS_BYTES_MAX`. The inputs of a flow, its
 * parameters, the messages, and the ids of the assets that later stages take are the rest.
 */
export const ENTRY_BYTES_MAX = 56 * 1024 * 1024;

/** What an entry says in every state. */
const facts = {
  schema: z.literal(LEDGER_FORMAT),
  upload: uploadSchema,
  route: routeSchema,
  /** What is sent, if that is not the upload's own object: the assets of the stage before, or the files of a job. */
  inputs: z.optional(z.readonly(z.array(input))),
  /** Present in a job until its inputs are written down. Until then, nothing is sent. */
  job: z.optional(job),
  /**
   * Present from a retry until a route of the current configuration is written down. No POST is sent in between. Also
   * present while S3 refuses to hand the upload out: until then, its metadata and media type are unknown. And present in an
   * upload that gives way to the file that took its place.
   */
  reroute: z.optional(z.literal(true)),
  /**
   * Present until the upload is sent, if its route asks that its key has not changed for a while. Each attempt looks
   * whether that is so.
   */
  settles: z.optional(z.literal(true)),
  /** When it was last seen to be still. */
  stillAt: z.optional(time),
  /**
   * When somebody was first asked to look at the inputs of this upload, and when the operator approved them. A retry sends
   * the same inputs, so it needs no other approval.
   */
  review: z.optional(readonlyObject({ wantedAt: time, approvedAt: z.optional(time) })),
  /** What the operator gave for this retry. It is applied to each route that the upload takes until it is sent. */
  given: z.optional(readonlyObject({ template: z.optional(z.string()), parameters: z.optional(parameters) })),
  /**
   * The pipeline that first claimed this generation. It is part of the flow tag, and a renamed pipeline must still find
   * the flow. Absent in a retried upload that waits.
   */
  pipeline: z.optional(z.string()),
  /**
   * When the message of the upload, or of its retry, came into the queue. The file may be years older, if a backfill
   * brought it.
   */
  arrivedAt: time,
  /** 1, plus 1 for each retry of an upload that had ended. It is part of the flow tag. */
  generation: count,
  /** How the generations before ended that had a flow, the latest last. At most {@link PREVIOUS_MAX}. */
  previous: z.optional(z.readonly(z.array(previous))),
  /**
   * True if live files go first: it came by a backfill, or by a retry of many. A retry of this upload alone ends it.
   */
  late: z.optional(z.literal(true)),
  /** Failures that the file could be the cause of. Counted anew when the flow runs. */
  attempts: count,
  /**
   * True once an invocation died while it held the claim. The file may be the cause, so it is sent alone from then on.
   */
  claimDied: z.optional(z.literal(true)),
  /** Waits in this generation. Each one lengthens the next. */
  waits: count,
  /**
   * What the last attempt to send the upload came to, in the words of the service or of the network. Kept until it has a
   * flow or has ended.
   */
  answer: z.optional(answer),
  /** Since when throttling keeps the upload waiting. It is the upload's place in the line. */
  throttledSince: z.optional(time),
  /** Since when the service has been down, as the attempts of this upload saw. Limits how long that is not charged. */
  downSince: z.optional(time),
  /** Since when answers to this upload come from something other than the flow service. Limits that wait. */
  misaddressedSince: z.optional(time),
  /**
   * The stages that come after this one in its chain. In the first file, as the configuration said when it was sent; and
   * once it has succeeded, with those that the configuration had then. Absent if there are none.
   */
  plan: z.optional(plan),
  /** True once its chain has heard of an end. It stays in its chain, also if the later routes are removed. */
  isInChain: z.optional(z.literal(true)),
  /** Present if a POST of this generation may have made a flow that we do not know. */
  doubt: z.optional(doubt),
  /** The flows that are counted, and that the requests in doubt may not have made. The latest comes last. */
  countedFlows: z.optional(z.readonly(z.array(countedFlow))),
  /**
   * The number in the idempotency key of its requests. Absent: 1. It rises when it is certain that no request with it has
   * made a flow. It is written down before the request, unless the service honours no keys.
   */
  keyNumber: z.optional(count),
  /**
   * What tells the pipeline from others in the idempotency key. It stays for as long as the upload is in doubt, also if the
   * ledger is moved. Absent once the upload has a flow or has ended.
   */
  keyScope: z.optional(z.string()),
  /** True if an answer was lost, and the request was sent again with the same key. */
  isSentAgain: z.optional(z.literal(true)),
};

export type FactName = keyof typeof facts;

/** The members of an entry that stay when its state changes. */
export const FACT_NAMES = Object.keys(facts) as readonly FactName[];

/**
 * True if the service gave the flow to another upload too. Nothing of it is ever collected then, also after the end of
 * this upload.
 */
const isShared = z.optional(z.literal(true));

const ending = {
  ...facts,
  flow: z.optional(flow),
  isShared,
  endedAt: time,
  assets,
  failedOutputs,
  /** What begins with this end. It is written here before anything of it begins. */
  next: z.optional(z.readonly(z.array(nextStage))),
  /** What became of its flow at the service, as `deleteFlow` of the route asks. Absent before the first attempt. */
  flowDeletion: z.optional(
    readonlyObject({
      /** Attempts that have begun. */
      attempts: count,
      /** When the last one began. */
      at: time,
      /** When the service had deleted it, or did not know it any more. */
      deletedAt: z.optional(time),
      /** Why the last attempt failed. If this is absent too, the attempt is under way, or its invocation has died. */
      message: z.optional(z.string()),
    }),
  ),
};

/** The form of an entry. The types in `entry.ts` are made from it. */
export const entrySchema = z.discriminatedUnion('state', [
  readonlyObject({
    ...facts,
    keyScope: z.string(),
    state: z.literal('claimed'),
    claimedAt: time,
    /** The claim's invocation is surely dead after this. */
    deadline: time,
  }),
  readonlyObject({
    ...facts,
    state: z.literal('waiting'),
    reason: z.enum(WAIT_REASONS),
    /** What happened, in a sentence. */
    message: z.string(),
    notBefore: time,
  }),
  readonlyObject({
    ...facts,
    state: z.literal('running'),
    flow,
    /** Assets that were stored before a collection was cut off or failed. The next collection continues after them. */
    assets: z.optional(assets),
    /** When an attempt to store its assets was last counted. */
    attemptedAt: z.optional(time),
    /**
     * What keeps the flow from its end: why assets could not be stored, or a word that is not declared. Absent if only
     * time does.
     */
    obstacle: z.optional(answer),
    /** Since when its flow, which has completed, has waited for outputs that are not ready. */
    unreadySince: z.optional(time),
    /** What began with its end, if it had succeeded before it was collected again. No other stage begins then. */
    next: z.optional(z.readonly(z.array(nextStage))),
    isShared,
  }),
  readonlyObject({ ...ending, state: z.literal('succeeded') }),
  readonlyObject({
    ...ending,
    state: z.literal('failed'),
    failure,
    /** True once receipt, event and marker of the failure are out. Until then, a retry would hide that they are not. */
    isTold: z.optional(z.literal(true)),
  }),
]);
