import * as z from 'zod/mini';
import { compareMembers, matching, strictObject, wholeNumber } from '../base/validation.ts';
import { KEY_BYTES_MAX, PART_BYTES_MIN, PARTS_MAX } from '../s3/limits.ts';
import { type Budget, budgetSchema } from '../uploads/budget.ts';
import { issueOfResultsKey, RESULTS_KEY_END } from '../uploads/results-key-pattern.ts';
import { GONE } from '../uploads/routes.ts';
import { SKIPPED_NAMES } from '../uploads/skipped-names.ts';

/** One setting of the table {@link SETTINGS}. */
export interface Setting<T> {
  readonly default: T;
  /** The unit of its numbers. Undefined if its values are text. */
  readonly unit?: string;
  readonly min?: number;
  readonly max?: number;
  /** The words that it accepts. */
  readonly words?: readonly string[];
  /** @internal */
  readonly schema: z.ZodMiniType<T>;
}

interface Range<T> {
  readonly min: number;
  readonly max: number;
  readonly default: T;
}

const KIB = 1024;
const MIB = 1024 * KIB;
const GIB = 1024 * MIB;
const TIB = 1024 * GIB;

const SECONDS_PER_HOUR = 3600;
const SECONDS_PER_DAY = 24 * SECONDS_PER_HOUR;

/** Largest multipart upload with parts of the size that we send, in whole GiB. */
const ASSET_BYTES_MAX = Math.floor((PARTS_MAX * PART_BYTES_MIN) / GIB) * GIB;

/** Half of a key, so that prefix and pattern leave room for the names that fill the pattern. */
const KEY_PART_LENGTH_MAX = KEY_BYTES_MAX / 2;

/** A star at one end at most, and perhaps a slash behind it. */
const SKIPPED_NAME = /^(\*[^*/]{1,200}|[^*/]{1,200}\*?)\/?$/;

const SKIPPED_NAME_EXPECTED = 'a name such as "*.tmp", "._*", "Thumbs.db" or "__MACOSX/"';

/** Names that are skipped. */
const SKIPPED_NAMES_MAX = 100;

/** The characters that S3 calls safe, without the asterisk, which is a wildcard in a policy. */
const PREFIX = new RegExp(`^(?!.{${KEY_PART_LENGTH_MAX + 1}})([A-Za-z0-9!_.'()-]+/)*$`);

/** A key of the same characters. */
const CANARY_KEY = new RegExp(`^(?!.{${KEY_PART_LENGTH_MAX + 1}})(([A-Za-z0-9!_.'()-]+/)*[A-Za-z0-9!_.'()-]+)?$`);

/**
 * Every setting: its default, its range and, in its comment, its meaning. The types, the schema and the list in
 * `docs/settings.md` come from here. After a change, write that list with
 * `npx vitest run test/settings/settings-page.test.ts --update`.
 *
 * Each range ends where a limit of Lambda or S3 would apply anyway. What is set for one route is in `uploads/routes.ts`,
 * and what is set for a deployment in `infra/deployment.ts`.
 */
