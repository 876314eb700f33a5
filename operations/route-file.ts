import { inputFailure } from '../functions/create-flow/admission.ts';
import type { OpenedUpload } from '../functions/uploads/inbox.ts';
import { mediaTypeOf } from '../functions/uploads/media-type.ts';
import { type Route, routeFor } from '../functions/uploads/routes.ts';
import type { Deployment } from './deployment.ts';
import { withPrefix } from './find.ts';

/** A file that is to be put. */
export interface FileFacts {
  /** With or without the prefix of the inbox. */
  readonly key: string;
  readonly bytes: number;
  readonly mediaType?: string | undefined;
}

export interface RoutedFile {
  /** With the prefix of the inbox. */
  readonly key: string;
  /** Undefined if no route takes it, or the routes are not known. */
  readonly route: Route | undefined;
  /** Why no flow would come of it, in a sentence. */
  readonly issue: string | undefined;
}

/** Tells which route would take a file, and whether the pipeline would then refuse it. */
export function routeFile({ key: given, bytes, mediaType }: FileFacts, deployment: Deployment): RoutedFile {
  const { settings, areRoutesKnown } = deployment;
  const key = withPrefix(given, deployment);
  const type = mediaTypeOf(mediaType, key);
  const route = routeFor(settings.routes, { key, mediaType: type });
  if (route !== undefined) {
    // Only these facts of an upload are checked.
    const opened = { upload: { bytes }, isArchived: false } as OpenedUpload;
    return { key, route, issue: inputFailure(settings, opened, route.input)?.message };
  }
  const issue = areRoutesKnown
    ? `No route takes a file like this (${type}), so no flow would be made of it.`
    : undefined;
  return { key, route, issue };
}
