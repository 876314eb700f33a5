import { readFileSync } from 'node:fs';
import { Ajv2020 } from 'ajv/dist/2020.js';

const SCHEMA = JSON.parse(readFileSync(new URL('../../docs/json.schema.json', import.meta.url), 'utf8'));
const ajv = new Ajv2020({ strict: true, formats: { 'date-time': /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/ } });
ajv.addSchema(SCHEMA, 'flowdrop');

/** What is wrong with a value, by a definition of `docs/json.schema.json`. Empty if nothing is. */
export function issuesOf(definition: string, value: unknown): string {
  const validate = ajv.getSchema(`flowdrop#/$defs/${definition}`);
  if (validate === undefined) throw new Error(`The schema has no ${definition}`);
  return validate(value) ? '' : `${ajv.errorsText(validate.errors)}: ${JSON.stringify(value)}`;
}
