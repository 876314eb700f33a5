/** Code at a named place of a file that becomes other code. */
export interface Change {
  /** The path of the file in `functions/`. */
  readonly file: string;
  /** The function, class or constant, or the member of a class: `flowTagOf`, `Lease.take`. */
  readonly in: string;
  /**
   * The code to replace. It must be at its place exactly once. White space, comments and trailing commas do not count;
   * `…` stands for any code within the same brackets.
   */
  readonly replace: string;
  /** The code that comes instead. `$&` stands for the code that was there. */
  readonly with: string;
}

/** A mistake that is planted in the functions to see that the simulation finds it. */
export interface Mutation {
  readonly name: string;
  readonly changes: readonly Change[];
  /** Number of seeds within which it must be found. */
  readonly seedsMax: number;
}

const CREATE_FLOW = 'create-flow/create-flow.ts';
const CLAIM = 'create-flow/claim.ts';
const COLLECT_FLOW = 'collect-outputs/collect-flow.ts';
const FLOW_POLLS = 'collect-outputs/flow-polls.ts';
const FAILURE_ISOLATION = 'collect-outputs/failure-isolation.ts';
const FLOW_SEARCH = 'flow-service/flow-search.ts';
const FLOW_SIGHTINGS = 'flow-service/flow-sightings.ts';
const RESULTS = 'results/results.ts';

