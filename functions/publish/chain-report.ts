import { addressOf, type Chain, type ChainUpload, hasSucceeded } from '../chains/chain.ts';
import { receiptKey } from '../results/results-keys.ts';
import { type CompletionEvent, DETAIL_BYTES_MAX } from './completion-event.ts';
import type { ChainReport } from './report-schemas.ts';
import { iso, uploadFacts } from './upload-facts.ts';

type StageReport = ChainReport['stages'][number];
type StageUploadReport = StageReport['uploads'][number];

/** @param chain one that has ended. */
export function chainReport(chain: Chain, resultsPrefix: string): ChainReport {
  const { first, generation, uploads, withheld, endedAt = 0 } = chain;
  const byRoute = Map.groupBy(uploads, ({ route }) => route);
  const whys = new Map(withheld.map(({ route, why }) => [route, why]));
  const stages = [...byRoute].map(([route, all]): StageReport => {
    const ofRoute = all.map((each) => uploadReport(each, addressOf(chain, each), resultsPrefix));
    const why = whys.get(route);
    const isWhole = why === undefined && ofRoute.every((upload) => upload.status === 'succeeded');
    return { route, status: isWhole ? 'succeeded' : 'failed', ...(why && { why }), uploads: ofRoute };
  });
  const unbegun = [...whys].filter(([route]) => !byRoute.has(route));
  return {
    chain: 1,
    status: hasSucceeded(chain) ? 'succeeded' : 'failed',
    upload: uploadFacts(first, {}),
    generation,
    arrivedAt: iso(uploads[0]?.arrivedAt ?? 0),
    endedAt: iso(endedAt),
    stages: [...stages, ...unbegun.map(([route, why]) => ({ route, status: 'withheld', why, uploads: [] }) as const)],
  };
}

/** @param key the address of its results. */
function uploadReport(upload: ChainUpload, key: string, resultsPrefix: string): StageUploadReport {
  const {
    id,
    parent,
    state,
    generation,
    flow,
    arrivedAt,
    endedAt = 0,
    assets,
    assetCount,
    failedOutputs,
    failure,
  } = upload;
  return {
    id,
    receipt: receiptKey(resultsPrefix, key),
    parent,
    status: state === 'succeeded' ? 'succeeded' : 'failed',
    generation,
    flow,
    arrivedAt: iso(arrivedAt),
    endedAt: iso(endedAt),
    ...(assetCount === undefined ? { assets } : { assetCount }),
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
