import { open, readdir, stat } from 'node:fs/promises';
import { basename, dirname, join, resolve } from 'node:path';
import type { JsonObject } from '../functions/base/json.ts';
import { mediaTypeOf } from '../functions/base/media-type.ts';
import { counted } from '../functions/base/printable.ts';
import { ARCHIVED, encodingFailure, inputFailure, sizeFailure } from '../functions/create-flow/admission.ts';
import { REDACTED } from '../functions/flow-service/redact.ts';
import { filledBody } from '../functions/flow-service/request-body.ts';
import { headersOf } from '../functions/flow-service/requests.ts';
import { shownJson } from '../functions/flow-service/shown-json.ts';
import type { FlowInput, FlowTag, InputSource } from '../functions/flow-service/types.ts';
import { type Entry, isJob, isTerminal, keyOf } from '../functions/ledger/entry.ts';
import type { Settings } from '../functions/settings/environment.ts';
import { laterRoute, planAfter } from '../functions/uploads/chain-routes.ts';
import type { PinnedObject } from '../functions/uploads/inbox.ts';
import { deadlineSecondsOf, InvalidJobError, JOB_BYTES_MAX, parseJob, readJob } from '../functions/uploads/job.ts';
import {
  comparable,
  confusable,
  filesFor,
  folderOf,
  inputKey,
  inputName,
  isJobFile,
  JOB_FILE,
} from '../functions/uploads/job-keys.ts';
import type { OpenedInput, OpenedUpload } from '../functions/uploads/opened-upload.ts';
import type { Route } from '../functions/uploads/route.ts';
import { matchesKey, matchesObject, type UploadFacts } from '../functions/uploads/route-conditions.ts';
import { InvalidOverrideError, type RouteSnapshot, snapshot } from '../functions/uploads/route-snapshot.ts';
import { jobsRouteOf, routeFor, skippedNameOf, whySkipped } from '../functions/uploads/routes.ts';
import { isStageKey, UPLOAD_ID } from '../functions/uploads/upload.ts';
import { UploadDeniedError, UploadGoneError, UploadUnreadableError } from '../functions/uploads/upload-errors.ts';
import type { Deployment } from './deployment.ts';
import type { ExplainedStage, Explanation, JobInputView } from './explanation.ts';
import { findUpload, withPrefix } from './find.ts';
import { holdOn, holdsOf } from './holds.ts';
import { inputThere, jobRulesOf, placeOfJob } from './job-files.ts';
import { jobInputs, missingOf } from './jobs.ts';
import type { FoundUpload } from './listing.ts';

/** Bytes of the file that an explained request shows. */
const SHOWN_BYTES = 48;

/** The routes are in a file beside the function's code, which an operator cannot read. */
export class RoutesUnknownError extends Error {
  override readonly name = 'RoutesUnknownError';
}

/** Neither a file of this machine, nor a key of the inbox, nor an upload of the ledger. */
export class NothingToExplainError extends Error {
  override readonly name = 'NothingToExplainError';
}

/** A request, as the service would get it. */
type Sent = Required<Pick<Explanation, 'sentTo' | 'headers'>> & { readonly request: object };

/** What would be sent. */
type Dispatch = Pick<Explanation, 'issue' | 'job' | 'request' | 'sentTo' | 'headers'>;

/** A file to explain: its facts, and how its first bytes are read. */
interface Subject {
  readonly key: string;
  readonly bytes: number;
  readonly mediaType: string;
  readonly coding?: string | undefined;
  readonly metadata: Readonly<Record<string, string>>;
  readonly isFile: boolean;
  readonly isArchived: boolean;
  readonly id: string;
  readonly versionId?: string | undefined;
  head(bytesMax: number): Promise<Uint8Array>;
  /** Another file of the same folder. Undefined if it is not there. */
  beside(name: string): Promise<Subject | undefined>;
  /** The names of the other files in the folder of that file, at least. */
  namesBeside(name: string): Promise<readonly string[]>;
}

/**
 * Tells which route takes a file, why the others do not, and which request would be sent. Of an upload that is named by
 * its id, and of one of a later stage, it tells the same by the entry of the upload. Nothing is sent.
 * @param what the path of a file; or else the key of an object in the inbox, or an upload id.
 * @throws {NothingToExplainError} @throws {RoutesUnknownError}
 */
