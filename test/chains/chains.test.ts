import { CreateBucketCommand, DeleteObjectCommand } from '@aws-sdk/client-s3';
import { beforeEach, describe, expect, it } from 'vitest';
import type { Chain, ChainUpload } from '../../functions/chains/chain-schema.ts';
import { CHAIN_UPLOADS_MAX } from '../../functions/chains/chain-size.ts';
import type { Entry } from '../../functions/ledger/entry.ts';
import { finishAnew, makeAnew } from '../../functions/operator/anew.ts';
import type { ChainReport, Receipt } from '../../functions/publish/report-schemas.ts';
import type { Route } from '../../functions/uploads/route.ts';
import type { Upload } from '../../functions/uploads/upload.ts';
import { messageFor } from '../../functions/uploads/upload-event.ts';
import { act } from '../../operations/act.ts';
import { answer, dyingAt, ECHO, INBOX, LEDGER, RESULTS, start, world } from '../support/world.ts';

const copies = (count: number): Route['parameters'] => ({ copies: count });

/** A file becomes three assets, each of them an asset of its own, and these become one flow. */
const ROUTES: readonly Route[] = [
  { ...ECHO, parameters: copies(3) },
  { ...ECHO, name: 'each', after: 'echo' },
  { ...ECHO, name: 'all', after: 'each', inputs: 'all' },
];

const entriesOf = async (route: string): Promise<readonly Entry[]> =>
  (await world.entries()).filter((entry) => entry.route.name === route);
const statesOf = async (route: string) => (await entriesOf(route)).map(({ state }) => state);
const failuresOf = async (route: string) =>
  (await entriesOf(route)).map((entry) => ('failure' in entry ? entry.failure.code : entry.state));
const report = () => world.json<ChainReport>(RESULTS, 'a.txt/chain.json');
const chainEvents = () =>
  world.events.filter(({ detailType }) => detailType.startsWith('Chain')).map(({ detailType }) => detailType);
const firstId = async () =>
  (await world.entries()).find(({ upload }) => upload.stage === undefined)?.upload.id as string;

async function settled(): Promise<void> {
  await world.send('a.txt', 'hello');
  await world.settle();
}

describe('a chain', () => {
  beforeEach(() => start({ routes: ROUTES }));

  it('sends exactly the assets, in the order of their addresses', async () => {
    await settled();
    const each = await entriesOf('each');
    const stored = each.flatMap((entry) => ('assets' in entry ? (entry.assets ?? []) : [])).map(({ key }) => key);
    const [all] = await entriesOf('all');
    expect(all?.inputs?.map(({ key }) => key)).toEqual(stored.toSorted());
    expect(world.service.flows.at(-1)?.inputs.map(({ additional }) => Object(additional).key)).toEqual(
      stored.toSorted(),
    );
    const outputs = all !== undefined && 'assets' in all ? (all.assets ?? []) : [];
    for (const { key } of outputs) expect((await world.object(RESULTS, key)).bytes.toString()).toBe('hello');
  });

  it('keeps all its results below the key of its first file, and no key is at once a file and a folder', async () => {
    await settled();
    const keys = await world.keys(RESULTS);
    for (const key of keys) {
      expect(key).toMatch(/^a\.txt\/([0-9a-f]{24}\/|receipt\.json$|chain\.json$|chain\/(each|all)\/[0-9a-f]{40}\/)/);
      expect(keys.filter((other) => other.startsWith(`${key}/`))).toEqual([]);
    }
  });

  it('keeps the receipts of its later stages, whatever is put into the inbox at their keys', async () => {
    await settled();
    const [stage] = await entriesOf('each');
    const key = stage?.upload.key as string;
    const receipt = await world.receipt(key);
    world.clock.advance(60_000);
    await world.send(key, 'not a later stage');
    await world.settle();
    expect(await world.receipt(key)).toEqual(receipt);
    expect((await world.entries()).filter(({ upload }) => upload.key === key)).toHaveLength(1);
    expect(world.count('UploadsSkipped')).toBe(1);
  });

  it('names parent and children in its receipts, and where their receipts are', async () => {
    await settled();
    const first = await world.receipt('a.txt');
    expect(first.parent).toBeUndefined();
    expect(first.children).toHaveLength(3);
    for (const { upload, route, asset, receipt } of first.children ?? []) {
      const child = await world.json<Receipt>(RESULTS, receipt);
      expect([child.upload.id, child.route, route]).toEqual([upload, 'each', 'each']);
      expect(child.parent).toEqual({ upload: first.upload.id, generation: 1, asset, receipt: 'a.txt/receipt.json' });
      expect(child.inputs?.map(({ key }) => key)).toEqual([first.assets.find(({ id }) => id === asset)?.key]);
    }
  });

  it('says once how it ended, with all its stages', async () => {
    await settled();
    const { status, upload, stages } = await report();
    expect([status, upload.key]).toEqual(['succeeded', 'a.txt']);
    expect(stages.map(({ route, status, uploads }) => [route, status, uploads.length])).toEqual([
      ['echo', 'succeeded', 1],
      ['each', 'succeeded', 3],
      ['all', 'succeeded', 1],
    ]);
    for (const { receipt, assets } of stages.flatMap(({ uploads }) => uploads)) {
      expect((await world.json<Receipt>(RESULTS, receipt)).assets).toEqual(assets);
    }
    expect(chainEvents()).toEqual(['Chain Succeeded']);
  });

  it('makes no second flow of anything when every end is published again', async () => {
    await settled();
    for (const entry of await world.entries()) {
      if (!('flow' in entry) || entry.flow === undefined) continue;
      const time = new Date(entry.flow.createdAt).toISOString();
      await world.put(LEDGER, `running/${time}/${entry.upload.id}/${entry.flow.id}`, '');
    }
    await world.settle();
    expect(world.service.flows).toHaveLength(5);
    expect((await report()).status).toBe('succeeded');
  });

  it('begins nothing again after a change of the routes, also if its results are collected again', async () => {
    await settled();
    world.redeploy({ routes: [...ROUTES, { ...ECHO, name: 'new', after: 'echo' }] });
    const id = await firstId();
    world.queue.send(messageFor((await entriesOf('echo'))[0]?.upload as Upload));
    await world.collect({ retry: [id] });
    await world.settle();
    await world.remove((await world.receipt('a.txt')).assets[0]?.key as string, RESULTS);
    expect(await world.collect({ collect: [id] })).toEqual([{ upload: id, result: 'begun' }]);
    await world.settle();
    expect(await statesOf('new')).toEqual([]);
    expect(world.service.flows).toHaveLength(5);
  });
});

