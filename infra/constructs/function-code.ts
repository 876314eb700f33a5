import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { AssetHashType, DockerImage } from 'aws-cdk-lib';
import { Code } from 'aws-cdk-lib/aws-lambda';
import { bundleFunction, type FunctionName } from '../bundle/bundle.ts';

/** CDK wants a directory that the bundle is made from, and looks at it only where no bundle is made. */
const SOURCE = fileURLToPath(new URL('.', import.meta.url));

/** Beside the bundle, where routes are that are too long for the environment. */
const ROUTES_FILE = 'routes.json';

/** How the environment names the file that {@link functionCode} puts beside the bundle. */
export const ROUTES_BESIDE_BUNDLE = `file:${ROUTES_FILE}`;

/** The bundle of one function, with the routes in a file beside it where they are given. */
export function functionCode(name: FunctionName, routes: string | undefined): Code {
  return Code.fromAsset(SOURCE, {
    assetHashType: AssetHashType.OUTPUT,
    bundling: {
      // Never run: what is below always succeeds or throws.
      image: DockerImage.fromRegistry('none'),
      // Nor is this, but it tells one bundle from the other where CDK remembers what it has bundled already.
      command: [name, routes ?? ''],
      local: {
        tryBundle(outDir) {
          bundleFunction(name, outDir);
          if (routes !== undefined) writeFileSync(join(outDir, ROUTES_FILE), routes);
          return true;
        },
      },
    },
  });
}