export async function explain(
  what: { readonly path: string; readonly key: string },
  deployment: Deployment,
  signal: AbortSignal,
): Promise<Explanation> {
  const { settings, areRoutesKnown } = deployment;
  const { localInbox = '', inboxPrefix } = settings;
  const name = what.key.startsWith(inboxPrefix) ? what.key.slice(inboxPrefix.length) : what.key;
  const file = await fileSubject(what.path, settings);
  const found = file === undefined ? await findUpload(what.key, deployment, signal) : undefined;
  const entry = found?.entry;
  if (entry !== undefined && (entry.upload.stage !== undefined || UPLOAD_ID.test(what.key))) {
    const explanation = await explainedEntry(entry, deployment, signal);
    const isToBeSent = entry.state === 'claimed' || entry.state === 'waiting';
    return isToBeSent ? withHold(explanation, deployment, signal) : explanation;
  }
  if (!areRoutesKnown) {
    throw new RoutesUnknownError(
      'The routes of this deployment do not fit into its environment. Its first tick keeps them in the ledger, ' +
        'and there was none since the deployment. Try again in a minute.',
    );
  }
  const subject =
    file ??
    (await objectSubject(found, deployment, signal)) ??
    // A local run skips files that no route wants, so they exist only in its folder.
    (localInbox === '' ? undefined : await fileSubject(join(localInbox, name), settings, name));
  if (subject === undefined) {
    throw new NothingToExplainError(
      found?.issue?.kind === 'unreadable'
        ? found.issue.message
        : `There is no file ${what.path}, no object with the key ${what.key} in the inbox, and no upload with this id.`,
    );
  }
  return withHold(await explained(subject, settings), deployment, signal);
}

async function withHold(explanation: Explanation, deployment: Deployment, signal: AbortSignal): Promise<Explanation> {
  const route = explanation.routes.find(({ takesIt }) => takesIt);
  const hold = route && holdOn(await holdsOf(deployment, signal), route.name);
  return { ...explanation, ...(hold && { hold }) };
}

/** What the explanation of a file needs of the settings. */
export type FileSettings = Pick<
  Settings,
  'routes' | 'inboxPrefix' | 'inboxBucket' | 'inputBytesMax' | 'textBytesMax' | 'pipeline' | 'service'
>;

/** The same for a file of this machine, without a pipeline. Undefined if there is no such file. */
export async function explainFile(path: string, settings: FileSettings): Promise<Explanation | undefined> {
  const subject = await fileSubject(path, settings);
  return subject && explained(subject, settings);
}

async function explained(subject: Subject, settings: FileSettings): Promise<Explanation> {
  const { key, bytes, mediaType, isFile } = subject;
  const route = routeFor(settings.routes, subject);
  const routes = settings.routes.map((each) => ({ name: each.name, ...verdictOf(each, route, subject) }));
  const facts = { key, bytes, mediaType, isFile, routes } as const;
  const skipped = whySkipped(settings.routes, subject);
  if (skipped !== undefined) return { ...facts, issue: skipped, request: undefined };
  if (route === undefined) {
    const issue =
      jobsRouteOf(settings.routes, key) === undefined
        ? 'No route wants it, so nothing is sent.'
        : `It is sent only as an input of a ${JOB_FILE} in its folder, or in a folder above, that names it.`;
    return { ...facts, issue, request: undefined };
  }
  try {
    const sent = await explainedBy(route, subject, settings);
    const stages = sent.request === undefined ? [] : stagesAfter(route, settings);
    return { ...facts, ...sent, ...(stages.length > 0 && { stages }) };
  } catch (error) {
    if (!(error instanceof InvalidOverrideError || error instanceof InvalidJobError)) throw error;
    return { ...facts, issue: `It fails: ${error.message}.`, request: undefined };
  }
}