describe('an invocation that dies', () => {
  /** Every call that a publication of a chain makes, and the number of the call at which the invocation dies. */
  const DEATHS = (
    ['create', 'putWaitingMarker', 'replace', 'deleteRunningMarker', 'putRunningMarker'] as const
  ).flatMap((method) => [1, 2, 3, 4].map((at) => [method, at] as const));
  it.each(DEATHS)('at %s, call %i, loses no stage and pays for none twice', async (method, at) => {
    await start({ routes: ROUTES });
    await world.upload('a.txt', 'hello');
    const revive = dyingAt(world.ports.ledger, method, at);
    for (let step = 0; step < 3; step += 1) {
      await world.deliver().catch(() => {});
      await world.tickAfter(10 * 60_000).catch(() => {});
    }
    revive();
    world.clock.advance(60 * 60_000);
    await world.settle();
    expect([await statesOf('each'), await statesOf('all')]).toEqual([
      ['succeeded', 'succeeded', 'succeeded'],
      ['succeeded'],
    ]);
    expect(world.service.flows).toHaveLength(5);
    expect((await report()).status).toBe('succeeded');
    expect(new Set(chainEvents())).toEqual(new Set(['Chain Succeeded']));
  });

  it.each([
    ['chains', 'update', 1],
    ['chains', 'update', 2],
    ['receipts', 'putChain', 1],
    ['receipts', 'put', 2],
  ] as const)('at %s.%s, call %i, forgets no chain', async (port, method, at) => {
    await start({ routes: ROUTES });
    await world.upload('a.txt', 'hello');
    const revive = dyingAt(world.ports[port] as unknown as Record<typeof method, never>, method, at);
    for (let step = 0; step < 4; step += 1) {
      await world.deliver().catch(() => {});
      await world.tickAfter(10 * 60_000).catch(() => {});
    }
    revive();
    await world.settle();
    expect(world.service.flows).toHaveLength(5);
    expect(await report()).toMatchObject({ status: 'succeeded', stages: [{}, {}, {}] });
  });
});

describe('a stage that fails', () => {
  beforeEach(() => start({ routes: ROUTES }));

  /** The service refuses the second flow of the stage `each`. */
  async function failOne(): Promise<void> {
    let calls = 0;
    world.service.intercept = (_, { operation }) => {
      if (operation !== 'createFlow') return undefined;
      calls += 1;
      return calls === 3 ? { status: 422 } : undefined;
    };
    await settled();
    world.service.intercept = undefined;
  }

  it('fails alone, and what takes all of its assets does not start', async () => {
    await failOne();
    expect((await failuresOf('each')).toSorted()).toEqual(['rejected', 'succeeded', 'succeeded']);
    expect(await statesOf('all')).toEqual([]);
    const { status, stages } = await report();
    expect([status, stages.map((stage) => stage.status)]).toEqual(['failed', ['succeeded', 'failed', 'withheld']]);
    expect(stages[2]?.why).toBe('An upload or an output of the stages before failed.');
    expect(chainEvents()).toEqual(['Chain Failed']);
  });

  it('goes on after a retry, and nothing that succeeded is paid for again', async () => {
    await failOne();
    const failed = (await entriesOf('each')).find(({ state }) => state === 'failed');
    await world.collect({ retry: [failed?.upload.id as string] });
    await world.settle();
    expect([await statesOf('each'), await statesOf('all')]).toEqual([
      ['succeeded', 'succeeded', 'succeeded'],
      ['succeeded'],
    ]);
    expect(world.service.flows).toHaveLength(5);
    expect((await report()).status).toBe('succeeded');
    expect(chainEvents()).toEqual(['Chain Failed', 'Chain Succeeded']);
  });

  it('lets the collecting stage start with the rest if the route allows that', async () => {
    world.redeploy({ routes: ROUTES.map((route) => (route.name === 'all' ? { ...route, allow: 'partial' } : route)) });
    await failOne();
    expect(world.service.flows.at(-1)?.inputs).toHaveLength(2);
    expect((await report()).stages.map((stage) => stage.status)).toEqual(['succeeded', 'failed', 'succeeded']);
  });

  it('begins no stage if the first file fails, and the chain names each and says why', async () => {
    world.fault('createFlow', { status: 422 });
    await settled();
    expect((await report()).stages.map(({ route, status, why }) => [route, status, why])).toEqual([
      ['echo', 'failed', undefined],
      ['each', 'withheld', 'No upload of the stage before succeeded.'],
      ['all', 'withheld', 'The stage before did not begin.'],
    ]);
    expect(chainEvents()).toEqual(['Chain Failed']);
    world.service.intercept = undefined;
    await world.collect({ retry: [await firstId()] });
    await world.settle();
    expect((await report()).stages.map(({ route, status }) => [route, status])).toEqual([
      ['echo', 'succeeded'],
      ['each', 'succeeded'],
      ['all', 'succeeded'],
    ]);
  });

  /** The service refuses all flows of the stage `each`. */
  async function failAll(): Promise<void> {
    let calls = 0;
    world.service.intercept = (_, { operation }) => {
      if (operation === 'createFlow') calls += 1;
      return operation === 'createFlow' && calls > 1 ? { status: 422 } : undefined;
    };
    await settled();
    world.service.intercept = undefined;
  }
  const LONGER = [
    ...ROUTES,
    { ...ECHO, name: 'last', after: 'all' },
    { ...ECHO, name: 'beside', after: 'echo', mediaTypes: ['image/*'] },
    { ...ECHO, name: 'never', after: 'beside' },
  ];
  const retryOneOf = async (route: string) => {
    const failed = (await entriesOf(route)).find(({ state }) => state === 'failed');
    await world.collect({ retry: [failed?.upload.id as string] });
    await world.settle();
  };
  const stagesOf = async () => (await report()).stages.map(({ route, status }) => `${route} ${status}`);

  it('withholds all stages after it if none of its uploads succeeded, and a retry begins them', async () => {
    world.redeploy({ routes: LONGER });
    await failAll();
    const ended = ['echo succeeded', 'each failed'];
    // No asset met the conditions of `beside`, so nothing was to come after it.
    expect(await stagesOf()).toEqual([...ended, 'all withheld', 'last withheld']);
    await retryOneOf('each');
    expect(await stagesOf()).toEqual([...ended, 'all withheld', 'last withheld']);
    expect((await report()).stages[2]?.why).toBe('An upload or an output of the stages before failed.');
    await retryOneOf('each');
    await retryOneOf('each');
    expect(await stagesOf()).toEqual(['echo succeeded', 'each succeeded', 'all succeeded', 'last succeeded']);
  });

  it('still names a stage that was planned when its route is removed, and says that it was', async () => {
    world.redeploy({
      routes: [
        ...LONGER.slice(0, 2),
        { ...ECHO, name: 'next', after: 'each' },
        { ...ECHO, name: 'last', after: 'next' },
      ],
    });
    await failAll();
    expect(await stagesOf()).toEqual(['echo succeeded', 'each failed', 'next withheld', 'last withheld']);
    world.redeploy({ routes: LONGER.slice(0, 2) });
    for (let each = 0; each < 3; each += 1) await retryOneOf('each');
    expect(await stagesOf()).toEqual(['echo succeeded', 'each succeeded', 'next withheld', 'last withheld']);
    const { status, stages } = await report();
    expect([status, stages[2]?.why]).toEqual([
      'failed',
      'The configuration has no later stage next any more. Once it is back, `flowdrop again` with --from next makes it.',
    ]);
  });
});

