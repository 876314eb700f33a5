import { createHash } from 'node:crypto';
import { inspect } from 'node:util';
import type { Entry, TerminalEntry } from '../../functions/ledger/entry.ts';
import type { Receipt } from '../../functions/publish/receipts.ts';
import type { FlowView } from '../../local/flow-service/records.ts';
import { demand } from './demand.ts';
import type { Fault } from './faults.ts';
import { LOWERED_SETTINGS } from './scenario.ts';
import { INBOX, LEDGER, NEXT_INBOX, NEXT_PIPELINE, PIPELINE, type Put, RESULTS, type World } from './world.ts';

/*
 * What must hold of a world that has come to rest. Each check looks at the buckets, the service and the logs, and
 * computes what it expects from what was put into the inbox and from what the service made: nothing of the functions'
 * own code is used.
 */

const sha256 = (bytes: Uint8Array): string => createHash('sha256').update(bytes).digest('hex');

const isTerminal = (entry: Entry): entry is TerminalEntry => entry.state === 'succeeded' || entry.state === 'failed';

export async function checkAll(world: World): Promise<void> {
  const { broken } = world.orderChecker;
  demand(broken.length === 0, broken[0] ?? '');
  const entries = await world.entries();
  await checkEntries(world, entries);
  await checkNoMarkers(world, entries);
  checkEndings(world, entries.filter(isTerminal));
  checkFlows(world, entries);
  await checkResults(world, entries);
  await checkNoPartsLeft(world);
  await checkReceipts(world, entries.filter(isTerminal));
  checkEvents(world, entries.filter(isTerminal));
  await checkNoToken(world);
}

const isOf = (put: Put, { upload }: Pick<Entry, 'upload'>): boolean =>
  put.bucket === upload.bucket &&
  put.key === upload.key &&
  (put.versionId === undefined
    ? upload.versionId === undefined && put.etag === upload.etag && put.lastModified === upload.lastModified
    : put.versionId === upload.versionId);

const routed = ({ key }: Put): boolean => !key.startsWith('elsewhere/');

/** Every routed upload that could ever be read has one entry, at its end or held; and no entry is of nothing. */
async function checkEntries(world: World, entries: readonly Entry[]): Promise<void> {
  const { scenario, puts, expired, damaged } = world;
  const lost = [...expired.keys()].map((id) => world.orderChecker.uploads.get(id));
  const isExpired = (put: Put): boolean => lost.some((upload) => upload !== undefined && isOf(put, { upload }));
  for (const put of puts.filter(routed)) {
    if (damaged !== undefined && isOf(put, { upload: damaged })) continue;
    const own = entries.filter((entry) => isOf(put, entry));
    demand(own.length <= 1, 'an upload has several entries', put.key, own);
    const there = await world.inspector.open(put.bucket, put.key);
    const last = puts.findLast(({ bucket, key }) => bucket === put.bucket && key === put.key);
    const isCurrent = put.bucket === world.inbox && there !== undefined && last === put;
    // What is replaced before it can be read leaves no upload where the bucket keeps no versions. Where the
    // notification is lost, the sweep submits what is current.
    const isTold = put.versionId !== undefined && put.isNotified && !scenario.isLossy && put.bucket === world.inbox;
    const mustHave = (isCurrent || isTold) && !isExpired(put);
    demand(own.length === 1 || !mustHave, 'an upload has no entry', { ...put, content: put.content.byteLength });
  }
  for (const entry of entries) {
    demand(
      puts.some((put) => routed(put) && isOf(put, entry)),
      'an entry is of no upload',
      entry,
    );
    const isHeld = scenario.settings.inDoubt === 'hold' && entry.state === 'waiting' && entry.reason === 'held';
    demand(isTerminal(entry) || isHeld, 'an upload is stuck', entry);
  }
}

async function checkNoMarkers(world: World, entries: readonly Entry[]): Promise<void> {
  const held = new Set(entries.filter(({ state }) => state === 'waiting').map(({ upload }) => upload.id));
  const isOfDamaged = ({ key }: { readonly key: string }): boolean =>
    world.damaged !== undefined && key.includes(world.damaged.id);
  const running = (await world.inspector.list(LEDGER, 'running/')).filter((marker) => !isOfDamaged(marker));
  demand(running.length === 0, 'a marker of a running flow is left', running);
  const waiting = (await world.inspector.list(LEDGER, 'waiting/')).filter((marker) => !isOfDamaged(marker));
  const stray = waiting.filter(({ key }) => !held.has(key.split('/').at(-1) ?? ''));
  demand(stray.length === 0, 'a marker of a waiting upload is left', stray);
}

