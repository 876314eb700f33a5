import type { Template } from 'aws-cdk-lib/assertions';
import { expect } from 'vitest';

/** All resources of a type, each with its logical id, its properties and its other attributes side by side. */
export const resources = (template: Template, type: string) =>
  Object.entries(template.findResources(type)).map(([id, { Properties, ...rest }]) => ({ id, ...rest, ...Properties }));

/** The one element of a list. */
export const only = <T>(all: readonly T[]): T => {
  expect(all).toHaveLength(1);
  return all[0] as T;
};

/** The environment of a function. Values that are unknown before deployment are replaced by similar ones. */
export const environmentOf = (variables: Readonly<Record<string, unknown>>): NodeJS.ProcessEnv =>
  Object.fromEntries(
    Object.entries(variables).map(([key, value]) => {
      if (typeof value === 'string') return [key, value];
      const [argument] = Object.values(value as Record<string, string | string[]>);
      const id = [argument].flat().join('-');
      return [key, key.endsWith('QUEUE_URL') ? `https://sqs.example.com/${id}` : id];
    }),
  );