/** The same checks that the creating function makes. @throws {InvalidOverrideError} @throws {InvalidJobError} */
async function explainedBy(route: Route, subject: Subject, settings: FileSettings): Promise<Dispatch> {
  if (subject.isArchived) return { issue: ARCHIVED.message, request: undefined };
  if (route.jobs !== undefined) return explainedJob(route, subject, settings);
  const chosen = snapshot(route, subject.metadata);
  const what = 'The file';
  const failure = sizeFailure(settings, what, subject.bytes, route.input) ?? encodingFailure(what, subject);
  const issue = failure?.message;
  const inputs = [shownFile(subject, {}, settings)];
  if (issue !== undefined) return { issue, request: undefined };
  return { issue, ...(await requestOf({ route: chosen, ...tagged(subject.id), inputs }, settings)) };
}

async function explainedJob(route: Route, subject: Subject, settings: FileSettings): Promise<Dispatch> {
  const { key } = subject;
  const job = parseJob(await subject.head(JOB_BYTES_MAX + 1), key, route);
  const files = new Map(
    await Promise.all(
      job.inputs.flatMap((input) =>
        'name' in input ? [subject.beside(input.name).then((file) => [input.name, file] as const)] : [],
      ),
    ),
  );
  const inputs = await jobInputs(job, { key, input: route.input }, settings, {
    bytesOf: async (name) => files.get(name)?.bytes,
    namesBeside: (name) => subject.namesBeside(name),
  });
  const issue = issueOfInputs(inputs, 'waits for');
  const chosen = snapshot({ ...route, parameters: job.parameters ?? route.parameters }, subject.metadata);
  const shown = job.inputs.flatMap((input): readonly Shown[] => {
    if ('text' in input) return [shownText(input.text, input.additional)];
    const file = files.get(input.name);
    return file === undefined ? [] : [shownFile(file, input.additional, settings)];
  });
  const deadlineSeconds = deadlineSecondsOf({ deadlineSeconds: job.deadlineSeconds ?? route.deadlineSeconds });
  const told = { issue, job: { inputs, deadlineSeconds } };
  if (issue !== undefined) return { ...told, request: undefined };
  return { ...told, ...(await requestOf({ route: chosen, ...tagged(subject.id), inputs: shown }, settings)) };
}

/** What keeps a job from being sent with these inputs, in sentences. Undefined if nothing does. */
function issueOfInputs(inputs: readonly JobInputView[], lacks: 'lacks' | 'waits for'): string | undefined {
  const missing = missingOf(inputs).map((input) => input.key);
  const issues = [
    ...(missing.length === 0 ? [] : [`It ${lacks} ${missing.join(', ')}.`]),
    ...inputs.flatMap(({ key, bytes, issue = [] }) =>
      // A hint names the missing file itself.
      bytes === undefined || issue.length === 0 ? issue : `${key ?? 'A text'}: ${issue}`,
    ),
  ];
  return issues.length === 0 ? undefined : issues.join(' ');
}

/** Explains an upload by its entry: with the route and the inputs that the entry names. */
async function explainedEntry(entry: Entry, deployment: Deployment, signal: AbortSignal): Promise<Explanation> {
  const { upload, route } = entry;
  const { key, bytes, mediaType } = upload;
  const isRouteOpen = entry.state === 'waiting' && entry.doubt === undefined;
  const word = isRouteOpen ? 'took it before its wait, after which it takes the route of that time' : 'takes it';
  const routes = [{ name: route.name, takesIt: true, why: `${word}, as input of the template ${route.template}` }];
  const facts = { key, bytes, mediaType, isFile: false, routes } as const;
  let opened: OpenedUpload | undefined;
  try {
    if (upload.stage !== undefined)
      return { ...facts, ...(await sentOf(entry, assetsOf(entry, deployment), deployment, signal)) };
    opened = await deployment.inbox.open(upload, signal);
    if (opened.isArchived) return { ...facts, issue: ARCHIVED.message, request: undefined };
    if (!isJobOf(entry, deployment)) return { ...facts, ...(await sentOf(entry, opened, deployment, signal)) };
    return { ...facts, ...(await jobOf(entry, opened, deployment, signal)) };
  } catch (error) {
    if (error instanceof InvalidJobError) return { ...facts, issue: `It fails: ${error.message}`, request: undefined };
    if (!NOT_THERE.some((kind) => error instanceof kind)) throw error;
    return { ...facts, issue: `Its input cannot be shown: ${(error as Error).message}.`, request: undefined };
  } finally {
    opened?.discard();
  }
}

