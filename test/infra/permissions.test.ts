import { DeleteObjectCommand, type PutObjectCommandInput, type S3ServiceException } from '@aws-sdk/client-s3';
import { type Stack, Validations } from 'aws-cdk-lib';
import { EventBus } from 'aws-cdk-lib/aws-events';
import { Key } from 'aws-cdk-lib/aws-kms';
import { Bucket } from 'aws-cdk-lib/aws-s3';
import { Secret } from 'aws-cdk-lib/aws-secretsmanager';
import { beforeAll, describe, expect, it } from 'vitest';
import { collect } from '../../functions/collect-outputs/collect-outputs.ts';
import { FUNCTION_NAMES, type FunctionName } from '../../infra/bundle/bundle.ts';
import type { FlowPipelineProps } from '../../infra/flow-pipeline-props.ts';
import { simulate } from '../simulation/simulation.ts';
import { ECHO, LEDGER, RESULTS, World, type WorldOptions } from '../support/world.ts';
import { Deployment, NETWORK_ACTIONS, type Part, type RecordedCall, recordedCall } from './calls.ts';
import { ACCOUNT, idleOf, isAllowed, lineOf, REGION, refusedOf, resolve } from './policies.ts';
import { synthesisePipeline, theirVpc } from './synthesis.ts';

const MINUTE = 60_000;
const HOUR = 60 * MINUTE;

/** More than one part of a multipart upload. */
const LARGE = Buffer.alloc(10_000_000, 'flowdrop');

/** Simulated worlds of which the calls are recorded. Thousands of them make no calls of other kinds. */
const SEEDS = 40;

/** Every different call of the functions, without its repetitions. */
const recorded = new Map<string, RecordedCall>();

function record(call: RecordedCall): void {
  recorded.set(JSON.stringify(call), call);
}

/** A world whose calls are noted down while one of the functions runs, and not while the test itself looks. */
class Recording {
  readonly world: World;
  readonly #running: { name: FunctionName | undefined };

  static async start(options: WorldOptions): Promise<Recording> {
    const running: { name: FunctionName | undefined } = { name: undefined };
    const authorize: NonNullable<NonNullable<WorldOptions['s3']>['authorize']> = (access) => {
      if (running.name !== undefined) record(recordedCall(running.name, access));
      return true;
    };
    return new Recording(await World.start({ ...options, s3: { authorize } }), running);
  }

  private constructor(world: World, running: { name: FunctionName | undefined }) {
    this.world = world;
    this.#running = running;
    world.s3.middlewareStack.add(
      (next) => async (call) => {
        try {
          return await next(call);
        } catch (error) {
          const { Bucket, Key = '' } = call.input as PutObjectCommandInput;
          if (Key === this.vanishing && (error as S3ServiceException).$metadata.httpStatusCode === 412) {
            this.vanishing = undefined;
            const { name } = this.#running;
            this.#running.name = undefined;
            await world.s3.send(new DeleteObjectCommand({ Bucket, Key }));
            this.#running.name = name;
          }
          throw error;
        }
      },
      { step: 'initialize' },
    );
  }

  /** A key at which somebody removes what is there, just when a function has been refused to write to it. */
  vanishing: string | undefined;

  deliver = () => this.#during('create-flow', () => this.world.deliver());
  collect = (event: object = {}) =>
    this.#during('collect-outputs', () =>
      this.world.invoke((invocation) => collect(event, this.world.ports, invocation)),
    );

  /** Deliveries and ticks, until whatever there is to do has been done. */
  settle = async () => {
    for (let round = 0; round < 4; round += 1) {
      while ((await this.deliver()) !== undefined);
      await this.collect();
      this.world.clock.advance(10 * MINUTE);
    }
  };

  async #during<T>(name: FunctionName, run: () => Promise<T>): Promise<T> {
    this.#running.name = name;
    try {
      return await run();
    } finally {
      this.#running.name = undefined;
    }
  }
}

