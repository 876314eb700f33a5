import { readFileSync } from 'node:fs';
import { PutObjectCommand } from '@aws-sdk/client-s3';
import { beforeAll, describe, expect, it, vi } from 'vitest';
import type { Log } from '../../../functions/base/telemetry.ts';
import { powertools } from '../../../functions/lambda/powertools.ts';
import { INBOX_BUCKET, startPipeline } from '../../../local/pipeline.ts';
import { bundles } from '../../support/bundles.ts';
import { PATIENCE } from '../../support/patience.ts';
import { answer, ECHO, HOUR, LEDGER, MINUTE, World, type WorldOptions } from '../../support/world.ts';
import { configured } from '../configurations.ts';
import { eventOf, type LogEvent, parseQuery } from './insights.ts';

const RUNBOOK = readFileSync(new URL('../../../docs/runbook.md', import.meta.url), 'utf8');

interface Definition {
  readonly Name: string;
  readonly QueryString: string;
  readonly LogGroupNames: readonly object[];
}
const { template } = configured('defaults');
const definitions: readonly Definition[] = Object.values(template.findResources('AWS::Logs::QueryDefinition')).map(
  ({ Properties }) => Properties as Definition,
);

/** Lines that Lambda writes. @see https://docs.aws.amazon.com/lambda/latest/dg/troubleshooting-invocation.html */
const OF_LAMBDA: readonly LogEvent[] = [
  eventOf('2026-11-21T10:00:00.000Z 01234567-89ab-cdef-0123-456789abcdef Task timed out after 900.00 seconds'),
  eventOf('RequestId: 01234567-89ab-cdef-0123-456789abcdef Error: Runtime exited with error: signal: killed'),
  {
    ...eventOf('REPORT RequestId: 01234567-89ab-cdef-0123-456789abcdef Status: error Error Type: Runtime.OutOfMemory'),
    // CloudWatch discovers these in the line.
    '@type': 'REPORT',
    '@requestId': '01234567-89ab-cdef-0123-456789abcdef',
    '@duration': 1_200,
  },
];

/** Prints what a world logged as the functions print it, and returns the lines. */
function printed(logged: World['logged']): readonly string[] {
  vi.stubEnv('POWERTOOLS_DEV', 'true'); // The logger then prints to the console of this process.
  const lines: string[] = [];
  const spies = (['debug', 'info', 'warn', 'error'] as const).map((level) =>
    vi.spyOn(console, level).mockImplementation((line: string) => void lines.push(line)),
  );
  try {
    const { log } = powertools('test').telemetry;
    for (const { level, message, fields } of logged) log[level as keyof Omit<Log, 'with'>](message, fields);
  } finally {
    for (const spy of spies) spy.mockRestore();
    vi.unstubAllEnvs();
  }
  return lines;
}

async function worldOf(options: WorldOptions, live: (world: World) => Promise<unknown>): Promise<readonly string[]> {
  const world = await World.start({ isVirtual: true, ...options });
  try {
    await live(world);
    return printed(world.logged);
  } finally {
    await world.close();
  }
}

/** Everything that the runbook asks about happens once. */
const TROUBLES: readonly (() => Promise<readonly string[]>)[] = [
  // A refused token, a file that fails, a message without an upload, an entry that cannot be read.
  () =>
    worldOf({}, async (world) => {
      world.token = 'another-fake-token';
      await world.upload('waits', 'x');
      await world.upload('empty', '');
      world.queue.send('{"no":"upload"}');
      await world.deliver();
      const [entry = ''] = (await world.keys(LEDGER, 'waiting/')).map((key) => key.split('/').at(-1) ?? '');
      await world.put(LEDGER, `uploads/${entry}.json`, 'damaged');
      world.clock.advance(HOUR);
      await world.tick();
    }),
  // The ledger refuses writes.
  () =>
    worldOf(
      { s3: { authorize: ({ action, resource }) => !(action === 's3:PutObject' && /ledger/.test(resource)) } },
      async (world) => {
        await world.upload('given back', 'x');
        await world.deliver();
      },
    ),
  // The sweep finds an upload without a notification. A pass is cut off, and goes on.
  () =>
    worldOf({}, async (world) => {
      await world.sweep();
      for (let i = 0; i < 30; i += 1) await world.upload(`${i}`, 'x');
      while (world.queue.receive({ max: 10 }).map(({ receiptHandle }) => world.queue.delete(receiptHandle)).length > 0);
      world.clock.advance(HOUR);
      world.remainingMs = 16_000;
      await world.sweep({ uploadsPerSecond: 1 } as object);
      world.remainingMs = 60_000;
      for (let i = 0; i < 10; i += 1) await world.continueSweep();
    }),
  // Answers are lost. The listing shows one flow, and is then not served.
  ...(['ask', 'retry'] as const).map(
    (inDoubt) => () =>
      worldOf({ settings: { inDoubt } }, async (world) => {
        world.service.intercept = (_, { operation, n }) =>
          operation === 'createFlow' && n < 3 ? { reset: 'after-effect' } : undefined;
        await world.upload('found', 'x');
        await world.settle();
        world.service.variation.listFlows = 501;
        await world.upload('doubted', 'x');
        await world.waitOutDoubt();
      }),
  ),
  // One flow for two uploads, and a flow of another upload.
  () =>
    worldOf({ settings: { flowAgeMaxSeconds: 3_600 } }, async (world) => {
      await world.upload('a', 'a');
      await world.deliver();
      const shared = world.service.flows[0]?.id ?? '';
      world.service.intercept = (_, { operation, n }) =>
        operation === 'createFlow' && n === 2 ? { ...answer({ flow_id: shared }), at: 'after-effect' } : undefined;
      await world.upload('b', 'b');
      await world.deliver();
      await world.tick();
      world.clock.advance(2 * HOUR);
      await world.tick();
    }),
  () =>
    worldOf({}, async (world) => {
      await world.upload('a', 'a');
      await world.upload('b', 'b');
      await world.deliver();
      const [one, other] = world.service.flows;
      world.service.intercept = ({ url }) =>
        url.endsWith(`/flows/${one?.id}`)
          ? answer({ flow_id: one?.id, state: 'completed', additional: other?.additional })
          : undefined;
      world.clock.advance(20 * MINUTE);
      await world.tick();
      world.service.intercept = () => ({ status: 500 });
      world.clock.advance(20 * MINUTE);
      await world.tick();
    }),
];

