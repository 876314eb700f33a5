import { hash } from 'node:crypto';
import * as z from 'zod/mini';
import { isObject, type Json, type JsonObject } from '../base/json.ts';
import { quoted } from '../base/printable.ts';
import type { Price } from './budget.ts';
import { decodeWords } from './encoded-words.ts';
import type { Route } from './route.ts';
import { additionalSchema, jsonSchema, templateSchema } from './routes.ts';

/** The part of a route that an entry keeps, so that a later deployment does not change work in progress. */
export interface RouteSnapshot {
  readonly name: string;
  readonly input: 'file' | 'text';
  readonly template: string;
  readonly parameters?: Json | undefined;
  readonly additional?: JsonObject | undefined;
  /** What the route said, without what metadata or an operator replaced. Absent in entries of earlier versions. */
  readonly revision?: Revision | undefined;
  /** With `overrides`: the metadata that may replace parts of the route, as a text. Absent if there are none. */
  readonly metadata?: string | undefined;
  /** What its flow costs: the price at the last attempt to send it. */
  readonly price?: Price | undefined;
}

/** What a route said when it was read. */
export interface Revision {
  /** The same for two routes that make the same flows: 12 hexadecimal digits. */
  readonly hash: string;
  /** The deployment's own name for it. */
  readonly name?: string | undefined;
}

/** Digits of the hash of a revision: 48 bits. */
const HASH_DIGITS = 12;

/** Its conditions and its price change no flow, so they are no part of the revision. */
export function revisionOf({ input, template, parameters, additional, revision: name }: Route): Revision {
  const said = JSON.stringify([input, template, parameters, additional, name], byName);
  return { hash: hash('sha256', said).slice(0, HASH_DIGITS), ...(name && { name }) };
}

/** The order in which a configuration names the members of an object changes no flow. */
const byName = (_: string, value: unknown): unknown =>
  isObject(value)
    ? Object.fromEntries(Object.entries(value).toSorted(([one], [other]) => (one < other ? -1 : 1)))
    : value;

/** What an operator gives for one retry. It replaces parts of the route, as metadata does. */
export interface GivenOverrides {
  readonly template?: string | undefined;
  readonly parameters?: Json | undefined;
}

/** An upload's metadata has an invalid override. The file is at fault, so no retry will help. */
export class InvalidOverrideError extends Error {
  override readonly name = 'InvalidOverrideError';
  readonly code = 'invalid-override';
}

/** Names of the metadata of an upload that replaces a part of its route, without `x-amz-meta-`. */
export const TEMPLATE_METADATA = 'flow-template';
export const PARAMETERS_METADATA = 'flow-parameters';

/**
 * Returns the snapshot of a route for one upload. The upload's metadata replaces parts of it if the route allows that.
 * @param metadata user metadata by names in lower case, without `x-amz-meta-`, as the SDK returns it.
 * @param given replaces what the metadata says.
 * @throws {InvalidOverrideError} also if something is given, and the route allows no overrides.
 */
export function snapshot(
  route: Route,
  metadata: Readonly<Record<string, string>> = {},
  given?: GivenOverrides,
): RouteSnapshot {
  const { name, input, template, parameters, additional, price } = route;
  const revision = revisionOf(route);
  const kept: RouteSnapshot = { name, input, template, parameters, additional, revision, ...(price && { price }) };
  if (route.overrides !== true) {
    if (given === undefined) return kept;
    throw new InvalidOverrideError(
      `The retry came with other parameters or another template, and the route ${name} allows none`,
    );
  }
  const override = <T>(header: string, schema: z.ZodMiniType<T>, read: (text: string) => unknown): T | undefined => {
    const raw = metadata[header];
    if (raw === undefined) return undefined;
    let value: unknown;
    try {
      value = read(decodeWords(raw));
    } catch (cause) {
      throw invalidOverride(header, raw, 'expected JSON in readable UTF-8', cause);
    }
    const { success, data, error } = z.safeParse(schema, value);
    if (!success) throw invalidOverride(header, raw, error.issues[0]?.message, error);
    return data;
  };
  // Null is a valid value, so only an absent header keeps the route's own.
  const own = () =>
    PARAMETERS_METADATA in metadata ? override(PARAMETERS_METADATA, jsonSchema, JSON.parse) : parameters;
  const said = flowMetadata(metadata);
  return {
    ...kept,
    ...(said !== NO_METADATA && { metadata: said }),
    template: given?.template ?? override(TEMPLATE_METADATA, templateSchema, (text) => text.trim()) ?? template,
    parameters: given?.parameters === undefined ? own() : given.parameters,
    additional: override('flow-additional', additionalSchema, JSON.parse) ?? additional,
  };
}

/** The metadata that may replace parts of a route, as a text to be compared. */
export const flowMetadata = (metadata: Readonly<Record<string, string>>): string =>
  JSON.stringify(Object.fromEntries(Object.entries(metadata).filter(([name]) => name.startsWith('flow-'))), byName);

/** The text of an object without such metadata. */
export const NO_METADATA = flowMetadata({});

function invalidOverride(header: string, raw: string, expected: string | undefined, cause: unknown) {
  return new InvalidOverrideError(`metadata ${header}: ${expected}, got ${quoted(raw)}`, { cause });
}
