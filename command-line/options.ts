import { type ParseArgsConfig, type ParseArgsOptionsConfig, parseArgs } from 'node:util';
import { didYouMean } from '../functions/base/did-you-mean.ts';

/** Exit code of a command that was called in a wrong way. */
export const EXIT_USAGE = 2;

/** A command was called in a wrong way. The message is a sentence that says how. */
export class UsageError extends Error {
  override readonly name = 'UsageError';
}

/** What most likely happened in a script: `flowdrop again "$KEY"` without a key. */
export const EMPTY_WORD = 'An argument or the value of an option is empty. Was a variable not set?';

/** npm has options of its own with these names. A value in the environment is most likely npm's. */
const NAMES_OF_NPM: readonly string[] = ['help', 'json', 'only', 'prefix', 'verbose', 'version'];

/** Shorter beginnings could stand for many names, in letters. */
const BEGINNING_MIN = 3;

interface Given {
  /** The arguments after the program's name. */
  readonly args: readonly string[];
  readonly env: NodeJS.ProcessEnv;
}

/** What may follow a command, in the terms of node:util's `parseArgs`. */
export interface CommandSyntax extends Pick<ParseArgsConfig, 'allowNegative' | 'allowPositionals'> {
  /** How the command is called, such as `npm run bench`. */
  readonly command: string;
  readonly options: ParseArgsOptionsConfig;
}

/**
 * Parses the arguments of an npm script.
 * @throws {UsageError} an option is unknown, lacks its value, or was taken by npm; or an argument is one too many.
 */
export function parseOptions<const S extends CommandSyntax>({ command, ...syntax }: S, { args, env }: Given) {
  requireNoneSwallowed({ command, ...syntax }, { args, env });
  const { tokens = [] } = parseArgs({ ...syntax, args, strict: false, tokens: true });
  const known = new Set(Object.entries(syntax.options).flatMap(([name, { short = name }]) => [name, short]));
  for (const token of tokens) {
    if (token.kind === 'option' && !known.has(token.name)) throw unknownOption(token.rawName, syntax);
    if (token.kind === 'positional' && token.value === '') throw new UsageError(EMPTY_WORD);
    if (token.kind === 'positional' && !syntax.allowPositionals) {
      throw new UsageError(`"${token.value}" is one argument too many`);
    }
    if (token.kind !== 'option') continue;
    const isText = syntax.options[token.name]?.type === 'string';
    const isMissing = token.value === undefined || token.value === '' || isOption(token);
    if (isText && isMissing) throw new UsageError(`${token.rawName} needs a value`);
    if (!isText && token.value !== undefined) throw new UsageError(`${token.rawName} takes no value`);
  }
  return parseArgs<Omit<S, 'command'> & { args: readonly string[] }>({ ...syntax, args });
}

/**
 * Parses the arguments of this process. `--help` prints the usage and ends the process with 0. A wrong call prints one
 * sentence and ends it with {@link EXIT_USAGE}.
 */
export function commandOptions<const S extends CommandSyntax>(syntax: S, usage: string) {
  return orExit(syntax.command, () => {
    const options = { ...syntax.options, help: { type: 'boolean', short: 'h' } } as const;
    const parsed = parseOptions({ ...syntax, options }, { args: process.argv.slice(2), env: process.env });
    if ((parsed.values as { help?: boolean }).help !== true) {
      return parsed as ReturnType<typeof parseOptions<S>>;
    }
    process.stdout.write(`${usage.trimEnd()}\n`);
    return process.exit(0);
  });
}

/** Runs a check of arguments. A {@link UsageError} prints one sentence and ends the process with {@link EXIT_USAGE}. */
export function orExit<T>(command: string, check: () => T): T {
  try {
    return check();
  } catch (error) {
    if (!(error instanceof UsageError)) throw error;
    process.stderr.write(`${usageMessage(command, error)}\n`);
    return process.exit(EXIT_USAGE);
  }
}

/** @throws {UsageError} the value of an option is no whole number, or below `min`. */
export function wholeNumber(option: string, text: string, min = 0): number {
  const number = Number(text);
  if (Number.isSafeInteger(number) && number >= min) return number;
  const wanted = min === 0 ? 'a whole number' : `a whole number from ${min} on`;
  throw new UsageError(`--${option} needs ${wanted}, not ${text}`);
}

/** The sentence of an error, and where the usage is. */
export const usageMessage = (command: string, { message }: UsageError): string =>
  `${message} (${command} -- --help shows the usage)`;

function unknownOption(given: string, { options, allowNegative }: Omit<CommandSyntax, 'command'>): UsageError {
  const names = Object.keys(options);
  const negatives = allowNegative ? names.map((name) => `no-${name}`) : [];
  const guess = meant(given.replace(/^-+/, ''), [...names, ...negatives]);
  return new UsageError(`There is no option ${given}${guess === undefined ? '' : `. Did you mean --${guess}?`}`);
}

/** The beginning of a name stands for it, however long the rest is. */
const meant = (given: string, names: readonly string[]): string | undefined =>
  names.find((name) => given.length >= BEGINNING_MIN && name.startsWith(given)) ?? didYouMean(given, names);

const isOption = ({ value, inlineValue }: { value?: string | undefined; inlineValue?: boolean | undefined }): boolean =>
  inlineValue === false && value?.startsWith('-') === true;

/** npm takes options that are not behind `--` for its own, and hands them on in the environment only. */
function requireNoneSwallowed({ command, options, allowNegative }: CommandSyntax, { args, env }: Given): void {
  for (const name of Object.keys(options)) {
    const value = env[`npm_config_${name.replaceAll('-', '_')}`];
    if (value === undefined || NAMES_OF_NPM.includes(name)) continue;
    if (value === '' && !allowNegative) continue;
    // npm hands on the value of an option that it does not know as an argument.
    const shown = value === '' ? [`--no-${name}`] : value === 'true' ? [`--${name}`, ...args] : [`--${name}`, value];
    throw new UsageError(
      `npm took --${name} for an option of its own. Put -- before it: ${command} -- ${shown.join(' ')}`,
    );
  }
}