/** What an upload can go through, as far as it leads to calls of different kinds. */
async function goThroughEverything(options: WorldOptions): Promise<void> {
  const recording = await Recording.start(options);
  const { world, deliver, collect: collectOutputs, settle } = recording;
  try {
    await collectOutputs({ sweep: {} });
    await world.upload('small.bin', 'x');
    await world.upload('large.bin', LARGE);
    await settle();

    // Another at the same key; and the sweep comes while its flow is running.
    await world.upload('small.bin', 'y');
    await deliver();
    await collectOutputs({ sweep: {} });
    await settle();

    // Its news comes again after its end, and another's never.
    await world.upload('again.bin', 'x');
    const [{ body = '', receiptHandle = '' } = {}] = world.queue.receive({ max: 1 });
    world.queue.delete(receiptHandle);
    world.queue.send(body);
    await settle();
    world.queue.send(body);
    await world.upload('unannounced.bin', 'x');
    for (const message of world.queue.receive({ max: 10 })) {
      if (!message.body.includes('again.bin')) world.queue.delete(message.receiptHandle);
    }
    world.clock.advance(HOUR);
    await deliver();
    await collectOutputs({ sweep: {} });
    await settle();

    // Throttled, then refused for good, twice at one key; and what was refused is tried again.
    world.service.intercept = (_, { operation }) => (operation === 'createFlow' ? { status: 429 } : undefined);
    await world.upload('refused.bin', 'x');
    await deliver();
    world.service.intercept = (_, { operation }) => (operation === 'createFlow' ? { status: 422 } : undefined);
    await settle();
    await world.upload('refused.bin', 'y');
    await settle();
    recording.vanishing = 'refused.bin/receipt.json';
    await world.upload('refused.bin', 'z');
    await settle();
    const { upload } = await world.receipt('refused.bin');

    // Somebody removes its receipt, which the sweep puts again; and it is tried again.
    await world.s3.send(new DeleteObjectCommand({ Bucket: RESULTS, Key: 'refused.bin/receipt.json' }));
    world.clock.advance(HOUR);
    await collectOutputs({ sweep: {} });
    await settle();
    world.service.intercept = undefined;
    await collectOutputs({ retry: [upload.id] });
    await settle();

    // An asset that breaks off after a part of it has been stored.
    world.service.intercept = (_, { operation }) => (operation === 'getAsset' ? { truncate: 9_500_000 } : undefined);
    await world.upload('broken.bin', LARGE);
    await settle();
    world.service.intercept = undefined;
    await settle();

    // A collection that stored its asset and could not write that down.
    await world.upload('stored.bin', 'x');
    await deliver();
    const [marker = ''] = await world.keys(LEDGER, 'running/');
    const entry = `uploads/${marker.split('/')[2]}.json`;
    const { bytes } = await world.object(LEDGER, entry);
    await settle();
    await world.put(LEDGER, entry, bytes.toString());
    await world.put(LEDGER, marker, '');
    await settle();

    await world.upload('gone.bin', 'x');
    await world.remove('gone.bin');
    await settle();
  } finally {
    await world.close();
  }
}

async function simulateEverything(): Promise<void> {
  const names = { create: 'create-flow', collect: 'collect-outputs' } as const;
  for (let seed = 1; seed <= SEEDS; seed += 1) {
    await simulate(seed, undefined, ({ by, ...access }) => {
      // The functions put events of one source only; that it is this one shows where a bundle runs.
      const source = access.action === 'events:PutEvents' && { context: { 'events:source': 'flowdrop' } };
      record(recordedCall(names[by], { ...access, ...source }));
    });
  }
}

beforeAll(async () => {
  await goThroughEverything({ routes: [ECHO] });
  await goThroughEverything({ routes: [ECHO], versioning: undefined });
  await simulateEverything();
}, 240_000);

/** A pipeline among other things, and with which keys those are encrypted that are there already. */
interface Variant {
  readonly props?: (stack: Stack) => Partial<FlowPipelineProps>;
  readonly keyArns?: Partial<Record<Part, string>>;
  /** What is allowed and no call uses, with why it is allowed all the same. */
  readonly unused?: Partial<Record<FunctionName, Readonly<Record<string, string>>>>;
}