export const SETTINGS = {
  /** Maximum number of uploads that one invocation sends at once. */
  uploadConcurrency: whole('uploads', { min: 1, max: 16, default: 10 }),
  /** Maximum size of an upload, in bytes. A larger one fails. */
  inputBytesMax: whole('bytes', { min: 1, max: 5 * TIB, default: 5 * GIB }),
  /** Maximum size of an upload with `"input": "text"`, in bytes. A text above 1 MiB is read twice. */
  textBytesMax: whole('bytes', { min: 1, max: 5 * TIB, default: MIB }),
  /** Maximum size of an asset, in bytes. A larger one is not stored. */
  assetBytesMax: whole('bytes', { min: 1, max: ASSET_BYTES_MAX, default: 20 * GIB }),
  /**
   * Minimum rate of a download, in bytes a second over half a minute. A slower one is cut off, and counts as a failed
   * attempt.
   */
  assetBytesPerSecondMin: whole('bytes a second', { min: 1, max: GIB, default: 4 * KIB }),
  /** Maximum number of outputs of one flow that are stored. */
  outputsMax: whole('outputs', { min: 1, max: 10_000, default: 1_000 }),
  /**
   * Number of failed attempts after which an upload fails. Only failures that the file may have caused count. All assets
   * of a flow share that number.
   */
  attemptsMax: whole('attempts', { min: 1, max: 100, default: 5 }),
  /**
   * What to do if an answer was lost, and it cannot be known whether the service made a flow: `retry` sends again, and
   * may pay each time; `ask` waits for the operator.
   */
  inDoubt: oneOf(['retry', 'ask'], 'retry', { hold: 'ask' }),
  /**
   * Seconds between two polls of a flow. A new flow is polled more often, and an old one less often.
   */
  pollIntervalSeconds: whole('seconds', { min: 1, max: SECONDS_PER_HOUR, default: 15 }),
  /** Maximum number of flows that are polled at once. */
  pollConcurrency: whole('flows', { min: 1, max: 1_000, default: 64 }),
  /**
   * Maximum number of assets that are stored at once. Each takes 7.5 MiB of memory. A third is for slow ones.
   */
  assetConcurrency: whole('assets', { min: 2, max: 32, default: 24 }),
  /**
   * Maximum rate at which one invocation sends requests to the service. Requests that make flows have this limit, and all
   * others together have the same. When the service refuses some, requests slow down by themselves.
   */
  requestsPerSecond: numberOr('unlimited', 'requests a second', { min: 0.01, max: 10_000, default: 'unlimited' }),
  /**
   * Age at which a flow that has not ended counts as failed, in seconds. In an outage, and for storing the assets of an
   * ended flow, it is twice as much. While each tick stores an asset, storing goes on even longer. `flowdrop collect`
   * begins the age anew.
   */
  flowAgeMaxSeconds: whole('seconds', { min: 60, max: 365 * SECONDS_PER_DAY, default: 7 * SECONDS_PER_DAY }),
  /**
   * Days after which the ledger's entry of an ended upload expires. The daily sweep skips older uploads: without an
   * entry, they would be paid for again.
   */
  ledgerRetentionDays: numberOr('forever', 'days', { min: 30, max: 3650, default: 'forever', isWhole: true }),
  /**
   * Cap on the flows of all routes together: `"unlimited"`, or an object such as
   * `{"flows": 500, "per": "day", "timezone": "Europe/Berlin"}`. Uploads beyond it wait: see docs/holds.md.
   */
  budget: budgetSetting(),
  /** Key of an asset below `resultsPrefix`. `{key}`, `{flowId}`, `{assetId}` and `{ext}` are replaced. */
  resultsKey: textSetting(resultsKeySchema(), '{key}/{flowId}/{assetId}{ext}'),
  /**
   * Names of files that are skipped, because software leaves them behind. `*` at the beginning or the end stands for
   * any characters, a slash at the end for a folder. Case does not matter. A route takes such a file if its own
   * `prefixes` or `suffixes` name it. Your list replaces the default.
   */
  skippedNames: listOf(matching(SKIPPED_NAME_EXPECTED, SKIPPED_NAME), SKIPPED_NAMES_MAX, SKIPPED_NAMES),
  /** Prefix of the keys that become uploads, with a slash at its end. Other objects of the inbox are ignored. */
  inboxPrefix: textSetting(prefixSchema(), ''),
  /** Prefix of all keys in the results bucket, receipts included, with a slash at its end. */
  resultsPrefix: textSetting(prefixSchema(), ''),
  /**
   * Key of a small test file in the inbox, which the deployed pipeline puts again every hour. Each is paid for. After
   * two hours without its receipt, an alarm goes off: see docs/recipes/canary.md.
   */
  canaryKey: textSetting(canaryKeySchema(), ''),
};

/** What took the place of settings that said how the service speaks. */
const GONE_SETTINGS: ReadonlyMap<string, string> = new Map([
  ['outputsPath', moved('"outputs": {"path": "/{id}/outputs"}')],
  ['flowListing', moved('"list": {"order": "newest-first"}, or "list": null if flows are not listed')],
  ['flowsQuery', moved('"list": {"query": "page_size=100"}')],
  ['answerDepthMax', moved('"answerDepthMax": 200')],
  ['htmlTemplates', 'is gone. Set "makes": ["text/html"] in each route whose template makes pages, and remove it'],
]);

function moved(members: string): string {
  return `is a part of how the service speaks. Beside "settings", write "service": {"from": "flows", ${members}}, and remove it`;
}

/** A value for each setting of {@link SETTINGS}. */
export type PipelineSettings = {
  readonly [Name in keyof typeof SETTINGS]: (typeof SETTINGS)[Name]['default'];
};

export const SETTINGS_DEFAULT = Object.freeze(
  Object.fromEntries(Object.entries(SETTINGS).map(([name, setting]) => [name, setting.default])),
) as PipelineSettings;

/**
 * Some of the settings, as the operator writes them. The result has all of them.
 * @internal
 */
