import { describe, expect, it } from 'vitest';
import { routesSchema } from '../../functions/uploads/routes.ts';
import { ECHO, start, world } from '../support/world.ts';

const TEXT = '{"__proto__":{"admin":true},"note":{"__proto__":1,"constructor":2}}';
/** As the configuration reads it. */
const route = (more: string) =>
  routesSchema.parse([{ ...ECHO, name: 'odd', ...JSON.parse(more) }]) as unknown as [typeof ECHO];

/** As the service got it, without what Flowdrop adds. */
const text = (value: unknown): string => {
  const own = value as Record<string, unknown>;
  for (const name of ['flowdrop', 'bucket', 'key', 'versionId']) delete own[name];
  return JSON.stringify(own);
};

/** JSON makes a member called `__proto__` like any other. What Flowdrop says it gives unchanged has it too. */
describe('a member called __proto__ reaches the service', () => {
  it.each([
    ['a route', `{"additional":${TEXT}}`, {}],
    ['metadata', '{"overrides":true}', { 'flow-additional': TEXT }],
  ])('in additional of %s', async (_, more, metadata) => {
    await start({ routes: route(more) });
    await world.send('a.png', 'x', { Metadata: metadata });
    expect(world.service.flows.map(({ additional }) => text(additional))).toEqual([TEXT]);
    expect(Object.keys(Object.prototype)).toEqual([]);
  });

  it('in additional of the inputs of a job', async () => {
    await start({ routes: route('{"jobs":"jobs/"}') });
    const inputs = `[{"text":"oak","additional":${TEXT}},{"name":"a.png","additional":${TEXT}}]`;
    await world.upload('jobs/1/a.png', 'x');
    await world.upload('jobs/1/job.json', `{"inputs":${inputs}}`);
    await world.deliverAll();
    const [flow] = world.service.flows;
    expect(flow?.inputs.map(({ additional }) => text(additional))).toEqual([TEXT, TEXT]);
  });

  // The service names the parameters that its template does not have.
  it.each([
    ['a route', `{"parameters":${TEXT}}`, {}],
    ['metadata', '{"overrides":true}', { 'flow-parameters': TEXT }],
  ])('in parameters of %s', async (_, more, metadata) => {
    await start({ routes: route(more) });
    await world.send('a.png', 'x', { Metadata: metadata });
    const { failure } = (await world.receipt('a.png')) as { failure: { message: string } };
    expect(failure.message).toMatch(/parameters\.__proto__: .*parameters\.note: /);
  });

  it('in parameters of a job', async () => {
    await start({ routes: route('{"jobs":"jobs/","overrides":true}') });
    await world.send('jobs/1/job.json', `{"inputs":[{"text":"oak"}],"parameters":${TEXT}}`);
    const { failure } = (await world.receipt('jobs/1/job.json')) as { failure: { message: string } };
    expect(failure.message).toMatch(/parameters\.__proto__: .*parameters\.note: /);
  });
});

it('a member called __proto__ of a job file itself is refused in words', async () => {
  await start({ routes: route('{"jobs":"jobs/"}') });
  await world.send('jobs/1/job.json', '{"inputs":["a.png"],"__proto__":{"deadlineSeconds":1}}');
  const receipt = await world.receipt('jobs/1/job.json');
  expect(receipt).toMatchObject({ failure: { message: expect.stringContaining('__proto__: unknown, expected only') } });
});