/** Of keys that are there already. */
const KEY_ARNS = {
  all: `arn:aws:kms:${REGION}:${ACCOUNT}:key/01234567-89ab-cdef-0123-456789abcdef`,
  inbox: `arn:aws:kms:${REGION}:${ACCOUNT}:key/11111111-89ab-cdef-0123-456789abcdef`,
  results: `arn:aws:kms:${REGION}:${ACCOUNT}:key/22222222-89ab-cdef-0123-456789abcdef`,
  token: `arn:aws:kms:${REGION}:${ACCOUNT}:key/33333333-89ab-cdef-0123-456789abcdef`,
};
const theirKey = (stack: Stack, of: keyof typeof KEY_ARNS) => {
  for (const service of ['logs', 's3', 'events']) {
    Validations.of(stack).acknowledge({ id: `flowdrop:key-policy-${service}`, reason: 'Nobody deploys this.' });
  }
  return Key.fromKeyArn(stack, `key of ${of}`, KEY_ARNS[of]);
};
const PREFIXES = { inboxPrefix: 'a/b/', resultsPrefix: 'c/' };
const theirs = (stack: Stack): Partial<FlowPipelineProps> => {
  const bucket = (of: 'inbox' | 'results') =>
    Bucket.fromBucketAttributes(stack, of, { bucketName: `their-${of}`, encryptionKey: theirKey(stack, of) });
  return {
    inboxBucket: bucket('inbox'),
    resultsBucket: bucket('results'),
    tokenSecret: Secret.fromSecretAttributes(stack, 'their-token', {
      secretCompleteArn: `arn:aws:secretsmanager:${REGION}:${ACCOUNT}:secret:their/token-AbCdEf`,
      encryptionKey: theirKey(stack, 'token'),
    }),
  };
};
const VIA_S3 = `if kms:ViaService StringEquals s3.${REGION}.amazonaws.com or s3.${REGION}.amazonaws.com.cn`;
const unusedOfTheirs = {
  'create-flow': {
    [`kms:Decrypt ${KEY_ARNS.results.split(':').at(-1)} ${VIA_S3}`]:
      'A bucket may share a data key among objects (S3 Bucket Keys), which S3 then decrypts to write one.',
  },
};

const VARIANTS: Readonly<Record<string, Variant>> = {
  'nothing but defaults': {},
  'another name': { props: () => ({ name: 'another-name' }) },
  'prefixes in buckets of its own': { props: () => ({ settings: PREFIXES }) },
  'buckets that are there': {
    props: (stack) => ({
      inboxBucket: Bucket.fromBucketName(stack, 'Inbox', 'their-inbox'),
      resultsBucket: Bucket.fromBucketName(stack, 'Results', 'their-results'),
    }),
  },
  'one bucket for inbox and results': {
    props: (stack) => {
      const bucket = Bucket.fromBucketName(stack, 'Both', 'their-bucket');
      return { inboxBucket: bucket, resultsBucket: bucket, settings: PREFIXES };
    },
  },
  'a key of the app': { props: (stack) => ({ encryptionKey: new Key(stack, 'Key', { enableKeyRotation: true }) }) },
  'a key that is there, and prefixes': {
    props: (stack) => ({ encryptionKey: theirKey(stack, 'all'), settings: PREFIXES }),
  },
  'buckets and a secret that are there, with keys of their own': {
    props: theirs,
    keyArns: KEY_ARNS,
    unused: unusedOfTheirs,
  },
  'a secret by its name': {
    props: (stack) => ({ tokenSecret: Secret.fromSecretNameV2(stack, 'Secret', 'flows/token') }),
  },
  'an event bus of the app': { props: (stack) => ({ eventBus: new EventBus(stack, 'Bus') }) },
  'an event bus that is there': { props: (stack) => ({ eventBus: EventBus.fromEventBusName(stack, 'Bus', 'theirs') }) },
  'a VPC': { props: theirVpc },
  everything: {
    props: (stack) => ({
      ...theirs(stack),
      ...theirVpc(stack),
      name: 'another-name',
      encryptionKey: theirKey(stack, 'all'),
      eventBus: EventBus.fromEventBusName(stack, 'Bus', 'theirs'),
      settings: PREFIXES,
    }),
    keyArns: KEY_ARNS,
    unused: unusedOfTheirs,
  },
};