describe('a chain whose configuration changes while it runs', () => {
  beforeEach(() => start({ routes: ROUTES }));
  const route = (name: string, more: Partial<Route> = {}): Route => ({ ...ECHO, name, ...more });
  const stagesOf = async () => (await report()).stages.map(({ route: name, status, why }) => [name, status, why]);
  const gone = (name: string): string =>
    `The configuration has no later stage ${name} any more. Once it is back, \`flowdrop again\` with --from ${name} makes it.`;
  const GONE = (name: string) => [name, 'withheld', gone(name)];
  const NOT_BEGUN = 'The stage before did not begin.';

  /** Ends the first file. The stage after it waits. */
  async function firstSucceeds(): Promise<void> {
    await world.send('a.txt', 'hello');
    await world.tickAfter(2 * 60_000);
    expect(new Set((await world.entries()).map((entry) => entry.route.name))).toEqual(new Set(['echo', 'each']));
  }

  it.each([
    ['its first route is renamed', [route('photos'), route('each', { after: 'photos' }), ROUTES[2] as Route]],
    [
      'its last stage comes after another one now',
      [...ROUTES.slice(0, 2), route('all', { after: 'echo', inputs: 'all' })],
    ],
    ['its last stage takes single assets now', [...ROUTES.slice(0, 2), route('all', { after: 'each' })]],
  ])('goes by its plan if %s', async (_, routes) => {
    await firstSucceeds();
    world.redeploy({ routes });
    await world.settle();
    expect(await stagesOf()).toEqual([
      ['echo', 'succeeded', undefined],
      ['each', 'succeeded', undefined],
      ['all', 'succeeded', undefined],
    ]);
    expect((await entriesOf('all')).map(({ inputs }) => inputs?.length)).toEqual([3]);
  });

  it.each<[string, readonly Route[], readonly unknown[]]>([
    ['is removed', ROUTES.slice(0, 2), [GONE('all')]],
    ['is renamed', [...ROUTES.slice(0, 2), route('sheet', { after: 'each', inputs: 'all' })], [GONE('all')]],
    ['takes files of the inbox now', [...ROUTES.slice(0, 2), route('all', { prefixes: ['all/'] })], [GONE('all')]],
  ])('names a planned stage that did not begin because its route %s', async (_, routes, withheld) => {
    await firstSucceeds();
    world.redeploy({ routes });
    await world.settle();
    expect(await stagesOf()).toEqual([['echo', 'succeeded', undefined], ['each', 'succeeded', undefined], ...withheld]);
    expect((await report()).status).toBe('failed');
    const [event] = world.events.filter(({ detailType }) => detailType === 'Chain Failed');
    expect(JSON.parse(event?.detail ?? '').stages.at(-1)).toMatchObject({ route: 'all', status: 'withheld' });
    // This is what `flowdrop status` shows.
    const chain = await world.json<Chain>(LEDGER, `chains/${await firstId()}.json`);
    expect(chain.withheld).toMatchObject([{ route: 'all', after: 'each' }]);
  });

  it.each(['each', 'all'])(
    'begins no stage that was added after %s when the first file had succeeded',
    async (after) => {
      await firstSucceeds();
      world.redeploy({ routes: [...ROUTES, route('more', { after })] });
      await world.settle();
      expect((await stagesOf()).map(([name]) => name)).toEqual(['echo', 'each', 'all']);
      expect(await entriesOf('more')).toEqual([]);
      expect((await report()).status).toBe('succeeded');
    },
  );

  const RENAMED = [route('photos'), route('each', { after: 'photos' }), ROUTES[2] as Route];

  it.each<[string, readonly Route[], readonly unknown[]]>([
    ['goes on if its first route is renamed', RENAMED, ['each succeeded', 'all succeeded']],
    [
      'goes on if its first route is renamed, and gets a stage more',
      [...RENAMED, route('more', { after: 'photos' })],
      ['each succeeded', 'all succeeded'],
    ],
    [
      'goes on if its second stage comes after another one now',
      [...ROUTES.slice(0, 1), route('other', { prefixes: ['other/'] }), route('each', { after: 'other' })],
      ['each succeeded', 'all withheld'],
    ],
    ['names both if the later routes are removed', ROUTES.slice(0, 1), ['each withheld', 'all withheld']],
    [
      'names both if all are renamed',
      [route('photos'), route('one', { after: 'photos' })],
      ['each withheld', 'all withheld'],
    ],
    [
      'names the last one if it is removed',
      [route('photos'), route('each', { after: 'photos' })],
      ['each succeeded', 'all withheld'],
    ],
    [
      'takes a stage that is added',
      [...ROUTES, route('more', { after: 'echo' })],
      ['each succeeded', 'more succeeded', 'all succeeded'],
    ],
  ])('while its first flow runs, %s', async (_, routes, later) => {
    await world.send('a.txt', 'hello');
    expect((await world.entries()).map(({ state }) => state)).toEqual(['running']);
    world.redeploy({ routes });
    await world.settle();
    const stages = (await report()).stages.map(({ route: name, status }) => `${name} ${status}`);
    expect(stages[0]).toBe('echo succeeded');
    expect(stages.slice(1).toSorted()).toEqual(later.toSorted());
    const isWhole = !later.some((each) => String(each).endsWith('withheld'));
    expect(chainEvents()).toEqual([isWhole ? 'Chain Succeeded' : 'Chain Failed']);
  });

  it('makes a stage that was removed while the first flow ran, once its route is back', async () => {
    await world.send('a.txt', 'hello');
    world.redeploy({ routes: ROUTES.slice(0, 1) });
    await world.settle();
    world.redeploy({ routes: ROUTES });
    await world.collect({ again: [await firstId()], from: 'each' });
    await world.settle();
    expect((await stagesOf()).map(([name, status]) => `${name} ${status}`)).toEqual([
      'echo succeeded',
      'each succeeded',
      'all succeeded',
    ]);
  });

  it('names the stages of a file that fails after its route was renamed, and plans it anew when it is retried', async () => {
    await world.send('a.txt', 'hello');
    world.redeploy({ routes: RENAMED });
    await world.collect({ cancel: [await firstId()] });
    expect((await stagesOf()).map(([name, status]) => `${name} ${status}`)).toEqual([
      'echo failed',
      'each withheld',
      'all withheld',
    ]);
    await world.collect({ retry: [await firstId()] });
    await world.settle();
    expect((await stagesOf()).map(([name, status]) => `${name} ${status}`)).toEqual([
      'photos succeeded',
      'each succeeded',
      'all succeeded',
    ]);
  });

  it('goes on if the answer of its first flow was lost, and its route renamed before the flow was found', async () => {
    world.fault('createFlow', { reset: 'after-effect' }, 1);
    await world.send('a.txt', 'hello');
    world.redeploy({ routes: RENAMED });
    await world.settle();
    expect((await stagesOf()).map(([name]) => name).slice(1)).toEqual(['each', 'all']);
  });

  it('names a stage of single assets whose route is removed, and those after it', async () => {
    world.redeploy({
      routes: [...ROUTES.slice(0, 2), route('then', { after: 'each' }), route('last', { after: 'then' })],
    });
    await firstSucceeds();
    world.redeploy({ routes: [...ROUTES.slice(0, 2), route('last', { after: 'echo' })] });
    await world.settle();
    expect((await stagesOf()).slice(2)).toEqual([GONE('then'), ['last', 'withheld', NOT_BEGUN]]);
    // With its route back, it can be made.
    world.redeploy({
      routes: [...ROUTES.slice(0, 2), route('then', { after: 'each' }), route('last', { after: 'then' })],
    });
    await world.collect({ again: [await firstId()], from: 'then' });
    await world.settle();
    expect((await stagesOf()).map(([name, status]) => `${name} ${status}`)).toEqual([
      'echo succeeded',
      'each succeeded',
      'then succeeded',
      'last succeeded',
    ]);
  });

  it('begins no stage that was added, and makes one anew by the present routes on request', async () => {
    await firstSucceeds();
    world.redeploy({
      routes: [...ROUTES, route('more', { after: 'each' }), route('end', { after: 'more', inputs: 'all' })],
    });
    await world.settle();
    expect((await stagesOf()).map(([name]) => name)).toEqual(['echo', 'each', 'all']);
    await world.collect({ again: [await firstId()], from: 'more' });
    await world.settle();
    expect((await stagesOf()).map(([name, status]) => `${name} ${status}`).slice(2)).toEqual([
      'all succeeded',
      'more succeeded',
      'end succeeded',
    ]);
  });

  it('takes template and parameters of the moment in which a stage begins', async () => {
    await firstSucceeds();
    world.redeploy({
      routes: [...ROUTES.slice(0, 2), { ...(ROUTES[2] as Route), parameters: copies(1), additional: { now: true } }],
    });
    await world.settle();
    expect((await entriesOf('all')).map(({ route: { additional } }) => additional)).toEqual([{ now: true }]);
  });

  it('makes a stage anew after its first route was renamed', async () => {
    await settled();
    world.redeploy({ routes: [route('photos'), route('each', { after: 'photos' }), ROUTES[2] as Route] });
    await world.collect({ again: [await firstId()], from: 'all' });
    await world.settle();
    expect(world.service.flows.map(({ inputs }) => inputs.length).slice(5)).toEqual([3]);
    await world.collect({ again: [await firstId()], from: 'each' });
    await world.settle();
    expect(world.service.flows.map(({ inputs }) => inputs.length).slice(6)).toEqual([1, 1, 1, 3]);
  });

  it('takes each asset from the bucket that it is in, after the results went to another one', async () => {
    await firstSucceeds();
    await world.s3.send(new CreateBucketCommand({ Bucket: 'elsewhere' }));
    world.redeploy({ resultsBucket: 'elsewhere' });
    await world.settle();
    expect(await statesOf('all')).toEqual(['succeeded']);
    const assets = (await world.entries()).flatMap((entry) => ('assets' in entry ? (entry.assets ?? []) : []));
    expect(Object.fromEntries(Map.groupBy(assets, ({ bucket }) => String(bucket)).entries())).toMatchObject({
      [RESULTS]: { length: 3 },
      elsewhere: { length: 6 },
    });
    // What is in another bucket now is fetched again.
    expect(await world.collect({ collect: [await firstId()] })).toMatchObject([{ result: 'begun' }]);
    await world.settle();
    const [first] = await entriesOf('echo');
    expect(first !== undefined && 'assets' in first ? first.assets?.map(({ bucket }) => bucket) : []).toEqual(
      Array.from({ length: 3 }, () => 'elsewhere'),
    );
  });
});

