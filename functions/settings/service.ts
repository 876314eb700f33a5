import { isDeepStrictEqual } from 'node:util';
import * as z from 'zod/mini';
import type { Json } from '../base/json.ts';
import { descriptionSchema } from '../flow-service/description-schema.ts';
import { merged, type ServiceDescription } from '../flow-service/service-description.ts';
import { FLOWS, SERVICES } from '../flow-service/services.ts';
import { jsonSchema } from '../uploads/routes.ts';

const NAMES = Object.keys(SERVICES);

const EXPECTED = `expected ${NAMES.map((name) => `"${name}"`).join(', ')}, {"from": "flows", ...} with what differs, or a whole description`;

/**
 * How the service speaks, in a configuration: the name of a description, a whole one, or one with some members changed,
 * as RFC 7396 (JSON Merge Patch) says.
 * @internal
 */
export const serviceSchema: z.ZodMiniType<ServiceDescription> = z.pipe(
  z.union([z.enum(NAMES, { error: EXPECTED }), z.record(z.string(), jsonSchema, { error: EXPECTED })], {
    error: EXPECTED,
  }),
  z.transform((value, context): ServiceDescription => {
    if (typeof value === 'string') return SERVICES[value] as ServiceDescription;
    const { from, ...changes } = value;
    const base = typeof from === 'string' && Object.hasOwn(SERVICES, from) ? SERVICES[from] : undefined;
    if (from !== undefined && base === undefined) {
      const message = `expected the name of a description: ${NAMES.join(', ')}`;
      context.issues.push({ code: 'custom', message, input: from, path: ['from'] });
      return z.NEVER;
    }
    const described = base === undefined ? changes : merged(base as unknown as Json, changes as Json);
    const parsed = z.safeParse(descriptionSchema(), described, { reportInput: true });
    if (parsed.success) return parsed.data;
    for (const issue of parsed.error.issues) context.issues.push({ ...issue, input: issue.input } as never);
    return z.NEVER;
  }),
) as unknown as z.ZodMiniType<ServiceDescription>;

/** A description as a configuration says it, in short. Undefined for {@link FLOWS}, which needs no word. */
export function shortOf(service: ServiceDescription): string | ServiceDescription | undefined {
  if (isDeepStrictEqual(service, FLOWS)) return undefined;
  return Object.entries(SERVICES).find(([, each]) => isDeepStrictEqual(service, each))?.[0] ?? service;
}