/** After the limits were lowered. */
const bytesMaxOf = (key: string): number =>
  key.startsWith('text/') ? LOWERED_SETTINGS.textBytesMax : LOWERED_SETTINGS.inputBytesMax;

/** An upload ended as it did for a reason that there was. */
function checkEndings(world: World, entries: readonly TerminalEntry[]): void {
  const { scenario, service, incidents, puts } = world;
  for (const entry of entries) {
    const { key } = entry.upload;
    const put = puts.find((one) => isOf(one, entry)) as Put;
    const flow = service.flows.find(({ id }) => id === entry.flow?.id);
    const met = (kind: string, ...faults: string[]): boolean =>
      incidents.some(
        (one) =>
          one.kind === kind &&
          faults.includes(one.fault) &&
          (kind === 'flow.create' ? one.keys.has(key) : one.path.includes(entry.flow?.id ?? '?')),
      );
    const blamed = world.blame.get(key) ?? 0;
    const wasRefused = met('flow.create', '404', '422') || put.key.startsWith('bad/');
    const isBadText = key.startsWith('text/') && put.content.includes(0xff);
    const code = entry.state === 'failed' ? entry.failure.code : undefined;
    const why = (): unknown[] => [code, { ...entry, route: undefined }, flow && { ...flow, inputs: undefined }];
    switch (code) {
      case undefined:
        // Where the service does not tell of its flows, the outputs are all there is to judge by.
        demand(
          flow?.state === 'completed' || (flow?.state === 'failed' && scenario.variation.getFlow !== 'served'),
          'a flow succeeded that did not',
          ...why(),
        );
        break;
      case 'flow-failed':
        demand(flow?.state === 'failed', 'a flow is called failed that is not', ...why());
        break;
      case 'flow-aborted':
        demand(flow?.aborted === true, 'a flow is called aborted that is not', ...why());
        demand(false, 'a flow of ours was aborted, and the upload paid for it', ...why());
        break;
      case 'input-empty':
        demand(put.content.byteLength === 0, 'an upload is called empty that is not', ...why());
        break;
      case 'invalid-text':
        demand(isBadText, 'a text is called invalid that is not', ...why());
        break;
      case 'rejected':
        demand(wasRefused, 'an upload is called rejected that was not', ...why());
        break;
      case 'upload-gone':
        demand(put.versionId === undefined, 'an upload is called gone that is there', ...why());
        break;
      case 'outside-inbox':
        demand(put.bucket !== world.inbox, 'an upload is called outside of the inbox that is in it', ...why());
        break;
      case 'input-too-large':
        demand(
          world.deployedAt.has('limits') && put.content.byteLength > bytesMaxOf(key),
          'an upload is called too large that is not',
          ...why(),
        );
        break;
      case 'attempts-exhausted':
        demand(
          blamed >= (world.deployedAt.has('limits') ? LOWERED_SETTINGS.attemptsMax : scenario.settings.attemptsMax),
          'an upload was given up without having failed so often',
          blamed,
          ...why(),
        );
        break;
      case 'flow-gone':
        if (flow?.deleted === true) break;
        demand(
          met('flow.get', '404') || met('flow.outputs', '404'),
          'a flow is called gone that the service knows',
          ...why(),
        );
        demand(
          isGoneTwiceInARow(world, entry.flow?.id ?? '', entry.endedAt),
          'a flow is called gone after a single 404, or after one that was followed by an answer',
          world.answers.get(entry.flow?.id ?? ''),
          ...why(),
        );
        break;
      case 'timed-out':
        demand(
          entry.endedAt - (entry.flow?.createdAt ?? 0) > scenario.settings.flowAgeMaxSeconds * 1000,
          'a flow timed out too early',
          ...why(),
        );
        break;
      case 'outputs-failed':
        demand(entry.assets.length === 0, 'all outputs failed, and there are some', ...why());
        break;
      default:
        demand(false, 'an upload failed for an unknown reason', ...why());
    }
    if (flow === undefined || code === 'flow-gone' || code === 'timed-out') continue;
    // A flow that failed and has, the service says, no outputs to list.
    if (code === 'flow-failed' && entry.assets.length === 0 && met('flow.outputs', '404')) continue;
    checkOutputs(entry, flow, (assetId) => {
      const isLate = entry.failedOutputs.some(({ id, code }) => id === assetId && code === 'out-of-time');
      return isLate
        ? Object.keys(world.faultPlan.table).length > 0
        : incidents.some(({ path }) => path.includes(assetId));
    });
  }
}

