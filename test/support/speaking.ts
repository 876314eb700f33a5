import type { Json } from '../../functions/base/json.ts';
import { merged, type ServiceDescription } from '../../functions/flow-service/service-description.ts';
import { FLOWS } from '../../functions/flow-service/services.ts';
import type { Variation } from '../../local/flow-service/variation.ts';

/** {@link FLOWS} with some members changed, as a configuration changes them. */
export const speaking = (changes: Json): ServiceDescription =>
  merged(FLOWS as unknown as Json, changes) as unknown as ServiceDescription;

/** How the pages of each variation of the stand-in are declared. */
const PAGES: Readonly<Record<Variation['paging'], Json>> = {
  page: {},
  cursor: { by: 'cursor', at: '/next', parameter: 'cursor' },
  link: { by: 'link' },
  none: null,
};

/** The description of a stand-in that speaks in a variation. */
export const descriptionOf = (
  { paging = 'page', idempotencyHours: hours = 0 }: Partial<Variation> = {},
  changes: Json = {},
): ServiceDescription => {
  const varied = speaking({ list: { pages: PAGES[paging] }, create: { idempotency: { hours } } });
  return merged(varied as unknown as Json, changes) as unknown as ServiceDescription;
};