describe('a chain whose later routes are removed', () => {
  beforeEach(() => start({ routes: ROUTES }));

  it('tells of the success of its first file, which had failed before', async () => {
    world.fault('createFlow', { status: 422 });
    await settled();
    world.service.intercept = undefined;
    world.redeploy({ routes: [ECHO] });
    await world.collect({ retry: [await firstId()] });
    await world.settle();
    expect(await report()).toMatchObject({ status: 'succeeded', stages: [{ route: 'echo', status: 'succeeded' }] });
    expect(chainEvents()).toEqual(['Chain Failed', 'Chain Succeeded']);
  });

  it('tells of the end of its first stage, which is made anew', async () => {
    await settled();
    world.redeploy({ routes: [ECHO] });
    await world.collect({ again: [await firstId()], from: 'echo' });
    await world.settle();
    expect(await report()).toMatchObject({ status: 'succeeded', generation: 2, stages: [{ route: 'echo' }] });
    expect(chainEvents()).toEqual(['Chain Succeeded', 'Chain Succeeded']);
  });

  it('is none if the file had failed without later routes', async () => {
    world.redeploy({ routes: [ECHO] });
    world.fault('createFlow', { status: 422 });
    await settled();
    world.service.intercept = undefined;
    await world.collect({ retry: [await firstId()] });
    await world.settle();
    expect([await statesOf('echo'), chainEvents()]).toEqual([['succeeded'], []]);
  });
});

