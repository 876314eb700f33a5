import type { Settings } from '../functions/settings/environment.ts';
import { isDenied } from './aws-requests.ts';
import { FunctionFailedError } from './collecting-function.ts';

/**
 * `fault`: files are not processed. `warning`: they soon may not be, or wait for the operator. `note`: worth knowing.
 */
export type Severity = 'fault' | 'warning' | 'note';

/** What is wrong, and what the operator can do: one sentence or two each. */
export interface Finding {
  readonly severity: Severity;
  readonly what: string;
  readonly todo: string;
}

/** What a check says. A check that could not be made is never good. */
export type Outcome = 'good' | { readonly good: string } | Finding | { readonly notChecked: string };

/** The result of one check. */
export interface Checked {
  readonly check: string;
  readonly result: 'good' | Severity | 'not checked';
  /** What is wrong, why the check was not made, or what else it found. */
  readonly what?: string;
  readonly todo?: string;
}

/** All results, in the order of the checks. */
export interface Diagnosis {
  /** Undefined if the deployment could not be reached. */
  readonly deployment: string | undefined;
  readonly checks: readonly Checked[];
}

/** The subject of every check. Its signal ends the check. */
interface Asked {
  readonly signal: AbortSignal;
}

export type Check<S> = (subject: S) => Outcome | Promise<Outcome>;

export type NamedCheck<S> = readonly [name: string, check: Check<S>];

/**
 * Several findings as one, with the worst severity.
 * @param unread what could not be looked at, and why. It hides no finding, and is never good.
 */
export function combined(found: readonly Finding[], unread: readonly string[] = []): Outcome {
  if (found.length === 0 && unread.length > 0) return { notChecked: unread.join('; ') };
  const todo = 'Run the doctor again with credentials that may read it.';
  const findings = [...found, ...unread.map((what): Finding => ({ severity: 'note', what, todo }))];
  const severity = (['fault', 'warning', 'note'] as const).find((each) =>
    findings.some((one) => one.severity === each),
  );
  if (severity === undefined) return 'good';
  return {
    severity,
    what: findings.map(({ what }) => what).join('\n'),
    todo: [...new Set(findings.map(({ todo }) => todo))].join('\n'),
  };
}

/** Runs all checks at once. A check that throws is a fault, unless AWS denied it. @throws the signal's reason. */
export const runChecks = <S extends Asked>(checks: readonly NamedCheck<S>[], subject: S): Promise<Checked[]> =>
  Promise.all(checks.map((each) => checked(each, subject)));

/** True if files are not processed. */
export const isFaulty = ({ checks }: Diagnosis): boolean => checks.some(({ result }) => result === 'fault');

async function checked<S extends Asked>([check, examine]: NamedCheck<S>, subject: S): Promise<Checked> {
  const outcome = await outcomeOf(examine, subject);
  if (outcome === 'good') return { check, result: 'good' };
  if ('good' in outcome) return { check, result: 'good', what: outcome.good };
  if ('notChecked' in outcome) return { check, result: 'not checked', what: outcome.notChecked };
  const { severity, what, todo } = outcome;
  return { check, result: severity, what, todo };
}

async function outcomeOf<S extends Asked>(examine: Check<S>, subject: S): Promise<Outcome> {
  try {
    return await examine(subject);
  } catch (error) {
    subject.signal.throwIfAborted();
    const message = error instanceof Error ? error.message : String(error);
    if (isDenied(error)) return { notChecked: `AWS does not allow you to look: ${message}` };
    if (error instanceof FunctionFailedError) {
      const what = `The collecting function failed: ${error.errorType}: ${message}`;
      return { severity: 'fault', what, todo: 'Read its log, and docs/runbook.md, collect-outputs-errors.' };
    }
    const todo = 'Run the doctor again. If the check still fails, its message names the cause.';
    return { severity: 'fault', what: `The check failed: ${message}`, todo };
  }
}

/** How to restore what was deleted or changed by hand in the stack. An ordinary deployment does not see it. */
export const DEPLOY_AGAIN =
  'Deploy the stack again with the option --revert-drift. Without it, CloudFormation does not see what was changed by hand.';

/** What to do if S3 may have refused a write because it names no encryption. Empty if it names one. */
export const encryptionAdvice = ({ encryption }: Pick<Settings, 'encryption'>): string =>
  encryption === undefined
    ? ' If a policy of the bucket or an SCP demands encryption headers, set deployment.encryptionHeader, and deploy.'
    : '';

/** Shares one answer, or one error. */
export function once<T>(ask: () => Promise<T>): () => Promise<T> {
  let answer: Promise<T> | undefined;
  return () => {
    answer ??= ask();
    return answer;
  };
}
