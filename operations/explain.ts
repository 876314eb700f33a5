import { open, stat } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { inputFailure } from '../functions/create-flow/admission.ts';
import { flowBody } from '../functions/flow-service/request-body.ts';
import type { InputSource } from '../functions/flow-service/types.ts';
import type { Settings } from '../functions/settings/environment.ts';
import type { OpenedUpload } from '../functions/uploads/inbox.ts';
import { mediaTypeOf } from '../functions/uploads/media-type.ts';
import { matchesKey, matchesObject, type UploadFacts } from '../functions/uploads/route-conditions.ts';
import { InvalidOverrideError, type RouteSnapshot, snapshot } from '../functions/uploads/route-snapshot.ts';
import { type Route, routeFor } from '../functions/uploads/routes.ts';
import { isFolderMarker } from '../functions/uploads/upload-event.ts';
import type { Deployment } from './deployment.ts';
import { findUpload, withPrefix } from './find.ts';

/** Bytes of the file that an explained request shows. */
const SHOWN_BYTES = 48;

/** The routes are in a file beside the function's code, which an operator cannot read. */
export class RoutesUnknownError extends Error {
  override readonly name = 'RoutesUnknownError';
}

/** Neither a file of this machine nor a key of the inbox. */
export class NothingToExplainError extends Error {
  override readonly name = 'NothingToExplainError';
}

export interface Explanation {
  readonly key: string;
  readonly bytes: number;
  readonly mediaType: string;
  /** True if it is a file of this machine, and not an object in the inbox. */
  readonly isFile: boolean;
  readonly routes: readonly { readonly name: string; readonly takesIt: boolean; readonly why: string }[];
  /** Why it would not be sent, although a route may want it. */
  readonly issue: string | undefined;
  /** The body of `POST /flows`, with its data shortened. Undefined if nothing would be sent. */
  readonly request: object | undefined;
}

/** A file to explain: its facts, and how its first bytes are read. */
interface Subject {
  readonly key: string;
  readonly bytes: number;
  readonly mediaType: string;
  readonly metadata: Readonly<Record<string, string>>;
  readonly isFile: boolean;
  readonly isArchived: boolean;
  readonly id: string;
  readonly versionId?: string | undefined;
  head(): Promise<Uint8Array>;
}

/**
 * Tells which route takes a file, why the others do not, and which request would be sent. Nothing is sent.
 * @param what the path of a file, or else the key of an object in the inbox.
 * @throws {NothingToExplainError} @throws {RoutesUnknownError}
 */
export async function explain(
  what: { readonly path: string; readonly key: string },
  deployment: Deployment,
  signal: AbortSignal,
): Promise<Explanation> {
  if (!deployment.areRoutesKnown) {
    throw new RoutesUnknownError(
      'The routes of this deployment do not fit into its environment, and stand in a file beside its code. ' +
        'Read them in the configuration that was deployed.',
    );
  }
  const { settings } = deployment;
  const { localInbox = '', inboxPrefix } = settings;
  const name = what.key.startsWith(inboxPrefix) ? what.key.slice(inboxPrefix.length) : what.key;
  const subject =
    (await fileSubject(what.path, settings)) ??
    (await objectSubject(what.key, deployment, signal)) ??
    // A local run skips files that no route wants, so they exist only in its folder.
    (localInbox === '' ? undefined : await fileSubject(join(localInbox, name), settings, name));
  if (subject === undefined) {
    throw new NothingToExplainError(
      `There is no file ${what.path}, and no object with the key ${what.key} in the inbox.`,
    );
  }
  return explained(subject, settings, signal);
}

/** What the explanation of a file needs of the settings. */
export type FileSettings = Pick<
  Settings,
  'routes' | 'inboxPrefix' | 'inboxBucket' | 'inputBytesMax' | 'textBytesMax' | 'pipeline'
>;

/** The same for a file of this machine, without a pipeline. Undefined if there is no such file. */
export async function explainFile(
  path: string,
  settings: FileSettings,
  signal: AbortSignal,
): Promise<Explanation | undefined> {
  const subject = await fileSubject(path, settings);
  return subject && explained(subject, settings, signal);
}

async function explained(subject: Subject, settings: FileSettings, signal: AbortSignal): Promise<Explanation> {
  const { key, bytes, mediaType, isFile } = subject;
  const route = routeFor(settings.routes, subject);
  const { snapshot: chosen, issue } = isFolderMarker(subject)
    ? { issue: 'It is a folder, and not a file.' }
    : admission(route, subject, settings);
  const routes = settings.routes.map((each) => ({ name: each.name, ...verdictOf(each, route, subject) }));
  const request = chosen && issue === undefined ? await requestOf(chosen, subject, settings, signal) : undefined;
  return { key, bytes, mediaType, isFile, routes, issue, request };
}

/** The same checks that the creating function makes. */
function admission(
  route: Route | undefined,
  subject: Subject,
  settings: FileSettings,
): { readonly snapshot?: RouteSnapshot; readonly issue?: string | undefined } {
  if (route === undefined) return { issue: 'No route wants it, so nothing is sent.' };
  try {
    const { bytes, isArchived } = subject;
    // Only these facts of an upload are checked.
    const opened = { upload: {}, inputs: [{ bytes }], isArchived } as unknown as OpenedUpload;
    return { snapshot: snapshot(route, subject.metadata), issue: inputFailure(settings, opened, route.input)?.message };
  } catch (error) {
    if (!(error instanceof InvalidOverrideError)) throw error;
    return { issue: `It fails: ${error.message}.` };
  }
}

