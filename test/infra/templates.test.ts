import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { parseCollectEvent } from '../../functions/operator/collect-event.ts';
import { parseEnv } from '../../functions/settings/environment.ts';
import { SETTINGS_DEFAULT } from '../../functions/settings/settings.ts';
import { parseStackContext } from '../../infra/deployment.ts';
import {
  CONFIGURATION_NAMES,
  CONFIGURATIONS,
  type Configuration,
  type ConfigurationName,
  configured,
} from './configurations.ts';
import { differences, readable, yaml } from './readable.ts';
import type { Synthesis } from './synthesis.ts';
import { environmentOf, only, resources } from './template.ts';

const RUNBOOK = readFileSync(new URL('../../docs/runbook.md', import.meta.url), 'utf8');

/** Types that CloudFormation cannot tag, as far as a pipeline has them. */
const UNTAGGABLE = [
  'AWS::Events::ApiDestination',
  'AWS::Events::Connection',
  'AWS::Events::EventBusPolicy',
  'AWS::IAM::Policy',
  'AWS::Lambda::EventInvokeConfig',
  'AWS::Logs::QueryDefinition',
  'AWS::S3::BucketPolicy',
  'AWS::SQS::QueuePolicy',
  'AWS::Scheduler::Schedule',
];

/** The resources of the pipeline itself, without those of the app around it. */
const own = ({ template }: Synthesis, ...types: readonly string[]) =>
  types.flatMap((type) => resources(template, type)).filter(({ id }) => id.startsWith('Pipeline'));

const validated = (name: ConfigurationName): Synthesis => configured(name, true);

/** A metric of an alarm, or the expression over them. */
interface AlarmTerm {
  readonly Id: string;
  readonly Expression?: string;
  readonly MetricStat?: { readonly Metric: { readonly MetricName: string } };
}

interface AlarmProperties {
  readonly Threshold: number;
  readonly TreatMissingData: string;
  readonly MetricName: string;
  readonly Metrics?: readonly AlarmTerm[];
}

/** Whether an alarm is on while its metrics have these values, and no other has a datapoint. */
function isRaised(alarm: AlarmProperties, values: Readonly<Record<string, number>>): boolean {
  const { Threshold, TreatMissingData, MetricName, Metrics } = alarm;
  const terms = Metrics ?? [{ Id: 'own', MetricStat: { Metric: { MetricName } } }];
  const measured = terms.flatMap(({ Id, MetricStat }) => (MetricStat ? [{ Id, ...MetricStat.Metric }] : []));
  const expression = terms.find(({ Expression }) => Expression !== undefined)?.Expression ?? measured[0]?.Id ?? '';
  const code = expression.replace(/FILL\((\w+), 0\)/g, '($1 ?? 0)').replaceAll(' AND ', ' && ');
  const ifElse = (condition: boolean, yes: number, no: number) => (condition ? yes : no);
  const evaluate = new Function('IF', ...measured.map(({ Id }) => Id), `return ${code};`);
  const value = evaluate(ifElse, ...measured.map((metric) => values[metric.MetricName]));
  return value === undefined ? TreatMissingData === 'breaching' : value >= Threshold;
}

/** What holds for all templates. */
const RULES: Readonly<
  Record<string, (synthesis: Synthesis, deployment: Readonly<Record<string, unknown>>, context: unknown) => void>