/** The request for the flow of an upload, for a person, as its entry and its inputs are now. */
export interface SentRequest {
  /**
   * Method and path below the address of the service, the headers, and after an empty line the body: JSON with its long
   * texts cut, and without the queries of addresses. Absent if there is no request.
   */
  readonly request?: string | undefined;
  /** Why there is no request. */
  readonly issue?: string | undefined;
}

/**
 * What the service was sent for an upload.
 * @internal
 */
export async function sentRequest(entry: Entry, deployment: Deployment, signal: AbortSignal): Promise<SentRequest> {
  const { sentTo, headers = {}, request, issue } = await explainedEntry(entry, deployment, signal);
  if (request === undefined) return { issue };
  const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}`);
  return { request: [sentTo, ...lines, '', shownJson(request)].join('\n'), issue };
}

/** Why the input of an upload cannot be read now. */
const NOT_THERE = [UploadGoneError, UploadDeniedError, UploadUnreadableError];

/** True if the upload is a job file. A retry or a mistake in the file leaves no trace of that in the entry. */
const isJobOf = (entry: Entry, { settings }: Deployment): boolean =>
  isJob(entry) ||
  (isJobFile(entry.upload.key) &&
    (jobsRouteOf(settings.routes, entry.upload.key) !== undefined ||
      (entry.state === 'failed' && entry.failure.code === 'invalid-job')));

/**
 * The upload of a later stage, with its assets. They are read by their ETags, because no grant allows to view old
 * versions.
 */
function assetsOf({ upload, inputs: assets = [] }: Entry, { inbox }: Deployment): OpenedUpload {
  const byETag = inbox.openAssets(
    upload,
    assets.map((asset) => ({ ...asset, versionId: undefined })),
  );
  const opened = inbox.openAssets(upload, assets);
  const inputs = opened.inputs.map((input, index) => ({
    ...input,
    source: byETag.inputs[index]?.source ?? input.source,
  }));
  return { ...opened, inputs };
}

async function jobOf(
  entry: Entry,
  opened: OpenedUpload,
  deployment: Deployment,
  signal: AbortSignal,
): Promise<Dispatch> {
  const { inbox, settings } = deployment;
  const { key } = entry.upload;
  const job = await readJob(opened, jobRulesOf(entry, key, settings), signal);
  const names = job.inputs.flatMap((input) => ('name' in input ? [inputKey(key, input.name)] : []));
  const files: readonly PinnedObject[] =
    entry.inputs ??
    (await Promise.all(names.map((each) => inputThere(each, key, deployment, signal)))).filter(
      (file) => file !== undefined,
    );
  const inputs = await jobInputs(job, { key, input: entry.route.input }, settings, {
    bytesOf: async (name) => filesFor(inputKey(key, name), names, files)[0]?.bytes,
    namesBeside: () => namesInInbox(key, deployment, signal),
  });
  const issue = issueOfInputs(inputs, isTerminal(entry) ? 'lacks' : 'waits for');
  const explainedJob = { inputs, deadlineSeconds: deadlineSecondsOf(job) };
  if (issue !== undefined) return { issue, job: explainedJob, request: undefined };
  return { ...(await sentOf(entry, inbox.openJob(opened, job, files), deployment, signal)), job: explainedJob };
}

/** The request of an entry with these inputs. */
async function sentOf(
  entry: Entry,
  opened: OpenedUpload,
  { settings }: Deployment,
  signal: AbortSignal,
): Promise<Dispatch> {
  const { upload, route, generation, keyScope = UNKNOWN } = entry;
  const issue = inputFailure(settings, opened, route.input)?.message;
  if (issue !== undefined) return { issue, request: undefined };
  const inputs = opened.inputs.map((input) => shownInput(input, signal));
  const purpose = { route, ...tagged(upload.id, generation), key: keyOf({ ...entry, keyScope }) };
  return { issue, ...(await requestOf({ ...purpose, inputs }, settings)) };
}

function verdictOf(route: Route, taken: Route | undefined, subject: Subject): { takesIt: boolean; why: string } {
  if (route.after !== undefined) {
    return { takesIt: false, why: `takes assets of the route ${route.after}, instead of files` };
  }
  if (route.jobs !== undefined && route !== taken) {
    const isBelow = matchesKey({ prefixes: [route.jobs] }, subject.key);
    return {
      takesIt: false,
      why: isBelow
        ? `takes the files that a ${JOB_FILE} in the folder names, and no others`
        : `is for jobs below ${route.jobs}${ifDecoded({ prefixes: [route.jobs] }, subject.key)}`,
    };
  }
  if (route === taken) {
    const { settleSeconds: seconds } = route;
    const still = seconds === undefined ? '' : `, once its key has not changed for ${counted(seconds, 'second')}`;
    return { takesIt: true, why: `takes it, as input of the template ${route.template}${still}` };
  }
  if (isStageKey(subject.key)) return { takesIt: false, why: 'its key is that of a later stage of a chain' };
  const skippedName = skippedNameOf([route], subject.key);
  if (skippedName !== undefined) return { takesIt: false, why: `skips it, because its name fits "${skippedName}"` };
  const unmet = unmetConditions(route, subject);
  if (unmet.length > 0) return { takesIt: false, why: unmet.join(', and ') };
  if (taken === undefined) return { takesIt: false, why: 'the prefix belongs to a route for jobs' };
  return { takesIt: false, why: `would take it, but ${taken.name} comes first` };
}

/** The conditions of a route that an upload does not meet, each as a sentence without its period. */
function unmetConditions({ prefixes, suffixes, mediaTypes }: Route, { key, mediaType }: UploadFacts): string[] {
  return [
    ...(matchesKey({ prefixes }, key)
      ? []
      : [`its key does not begin with ${oneOf(prefixes)}${ifDecoded({ prefixes }, key)}`]),
    ...(matchesKey({ suffixes }, key)
      ? []
      : [`its key does not end with ${oneOf(suffixes)}${ifDecoded({ suffixes }, key)}`]),
    ...(matchesObject({ mediaTypes }, { key, mediaType })
      ? []
      : [`its media type ${mediaType} is not ${oneOf(mediaTypes)}`]),
  ];
}

/** Says of an upload that no route takes which route comes nearest, and what is missing, or that none can take it. */
export function nearestRoute(routes: readonly Route[], facts: UploadFacts): string {
  const skipped = whySkipped(routes, facts);
  if (skipped !== undefined) return skipped;
  const [nearest] = routes
    .filter(({ after, jobs }) => after === undefined && jobs === undefined)
    .map((route) => ({ name: route.name, unmet: unmetConditions(route, facts) }))
    .sort((one, other) => one.unmet.length - other.unmet.length);
  return `The route ${nearest?.name} comes nearest: ${nearest?.unmet.join(', and ')}.`;
}

/** Says of a condition that a key does not meet why it does not, if `%20` and the like are the reason. */
function ifDecoded({ prefixes, suffixes }: Pick<Route, 'prefixes' | 'suffixes'>, key: string): string {
  const decoded = { prefixes: prefixes?.map(confusable), suffixes: suffixes?.map(confusable) };
  if (!matchesKey(decoded, confusable(key))) return '';
  const isKey = matchesKey({ prefixes, suffixes }, confusable(key));
  return `, because ${isKey ? 'the key' : 'that'} is percent-encoded`;
}

function oneOf(values: readonly string[] = []): string {
  const [last = '', ...others] = [...values].reverse();
  return others.length === 0 ? last : `${others.reverse().join(', ')} or ${last}`;
}

/** Undefined if there is no such file. @param given its key. Default: the name of the file, of a job with its folder. */
async function fileSubject(path: string, settings: FileSettings, given?: string): Promise<Subject | undefined> {
  const facts = await stat(path).catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT' || error.code === 'ENOTDIR') return undefined;
    throw error;
  });
  if (facts === undefined || !facts.isFile()) return undefined;
  const name = given ?? nameOf(path, settings);
  const key = withPrefix(name, { settings });
  const namesBeside = async (other: string): Promise<readonly string[]> => {
    const names = await readdir(dirname(join(dirname(path), other))).catch(() => []);
    return names.map((each) => folderOf(other) + each);
  };
  return {
    ...{ key, bytes: facts.size, mediaType: mediaTypeOf(undefined, key), metadata: {} },
    ...{ isFile: true, isArchived: false, id: '0'.repeat(40) },
    async head(bytesMax) {
      await using file = await open(path);
      const { buffer, bytesRead } = await file.read(Buffer.alloc(Math.min(bytesMax, facts.size)));
      return buffer.subarray(0, bytesRead);
    },
    async beside(other) {
      const exact = await fileSubject(join(dirname(path), other), settings, inputKey(name, other));
      if (exact !== undefined) return exact;
      const names = await namesBeside(other);
      const [only, ...others] = names.filter((each) => comparable(each) === comparable(other));
      if (only === undefined || others.length > 0) return undefined;
      return fileSubject(join(dirname(path), only), settings, inputKey(name, only));
    },
    namesBeside,
  };
}

const nameOf = (path: string, settings: FileSettings): string =>
  basename(path) === JOB_FILE
    ? placeOfJob(`${basename(dirname(resolve(path)))}/${JOB_FILE}`, settings)
    : basename(path);

/** Undefined if the inbox has no such object. */
async function objectSubject(
  found: FoundUpload | undefined,
  deployment: Deployment,
  signal: AbortSignal,
): Promise<Subject | undefined> {
  return found?.current && openedSubject(found.key, deployment, signal);
}

async function openedSubject(key: string, deployment: Deployment, signal: AbortSignal): Promise<Subject> {
  const { inbox, settings } = deployment;
  const opened = await inbox.open({ bucket: settings.inboxBucket, key }, signal);
  opened.discard();
  const { upload, metadata, isArchived } = opened;
  const { bytes, mediaType, id, versionId } = upload;
  const coding = opened.inputs[0]?.coding;
  return {
    ...{ key, bytes, mediaType, coding, metadata, isArchived, id, versionId },
    isFile: false,
    async head(bytesMax) {
      const again = await inbox.open(upload, signal);
      try {
        return await headOf(again.inputs[0]?.source, bytesMax, signal);
      } finally {
        again.discard();
      }
    },
    namesBeside: () => namesInInbox(key, deployment, signal),
    async beside(name) {
      const current = await inputThere(inputKey(key, name), key, deployment, signal);
      return current && openedSubject(current.key, deployment, signal);
    },
  };
}

/** The names of the files of the inbox in the folder of a job. */
async function namesInInbox(
  jobKey: string,
  { inbox, settings }: Deployment,
  signal: AbortSignal,
): Promise<readonly string[]> {
  const keys = await inbox.keysBeside(settings.inboxBucket, jobKey, signal);
  return keys.flatMap((key) => inputName(jobKey, key) ?? []);
}

/** An input as an explained request shows it: with its first bytes. */
interface Shown {
  /** Default: as the route says. */
  readonly as?: 'text' | undefined;
  readonly bytes: number;
  readonly mediaType: string;
  readonly additional: JsonObject;
  head(bytesMax: number): Promise<Uint8Array>;
}

const shownText = (text: string, additional: JsonObject): Shown => {
  const bytes = Buffer.from(text);
  const head = async (bytesMax: number) => bytes.subarray(0, bytesMax);
  return { as: 'text', bytes: bytes.byteLength, mediaType: 'text/plain', additional, head };
};

function shownFile(subject: Subject, additional: JsonObject, { inboxBucket }: FileSettings): Shown {
  const { key, bytes, mediaType, versionId } = subject;
  const place = { bucket: inboxBucket, key, ...(versionId === undefined ? {} : { versionId }) };
  const head = (bytesMax: number) => subject.head(bytesMax);
  return { bytes, mediaType, additional: { ...additional, ...place }, head };
}

const shownInput = ({ as, mediaType, source, additional }: OpenedInput, signal: AbortSignal): Shown => {
  const head = (bytesMax: number) => headOf(source, bytesMax, signal);
  return { as, bytes: source.bytes, mediaType, additional, head };
};

/** The first bytes of a source. */
async function headOf(source: InputSource | undefined, bytesMax: number, signal: AbortSignal): Promise<Uint8Array> {
  const chunks: Uint8Array[] = [];
  let length = 0;
  for await (const chunk of (await source?.open(signal)) ?? []) {
    chunks.push(Uint8Array.from(chunk));
    length += chunk.byteLength;
    if (length >= bytesMax) break;
  }
  return Buffer.concat(chunks).subarray(0, bytesMax);
}

const tagged = (upload: string, generation = 1): Pick<FlowTag, 'upload' | 'generation'> => ({ upload, generation });

/** Stands for what is known only when the stage before has ended, or once the file is claimed. */
const UNKNOWN = '…';

/** Stands for the address of the file, which is made only when it is sent. Whoever has it can read the file. */
const SECRET_ADDRESS = '{inputUrl}';

/** The requests of the later stages, as their routes are now. */
function stagesAfter({ name }: Route, settings: FileSettings): readonly ExplainedStage[] {
  const { service, pipeline, routes } = settings;
  return planAfter(routes, name).flatMap((stage) => {
    const route = laterRoute(routes, stage.route);
    if (route === undefined) return [];
    const [mediaType = 'application/octet-stream'] = route.mediaTypes ?? [];
    const source = { bytes: 0, open: async () => [] as unknown as AsyncIterable<Uint8Array> };
    const place = { bucket: UNKNOWN, key: UNKNOWN };
    const chosen = snapshot(route, {});
    const request = {
      ...chosen,
      tag: { pipeline, ...tagged(UNKNOWN) },
      inputs: [{ as: route.input, mediaType, source, additional: place }],
      inputUrl: SECRET_ADDRESS,
    };
    return {
      ...stage,
      ...withoutBody({ route: chosen, ...tagged(UNKNOWN) }, service),
      request: filledBody(service.create.body, request, () => UNKNOWN) as object,
    };
  });
}

/** What a request is for. */
interface Purpose extends Pick<FlowTag, 'upload' | 'generation'> {
  readonly route: RouteSnapshot;
  /** Its idempotency key. Default: that of a first request. The ledger is not known then. */
  readonly key?: string | undefined;
}

/** A request without its body. */
function withoutBody(
  { route, upload, generation, key = keyOf({ upload: { id: upload }, generation, keyScope: UNKNOWN }) }: Purpose,
  service: FileSettings['service'],
): Pick<Sent, 'sentTo' | 'headers'> {
  const { method = 'POST', path } = service.create;
  const filled = route.template.split('/').map(encodeURIComponent).join('/');
  const call = { operation: 'create', uploadId: upload } as const;
  return {
    sentTo: `${method} ${path.replaceAll('{template}', filled)}`,
    headers: headersOf(call, service, { secret: REDACTED, key }),
  };
}

/** The request as the creating function would make it, of the first bytes of each input. */
async function requestOf(
  { inputs: shown, ...purpose }: Purpose & { readonly inputs: readonly Shown[] },
  { pipeline, service }: Pick<FileSettings, 'pipeline' | 'service'>,
): Promise<Sent> {
  const { route, upload, generation } = purpose;
  const { template, parameters, additional } = route;
  const inputs = await Promise.all(shown.map((each) => cutInput(each, route)));
  const tag = { pipeline, upload, generation };
  const inputUrl = SECRET_ADDRESS;
  const request = filledBody(
    service.create.body,
    { template, parameters, additional, tag, inputs, inputUrl },
    (index) => {
      const { start = Buffer.alloc(0), bytes = 0, as } = inputs[index] ?? {};
      const text = as === 'text' ? Buffer.from(start).toString() : Buffer.from(start).toString('base64');
      return start.byteLength === bytes ? text : `${text.replace(/=*$/, '')}… (${bytes} bytes in all)`;
    },
  ) as object;
  return { ...withoutBody(purpose, service), request };
}

/** The first bytes of an input, and its true size. */
async function cutInput(
  shown: Shown,
  route: RouteSnapshot,
): Promise<FlowInput & { readonly start: Uint8Array; readonly bytes: number }> {
  const { as = route.input, bytes, mediaType, additional } = shown;
  const head = await shown.head(SHOWN_BYTES);
  // The cut may split a character.
  const start = as === 'text' ? wellFormed(head) : head;
  const source = { bytes: start.byteLength, open: async () => [start] as unknown as AsyncIterable<Uint8Array> };
  return { as, mediaType, source, additional, start, bytes };
}

/** The text without the rest of a character that was cut. */
const wellFormed = (bytes: Uint8Array): Uint8Array =>
  Buffer.from(new TextDecoder().decode(bytes).replace(/\uFFFD+$/u, ''));