/** One object of each kind that there is, and what there is not. */
const KINDS: readonly Pick<RecordedCall, 'of' | 'key'>[] = [
  { of: 'inbox' },
  { of: 'inbox', key: 'a' },
  { of: 'results' },
  { of: 'results', key: 'a/receipt.json' },
  { of: 'results', key: 'a/flow/asset.png' },
  { of: 'ledger' },
  { of: 'ledger', key: 'uploads/1.json' },
  { of: 'ledger', key: 'running/1' },
  { of: 'ledger', key: 'waiting/1' },
  { of: 'ledger', key: 'state/1' },
  { of: 'ledger', key: 'else/1' },
];

function kindOf({ of, key }: Pick<RecordedCall, 'of' | 'key'>): string {
  if (key === undefined) return of;
  if (of === 'results') return key.endsWith('/receipt.json') ? 'a receipt' : 'an asset';
  return of === 'ledger' ? `ledger/${key.split('/')[0]}` : 'an upload';
}

/** Beside those that any policy names: what must never be there. */
const OTHER_ACTIONS = ['s3:DeleteObject', 's3:DeleteObjectVersion', 's3:PutObjectAcl', 's3:GetBucketPolicy'];

/** What a function may do to kinds of objects to which it does not, because the names of the kinds are one. */
const WIDER: Readonly<Record<FunctionName, Readonly<Record<string, string>>>> = {
  'create-flow': {},
  'collect-outputs': {
    's3:AbortMultipartUpload a receipt': 'Receipts lie among assets, and are never so large as to have parts.',
  },
};

/** Wildcards that the checks at synth do not see, with why they are there. */
const UNSEEN_WILDCARDS = [
  { pattern: /:log-group:[^*]*:\*$/, reason: 'The ARN of a log group ends so: it stands for its streams.' },
  {
    pattern: /:secret:[^*]*-\?{6}$/,
    reason: 'Secrets Manager ends ARNs so that only it knows: a name leaves it open.',
  },
];

/** What has been acknowledged of a construct, and of whatever it is in. */
function acknowledgementsOf(
  root: Stack | undefined,
  path: string,
): readonly { readonly id: string; readonly reason: string }[] {
  const around = root?.node
    .findAll()
    .filter(({ node }) => node.path.endsWith(path))
    .flatMap(({ node }) => node.scopes);
  return (around ?? [])
    .flatMap(({ node }) => node.metadata)
    .filter(({ type }) => type === Validations.ACKNOWLEDGED_RULES_METADATA_KEY)
    .flatMap(({ data }) => Object.entries(data as Record<string, string>).map(([id, reason]) => ({ id, reason })))
    .filter(({ id }) => !id.includes('flowdrop:'));
}

