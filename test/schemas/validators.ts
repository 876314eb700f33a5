import { readFileSync } from 'node:fs';
import { Ajv2020 } from 'ajv/dist/2020.js';

import type { PublishedName } from './published.ts';

type Node = Readonly<Record<string, unknown>>;

const read = (name: PublishedName): Node =>
  JSON.parse(readFileSync(new URL(`../../docs/schemas/${name}.schema.json`, import.meta.url), 'utf8'));

/** Tells what is wrong with a value, each as its path and a message. Empty if nothing is. */
export type Validator = (value: unknown) => readonly string[];

function validatorOf(schema: Node): Validator {
  const validate = new Ajv2020({ strict: true, allErrors: true }).compile(schema);
  return (value) =>
    validate(value) ? [] : (validate.errors ?? []).map(({ instancePath, message }) => `${instancePath}: ${message}`);
}

/** By the file as it is published. */
export const publishedValidator = (name: PublishedName): Validator => validatorOf(read(name));

/** By the file, and every member that it does not describe is wrong too. */
export const closedValidator = (name: PublishedName): Validator => validatorOf(closed(read(name)) as Node);

function closed(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(closed);
  if (typeof value !== 'object' || value === null) return value;
  const copy = Object.fromEntries(Object.entries(value).map(([name, each]) => [name, closed(each)]));
  const isObject = 'type' in value && value.type === 'object' && 'properties' in value;
  return isObject ? { additionalProperties: false, ...copy } : copy;
}
