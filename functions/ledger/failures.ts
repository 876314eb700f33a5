import { SUPERSEDED } from './terminal-states.ts';

/** The advice for one failure code, in receipts and events. The lists in `docs/failures.md` are made from here. */
export interface Advice {
  /** What happened. A receipt has a message that says it with the facts of its upload. */
  readonly meaning: string;
  /** Whether the same file can succeed if the upload is retried: at once, after a change, or never. */
  readonly retry: 'can-help' | 'after-change' | 'cannot-help';
  /** What to do, a retry included if it can help. */
  readonly action: string;
}

/**
 * The codes with which an upload fails, and the advice for each. They are stable: programs compare them. A function can
 * fail an upload only with a code of this table. After a change, write the page with
 * `npx vitest run test/ledger/failures.test.ts --update`.
 */
export const FAILURES = {
  rejected: {
    meaning: 'The service rejected the request, and would reject it again.',
    retry: 'after-change',
    action:
      "Read the service's words in the message. If the file is at fault, put a corrected one. If the route is, correct it, and then retry.",
  },
  misaddressed: {
    meaning: 'Something other than the flow service answered at its address for three days.',
    retry: 'after-change',
    action:
      "Correct baseUrl, or the proxy, login or firewall before the service. If the service itself answers, and does not serve `GET /flows`, check the route's template. Then retry.",
  },
  'attempts-exhausted': {
    meaning: 'The upload failed `attemptsMax` times. The message has the last failure, if known.',
    retry: 'can-help',
    action: 'If the service takes other files, ask its operator about this one. Then retry.',
  },
  undecided: {
    meaning:
      'The service answered with a success that cannot be read. For seven days its flow was neither found nor ruled out, and nobody decided.',
    retry: 'can-help',
    action:
      'Look for the flow at the service: most probably it was made, and paid for. If there is none, or its results are lost, retry.',
  },
  cancelled: {
    meaning: 'The operator cancelled the upload while it waited or ran, or nobody approved it within `reviewHours`.',
    retry: 'can-help',
    action: 'If it should be processed after all, retry.',
  },
  'input-empty': {
    meaning: 'The file is empty.',
    retry: 'cannot-help',
    action: 'Put the file again, with its content.',
  },
  'input-too-large': {
    meaning: 'The file is larger than `inputBytesMax`, or its text is larger than `textBytesMax`.',
    retry: 'after-change',
    action: 'Put a smaller file. Or raise the setting, and then retry.',
  },
  'input-unversioned': {
    meaning: "The service should fetch the file by an address (`{inputUrl}`), and the file's bucket keeps no versions.",
    retry: 'after-change',
    action: 'Turn on versions and put the file again, or declare `{input}`, and then retry.',
  },
  'input-encoded': {
    meaning: 'The file is compressed (`Content-Encoding`), or wrapped in a form (`multipart/form-data`).',
    retry: 'cannot-help',
    action: 'Put the file itself, as the message says.',
  },
  'input-archived': {
    meaning: 'The file is in an archive storage class of S3.',
    retry: 'after-change',
    action: 'Have the file restored, and then retry.',
  },
  'input-denied': {
    meaning: 'S3 denied the file to Flowdrop `attemptsMax` times.',
    retry: 'after-change',
    action:
      "Let the function create-flow read the file: check the policies of the bucket and of the file's KMS key, the key's state, and who owns the file. Then retry. A file with your own encryption key (SSE-C) cannot be read: put it without that.",
  },
  'input-blank': {
    meaning: 'The route sends text, and the text has only blanks.',
    retry: 'cannot-help',
    action: 'Put the file again, with its text.',
  },
  'invalid-text': {
    meaning: 'The route sends text, and the file is not UTF-8. It may be UTF-16, or no text at all.',
    retry: 'cannot-help',
    action: 'Save the text as UTF-8, and put it again.',
  },
  'invalid-override': {
    meaning: "The object's metadata has an override that cannot be used.",
    retry: 'cannot-help',
    action: 'Correct the metadata that the message names, and put the file again.',
  },
  'upload-gone': {
    meaning: 'The object was deleted before it could be sent.',
    retry: 'cannot-help',
    action: 'Put the file again, unless a newer version has a receipt of its own.',
  },
  'asset-gone': {
    meaning: 'An asset of the stage before was replaced or deleted before it could be sent.',
    retry: 'after-change',
    action:
      'Restore the asset, if the results bucket keeps versions, and then retry. Or make the stage before anew with `flowdrop again --from`, which is paid for again.',
  },
  [SUPERSEDED]: {
    meaning:
      "Before the upload was sent, a newer file came at its key, or at the key of its chain's first file. Or the file was deleted within `settleSeconds`. Shown as `replaced`.",
    retry: 'cannot-help',
    action: 'Nothing: a newer file has a flow of its own.',
  },
  'invalid-job': {
    meaning: 'The job file cannot be used. The message names all that is wrong with it.',
    retry: 'cannot-help',
    action: 'Correct the job file, and put it again. Its inputs need not be put again.',
  },
  'inputs-missing': {
    meaning: 'Inputs of the job did not come within its `deadlineSeconds`. The message names them.',
    retry: 'after-change',
    action: 'Put the missing files, and then retry.',
  },
  'input-gone': {
    meaning: 'An input of the job was replaced or deleted before it could be sent.',
    retry: 'after-change',
    action: 'See that all inputs are there. Then retry, which takes the present ones.',
  },
  'outside-inbox': {
    meaning: 'The file is in an inbox that a deployment has replaced.',
    retry: 'cannot-help',
    action: 'Copy the file to the present inbox.',
  },
  unrouted: {
    meaning: 'When the file was retried, or had waited, no route of the current configuration wanted it.',
    retry: 'after-change',
    action: 'Add a route that takes the file, and then retry.',
  },
  'flow-failed': {
    meaning: 'The service says that the flow failed.',
    retry: 'can-help',
    action:
      "Read the service's words in the message. If the file is at fault, put a corrected one. If the route is, correct it, and then retry. If neither is, a retry may succeed. It is paid for again.",
  },
  'flow-aborted': {
    meaning: 'The service says that the flow was aborted.',
    retry: 'can-help',
    action: 'Find out who aborted it, and then retry, which is paid for again.',
  },
  'flow-gone': {
    meaning: 'The service said three times in a row that it does not know the flow (404 or 410).',
    retry: 'can-help',
    action:
      'If the token was replaced by one of another account, put the right one back and run `flowdrop collect`, which costs nothing. Otherwise find out who deleted the flow, and then retry, which is paid for again.',
  },
  'flow-shared': {
    meaning: 'The flow belongs to another upload too. Nothing of it was collected.',
    retry: 'can-help',
    action:
      'Tell the operator of the service at once: it mixes up its customers’ flows, or answers equal files with one flow. Retry when that has stopped.',
  },
  'no-outputs': {
    meaning: 'The flow completed without any output.',
    retry: 'can-help',
    action:
      'Run `flowdrop collect`, which asks for the outputs again, without a new flow. If there are none although the template should make some of such a file, retry, which is paid for again.',
  },
  'outputs-failed': {
    meaning: 'No output could be stored. `failedOutputs` says why, for each.',
    retry: 'can-help',
    action:
      'See the codes of the outputs. `flowdrop collect` fetches what can be fetched by now, without a new flow. A retry is paid for again.',
  },
  'undeclared-word': {
    meaning:
      "The flow became older than `flowAgeMaxSeconds`, and its state, or an output's, was a word that the description does not declare. The flow was not aborted.",
    retry: 'after-change',
    action:
      'Declare the word in `service`. Then `flowdrop collect` fetches the outputs, without a new flow. A retry is paid for again.',
  },
  'timed-out': {
    meaning:
      "The flow became older than `flowAgeMaxSeconds`. If a poll failed, the message quotes the service's last answer.",
    retry: 'can-help',
    action:
      'Run `flowdrop collect`, which costs nothing: the flow may have completed since. If flows simply take that long, raise the setting. If it has ended otherwise, ask the operator of the service why, and then retry, which is paid for again.',
  },
} as const satisfies Readonly<Record<string, Advice>>;