/** Two looks are at least so far apart, in milliseconds; what is asked twice within one look is not. */
const LOOKS_APART_MS = 5_000;

/** Whether the service said twice, at some distance and with nothing else in between, that there is no such flow. */
function isGoneTwiceInARow({ answers, scenario }: World, flowId: string, endedAt: number): boolean {
  // What says nothing of the flow is left out: it is the account's trouble, or the service's.
  const telling = (answers.get(flowId) ?? []).filter(
    ({ status, at }) => at <= endedAt + scenario.skewMs && (status < 300 || [404, 409, 410].includes(status)),
  );
  const lastKnown = telling.findLastIndex(({ status }) => status !== 404 && status !== 410);
  const gone = telling.slice(lastKnown + 1).map(({ at }) => at);
  return gone.length >= 2 && (gone.at(-1) as number) - (gone[0] as number) >= LOOKS_APART_MS;
}

/** All outputs of a flow are stored or said to have failed, and those that the service made only fail for a reason. */
function checkOutputs(entry: TerminalEntry, flow: FlowView, hadTrouble: (assetId: string) => boolean): void {
  const stored = new Set(entry.assets.map(({ id }) => id));
  const failed = new Set(entry.failedOutputs.map(({ id }) => id));
  const isOwn = (id: string): boolean => flow.outputs.some(({ assetId }) => assetId === id);
  demand([...stored, ...failed].every(isOwn), 'an entry has outputs that are not its flow’s', entry, flow);
  for (const { assetId, error } of flow.outputs) {
    if (error !== undefined) {
      demand(failed.has(assetId) && !stored.has(assetId), 'an output failed, and nobody says so', assetId, entry);
    } else if (!stored.has(assetId)) {
      demand(failed.has(assetId) && hadTrouble(assetId), 'an output is missing', assetId, entry, flow);
    }
  }
}

