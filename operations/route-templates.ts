import type { Json, JsonObject } from '../functions/base/json.ts';
import { registeredType } from '../functions/base/media-type.ts';
import { amountText, microsOf } from '../functions/base/money.ts';
import type { Price } from '../functions/uploads/budget.ts';
import type { Route } from '../functions/uploads/route.ts';
import { combined, type Finding, type Outcome } from './checks.ts';
import type { OfferedTemplate } from './templates.ts';

/**
 * Compares the routes with what the service offers: each template must be known, take the media types of its route,
 * list its parameters, and cost what the route says.
 * @param words what the operator does about it: after a correction, and to see what is offered.
 */
export function outcomeOfTemplates(
  routes: readonly Route[],
  offered: readonly OfferedTemplate[],
  words: { readonly next: string; readonly list: string },
): Outcome {
  const templateOf = (wanted: string) => offered.find(({ id, name }) => id === wanted || name === wanted);
  const unknown = routes.filter(({ template }) => templateOf(template) === undefined);
  if (unknown.length > 0) {
    const named = unknown.map(({ name, template }) => `${template} (route ${name})`).join(', ');
    const what = `The service does not know the template ${named}.`;
    return { severity: 'fault', what, todo: `Correct the routes, and ${words.next}. ${words.list}` };
  }
  const refused = routes.flatMap(({ name, input, mediaTypes = [], template }) => {
    const taken = templateOf(template)?.inputTypes ?? [];
    if (input === 'text' || taken.length === 0) return [];
    const types = mediaTypes.filter((type) => !taken.some((each) => isSameType(type, each)));
    return types.length === 0 ? [] : [`${name} sends ${types.join(', ')}, and ${template} takes ${taken.join(', ')}`];
  });
  if (refused.length === 0) {
    return combined([
      ...findingsOfParameters(routes, templateOf, words.next),
      ...findingsOfPrices(routes, templateOf, words.next),
    ]);
  }
  const what = `A template does not take what its route sends: route ${refused.join('; route ')}.`;
  const todo = `Correct the media types of the route, or its template, and ${words.next}.`;
  return { severity: 'warning', what, todo };
}

/**
 * Compares the names of the routes' parameters with those of the templates. The service does not document how it lists
 * them, so only a JSON schema of an object is read, which says so itself.
 */
function findingsOfParameters(
  routes: readonly Route[],
  templateOf: (wanted: string) => OfferedTemplate | undefined,
  next: string,
): readonly Finding[] {
  let severity: 'warning' | 'note' = 'note';
  const found = routes.flatMap(({ name, template, parameters }) => {
    const { type, properties, additionalProperties } = objectOf(templateOf(template)?.parameters);
    if (type !== 'object' || properties === undefined) return [];
    const known = Object.keys(objectOf(properties));
    const unknown = Object.keys(objectOf(parameters)).filter((each) => !known.includes(each));
    if (unknown.length === 0) return [];
    // Otherwise the schema allows names that it does not list.
    if (additionalProperties === false) severity = 'warning';
    return [`${name} sends ${unknown.join(', ')}, and ${template} lists ${known.join(', ') || 'none'}`];
  });
  if (found.length === 0) return [];
  const what = `A template does not list a parameter that its route sends: route ${found.join('; route ')}.`;
  return [{ severity, what, todo: `If a name is mistyped, correct the route, and ${next}.` }];
}

/** Compares the prices of the routes with those that the service lists. Budgets and costs count the routes' prices. */
function findingsOfPrices(
  routes: readonly Route[],
  templateOf: (wanted: string) => OfferedTemplate | undefined,
  next: string,
): readonly Finding[] {
  return routes.flatMap(({ name, template, price }): readonly Finding[] => {
    const listed = templateOf(template)?.price;
    if (listed === undefined || (price !== undefined && isSamePrice(price, listed))) return [];
    const says = price === undefined ? 'names no price' : `says ${textOf(price)}`;
    const what = `A flow of ${template} costs ${textOf(listed)}, as the service lists it, and route ${name} ${says}.`;
    const todo = `Give the route "price": ${JSON.stringify(listed)}, and ${next}.`;
    return [{ severity: price === undefined ? 'note' : 'warning', what, todo }];
  });
}

const isSamePrice = (one: Price, other: Price): boolean =>
  one.currency === other.currency && microsOf(one.amount) === microsOf(other.amount);

const textOf = ({ amount, currency }: Price): string => amountText(amount, currency);

const objectOf = (value: Json | undefined): JsonObject =>
  typeof value === 'object' && value !== null && !Array.isArray(value) ? (value as JsonObject) : {};

/** True if there may be a media type of both. `image/*` is any image. */
function isSameType(one: string, other: string): boolean {
  const [parts, others] = [registeredType(one).split('/'), registeredType(other).split('/')];
  return [0, 1].every((at) => {
    const [a, b] = [parts[at] ?? '*', others[at] ?? '*'];
    return a === b || a === '*' || b === '*';
  });
}
