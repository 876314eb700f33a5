import { S3Client } from '@aws-sdk/client-s3';
import { describe, expect, it, onTestFinished } from 'vitest';
import { type Checked, runChecks } from '../../operations/checks.ts';
import { type PlannedResources, RESOURCE_CHECKS } from '../../operations/planned-resources.ts';
import { web } from '../support/servers.ts';
import { signal } from './support.ts';

const ACCOUNT = '012345678901';
const REGION = 'eu-central-1';
const KEY = `arn:aws:kms:${REGION}:${ACCOUNT}:key/11111111-2222`;
const OTHER_KEY = `arn:aws:kms:${REGION}:${ACCOUNT}:key/99999999-2222`;

interface Answer {
  readonly status?: number;
  readonly body: string | object;
}

const xml = (name: string, inside: string): string => `<${name}>${inside}</${name}>`;
const s3Error = (status: number, code: string): Answer => ({
  status,
  body: xml('Error', `${xml('Code', code)}${xml('Message', 'refused')}`),
});
const jsonError = (code: string): Answer => ({ status: 400, body: { __type: code, message: 'refused' } });

/** The policy of a key, which lets in IAM and these services. */
const policy = (...services: readonly string[]): Answer => ({
  body: {
    Policy: JSON.stringify({
      Statement: [
        { Effect: 'Allow', Principal: { AWS: `arn:aws:iam::${ACCOUNT}:root` }, Action: 'kms:*' },
        ...services.map((Service) => ({
          Effect: 'Allow',
          Principal: { Service },
          Action: ['kms:Decrypt*', 'kms:Gen*'],
        })),
      ],
    }),
  },
});

/** An account in which nothing is wrong: what it answers, by the operation or by the bucket and the question. */
const SOUND: Readonly<Record<string, Answer>> = {
  GetCallerIdentity: {
    body: xml('GetCallerIdentityResponse', xml('GetCallerIdentityResult', xml('Account', ACCOUNT))),
  },
  DescribeStacks: {
    body: xml(
      'DescribeStacksResponse',
      xml('DescribeStacksResult', xml('Stacks', xml('member', xml('StackName', 'CDKToolkit')))),
    ),
  },
  'TrentService.DescribeKey': { body: { KeyMetadata: { KeyState: 'Enabled' } } },
  'TrentService.GetKeyPolicy': policy(
    `logs.${REGION}.amazonaws.com`,
    's3.amazonaws.com',
    'events.amazonaws.com',
    'cloudwatch.amazonaws.com',
  ),
  'secretsmanager.DescribeSecret': { body: { VersionIdsToStages: { one: ['AWSCURRENT'] } } },
  '/2016-08-19/account-settings/': {
    body: { AccountLimit: { ConcurrentExecutions: 1_000, UnreservedConcurrentExecutions: 900 } },
  },
  list: { body: xml('ListBucketResult', '') },
  encryption: { body: xml('ServerSideEncryptionConfiguration', '') },
  notification: { body: xml('NotificationConfiguration', xml('EventBridgeConfiguration', '')) },
  lifecycle: s3Error(404, 'NoSuchLifecycleConfiguration'),
};