/** Flows are counted where they are paid for: at the service. */
function checkFlows(world: World, entries: readonly Entry[]): void {
  const { scenario, logged, service } = world;
  const flows = service.flows.flatMap((flow) => {
    const tag = flowTagOf(flow);
    return tag?.pipeline === 'another' ? [] : [{ flow, tag }];
  });
  const groups = new Map<string, FlowView[]>();
  for (const { flow, tag } of flows) {
    if (tag === undefined) {
      demand(
        flow.inputs.every(({ bytes }) => bytes === 3),
        'a flow of ours bears no tag',
        flow,
      );
      continue;
    }
    const { pipeline, upload, generation } = tag;
    const isOurs = pipeline === PIPELINE || (pipeline === NEXT_PIPELINE && world.deployedAt.has('pipeline'));
    demand(isOurs, 'a tag is of no pipeline of ours', flow);
    if (upload === world.damaged?.id) continue;
    demand(typeof generation === 'number', 'a tag has no generation', flow);
    const entry = entries.find((one) => one.upload.id === upload);
    const isExpired = world.expired.has(upload);
    const isKnown = entry !== undefined && generation <= entry.generation;
    demand(isKnown || isExpired, 'a flow is of no upload', flow);
    const name = `${upload} ${generation}`;
    groups.set(name, [...(groups.get(name) ?? []), flow]);
  }
  for (const entry of entries) {
    if (!('flow' in entry) || entry.flow === undefined) continue;
    const own = groups.get(`${entry.upload.id} ${entry.generation}`) ?? [];
    demand(
      own.some(({ id }) => id === entry.flow?.id),
      'an upload was given a flow that is not its own',
      entry,
      own,
    );
  }
  const isStrict = !scenario.isSkewWild && !world.wasAnyFrozen;
  const isListed =
    scenario.variation.listFlows === 'served' &&
    ['page', 'next', 'next_cursor', 'next_url'].includes(scenario.variation.paging ?? 'page') &&
    scenario.variation.listShape !== 'bare' &&
    scenario.variation.listAdditional === 'object' &&
    scenario.variation.listSort === 'created' &&
    scenario.variation.listActiveOnly !== true;
  for (const [name, own] of groups) {
    const [uploadId] = name.split(' ');
    const linesOf = (message: string) =>
      logged.filter((line) => line.message.startsWith(message) && line.fields.uploadId === uploadId);
    const said = (message: string): number => linesOf(message).length;
    const retries = linesOf('Sent again although a flow may exist');
    const retried = retries.length;
    const orphaned = said('Another invocation took this upload over');
    // The ledger forgot it, or a person had it sent although a flow might exist.
    const knowingly = (world.expired.get(uploadId ?? '') ?? 0) + (world.releasedByHand.has(uploadId ?? '') ? 1 : 0);
    // A listing of active flows is empty once all have ended. If no other flow is known, that is how the listing of a
    // new account looks, and it counts as proof.
    const later = own[1]?.createdAt ?? 0;
    const isAnotherKnown = entries.some(
      (entry) =>
        entry.upload.id !== uploadId && 'flow' in entry && (entry.flow?.createdAt ?? later) < later - LISTED_AFTER_MS,
    );
    const isFooled = scenario.variation.listActiveOnly === true && !isAnotherKnown ? Number.POSITIVE_INFINITY : 0;
    const values = [
      name,
      { retried, orphaned, isStrict, isListed, isFooled, knowingly },
      own.map((flow) => ({ ...flow, outputs: undefined })),
    ];
    if (scenario.settings.inDoubt === 'hold') {
      demand(retried === 0, 'a doubt that was to be held was sent again', ...values);
      if (isStrict)
        demand(
          own.length <= 1 + isFooled + knowingly,
          'two flows of one generation, although doubts are held',
          ...values,
        );
    }
    const isListingRefused = world.incidents.some(
      ({ kind, fault }) => kind === 'flows.list' && LISTING_REFUSALS.includes(fault),
    );
    if (isListed && !isListingRefused) {
      // While no flow has ended, a full listing cannot be told from one of active flows.
      const isSettled = retries.every(({ fields }) => /no ended flow/.test(String(fields.why)));
      demand(isSettled, 'a doubt was not settled although flows are listed', ...values);
    }
    const allowed = 1 + retried + knowingly + isFooled + (isStrict ? 0 : orphaned);
    demand(own.length <= allowed, 'more flows were made for one generation than were accounted for', ...values);
  }
}

/** A flow that is older than this is listed, in milliseconds: so long a doubt waits before it is settled. */
const LISTED_AFTER_MS = 5 * 60_000;

/** After these a listing is as good as not served. */
const LISTING_REFUSALS: readonly Fault[] = ['403', '404', '422', 'garbled', 'cut cleanly', 'no ids', 'endless'];

interface FlowTag {
  readonly pipeline: string;
  readonly upload: string;
  readonly generation: number;
}

function flowTagOf({ additional }: FlowView): FlowTag | undefined {
  return (additional as { flowdrop?: FlowTag } | undefined)?.flowdrop;
}

