import { text } from '../base/validation.ts';

const LENGTH_MAX = 40;

/**
 * The name of a pipeline. Tags, names of resources and dimensions of metrics contain it, so it has only characters that
 * all of them allow.
 * @internal
 */
export const pipelineNameSchema = text(
  `a name of at most ${LENGTH_MAX} lower-case letters, digits and hyphens that starts with a letter`,
  (value) => /^[a-z][a-z0-9-]*$/.test(value) && !value.endsWith('-') && value.length <= LENGTH_MAX,
);