describe('a stage that is made anew', () => {
  beforeEach(() => start({ routes: ROUTES }));

  it('begins with the stored assets and the routes of today, and so do those after it', async () => {
    await settled();
    const routes = ROUTES.map((route) => (route.name === 'each' ? { ...route, parameters: copies(2) } : route));
    world.redeploy({ routes });
    const answer = await world.collect({ again: [await firstId()], from: 'each' });
    expect(answer).toMatchObject([{ result: 'resubmitted' }, { result: 'resubmitted' }, { result: 'resubmitted' }]);
    await world.settle();
    // Five of before, three of the stage, and one for its six assets.
    expect(world.service.flows.map(({ inputs }) => inputs.length).slice(5)).toEqual([1, 1, 1, 6]);
    expect((await entriesOf('each')).map(({ generation }) => generation)).toEqual([2, 2, 2]);
    const { generation, stages } = await report();
    expect(generation).toBe(2);
    expect(stages.map(({ route, uploads }) => [route, uploads.length])).toEqual([
      ['echo', 1],
      ['each', 3],
      ['all', 1],
    ]);
  });

  it('waits in the line behind live files, if it is asked for of many chains at once', async () => {
    await start({ routes: [ECHO, { ...ECHO, name: 'each', after: 'echo' }] });
    for (let n = 0; n < 21; n += 1) await world.upload(`customer/${n}`);
    await world.settle();
    const firsts = (await entriesOf('echo')).map(({ upload }) => upload.id);
    await world.collect({ again: firsts, from: 'each' });
    expect(world.queue.counts().visible).toBe(0);
    expect(await world.keys(LEDGER, 'waiting/turn/late/each/customer/')).toHaveLength(21);
    await world.settle();
    expect(new Set((await entriesOf('each')).map(({ generation, state }) => `${generation} ${state}`))).toEqual(
      new Set(['2 succeeded']),
    );
    expect(world.service.flows).toHaveLength(3 * 21);
  });

  it('of many chains begins no more in one request than of one', async () => {
    await start({ routes: [ECHO, { ...ECHO, name: 'each', after: 'echo' }] });
    for (let n = 0; n < 5; n += 1) await world.upload(`customer/${n}`);
    await world.settle();
    const firsts = (await entriesOf('echo')).map(({ upload }) => upload.id);
    const first = await world.invoke(({ closing }) =>
      makeAnew(firsts, { from: 'each', atOnceMax: 3 }, world.ports, closing),
    );
    expect(first.filter(({ result }) => result === 'resubmitted')).toHaveLength(3);
    expect(first.filter(({ result }) => result === 'not begun yet')).toHaveLength(2);
    expect((await entriesOf('each')).filter(({ generation }) => generation === 2)).toHaveLength(3);
    await world.tickAfter(17 * 60_000);
    await world.settle();
    expect(world.service.flows).toHaveLength(10 + 5);
  });

  it('may have been added to the routes since', async () => {
    await settled();
    world.redeploy({ routes: [...ROUTES, { ...ECHO, name: 'new', after: 'each' }] });
    await world.collect({ again: [await firstId()], from: 'new' });
    await world.settle();
    expect(await statesOf('new')).toEqual(['succeeded', 'succeeded', 'succeeded']);
    expect(world.service.flows).toHaveLength(8);
  });

  it('is finished by the same request if the first one died after it had changed the chain', async () => {
    await settled();
    const id = await firstId();
    const revive = dyingAt(world.ports.ledger, 'putWaitingMarker', 2);
    await expect(world.collect({ again: [id], from: 'each' })).rejects.toThrow();
    revive();
    await world.collect({ again: [id], from: 'each' });
    await world.settle();
    expect((await entriesOf('each')).map(({ generation }) => generation)).toEqual([2, 2, 2]);
    expect(world.service.flows.map(({ inputs }) => inputs.length).slice(5)).toEqual([1, 1, 1, 3]);
    expect((await report()).status).toBe('succeeded');
  });

  it.each([1, 2, 3, 4, 5])('is finished by a tick if the request died at its marker %i', async (at) => {
    await settled();
    const revive = dyingAt(world.ports.ledger, 'putWaitingMarker', at + 1);
    await expect(world.collect({ again: [await firstId()], from: 'each' })).rejects.toThrow();
    revive();
    for (let ticks = 0; ticks < 4; ticks += 1) {
      await world.tickAfter(61 * 60_000);
      await world.settle();
    }
    expect((await entriesOf('each')).map(({ generation }) => generation)).toEqual([2, 2, 2]);
    expect(world.service.flows.map(({ inputs }) => inputs.length).slice(5)).toEqual([1, 1, 1, 3]);
    expect((await report()).status).toBe('succeeded');
    expect(await world.keys(LEDGER, 'waiting/')).toEqual([]);
  });

  it('is finished although the stage beside it was made anew after its request had died', async () => {
    await start({ routes: [ECHO, { ...ECHO, name: 'one', after: 'echo' }, { ...ECHO, name: 'two', after: 'echo' }] });
    await settled();
    const id = await firstId();
    const revive = dyingAt(world.ports.ledger, 'putWaitingMarker', 2);
    await expect(world.collect({ again: [id], from: 'two' })).rejects.toThrow();
    revive();
    await world.collect({ again: [id], from: 'one' });
    await world.settle();
    await world.tickAfter(61 * 60_000);
    await world.settle();
    expect((await entriesOf('one')).map(({ generation, state }) => [generation, state])).toEqual([[2, 'succeeded']]);
    expect((await entriesOf('two')).map(({ generation, state }) => [generation, state])).toEqual([[2, 'succeeded']]);
    expect((await report()).status).toBe('succeeded');
    expect(world.service.flows).toHaveLength(5);
  });

  it.each([['each'], ['all'], ['new']])(
    'takes the assets that a large chain does not hold from the entries: %s',
    async (from) => {
      await settled();
      const key = `chains/${await firstId()}.json`;
      const chain = await world.json<Chain>(LEDGER, key);
      const uploads = chain.uploads.map((upload) => ({ ...upload, assets: [], assetCount: upload.assets.length }));
      await world.put(LEDGER, key, JSON.stringify({ ...chain, uploads, overfull: ['all'] }));
      world.redeploy({ routes: from === 'new' ? [...ROUTES, { ...ECHO, name: 'new', after: 'each' }] : ROUTES });
      await world.collect({ again: [await firstId()], from });
      await world.settle();
      const inputs = world.service.flows.map((flow) => flow.inputs.length).slice(5);
      expect(inputs).toEqual(from === 'each' ? [1, 1, 1, 3] : from === 'all' ? [3] : [1, 1, 1]);
      const { status, stages } = await report();
      expect([status, stages[0]?.uploads[0]?.assets, stages[0]?.uploads[0]?.assetCount]).toEqual([
        'succeeded',
        undefined,
        3,
      ]);
    },
  );

  describe('with many uploads', () => {
    /** Makes `each` anew, which has so many uploads. With `at`, the request dies at that change of an entry. */
    async function madeAnew(many: number, at?: number): Promise<void> {
      const routes = [
        { ...ECHO, parameters: copies(many) },
        { ...ECHO, name: 'each', after: 'echo' },
      ];
      await start({ routes, settings: { uploadConcurrency: 16 } });
      await settled();
      const revive = at === undefined ? () => {} : dyingAt(world.ports.ledger, 'replace', at);
      await world.collect({ again: [await firstId()], from: 'each' }).catch(() => {});
      revive();
      // Nothing else sends them.
      while (world.takeMessages().length > 0);
    }
    const generations = async () => (await entriesOf('each')).map(({ generation }) => generation);

    it('is finished in steps over several ticks if its request died', async () => {
      // A tick looks at 100.
      const MANY = 103;
      await madeAnew(MANY, 1);
      await world.collect({ hold: { action: 'pause', route: 'each' } });
      world.clock.advance(17 * 60_000);
      await world.tick();
      expect((await generations()).filter((generation) => generation === 2)).toHaveLength(100);
      for (let ticks = 0; ticks < 2; ticks += 1) await world.tickAfter(60_000);
      const entries = await entriesOf('each');
      expect(entries.map(({ generation, state }) => `${generation} ${state}`)).toEqual(
        Array.from({ length: MANY }, () => '2 waiting'),
      );
      const markers = (await world.keys(LEDGER, 'waiting/')).join('\n');
      expect(entries.filter(({ upload }) => !markers.includes(upload.id))).toEqual([]);
    });

    /** Asks once for the stage `each` of a chain with 25 uploads. One request begins ten of them. */
    const askForTen = async () => {
      const id = await firstId();
      const results = await world.invoke(({ closing }) =>
        makeAnew([id], { from: 'each', atOnceMax: 10 }, world.ports, closing),
      );
      const counts = Object.entries(Object.groupBy(results, ({ result }) => result));
      return Object.fromEntries(counts.map(([result, all]) => [result, all?.length]));
    };
    const startFan = async () => {
      const routes = [
        { ...ECHO, parameters: copies(25) },
        { ...ECHO, name: 'each', after: 'echo' },
      ];
      await start({ routes });
      await settled();
    };

    it('begins so many in one request, says what is left, and goes on with the same request', async () => {
      await startFan();
      expect(await askForTen()).toEqual({ resubmitted: 10, 'not begun yet': 15 });
      // Live files go first.
      expect(world.takeMessages()).toEqual([]);
      expect(await askForTen()).toEqual({ resubmitted: 10, 'not begun yet': 5 });
      expect(await askForTen()).toEqual({ resubmitted: 5 });
      expect(await askForTen()).toEqual({ 'under way': 1 });
      expect(await generations()).toEqual(Array.from({ length: 25 }, () => 2));
      await world.settle();
      expect((await report()).status).toBe('succeeded');
      expect(world.service.flows).toHaveLength(1 + 2 * 25);
    });

    it('is not made once more by a command whose machine slept while the ticks began what was left', async () => {
      await startFan();
      const id = await firstId();
      const begins = (await entriesOf('each')).map(({ upload }) => upload);
      const collecting = {
        invoke: async () => {
          const results = await world.invoke(({ closing }) =>
            makeAnew([id], { from: 'each', atOnceMax: 10 }, world.ports, closing),
          );
          await world.tickAfter(17 * 60_000);
          await world.settle();
          return results;
        },
      };
      const deployment = { collecting, s3: world.s3, settings: world.ports.settings, clock: world.clock } as never;
      const stages = [{ id, key: 'a.txt', generation: 1, begins }];
      const plan = { action: 'again', uploads: [], from: 'each', stages } as const;
      const acted = await act(plan, deployment, new AbortController().signal);
      expect(acted.map(({ isDone }) => isDone)).toEqual(Array.from({ length: 25 }, () => true));
      expect(await generations()).toEqual(Array.from({ length: 25 }, () => 2));
      expect(world.service.flows).toHaveLength(1 + 2 * 25);
    });

    it('leaves to the ticks what no request begins any more', async () => {
      await startFan();
      await askForTen();
      await world.tickAfter(17 * 60_000);
      await world.settle();
      expect(await generations()).toEqual(Array.from({ length: 25 }, () => 2));
      expect(world.service.flows).toHaveLength(1 + 2 * 25);
    });

    it('costs a tick no look at its uploads if its request did not die', async () => {
      await madeAnew(3);
      const chain = await world.json<Chain>(LEDGER, `chains/${await firstId()}.json`);
      expect(chain.anew).toBeUndefined();
      const keys: string[] = [];
      const id = await firstId();
      world.beforeS3((_, { Key }) => void keys.push(String(Key)));
      expect(await finishAnew(id, world.ports, new AbortController().signal)).toBeUndefined();
      expect(keys).toEqual([`chains/${id}.json`]);
    });
  });

  it('tells of a stage that it could not begin, because its route was removed after the request had died', async () => {
    await settled();
    const revive = dyingAt(world.ports.ledger, 'putWaitingMarker', 2);
    await expect(world.collect({ again: [await firstId()], from: 'each' })).rejects.toThrow();
    revive();
    world.redeploy({ routes: [ECHO] });
    await world.tickAfter(17 * 60_000);
    await world.settle();
    const { status, stages } = await report();
    expect([status, ...stages.map((stage) => `${stage.route} ${stage.status}`)]).toEqual([
      'failed',
      'echo succeeded',
      'each withheld',
      'all withheld',
    ]);
  });

  it('begins no other stage that was added beside it', async () => {
    await settled();
    world.redeploy({ routes: [...ROUTES, { ...ECHO, name: 'beside', after: 'each', inputs: 'all' }] });
    await world.collect({ again: [await firstId()], from: 'all' });
    await world.settle();
    expect(world.service.flows.map(({ inputs }) => inputs.length).slice(5)).toEqual([3]);
    const { status, stages } = await report();
    expect([status, ...stages.map(({ route }) => route)]).toEqual(['succeeded', 'echo', 'each', 'all']);
  });

  it('is refused while it is under way, for a file without a chain, and for a stage that is none of its chain', async () => {
    await world.send('a.txt', 'hello');
    await world.settle();
    const id = await firstId();
    const unknown = '0'.repeat(40);
    expect(await world.collect({ again: [unknown], from: 'each' })).toEqual([{ upload: unknown, result: 'unknown' }]);
    expect(await world.collect({ again: [id], from: 'other' })).toEqual([{ upload: id, result: 'not in its chain' }]);
    await world.collect({ again: [id], from: 'each' });
    expect(await world.collect({ again: [id], from: 'each' })).toEqual([{ upload: id, result: 'under way' }]);
  });

  it('may be the first one, whose chain begins again', async () => {
    await settled();
    await world.collect({ again: [await firstId()], from: 'echo' });
    await world.settle();
    expect(world.service.flows).toHaveLength(10);
    const { stages } = await report();
    expect(stages.map(({ route, uploads }) => [route, uploads.length])).toEqual([
      ['echo', 1],
      ['each', 3],
      ['all', 1],
    ]);
  });
});

