import { essenceOf } from '../functions/uploads/media-type.ts';
import type { Route } from '../functions/uploads/routes.ts';
import type { Outcome } from './checks.ts';
import type { OfferedTemplate } from './templates.ts';

/**
 * Compares the routes with what the service offers: each template must be known, and take the media types of its route.
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
  if (refused.length === 0) return 'good';
  const what = `A template does not take what its route sends: route ${refused.join('; route ')}.`;
  const todo = `Correct the media types of the route, or its template, and ${words.next}.`;
  return { severity: 'warning', what, todo };
}

/** True if there may be a media type of both. `image/*` is any image. */
function isSameType(one: string, other: string): boolean {
  const [parts, others] = [essenceOf(one).split('/'), essenceOf(other).split('/')];
  return [0, 1].every((at) => {
    const [a, b] = [parts[at] ?? '*', others[at] ?? '*'];
    return a === b || a === '*' || b === '*';
  });
}
