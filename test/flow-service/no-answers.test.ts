import { describe, expect, it } from 'vitest';
import type { FlowService } from '../../functions/flow-service/types.ts';
import type { Fault } from '../../local/flow-service/fault.ts';
import { NO_ANSWERS, UNUSABLE_IDS } from '../hostile/bad-answers.ts';
import { saying } from '../hostile/support.ts';
import { serveStandIn } from '../support/servers.ts';
import { clientOf, never, requestOf, sourceOf, TOKEN } from './scripted.ts';

/** The flow service, whose stand-in answers everything with a fault. */
async function answeredWith(fault: Fault): Promise<FlowService> {
  const { service, url } = await serveStandIn({ tokens: [TOKEN] });
  service.intercept = () => fault;
  return clientOf(new URL(url), { outputsPath: 'flows' });
}

/** What callers tell these answers by. A page comes from another server than the flow service. */
const errorOf = (what: string): string =>
  what.startsWith('a page') ? 'MisaddressedError' : 'UnintelligibleAnswerError';

describe('an answer that is', () => {
  it.each(NO_ANSWERS)('%s tells nothing of a flow or its outputs, and says why', async (what, fault) => {
    const flows = await answeredWith(fault());
    for (const reading of [flows.get('f1', never), flows.outputs('f1', never)]) {
      const error = await reading.catch((caught: unknown) => caught);
      expect(error).toMatchObject({ name: errorOf(what) });
      expect((error as Error).message).not.toBe('');
    }
  });

  it.each([
    ...NO_ANSWERS,
    ['an empty list', () => saying('[]')] as const,
    ...UNUSABLE_IDS.map(
      (id) =>
        [`an id such as ${JSON.stringify(id)?.slice(0, 40)}`, () => saying(JSON.stringify({ flow_id: id }))] as const,
    ),
  ])('%s leaves it in doubt whether a flow was created', async (what, fault) => {
    const flows = await answeredWith(fault());
    const error = await flows.create(requestOf(sourceOf('x')), never).catch((caught: unknown) => caught);
    expect(error).toMatchObject({ name: 'InDoubtError', cause: { name: errorOf(what) } });
    expect((error as Error).message).toContain(what.startsWith('a page') ? 'Check baseUrl' : 'does not name it');
  });
});