/** Checks a configuration in an account that answers so, apart from what is sound. */
async function checked(
  resources: Partial<PlannedResources>,
  answers: Readonly<Record<string, Answer>> = {},
): Promise<Readonly<Record<string, Checked>>> {
  const { origin } = await web(async (request, response) => {
    let sent = '';
    for await (const chunk of request) sent += chunk;
    const { pathname, searchParams } = new URL(request.url ?? '', 'http://aws');
    const question = ['encryption', 'notification', 'lifecycle'].find((name) => searchParams.has(name)) ?? 'list';
    const operation = new URLSearchParams(sent).get('Action') ?? request.headers['x-amz-target'];
    const name = String(operation ?? (pathname.startsWith('/2016') ? pathname : question));
    const { status = 200, body } = answers[`${pathname.replace(/\/$/, '')}?${name}`] ??
      answers[name] ??
      SOUND[name] ?? { status: 500, body: name };
    response.writeHead(status).end(typeof body === 'string' ? body : JSON.stringify(body));
  });
  const credentials = { accessKeyId: 'AKIAEXAMPLE', secretAccessKey: 'obviously-fake' };
  const endpoints = Object.fromEntries(
    ['sts', 'cloudformation', 'kms', 'secretsmanager', 'lambda'].map((service) => [service, origin]),
  );
  const access = { region: REGION, credentials: async () => credentials, endpoints };
  const s3 = new S3Client({ region: REGION, endpoint: origin, forcePathStyle: true, credentials });
  onTestFinished(() => s3.destroy());
  const defaults = { hasCanary: false, maxConcurrency: 5, collectors: 1, ledgerRetentionDays: 'forever' } as const;
  const aws = { resources: { ...defaults, ...resources }, access, s3 };
  const results = await runChecks(RESOURCE_CHECKS, { aws, signal });
  return Object.fromEntries(results.map((each) => [each.check, each]));
}

const resultOf = async (check: string, ...asked: Parameters<typeof checked>) => (await checked(...asked))[check];

const ALL = {
  account: ACCOUNT,
  inboxBucket: 'their-inbox',
  inboxKeyArn: KEY,
  resultsBucket: 'their-results',
  ledgerBucket: 'their-ledger',
  accessLogsBucket: 'their-logs',
  tokenSecret: 'flows/token',
  tokenKeyArn: KEY,
  encryptionKeyArn: KEY,
  alarmEmail: 'ops@example.com',
};

it('a sound account and sound resources are good, and so is a configuration that names none', async () => {
  for (const resources of [ALL, {}]) {
    const results = Object.values(await checked(resources));
    expect(results.map(({ check, result }) => [check, result])).toEqual([
      ['the account', 'good'],
      ['buckets of your own', 'good'],
      ['keys of your own', 'good'],
      ['the secret', 'good'],
      ['quotas', 'good'],
    ]);
  }
});

it('credentials of another account are told before anything is deployed to it', async () => {
  expect(await resultOf('the account', { account: '999999999999' })).toMatchObject({
    result: 'fault',
    what: `Your credentials are of the account ${ACCOUNT}, and deployment.account is 999999999999.`,
  });
});

it('an account that CDK was not set up in is warned of', async () => {
  const absent = {
    status: 400,
    body: xml(
      'ErrorResponse',
      xml('Error', '<Code>ValidationError</Code><Message>Stack CDKToolkit does not exist</Message>'),
    ),
  };
  expect(await resultOf('the account', {}, { DescribeStacks: absent })).toMatchObject({
    result: 'warning',
    what: `The account ${ACCOUNT} has no stack CDKToolkit in ${REGION}, without which CDK does not deploy.`,
    todo: expect.stringContaining(`npx cdk bootstrap aws://${ACCOUNT}/${REGION}`),
  });
});

