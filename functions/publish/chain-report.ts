import { type Chain, type ChainUpload, hasSucceeded } from '../chains/chain.ts';
import { receiptKey } from '../results/results-keys.ts';
import { type CompletionEvent, DETAIL_BYTES_MAX } from './completion-event.ts';

type Status = 'succeeded' | 'failed';

/** How a chain ended, for people and programs. This is the content of `chain.json`. Times are in ISO 8601, UTC. */
export interface ChainReport {
  /** Version of this form. */
  readonly chain: 1;
  /** `succeeded` if every upload succeeded, and no stage was withheld. */
  readonly status: Status;
  /** The chain's first file. */
  readonly upload: {
    readonly id: string;
    readonly bucket: string;
    readonly key: string;
    readonly versionId?: string | undefined;
    readonly etag: string;
    readonly lastModified: string;
    readonly currentAt?: string | undefined;
    readonly sequencer?: string | undefined;
  };
  /** 1, plus 1 each time that a stage was made anew. */
  readonly generation: number;
  readonly arrivedAt: string;
  readonly endedAt: string;
  readonly stages: readonly StageReport[];
}

interface StageReport {
  readonly route: string;
  /** `withheld` if the stage did not begin although the one before has ended. */
  readonly status: Status | 'withheld';
  /** Why the stage did not begin. */
  readonly why?: string | undefined;
  readonly uploads: readonly StageUploadReport[];
}

interface StageUploadReport {
  readonly id: string;
  /** Key of its receipt, in the results bucket. */
  readonly receipt: string;
  /** The id of the upload whose asset it takes. Absent in the first one, and if it takes all assets of a stage. */
  readonly parent?: string | undefined;
  readonly status: Status;
  readonly generation: number;
  readonly flow?: string | undefined;
  readonly arrivedAt: string;
  readonly endedAt: string;
  readonly assets: ChainUpload['assets'];
  /** Number of outputs that the service could not make, or that could not be stored. */
  readonly failedOutputs: number;
  readonly failure?: ChainUpload['failure'];
}

/** @param chain one that has ended. */
export function chainReport(chain: Chain, resultsPrefix: string): ChainReport {
  const { first, generation, uploads, withheld, endedAt = 0 } = chain;
  const { id, bucket, key, versionId, etag, lastModified, currentAt, sequencer } = first;
  const rank = { currentAt: currentAt === undefined ? undefined : iso(currentAt), sequencer };
  const routes = [...new Set(uploads.map(({ route }) => route))];
  const stages = routes.map((route): StageReport => {
    const ofRoute = uploads.filter((upload) => upload.route === route).map((each) => uploadReport(each, resultsPrefix));
    const status = ofRoute.every((upload) => upload.status === 'succeeded') ? 'succeeded' : 'failed';
    return { route, status, uploads: ofRoute };
  });
  return {
    chain: 1,
    status: hasSucceeded(chain) ? 'succeeded' : 'failed',
    upload: { id, bucket, key, versionId, etag, lastModified: iso(lastModified), ...rank },
    generation,
    arrivedAt: iso(uploads[0]?.arrivedAt ?? 0),
    endedAt: iso(endedAt),
    stages: [
      ...stages,
      ...withheld.map(({ route, why }) => ({ route, status: 'withheld', why, uploads: [] }) as const),
    ],
  };
}

function uploadReport(upload: ChainUpload, resultsPrefix: string): StageUploadReport {
  const { id, key, parent, state, generation, flow, arrivedAt, endedAt = 0, assets, failedOutputs, failure } = upload;
  return {
    id,
    receipt: receiptKey(resultsPrefix, key),
    parent,
    status: state === 'succeeded' ? 'succeeded' : 'failed',
    generation,
    flow,
    arrivedAt: iso(arrivedAt),
    endedAt: iso(endedAt),
    assets,
    failedOutputs,
    failure,
  };
}

/**
 * The event of a chain that ended. If the chain is too long for an event, its stages have no uploads: `chain.json` has
 * them.
 * @param where the bucket and key of `chain.json`.
 */
export function chainEvent(
  report: ChainReport,
  pipeline: string,
  where: { readonly bucket: string; readonly key: string },
): CompletionEvent {
  const id = `${report.upload.id}-chain-${report.generation}-${Date.parse(report.endedAt)}`;
  const whole = { id, pipeline, ...report, results: { bucket: where.bucket, chainKey: where.key, isCut: false } };
  const json = JSON.stringify(whole);
  const stages = report.stages.map((stage) => ({ ...stage, uploads: [] }));
  return {
    detailType: report.status === 'succeeded' ? 'Chain Succeeded' : 'Chain Failed',
    detail:
      Buffer.byteLength(json) <= DETAIL_BYTES_MAX
        ? json
        : JSON.stringify({ ...whole, stages, results: { ...whole.results, isCut: true } }),
  };
}

const iso = (ms: number): string => new Date(ms).toISOString();