> = {
  'passes the checks at synth': ({ findings }) => expect(findings).toEqual([]),

  'acknowledges to version 2 of cdk-nag what it acknowledges to version 3, at the resource itself': (synthesis) => {
    const { acknowledged, acknowledgedByMetadata } = synthesis;
    const constructs = acknowledgedByMetadata.map((each) => each.replace(/(\/\w*Policy\w*)?\/Resource (?=Aws)/, ' '));
    const ofNag = acknowledged.map((each) => each.replace('Annotation::', ''));
    expect(new Set(constructs)).toEqual(new Set(ofNag));
    // Shorter ones are an error, and others would have to be encoded.
    for (const each of ofNag) expect(each).toMatch(/: [ -~]{10,}$/);
  },

  'has no custom resource, and tags every resource that can have tags': ({ template }, { tags = {} }) => {
    const all = Object.entries<{ Type: string; Properties: object }>(template.toJSON().Resources);
    const names = ['flowdrop:pipeline', ...Object.keys(tags as object)];
    const untagged = all
      .filter(
        ([id, { Properties }]) =>
          id.startsWith('Pipeline') && !names.every((name) => JSON.stringify(Properties).includes(`"${name}"`)),
      )
      .map(([, { Type }]) => Type);
    expect(UNTAGGABLE).toEqual(expect.arrayContaining([...new Set(untagged)]));
  },

  'has private buckets that are encrypted, refuse requests without TLS, and delete abandoned parts': (synthesis) => {
    const policies = own(synthesis, 'AWS::S3::BucketPolicy');
    for (const bucket of own(synthesis, 'AWS::S3::Bucket')) {
      expect(bucket.BucketEncryption).toBeDefined();
      expect(Object.values(bucket.PublicAccessBlockConfiguration)).toEqual([true, true, true, true]);
      const { PolicyDocument } = only(policies.filter(({ Bucket }) => Bucket.Ref === bucket.id));
      const Condition = { Bool: { 'aws:SecureTransport': 'false' } };
      expect(PolicyDocument.Statement).toContainEqual(expect.objectContaining({ Effect: 'Deny', Condition }));
      const [{ AbortIncompleteMultipartUpload: abandoned }] = bucket.LifecycleConfiguration.Rules;
      expect(abandoned.DaysAfterInitiation).toBeLessThanOrEqual(7);
    }
  },

  'keeps its buckets with their policies, but not if their first deployment fails': (synthesis, { removalPolicy }) => {
    const expected = removalPolicy === 'destroy' ? 'Delete' : 'RetainExceptOnCreate';
    for (const { id, DeletionPolicy } of own(synthesis, 'AWS::S3::Bucket', 'AWS::S3::BucketPolicy'))
      expect([id, DeletionPolicy]).toEqual([id, expected]);
  },

  'encrypts everything that holds data with the key, if one is given': (synthesis, { encryptionKeyArn }) => {
    const [{ id } = {}] = resources(synthesis.template, 'AWS::KMS::Key');
    const key = id === undefined ? encryptionKeyArn : { 'Fn::GetAtt': [id, 'Arn'] };
    const types = ['AWS::S3::Bucket', 'AWS::SQS::Queue', 'AWS::SecretsManager::Secret', 'AWS::Logs::LogGroup'];
    for (const resource of own(synthesis, ...types)) {
      const encrypted = JSON.stringify(resource.BucketEncryption ?? resource.KmsMasterKeyId ?? resource.KmsKeyId);
      if (key !== undefined) expect(encrypted, resource.id).toContain(JSON.stringify(key));
    }
  },

  'hides a message for two minutes longer than its batch waits and its function runs': (synthesis) => {
    const queue = only(own(synthesis, 'AWS::SQS::Queue').filter(({ RedrivePolicy }) => RedrivePolicy !== undefined));
    const mappings = own(synthesis, 'AWS::Lambda::EventSourceMapping');
    const mapping = only(mappings.filter(({ FunctionResponseTypes }) => FunctionResponseTypes !== undefined));
    const [{ Timeout }] = own(synthesis, 'AWS::Lambda::Function');
    expect(queue.VisibilityTimeout).toBe(Timeout + 120 + mapping.MaximumBatchingWindowInSeconds);
    // A file that crashes the function ends with a receipt before its message becomes a dead letter.
    expect(queue.RedrivePolicy.maxReceiveCount).toBeGreaterThan(SETTINGS_DEFAULT.attemptsMax);
  },

  'gives both functions one environment, which they can parse, within the limit of Lambda': (synthesis) => {
    const [one, other] = own(synthesis, 'AWS::Lambda::Function').map(({ Environment }) => Environment.Variables);
    expect(one).toEqual(other);
    const environment = environmentOf(one);
    expect(Object.entries(environment).join('').length).toBeLessThan(4096);
    if (environment.ROUTES !== 'file:routes.json') expect(() => parseEnv(environment)).not.toThrow();
  },

  'gives the functions what the configuration says': (synthesis, _, context) => {
    const [{ Environment }] = own(synthesis, 'AWS::Lambda::Function');
    const { ROUTES, ...others } = environmentOf(Environment.Variables);
    if (context === undefined) return;
    const { settings, deployment: __, ...expected } = parseStackContext(context).context;
    const isBeside = ROUTES === 'file:routes.json';
    const parsed = parseEnv({ ...others, ROUTES: isBeside ? JSON.stringify(expected.routes) : ROUTES });
    expect(parsed).toMatchObject({ ...expected, ...settings });
  },

  'has the name of the pipeline in every name that an account has once': (synthesis) => {
    const [{ Environment }] = own(synthesis, 'AWS::Lambda::Function');
    const { PIPELINE } = Environment.Variables;
    const types = [
      'Lambda::Function',
      'Logs::LogGroup',
      'Logs::QueryDefinition',
      'CloudWatch::Alarm',
      'SSM::Parameter',
    ];
    const named = types.flatMap((type) => resources(synthesis.template, `AWS::${type}`));
    for (const { FunctionName, LogGroupName, AlarmName, Name } of named)
      expect(FunctionName ?? LogGroupName ?? AlarmName ?? Name).toMatch(
        new RegExp(`^(/|/aws/lambda/)?${PIPELINE}[-/]`),
      );
    for (const { DashboardName } of own(synthesis, 'AWS::CloudWatch::Dashboard'))
      expect(JSON.stringify(DashboardName)).toContain(`"${PIPELINE}-`);
  },

  'starts the ticks by events that the function can parse': (synthesis) => {
    const events = own(synthesis, 'AWS::Scheduler::Schedule').map(({ Target }) => JSON.parse(Target.Input));
    const ticks = events.filter((event) => !('canary' in event));
    const collectors = ticks.map((event) => parseCollectEvent(event).collector);
    expect(collectors).toEqual(ticks.map((_, index) => ({ index, of: ticks.length })));
  },

  'notifies of every alarm that begins, or warns that no one is notified': (synthesis) => {
    const isWarned = synthesis.messages.some((message) => message.startsWith('No one is notified of alarms. Set'));
    for (const { AlarmActions, OKActions } of own(synthesis, 'AWS::CloudWatch::Alarm')) {
      // A new alarm becomes OK, which nobody needs to know.
      expect(OKActions).toBeUndefined();
      expect(AlarmActions === undefined).toBe(isWarned);
    }
  },

  'has no alarm that is on before there is any metric, and one that is on if there is nothing but the queue': (
    synthesis,
    { monitoring },
  ) => {
    const alarms = own(synthesis, 'AWS::CloudWatch::Alarm');
    const isOn = (metrics: Readonly<Record<string, number>>) =>
      alarms
        .filter((alarm) => isRaised(alarm, metrics))
        .map(({ AlarmName }) => AlarmName.replace(/^.*?-(?=\w+-missing)/, ''));
    expect(isOn({})).toEqual([]);
    if (monitoring === 'none') return;
    expect(isOn({ ApproximateNumberOfMessagesVisible: 0 })).toContain('tick-missing');
    expect(isOn({ ApproximateNumberOfMessagesVisible: 0, TicksCompleted: 1 })).not.toContain('tick-missing');
  },

  'links each alarm to its entry in the runbook': (synthesis, { runbookUrl = 'docs/runbook.md' }) => {
    for (const { AlarmName, AlarmDescription } of own(synthesis, 'AWS::CloudWatch::Alarm')) {
      const [, url, heading] = / Runbook: (.*)#(.*)$/.exec(AlarmDescription) ?? [];
      expect(url).toBe(runbookUrl);
      expect(AlarmName.replace(/-\d+$/, '')).toMatch(new RegExp(`-${heading}$`));
      const entry = RUNBOOK.split(/^## /m).find((each) => each.startsWith(`${heading}\n`));
      expect(entry).toMatch(/\*\*Meaning\.\*\*[\s\S]+\*\*Look\.\*\*[\s\S]+\*\*Do\.\*\*/);
    }
  },
};

describe.each(CONFIGURATION_NAMES)('the template of the configuration %s', (name) => {
  it.each(Object.entries(RULES))('%s', (_, rule) => {
    const { deployment, context }: Configuration = CONFIGURATIONS[name];
    rule(validated(name), deployment, context);
  });

  // What a change means for what is deployed. After a review: vitest run test/infra/templates.test.ts --update
  it('is as it was reviewed', async () => {
    const defaults = readable(validated('defaults'));
    const [file, text] =
      name === 'defaults'
        ? [`${name}.yaml`, yaml(defaults)]
        : [`${name}.diff`, differences(defaults, readable(validated(name)))];
    await expect(text).toMatchFileSnapshot(`templates/${file}`);
  });
});