/** A file goes through the functions as they are deployed. Then one invocation fails. */
async function deployedLines(): Promise<readonly string[]> {
  const lines: string[] = [];
  const onLog = (_: string, line: string) => void lines.push(line);
  const pipeline = await startPipeline({
    bundleDir: bundles(),
    routes: [ECHO],
    standIn: { flowMs: 100 },
    tickIntervalMs: 300,
    onLog,
  });
  try {
    await pipeline.s3.send(new PutObjectCommand({ Bucket: INBOX_BUCKET, Key: 'robot.png', Body: 'x' }));
    const has = (text: string) => expect(lines.some((line) => line.includes(text))).toBe(true);
    await vi.waitFor(() => has('Upload succeeded'), PATIENCE);
    await expect(pipeline.functions['collect-outputs'].invoke({ unknown: true })).rejects.toThrow();
    await vi.waitFor(() => has('The invocation failed'), PATIENCE);
  } finally {
    await pipeline.close();
  }
  return lines;
}

let events: readonly LogEvent[];
beforeAll(async () => {
  const lines = [await deployedLines()];
  for (const trouble of TROUBLES) lines.push(await trouble());
  events = [...OF_LAMBDA, ...lines.flat().map(eventOf)];
});

const named = (name: string): string => {
  const found = definitions.find(({ Name }) => Name === `flowdrop/${name}`);
  expect(found).toBeDefined();
  return found?.QueryString ?? '';
};
const found = (query: string): readonly LogEvent[] => events.filter(parseQuery(query).matches);

describe.each(definitions.map(({ Name, QueryString }) => [Name, QueryString] as const))('the query %s', (_, query) => {
  // The placeholder of a query about one file stands for a key.
  const asked = query.replace('KEY OR UPLOAD ID', 'robot.png');

  it('finds lines that the functions write, by each of its comparisons', () => {
    expect(found(asked).length).toBeGreaterThan(0);
    const idle = parseQuery(asked).comparisons.filter(({ isTrueFor }) => !found(asked).some(isTrueFor));
    expect(idle.map(({ text }) => text)).toEqual([]);
  });

  it('names only fields that these lines have', () => {
    // Other files have the fields of waits and failures.
    const lines = asked === query ? found(query) : events;
    const absent = parseQuery(asked).fields.filter((field) => lines.every((event) => event[field] === undefined));
    expect(absent).toEqual([]);
  });
});

describe('the saved queries', () => {
  it('search logs of the pipeline only', () => {
    const groups = Object.keys(template.findResources('AWS::Logs::LogGroup'));
    const searched = definitions.flatMap(({ LogGroupNames }) => LogGroupNames);
    expect(new Set(searched.map((group) => (group as { Ref: string }).Ref))).toEqual(new Set(groups));
  });

  it('are those that the runbook names', () => {
    const told = Array.from(RUNBOOK.matchAll(/`(flowdrop\/[^`]+)`/g), ([, name]) => name);
    expect([...new Set(told)].sort()).toEqual(definitions.map(({ Name }) => Name).sort());
  });

  it('show what happened to one file, from its claim to its receipt', () => {
    const query = named('one file');
    const byKey = found(query.replace('KEY OR UPLOAD ID', 'robot.png'));
    expect(byKey.map(({ message }) => message)).toEqual(expect.arrayContaining(['Flow created', 'Upload succeeded']));
    const { uploadId } = byKey.find(({ message }) => message === 'Flow created') ?? {};
    const byId = found(query.replace('KEY OR UPLOAD ID', String(uploadId)));
    expect(byId.map(({ message }) => message)).toEqual(expect.arrayContaining(['Flow created', 'Upload succeeded']));
    expect(new Set(byId.map(({ function_name }) => function_name)).size).toBe(2);
  });

  it('tell a tick from the report of its invocation by the request alone', () => {
    const tick = events.find(({ message, function_request_id }) => message === 'Tick ended' && function_request_id);
    expect(tick?.function_request_id).toMatch(/^[0-9a-f-]{36}$/);
  });
});
