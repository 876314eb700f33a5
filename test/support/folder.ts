import { mkdirSync, mkdtempSync, writeFileSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterAll, onTestFinished } from 'vitest';

const newFolder = () => mkdtempSync(join(tmpdir(), 'flowdrop-test-'));
const remove = (path: string) => rm(path, { recursive: true, force: true, maxRetries: 5 });

/** An empty folder until the test ends. */
export async function temporaryFolder(): Promise<string> {
  return folderWith({});
}

/** A folder with these files until the test ends. A text is written as it is, and anything else as JSON. */
export function folderWith(files: Readonly<Record<string, unknown>>): string {
  const path = newFolder();
  onTestFinished(() => remove(path));
  for (const [name, file] of Object.entries(files)) {
    mkdirSync(dirname(join(path, name)), { recursive: true });
    writeFileSync(join(path, name), typeof file === 'string' ? file : JSON.stringify(file));
  }
  return path;
}

/** An empty folder for all tests of a file, or of the block that asks for it. */
export function sharedFolder(): string {
  const path = newFolder();
  afterAll(() => remove(path));
  return path;
}
