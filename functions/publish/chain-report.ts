import { iso } from '../base/clock.ts';
import { addressOf, hasSucceeded } from '../chains/chain.ts';
import type { Chain, ChainUpload } from '../chains/chain-schema.ts';
import { receiptKey } from '../results/results-keys.ts';
import { type CompletionEvent, fittingDetail } from './completion-event.ts';
import type { ChainReport } from './report-schemas.ts';
import { bytesInList, fitting, uploadFacts } from './upload-facts.ts';

/**
 * Maximum size of `chain.json`, in bytes. The receipts of its uploads say the same, so a larger one leaves out what they
 * say: first the assets, then further uploads of its stages. Of these it has the number.
 */
export const CHAIN_REPORT_BYTES_MAX = 8 * 1024 * 1024;

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
  return fitted({
    chain: 1,
    status: hasSucceeded(chain) ? 'succeeded' : 'failed',
    upload: uploadFacts(first, {}),
    generation,
    arrivedAt: iso(uploads[0]?.arrivedAt ?? 0),
    endedAt: iso(endedAt),
    stages: [...stages, ...unbegun.map(([route, why]) => ({ route, status: 'withheld', why, uploads: [] }) as const)],
  });
}

/** The report in a form of at most {@link CHAIN_REPORT_BYTES_MAX}. */
function fitted(report: ChainReport): ChainReport {
  if (bytesOf(report) <= CHAIN_REPORT_BYTES_MAX) return report;
  const stages = report.stages.map((stage) => ({ ...stage, uploads: stage.uploads.map(withoutAssets) }));
  const lean = { ...report, stages };
  if (bytesOf(lean) <= CHAIN_REPORT_BYTES_MAX) return lean;
  let left = CHAIN_REPORT_BYTES_MAX - bytesOf({ ...lean, stages: stages.map((stage) => cut(stage, 0)) });
  // What a stage leaves of its share is for those after it.
  const shared = stages.map((stage, index) => {
    const part = cut(stage, left / (stages.length - index));
    left -= uploadBytes(part);
    return part;
  });
  return { ...lean, stages: shared };
}

const uploadBytes = ({ uploads }: StageReport): number => uploads.reduce((sum, upload) => sum + bytesInList(upload), 0);

/** An upper bound. Not the size of one text with all uploads: that would take as much memory again. */
const bytesOf = (report: ChainReport): number =>
  bytesInList({ ...report, stages: report.stages.map((stage) => ({ ...stage, uploads: [''] })) }) +
  report.stages.reduce((sum, stage) => sum + uploadBytes(stage), 0);

const withoutAssets = ({ assets, ...upload }: StageUploadReport): StageUploadReport =>
  assets === undefined ? upload : { ...upload, assetCount: assets.length };

/** A stage with as many of its uploads as take so many bytes: failures first. */
function cut(stage: StageReport, bytesMax: number): StageReport {
  const byStatus = [...stage.uploads].sort((one, other) => rankOf(one) - rankOf(other));
  const uploads = fitting(byStatus, bytesMax);
  const rest = byStatus.slice(uploads.length);
  if (rest.length === 0) return stage;
  const failed = rest.filter(({ status }) => status === 'failed').length;
  return { ...stage, uploads, more: { succeeded: rest.length - failed, failed } };
}

const rankOf = ({ status }: StageUploadReport): number => (status === 'failed' ? 0 : 1);

/** @param key the address of its results. */
const uploadReport = (upload: ChainUpload, key: string, resultsPrefix: string): StageUploadReport => ({
  id: upload.id,
  receipt: receiptKey(resultsPrefix, key),
  parent: upload.parent,
  status: upload.state === 'succeeded' ? 'succeeded' : 'failed',
  generation: upload.generation,
  sent: upload.sent,
  flow: upload.flow,
  arrivedAt: iso(upload.arrivedAt),
  endedAt: iso(upload.endedAt ?? 0),
  ...(upload.assetCount === undefined ? { assets: upload.assets } : { assetCount: upload.assetCount }),
  failedOutputs: upload.failedOutputs,
  failure: upload.failure,
});

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
  const stages = report.stages.map((stage) => ({ ...stage, uploads: [] }));
  return {
    detailType: report.status === 'succeeded' ? 'Chain Succeeded' : 'Chain Failed',
    detail: fittingDetail(whole, { stages }),
  };
}