function verdictOf(route: Route, taken: Route | undefined, subject: Subject): { takesIt: boolean; why: string } {
  if (route.after !== undefined) {
    return { takesIt: false, why: `takes assets of the route ${route.after}, instead of files` };
  }
  if (route === taken) return { takesIt: true, why: `takes it, as input of the template ${route.template}` };
  const unmet = unmetConditions(route, subject);
  if (unmet.length > 0) return { takesIt: false, why: unmet.join(', and ') };
  return { takesIt: false, why: `would take it, but ${taken?.name} comes first` };
}

/** The conditions of a route that an upload does not meet, each as a sentence without its period. */
function unmetConditions({ prefixes, suffixes, mediaTypes }: Route, { key, mediaType }: UploadFacts): string[] {
  return [
    ...(matchesKey({ prefixes }, key) ? [] : [`its key does not begin with ${oneOf(prefixes)}`]),
    ...(matchesKey({ suffixes }, key) ? [] : [`its key does not end with ${oneOf(suffixes)}`]),
    ...(matchesObject({ mediaTypes }, { key, mediaType })
      ? []
      : [`its media type ${mediaType} is not ${oneOf(mediaTypes)}`]),
  ];
}

/** Says of an upload that no route takes which route comes nearest, and what is missing. */
export function nearestRoute(routes: readonly Route[], facts: UploadFacts): string {
  const [nearest] = routes
    .filter(({ after }) => after === undefined)
    .map((route) => ({ name: route.name, unmet: unmetConditions(route, facts) }))
    .sort((one, other) => one.unmet.length - other.unmet.length);
  return `The route ${nearest?.name} comes nearest: ${nearest?.unmet.join(', and ')}.`;
}

function oneOf(values: readonly string[] = []): string {
  const [last = '', ...others] = [...values].reverse();
  return others.length === 0 ? last : `${others.reverse().join(', ')} or ${last}`;
}

/** Undefined if there is no such file. @param name its key. Default: the name of the file. */
async function fileSubject(path: string, settings: FileSettings, name = basename(path)): Promise<Subject | undefined> {
  const facts = await stat(path).catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT' || error.code === 'ENOTDIR') return undefined;
    throw error;
  });
  if (facts === undefined || !facts.isFile()) return undefined;
  const key = withPrefix(name, { settings });
  return {
    ...{ key, bytes: facts.size, mediaType: mediaTypeOf(undefined, key), metadata: {} },
    ...{ isFile: true, isArchived: false, id: '0'.repeat(40) },
    async head() {
      await using file = await open(path);
      const { buffer, bytesRead } = await file.read(Buffer.alloc(SHOWN_BYTES), 0, SHOWN_BYTES, 0);
      return buffer.subarray(0, bytesRead);
    },
  };
}

/** Undefined if the inbox has no such object. */
async function objectSubject(text: string, deployment: Deployment, signal: AbortSignal): Promise<Subject | undefined> {
  const found = await findUpload(text, deployment, signal);
  if (found?.current === undefined) return undefined;
  const { inbox, settings } = deployment;
  const opened = await inbox.open({ bucket: settings.inboxBucket, key: found.key }, signal);
  opened.discard();
  const { upload, metadata, isArchived } = opened;
  const { key, bytes, mediaType, id, versionId } = upload;
  return {
    ...{ key, bytes, mediaType, metadata, isArchived, id, versionId },
    isFile: false,
    async head() {
      const again = await inbox.open(upload, signal);
      try {
        const [own] = again.inputs;
        for await (const chunk of (await own?.source.open(signal)) ?? []) return chunk.subarray(0, SHOWN_BYTES);
        return new Uint8Array();
      } finally {
        again.discard();
      }
    },
  };
}

/** The body as the creating function would make it, of the first bytes of the file. */
async function requestOf(
  route: RouteSnapshot,
  subject: Subject,
  settings: FileSettings,
  signal: AbortSignal,
): Promise<object> {
  const { key, bytes, mediaType, id, versionId } = subject;
  const { template, parameters, additional, input } = route;
  // The cut may split a character. The end is replaced below.
  const head = input === 'text' ? wellFormed(await subject.head()) : await subject.head();
  const source: InputSource = {
    bytes: head.byteLength,
    async open() {
      return [head] as unknown as AsyncIterable<Uint8Array>;
    },
  };
  const body = await flowBody(
    {
      ...{ template, parameters, additional },
      tag: { pipeline: settings.pipeline, upload: id, generation: 1 },
      inputs: [
        {
          ...{ as: input, mediaType, source },
          additional: { bucket: settings.inboxBucket, key, ...(versionId === undefined ? {} : { versionId }) },
        },
      ],
    },
    signal,
  );
  const chunks: Uint8Array[] = [];
  for await (const chunk of body.chunks(signal)) chunks.push(Uint8Array.from(chunk));
  const request = JSON.parse(Buffer.concat(chunks).toString()) as { inputs: { data: string }[] };
  const isWhole = head.byteLength === bytes;
  const inputs = request.inputs.map(({ data, ...rest }) => ({
    ...rest,
    data: isWhole ? data : `${data.replace(/=*$/, '')}… (${bytes} bytes in all)`,
  }));
  return { ...request, inputs };
}

/** The text without the rest of a character that was cut. */
const wellFormed = (bytes: Uint8Array): Uint8Array =>
  Buffer.from(new TextDecoder().decode(bytes).replace(/\uFFFD+$/u, ''));