describe('a stage that was added after its file had succeeded', () => {
  const [FIRST, ...STAGES] = ROUTES as [Route, ...Route[]];
  const WITH_STAGES = [FIRST, ...STAGES, { ...ECHO, name: 'beside', after: 'echo', inputs: 'all' }] as const;

  /** A file that succeeded before its route had later stages, which it has now. */
  async function added(): Promise<string> {
    await start({ routes: [FIRST] });
    await settled();
    world.redeploy({ routes: WITH_STAGES });
    return firstId();
  }
  const begun = async () => (await report()).stages.map(({ route, uploads }) => [route, uploads.length]);
  const inputs = () => world.service.flows.map((flow) => flow.inputs.length);

  it('begins with the stored assets, and so do those after it, without another flow of the file', async () => {
    const id = await added();
    expect(await world.collect({ again: [id], from: 'each' })).toHaveLength(3);
    await world.settle();
    expect(inputs()).toEqual([1, 1, 1, 1, 3]);
    expect([(await report()).status, await begun()]).toEqual([
      'succeeded',
      [
        ['echo', 1],
        ['each', 3],
        ['all', 1],
      ],
    ]);
    expect(chainEvents()).toEqual(['Chain Succeeded']);
    expect(await world.collect({ again: [id], from: 'beside' })).toMatchObject([{ result: 'resubmitted' }]);
    await world.settle();
    expect(inputs()).toEqual([1, 1, 1, 1, 3, 3]);
  });

  it('may take all assets of the file', async () => {
    const id = await added();
    expect(await world.collect({ again: [id], from: 'beside' })).toMatchObject([{ result: 'resubmitted' }]);
    await world.settle();
    expect(inputs()).toEqual([1, 3]);
  });

  it('is refused, and nothing is written, if no asset or no stage of the file is there for it', async () => {
    const id = await added();
    world.redeploy({ routes: [...WITH_STAGES, { ...ECHO, name: 'png', after: 'echo', suffixes: ['.png'] }] });
    expect(await world.collect({ again: [id], from: 'all' })).toEqual([{ upload: id, result: 'not in its chain' }]);
    expect(await world.collect({ again: [id], from: 'png' })).toEqual([{ upload: id, result: 'withheld' }]);
    expect(await world.keys(LEDGER, 'chains/')).toEqual([]);
  });

  it.each([
    ['ledger', 'putWaitingMarker', 1],
    ['ledger', 'replace', 1],
    ['chains', 'update', 1],
    ['ledger', 'putWaitingMarker', 2],
    ['ledger', 'create', 1],
    ['ledger', 'create', 3],
    ['chains', 'update', 2],
  ] as const)(
    'begins once, whether or not it is asked for again, if the request dies in %s at %s, call %i',
    async (port, method, at) => {
      for (const isAskedAgain of [true, false]) {
        const id = await added();
        const revive = dyingAt<never>(world.ports[port] as never, method as never, at);
        await expect(world.collect({ again: [id], from: 'each' })).rejects.toThrow();
        revive();
        if (isAskedAgain) await world.collect({ again: [id], from: 'each' });
        for (let ticks = 0; ticks < 4; ticks += 1) {
          await world.tickAfter(61 * 60_000);
          await world.settle();
        }
        const isBegun =
          isAskedAgain ||
          (!(method === 'putWaitingMarker' && at === 1) && !(method === 'replace') && !(port === 'chains' && at === 1));
        expect(inputs()).toEqual(isBegun ? [1, 1, 1, 1, 3] : [1]);
        if (isBegun) expect((await report()).status).toBe('succeeded');
        expect(await world.keys(LEDGER, 'waiting/')).toEqual([]);
      }
    },
  );

  it('is dropped with its chain when the file is made anew, which the chain hears of at once', async () => {
    const id = await added();
    await world.collect({ again: [id], from: 'each' });
    await world.settle();
    await world.collect({ again: [id] });
    const { uploads } = await world.json<Chain>(LEDGER, `chains/${id}.json`);
    expect(uploads.map(({ route, state }) => [route, state])).toEqual([['echo', 'under way']]);
    world.redeploy({ routes: [FIRST] });
    await world.settle();
    expect(await begun()).toEqual([['echo', 1]]);
  });
});

