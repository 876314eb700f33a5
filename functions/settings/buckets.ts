/** The buckets and prefixes of a deployment, as far as they could overlap. */
export interface Buckets {
  readonly inboxBucket: string;
  readonly resultsBucket: string;
  readonly ledgerBucket: string;
  readonly inboxPrefix: string;
  readonly resultsPrefix: string;
}

/**
 * Returns the ways in which buckets overlap. A result that lands in the inbox would become an upload, in an endless and
 * costly loop. An entry of the ledger must not be taken for an upload or a result.
 *
 * At synth, a name may be a CDK token. Equal tokens are the same bucket, different tokens are different buckets.
 */
export function issuesOfBuckets({
  inboxBucket,
  resultsBucket,
  ledgerBucket,
  inboxPrefix,
  resultsPrefix,
}: Buckets): string[] {
  const issues: string[] = [];
  if (
    inboxBucket === resultsBucket &&
    (inboxPrefix.startsWith(resultsPrefix) || resultsPrefix.startsWith(inboxPrefix))
  ) {
    issues.push(
      `inbox and results are one bucket, ${inboxBucket}, so every result would become an upload: ` +
        `expected inboxPrefix and resultsPrefix of which neither starts with the other, ` +
        `got ${JSON.stringify(inboxPrefix)} and ${JSON.stringify(resultsPrefix)}`,
    );
  }
  for (const [name, bucket] of [
    ['inbox', inboxBucket],
    ['results', resultsBucket],
  ] as const) {
    if (bucket === ledgerBucket) issues.push(`${name} and ledger are one bucket, ${bucket}: the ledger needs its own`);
  }
  return issues;
}