export type FailureCode = keyof typeof FAILURES;

/**
 * The codes with which one output fails. The upload may succeed all the same. A success cannot be retried, but its
 * missing outputs can be collected again, without a new flow.
 */
export const OUTPUT_FAILURES = {
  'output-failed': {
    meaning: 'The service says that the output failed.',
    retry: 'can-help',
    action: "Read the service's words in the message.",
  },
  'asset-too-large': {
    meaning: 'The asset is larger than `assetBytesMax`.',
    retry: 'after-change',
    action: 'Raise the setting.',
  },
  'key-taken': {
    meaning: "Another object is at the asset's key, and was left as it is.",
    retry: 'can-help',
    action: 'Move that object away. Then `flowdrop collect` stores the asset. Keep other writers out of the bucket.',
  },
  'damaged-asset': {
    meaning: 'The answer was too short, too long, or could not be decoded.',
    retry: 'can-help',
    action: 'Tell the operator of the service if it happens again.',
  },
  'not-an-asset': {
    meaning: 'A web page, an error, a progress report, or a file of another type came instead.',
    retry: 'after-change',
    action:
      'Check the service, and any proxy or login before it. If the template makes such files, add their type to `makes`, and run `flowdrop collect`.',
  },
  'out-of-time': {
    meaning:
      'Several invocations had too little time for the asset. Or its flow became twice as old as `flowAgeMaxSeconds`, and the last attempt stored no asset.',
    retry: 'can-help',
    action: 'Ask the operator of the service why it sends so slowly.',
  },
  'too-slow': {
    meaning: 'The service sent the asset more slowly than `assetBytesPerSecondMin`, or stopped in the middle of it.',
    retry: 'can-help',
    action: 'Lower the setting, or ask the operator of the service why, and run `flowdrop collect`.',
  },
  'too-many-outputs': {
    meaning: 'The flow has more outputs than `outputsMax`, or more than an entry can hold (28 MiB). The `id` is empty.',
    retry: 'after-change',
    action: 'Raise the setting.',
  },
  'not-found': {
    meaning: 'The service does not know the asset (404 or 410).',
    retry: 'can-help',
    action: 'Ask the operator of the service how long assets are kept.',
  },
  'not-ready': {
    meaning:
      'The output was never ready: the list said so for an hour after the flow had completed, or the answer was 409 or 425.',
    retry: 'can-help',
    action: 'Ask the operator of the service why. `flowdrop collect` fetches it once it is ready.',
  },
  'undeclared-word': {
    meaning: 'For an hour after the flow had completed, the output had a word that the description does not declare.',
    retry: 'after-change',
    action: 'Declare the word in `service.outputs`, and run `flowdrop collect`.',
  },
  'not-served': {
    meaning: 'The service does not serve assets (405 or 501).',
    retry: 'cannot-help',
    action: 'Check baseUrl, and ask the operator of the service.',
  },
  rejected: {
    meaning: 'The service rejected the request by any other 4xx.',
    retry: 'can-help',
    action: "Read the service's words in the message.",
  },
  forbidden: {
    meaning: 'The service forbids the asset (403).',
    retry: 'after-change',
    action: 'Ask its operator for the right to read it.',
  },
  'forbidden-address': {
    meaning:
      'The asset is at an address that is not allowed or holds a user, a password or the token. Or it was redirected more than three times.',
    retry: 'cannot-help',
    action:
      'Tell the operator of the service: assets must be at https, and at a public address unless the service is at a private one.',
  },
  'unintelligible-answer': {
    meaning: 'The answer does not fit the description of the service.',
    retry: 'can-help',
    action:
      'If the service always answers as the message quotes, declare it in `service`. Otherwise tell its operator.',
  },
  unauthorised: {
    meaning: 'The service still rejected the token when the flow became older than `flowAgeMaxSeconds`.',
    retry: 'after-change',
    action: 'Store a token that is allowed to read the asset.',
  },
  throttled: {
    meaning: 'The service still throttled when the flow became older than `flowAgeMaxSeconds`.',
    retry: 'can-help',
    action: 'Ask the operator of the service for a higher limit.',
  },
  unavailable: {
    meaning: 'The service still failed when the flow became older than `flowAgeMaxSeconds`.',
    retry: 'can-help',
    action: 'Tell the operator of the service.',
  },
} as const satisfies Readonly<Record<string, Advice>>;