describe('buckets of your own', () => {
  const what = async (...asked: Parameters<typeof checked>) => (await resultOf('buckets of your own', ...asked))?.what;
  const encrypted = (key: string): Answer => ({
    body: xml(
      'ServerSideEncryptionConfiguration',
      xml(
        'Rule',
        xml(
          'ApplyServerSideEncryptionByDefault',
          `${xml('SSEAlgorithm', 'aws:kms')}${key === '' ? '' : xml('KMSMasterKeyID', key)}`,
        ),
      ),
    ),
  });

  it('that are gone, or in another region, are named, all at once', async () => {
    const answers = {
      '/their-inbox?list': s3Error(404, 'NoSuchBucket'),
      '/their-logs?list': s3Error(301, 'PermanentRedirect'),
    };
    expect(await what(ALL, answers)).toBe(
      'There is no bucket their-inbox (deployment.inboxBucket).\n' +
        `The bucket their-logs (deployment.accessLogsBucket) is in another region than ${REGION}.`,
    );
  });

  describe('with a lifecycle', () => {
    const ledger = { ledgerBucket: 'their-ledger' };
    const rule = (filter: string, action: string, status = 'Enabled'): Record<string, Answer> => ({
      lifecycle: {
        body: xml(
          'LifecycleConfiguration',
          xml('Rule', xml('ID', 'cleanup') + xml('Status', status) + xml('Filter', filter) + action),
        ),
      },
    });
    const expires = (days: number) => xml('Expiration', xml('Days', String(days)));
    const archives = (to: string) => xml('Transition', xml('Days', '90') + xml('StorageClass', to));

    it('that deletes or archives the ledger are warned of, because files could be paid for again', async () => {
      expect(await resultOf('buckets of your own', ledger, rule('', expires(7)))).toMatchObject({
        result: 'warning',
        what:
          'The lifecycle rule "cleanup" of the bucket their-ledger deletes objects of the ledger after 7 days. ' +
          'A file whose entry is gone could be paid for again.',
        todo:
          'Let it leave out running/, waiting/, state/, and keep uploads/, chains/, failed/ for ever ' +
          '(settings.ledgerRetentionDays).',
      });
      const days = { ...ledger, ledgerRetentionDays: 90 };
      expect(await what(days, rule(xml('Prefix', 'uploads/'), expires(89)))).toContain('after 89 days');
      // Markers and states must stay, whatever the age of entries.
      expect(await what(days, rule('', expires(90)))).toContain('after 90 days');
      expect(await what(days, rule(xml('Prefix', 'waiting/'), expires(3_650)))).toContain('after 3650 days');
      expect(await what(ledger, rule(xml('Prefix', 'state/costs/'), expires(89)))).toContain('after 89 days');
      expect(await what(ledger, rule('', xml('Expiration', xml('Date', '2030-01-01T00:00:00Z'))))).toContain(
        'at a date',
      );
      for (const to of ['GLACIER', 'DEEP_ARCHIVE'])
        expect(await what(ledger, rule('', archives(to)))).toContain('archives objects');
    });

    it.each<[string, Partial<PlannedResources>, Record<string, Answer>]>([
      [
        'entries as late as the settings say',
        { ...ledger, ledgerRetentionDays: 90 },
        rule(xml('Prefix', 'uploads/'), expires(90)),
      ],
      ['elsewhere', ledger, rule(xml('Prefix', 'logs/'), expires(7))],
      ['objects with a tag', ledger, rule(xml('Tag', xml('Key', 'a') + xml('Value', 'b')), expires(7))],
      ['nothing, because it is off', ledger, rule('', expires(7), 'Disabled')],
      ['old versions only', ledger, rule('', xml('NoncurrentVersionExpiration', xml('NoncurrentDays', '7')))],
      ['another bucket than the ledger', { resultsBucket: 'their-results' }, rule('', expires(7))],
    ])('that deletes %s is good', async (_, resources, answers) => {
      expect(await what(resources, answers)).toBeUndefined();
    });
  });

  it('whose events are off would leave files to the daily sweep', async () => {
    const off = { notification: { body: xml('NotificationConfiguration', '') } };
    expect(await what({ inboxBucket: 'their-inbox' }, off)).toMatch(/^The bucket their-inbox does not send its events/);
    expect(await what({ resultsBucket: 'their-results' }, off)).toBeUndefined();
  });

  it('with a key that the configuration does not name are found', async () => {
    const bucket = { resultsBucket: 'their-results' };
    expect(await what(bucket, { encryption: encrypted(KEY) })).toContain('deployment.resultsKeyArn is not set');
    expect(await what({ ...bucket, resultsKeyArn: OTHER_KEY }, { encryption: encrypted(KEY) })).toContain(
      `deployment.resultsKeyArn is ${OTHER_KEY}`,
    );
    expect(await what({ ...bucket, resultsKeyArn: KEY }, { encryption: encrypted('11111111-2222') })).toBeUndefined();
    expect(await what(bucket, { encryption: encrypted('') })).toBeUndefined();
  });

  it.each(['', 'alias/aws/s3', `arn:aws:kms:${REGION}:222222222222:alias/aws/s3`])(
    'of another account with the key "%s" of AWS are found, because no role of this account may use it',
    async (key) => {
      const owners = { inboxAccount: '222222222222', resultsAccount: '222222222222', ledgerAccount: '222222222222' };
      const buckets = { inboxBucket: 'theirs', resultsBucket: 'results', ledgerBucket: 'ledger' };
      const faulty = async (more: object) =>
        (await what({ ...buckets, ...owners, ...more }, { encryption: encrypted(key) }))?.match(
          /(?<=^The bucket )\w+/gm,
        );
      expect(await faulty({})).toEqual(['theirs', 'results', 'ledger']);
      expect(await faulty({ inboxAccount: undefined, ledgerAccount: ACCOUNT })).toEqual(['results']);
      // No write takes the encryption of the bucket then. Uploads still do.
      expect(await faulty({ encryptionHeader: 'AES256' })).toEqual(['theirs']);
      expect(
        await resultOf(
          'buckets of your own',
          { ...buckets, resultsAccount: '222222222222' },
          { encryption: encrypted(key) },
        ),
      ).toMatchObject({
        result: 'fault',
        what: "The bucket results of the account 222222222222 is encrypted with AWS's own key (aws/s3), which no role of another account may use.",
        todo: 'Let its owner change the default encryption to SSE-S3, or to a key of KMS of their own, and then set deployment.resultsKeyArn.',
      });
    },
  );

  it('of another account with SSE-S3, or with a key that the configuration names, are good', async () => {
    const bucket = { resultsBucket: 'results', resultsAccount: '222222222222' };
    const sses3 = xml('Rule', xml('ApplyServerSideEncryptionByDefault', xml('SSEAlgorithm', 'AES256')));
    expect(
      await what(bucket, { encryption: { body: xml('ServerSideEncryptionConfiguration', sses3) } }),
    ).toBeUndefined();
    expect(await what({ ...bucket, resultsKeyArn: KEY }, { encryption: encrypted(KEY) })).toBeUndefined();
    expect(await what(bucket, { encryption: encrypted('alias/theirs') })).toBeUndefined();
  });

  it('that you may not look at are not called good', async () => {
    expect(
      await resultOf('buckets of your own', ALL, { '/their-inbox?list': s3Error(403, 'AccessDenied') }),
    ).toMatchObject({
      result: 'not checked',
    });
  });

  it('that you may not look at do not hide what is wrong with the others', async () => {
    const answers = {
      '/their-inbox?list': s3Error(404, 'NoSuchBucket'),
      '/their-results?list': s3Error(403, 'AccessDenied'),
    };
    expect(await resultOf('buckets of your own', ALL, answers)).toMatchObject({
      result: 'fault',
      what:
        'There is no bucket their-inbox (deployment.inboxBucket).\n' +
        'The bucket their-results (deployment.resultsBucket) was not checked: AccessDenied',
    });
  });
});

