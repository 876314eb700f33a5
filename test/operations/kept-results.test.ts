import { expect, it } from 'vitest';
import { REPLICATE } from '../../functions/flow-service/job-services.ts';
import { FLOWS } from '../../functions/flow-service/services.ts';
import { actionsFor } from '../../operations/actions.ts';
import type { Deployment } from '../../operations/deployment.ts';
import type { UploadView } from '../../operations/upload-view.ts';
import { HOUR } from '../support/world.ts';

it('a new collection is offered for as long as the service keeps results', () => {
  const endedAt = Date.parse('2026-01-01T00:00:00Z');
  const view = {
    ...{ state: 'succeeded', endedAt: new Date(endedAt).toISOString(), isFlowShared: false },
    flow: { id: 'f1', createdAt: '2025-12-31T00:00:00.000Z' },
  } as UploadView;
  const offered = (service: object, afterMs: number) =>
    actionsFor(view, { settings: { service }, clock: { now: () => endedAt + afterMs } } as Deployment);
  expect(REPLICATE.outputs.keptHours).toBe(1);
  expect(offered(REPLICATE, HOUR)).toEqual(['again', 'collect']);
  expect(offered(REPLICATE, HOUR + 1)).toEqual(['again']);
  expect(offered(FLOWS, 1_000 * HOUR)).toEqual(['again', 'collect']);
});