/** Whether the bytes are those of an asset, or where each download differs, those of one of its downloads. */
async function isMade(
  bytes: Buffer,
  { content, sha256: made }: ReturnType<World['service']['asset']>,
  varies: boolean,
): Promise<boolean> {
  const whole = varies ? bytes.subarray(0, content.bytes) : bytes;
  const end = bytes.subarray(content.bytes).toString();
  return sha256(whole) === (await made()) && (!varies || /^#\d+$/.test(end));
}

/** Every asset is whole, under its own key, written once, and of the one flow that its upload's generation has. */
async function checkResults(world: World, entries: readonly Entry[]): Promise<void> {
  const { scenario, service, inspector, resultWrites } = world;
  const prefix = scenario.settings.resultsPrefix;
  const collected = new Map<string, Set<string>>();
  for (const { key } of await inspector.list(RESULTS)) {
    demand(key.startsWith(prefix), 'a result is outside its prefix', key);
    if (key.endsWith('/receipt.json')) continue;
    const [, uploadKey = '', flowPart = '', assetPart = ''] =
      /^(.*)\/([^/]+)\/([^/]+)$/s.exec(key.slice(prefix.length)) ?? [];
    const flowId = decodeURIComponent(flowPart);
    const flow = service.flows.find(({ id }) => id === flowId);
    const tag = flow && flowTagOf(flow);
    const input = flow?.inputs[0]?.additional as { key?: string } | undefined;
    demand(tag !== undefined && input?.key === uploadKey, 'a result is under a wrong key', key, flow);
    // The id may end in what looks like an extension.
    const names = [assetPart, assetPart.replace(/\.\w+$/, '')].map(decodeURIComponent);
    const assetId = flow?.outputs.find((output) => names.includes(output.assetId))?.assetId ?? '';
    demand(assetId !== '', 'a result is of no output', key, flow);
    const made = service.asset(flowId, assetId);
    const opened = await inspector.open(RESULTS, key);
    demand(
      opened !== undefined && (await isMade(opened.body, made, scenario.variation.assetVaries === true)),
      'a result is not what the service made',
      key,
      {
        stored: opened?.body.byteLength,
        made: made.content.bytes,
      },
    );
    demand(
      opened?.mediaType === made.mediaType,
      'a result has another media type',
      key,
      opened?.mediaType,
      made.mediaType,
    );
    demand(resultWrites.get(key) === 1, 'a result was written more than once', key, resultWrites.get(key));
    const name = `${tag?.upload} ${tag?.generation}`;
    collected.set(name, (collected.get(name) ?? new Set()).add(flowId));
  }
  for (const [name, flowIds] of collected) {
    const expired = world.expired.get(name.split(' ')[0] ?? '') ?? 0;
    demand(flowIds.size <= 1 + expired, 'two flows of one generation were collected', name, flowIds);
  }
  for (const entry of entries.filter(isTerminal)) {
    for (const asset of entry.assets) {
      const opened = await inspector.open(RESULTS, asset.key);
      const isThere =
        opened !== undefined && opened.body.byteLength === asset.bytes && sha256(opened.body) === asset.sha256;
      demand(isThere, 'an asset is not there as its entry says', asset, opened?.body.byteLength);
    }
  }
}

/** Parts cost money. What a process began it completes, or at least tries to abort, unless it is killed meanwhile. */
async function checkNoPartsLeft({ inspector, begun, abortTried }: World): Promise<void> {
  for (const { key, uploadId } of await inspector.multipartUploads(RESULTS)) {
    const process = begun.get(uploadId);
    const isExcused = process === undefined || process.isDead || process.wasFrozen || abortTried.has(uploadId);
    demand(isExcused, 'the parts of an asset were left behind', key, process?.name);
  }
}

/** Whether an upload at a key has no readable entry any more: whose receipt is there, nobody can tell then. */
function isObscure({ expired, damaged, orderChecker }: World, key: string, entries: readonly Entry[]): boolean {
  const lost = [...expired.keys()].filter((id) => !entries.some(({ upload }) => upload.id === id));
  return damaged?.key === key || lost.some((id) => orderChecker.uploads.get(id)?.key === key);
}

/** The receipt at a key is that of the upload current there, or of the last one where none is. */
async function checkReceipts(world: World, entries: readonly TerminalEntry[]): Promise<void> {
  const { inspector, scenario } = world;
  for (const key of new Set(entries.map(({ upload }) => upload.key))) {
    const all = entries.filter(({ upload }) => upload.key === key);
    if (isObscure(world, key, entries)) continue;
    const current = await inspector.open(world.inbox, key);
    const isCurrent = ({ upload }: TerminalEntry): boolean =>
      current !== undefined &&
      upload.bucket === world.inbox &&
      (upload.versionId === undefined
        ? upload.etag === current.etag && upload.lastModified === current.lastModified
        : upload.versionId === current.versionId);
    const latest = all.toSorted(
      (a, b) => a.upload.lastModified - b.upload.lastModified || (a.upload.id < b.upload.id ? -1 : 1),
    );
    const expected = current === undefined ? latest.at(-1) : all.find(isCurrent);
    const stored = await inspector.open(RESULTS, `${scenario.settings.resultsPrefix}${key}/receipt.json`);
    demand(stored !== undefined, 'a receipt is missing', key, all);
    if (expected === undefined) continue; // What is current is held: it has no receipt yet.
    const receipt = JSON.parse(stored?.body.toString() ?? '') as Receipt;
    demand(receipt.upload.id === expected.upload.id, 'a receipt is of another upload', key, {
      receipt: receipt.upload,
      expected: expected.upload,
      isCurrent: current !== undefined,
    });
    checkReceipt(receipt, expected);
  }
}

function checkReceipt(receipt: Receipt, entry: TerminalEntry): void {
  const told = {
    status: receipt.status,
    generation: receipt.generation,
    endedAt: receipt.endedAt,
    flow: receipt.flow?.id,
    assets: receipt.assets,
    failedOutputs: receipt.failedOutputs,
    code: receipt.failure?.code,
  };
  const is = {
    status: entry.state,
    generation: entry.generation,
    endedAt: new Date(entry.endedAt).toISOString(),
    flow: entry.flow?.id,
    assets: entry.assets,
    failedOutputs: entry.failedOutputs,
    code: entry.state === 'failed' ? entry.failure.code : undefined,
  };
  demand(JSON.stringify(told) === JSON.stringify(is), 'a receipt says other than its entry', told, is);
}

/**
 * Every end was told of, and always in the same words. With one exception, which the sweep makes on purpose: an upload
 * that failed before it had a flow, whose receipt is out and whose message died before the event was sent. The sweep
 * sees the receipt and takes the event for sent.
 */
function checkEvents(world: World, entries: readonly TerminalEntry[]): void {
  const { isLossy, versioning } = world.scenario;
  const mayMessageDie = isLossy || versioning !== 'Enabled';
  const words = new Map<string, string>();
  const told = new Set<string>();
  for (const { detailType, detail } of world.published) {
    // After a rename the same end is told of under the new name.
    const { pipeline: _, ...facts } = JSON.parse(detail) as EventFacts;
    const said = `${detailType} ${JSON.stringify(facts)}`;
    demand((words.get(facts.id) ?? said) === said, 'an end was told of in two ways', words.get(facts.id), said);
    words.set(facts.id, said);
    told.add(endName(facts.upload.id, facts.generation, Date.parse(facts.endedAt)));
  }
  const ends = [...world.orderChecker.endings.values(), ...entries];
  for (const entry of ends) {
    const { upload, generation, endedAt } = entry;
    const isExcepted =
      mayMessageDie && entry.flow === undefined && world.orderChecker.receipted.has(`${upload.id}-${generation}`);
    // Nothing is left of an end whose entry expired before it was told of.
    const isForgotten = world.expired.has(upload.id) && !entries.includes(entry);
    const isTold = told.has(endName(upload.id, generation, endedAt));
    demand(isTold || isExcepted || isForgotten, 'an end was never told of', entry);
  }
}

interface EventFacts {
  readonly id: string;
  readonly pipeline: string;
  readonly upload: { readonly id: string };
  readonly generation: number;
  readonly endedAt: string;
}

const endName = (uploadId: string, generation: number, endedAt: number): string =>
  `${uploadId} ${generation} ${endedAt}`;

/** What was retried once all was well has a new end, which is the one that its file and today's settings deserve. */
export async function checkRetried(world: World): Promise<void> {
  const { scenario, puts, inbox, retriedWhenWell } = world;
  // The longest flow may be longer than a flow's maximum age.
  const mayTimeOut = scenario.flowMsMax > scenario.settings.flowAgeMaxSeconds * 1000;
  for (const entry of (await world.entries()).filter(isTerminal)) {
    const before = retriedWhenWell.get(entry.upload.id);
    const put = puts.find((one) => isOf(one, entry));
    // A doubt that was held goes on in its own generation; what is not in today's inbox is nobody's to send.
    if (before === undefined || entry.generation <= before || put === undefined || put.bucket !== inbox) continue;
    const code = entry.state === 'failed' ? entry.failure.code : undefined;
    if ((code === 'timed-out' && mayTimeOut) || (code === 'upload-gone' && put.versionId === undefined)) continue;
    const deserved = deservedBy(world, put);
    demand(deserved.includes(code), 'a retry ended otherwise than the file and today’s settings deserve', {
      deserved,
      code,
      entry,
    });
  }
}

/** The codes of failure, or none, with which an upload may end when all is well. */
function deservedBy({ deployedAt, scenario }: World, { key, content }: Put): readonly (string | undefined)[] {
  const bytes = content.byteLength;
  if (bytes === 0) return ['input-empty'];
  if (deployedAt.has('limits') && bytes > bytesMaxOf(key)) return ['input-too-large'];
  if (key.startsWith('text/') && content.includes(0xff)) return ['invalid-text'];
  if (key.startsWith('bad/') && !deployedAt.has('route')) return ['rejected'];
  if (key.startsWith('none/')) return ['outputs-failed'];
  // Where the service does not tell of its flows, the outputs are all there is to judge by.
  if (key.startsWith('fail/'))
    return scenario.variation.getFlow === 'served' ? ['flow-failed'] : ['flow-failed', undefined];
  return [undefined];
}

/** The token is nowhere but in the secret and in the memory of the functions. */
async function checkNoToken(world: World): Promise<void> {
  const { tokens, inspector, logged, thrown, published } = world;
  const has = (text: string): boolean => tokens.some((token) => text.includes(token));
  for (const line of logged) demand(!has(inspect(line, { depth: 10 })), 'the token is in a log', line);
  for (const error of thrown) demand(!has(inspect(error, { depth: 10 })), 'the token is in an error', error);
  for (const event of published) demand(!has(event.detail), 'the token is in an event', event);
  for (const bucket of [RESULTS, LEDGER]) {
    for (const { key } of await inspector.list(bucket)) {
      const opened = await inspector.open(bucket, key);
      if (opened === undefined || opened.body.byteLength > 1024 * 1024) continue;
      demand(!has(key) && !has(opened.body.toString('latin1')), 'the token is in a bucket', bucket, key);
    }
  }
}

/**
 * The first two ticks after everything has healed look at every flow that can have become due since the last round that
 * came to its end: the first may only end a round that was cut off. They need not look at others, and where another tick
 * holds the lease they need not look at all.
 */
export async function checkFirstTicks(world: World): Promise<void> {
  const { timeline, ticks, inspector, scenario } = world;
  const markers = await inspector.list(LEDGER, 'running/');
  const now = timeline.now();
  const count = ticks.length;
  // One that was killed or failed may have completed a round before.
  const completedAt = ticks
    .filter(({ result, rounds = 0 }) => result === undefined || result === 'completed' || rounds > 1)
    .map(({ startedAt, endedAt }) => endedAt ?? startedAt + scenario.collectLimitMs);
  const last = Math.max(...completedAt);
  await world.tick();
  await world.tick();
  if (ticks.slice(count).some(({ result }) => result !== 'completed')) return;
  if (now < world.leftAloneUntil + 2 * scenario.skewMs) return;
  const intervalMs = scenario.settings.pollIntervalSeconds * 1000;
  for (const { key } of markers) {
    const [, created = '', , flowId = ''] = key.split('/');
    const ageMs = now - Date.parse(created);
    const gapMs = Math.max(intervalMs, Math.min(GAP_MAX_MS, ageMs * GAP_SHARE_OF_AGE));
    if (now - last <= gapMs + 2 * scenario.skewMs) continue;
    demand((world.lookedAt.get(decodeURIComponent(flowId)) ?? 0) >= now, 'a flow that was due was not looked at', key, {
      now,
      last,
      gapMs,
    });
  }
}

/** A flow is looked at every tenth of its age and at least every quarter of an hour; a little less is demanded. */
const GAP_SHARE_OF_AGE = 0.12;
const GAP_MAX_MS = 15 * 60_000;

/** All that stands in the buckets, but for what the ticks note for themselves. */
export async function snapshotOf(world: World): Promise<ReadonlyMap<string, string>> {
  const { inspector } = world;
  const all = new Map<string, string>();
  // An upload that is held is looked for again every hour, and its entry counts that.
  const held = new Set((await world.entries()).filter((entry) => !isTerminal(entry)).map(({ upload }) => upload.id));
  for (const bucket of [INBOX, NEXT_INBOX, RESULTS, LEDGER]) {
    for (const { key, etag } of await inspector.list(bucket)) {
      const isNote =
        bucket === LEDGER &&
        (key.startsWith('state/') ||
          key.startsWith('waiting/') ||
          held.has(/^uploads\/(.*)\.json$/.exec(key)?.[1] ?? ''));
      if (!isNote) all.set(`${bucket}/${key}`, etag);
    }
  }
  return all;
}

export function checkUnchanged(before: ReadonlyMap<string, string>, after: ReadonlyMap<string, string>): void {
  const differ = [...new Set([...before.keys(), ...after.keys()])].filter((key) => before.get(key) !== after.get(key));
  demand(differ.length === 0, 'doing everything again changed something', differ);
}
