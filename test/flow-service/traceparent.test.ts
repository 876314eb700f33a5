import { expect, it } from 'vitest';
import { ECHO, MINUTE, openWorld, type World } from '../support/world.ts';

const LISTING = /\/flows(?:\?.*)?$/;

interface Sent {
  readonly what: string;
  readonly traceparent: string | undefined;
}

/** A world, and each request that its functions send to the service. */
async function traced(): Promise<{ readonly world: World; readonly sent: Sent[] }> {
  const sent: Sent[] = [];
  const world = await openWorld({
    isVirtual: true,
    routes: [{ ...ECHO, parameters: { copies: 2 } }],
    transport: (direct) => (request, signal) => {
      sent.push({ what: `${request.method} ${request.url.pathname}`, traceparent: request.headers.traceparent });
      return direct(request, signal);
    },
  });
  return { world, sent };
}

it('every request about an upload is a span of one trace, which the upload id names', async () => {
  const { world, sent } = await traced();
  world.fault('createFlow', { status: 503 }, 1);
  await world.send('a.png');
  await world.settled('a.png');
  const { id } = (await world.entry()).upload;
  const ofUpload = sent.filter(({ what }) => !(what.startsWith('GET') && LISTING.test(what)));
  const whats = ofUpload.map(({ what }) =>
    what.replace(/[0-9a-f]{24}/, '{id}').replace(/outputs\/.*/, 'outputs/{asset}'),
  );
  expect(new Set(whats)).toEqual(
    new Set(['POST /flows', 'GET /flows/{id}', 'GET /flows/{id}/outputs', 'GET /flows/{id}/outputs/{asset}']),
  );
  const spans = ofUpload.map(({ traceparent = '' }) => /^00-([0-9a-f]{32})-([0-9a-f]{16})-01$/.exec(traceparent));
  expect(new Set(spans.map((span) => span?.[1]))).toEqual(new Set([id.slice(0, 32)]));
  expect(new Set(spans.map((span) => span?.[2])).size).toBe(ofUpload.length);
});

it('a request about many uploads belongs to no trace', async () => {
  const { world, sent } = await traced();
  for (let n = 0; n < 30; n += 1) await world.upload(`${n}.png`);
  await world.deliverAll();
  await world.tickAfter(5 * MINUTE);
  const listings = sent.filter(({ what }) => what.startsWith('GET') && LISTING.test(what));
  expect(listings.length).toBeGreaterThan(0);
  expect(listings.map(({ traceparent }) => traceparent)).toEqual(listings.map(() => undefined));
});

it('the abort of a cancelled flow belongs to the trace', async () => {
  const { world, sent } = await traced();
  await world.send('a.png');
  const { id } = (await world.entry()).upload;
  await world.collect({ cancel: [id] });
  const abort = sent.find(({ what }) => what.startsWith('PATCH'));
  expect(abort?.traceparent).toMatch(new RegExp(`^00-${id.slice(0, 32)}-`));
});
