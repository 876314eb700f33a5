import { beforeAll, describe, expect, it } from 'vitest';
import { FUNCTION_NAMES, type FunctionName } from '../../infra/bundle/bundle.ts';
import { Deployment, NETWORK_ACTIONS, type Part, type RecordedCall } from './calls.ts';
import { CANARY_KEY, CONFIGURATION_NAMES, CONFIGURATIONS, configured } from './configurations.ts';
import { ACCOUNT, idleOf, isAllowed, lineOf, REGION, refusedOf } from './policies.ts';
import { recordCalls } from './recorded-calls.ts';

let recorded: readonly RecordedCall[];
beforeAll(async () => {
  recorded = await recordCalls();
}, 240_000);

/** Permissions that no call of the configuration uses. */
const UNUSED: Readonly<Record<string, readonly string[]>> = {
  // A bucket may share a data key among objects (S3 Bucket Keys), which S3 then decrypts to write one.
  'existing-resources create-flow': [
    `kms:Decrypt key/results if kms:ViaService StringEquals s3.${REGION}.amazonaws.com or s3.${REGION}.amazonaws.com.cn`,
  ],
};

/** One object of each kind, and one of no known kind. */
const KINDS: readonly Pick<RecordedCall, 'of' | 'key'>[] = [
  { of: 'inbox' },
  { of: 'inbox', key: 'a' },
  { of: 'results' },
  { of: 'results', key: 'a/receipt.json' },
  { of: 'results', key: 'a/chain.json' },
  { of: 'results', key: 'a/flow/asset.png' },
  { of: 'ledger' },
  ...['uploads', 'running', 'waiting', 'failed', 'chains', 'state', 'else'].map(
    (of) => ({ of: 'ledger', key: `${of}/1` }) as const,
  ),
];

function kindOf({ of, key, action }: Pick<RecordedCall, 'of' | 'key'> & { readonly action?: string }): string {
  if (key === undefined) return of;
  // Of the inbox, only this object may be written.
  if (of === 'inbox' && action === 's3:PutObject' && key === CANARY_KEY) return 'the canary';
  if (of === 'results') {
    if (key.endsWith('/chain.json')) return 'a report of a chain';
    return key.endsWith('/receipt.json') ? 'a receipt' : 'an asset';
  }
  return of === 'ledger' ? `ledger/${key.split('/')[0]}` : 'an upload';
}

/** Actions that no policy may name. */
const OTHER_ACTIONS = ['s3:DeleteObjectVersion', 's3:PutObjectAcl', 's3:GetBucketPolicy'];

/** True if the routes of a configuration make chains. */
const hasChains = (name: (typeof CONFIGURATION_NAMES)[number]): boolean =>
  ['chains', 'cdk-json', 'retention'].includes(name);

/** Actions that are allowed on one kind of object too many, because its keys cannot be told from those of another. */
function widerOf(name: (typeof CONFIGURATION_NAMES)[number], by: FunctionName): readonly string[] {
  const wider = [
    // Receipts and reports are stored beside assets, and are too small for a multipart upload.
    ...(by === 'collect-outputs' ? ['s3:AbortMultipartUpload'] : []),
    // Only assets are read by their version.
    ...(by === 'create-flow' && hasChains(name) ? ['s3:GetObjectVersion'] : []),
    // Only assets expire.
    ...(name === 'retention' ? ['s3:GetObjectTagging', 's3:PutObjectTagging'] : []),
  ];
  return wider.flatMap((action) => [`${action} a receipt`, `${action} a report of a chain`]);
}

/** True if only a pipeline whose routes make chains makes this call: an asset becomes the input of a flow. */
const isOfChains = (call: RecordedCall): boolean =>
  call.by === 'create-flow' &&
  (kindOf(call) === 'an asset' || (call.of === 'results' && call.action === 's3:ListBucketVersions'));

/** True if only a pipeline with `afterSuccess` or `alias` makes this call. */
const isOfSources = ({ of, action }: RecordedCall): boolean =>
  (of === 'inbox' && action.endsWith('Tagging')) || (of !== 'ledger' && action === 's3:DeleteObject');

/** True if only a pipeline whose assets expire makes this call. */
const isOfRetention = ({ of, action }: RecordedCall): boolean => of === 'results' && action.endsWith('Tagging');

/** True if only a pipeline that puts a canary again makes this call. */
const isOfCanary = (call: RecordedCall): boolean => kindOf(call) === 'the canary';

function deploymentOf(name: (typeof CONFIGURATION_NAMES)[number]): Deployment {
  const given = Object.entries(CONFIGURATIONS[name].deployment);
  /** The keys or the owners of the existing resources, by the part. */
  const facts = (suffix: string): Partial<Record<Part, string>> =>
    Object.fromEntries(
      given.flatMap(([fact, value]) => (fact.endsWith(suffix) ? [[fact.replace(suffix, ''), value]] : [])),
    );
  return new Deployment(configured(name).template, facts('KeyArn'), facts('Account'));
}

