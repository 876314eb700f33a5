import * as z from 'zod/mini';
import type { Json } from '../functions/base/json.ts';
import { type Price, priceSchema } from '../functions/uploads/budget.ts';
import type { Deployment } from './deployment.ts';

/** The service did not say what it offers. `code` is one of the codes of the flow service's errors. */
export class TemplatesUnknownError extends Error {
  override readonly name = 'TemplatesUnknownError';
  readonly code: string;
  /** What the service answered. */
  readonly answer: string;
  constructor(code: string, answer: string) {
    super(`The flow service does not say what it offers (${answer}). Look in its documentation.`);
    this.code = code;
    this.answer = answer;
  }

  /** True if the service has no list of templates. Not every service has one. */
  get isUnlisted(): boolean {
    return ['not-found', 'not-served', 'rejected'].includes(this.code);
  }

  /** `warning` if flows may be created all the same. */
  get severity(): 'fault' | 'warning' {
    return this.code === 'throttled' || this.code === 'forbidden' ? 'warning' : 'fault';
  }
}

/** What the service offers. */
export interface OfferedTemplate {
  readonly id: string | undefined;
  readonly name: string | undefined;
  readonly description: string | undefined;
  /** Media types that it takes, as the service writes them. Undefined if the service does not say. */
  readonly inputTypes: readonly string[] | undefined;
  /** As the service writes them. */
  readonly parameters: Json | undefined;
  /** What a flow costs. Undefined if the service does not say, or not as an amount with a currency. */
  readonly price: Price | undefined;
}

const text = z.catch(z.optional(z.coerce.string()), undefined);
const types = z.catch(z.optional(z.array(z.string())), undefined);
/** In the form of a route's price: the service does not document another. */
const price = z.catch(z.optional(priceSchema), undefined);

const templateSchema = z.pipe(
  z.looseObject({ id: text, name: text, description: text, input_types: types, inputTypes: types, price }),
  z.transform(
    ({ id, name, description, input_types, inputTypes, parameters, price }): OfferedTemplate => ({
      ...{ id, name, description, price },
      inputTypes: input_types ?? inputTypes,
      parameters: parameters as Json | undefined,
    }),
  ),
);

const answerSchema = z.union([
  z.object({ templates: z.array(templateSchema) }),
  z.object({ issue: z.object({ code: z.string(), message: z.string() }) }),
]);

/**
 * What the service offers, on all pages. The collecting function asks it, with its token.
 * @throws {TemplatesUnknownError} the service does not list its templates, or cannot be reached.
 */
export async function templates(deployment: Deployment, signal: AbortSignal): Promise<readonly OfferedTemplate[]> {
  return templatesIn(await deployment.collecting.invoke({ templates: true }, signal));
}

/**
 * Reads the answer to the question for templates, as the collecting function gives it.
 * @throws {TemplatesUnknownError} the service does not list its templates, or cannot be reached.
 */
export function templatesIn(value: unknown): readonly OfferedTemplate[] {
  const answer = answerSchema.parse(value);
  if ('issue' in answer) throw new TemplatesUnknownError(answer.issue.code, answer.issue.message);
  return answer.templates;
}
