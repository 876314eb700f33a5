import { execFileSync } from 'node:child_process';
import { cpSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { GetObjectCommand, ListObjectsV2Command } from '@aws-sdk/client-s3';
import { ManagedPolicy } from 'aws-cdk-lib/aws-iam';
import { LayerVersion } from 'aws-cdk-lib/aws-lambda';
import { describe, expect, it, vi } from 'vitest';
import { parseContext } from '../../functions/settings/context.ts';
import { readStackContext } from '../../infra/deployment.ts';
import { FlowdropStack } from '../../infra/flowdrop-stack.ts';
import { type PipelineOptions, RESULTS_BUCKET } from '../../local/pipeline.ts';
import { collectorStates } from '../../operations/listing.ts';
import { CONTEXT, type Synthesis, synthesise } from '../infra/synthesis.ts';
import { resources } from '../infra/template.ts';
import { Operated, signal } from '../operations/support.ts';
import { folderWith } from '../support/folder.ts';
import { PATIENCE } from '../support/patience.ts';

vi.mock('../../operations/wait.ts', () => import('../operations/quick-wait.ts'));

const ROOT = fileURLToPath(new URL('../..', import.meta.url));
const FOLDER = join(ROOT, 'docs/recipes');

/** A screen has this many rows of this many columns. A longer line takes several rows. */
const SCREEN = { rows: 50, columns: 120 };

/** The commands that no test runs, by their first words, each with the reason. Everything else is run. */
const NOT_RUN: Readonly<Record<string, string>> = {
  'flowdrop approve robot.png': 'needs an upload that waits to be approved',
  'flowdrop cancel robot.png': 'needs an upload that waits to be approved',
  'MAPPING=$(aws lambda list-event-source-mappings': 'asks for a function of an account',
  'TOPIC=$(aws sns create-topic': 'makes a topic in an account',
  'aws cloudformation deploy': 'makes roles in an account',
  'aws configure set': 'writes into the home folder',
  'aws events put-rule': 'makes a rule in an account',
  'aws events put-targets': 'changes a rule of an account',
  'aws iam create-open-id-connect-provider': 'makes a provider in an account',
  'aws iam create-role': 'makes a role in an account',
  'aws lambda delete-function-concurrency': 'changes a function of an account',
  'aws lambda put-function-concurrency': 'changes a function of an account',
  'aws lambda update-event-source-mapping': 'changes a function of an account',
  'aws s3 cp': 'changes a bucket of an account',
  'aws s3 ls': 'reads a bucket of an account',
  'aws s3api copy-object': 'changes a bucket of an account',
  'aws s3api get-bucket-notification-configuration': 'asks for a bucket of an account',
  'aws s3api head-bucket': 'asks for a bucket of an account',
  'aws s3api list-object-versions': 'reads a bucket of an account',
  'aws s3api put-bucket-notification-configuration': 'changes a bucket of an account',
  'aws s3api put-bucket-policy': 'changes a bucket of an account',
  'read -rs TOKEN': 'test/end-to-end/token-command.test.ts types it',
  'aws sns set-topic-attributes': 'changes a topic of an account',
  'aws sns subscribe': 'changes a topic of an account',
  export: 'sets variables of a shell',
  'git add': 'changes the clone',
  'git checkout': 'changes the clone',
  'git commit': 'changes the clone',
  'git fetch': 'changes the clone',
  'git merge': 'changes the clone',
  'git rm': 'changes the clone',
  'git status': 'is of the clone',
  'npm ci': 'changes node_modules. The gate runs it.',
  'npm run -s deploy': 'deploys to an account',
  'npm run -s diff': 'compares with a stack of an account',
  'npx cdk bootstrap': 'changes an account',
  'npx cdk publish-assets': 'uploads to a bucket of an account',
  'while read -r KEY VERSION; do aws s3api delete-object': 'changes a bucket of an account',
};

/** They only touch files of the reader's folder. */
const FILE_COMMANDS = ['cp', 'mkdir'];

/** The `flowdrop.json` of a page that shows none. */
const BASE = {
  baseUrl: 'https://flows.example.org',
  routes: [{ name: 'pictures', mediaTypes: ['image/*'], template: 'model_generate_fromimage' }],
};

/** What differs at the stand-in for the service that a recipe is about. */
const STAND_INS: Readonly<Record<string, PipelineOptions['standIn']>> = {
  'dialect.md': { variation: { outputsPath: 'root', listFlows: 404 } },
};

interface Block {
  readonly language: string;
  readonly text: string;
  /** The last file that is named before the block. */
  readonly file: string | undefined;
}

const read = (page: string): string => readFileSync(join(FOLDER, page), 'utf8');

function blocksOf(page: string): readonly Block[] {
  return blocksIn(read(page));
}

function blocksIn(text: string): readonly Block[] {
  return Array.from(text.matchAll(/^( *)```(\w+)\n([\s\S]*?)^\1```$/gm), (found) => {
    const [, indent = '', language = '', body = ''] = found;
    const named = text.slice(0, found.index).matchAll(/`([\w.-]+\.json)`/g);
    return { language, text: body.replaceAll(new RegExp(`^${indent}`, 'gm'), ''), file: [...named].at(-1)?.[1] };
  });
}

/** Commands, one for each line. A line that ends in a backslash goes on in the next one. */
const commandsOf = (page: string): readonly string[] =>
  blocksOf(page)
    .filter(({ language }) => language === 'sh')
    .flatMap(({ text }) => text.replaceAll(/\\\n\s*/g, '').split('\n'))
    .filter((line) => line !== '');

/** The files of the configuration, as the page says. */
const filesOf = (page: string): Readonly<Record<string, object>> => {
  const files: Record<string, object> = { 'flowdrop.json': BASE };
  for (const { language, text, file } of blocksOf(page)) {
    if (language !== 'json' || !file?.startsWith('flowdrop.')) continue;
    files[file] = JSON.parse(text);
  }
  return files;
};

const wordsOf = (command: string): readonly string[] =>
  Array.from(command.matchAll(/"([^"]*)"|(\S+)/g), ([, quoted, word = '']) => quoted ?? word);

const startsWith = (command: string, words: string): boolean => `${command} `.startsWith(`${words} `);

const PAGES = readdirSync(FOLDER, { recursive: true, encoding: 'utf8' }).filter(
  (name) => name.endsWith('.md') && name !== 'README.md',
);

it('every command that is not run is on a page', () => {
  const commands = PAGES.flatMap(commandsOf);
  const unused = Object.keys(NOT_RUN).filter((words) => !commands.some((command) => startsWith(command, words)));
  expect(unused).toEqual([]);
});

it('terraform.md explains every parameter of the template', () => {
  const { template } = synthesised(cloneOf('terraform.md'));
  const explained = Array.from(read('terraform.md').matchAll(/^\| `(\w+)` \|/gm), ([, name]) => name);
  expect(Object.keys(template.toJSON().Parameters)).toEqual(explained);
});

it('opentelemetry.md gives both functions the layer, its wrapper and the right to send traces', () => {
  const [block = ''] = blocksOf('opentelemetry.md').flatMap(({ language, text }) => (language === 'js' ? [text] : []));
  const arn = 'arn:aws:lambda:eu-central-1:123456789012:layer:AWSOpenTelemetryDistroJs:1';
  const { template } = synthesise((app) => {
    const stack = new FlowdropStack(app, 'flowdrop', { context: { ...(CONTEXT.flowdrop as object) } });
    new Function('pipeline', 'LayerVersion', 'ManagedPolicy', block.replace('<ARN>', arn)).call(
      ...([stack, stack.pipeline, LayerVersion, ManagedPolicy] as const),
    );
    return stack;
  });
  const functions = resources(template, 'AWS::Lambda::Function');
  expect(functions).toHaveLength(2);
  for (const { Layers, Environment } of functions) {
    expect(Layers).toEqual([arn]);
    expect(Environment.Variables.AWS_LAMBDA_EXEC_WRAPPER).toBe('/opt/otel-instrument');
  }
  const policies = JSON.stringify(resources(template, 'AWS::IAM::Role').map((role) => role.ManagedPolicyArns));
  expect(policies.match(/AWSXRayDaemonWriteAccess/g)).toHaveLength(2);
});

it('other-account.md has the owner allow what the functions do in the bucket, and no more', () => {
  const { template } = synthesised(cloneOf('other-account.md'));
  const used = resources(template, 'AWS::IAM::Policy')
    .flatMap(({ PolicyDocument }) => PolicyDocument.Statement)
    .filter(({ Resource }) => JSON.stringify(Resource).includes(':s3:::their-results'))
    .flatMap(({ Action }) => Action);
  const policy = blocksOf('other-account.md').find(({ file }) => file === 'policy.json');
  const allowed = JSON.parse(policy?.text ?? '{}').Statement[0].Action;
  expect([...new Set(used)].sort()).toEqual([...allowed].sort());
});

describe('athena.md', () => {
  const [table = '', query = ''] = blocksOf('athena.md').flatMap(({ language, text }) =>
    language === 'sql' ? [text] : [],
  );

  it('declares only members of a receipt, with their types, and asks only for these', () => {
    const columns = columnsIn(table.slice(table.indexOf('(') + 1, table.indexOf('\n)')));
    const schema: Schema = JSON.parse(readFileSync(join(ROOT, 'docs/schemas/receipt.schema.json'), 'utf8'));
    expect(Object.keys(columns)).toContain('assets');
    expect(unlike(columns, schema)).toEqual([]);
    const names = query.replaceAll(/'[^']*'|AS \w+/g, '').match(/\b[a-z]\w*(?:\.\w+)?\b(?!\()/g) ?? [];
    const known = ['receipts', ...Object.keys(columns), 'upload.key', 'price.amount', 'price.currency'];
    expect(names.filter((name) => !known.includes(name))).toEqual([]);
  });

  it('has nothing but receipts and chain.json below the location of the table, each in one line', async () => {
    const { context } = readStackContext({ dir: cloneOf('athena.md'), context: undefined });
    const { routes, settings } = context;
    const later = { ...(routes[0] as (typeof routes)[number]), name: 'later', after: routes[0]?.name };
    const operated = await Operated.forTest({
      routes: [
        { ...(routes[0] as (typeof routes)[number]), template: 'bytes_echo' },
        { ...later, template: 'bytes_echo' },
      ],
      settings,
    });
    await operated.put('in/acme/photo.png', 'succeeded');
    const { pipeline } = operated;
    const below = async () => {
      const { Contents = [] } = await pipeline.s3.send(new ListObjectsV2Command({ Bucket: RESULTS_BUCKET }));
      return Contents.flatMap(({ Key = '' }) => (Key.startsWith('in/') ? [Key] : []));
    };
    await vi.waitFor(async () => expect(await below()).toContain('in/acme/photo.png/chain.json'), PATIENCE);
    const keys = await below();
    expect(keys).toHaveLength(3);
    for (const Key of keys) {
      const { Body } = await pipeline.s3.send(new GetObjectCommand({ Bucket: RESULTS_BUCKET, Key }));
      const text = (await Body?.transformToString()) ?? '';
      expect(text).toMatch(/^\{.*\}\n$/);
      // What the query tells receipts by.
      expect(JSON.parse(text).receipt).toBe(Key.endsWith('/receipt.json') ? 1 : undefined);
    }
  });
});

interface Columns {
  readonly [name: string]: string | Columns | readonly [Columns];
}

/** The columns of a table, as `CREATE TABLE` declares them. */
function columnsIn(text: string): Columns {
  const parts: string[] = [''];
  let depth = 0;
  for (const letter of text) {
    if (letter === '<') depth += 1;
    if (letter === '>') depth -= 1;
    if (letter === ',' && depth === 0) parts.push('');
    else parts[parts.length - 1] += letter;
  }
  return Object.fromEntries(
    parts.map((part) => {
      const [, name = '', type = ''] = /^\s*(\w+)[\s:]+(.*?)\s*$/s.exec(part) ?? [];
      const [, list, members] = /^(array<)?struct<(.*?)>+$/.exec(type) ?? [];
      if (members === undefined) return [name, type];
      return [name, list === undefined ? columnsIn(members) : [columnsIn(members)]];
    }),
  );
}

/** The types of JSON that a type of a column can hold. */
const HOLDS: Readonly<Record<string, readonly string[]>> = {
  string: ['string'],
  int: ['integer', 'number'],
  bigint: ['integer', 'number'],
  double: ['number', 'integer'],
};

/** Where columns differ from a schema: names of members that are not there, or have another type. */
function unlike(columns: Columns, { properties = {} }: Schema, where = ''): readonly string[] {
  return Object.entries(columns).flatMap(([name, column]) => {
    const member = properties[name];
    const path = `${where}${name}`;
    if (member === undefined) return [path];
    if (typeof column === 'string') return HOLDS[column]?.includes(member.type ?? '') ? [] : [`${path} ${column}`];
    if (Array.isArray(column)) return unlike(column[0], member.items ?? {}, `${path}.`);
    return unlike(column as Columns, member, `${path}.`);
  });
}

interface Schema {
  readonly type?: string;
  readonly properties?: Readonly<Record<string, Schema>>;
  readonly items?: Schema;
}

/** Each `flowdrop.json` of README.md and docs/, as a reader copies it. */
const WHOLE_FILES: readonly (readonly [page: string, text: string])[] = [
  'README.md',
  ...readdirSync(join(ROOT, 'docs'), { recursive: true, encoding: 'utf8' }).map((path) => `docs/${path}`),
]
  .filter((path) => path.endsWith('.md'))
  .flatMap((path) => {
    const text = readFileSync(join(ROOT, path), 'utf8');
    const written = Array.from(
      text.matchAll(/^cat > flowdrop\.json <<'EOF'\n([\s\S]*?)\nEOF$/gm),
      ([, body = '']) => body,
    );
    const shown = blocksIn(text).filter(({ language, file }) => language === 'json' && file === 'flowdrop.json');
    return [...written, ...shown.map((block) => block.text)].map((body) => [path, body] as const);
  });

describe('a flowdrop.json', () => {
  it('is shown by README.md, by the page about services and by recipes', () => {
    const pages = WHOLE_FILES.map(([page]) => page);
    expect(pages).toEqual(expect.arrayContaining(['README.md', 'docs/flow-service.md', 'docs/recipes/chain.md']));
    expect(pages.length).toBeGreaterThan(10);
  });

  it.each(WHOLE_FILES)('of %s starts as it stands', async (_, text) => {
    const { context, warnings } = readStackContext({ dir: folderWith({ 'flowdrop.json': text }), context: undefined });
    expect(warnings).toEqual([]);
    const { routes, settings, service: speaks } = context;
    const operated = await Operated.forTest({ routes, settings, speaks, standIn: { flowMs: 0 }, tickIntervalMs: 100 });
    const status = await operated.run('status', '--json');
    expect(status.code, status.errors).toBe(0);
  });
});

/** What the pages of services say in a line: a whole member `service`, or a member of it. */
const IN_LINES = PAGES.filter((page) => page.startsWith('services/')).flatMap((page) =>
  Array.from(read(page).matchAll(/`"(service|outputs|parameters)": (\{.*?\})`/g), ([line, member = '', text = '']) => ({
    ...{ page, line, member },
    value: JSON.parse(text),
  })),
);

it.each(IN_LINES)('$page: $line is valid', ({ page, member, value }) => {
  const from = page.replace(/^services\/(.*)\.md$/, '$1');
  const service = member === 'service' ? value : { from, ...(member === 'outputs' && { outputs: value }) };
  const [route] = BASE.routes;
  const routes = [{ ...route, ...(member === 'parameters' && { parameters: value }) }];
  expect(parseContext({ ...BASE, routes, service }).service.state).toBeDefined();
});

describe.each(PAGES)('%s', (page) => {
  it('fits on a screen', () => {
    const rows = read(page)
      .trimEnd()
      .split('\n')
      .reduce((sum, line) => sum + Math.max(1, Math.ceil(line.length / SCREEN.columns)), 0);
    expect(rows).toBeLessThanOrEqual(SCREEN.rows);
  });

  it('has configurations that are valid, and JSON that can be read', () => {
    const files = filesOf(page);
    for (const { language, text } of blocksOf(page)) if (language === 'json') JSON.parse(text);
    for (const name of Object.keys(files)) {
      const stage = /^flowdrop\.(\w+)\.json$/.exec(name)?.[1];
      expect(readStackContext({ dir: folderWith(files), stage, context: undefined }).warnings).toEqual([]);
    }
  });

  it('has commands that succeed', async () => {
    const commands = commandsOf(page).filter(
      (command) => !Object.keys(NOT_RUN).some((words) => startsWith(command, words)),
    );
    const clone = cloneOf(page);
    let operated: Operated | undefined;
    for (const command of commands) {
      const [synth, stage] = /^npm run -s synth(?: -- -c stage=(\w+))?$/.exec(command) ?? [];
      if (synth !== undefined) {
        expect(synthesised(clone, stage).findings, command).toEqual([]);
        continue;
      }
      const [program = '', ...words] = wordsOf(command);
      if (FILE_COMMANDS.includes(program)) {
        execFileSync(program, words, { cwd: clone });
        continue;
      }
      expect(program, `${command}: neither run nor listed`).toBe('flowdrop');
      operated ??= await startFor(page, clone);
      // The pipeline of the test is a local one, which has the same functions and no stack.
      const stack = words.indexOf('--stack');
      const ran = await operated.run(...(stack < 0 ? words : words.toSpliced(stack, 2)));
      expect(ran.code, `${command}: ${ran.code}\n${ran.output}${ran.errors}`).toBe(0);
    }
  });
});

/** The folder of a clone whose reader follows the page. */
function cloneOf(page: string): string {
  const clone = folderWith({ 'cdk.json': { context: CONTEXT }, ...filesOf(page) });
  cpSync(join(ROOT, 'examples'), join(clone, 'examples'), { recursive: true });
  return clone;
}

function synthesised(clone: string, stage?: string): Synthesis {
  const { value, context } = readStackContext({ dir: clone, stage, context: undefined });
  return synthesise((app) => new FlowdropStack(app, context.pipeline, { context: value }));
}

/** A local pipeline that is configured as the page says, and its operator in the clone. */
async function startFor(page: string, clone: string): Promise<Operated> {
  const { routes, settings, service: speaks } = readStackContext({ dir: clone, context: undefined }).context;
  const operated = await Operated.forTest({
    routes,
    speaks,
    settings: { ...settings, pollIntervalSeconds: 1 }, // As `npm start` sets it.
    standIn: { flowMs: 0, ...STAND_INS[page] },
    tickIntervalMs: 100,
  });
  cpSync(clone, operated.directory, { recursive: true });
  // Doctor misses the ticks until the first one has ended.
  await vi.waitFor(async () => {
    const [collector] = await collectorStates(operated.deployment, signal);
    expect(collector?.state.tickCompletedAt).toBeDefined();
  }, PATIENCE);
  return operated;
}
