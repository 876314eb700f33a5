import type { Json, JsonObject } from '../../functions/base/json.ts';

/** One parameter of a template, as a form shows it. */
export interface Field {
  readonly name: string;
  readonly kind: 'text' | 'integer' | 'number' | 'boolean' | 'json';
  /** The values that are allowed. Undefined: any. */
  readonly options?: readonly string[] | undefined;
  readonly minimum?: number | undefined;
  readonly maximum?: number | undefined;
  readonly description?: string | undefined;
  /** What the upload was sent with, as a person writes it. Empty: nothing. */
  readonly value: string;
  /** The same as it was sent. */
  readonly present?: Json | undefined;
}

/** Parameters that a form shows. */
const FIELDS_MAX = 100;

/**
 * The fields for a template's parameters. The service may write them as a JSON Schema, as an object of parameters by
 * name, or as a list of parameters with names. Returns none if it does otherwise.
 */
export function fieldsOf(parameters: Json | undefined, present: Json | undefined): readonly Field[] {
  const values = isObject(present) ? present : {};
  return specificationsOf(parameters)
    .slice(0, FIELDS_MAX)
    .map(([name, specification]) => fieldOf(name, specification, values[name]));
}

function specificationsOf(parameters: Json | undefined): readonly (readonly [string, JsonObject])[] {
  if (Array.isArray(parameters)) {
    return parameters.flatMap((each: Json) =>
      isObject(each) && typeof each.name === 'string' ? [[each.name, each] as const] : [],
    );
  }
  if (!isObject(parameters)) return [];
  const { properties } = parameters;
  return Object.entries(isObject(properties) ? properties : parameters).flatMap(([name, each]) =>
    isObject(each) ? [[name, each] as const] : [],
  );
}

function fieldOf(
  name: string,
  { type, enum: allowed, minimum, maximum, description }: JsonObject,
  value: Json | undefined,
): Field {
  const kind = kindOf(type);
  const options = kind === 'boolean' ? ['true', 'false'] : Array.isArray(allowed) ? allowed.map(String) : undefined;
  return {
    ...{ name, kind, options },
    minimum: typeof minimum === 'number' ? minimum : undefined,
    maximum: typeof maximum === 'number' ? maximum : undefined,
    description: typeof description === 'string' ? description : undefined,
    value: value === undefined ? '' : typeof value === 'string' ? value : JSON.stringify(value),
    present: value,
  };
}

function kindOf(type: Json | undefined): Field['kind'] {
  if (type === 'integer' || type === 'number' || type === 'boolean') return type;
  return type === 'object' || type === 'array' ? 'json' : 'text';
}

/**
 * The parameter for what the user has entered. Undefined if the field is empty.
 * @throws {SyntaxError} the field wants JSON.
 */
export function enteredValue({ kind, value, present }: Field, entered: string): Json | undefined {
  if (entered === '') return undefined;
  // The service may describe a number as anything. Untouched, it stays the number that was sent.
  if (entered === value) return present;
  if (kind === 'boolean') return entered === 'true';
  if (kind === 'json') return JSON.parse(entered);
  return kind === 'text' ? entered : Number(entered);
}

/** The parameters that the upload was sent with and that have no field. */
export function undescribed(fields: readonly Field[], present: Json | undefined): JsonObject {
  if (!isObject(present)) return {};
  const names = new Set(fields.map(({ name }) => name));
  return Object.fromEntries(Object.entries(present).filter(([name]) => !names.has(name)));
}

const isObject = (value: Json | undefined): value is JsonObject =>
  typeof value === 'object' && value !== null && !Array.isArray(value);
