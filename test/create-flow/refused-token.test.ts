import { describe, expect, it } from 'vitest';
import type { Fault } from '../../local/flow-service/fault.ts';
import { answer, HOUR, MINUTE, start, world } from '../support/world.ts';

// A gateway may answer 403 to a revoked key. That is about the token, and no file must pay for it.

const FORBIDDEN = answer({ message: 'Forbidden' }, 403);

const page = (body: string): Fault => ({ status: 403, headers: { 'content-type': 'text/html' }, body });
const PAGE = page(
  '<html>\r\n<head><title>403 Forbidden</title></head>\r\n<body><hr><center>nginx</center></body></html>',
);
const LONG_PAGE = page(
  `<!DOCTYPE html><!--[if lt IE 7]> <html class="no-js ie6 oldie" lang="en-US"> <![endif]--><head><style>${'p { color: red }'.repeat(20)}</style><title>Access denied</title></head><body><h1>Sorry, you &amp; yours were blocked</h1></body></html>`,
);
/** Both of what it can be. */
const ADVICE = /the token is refused, or something before the service.*Check the token, baseUrl/;

async function next(times: number, ms: number): Promise<void> {
  for (let time = 0; time < times; time += 1) {
    world.clock.advance(ms);
    await world.collect();
    await world.deliverAll();
  }
}

describe('a gateway that answers 403 to everything', () => {
  it.each([
    ['retry', 'JSON', FORBIDDEN, FORBIDDEN, '403: Forbidden'],
    ['ask', 'JSON', FORBIDDEN, FORBIDDEN, '403: Forbidden'],
    ['retry', 'a page', PAGE, PAGE, '403: 403 Forbidden nginx'],
    ['ask', 'a long page', LONG_PAGE, LONG_PAGE, '403: Access denied Sorry, you & yours were blocked'],
    ['retry', 'a page, and to the listings in JSON', PAGE, FORBIDDEN, '403: 403 Forbidden nginx'],
    ['retry', 'JSON, and to the listings with a page', FORBIDDEN, PAGE, '403: Forbidden'],
    [
      'retry',
      'a page, and to the listings with 401',
      PAGE,
      answer({ detail: 'Who?' }, 401),
      '403: 403 Forbidden nginx',
    ],
  ] as const)(
    'keeps files waiting for the token, uncounted, with inDoubt %s: in %s',
    async (inDoubt, _, toCreation, toOthers, words) => {
      await start({ settings: { inDoubt } });
      world.service.intercept = (__, { operation }) => (operation === 'createFlow' ? toCreation : toOthers);
      await world.send('a', 'x');
      await next(10, 3 * HOUR);
      const entry = await world.entry();
      expect(entry).toMatchObject({ state: 'waiting', reason: 'unauthorised', attempts: 0 });
      expect(entry).toMatchObject({ message: expect.stringContaining(words) });
      expect(entry).toMatchObject({ message: expect.stringMatching(ADVICE) });
      expect(world.count('ServiceMisaddressed')).toBe(0);
      expect(entry.doubt).toBeUndefined();
      expect(world.count('TokenRejected')).toBeGreaterThan(0);
      world.service.intercept = undefined;
      await next(2, HOUR);
      expect((await world.settled('a')).status).toBe('succeeded');
      expect(world.service.flows).toHaveLength(1);
    },
  );

  it.each([
    ['JSON', FORBIDDEN],
    ['a page', PAGE],
  ])('fails no flow that runs, and no asset of it: %s', async (_, fault) => {
    await start();
    await world.send('a', 'x');
    world.service.intercept = () => fault;
    await next(20, 5 * MINUTE);
    expect(await world.entry()).toMatchObject({ state: 'running', attempts: 0 });
    world.service.intercept = undefined;
    await next(3, 15 * MINUTE);
    expect((await world.settled('a')).status).toBe('succeeded');
  });
});

it('a page with 403 is no answer of the service if the listings are redirected', async () => {
  await start();
  const login: Fault = { status: 302, headers: { location: 'https://login.example/' } };
  world.service.intercept = (_, { operation }) => (operation === 'createFlow' ? PAGE : login);
  await world.send('a', 'x');
  await next(3, HOUR);
  const message = expect.stringContaining('403 Forbidden nginx. This is no answer of a flow service. Check baseUrl');
  expect(await world.entry()).toMatchObject({ state: 'waiting', reason: 'misaddressed', answer: { message } });
});

it.each([
  ['the listing of flows is served', ['createFlow', 'listTemplates']],
  ['the listing of templates is served', ['createFlow', 'listFlows']],
])('a 403 is about the file if %s, and its end quotes the last answer', async (_, refused) => {
  await start({ settings: { attemptsMax: 2 } });
  world.service.intercept = (_, { operation }) => (refused.includes(operation) ? FORBIDDEN : undefined);
  await world.send('a', 'x');
  await next(12, HOUR);
  expect(await world.receipt('a')).toMatchObject({
    status: 'failed',
    failure: { code: 'attempts-exhausted', message: expect.stringContaining('403: Forbidden') },
  });
});
