import { Stack, Token, Tokenization } from 'aws-cdk-lib';
import type { Construct } from 'constructs';
import type { LaterName } from '../functions/settings/environment.ts';

/*
 * Values that are known only at deployment: tokens of CDK, such as the value of a parameter. CloudFormation puts them in
 * as they are, and a quote or a line break would break the JSON of the routes. And a file beside the bundle is written at
 * synth, when they are not known. So each stands in a variable of its own, and the routes name the variable.
 */

/** Members that need not be known at synth. */
const MAY_BE_LATER =
  /^(?:pipeline|baseUrl|routes\[\d+\]\.(?:(?:name|after|template|revision)$|(?:parameters|additional)[.[]))/;

/** A text that looks as if it named a variable gets a variable, so that it stays what it is. */
const LOOKS_LATER = /^\{(?:TEXT|NUMBER)_\d+\}$/;

/** A valid name and a valid address in place of those that are known only at deployment. */
const STAND_INS: Readonly<Record<string, string>> = {
  pipeline: 'known-at-deployment',
  baseUrl: 'https://known-at-deployment.invalid',
};

export interface Separated {
  /** The value as JSON. */
  readonly json: string;
  /** What is known only at deployment, by the names of its variables. */
  readonly values: Readonly<Record<LaterName, string>>;
  /** Members that must be known at synth, and are not. */
  readonly issues: readonly string[];
}

/**
 * Writes a value as JSON in which `{TEXT_1}` stands for the variable `TEXT_1`, and `{NUMBER_2}` for a number.
 * @throws {TypeError | RangeError} JSON cannot say it.
 */
export function separateLater(scope: Construct, value: object, where = scope.node.path): Separated {
  const names = new Map<unknown, LaterName>();
  const issues: string[] = [];
  const paths = new WeakMap<object, string>();
  const json = JSON.stringify(value, function (this: Readonly<Record<string, unknown>>, name, given: unknown) {
    const parent = paths.get(this);
    const path = Array.isArray(this) ? `${parent}[${name}]` : [parent, name].filter(Boolean).join('.');
    if (typeof given === 'object' && given !== null) paths.set(given, path);
    if (Token.isUnresolved(name))
      issues.push(`${where}.${parent}: expected names that are known at synth, got ${shown(scope, name)}`);
    const original = this[name]; // Tokens that are objects write themselves as a text that means nothing.
    const isLater = Token.isUnresolved(original);
    if (!isLater && !(typeof given === 'string' && LOOKS_LATER.test(given))) return given;
    const [issue, hint] = isLater ? issueOf(path, original) : [];
    if (issue !== undefined) issues.push(`${where}.${path}: ${issue}, got ${shown(scope, original)}. ${hint}.`);
    if (issue !== undefined || !MAY_BE_LATER.test(path)) return given;
    if (path in STAND_INS) return STAND_INS[path];
    const variable =
      names.get(original) ?? (`${typeof original === 'number' ? 'NUMBER' : 'TEXT'}_${names.size + 1}` as const);
    names.set(original, variable);
    return `{${variable}}`;
  });
  const values = [...names].map(([original, variable]) => [variable, textOf(original)]);
  return { json, values: Object.fromEntries(values), issues };
}

/** What was expected, and what to do. */
function issueOf(path: string, value: unknown): readonly [expected: string, hint: string] | readonly [] {
  if (!MAY_BE_LATER.test(path)) {
    return [
      'expected a value that is known at synth, because checks or permissions are made from it',
      'Write the value itself, or read it at synth: StringParameter.valueFromLookup reads a parameter',
    ];
  }
  if (typeof value === 'string' || typeof value === 'number') return [];
  return Array.isArray(value)
    ? ['expected no list that is known only at deployment', 'Take its elements, with Fn.select']
    : ['expected a text or a number', 'Make it one, with Token.asString or Token.asNumber'];
}

const textOf = (value: unknown): string =>
  typeof value === 'number' ? Tokenization.stringifyNumber(value) : String(value);

/** A token as the template will spell it. */
export const shown = (scope: Construct, value: unknown): string => JSON.stringify(Stack.of(scope).resolve(value));