export type OutputFailureCode = keyof typeof OUTPUT_FAILURES;

/** A failure of an upload with a known code. A stored entry may hold the code of another version. */
export interface KnownFailure {
  readonly code: FailureCode;
  /** A sentence for a person. */
  readonly message: string;
}

/** Codes of flows whose results may be gone at the service. */
const MAY_BE_GONE: readonly string[] = ['flow-gone', 'no-outputs', 'outputs-failed', 'undeclared-word'];

/** Codes of content that cannot be sent. That of a job is in other files, which begin nothing when they are put again. */
const UNFIT: readonly string[] = ['input-encoded', 'input-blank', 'invalid-text'];

/**
 * The advice for a code of this version or another. Undefined for a code that this version does not know.
 * @param isJob true if the upload has taken the inputs of a job. A retry takes the present ones.
 * @param kept what is known of how long the service keeps results, in a sentence after a blank.
 */
export function adviceFor(code: string, isJob = false, kept = ''): Advice | undefined {
  const advice: Advice | undefined = Object.hasOwn(FAILURES, code) ? FAILURES[code as FailureCode] : undefined;
  if (advice === undefined) return undefined;
  if (isJob && UNFIT.includes(code)) {
    return { ...advice, retry: 'after-change', action: `${advice.action} Then retry the job.` };
  }
  return MAY_BE_GONE.includes(code) ? { ...advice, action: advice.action + kept } : advice;
}