export const settingsSchema: z.ZodMiniType<PipelineSettings> = (
  strictObject(
    Object.fromEntries(
      Object.entries<Setting<unknown>>(SETTINGS).map(([name, setting]) => [
        name,
        z._default(setting.schema, setting.default),
      ]),
    ),
    'an object',
    new Map([...GONE, ...GONE_SETTINGS]),
  ) as unknown as z.ZodMiniType<PipelineSettings>
).check(
  compareMembers(({ canaryKey, inboxPrefix }, isSound, refuse) => {
    if (canaryKey === '' || !isSound('canaryKey') || !isSound('inboxPrefix') || canaryKey.startsWith(inboxPrefix))
      return;
    refuse(['canaryKey'], `expected a key that begins with inboxPrefix (${inboxPrefix}): other objects are ignored`);
  }),
  compareMembers(({ flowAgeMaxSeconds, pollIntervalSeconds, ledgerRetentionDays }, isSound, refuse) => {
    if (!isSound('flowAgeMaxSeconds')) return;
    const isKeptInDays = isSound('ledgerRetentionDays') && typeof ledgerRetentionDays === 'number';
    if (isKeptInDays && ledgerRetentionDays * SECONDS_PER_DAY < 2 * flowAgeMaxSeconds) {
      const message = `expected at least twice flowAgeMaxSeconds (${flowAgeMaxSeconds}), or entries of running flows could expire`;
      refuse(['ledgerRetentionDays'], message);
    }
    if (isSound('pollIntervalSeconds') && flowAgeMaxSeconds < 2 * pollIntervalSeconds) {
      const message = `expected at least twice pollIntervalSeconds (${pollIntervalSeconds}), or flows would fail before they are polled`;
      refuse(['flowAgeMaxSeconds'], message);
    }
  }),
);

function whole(unit: string, range: Range<number>): Setting<number> {
  return { ...range, unit, schema: wholeNumber(`a whole number of ${unit}`, range.min, range.max) };
}

function numberOr<const W extends string>(
  word: W,
  unit: string,
  { isWhole, ...range }: Range<number | W> & { readonly isWhole?: true },
): Setting<number | W> {
  const { min, max } = range;
  const error = `expected "${word}", or a ${isWhole ? 'whole number' : 'number'} of ${unit} from ${min} to ${max}`;
  const number = (isWhole ? z.int : z.number)({ error }).check(z.gte(min, { error }), z.lte(max, { error }));
  return { ...range, unit, words: [word], schema: z.union([z.literal(word), number], { error }) };
}

/** @param renamed what old words are called now. */
function oneOf<const W extends string>(
  words: readonly W[],
  value: NoInfer<W>,
  renamed: Readonly<Record<string, NoInfer<W>>>,
): Setting<W> {
  const expected = `expected one of ${words.map((word) => `"${word}"`).join(', ')}`;
  const error = ({ input }: { readonly input?: unknown }): string => {
    const now = new Map(Object.entries(renamed)).get(input as string);
    return now === undefined ? expected : `expected "${now}", as "${input}" is called now`;
  };
  return { default: value, words, schema: z.enum(words, { error }) };
}

function textSetting(schema: z.ZodMiniType<string>, value: string): Setting<string> {
  return { default: value, schema };
}

function budgetSetting(): Setting<Budget | 'unlimited'> {
  const error = 'expected "unlimited", or a budget such as {"flows": 500, "per": "day"}';
  return {
    default: 'unlimited',
    words: ['unlimited'],
    schema: z.union([z.literal('unlimited'), budgetSchema], { error }),
  };
}

function listOf<T>(each: z.ZodMiniType<T>, max: number, byDefault: readonly T[] = []): Setting<readonly T[]> {
  const error = `expected a list of at most ${max}`;
  return { default: byDefault, schema: z.array(each, { error }).check(z.maxLength(max, { error })) };
}

function resultsKeySchema(): z.ZodMiniType<string> {
  return z.string({ error: 'expected a pattern such as "{key}/{flowId}/{assetId}{ext}"' }).check(
    z.superRefine((pattern, context) => {
      const issue = issueOfResultsKey(pattern);
      if (issue !== undefined) context.addIssue(issue);
    }),
    z.regex(RESULTS_KEY_END, { error: 'expected it to end in {assetId} or {assetId}{ext}' }),
    z.maxLength(KEY_PART_LENGTH_MAX, { error: `expected at most ${KEY_PART_LENGTH_MAX} characters` }),
  );
}

function prefixSchema(): z.ZodMiniType<string> {
  return matching(
    `nothing, or a prefix such as "in/" of at most ${KEY_PART_LENGTH_MAX} letters, digits and !_.'()-, with a slash at its end`,
    PREFIX,
  );
}

function canaryKeySchema(): z.ZodMiniType<string> {
  return matching(
    `nothing, or a key such as "canary/robot.png" of at most ${KEY_PART_LENGTH_MAX} letters, digits and !_.'()-/, without a slash at its end`,
    CANARY_KEY,
  );
}

const NAME_CHARS_MAX = 40;

/**
 * The name of a pipeline. Tags, names of resources and dimensions of metrics contain it, so it has only characters that
 * all of them allow.
 * @internal
 */
export const pipelineNameSchema = matching(
  `a name of at most ${NAME_CHARS_MAX} lower-case letters, digits and hyphens that starts with a letter`,
  new RegExp(`^[a-z]([a-z0-9-]{0,${NAME_CHARS_MAX - 2}}[a-z0-9])?$`),
);