describe('a chain that is full', () => {
  it('names no upload in a receipt that never begins, and each route once', async () => {
    await start({
      routes: [
        { ...ECHO, parameters: copies(2) },
        { ...ECHO, name: 'each', after: 'echo', parameters: copies(2) },
      ],
    });
    await settled();
    const id = await firstId();
    const key = `chains/${id}.json`;
    const chain = await world.json<Chain>(LEDGER, key);
    const member = chain.uploads[1] as ChainUpload;
    // As if other uploads had filled it, but for two.
    const fill = Array.from({ length: CHAIN_UPLOADS_MAX - chain.uploads.length - 2 }, (_, n) => ({
      ...member,
      id: n.toString(16).padStart(40, '0'),
      assets: [],
    }));
    const routes = [...world.ports.settings.routes, { ...ECHO, name: 'more', after: 'each' }];
    const [one, other] = await entriesOf('each');
    await world.put(
      LEDGER,
      key,
      JSON.stringify({
        ...chain,
        endedAt: undefined,
        plan: [...(chain.plan ?? []), { route: 'more', after: 'each' }],
        uploads: [...chain.uploads, ...fill],
      }),
    );
    for (const entry of [one, other]) {
      if (entry === undefined) continue;
      const plan = [{ route: 'more', after: 'each' }];
      await world.put(LEDGER, `uploads/${entry.upload.id}.json`, JSON.stringify({ ...entry, plan }));
    }
    world.redeploy({ routes });
    await world.collect({ collect: [one?.upload.id as string, other?.upload.id as string] });
    await world.settle();
    const begun = await entriesOf('more');
    expect(begun).toHaveLength(2);
    const receipts = await Promise.all([one, other].map((entry) => world.receipt(entry?.upload.key as string)));
    const named = receipts.flatMap(({ children = [] }) => children.map(({ upload }) => upload));
    expect(named.toSorted()).toEqual(begun.map(({ upload }) => upload.id).toSorted());
    const { status, stages } = await report();
    expect([status, ...stages.map(({ route, why }) => [route, why])]).toEqual([
      'failed',
      ['echo', undefined],
      ['each', undefined],
      ['more', 'A chain has at most 10000 uploads.'],
    ]);
  });
});

describe('a damaged entry of a later stage', () => {
  beforeEach(() => start({ routes: ROUTES }));

  it('does not keep the end of the stage before from being published', async () => {
    await world.send('a.txt', 'hello');
    const id = await firstId();
    const revive = dyingAt(world.ports.ledger, 'deleteRunningMarker');
    await world.tickAfter(10 * 60_000).catch(() => {});
    revive();
    const [damaged] = await entriesOf('each');
    await world.put(LEDGER, `uploads/${damaged?.upload.id}.json`, '{');
    const markers = async () => (await world.keys(LEDGER, 'running/')).filter((key) => key.includes(id));
    expect(await markers()).toHaveLength(1);
    await world.tickAfter(60_000).catch(() => {});
    expect(await markers()).toEqual([]);
  });
});

describe('several processes', () => {
  it('do not lose an end that another of them noted', async () => {
    await start({
      routes: [ECHO, { ...ECHO, name: 'again', after: 'echo' }, { ...ECHO, name: 'last', after: 'again' }],
    });
    const one = world.ports;
    world.redeploy({});
    const other = world.ports;
    const take = (ports: typeof one) => {
      world.ports = ports;
    };
    await world.send('a.txt', 'hello');
    // The ends are noted by one process and by the other in turn.
    for (let step = 0; step < 12; step += 1) {
      take(step % 2 === 0 ? one : other);
      await world.deliverAll();
      await world.tickAfter(10 * 60_000);
    }
    await world.settle();
    expect(await statesOf('last')).toEqual(['succeeded']);
    expect((await report()).status).toBe('succeeded');
  });
});

describe('an upload that is collected again', () => {
  beforeEach(() => start({ routes: [ECHO, { ...ECHO, name: 'all', after: 'echo', inputs: 'all' }] }));

  it('lets its chain go on if it had failed before', async () => {
    world.fault('getAsset', { status: 403 });
    await settled();
    expect([await failuresOf('echo'), await statesOf('all')]).toEqual([['outputs-failed'], []]);
    world.service.intercept = undefined;
    await world.collect({ collect: [await firstId()] });
    await world.settle();
    expect([await statesOf('echo'), await statesOf('all')]).toEqual([['succeeded'], ['succeeded']]);
    expect((await report()).status).toBe('succeeded');
    expect(chainEvents()).toEqual(['Chain Failed', 'Chain Succeeded']);
  });

  it.each([
    ['takes all assets', { inputs: 'all' } as const, [3]],
    ['takes single assets', {}, [1, 1, 1]],
  ])(
    'lets the next stage begin with an asset that could not be stored before: one that %s',
    async (_, more, inputs) => {
      world.redeploy({
        routes: [
          { ...ECHO, parameters: copies(3) },
          { ...ECHO, name: 'next', after: 'echo', ...more },
          { ...ECHO, name: 'last', after: 'next', inputs: 'all' },
        ],
      });
      let bad: string | undefined;
      world.service.intercept = ({ url }, { operation }) => {
        if (operation !== 'getAsset') return undefined;
        bad ??= url;
        return url === bad ? { status: 404 } : undefined;
      };
      await settled();
      expect((await report()).status).toBe('failed');
      world.service.intercept = undefined;
      await world.collect({ collect: [await firstId()] });
      await world.settle();
      const { status, stages } = await report();
      expect([status, stages.map((stage) => `${stage.route} ${stage.status}`)]).toEqual([
        'succeeded',
        ['echo succeeded', 'next succeeded', 'last succeeded'],
      ]);
      const begun = await entriesOf('next');
      expect(begun.map((entry) => entry.inputs?.length)).toEqual(inputs);
      // Nothing is paid for twice.
      expect(world.service.flows).toHaveLength(1 + inputs.length + 1);
    },
  );

  it('begins no stage again that has begun with what there was', async () => {
    world.redeploy({
      routes: [
        { ...ECHO, parameters: copies(2) },
        { ...ECHO, name: 'all', after: 'echo', inputs: 'all', allow: 'partial' },
      ],
    });
    let bad: string | undefined;
    world.service.intercept = ({ url }, { operation }) => {
      if (operation !== 'getAsset') return undefined;
      bad ??= url;
      return url === bad ? { status: 404 } : undefined;
    };
    await settled();
    world.service.intercept = undefined;
    await world.collect({ collect: [await firstId()] });
    await world.settle();
    expect((await entriesOf('all')).map((entry) => entry.inputs?.length)).toEqual([1]);
    expect(world.service.flows).toHaveLength(2);
    expect((await report()).status).toBe('succeeded');
  });

  it('begins no chain of a failure that was told before', async () => {
    world.redeploy({ routes: [ECHO] });
    world.fault('createFlow', answer({ detail: 'No' }, 422), 1);
    await world.upload('b.txt', 'hello');
    const [announced = ''] = world.takeMessages();
    const announce = () => world.ports.queue.send(announced, new AbortController().signal);
    await announce();
    await world.settle();
    expect(world.service.flows).toEqual([]);
    world.redeploy({ routes: ROUTES });
    await announce();
    await world.settle();
    expect((await world.keys(LEDGER)).filter((key) => key.startsWith('chains/'))).toEqual([]);
    expect(chainEvents()).toEqual([]);
  });

  it('begins no stage that takes all assets and was added since', async () => {
    world.redeploy({ routes: [ECHO] });
    await settled();
    world.redeploy({ routes: [ECHO, { ...ECHO, name: 'all', after: 'echo', inputs: 'all' }] });
    await world.collect({ collect: [await firstId()] });
    await world.settle();
    expect(await statesOf('all')).toEqual([]);
    expect(chainEvents()).toEqual([]);
  });
});

