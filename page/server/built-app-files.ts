import { fileURLToPath } from 'node:url';
import { type PageFiles, readPage } from '../page-files.ts';

/**
 * Replaces app-files.ts in the package. The package contains the app as built files, so its users need neither the
 * sources nor a bundler.
 */

/** Folder of the built app, beside the command. */
export const BUILT_APP = 'page';

/** Reads the app of the package. */
export const appFiles = (): Promise<PageFiles> => readPage(fileURLToPath(new URL(BUILT_APP, import.meta.url)));
