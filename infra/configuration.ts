import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { quoted } from '../functions/base/printable.ts';
import { ConfigurationError } from '../functions/base/validation.ts';
import { PIPELINE_DEFAULT } from '../functions/settings/context.ts';

/** The file of your own settings. It is not tracked, so an upgrade by `git pull` never meets it. */
const OWN_FILE = 'flowdrop.json';

const STAGE = /^[a-zA-Z0-9][a-zA-Z0-9-]{0,31}$/;

/** What this project takes from the context of cdk.json. None of it is checked yet. */
export interface TrackedContext {
  readonly flowdrop: unknown;
  readonly stage: string | undefined;
}

/**
 * Reads the context of cdk.json as it stands in the file, without CDK.
 * @throws {ConfigurationError} the file is missing, or is not JSON.
 */
export function readTrackedContext(dir: string): TrackedContext {
  const tracked = readJson(join(dir, 'cdk.json'), 'cdk.json');
  if (tracked === undefined) throw new ConfigurationError([`expected this file in ${dir}`], { source: 'cdk.json' });
  const { context } = isObject(tracked.value) ? tracked.value : {};
  const { flowdrop, stage } = isObject(context) ? context : {};
  return { flowdrop, stage: stage === undefined ? undefined : String(stage) };
}

export interface Configuration {
  /** Not yet checked: see `parseStackContext`. */
  readonly value: unknown;
  /** The files that it was read from, for messages. */
  readonly source: string;
  /** The path of the configuration in its file. Empty if it is all of the file. */
  readonly where: string;
}

export interface ConfigurationPlace {
  /** The folder of cdk.json. */
  readonly dir: string;
  /** One of several deployments from the same folder. */
  readonly stage?: string | undefined;
  /** The context `flowdrop` of cdk.json. */
  readonly context: unknown;
}

/**
 * Reads the configuration of a pipeline: `flowdrop.json` beside cdk.json, or the context `flowdrop` of cdk.json if
 * there is no such file. With a stage, `flowdrop.<stage>.json` overrides single members of it. The pipeline of a stage
 * then has the stage in its name, unless the file of the stage names it.
 * @throws {ConfigurationError} a file of a stage is missing, or a file is not JSON.
 */
export function readConfiguration({ dir, stage, context }: ConfigurationPlace): Configuration {
  const own = readJson(join(dir, OWN_FILE), OWN_FILE);
  const base = own === undefined ? context : own.value;
  const [source, where] = own === undefined ? ['cdk.json', 'context.flowdrop'] : [OWN_FILE, ''];
  if (stage === undefined) return { value: base, source, where };
  if (!STAGE.test(stage)) {
    throw new ConfigurationError([`stage: expected at most 32 letters, digits and hyphens, got ${stage}`]);
  }
  const name = `flowdrop.${stage}.json`;
  const changes = readJson(join(dir, name), name);
  if (changes === undefined)
    throw new ConfigurationError([`stage ${stage}: expected the file ${name} beside cdk.json`]);
  const shared = sharedPlaces(base, changes.value, name);
  if (shared.length > 0) throw new ConfigurationError(shared, { source });
  const { pipeline: given = PIPELINE_DEFAULT } = isObject(base) ? base : {};
  // Anything but a text is left to the check of the whole configuration.
  const pipeline = typeof given === 'string' ? `${given}-${stage}` : given;
  return {
    value: merged(merged(base, { pipeline }), changes.value),
    source: `${source}, ${name}`,
    where,
  };
}

/** Buckets that a stage names itself, or a prefix in them, and what would happen if it had those of another stage. */
const OF_ONE_STAGE = [
  ['ledgerBucket', undefined, 'the ledger end the flows of each other'],
  ['inboxBucket', 'inboxPrefix', 'the inbox each pay for each upload'],
  ['resultsBucket', 'resultsPrefix', 'the results overwrite the receipts of each other'],
] as const;

/** What is wrong with the places that a stage would have from the configuration of all stages. */
function sharedPlaces(base: unknown, changes: unknown, name: string): readonly string[] {
  return OF_ONE_STAGE.flatMap(([bucket, prefix, harm]) => {
    const shared = memberOf(base, 'deployment', bucket);
    const isOwn = memberOf(changes, 'deployment', bucket) !== undefined;
    if (shared === undefined || isOwn || (prefix && memberOf(changes, 'settings', prefix) !== undefined)) return [];
    const place = prefix === undefined ? name : `${name}, or settings.${prefix}`;
    const got = `got ${quoted(shared)} for all stages`;
    return [`deployment.${bucket}: expected it in ${place}, because stages that share ${harm}, ${got}`];
  });
}

function memberOf(configuration: unknown, part: string, name: string): unknown {
  const of = isObject(configuration) ? configuration[part] : undefined;
  return isObject(of) ? of[name] : undefined;
}

/** Undefined if there is no such file. */
function readJson(path: string, name: string): { readonly value: unknown } | undefined {
  let bytes: Uint8Array;
  try {
    bytes = readFileSync(path);
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw new ConfigurationError([(cause as Error).message], { source: name, cause });
  }
  const text = decoded(bytes);
  const issue = issueOfText(text);
  if (text === undefined || issue !== undefined) throw new ConfigurationError([issue ?? ''], { source: name });
  try {
    return { value: JSON.parse(text) };
  } catch (cause) {
    throw new ConfigurationError([(cause as Error).message], { source: name, cause });
  }
}

/** A text in UTF-8, with its mark of the byte order. Undefined if the bytes are of another encoding. */
function decoded(bytes: Uint8Array): string | undefined {
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    return undefined;
  }
}

/** What is wrong with a file before its JSON is looked at. Some editors write such files. */
function issueOfText(text: string | undefined): string | undefined {
  // JSON has no NUL, and UTF-16 has one for each letter of ASCII.
  if (text?.includes('\0') !== false) {
    return 'expected JSON in UTF-8, got another encoding. Save the file as UTF-8.';
  }
  if (text.startsWith('\uFEFF')) {
    return 'expected JSON in UTF-8, got a byte order mark before it. Save the file as UTF-8 without one.';
  }
  return text.trim() === '' ? 'expected JSON, got an empty file' : undefined;
}

/** No configuration is nested so deeply. The check, which comes after the merge, refuses it in words. */
const MERGED_DEPTH_MAX = 100;

/** Objects are merged member by member. Anything else is replaced as a whole, lists too. */
function merged(base: unknown, changes: unknown, depth = 0): unknown {
  if (!isObject(base) || !isObject(changes) || depth > MERGED_DEPTH_MAX) return changes;
  const members = Object.entries(changes).map(([name, value]) => [name, merged(base[name], value, depth + 1)]);
  return { ...base, ...Object.fromEntries(members) };
}

const isObject = (value: unknown): value is Readonly<Record<string, unknown>> =>
  typeof value === 'object' && value !== null && !Array.isArray(value);