describe.each(CONFIGURATION_NAMES.flatMap((name) => FUNCTION_NAMES.map((by) => [name, by] as const)))(
  'in the configuration %s, the permissions of %s',
  (name, by) => {
    let deployment: Deployment;
    let permissions: ReturnType<Deployment['permissionsOf']>;
    let s3Actions: ReadonlySet<string>;
    const recordedHere = () =>
      recorded
        .filter((call) => hasChains(name) || !isOfChains(call))
        .filter((call) => name === 'after-success' || !isOfSources(call))
        .filter((call) => name === 'retention' || !isOfRetention(call))
        .filter((call) => name === 'another-app' || !isOfCanary(call));
    const callsOf = () => [
      ...recordedHere()
        .filter((call) => call.by === by)
        .flatMap((call) => deployment.callsOf(call)),
      ...deployment.callsOfLambda(by),
      ...deployment.callsOfRounds(by),
    ];
    beforeAll(() => {
      deployment = deploymentOf(name);
      permissions = deployment.permissionsOf(by);
      const actions = FUNCTION_NAMES.flatMap((each) => deployment.permissionsOf(each)).map(({ action }) => action);
      s3Actions = new Set([...OTHER_ACTIONS, ...actions.filter((action) => action.startsWith('s3:'))]);
    });

    it('are enough for every call that it makes, and none is unused', () => {
      const calls = callsOf();
      expect(calls.length).toBeGreaterThan(100);
      expect(refusedOf(permissions, calls).map(lineOf)).toEqual([]);
      expect(idleOf(permissions, calls).map(lineOf)).toEqual(UNUSED[`${name} ${by}`] ?? []);
    });

    it('allow no action on a kind of object for which it needs others only', () => {
      const done = new Set(recordedHere().map((call) => `${call.by} ${call.action} ${kindOf(call)}`));
      const wider = [...s3Actions].flatMap((action) =>
        KINDS.filter((kind) => !done.has(`${by} ${action} ${kindOf(kind)}`))
          .filter((kind) => {
            const context: RecordedCall['context'] = kind.key === undefined ? { 's3:prefix': '' } : {};
            const [call] = deployment.callsOf({ by, action, context, kms: [], ...kind });
            return call !== undefined && isAllowed(permissions, call);
          })
          .map((kind) => `${action} ${kindOf(kind)}`),
      );
      expect(wider.sort()).toEqual([...widerOf(name, by)].sort());
    });

    it('allow its code nothing outside of the pipeline', () => {
      const s3 = deployment
        .outside()
        .flatMap(({ resource, owner }) =>
          [...s3Actions].map((action) => ({ action, resource, context: { 'aws:ResourceAccount': owner } })),
        );
      const resourcesOf = (service: string) =>
        new Set(permissions.map(({ resource }) => resource).filter((one) => one.startsWith(`arn:aws:${service}:`)));
      // Not by the code itself, but by the services that hold the data.
      const kms = [...resourcesOf('kms')].flatMap((resource) =>
        ['kms:Decrypt', 'kms:GenerateDataKey', 'kms:Encrypt'].map((action) => ({ action, resource })),
      );
      // Lambda connects the function to its VPC with the same role, so the code must be denied the same.
      const network = NETWORK_ACTIONS.map((action) => ({ action, resource: '*' }));
      const others = (service: string, resource: string) => `arn:aws:${service}:${REGION}:${ACCOUNT}:${resource}`;
      const put = (resource: string, source: string) => ({
        action: 'events:PutEvents',
        resource,
        context: { 'events:source': source },
      });
      const events = Array.from(resourcesOf('events'), (bus) => put(bus, 'aws.s3'));
      const elsewhere = [
        put(others('events', 'event-bus/others'), 'flowdrop'),
        { action: 'sqs:SendMessage', resource: others('sqs', 'others') },
        { action: 'secretsmanager:GetSecretValue', resource: others('secretsmanager', 'secret:others-AbCdEf') },
      ];
      const calls = [...s3, ...kms, ...network, ...events, ...elsewhere].map((call) => deployment.byCodeOf(by, call));
      expect(calls.filter((call) => isAllowed(permissions, call)).map(lineOf)).toEqual([]);
    });

    it('allow it no bucket that a stranger made under the name of one of its own', () => {
      const ours = callsOf().filter(({ action }) => action.startsWith('s3:'));
      const taken = ours.map((call) => ({
        ...call,
        context: { ...call.context, 'aws:ResourceAccount': '999999999999' },
      }));
      expect(taken.length).toBeGreaterThan(100);
      expect(taken.filter((call) => isAllowed(permissions, call)).map(lineOf)).toEqual([]);
    });

    it('name every action in full', () => {
      expect(permissions.filter(({ action }) => /[*?]/.test(action)).map(lineOf)).toEqual([]);
    });
  },
);
