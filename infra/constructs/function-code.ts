import { chmodSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { AssetHashType, DockerImage } from 'aws-cdk-lib';
import { Code } from 'aws-cdk-lib/aws-lambda';
import { bundleFunction, type FunctionName } from '../bundle/bundle.ts';

/** CDK asks for a source directory. It reads the directory only if bundling is switched off. */
const SOURCE = fileURLToPath(new URL('.', import.meta.url));

/** File beside the bundle, for routes that are too long for the environment. */
const ROUTES_FILE = 'routes.json';

/**
 * Modes of a bundle, whatever the umask is. CDK opens its folder to everybody, for a container that is not used here, and
 * another user could replace the code that is deployed. Lambda runs the code as a user of its own, which must be able to
 * read the files.
 */
const FOLDER_MODE = 0o700;
const FILE_MODE = 0o644;

/** Value of `ROUTES` in the environment if {@link functionCode} puts the routes into a file beside the bundle. */
export const ROUTES_BESIDE_BUNDLE = `file:${ROUTES_FILE}`;

/** The bundle of one function. If `routes` are given, they are in a file beside it. */
export function functionCode(name: FunctionName, routes: string | undefined): Code {
  return Code.fromAsset(SOURCE, {
    assetHashType: AssetHashType.OUTPUT,
    bundling: {
      // Never pulled: the local bundling below succeeds or throws.
      image: DockerImage.fromRegistry('none'),
      // Never run either. CDK caches bundles by their options, and this tells the bundles apart.
      command: [name, routes ?? ''],
      local: {
        tryBundle(outDir) {
          chmodSync(outDir, FOLDER_MODE);
          // What is there already was put there while the folder was open.
          for (const found of readdirSync(outDir)) rmSync(join(outDir, found), { recursive: true, force: true });
          bundleFunction(name, outDir);
          if (routes !== undefined) writeFileSync(join(outDir, ROUTES_FILE), routes);
          setModes(outDir);
          return true;
        },
      },
    },
  });
}

function setModes(dir: string): void {
  chmodSync(dir, FOLDER_MODE);
  for (const entry of readdirSync(dir, { withFileTypes: true })) {
    const path = join(dir, entry.name);
    if (entry.isDirectory()) setModes(path);
    else chmodSync(path, FILE_MODE);
  }
}
