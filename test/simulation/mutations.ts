/**
 * What would be a mistake in the functions, made on purpose to see that the simulation finds it. Each says which text of
 * which file becomes which other; a text that is not there any more is an error, so that none of them goes blunt unseen.
 */
export interface Mutation {
  readonly name: string;
  readonly changes: readonly { readonly file: string; readonly from: string; readonly to: string }[];
  /** Within so many seeds it must be found. */
  readonly seedsMax: number;
}

export const MUTATIONS: readonly Mutation[] = [
  {
    name: 'claim after POST',
    changes: [
      {
        file: 'create-flow/create-flow.ts',
        from: `    const written = await ledger.create(entry, this.#invocation.work);
    if (!written.won) {`,
        to: `    const posted = entry.state !== 'claimed' ? undefined : await this.#ports.flows.create({
      template: entry.route.template,
      parameters: entry.route.parameters,
      additional: entry.route.additional,
      tag: flowTagOf(entry, settings.pipeline),
      input: { as: route.input, mediaType: upload.mediaType, source: object.source, additional: { key: upload.key } },
    }, this.#invocation.work);
    const written = await ledger.create(entry, this.#invocation.work);
    if (written.won && posted !== undefined) {
      return this.#commit(written.stored as Stored<ClaimedEntry>, posted.flowId, 'created');
    }
    if (!written.won) {`,
      },
    ],
    seedsMax: 20,
  },
  {
    name: 'marker before entry',
    changes: [
      {
        file: 'create-flow/create-flow.ts',
        from: `    const written = await ledger.replace(claim, running(claim.entry, flow), this.#invocation.closing);
    if (written.won) {
      await this.#putRunningMarker(claim.entry.upload, flow);`,
        to: `    await this.#putRunningMarker(claim.entry.upload, flow);
    const written = await ledger.replace(claim, running(claim.entry, flow), this.#invocation.closing);
    if (written.won) {`,
      },
    ],
    seedsMax: 20,
  },
  {
    name: 'receipt before the terminal entry',
    changes: [
      {
        file: 'collect-outputs/collect-flow.ts',
        from: 'const written = await ledger.replace(stored, terminal, closing);',
        to: 'await publish(terminal, this.#ports, closing); const written = await ledger.replace(stored, terminal, closing);',
      },
    ],
    seedsMax: 20,
  },
  {
    name: 'no nonce on entry writes',
    changes: [{ file: 'ledger/store.ts', from: 'if (current?.nonce === nonce) ', to: 'if (nonce === undefined) ' }],
    seedsMax: 600,
  },
  {
    name: 'tag without generation',
    changes: [{ file: 'ledger/entry.ts', from: 'generation: entry.generation,\n});', to: 'generation: 1,\n});' }],
    seedsMax: 500,
  },
  {
    name: 'absence concluded from the first page',
    changes: [
      {
        file: 'flow-service/flow-search.ts',
        from: 'if (seen.isPast) break;',
        to: 'break;',
      },
    ],
    seedsMax: 500,
  },
  {
    name: 'absence concluded at once',
    changes: [
      {
        file: 'create-flow/create-flow.ts',
        from: 'const conclusiveAt = doubt.sentBy + ABSENT_AFTER_MS;',
        to: 'const conclusiveAt = doubt.sentBy;',
      },
    ],
    seedsMax: 500,
  },
  {
    name: 'a claim deadline before the hard end',
    changes: [
      {
        file: 'create-flow/create-flow.ts',
        from: 'return this.#invocation.endsAt + CLAIM_MARGIN_MS;',
        to: 'return this.#invocation.startedAt + CLAIM_MARGIN_MS / 2;',
      },
    ],
    seedsMax: 20,
  },
  {
    name: 'assets written unconditionally',
    changes: [
      {
        file: 'results/results.ts',
        from: `      Body: this.#filling.subarray(0, this.#filled),
      IfNoneMatch: '*',`,
        to: '      Body: this.#filling.subarray(0, this.#filled),',
      },
    ],
    seedsMax: 300,
  },
  {
    name: 'no abort of a cut download',
    changes: [
      {
        file: 'results/results.ts',
        from: `    } catch (error) {
      await this.#abort(upload);
      throw error;`,
        to: `    } catch (error) {
      throw error;`,
      },
    ],
    seedsMax: 1000,
  },
  {
    name: 'a cut download completed instead of aborted',
    changes: [
      {
        file: 'results/results.ts',
        from: `    } catch (error) {
      await this.#abort(upload);
      throw error;`,
        to: `    } catch (error) {
      await upload.finish();
      throw error;`,
      },
    ],
    seedsMax: 500,
  },
  {
    name: 'a terminal entry not replayed',
    changes: [
      {
        file: 'collect-outputs/collect-flow.ts',
        from: `      await publish(entry, this.#ports, closing);
    }
    await ledger.deleteRunningMarker(marker, closing);`,
        to: `    }
    await ledger.deleteRunningMarker(marker, closing);`,
      },
    ],
    seedsMax: 100,
  },
  {
    name: 'an older upload’s receipt winning',
    changes: [
      {
        file: 'publish/receipts.ts',
        from: 'if (current === there.uploadId) return false;',
        to: 'if (current !== undefined) return true;',
      },
    ],
    seedsMax: 50,
  },
  {
    name: 'throttling counted as an attempt',
    changes: [
      {
        file: 'create-flow/retry-policy.ts',
        from: "reason: 'throttled', counted: false,",
        to: "reason: 'throttled', counted: true,",
      },
    ],
    seedsMax: 800,
  },
  {
    name: 'a message deleted while its claim is live',
    changes: [
      {
        file: 'create-flow/create-flow.ts',
        // biome-ignore lint/suspicious/noTemplateCurlyInString: It is source text.
        from: 'throw new ClaimHeldError(`Another invocation holds the claim on upload ${entry.upload.id}`);',
        to: "return 'skipped';",
      },
    ],
    seedsMax: 500,
  },
  {
    name: 'due times computed from the last started tick',
    changes: [
      {
        file: 'collect-outputs/tick.ts',
        from: 'if (isWhole && !this.#health.isInVain) {',
        to: `this.#lastCompletedAt = round.startedAt;
    if (isWhole && !this.#health.isInVain) {`,
      },
    ],
    seedsMax: 200,
  },
  {
    name: 'the token not struck out of what is quoted',
    changes: [
      {
        file: 'flow-service/client.ts',
        from: '  if (secret === undefined || secret.length < TOKEN_CHARS_MIN) return text;',
        to: '  if (secret !== undefined) return text;',
      },
    ],
    seedsMax: 50,
  },
  {
    name: 'only the first page of the inbox swept',
    changes: [
      {
        file: 'uploads/inbox.ts',
        from: 'from = answer.IsTruncated === true && key !== undefined ? { key, versionId } : undefined;',
        to: 'from = undefined;',
      },
    ],
    seedsMax: 100,
  },
  {
    name: 'the lease never renewed',
    changes: [{ file: 'ledger/lease.ts', from: 'lease.#renewing = lease.#keepRenewing(signal);', to: '' }],
    seedsMax: 100,
  },
  {
    name: 'no second look for a flow that is gone',
    changes: [
      {
        file: 'collect-outputs/collect-flow.ts',
        from: 'if (!this.#firstLooks.isSecond(stored.entry.upload.id, failure.code, this.#ports.clock.now())) return false;',
        to: '',
      },
    ],
    seedsMax: 300,
  },
  {
    name: 'two looks that are not in a row believed',
    changes: [
      {
        file: 'collect-outputs/collect-flow.ts',
        from: "if (look.kind === 'running') this.#firstLooks.forget(marker.uploadId);",
        to: '',
      },
    ],
    seedsMax: 300,
  },
  {
    name: 'the flow id of a marker not decoded',
    changes: [
      { file: 'ledger/keys.ts', from: 'undefined : decodedId(match[3] as string);', to: 'undefined : match[3];' },
    ],
    seedsMax: 20,
  },
  {
    name: 'an object that is there already not hashed',
    changes: [
      {
        file: 'results/results.ts',
        from: 'return this.#existing(to.key, signal);',
        to: "return { bytes, sha256: hash.digest('hex') };",
      },
    ],
    seedsMax: 500,
  },
  {
    name: 'doubts not joined',
    changes: [
      {
        file: 'ledger/entry.ts',
        from: `    claimedAt: Math.min(entry.doubt?.claimedAt ?? entry.claimedAt, entry.claimedAt),
    sentBy: Math.max(entry.doubt?.sentBy ?? sentBy, sentBy),`,
        to: `    claimedAt: entry.claimedAt,
    sentBy,`,
      },
    ],
    seedsMax: 300,
  },
  {
    name: 'no handover to one who waits in doubt',
    changes: [
      {
        file: 'create-flow/create-flow.ts',
        from: "if (theirs?.state === 'waiting' && theirs.generation === mine.generation) {",
        to: "if (theirs?.state === 'waiting' && theirs.generation !== mine.generation) {",
      },
    ],
    seedsMax: 500,
  },
  {
    name: 'a tick that halts at the first 429',
    changes: [
      {
        file: 'collect-outputs/tick.ts',
        from: "return outageOf(error) === undefined ? 'failed' : 'outage';",
        to: `if (outageOf(error) === 'throttled') this.#halt ??= 'throttled';
      return outageOf(error) === undefined ? 'failed' : 'outage';`,
      },
    ],
    seedsMax: 50,
  },
  {
    name: 'a poisoned flow that halts the tick',
    changes: [
      {
        file: 'collect-outputs/tick.ts',
        from: "return outageOf(error) === undefined ? 'failed' : 'outage';",
        to: `this.#halt ??= outageOf(error);
      return outageOf(error) === undefined ? 'failed' : 'outage';`,
      },
    ],
    seedsMax: 50,
  },
  {
    name: 'storing after polling',
    changes: [
      {
        file: 'collect-outputs/tick.ts',
        from: 'if (flow !== undefined) this.#store(marker, flow);',
        to: `const later = ((this as any).later ??= []);
        if (flow !== undefined) later.push(() => this.#store(marker, flow));`,
      },
      {
        file: 'collect-outputs/tick.ts',
        from: 'await pMap(overdue, ({ marker, error })',
        to: `for (const store of ((this as any).later ?? []).splice(0)) store();
    await pMap(overdue, ({ marker, error })`,
      },
    ],
    seedsMax: 50,
  },
  {
    name: 'Retry-After obeyed by one request only',
    changes: [
      {
        file: 'flow-service/pace.ts',
        from: 'this.#heldUntil = Math.max(this.#heldUntil, now + holdMs);',
        to: '',
      },
    ],
    seedsMax: 50,
  },
  {
    name: 'absence concluded from a listing without tags',
    changes: [
      {
        file: 'flow-service/flow-search.ts',
        from: "if (!this.#showsAdditional) return 'the listing shows no additional data of flows, so the tag cannot be seen';",
        to: '',
      },
      {
        file: 'flow-service/flow-search.ts',
        from: 'return this.#order.isPast && this.#showsAdditional;',
        to: 'return this.#order.isPast;',
      },
    ],
    seedsMax: 500,
  },
];
