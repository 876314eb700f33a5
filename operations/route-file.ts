import { mediaTypeOf } from '../functions/base/media-type.ts';
import { sizeFailure } from '../functions/create-flow/admission.ts';
import { KEY_BYTES_MAX } from '../functions/s3/limits.ts';
import type { Route } from '../functions/uploads/route.ts';
import type { UploadFacts } from '../functions/uploads/route-conditions.ts';
import { jobsRouteOf, routeFor } from '../functions/uploads/routes.ts';
import type { ExpectedCosts } from './cost-texts.ts';
import { expectedCosts } from './costs.ts';
import type { Deployment } from './deployment.ts';
import { nearestRoute } from './explain.ts';
import { withPrefix } from './find.ts';

/** A file that is to be put. */
export interface FileFacts {
  /** With or without the prefix of the inbox. */
  readonly key: string;
  readonly bytes: number;
  readonly mediaType?: string | undefined;
}

type NamedFacts = Omit<FileFacts, 'bytes'>;

/** What the way of a file follows from. */
interface RoutedBy {
  readonly settings: Pick<Deployment['settings'], 'routes' | 'inboxPrefix'>;
}

function uploadFacts({ key: given, mediaType }: NamedFacts, deployment: RoutedBy): UploadFacts {
  const key = withPrefix(given, deployment);
  return { key, mediaType: mediaTypeOf(mediaType, key) };
}

/** The route that would take a file. Undefined if none would. */
export const routeOfFile = (file: NamedFacts, deployment: RoutedBy): Route | undefined =>
  routeFor(deployment.settings.routes, uploadFacts(file, deployment));

/** The flows that files begin, with those of later stages, and what they cost. A job file stands for its job. */
export function costsOfFiles(keys: readonly string[], deployment: RoutedBy): ExpectedCosts {
  const { routes } = deployment.settings;
  const starts = keys.map((given) => {
    const key = withPrefix(given, deployment);
    return { route: (jobsRouteOf(routes, key) ?? routeOfFile({ key }, deployment))?.name, firstKey: key };
  });
  return expectedCosts(routes, starts);
}

/** Says of a file that no route takes which one comes nearest. */
export const nearestRouteOfFile = (file: NamedFacts, deployment: RoutedBy): string =>
  nearestRoute(deployment.settings.routes, uploadFacts(file, deployment));

export interface RoutedFile {
  /** With the prefix of the inbox. */
  readonly key: string;
  /** Undefined if no route takes it, or the routes are not known. */
  readonly route: Route | undefined;
  /** Why no flow would come of it, in a sentence. */
  readonly issue: string | undefined;
}

/** Why the pipeline refuses a file of this size, as an upload of the route or as an input of its jobs. */
export function issueOfBytes(bytes: number, { input }: Route, settings: Deployment['settings']): string | undefined {
  return sizeFailure(settings, 'The file', bytes, input)?.message;
}

/** Tells which route would take a file, and whether the pipeline would then refuse it. */
export function routeFile(file: FileFacts, deployment: Deployment): RoutedFile {
  const { settings, areRoutesKnown } = deployment;
  const { key } = uploadFacts(file, deployment);
  const route = routeOfFile(file, deployment);
  if (route !== undefined) {
    return { key, route, issue: issueOfBytes(file.bytes, route, settings) };
  }
  const issue = areRoutesKnown
    ? `No route takes this file, so no flow would be made of it. ${nearestRouteOfFile(file, deployment)}`
    : undefined;
  return { key, route, issue };
}

/** Why a key is not taken. A name of a file never needs what is refused here, and programs stumble over it. */
export function issueOfKey(key: string): string | undefined {
  if (key === '' || key.endsWith('/')) return 'A file needs a name.';
  if (!key.isWellFormed()) return 'The name of a file must be Unicode.';
  if (Buffer.byteLength(key) > KEY_BYTES_MAX) return `The name of a file may have ${KEY_BYTES_MAX} bytes at most.`;
  // biome-ignore lint/suspicious/noControlCharactersInRegex: these are what is looked for.
  if (/[\u0000-\u001f\u007f]/.test(key)) return 'The name of a file must not hold control characters.';
  if (key.split('/').some((part) => part === '.' || part === '..')) return 'No part of a name may be "." or "..".';
  return undefined;
}