describe('the input of a stage', () => {
  beforeEach(() => start({ routes: ROUTES }));

  /** Ends the first file, and leaves the stage after it waiting. */
  async function beforeEachStage(): Promise<readonly Entry[]> {
    await world.send('a.txt', 'hello');
    await world.tickAfter(10 * 60_000);
    return entriesOf('each');
  }

  it('is not sent if a newer file has come, and what runs is collected', async () => {
    await beforeEachStage();
    await world.upload('a.txt', 'newer');
    await world.settle();
    const codes = await failuresOf('each');
    expect(codes.filter((code) => code === 'superseded')).toHaveLength(3);
    expect(codes.filter((code) => code === 'succeeded')).toHaveLength(3);
    expect(world.count('UploadsFailed')).toBe(0);
    expect(world.count('UploadsSuperseded')).toBe(3);
    // The chain of the newer file has the address, in whatever order the two end.
    expect((await report()).status).toBe('succeeded');
  });

  it('is sent again with its key after a lost answer, although a newer file has come, and its flow is collected', async () => {
    const service = { variation: { idempotencyHours: 24, listFlows: 404 } } as const;
    await start({ routes: ROUTES, speaks: { list: null }, service });
    await beforeEachStage();
    world.remainingMs = 20_000;
    world.fault('createFlow', { reset: 'after-effect' });
    await world.deliverAll();
    world.service.intercept = undefined;
    expect(await statesOf('each')).toEqual(['waiting', 'waiting', 'waiting']);
    await world.upload('a.txt', 'newer');
    await world.settle();
    expect(await failuresOf('each')).toEqual(Array(6).fill('succeeded'));
    const collected = (await world.entries()).map((entry) => ('flow' in entry ? entry.flow?.id : undefined));
    expect(world.service.flows.filter(({ id }) => !collected.includes(id))).toEqual([]);
  });

  it('is not sent if a newer file has come, though the entry of that is damaged', async () => {
    await beforeEachStage();
    const waiting = world.takeMessages();
    await world.upload('a.txt', 'newer');
    world.takeMessages();
    const { signal } = new AbortController();
    const newer = await world.ports.inbox.current(INBOX, 'a.txt', signal);
    const damaged = `uploads/${newer?.id}.json`;
    await world.put(LEDGER, damaged, 'no JSON');
    for (const message of waiting) await world.ports.queue.send(message, signal);
    await world.deliverAll();
    await world.remove(damaged, LEDGER);
    expect(await failuresOf('each')).toEqual(['superseded', 'superseded', 'superseded']);
  });

  it('has the address again if the newer file is deleted, and the older one is retried', async () => {
    world.fault('createFlow', { status: 422 });
    await settled();
    const id = await firstId();
    world.clock.advance(60_000);
    await world.send('a.txt', 'newer');
    await world.settle();
    const newer = (await report()).upload;
    expect(newer.id).not.toBe(id);
    await world.s3.send(new DeleteObjectCommand({ Bucket: INBOX, Key: 'a.txt', VersionId: newer.versionId }));
    world.clock.advance(60 * 60_000);
    await world.collect({ retry: [id] });
    await world.settle();
    expect((await world.receipt('a.txt')).upload.id).toBe(id);
    expect((await report()).upload.id).toBe(id);
  });

  it.each([
    ['changed', (key: string) => world.put(RESULTS, key, 'other')],
    ['deleted', (key: string) => world.remove(key, RESULTS)],
  ])('fails the stage if an asset was %s by hand', async (_, act) => {
    const [entry] = await beforeEachStage();
    await act(entry?.inputs?.[0]?.key as string);
    await world.settle();
    expect((await failuresOf('each')).toSorted()).toEqual(['asset-gone', 'succeeded', 'succeeded']);
  });
});

describe('the conditions of a later route', () => {
  it('select assets by media type, by suffix, and by the key of the first file', async () => {
    const after = (name: string, more: Partial<Route>): Route => ({ ...ECHO, name, after: 'echo', ...more });
    await start({
      routes: [
        ECHO,
        after('text', { mediaTypes: ['text/*'] }),
        after('model', { mediaTypes: ['model/*'] }),
        after('suffix', { suffixes: ['.txt'] }),
        after('folder', { prefixes: ['a'] }),
        after('other folder', { prefixes: ['b'] }),
      ],
    });
    await settled();
    const chain = await world.json<Chain>(LEDGER, `chains/${await firstId()}.json`);
    expect(chain.uploads.map(({ route }) => route)).toEqual(['echo', 'text', 'suffix', 'folder']);
  });
});

describe('the requests of a chain', () => {
  it('are those of its uploads, and few for many uploads that end together', async () => {
    const FAN_OUT = 50;
    await start({
      routes: [{ ...ECHO, parameters: copies(FAN_OUT) }, ...ROUTES.slice(1)],
      settings: { uploadConcurrency: 16 },
    });
    const chainCalls: string[] = [];
    world.beforeS3((call, { Key = '' }) => {
      if (/^chains\/|chain\.json$/.test(Key)) chainCalls.push(call);
    });
    await settled();
    expect(await statesOf('each')).toHaveLength(FAN_OUT);
    expect((await report()).status).toBe('succeeded');
    // Nine on a quick machine. On a slow one, uploads that end in one tick end further apart.
    expect(chainCalls.length, chainCalls.join(', ')).toBeLessThan(FAN_OUT / 2);
  });

  it('are none of a tick, once the chain has ended', async () => {
    await start({ routes: ROUTES });
    await settled();
    const calls: string[] = [];
    world.beforeS3((_, { Key }) => void calls.push(String(Key)));
    await world.tickAfter(60_000);
    expect(calls.filter((key) => key.includes('chain'))).toEqual([]);
  });
});