describe('keys of your own', () => {
  const what = async (...asked: Parameters<typeof checked>) => (await resultOf('keys of your own', ...asked))?.what;

  it('that are absent, disabled or in another region are named', async () => {
    const encryptionKeyArn = KEY;
    expect(await what({ encryptionKeyArn }, { 'TrentService.DescribeKey': jsonError('NotFoundException') })).toBe(
      `The key ${KEY} (deployment.encryptionKeyArn) does not exist.`,
    );
    const disabled = { body: { KeyMetadata: { KeyState: 'PendingDeletion' } } };
    expect(await what({ encryptionKeyArn }, { 'TrentService.DescribeKey': disabled })).toContain(
      'is not enabled (PendingDeletion)',
    );
    expect(await what({ encryptionKeyArn: KEY.replace(REGION, 'us-east-1') })).toContain(
      `is not in the region ${REGION}`,
    );
  });

  it('whose policy keeps IAM out, or a service that needs the key, are found', async () => {
    const closed = { body: { Policy: JSON.stringify({ Statement: [] }) } };
    expect(await what({ inboxKeyArn: KEY }, { 'TrentService.GetKeyPolicy': closed })).toContain(
      'does not leave access to IAM',
    );
    const some = { 'TrentService.GetKeyPolicy': policy(`logs.${REGION}.amazonaws.com`) };
    expect(await what({ inboxKeyArn: KEY }, some)).toBeUndefined();
    expect(await what({ encryptionKeyArn: KEY }, some)).toContain('does not let in s3.amazonaws.com.');
    const own = { encryptionKeyArn: KEY, inboxBucket: 'their-inbox', alarmEmail: 'ops@example.com' };
    expect(await what(own, some)).toContain('does not let in events.amazonaws.com, cloudwatch.amazonaws.com.');
    // Of what could not be told, EventBridge makes a dead letter.
    const told = { encryptionKeyArn: KEY, notify: [{ url: 'https://hooks.example.com' }] };
    expect(await what(told, some)).toContain('does not let in s3.amazonaws.com, events.amazonaws.com.');
  });

  it('need no more than the functions do with them', async () => {
    const readable = { AWS: `arn:aws:iam::${ACCOUNT}:root` };
    const Statement = [{ Effect: 'Allow', Principal: readable, Action: 'kms:Decrypt' }];
    const answers = { 'TrentService.GetKeyPolicy': { body: { Policy: JSON.stringify({ Statement }) } } };
    expect(await what({ tokenKeyArn: KEY, inboxKeyArn: KEY, hasCanary: false }, answers)).toBeUndefined();
    expect(await what({ inboxKeyArn: KEY, hasCanary: true }, answers)).toContain('deployment.inboxKeyArn');
    expect(await what({ resultsKeyArn: KEY }, answers)).toContain('deployment.resultsKeyArn');
    expect(await what({ ledgerKeyArn: KEY }, answers)).toContain('deployment.ledgerKeyArn');
  });

  it('that you may not look at are not called good', async () => {
    const denied = { 'TrentService.GetKeyPolicy': jsonError('AccessDeniedException') };
    expect(await resultOf('keys of your own', { inboxKeyArn: KEY }, denied)).toMatchObject({
      result: 'not checked',
      what: `The key ${KEY} (deployment.inboxKeyArn) cannot be looked at: AccessDeniedException`,
    });
  });
});

