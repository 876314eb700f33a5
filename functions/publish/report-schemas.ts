import * as z from 'zod/mini';
import {
  assets,
  count,
  failedOutputs,
  failure,
  input,
  previousFacts,
  price,
  readonlyObject,
  sent,
  uploadId,
} from '../ledger/entry-schema.ts';
import { TERMINAL_STATE_NAMES } from '../ledger/terminal-states.ts';

/*
 * The forms of `receipt.json` and `chain.json`. The types of what is written come from here, and so do the files in
 * `docs/schemas/`. After a change, write these with `npx vitest run test/schemas --update`.
 *
 * The functions import only the types: they need not check what they write, and their bundles stay small. To read an old
 * receipt back, `successSchema` in `receipts.ts` asks for less.
 */

/** ISO 8601 in UTC, with milliseconds. */
const time = z.string().check(z.regex(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/));

const status = z.enum(TERMINAL_STATE_NAMES);

/** What receipts and `chain.json` say of an upload. */
const uploadFacts = {
  /** Id of the upload. The commands of flowdrop take it. */
  id: uploadId,
  /** The inbox bucket. */
  bucket: z.string(),
  /** Its key in the inbox. For a later stage of a chain: the address of its results. */
  key: z.string(),
  /** Absent if the inbox is not versioned. */
  versionId: z.optional(z.string()),
  /** Without quotes. Empty for a later stage of a chain. */
  etag: z.string(),
  /** When the object was put, ISO 8601, UTC. */
  lastModified: time,
  /** A time at which the upload was current at its key, ISO 8601, UTC. Absent if none is known but `lastModified`. */
  currentAt: z.optional(time),
  /** Orders the puts of a key, as S3's event said. Absent if no event brought the upload. */
  sequencer: z.optional(z.string()),
};

const receiptUpload = readonlyObject({
  ...uploadFacts,
  /** Its size, in bytes. */
  bytes: count,
  /** Its media type, without parameters. */
  mediaType: z.string(),
});

const receiptParent = readonlyObject({
  /** Id of that upload. */
  upload: z.string(),
  /** The generation of that upload. */
  generation: count,
  /** Id of its asset. Absent if all assets of a stage were taken. */
  asset: z.optional(z.string()),
  /** Key of its receipt, in the results bucket. */
  receipt: z.string(),
});

const receiptChild = readonlyObject({
  /** Id of that upload. */
  upload: z.string(),
  /** Name of the route that takes the asset. */
  route: z.string(),
  /** Id of the asset. */
  asset: z.string(),
  /** Where its receipt will be, in the results bucket. */
  receipt: z.string(),
});

const receiptFlow = readonlyObject({
  /** Its id at the service. */
  id: z.string(),
  /** When the service had answered, by the clock of Flowdrop, ISO 8601, UTC. */
  createdAt: time,
});

const previousEnd = readonlyObject({
  ...previousFacts,
  /** How it ended. */
  status,
  /** When it came, ISO 8601, UTC. */
  arrivedAt: time,
  /** When it ended, ISO 8601, UTC. */
  endedAt: time,
});

const advisedFailure = readonlyObject({
  ...failure.def.innerType.shape,
  /** What to do, and whether a retry can help. */
  advice: z.string(),
  /** The command that retries the upload. Absent if a retry cannot help, and in a local run with file names. */
  retry: z.optional(z.string()),
});

/**
 * How an upload ended, for people and programs. This is the content of the receipt.
 * @internal
 */
