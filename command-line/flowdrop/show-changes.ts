import type { Acted } from '../../operations/act.ts';
import type { Fetched } from '../../operations/get.ts';
import type { Put } from '../../operations/put-body.ts';
import type { SweepPass } from '../../operations/sweep.ts';
import type { UploadView } from '../../operations/upload-view.ts';
import { size } from '../texts.ts';
import { table } from './console.ts';
import { counted } from './words.ts';

type Ends = readonly (UploadView | undefined)[] | undefined;

export const showActed = (results: readonly Acted[], ends: Ends): readonly string[] =>
  table(results.map((acted, index) => [acted.key, ends ? endOf(ends[index]) : resultOf(acted)]));

function resultOf({ result, isAborted, isInDoubt }: Acted): string {
  const notes = [
    ...(isAborted === true ? ['the service stops its flow'] : []),
    ...(isAborted === false ? ['the service did not stop its flow, which runs to its end there'] : []),
    ...(isInDoubt === true ? ['a flow of it may exist that is not known'] : []),
  ];
  return [result, ...notes].join(', ');
}

function endOf(view: UploadView | undefined): string {
  if (view === undefined) return 'unknown';
  const { state, failure, wait, assets } = view;
  if (failure !== undefined) return `failed: ${failure.code}: ${failure.message}`;
  return wait === undefined ? `${state}, with ${counted(assets.length, 'result')}` : `waits: ${wait.message}`;
}

export const showPut = (files: readonly Put[], ends: Ends): readonly string[] =>
  table(files.map(({ key, bytes }, index) => [key, ends ? endOf(ends[index]) : `uploaded, ${size(bytes)}`]));

export function showFetched({ receipts, files, issues }: Fetched): readonly string[] {
  if (receipts.length + issues.length === 0) return ['There is no receipt of such a file.'];
  return [
    ...receipts.map(({ key, status, path }) => `${key}: ${status}, receipt in ${path}`),
    ...files.map(({ path, bytes }) => `  ${path}  ${size(bytes)}`),
    ...issues.map(({ key, why }) => `${key} was not fetched: ${why}`),
  ];
}

export const showSweep = ({ compared, missed, repaired }: SweepPass, isDryRun: boolean): readonly string[] => [
  `${counted(compared, 'file')} compared with the ledger.`,
  isDryRun
    ? `${counted(missed, 'file')} would be submitted, and each would be paid for.`
    : `${counted(missed, 'file')} submitted.`,
  `${counted(repaired, 'record')} ${isDryRun ? 'would be' : repaired === 1 ? 'was' : 'were'} completed.`,
];