describe.each(Object.entries(VARIANTS))('what the functions may do with %s', (_, { props, keyArns, unused }) => {
  let root: Stack | undefined;
  const { template, findings } = synthesisePipeline(props, (_, stack) => {
    root = stack;
  });
  const deployment = new Deployment(template, keyArns);
  const callsOf = (by: FunctionName) => [
    ...[...recorded.values()].filter((call) => call.by === by).flatMap((call) => deployment.callsOf(call)),
    ...deployment.callsOfLambda(by),
  ];
  const permissions = {
    'create-flow': deployment.permissionsOf('create-flow'),
    'collect-outputs': deployment.permissionsOf('collect-outputs'),
  };
  const s3Actions = new Set([
    ...OTHER_ACTIONS,
    ...Object.values(permissions).flatMap((all) => all.map(({ action }) => action).filter((one) => /^s3:/.test(one))),
  ]);

  it.each(FUNCTION_NAMES)('is enough for every call that %s makes', (by) => {
    const calls = callsOf(by);
    expect(calls.length).toBeGreaterThan(200);
    expect(refusedOf(permissions[by], calls).map(lineOf)).toEqual([]);
  });

  it.each(FUNCTION_NAMES)('is no more than %s uses', (by) => {
    expect(idleOf(permissions[by], callsOf(by)).map(lineOf)).toEqual(Object.keys(unused?.[by] ?? {}));
  });

  it.each(FUNCTION_NAMES)('lets %s do to no kind of object what it does to others only', (by) => {
    const done = new Set([...recorded.values()].map((call) => `${call.by} ${call.action} ${kindOf(call)}`));
    const wider = [...s3Actions].flatMap((action) =>
      KINDS.filter((kind) => !done.has(`${by} ${action} ${kindOf(kind)}`))
        .filter((kind) => {
          const context: RecordedCall['context'] = kind.key === undefined ? { 's3:prefix': '' } : {};
          const [call] = deployment.callsOf({ by, action, context, kms: [], ...kind });
          return call !== undefined && isAllowed(permissions[by], call);
        })
        .map((kind) => `${action} ${kindOf(kind)}`),
    );
    expect(wider).toEqual(Object.keys(WIDER[by]));
  });

  it.each(FUNCTION_NAMES)('lets the code of %s do nothing outside of the pipeline', (by) => {
    const s3 = deployment.outside().flatMap((resource) => [...s3Actions].map((action) => ({ action, resource })));
    const keys = new Set(permissions[by].map(({ resource }) => resource).filter((one) => one.includes(':kms:')));
    const kms = [...keys].flatMap((resource) =>
      ['kms:Decrypt', 'kms:GenerateDataKey', 'kms:Encrypt'].map((action) => ({ action, resource })),
    );
    // Lambda connects the function to its VPC with the same role.
    const network = NETWORK_ACTIONS.map((action) => ({ action, resource: '*' }));
    const bus = permissions[by].filter(({ action }) => action === 'events:PutEvents').map(({ resource }) => resource);
    const events = [`arn:aws:events:${REGION}:${ACCOUNT}:event-bus/somebodys`, ...bus].map((resource, index) => ({
      action: 'events:PutEvents',
      resource,
      context: { 'events:source': index === 0 ? 'flowdrop' : 'aws.s3' },
    }));
    const messages = { action: 'sqs:SendMessage', resource: `arn:aws:sqs:${REGION}:${ACCOUNT}:somebodys` };
    const secret = `arn:aws:secretsmanager:${REGION}:${ACCOUNT}:secret:somebodys-AbCdEf`;
    const secrets = { action: 'secretsmanager:GetSecretValue', resource: secret };
    const others = [...s3, ...kms, ...network, ...events, messages, secrets].map((call) =>
      deployment.byCodeOf(by, call),
    );
    expect(others.filter((call) => isAllowed(permissions[by], call)).map(lineOf)).toEqual([]);
  });

  it('names every action in full', () => {
    const all = Object.values(permissions).flat();
    expect(all.filter(({ action }) => /[*?]/.test(action)).map(lineOf)).toEqual([]);
  });

  it.each(FUNCTION_NAMES)(
    'has wildcards for %s only in resources that are acknowledged one by one, with reasons',
    (by) => {
      const wildcards = permissions[by]
        .filter(({ effect, resource }) => effect === 'Allow' && /[*?]/.test(resource))
        .map(({ resource }) => resource)
        .filter((resource) => !UNSEEN_WILDCARDS.some(({ pattern }) => pattern.test(resource)));
      const acknowledged = acknowledgementsOf(
        root,
        `${{ 'create-flow': 'CreateFlow', 'collect-outputs': 'CollectOutputs' }[by]}/Role`,
      );
      for (const { reason } of acknowledged) expect(reason).toMatch(/^[A-Z].{30,}\.$/);
      const resources = acknowledged.map(({ id }) => {
        const [, resource = id] = /^Annotation::AwsSolutions-IAM5\[Resource::(.*)\]$/.exec(id) ?? [];
        return resource.replace(/<([\w:]+)(?:\.(\w+))?>/g, (_, name, attribute) =>
          resolve(attribute === undefined ? { Ref: name } : { 'Fn::GetAtt': [name, attribute] }, template),
        );
      });
      expect(new Set(resources)).toEqual(new Set(wildcards));
      expect(findings).toEqual([]);
    },
  );
});