export const receiptSchema = readonlyObject({
  /** Version of this form. */
  receipt: z.literal(1),
  /** How the upload ended. */
  status,
  /** The upload. */
  upload: receiptUpload,
  /** Name of the route that took the upload. */
  route: z.string(),
  ...sent,
  /** 1, plus 1 each time that an upload that had ended was sent again. */
  generation: count,
  /** How the generations before ended that had a flow, the latest last: at most 10. Their results are where they were. */
  previous: z.optional(z.readonly(z.array(previousEnd))),
  /**
   * The upload that it continues, in a later stage of a chain. `asset` is the asset of that upload. If it takes all
   * assets of a stage, the parent is the chain's first file, and there is no `asset`.
   */
  parent: z.optional(receiptParent),
  /** The objects that were sent, if they were assets of the stage before. */
  inputs: z.optional(z.readonly(z.array(input))),
  /** The uploads that begin with single assets of this one. If there are very many, as many as fit. */
  children: z.optional(z.readonly(z.array(receiptChild))),
  /** Number of further uploads that begin so. Absent if `children` has all: `chain.json` counts them. */
  moreChildren: z.optional(count),
  /** Its flow at the service. Absent if it failed without one. */
  flow: z.optional(receiptFlow),
  /** What that flow costs, as its route said when it was sent. Absent without a flow, and if the route names no price. */
  price: z.optional(price),
  /** When the upload ended, ISO 8601, UTC. */
  endedAt: time,
  /** The assets of the flow that were stored. */
  assets,
  /** Outputs that the service could not make, or that could not be stored. */
  failedOutputs,
  /** Why the upload failed. Absent if it succeeded. */
  failure: z.optional(advisedFailure),
  /** Keys at which the assets were copied as well, as `alias` of the route asks. The event does not have them. */
  aliases: z.optional(z.readonly(z.array(z.string()))),
  /** Why some could not be, or why an older one is still there. The event does not have it. */
  aliasIssue: z.optional(z.string()),
  /**
   * Why the file could not be tagged or deleted, as `afterSuccess` of its route asks. The event does not have it. In a chain,
   * `chain.json` has it.
   */
  sourceIssue: z.optional(z.string()),
});

const chainUpload = readonlyObject(uploadFacts);

const stageUpload = readonlyObject({
  /** Id of the upload. */
  id: z.string(),
  /** Key of its receipt, in the results bucket. */
  receipt: z.string(),
  /** The id of the upload whose asset it takes. Absent in the first one, and if it takes all assets of a stage. */
  parent: z.optional(z.string()),
  /** How it ended. */
  status,
  /** 1, plus 1 for each retry of it. */
  generation: count,
  /** What was sent. Absent in a very large chain: its receipt says it. */
  sent: z.optional(readonlyObject(sent)),
  /** Id of its flow. Absent if it failed without one, and in a very large chain. */
  flow: z.optional(z.string()),
  /** When it, or its last retry, came into the chain, ISO 8601, UTC. */
  arrivedAt: time,
  /** When it ended, ISO 8601, UTC. */
  endedAt: time,
  /** The assets of its flow that were stored. Absent if the chain is too large to name all: its receipt does. */
  assets: z.optional(assets),
  /** Number of these assets. Present if `assets` is absent. */
  assetCount: z.optional(count),
  /** Number of outputs that the service could not make, or that could not be stored. */
  failedOutputs: count,
  /** Why it failed. Absent if it succeeded. In a very large chain, its receipt has the message. */
  failure: z.optional(failure),
});

const moreUploads = readonlyObject({
  /** Number of those that succeeded. */
  succeeded: count,
  /** Number of those that failed. */
  failed: count,
});

const stage = readonlyObject({
  /** Name of the route. */
  route: z.string(),
  /** `withheld` if the stage did not begin although the one before has ended. */
  status: z.enum([...TERMINAL_STATE_NAMES, 'withheld']),
  /** Why the stage did not begin. If it has uploads, why a part of it did not. */
  why: z.optional(z.string()),
  /** The uploads of this stage. Of a very large chain, as many as fit: those that failed first. */
  uploads: z.readonly(z.array(stageUpload)),
  /** Number of further uploads of this stage. Absent if `uploads` has all: their receipts say how they ended. */
  more: z.optional(moreUploads),
});

/**
 * How a chain ended, for people and programs. This is the content of `chain.json`.
 * @internal
 */
export const chainReportSchema = readonlyObject({
  /** Version of this form. */
  chain: z.literal(1),
  /** `succeeded` if every upload succeeded, and no stage was withheld. */
  status,
  /** The chain's first file. */
  upload: chainUpload,
  /** 1, plus 1 each time that a stage was made anew. */
  generation: count,
  /** When the first file, or its last retry, came, ISO 8601, UTC. */
  arrivedAt: time,
  /** When the last upload of the chain ended, ISO 8601, UTC. */
  endedAt: time,
  /** Every stage, the first one first. */
  stages: z.readonly(z.array(stage)),
  /** Why the first file could not be tagged or deleted, as `afterSuccess` of its route asks. The event does not have it. */
  sourceIssue: z.optional(z.string()),
});

export type Receipt = z.infer<typeof receiptSchema>;
export type ChainReport = z.infer<typeof chainReportSchema>;
