import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { type JsonSchema, jsonSchemaOf, PUBLISHED } from './published.ts';

const UPDATE = 'To write the schemas: npx vitest run test/schemas --update';

/** Paths of the members without a description. */
const undescribed = ({ properties = {} }: JsonSchema, path = ''): readonly string[] =>
  Object.entries(properties).flatMap(([name, member]) => [
    ...(member.description === undefined ? [`${path}${name}`] : []),
    ...undescribed(member.items ?? member, `${path}${name}.`),
  ]);

describe.each(Object.entries(PUBLISHED))('docs/schemas/%s.schema.json', (name, published) => {
  const made = jsonSchemaOf(published);

  it('says what the code checks', async () => {
    const file = fileURLToPath(new URL(`../../docs/schemas/${name}.schema.json`, import.meta.url));
    await expect(`${JSON.stringify(made, undefined, 2)}\n`, UPDATE).toMatchFileSnapshot(file);
  });

  it('describes every member', () => {
    expect(undescribed(made)).toEqual([]);
  });
});
