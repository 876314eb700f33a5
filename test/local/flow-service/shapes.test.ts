import { expect, it } from 'vitest';
import { merged, type ServiceDescription } from '../../../functions/flow-service/service-description.ts';
import { SERVICES } from '../../../functions/flow-service/services.ts';
import { issueOfStandIn } from '../../../local/flow-service/shapes.ts';

const changed = (from: string, changes: object): ServiceDescription =>
  merged(SERVICES[from] as never, changes as never) as unknown as ServiceDescription;

it.each(Object.keys(SERVICES))('the stand-in speaks as the description %s says', (name) => {
  expect(issueOfStandIn(changed(name, {}))).toBeUndefined();
  expect(
    issueOfStandIn(changed(name, { create: { answerSeconds: 300 }, errors: { throttled: [420] } })),
  ).toBeUndefined();
});

it.each([
  ['flows', 'flows', { state: { completed: ['succeed'] } }],
  ['flows', 'flows', { create: { path: '/flows/' } }],
  ['flows', 'flows', { token: { header: 'X-Api-Key', scheme: null } }],
  ['flows', 'replicate', { state: { path: '/jobs/{id}' } }],
  ['meshy', 'meshy', { state: { completed: ['DONE'] } }],
])('a stand-in that speaks as %s says so, if a service from %s has %j', (spoken, from, changes) => {
  expect(issueOfStandIn(changed(from, changes))).toContain(`the description "${spoken}"`);
});
