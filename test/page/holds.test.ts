import { describe, expect, it, vi } from 'vitest';
import { Operated } from '../operations/support.ts';
import { PATIENCE } from '../support/patience.ts';
import { messageOf, QUICK, serve, Visitor } from './support.ts';

const DAY_MS = 86_400_000;

describe('a hold', () => {
  it('and its end are answered, and told to all who watch', async () => {
    const { deployment } = await Operated.forTest();
    // By itself the feed looks at the pipeline once.
    const { url } = await serve(deployment, { pace: { ...QUICK, statusMs: DAY_MS } });
    const visitor = await Visitor.open(url);
    const watching = visitor.listen();
    const reasons = () =>
      watching.heard.flatMap(({ name, data }) =>
        name === 'status' ? [data.holds.holds.map(({ message }: { message: string }) => message)] : [],
      );
    await vi.waitFor(() => expect(reasons()).toEqual([[]]), PATIENCE);
    const paused = await visitor.post('/api/hold', { action: 'pause', route: 'texts', why: 'Not yet.' });
    expect([paused.status, paused.json.result]).toEqual([200, 'paused']);
    await vi.waitFor(() => expect(reasons().at(-1)).toEqual(['The route texts is paused. Not yet.']), PATIENCE);
    const resumed = await visitor.post('/api/hold', { action: 'resume', route: 'texts' });
    expect(resumed.json).toMatchObject({ result: 'resumed', holds: [] });
    await vi.waitFor(() => expect(reasons().at(-1)).toEqual([]), PATIENCE);
  });

  it('is what a file waits for that waited for the service before, until it ends', async () => {
    const operated = await Operated.forTest();
    const { url } = await serve(operated.deployment);
    const visitor = await Visitor.open(url);
    const watching = visitor.listen();
    await visitor.post('/api/hold', { action: 'pause', route: 'pictures' });
    const { id } = await operated.put('a.png', 'waiting');
    await operated.waitsInstead('a.png', { reason: 'throttled', message: 'create: 429' });
    const waits = () => watching.heard.flatMap(({ name, data }) => (name === 'upload' ? [data.wait?.reason] : []));
    const detail = async () => (await visitor.ask(`/api/uploads/${id}`)).json;
    expect(await detail()).toMatchObject({
      row: { wait: { reason: 'paused', message: 'The route pictures is paused.' } },
      upload: { wait: { reason: 'paused', before: ['create: 429'] } },
      sooner: 'To go on: npm run -s flowdrop -- resume --route pictures',
    });
    await vi.waitFor(() => expect(waits().at(-1)).toBe('paused'), PATIENCE);
    await visitor.post('/api/hold', { action: 'resume', route: 'pictures' });
    await vi.waitFor(() => expect(waits().at(-1)).toBe('throttled'), PATIENCE);
    expect(await detail()).toMatchObject({ row: { wait: { reason: 'throttled', message: 'create: 429' } } });
    await visitor.post('/api/hold', { action: 'pause' });
    await vi.waitFor(() => expect(waits().at(-1)).toBe('paused'), PATIENCE);
    const page = await visitor.ask('/api/uploads');
    expect(page.json.uploads[0].wait).toMatchObject({ reason: 'paused', message: 'The pipeline is paused.' });
  });

  it('is told in the plan of a retry, with what ends it', async () => {
    const operated = await Operated.forTest();
    await operated.putRefused('a.png', 'b.png');
    const { url } = await serve(operated.deployment);
    const visitor = await Visitor.open(url);
    await visitor.post('/api/hold', { action: 'pause', route: 'pictures' });
    const query = { state: 'failed' };
    const hold = expect.objectContaining({ reason: 'paused', route: 'pictures' });
    const ending = 'To go on: npm run -s flowdrop -- resume --route pictures';
    expect((await visitor.post('/api/plan', { action: 'retry', query })).json.held).toEqual([
      { hold, count: 2, ending },
    ]);
    expect((await visitor.post('/api/plan', { action: 'collect', query })).json.held).toEqual([]);
  });

  it('that is not there cannot be ended: the answer says what to do', async () => {
    const { deployment } = await Operated.forTest();
    const { url } = await serve(deployment, {});
    const visitor = await Visitor.open(url);
    for (const [request, status, message] of [
      [{ action: 'resume' }, 409, 'The pipeline is not paused.'],
      [{ action: 'pause', route: 'nope' }, 409, 'There is no route nope.'],
      [{ action: 'resume', route: 'texts' }, 409, 'The route texts is not paused.'],
      [{ action: 'probe', route: 'texts' }, 400, 'action: '],
    ] as const) {
      const refused = await visitor.post('/api/hold', request);
      expect(refused.status).toBe(status);
      expect(messageOf(refused)).toContain(message);
    }
  });
});
