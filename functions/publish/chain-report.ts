import { type Chain, type ChainUpload, hasSucceeded } from '../chains/chain.ts';
import { receiptKey } from '../results/results-keys.ts';
import { type CompletionEvent, DETAIL_BYTES_MAX } from './completion-event.ts';
import type { ChainReport } from './report-schemas.ts';
import { iso, uploadFacts } from './upload-facts.ts';

type StageReport = ChainReport['stages'][number];
type StageUploadReport = StageReport['uploads'][number];

/** @param chain one that has ended. */
export function chainReport(chain: Chain, resultsPrefix: string): ChainReport {
  const { first, generation, uploads, withheld, endedAt = 0 } = chain;
  const routes = [...new Set(uploads.map(({ route }) => route))];
  const stages = routes.map((route): StageReport => {
    const ofRoute = uploads.filter((upload) => upload.route === route).map((each) => uploadReport(each, resultsPrefix));
    const status = ofRoute.every((upload) => upload.status === 'succeeded') ? 'succeeded' : 'failed';
    return { route, status, uploads: ofRoute };
  });
  return {
    chain: 1,
    status: hasSucceeded(chain) ? 'succeeded' : 'failed',
    upload: uploadFacts(first, {}),
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