export const MUTATIONS: readonly Mutation[] = [
  {
    name: 'the POST before the claim',
    changes: [
      {
        file: CREATE_FLOW,
        in: 'CHANGES_MAX',
        replace: 'const CHANGES_MAX = 5;',
        with: "import { flowTagOf } from '../ledger/entry.ts'; import { commitFlow } from './claim.ts'; $&",
      },
      {
        file: CREATE_FLOW,
        in: 'begin',
        replace: 'const written = await ledger.create(…);',
        with: `const posted = terminal !== undefined ? undefined : await delivery.ports.flows.create({
            template: route.template,
            parameters: route.parameters,
            additional: route.additional,
            tag: flowTagOf(claim, settings.pipeline),
            input: { as: route.input, mediaType: upload.mediaType, source: object.source, additional: { key: upload.key } },
          }, delivery.invocation.work);
          $&
          if (written.won && posted !== undefined) {
            const { flowId } = posted;
            return commitFlow(delivery, { ...written.stored, entry: claim }, { flowId, outcome: 'created' });
          }`,
      },
    ],
    seedsMax: 20,
  },
  {
    name: 'the marker before the entry',
    changes: [
      {
        file: CLAIM,
        in: 'commitFlow',
        replace: 'const written = await ledger.replace(…);',
        with: 'await ledger.putRunningMarker(runningMarkerOf(claim.entry.upload, flow), closing); $&',
      },
    ],
    seedsMax: 20,
  },
  {
    name: 'the receipt before the terminal entry',
    changes: [
      {
        file: COLLECT_FLOW,
        in: 'FlowCollector.#end',
        replace: 'const written = await ledger.replace(…);',
        with: 'await publish(terminal, this.#ports, closing); $&',
      },
    ],
    seedsMax: 20,
  },
  {
    name: 'no marker of a failure',
    changes: [
      {
        file: 'publish/publish.ts',
        in: 'publish',
        replace: 'await ports.ledger.putFailedMarker(failedMarkerOf(entry), signal);',
        with: '',
      },
    ],
    seedsMax: 20,
  },
  {
    name: 'no nonce of entry writes',
    changes: [
      {
        file: 'ledger/store.ts',
        in: 'Ledger.#write',
        replace: 'current?.nonce === nonce',
        with: 'nonce === undefined',
      },
    ],
    seedsMax: 600,
  },
  {
    name: 'a tag without its generation',
    changes: [
      { file: 'ledger/entry.ts', in: 'flowTagOf', replace: 'generation: entry.generation', with: 'generation: 1' },
    ],
    seedsMax: 500,
  },
  {
    name: 'absence concluded from the first page',
    changes: [{ file: FLOW_SEARCH, in: 'readListing', replace: 'if (seen.isPast) break;', with: 'break;' }],
    seedsMax: 500,
  },
  {
    name: 'absence concluded at once',
    changes: [
      {
        file: 'create-flow/doubt.ts',
        in: 'settleDoubt',
        replace: 'doubt.sentBy + ABSENT_AFTER_MS',
        with: 'doubt.sentBy',
      },
    ],
    seedsMax: 500,
  },
  {
    name: 'a claim deadline before the hard end',
    changes: [
      {
        file: 'create-flow/delivery.ts',
        in: 'Delivery.claimTerms',
        replace: 'this.invocation.endsAt + CLAIM_MARGIN_MS',
        with: 'this.invocation.startedAt + CLAIM_MARGIN_MS / 2',
      },
    ],
    seedsMax: 20,
  },
  {
    name: 'assets written unconditionally',
    changes: [{ file: 'results/conditional-put.ts', in: 'putIfAbsent', replace: "IfNoneMatch: '*'", with: '...{}' }],
    seedsMax: 300,
  },
  {
    name: 'no abort of a download that broke off',
    changes: [
      {
        file: RESULTS,
        in: 'Results.#storeOpened',
        replace: 'catch (error) { await this.#abort(writer);',
        with: 'catch (error) {',
      },
    ],
    seedsMax: 1000,
  },
  {
    name: 'a download that broke off completed instead of aborted',
    changes: [
      {
        file: RESULTS,
        in: 'Results.#storeOpened',
        replace: 'catch (error) { await this.#abort(writer);',
        with: 'catch (error) { await writer.finish();',
      },
    ],
    seedsMax: 500,
  },
  {
    name: 'a terminal entry not published again',
    changes: [
      {
        file: COLLECT_FLOW,
        in: 'FlowCollector.#entryOf',
        replace: 'await publish(entry, this.#ports, closing);',
        with: '',
      },
    ],
    seedsMax: 100,
  },
  {
    name: 'the receipt of an older upload winning',
    changes: [
      {
        file: 'publish/receipts.ts',
        in: 'Receipts.#outranks',
        replace: 'if (current === there.uploadId) return false;',
        with: 'if (current !== undefined) return true;',
      },
    ],
    seedsMax: 50,
  },
  {
    name: 'the earlier date winning where no upload is current',
    changes: [
      {
        file: 'publish/receipts.ts',
        in: 'Receipts.#outranks',
        replace: ': mineModified > thereModified;',
        with: ': mineModified < thereModified;',
      },
    ],
    seedsMax: 50,
  },
  {
    name: 'throttling counted as an attempt',
    changes: [
      {
        file: 'create-flow/retry-policy.ts',
        in: 'classify',
        replace: "reason: 'throttled', counted: false",
        with: "reason: 'throttled', counted: true",
      },
    ],
    seedsMax: 800,
  },
  {
    name: 'a message deleted while its claim is live',
    changes: [
      {
        file: CREATE_FLOW,
        in: 'resume',
        replace: "case 'leave-to-its-claim': throw new ClaimHeldError(…);",
        with: "case 'leave-to-its-claim': return 'skipped';",
      },
    ],
    seedsMax: 500,
  },
  {
    name: 'due times computed from the last started tick',
    changes: [
      {
        file: FLOW_POLLS,
        in: 'FlowPolls.#pollFrom',
        replace: 'const isWhole = await this.#pollAll(…);',
        with: '$& this.#lastCompletedAt = round.startedAt;',
      },
    ],
    seedsMax: 100,
  },
  {
    name: 'the token not redacted',
    changes: [
      {
        file: 'flow-service/redact.ts',
        in: 'redact',
        replace: 'if (secret === undefined || …) return text;',
        with: 'if (secret !== undefined) return text;',
      },
    ],
    seedsMax: 50,
  },
  {
    name: 'only the first page of the inbox swept',
    changes: [
      {
        file: 'uploads/inbox.ts',
        in: 'Inbox.pages',
        replace: 'from = page.next;',
        with: 'from = undefined;',
      },
    ],
    seedsMax: 100,
  },
  {
    name: 'the lease never renewed',
    changes: [
      {
        file: 'ledger/lease.ts',
        in: 'Lease.take',
        replace: 'lease.#renewing = lease.#keepRenewing(signal);',
        with: '',
      },
    ],
    seedsMax: 100,
  },
  {
    name: 'a flow called gone at the first poll',
    changes: [
      {
        file: COLLECT_FLOW,
        in: 'FlowCollector.#endIfConfirmed',
        replace: 'if (!this.#confirmations.confirms(…)) return false;',
        with: '',
      },
    ],
    seedsMax: 300,
  },
  {
    name: 'two polls that are not in a row believed',
    changes: [
      {
        file: COLLECT_FLOW,
        in: 'FlowCollector.poll',
        replace: "if (seen.kind === 'running') this.#confirmations.forget(marker.uploadId);",
        with: '',
      },
      {
        file: 'collect-outputs/flow-observer.ts',
        in: 'FlowObserver.#noteSeen',
        replace: 'this.#confirmations.forget(uploadId, GONE);',
        with: '',
      },
    ],
    seedsMax: 100,
  },
  {
    name: 'the flow id of a marker not decoded',
    changes: [
      { file: 'ledger/keys.ts', in: 'parseRunningKey', replace: 'decodedId(match[3] as string)', with: 'match[3]' },
    ],
    seedsMax: 20,
  },
  {
    name: 'an object that is there already not hashed',
    changes: [
      {
        file: RESULTS,
        in: 'Results.#storeOpened',
        replace: 'return this.#existing(to, signal);',
        with: "return { bytes, sha256: hash.digest('hex') };",
      },
    ],
    seedsMax: 500,
  },
  {
    name: 'doubts not joined',
    changes: [
      {
        file: 'ledger/entry.ts',
        in: 'doubtAfter',
        replace: 'claimedAt: Math.min(…), sentBy: Math.max(…)',
        with: 'claimedAt: entry.claimedAt, sentBy',
      },
    ],
    seedsMax: 300,
  },
  {
    name: 'no handover to an invocation that waits in doubt',
    changes: [
      {
        file: CLAIM,
        in: 'yieldFlow',
        replace: 'theirs.generation === mine.generation',
        with: 'theirs.generation !== mine.generation',
      },
    ],
    seedsMax: 300,
  },
  {
    name: 'a tick that halts at the first 429',
    changes: [
      {
        file: FAILURE_ISOLATION,
        in: 'FailureIsolation.run',
        replace: "return outageOf(error) === undefined ? 'failed' : 'outage';",
        with: "if (outageOf(error) === 'throttled') this.#halt ??= 'throttled'; $&",
      },
    ],
    seedsMax: 50,
  },
  {
    name: 'a poisoned flow that halts the tick',
    changes: [
      {
        file: FAILURE_ISOLATION,
        in: 'FailureIsolation.run',
        replace: "return outageOf(error) === undefined ? 'failed' : 'outage';",
        with: 'this.#halt ??= outageOf(error); $&',
      },
    ],
    seedsMax: 50,
  },
  {
    name: 'storing after polling',
    changes: [
      {
        file: FLOW_POLLS,
        in: 'FlowPolls.#poll',
        replace: 'if (flow !== undefined) storing.add(marker, flow);',
        with: `const later = ((this as any).later ??= []);
          if (flow !== undefined) later.push(() => storing.add(marker, flow));`,
      },
      {
        file: FLOW_POLLS,
        in: 'FlowPolls.round',
        replace: 'await pMap(overdue, …);',
        with: 'for (const store of ((this as any).later ?? []).splice(0)) store(); $&',
      },
    ],
    seedsMax: 50,
  },
  {
    name: 'Retry-After obeyed by one request only',
    changes: [
      {
        file: 'flow-service/pace.ts',
        in: 'Pace.throttled',
        replace: 'this.#firstHoldUntil = Math.max(…);',
        with: '',
      },
      {
        file: 'flow-service/pace.ts',
        in: 'Pace.throttled',
        replace: 'this.#longHoldUntil = Math.max(…);',
        with: '',
      },
    ],
    seedsMax: 50,
  },
  {
    name: 'absence concluded from a listing without tags',
    changes: [
      { file: FLOW_SIGHTINGS, in: 'Sightings.doubt', replace: 'if (!seen.showsAdditional) return …;', with: '' },
      {
        file: FLOW_SIGHTINGS,
        in: 'Sightings.isPast',
        replace: 'this.#order.isPast && this.#seen.showsAdditional',
        with: 'this.#order.isPast',
      },
    ],
    seedsMax: 500,
  },
  {
    name: 'absence concluded from a filter that shows nothing',
    changes: [
      {
        file: FLOW_SIGHTINGS,
        in: 'Sightings.doubt',
        replace: 'if (this.#filteredSince !== undefined && !this.#isFilterShown) { return …; }',
        with: '',
      },
    ],
    seedsMax: 100,
  },
  {
    name: 'a search continued from before the flow had to be listed',
    changes: [
      {
        file: FLOW_SEARCH,
        in: 'Reading.#placeIn',
        replace: 'this.#search.isEarly || this.#search.onPlace === undefined',
        with: 'this.#search.onPlace === undefined',
      },
    ],
    seedsMax: 300,
  },
  {
    name: 'a sweep that misses the margin',
    changes: [
      {
        file: 'sweep/sweep-run.ts',
        in: 'SweepRun.#throughLedger',
        replace: 'const uploadedSince = Math.min(…);',
        with: 'const uploadedSince = this.#watermark;',
      },
    ],
    seedsMax: 20,
  },
];