it.each<[string, Answer, Partial<PlannedResources>]>([
  ['does not exist in eu-central-1.', jsonError('ResourceNotFoundException'), {}],
  ['is deleted.', { body: { DeletedDate: 1_700_000_000 } }, {}],
  [`is encrypted with the key ${KEY}, and deployment.tokenKeyArn is not set.`, { body: { KmsKeyId: KEY } }, {}],
  [`deployment.tokenKeyArn is ${OTHER_KEY}.`, { body: { KmsKeyId: KEY } }, { tokenKeyArn: OTHER_KEY }],
  ['holds no value.', { body: {} }, {}],
])('the check finds a secret that %s', async (what, answer, more) => {
  const found = await resultOf(
    'the secret',
    { tokenSecret: 'flows/token', ...more },
    {
      'secretsmanager.DescribeSecret': answer,
    },
  );
  expect(found?.result).toMatch(/fault|warning/);
  expect(found?.what).toContain(what);
});

it('a quota that is too small for the pipeline is warned of', async () => {
  const few = { body: { AccountLimit: { ConcurrentExecutions: 10, UnreservedConcurrentExecutions: 10 } } };
  const answers = { '/2016-08-19/account-settings/': few };
  expect((await resultOf('quotas', { maxConcurrency: 9 }, answers))?.result).toBe('good');
  expect(await resultOf('quotas', { maxConcurrency: 10 }, answers)).toMatchObject({
    result: 'warning',
    what: expect.stringContaining('may run 11 functions at once'),
  });
});
