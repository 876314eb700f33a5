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
const ENDING = 'create-flow/ending.ts';
const CHAIN = 'chains/chain.ts';
const JOB = 'create-flow/job.ts';
const COLLECT_FLOW = 'collect-outputs/collect-flow.ts';
const FLOW_POLLS = 'collect-outputs/flow-polls.ts';
const FAILURE_ISOLATION = 'collect-outputs/failure-isolation.ts';
const FLOW_SEARCH = 'flow-service/flow-search.ts';
const RESULTS = 'results/results.ts';
const CHAIN_NOTES = 'publish/chain-notes.ts';
const HOLDS = 'holds/holds.ts';
const HOLD_STORE = 'holds/hold-store.ts';
const COPIES = 'ledger/copies.ts';
const PERMIT = 'holds/permit.ts';
const SOURCES = 'publish/sources.ts';

/** @param seedsMax the number of seeds within which the mistake must be found. */
const mistake = (name: string, seedsMax: number, ...changes: readonly Change[]): Mutation => ({
  name,
  changes,
  seedsMax,
});

export const MUTATIONS: readonly Mutation[] = [
  mistake(
    'the POST before the claim',
    20,
    {
      file: CREATE_FLOW,
      in: 'CHANGES_MAX',
      replace: 'const CHANGES_MAX = 5;',
      with: "import { flowTagOf } from '../ledger/entry.ts'; $&",
    },
    {
      file: CREATE_FLOW,
      in: 'begin',
      replace: 'const written = await claimFirst(…);',
      with: `const posted = terminal !== undefined ? undefined : await delivery.ports.flows.create({
            template: route.template,
            parameters: route.parameters,
            additional: route.additional,
            tag: flowTagOf(claim, delivery.ports.settings.pipeline),
            inputs: object.inputs.map(({ source }) => ({ as: route.input, mediaType: upload.mediaType, source, additional: { key: upload.key } })),
          }, delivery.invocation.work);
          $&
          if (written.won && posted !== undefined) {
            const { flowId } = posted;
            return { kind: 'flow', claim: { stored: written.stored, entry: claim }, flowId, how: 'created' };
          }`,
    },
  ),
  mistake('the marker before the entry', 20, {
    file: ENDING,
    in: 'writeFlow',
    replace: 'const written = await replaceClaim(…);',
    with: 'await writeRest(delivery, entry); $&',
  }),
  mistake('the receipt before the terminal entry', 20, {
    file: COLLECT_FLOW,
    in: 'FlowCollector.#end',
    replace: 'const written = await ledger.replace(…);',
    with: 'await publish(terminal, this.#ports, closing); $&',
  }),
  mistake('no marker of a failure', 20, {
    file: 'publish/publish.ts',
    in: 'publish',
    replace: 'await ports.ledger.putFailedMarker(failedMarkerOf(entry), signal);',
    with: '',
  }),
  mistake('no nonce of entry writes', 600, {
    file: 'ledger/store.ts',
    in: 'Ledger.#write',
    replace: 'current?.nonce === nonce',
    with: 'nonce === undefined',
  }),
  mistake('a tag without its generation', 500, {
    file: 'ledger/entry.ts',
    in: 'flowTagOf',
    replace: 'generation: entry.generation',
    with: 'generation: 1',
  }),
  mistake('absence concluded from the first page', 500, {
    file: FLOW_SEARCH,
    in: 'readOnce',
    replace: 'if (isPast || areAllFound(search, found)) break;',
    with: 'break;',
  }),
  mistake('absence concluded from one reading of several pages', 1000, {
    file: FLOW_SEARCH,
    in: 'readTwice',
    replace: 'pages === 1 || isShownAgain(before, listed)',
    with: 'true',
  }),
  mistake('absence concluded at once', 500, {
    file: 'create-flow/doubt.ts',
    in: 'settleDoubt',
    replace: 'doubt.sentBy + listedWithinMs(flows.service)',
    with: 'doubt.sentBy',
  }),
  mistake('absence concluded before a flow must be listed that a slow service makes after the connection broke', 400, {
    file: FLOW_SEARCH,
    in: 'listedWithinMs',
    replace: 'Math.max(LISTING_DELAY_MAX_MS, 2 * answerSeconds * 1000)',
    with: 'LISTING_DELAY_MAX_MS',
  }),
  mistake('absence concluded from a listing that lacks a known flow', 900, {
    file: FLOW_SEARCH,
    in: 'absentUnlessLacking',
    replace: 'made.every((id) => ids.includes(id))',
    with: 'true',
  }),
  mistake('a file sent although the time of its invocation is over by the clock', 200, {
    file: 'create-flow/send.ts',
    in: 'attemptOnce',
    replace: 'if (delivery.ports.clock.now() >= delivery.invocation.workEndsAt) throw new OutOfTimeError(…);',
    with: '',
  }),
  mistake('a flow that its upload has ended with taken for an orphan', 900, {
    file: ENDING,
    in: 'yieldFlow',
    replace: "if (theirs !== undefined && 'flow' in theirs && theirs.flow?.id === flowId)",
    with: "if (theirs?.state === 'running' && theirs.flow.id === flowId)",
  }),
  mistake('a claim deadline before the hard end', 20, {
    file: 'create-flow/delivery.ts',
    in: 'Delivery.claimTerms',
    replace: 'this.invocation.endsAt + CLAIM_MARGIN_MS',
    with: 'this.invocation.startedAt + CLAIM_MARGIN_MS / 2',
  }),
  mistake('assets written unconditionally', 300, {
    file: 'results/asset-writer.ts',
    in: 'AssetWriter.#put',
    replace: "IfNoneMatch: '*'",
    with: '...{}',
  }),
  mistake('a page stored as the asset', 1000, {
    file: 'flow-service/asset-answer.ts',
    in: 'documentIn',
    replace: "if (isPage(mediaType, text)) return { what: 'An HTML page', mediaType: 'text/html' };",
    with: '',
  }),
  mistake('no abort of a download that broke off', 1000, {
    file: RESULTS,
    in: 'Results.store',
    replace: 'catch (error) { await this.#abort(writer, to);',
    with: 'catch (error) {',
  }),
  mistake('a download that broke off completed instead of aborted', 500, {
    file: RESULTS,
    in: 'Results.store',
    replace: 'catch (error) { await this.#abort(writer, to);',
    with: 'catch (error) { await writer.finish();',
  }),
  mistake('a terminal entry not published again', 100, {
    file: COLLECT_FLOW,
    in: 'FlowCollector.#entryOf',
    replace: 'await publish(entry, this.#ports, closing);',
    with: '',
  }),
  mistake('the receipt of an older upload winning', 20, {
    file: 'publish/receipts.ts',
    in: 'outranks',
    replace: 'return seconds > 0;',
    with: 'return seconds < 0;',
  }),
  mistake('the receipt that was put last winning', 20, {
    file: 'publish/receipts.ts',
    in: 'outranks',
    replace: 'if (seconds !== 0) return seconds > 0;',
    with: 'if (seconds !== 0) return true;',
  }),
  mistake('a multipart upload ranked by the date of its beginning', 100, {
    file: 'publish/receipts.ts',
    in: 'rankOf',
    replace: 'Math.max(lastModified, timeIn(metadata[CURRENT_AT]))',
    with: 'lastModified',
  }),
  mistake('throttling counted as an attempt', 800, {
    file: 'create-flow/retry-policy.ts',
    in: 'classify',
    replace: "wait('throttled', throttledMs(error, entry))",
    with: "wait('throttled', throttledMs(error, entry), true)",
  }),
  mistake('a file made anew in the generation that it had', 100, {
    file: 'ledger/entry.ts',
    in: 'retried',
    replace: 'generation: entry.generation + 1',
    with: 'generation: entry.generation',
  }),
  mistake('another key although the upload is in doubt', 600, {
    file: CLAIM,
    in: 'withKey',
    replace: 'isRefused && claim.entry.doubt === undefined',
    with: 'isRefused',
  }),
  mistake('a key relied on for ever', 600, {
    file: CLAIM,
    in: 'isKeyGood',
    replace: 'invocation.endsAt + leftMs + CLOCK_SKEW_MAX_MS <= doubt.claimedAt + keyHonouredMs(settings.service)',
    with: 'keyHonouredMs(settings.service) > 0',
  }),
  mistake('an expired address asked for again', 300, {
    file: 'flow-service/client.ts',
    in: 'HttpFlowService.asset',
    replace: 'await this.#links(flowId, outputs, signal, options)',
    with: '((this as any).known ??= {})[flowId] ??= $&',
  }),
  mistake('an undeclared word taken for completed', 300, {
    file: 'flow-service/answers.ts',
    in: 'recordOf',
    replace: "declared ?? 'running'",
    with: "declared ?? 'completed'",
  }),
  mistake('spent credit in words taken for a refusal of the file', 300, {
    file: 'flow-service/service-description.ts',
    in: 'refusalOf',
    replace: 'const byWords = REFUSALS.find(…);',
    with: 'const byWords = undefined;',
  }),
  mistake('a message deleted while its claim is live', 500, {
    file: CREATE_FLOW,
    in: 'resume',
    replace: "case 'leave-to-its-claim': throw new ClaimHeldError(…);",
    with: "case 'leave-to-its-claim': return 'skipped';",
  }),
  mistake('a slow poll counted that its round had no time for', 100, {
    file: FLOW_POLLS,
    in: 'FlowPolls.#pollSlow',
    replace: 'else this.isSlowLeft = true;',
    with: 'else this.#tick.slow.note(marker.uploadId, now);',
  }),
  mistake('the token not redacted', 50, {
    file: 'flow-service/redact.ts',
    in: 'redact',
    replace: 'if (secret === undefined || …) return text;',
    with: 'return text;',
  }),
  mistake("the token's base64 not redacted", 50, {
    file: 'flow-service/redact.ts',
    in: 'patternOf',
    replace: '[plain, ...encoded]',
    with: '[plain]',
  }),
  mistake('only the first page of the inbox swept', 100, {
    file: 'uploads/inbox.ts',
    in: 'Inbox.pages',
    replace: 'from = page.next;',
    with: 'from = undefined;',
  }),
  mistake('the lease never renewed', 100, {
    file: 'collect-outputs/collector.ts',
    in: 'Lease.take',
    replace: 'lease.#renewing = lease.#keepRenewing(signal);',
    with: '',
  }),
  mistake('a lease that was left taken by each copy of its message', 100, {
    file: 'collect-outputs/collector.ts',
    in: 'Lease.take',
    replace: 'const lease = new Lease(…);',
    with: 'if (left !== undefined) await document.read(signal); $&',
  }),
  mistake('a flow called gone at the first poll', 300, {
    file: COLLECT_FLOW,
    in: 'FlowCollector.#endIfConfirmed',
    replace: 'if (!confirmations.confirms(…)) return false;',
    with: '',
  }),
  mistake(
    'two polls that are not in a row believed',
    600,
    {
      file: COLLECT_FLOW,
      in: 'FlowCollector.poll',
      replace: 'this.#tick.confirmations.forget(marker.uploadId);',
      with: '',
    },
    {
      file: 'collect-outputs/tick-context.ts',
      in: 'EndConfirmations.noteShown',
      replace: 'this.forget(uploadId, GONE);',
      with: '',
    },
  ),
  mistake('the flow id of a marker not decoded', 20, {
    file: 'ledger/keys.ts',
    in: 'parseRunningKey',
    replace: 'decodedId(match[3] as string)',
    with: 'match[3]',
  }),
  mistake('an object that is there already not hashed', 500, {
    file: RESULTS,
    in: 'Results.store',
    replace: 'return this.#existing(to, signal);',
    with: "return { bytes, sha256: hash.digest('hex') };",
  }),
  mistake('doubts not joined', 300, {
    file: 'ledger/entry.ts',
    in: 'doubtAfter',
    replace: 'claimedAt: Math.min(…), sentBy: Math.max(…)',
    with: 'claimedAt: entry.claimedAt, sentBy',
  }),
  mistake('no handover to an invocation that waits in doubt', 300, {
    file: ENDING,
    in: 'yieldFlow',
    replace: 'theirs.generation === mine.generation',
    with: 'theirs.generation !== mine.generation',
  }),
  mistake('a tick that halts at the first 429', 50, {
    file: FAILURE_ISOLATION,
    in: 'FailureIsolation.runInOutage',
    replace: 'if (!(error instanceof FlowServiceError)) this.#failures.push(error);',
    with: "if (outageOf(error) === 'throttled') { this.#halt ??= 'throttled'; return 'cut off'; } $&",
  }),
  mistake('a poisoned flow that halts the tick', 50, {
    file: FAILURE_ISOLATION,
    in: 'FailureIsolation.runInOutage',
    replace: 'if (!(error instanceof FlowServiceError)) this.#failures.push(error);',
    with: "this.#halt ??= outageOf(error); if (this.#halt !== undefined) return 'cut off'; $&",
  }),
  mistake(
    'storing after polling',
    50,
    {
      file: FLOW_POLLS,
      in: 'FlowPolls.#poll',
      replace: 'if (flow !== undefined) this.#storing.add(marker, flow);',
      with: `const later = ((this as any).later ??= []);
          if (flow !== undefined) later.push(() => this.#storing.add(marker, flow));`,
    },
    {
      file: FLOW_POLLS,
      in: 'FlowPolls.round',
      replace: 'await this.#each(this.#overdue.splice(0), …);',
      with: 'for (const store of ((this as any).later ?? []).splice(0)) store(); $&',
    },
  ),
  mistake(
    'Retry-After obeyed by one request only',
    50,
    { file: 'flow-service/pacer.ts', in: 'Pace.refused', replace: 'this.#backOff(…);', with: '' },
    { file: 'flow-service/pacer.ts', in: 'Pace.refused', replace: 'this.#longBackoffUntil = Math.max(…);', with: '' },
  ),
  mistake('a refusal after the last byte believed in any form', 500, {
    file: 'flow-service/client.ts',
    in: 'HttpFlowService.#creationError',
    replace: "NO_FLOW_STATUSES.includes(status) || (meaning ?? 'notReady') !== 'notReady'",
    with: 'status < 500',
  }),
  mistake('no time limit of the answer to a creation', 300, {
    file: 'flow-service/requests.ts',
    in: 'Requests.#limitsOf',
    replace: 'answerMs: headMs + CREATION_REST_MS',
    with: 'answerMs: undefined',
  }),
  mistake(
    'slow assets that keep their places',
    200,
    {
      file: 'collect-outputs/asset-slots.ts',
      in: 'AssetSlots.#serve',
      replace: 'const lagging = …;',
      with: 'const lagging: AssetSlot[] = [];',
    },
    {
      file: 'collect-outputs/asset-slots.ts',
      in: 'AssetSlots.#serve',
      replace: 'const nextAt = …;',
      with: 'const nextAt = now + FAST_MS;',
    },
    { file: 'flow-service/asset-download.ts', in: 'Progress.wait', replace: 'this.#limit.set(…);', with: '' },
  ),
  mistake(
    'a download of white space without a limit, and a finished flow without an age',
    200,
    {
      file: 'flow-service/asset-download.ts',
      in: 'Progress.wait',
      replace: 'this.#limit.set(…);',
      with: '',
    },
    {
      file: 'collect-outputs/flow-assets.ts',
      in: 'FlowAssets.collect',
      replace: 'const mustEnd = …;',
      with: 'const mustEnd = false;',
    },
  ),
  mistake('a sweep that misses the margin', 20, {
    file: 'sweep/sweep-run.ts',
    in: 'SweepRun.#throughLedger',
    replace: 'const uploadedSince = Math.min(…);',
    with: 'const uploadedSince = this.#watermark;',
  }),
  mistake('a later stage begun before its chain is written', 100, {
    file: CHAIN_NOTES,
    in: 'ChainNotes.childrenOf',
    replace: 'const chain = await this.#noted(entry, signal);',
    with: `for (const child of childrenOf(entry, this.#ports.settings.resultsBucket)) await this.#begin(child, signal);
          $&`,
  }),
  mistake('a stage begun with all assets before its last upload has ended', 300, {
    file: CHAIN,
    in: 'isComplete',
    replace: "!uploads.some(({ route, state }) => route === name && state === 'under way')",
    with: 'true',
  }),
  mistake('a stage begun with all assets although an output is missing', 300, {
    file: CHAIN,
    in: 'closeStage',
    replace: '.every(({ state, failedOutputs }) => isSuccess(state) && failedOutputs === 0)',
    with: '.every(({ state }) => isSuccess(state))',
  }),
  mistake('the id of a later upload without the generation of its parent', 500, {
    file: 'uploads/upload.ts',
    in: 'uploadId',
    replace: 'parent.id, parent.generation, parent.asset',
    with: 'parent.id, parent.asset',
  }),
  mistake('the end of a chain told before the last receipt', 100, {
    file: 'publish/publish.ts',
    in: 'publish',
    replace: 'const key = await ports.receipts.put(receipt, signal);',
    with: 'if (isInChain(entry, routes)) await ports.chainNotes.note(entry, signal); $&',
  }),
  mistake(
    'the end of a chain told only by the invocation that wrote it',
    500,
    {
      file: CHAIN_NOTES,
      in: 'ChainNotes.#write',
      replace: 'const chain =',
      with: 'const changed: boolean[] = []; const chain =',
    },
    {
      file: CHAIN_NOTES,
      in: 'ChainNotes.#write',
      replace: '(before) => noted(before, entries, settings.routes)',
      with: '(before) => { const next = noted(before, entries, settings.routes); changed.push(next !== before); return next; }',
    },
    {
      file: CHAIN_NOTES,
      in: 'ChainNotes.#write',
      replace: 'chain.endedAt !== undefined && entries.some(isTerminal)',
      with: 'changed.at(-1) && chain.endedAt !== undefined && entries.some(isTerminal)',
    },
  ),
  mistake(
    'a planned stage that the configuration lacks not named',
    600,
    { file: CHAIN, in: 'withChildren', replace: 'withoutRoutes(before, entry)', with: 'before' },
    { file: CHAIN, in: 'gather', replace: 'hasAssets(chain, after) ? withheld(noRoute(name)) : chain', with: 'chain' },
  ),
  mistake('a chain that follows the present routes instead of its plan', 600, {
    file: CHAIN,
    in: 'stagesOf',
    replace: 'plan ?? planAfter(…)',
    with: "planAfter(routes, uploads[0]?.route ?? '')",
  }),
  mistake('a job sent without the inputs that it lacks', 100, {
    file: JOB,
    in: 'sendJob',
    replace: 'if (found.missing.length > 0) return waitForInputs(…);',
    with: '',
  }),
  mistake('a job that waits for its inputs beyond its deadline', 100, {
    file: JOB,
    in: 'waitForInputs',
    replace: 'lookedAt >= deadline',
    with: 'false',
  }),
  mistake('a sweep that begins anew because of one damaged time', 200, {
    file: 'sweep/sweep-state.ts',
    in: 'parsedState',
    replace: 'firstDay ?? Math.max(0, …)',
    with: '(watermark !== undefined && firstDay) || firstSecondOf(now)',
  }),
  mistake('an upload that was held sent by the route that it had', 300, {
    file: CREATE_FLOW,
    in: 'sendIfFit',
    replace: 'rerouted(entry, upload, chosen.route, …)',
    with: 'rerouted(entry, upload, entry.route, job && awaitedInputs(job, entry.arrivedAt))',
  }),
  mistake('an upload that was held sent although its route is gone', 600, {
    file: CREATE_FLOW,
    in: 'sendIfFit',
    replace: 'if (chosen === undefined)',
    with: 'if (chosen === undefined) return send(delivery, claim, object); $&',
  }),
  mistake('an upload that was held not counted for the new name of its route', 300, {
    file: 'ledger/entry.ts',
    in: 'rerouted',
    replace: 'upload: { ...upload, currentAt, sequencer }, route,',
    with: 'upload: { ...upload, currentAt, sequencer }, route: { ...route, name: entry.route.name },',
  }),
  mistake('an unreadable success sent again', 300, {
    file: 'create-flow/doubt.ts',
    in: 'settleDoubt',
    replace: "settings.inDoubt === 'ask' || doubt.isAccepted === true",
    with: "settings.inDoubt === 'ask'",
  }),
  mistake('a copy taken for an upload', 100, {
    file: CREATE_FLOW,
    in: 'begin',
    replace: 'copied !== undefined && ',
    with: 'false && ',
  }),
  mistake('a copy skipped after a failure', 300, {
    file: COPIES,
    in: 'copiedEntry',
    replace: 'before.endedAt < upload.lastModified + SECOND_MS',
    with: 'false',
  }),
  mistake('a copy that replaces the upload before it', 200, {
    file: COPIES,
    in: 'currentUpload',
    replace: 'return { id: copied?.upload.id ?? id, current, copied };',
    with: 'return { id, current };',
  }),
  mistake('an earlier version sent although its key changed before it was still', 100, {
    file: CREATE_FLOW,
    in: 'keptByKey',
    replace: 'if (!isKept)',
    with: 'if (false)',
  }),
  mistake('a file sent once its time is over, whatever is at its key', 100, {
    file: CREATE_FLOW,
    in: 'begin',
    replace: 'waiting(unsettled(claim), wait)',
    with: 'waiting(claim, wait)',
  }),
  mistake('a file that gives way to a copy of it, which nobody begins', 300, {
    file: CREATE_FLOW,
    in: 'keptByKey',
    replace: 'await beginAt(delivery, current, upload);',
    with: '',
  }),
  mistake('a file taken for a copy of the one with the same content before it', 300, {
    file: CREATE_FLOW,
    in: 'begin',
    replace: 'mayBeCopy && (await isNew())',
    with: 'await isNew()',
  }),
  mistake('an approval that is not looked at', 200, {
    file: CREATE_FLOW,
    in: 'unapproved',
    replace: 'review?.approvedAt !== undefined',
    with: 'review?.approvedAt === undefined',
  }),
  mistake('a flow sent without being counted', 100, {
    file: PERMIT,
    in: 'Permit.#hold',
    replace: 'isCountedBefore = this.#attempt.isCountedBefore || this.#counted !== undefined',
    with: 'isCountedBefore = true',
  }),
  mistake('the holds written without a condition', 300, {
    file: 'ledger/document.ts',
    in: 'Document.#put',
    replace: "...(etag === undefined ? { IfNoneMatch: '*' } : { IfMatch: etag })",
    with: "...(key.endsWith('/holds.json') ? {} : etag === undefined ? { IfNoneMatch: '*' } : { IfMatch: etag })",
  }),
  mistake('a flow in doubt uncounted', 300, {
    file: 'create-flow/send.ts',
    in: 'endingWithoutFlow',
    replace: 'if (mayHaveFlow) claim',
    with: 'if (mayHaveFlow && permit.counted === undefined) claim',
  }),
  mistake('a hold that a process learns of late', 200, {
    file: HOLD_STORE,
    in: 'HOLDS_AGE_MAX_MS',
    replace: '1_000',
    with: '600_000',
  }),
  mistake('a pause of a route not looked at', 200, {
    file: HOLDS,
    in: 'holdOf',
    replace: 'holds.pipeline.paused ?? route?.paused',
    with: 'holds.pipeline.paused',
  }),
  mistake('a failing route that holds live files too', 200, {
    file: HOLDS,
    in: 'holdOf',
    replace: 'if (!isLate || failing === undefined || isTrialDue(failing, now)) return undefined;',
    with: 'if (failing === undefined || isTrialDue(failing, now)) return undefined;',
  }),
  mistake('a failing route that a whole bulk is tried with', 300, {
    file: HOLDS,
    in: 'isTrialDue',
    replace: 'now - triedAt >= TRIAL_EVERY_MS',
    with: 'now >= triedAt',
  }),
  mistake('a file is deleted although an output failed', 40, {
    file: SOURCES,
    in: 'Sources.#settle',
    replace: 'if (isWhole)',
    with: 'if (true)',
  }),
  mistake('a file is deleted before its chain has ended', 60, {
    file: 'publish/publish.ts',
    in: 'publish',
    replace: 'else await settleSource(…);',
    with: 'await settleSource(entry, receipt, ports, signal);',
  }),
  mistake('the version that is current is tagged, and not the one that was sent', 60, {
    file: SOURCES,
    in: 'Sources.#tag',
    replace: '{ Bucket: bucket, Key: key, VersionId: versionId }',
    with: '{ Bucket: bucket, Key: key }',
  }),
  mistake('a flow deleted before its chain has ended', 200, {
    file: 'resubmit/flow-deletion.ts',
    in: 'FlowDeletions.#isOver',
    replace: 'return chain === undefined || chain.endedAt !== undefined;',
    with: 'return true;',
  }),
  mistake('the flow of a failure deleted', 100, {
    file: 'ledger/entry.ts',
    in: 'flowsToDelete',
    replace: 'flow !== undefined && isSuccess(state)',
    with: 'flow !== undefined',
  }),
  mistake('an asset that a stage takes may expire once it is stored', 300, {
    file: 'collect-outputs/flow-assets.ts',
    in: 'FlowAssets.#open',
    replace: 'settings.resultsRetentionDays !== undefined && !isTaken',
    with: 'settings.resultsRetentionDays !== undefined',
  }),
  mistake('assets that a chain has taken never expire', 60, {
    file: CHAIN_NOTES,
    in: 'ChainNotes.#publishEnd',
    replace: 'await this.#letExpire(chain, signal);',
    with: '',
  }),
  mistake('assets that a stage takes anew still expire', 500, {
    file: SOURCES,
    in: 'Sources.keep',
    replace: 'return this.#setExpiry(undefined, inputs, signal);',
    with: 'return Promise.resolve(undefined);',
  }),
  mistake('an upload of a stage that is made anew taken for begun', 100, {
    file: 'operator/anew.ts',
    in: 'beginLeft',
    replace: 'entry !== undefined && (!isTerminal(entry) || entry.generation >= upload.generation)',
    with: 'entry === undefined || !isTerminal(entry) || entry.generation >= upload.generation',
  }),
  mistake('an older success that ends later takes the alias', 60, {
    file: 'publish/aliases.ts',
    in: 'Aliases.show',
    replace: 'there === undefined || there.order < mine.order',
    with: 'there === undefined || there.order !== mine.order',
  }),
  mistake('an alias counts as refused if the answer to its completion was lost', 900, {
    file: 'results/multipart-upload.ts',
    in: 'MultipartUpload.abort',
    replace: 'await ifThere(',
    with: 'await (',
  }),
];
