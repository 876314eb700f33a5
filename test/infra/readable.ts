import type { Synthesis } from './synthesis.ts';

type Data = Readonly<Record<string, unknown>>;

const REGION = `$\{AWS::Region}`;
const ACCOUNT = `$\{AWS::AccountId}`;
/** A bucket of the pipeline, new or existing. */
const BUCKET = /^(?:\$\{Pipeline|their-)(inbox|results|ledger)(?:Bucket\.Arn\})?/i;

const isData = (value: unknown): value is Data => typeof value === 'object' && value !== null && !Array.isArray(value);
const list = (value: unknown): readonly unknown[] => (Array.isArray(value) ? value : [value]);
const isSame = (one: unknown, other: unknown): boolean => JSON.stringify(one) === JSON.stringify(other);

/**
 * What a stack deploys, without what the rules of templates.test.ts or tests of their own show for all templates: tags,
 * the name of the pipeline, the code of the functions, the texts of alarms and queries.
 */
export function readable({ template, messages, acknowledged, stack }: Synthesis): Data {
  const text = JSON.stringify(template.toJSON());
  const [, pipeline = ''] = /"PIPELINE":"([^"]+)"/.exec(text) ?? [];
  const { Resources, Outputs = {} } = short(JSON.parse(text.replaceAll(pipeline, 'flowdrop'))) as Record<string, Data>;
  const all = Object.entries(Resources ?? {}).map(([id, resource]) => [id, resourceOf(resource as Data)] as const);
  const { environment, terminationProtection } = stack;
  return withoutUndefined({
    Stack: { environment, terminationProtection },
    Messages: [...new Set(messages.map((message) => message.replace(/ \[ack: .*\]$/, '')))],
    Acknowledged: [
      ...new Set(acknowledged.map((each) => each.replace(/^\w+\/|Annotation::|(?<=\[)Resource::.*(?=\])/g, ''))),
    ],
    Environment: all.find(([id]) => id.startsWith('PipelineCreateFlowFunction'))?.[1].Variables,
    Outputs: Object.fromEntries(Object.entries(Outputs).map(([name, output]) => [name, (output as Data).Value])),
    Notified: Object.fromEntries(all.flatMap(([, { Severity, Actions }]) => (Severity ? [[Severity, Actions]] : []))),
    ...Object.fromEntries(all.map(([id, { Actions: _, Variables: __, ...resource }]) => [id, resource])),
  });
}

const withoutUndefined = (data: Data): Data => JSON.parse(JSON.stringify(data));

function resourceOf({ Type, Properties = {}, DeletionPolicy, UpdateReplacePolicy, DependsOn }: Data): Data {
  const { Code: _, Tags: __, PolicyName: ___, Environment, ...properties } = Properties as Data;
  if (Type === 'AWS::CloudWatch::Alarm') return alarmOf(properties);
  if (Type === 'AWS::Logs::QueryDefinition') return { Type, Name: properties.Name };
  if (Type === 'AWS::CloudWatch::Dashboard') return { Type, ...widgetsOf(properties.DashboardBody as string) };
  const replaced = UpdateReplacePolicy === DeletionPolicy ? undefined : UpdateReplacePolicy;
  const kept = { DeletionPolicy, UpdateReplacePolicy: replaced, DependsOn };
  return { Type, ...kept, ...properties, ...(Environment as Data), ...(properties.Type !== undefined && { Type }) };
}

interface AlarmMetric {
  readonly Expression?: string;
  readonly MetricStat?: { readonly Metric: Data; readonly Stat: string; readonly Period: number };
}

function alarmOf({ AlarmName, AlarmDescription, AlarmActions, Metrics, ...alarm }: Data): Data {
  const metrics = (Metrics ?? [
    { MetricStat: { Metric: alarm, Stat: alarm.Statistic, Period: alarm.Period } },
  ]) as AlarmMetric[];
  return {
    AlarmName,
    Severity: /Severity: (\w+)/.exec(String(AlarmDescription))?.[1],
    Actions: AlarmActions,
    Of: metrics.map(({ Expression, MetricStat: { Metric = {}, Stat, Period } = {} }) => {
      const [{ Name, Value } = {}] = list(Metric.Dimensions ?? []) as Data[];
      return Expression ?? `${Metric.Namespace} ${Metric.MetricName} of ${Name} ${Value}, ${Stat} of ${Period} s`;
    }),
    If: `${alarm.ComparisonOperator} ${alarm.Threshold} in ${alarm.DatapointsToAlarm} of ${alarm.EvaluationPeriods}, missing: ${alarm.TreatMissingData}`,
  };
}

const withoutHash = (id: string): string => id.replace(/[0-9A-F]{8}$/, '');

/** A value with its references in the form `${Id.Attribute}`, and with a line for each permission of a policy. */
function short(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(short);
  if (typeof value === 'string') return withoutPlace(value);
  if (!isData(value)) return value;
  const { Ref, 'Fn::GetAtt': attribute, 'Fn::Join': join, Statement } = value;
  if (typeof Ref === 'string') return `\${${withoutHash(Ref)}}`;
  if (Array.isArray(attribute)) return `\${${withoutHash(attribute[0])}.${attribute[1]}}`;
  if (Array.isArray(join)) return withoutPlace(join[1].map(short).join(join[0]));
  if (Array.isArray(Statement)) return Statement.flatMap(permissionsIn).sort();
  return Object.fromEntries(Object.entries(value).map(([name, member]) => [name, short(member)]));
}

/** A text with the place of the stack in one form, and ARNs without it. */
const withoutPlace = (text: string): string =>
  text
    .replaceAll('eu-central-1', REGION)
    .replaceAll('123456789012', ACCOUNT)
    .replaceAll(/arn:(aws|\$\{AWS::Partition\}):[\w-]+:(\$\{AWS::Region\})?:(\$\{AWS::AccountId\})?:/g, '');

/** The lines of a statement. Only the permissions of roles have a line for each action on each resource. */
function permissionsIn(statement: Data): readonly string[] {
  const { Effect, Principal, Action, Resource = [], Condition = {} } = short(statement) as Data;
  const conditions = Object.entries(Condition as Record<string, Data>)
    .flatMap(([operator, keys]) =>
      Object.entries(keys).map(([key, values]) => ({ operator, key, values: list(values) })),
    )
    .filter(({ key, values }) => Principal !== undefined || key !== 'aws:ResourceAccount' || values[0] !== ACCOUNT)
    .map(({ operator, key, values }) => ` if ${key} ${operator} ${values.join(' or ')}`)
    .join('');
  if (Principal !== undefined) {
    return [`${Effect} ${inline(Principal)}: ${[list(Action).join(', '), ...list(Resource)].join(' ')}${conditions}`];
  }
  const isOfAnyOwner = !JSON.stringify(Condition).includes('aws:ResourceAccount');
  return list(Action).flatMap((action) =>
    list(Resource).map((resource) => {
      const part = String(resource).replace(BUCKET, (_, name) => name.toLowerCase());
      return `${Effect} ${action} ${part}${isOfAnyOwner && /^s3:/.test(String(action)) ? ' of any owner' : ''}${conditions}`;
    }),
  );
}

/** The place of each widget, its title, and its metrics with their statistics. */
function widgetsOf(body: string): Data {
  const { widgets } = JSON.parse(body) as { widgets: { x: number; y: number; width: number; properties: Data }[] };
  return Object.fromEntries(
    widgets.map(({ x, y, width, properties: { title, alarms, metrics } }) => [
      `${title} (row ${y}, columns ${x} to ${x + width})`,
      ((metrics ?? [[alarms]]) as unknown[][]).map(([namespace, name, ...dimensions]) => {
        if (Array.isArray(namespace)) return `${namespace.length} alarms`;
        return isData(namespace) ? namespace.expression : `${name} ${(dimensions.at(-1) as Data).stat}`;
      }),
    ]),
  );
}

const WIDTH = 120;

/** A value as YAML, on one line. */
function inline(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(inline).join(', ')}]`;
  if (isData(value))
    return `{ ${Object.entries(value)
      .map(([name, member]) => `${name}: ${inline(member)}`)
      .join(', ')} }`;
  return String(value);
}

/** A value as YAML, on lines of its own if it is long. */
export function yaml(value: unknown, indent = ''): string {
  const members = Array.isArray(value)
    ? value.map((member) => ['-', member] as const)
    : Object.entries(value as Data).map(([name, member]) => [`${name}:`, member] as const);
  return members
    .map(([label, member]) => {
      const line = `${indent}${label} ${inline(member)}`;
      const isBlock = typeof member === 'object' && line.length > WIDTH;
      return isBlock ? `${indent}${label}\n${yaml(member, `${indent}  `)}` : `${line}\n`;
    })
    .join('');
}

/** What another stack has instead of the first, by resource. */
export function differences(first: Data, other: Data): string {
  return [...new Set([...Object.keys(first), ...Object.keys(other)])]
    .map((id) => [id, changes(first[id], other[id], '')] as const)
    .filter(([, lines]) => lines !== '')
    .map(([id, lines]) => `${id}:\n${lines}`)
    .join('');
}

function changes(before: unknown, after: unknown, path: string): string {
  if (isSame(before, after)) return '';
  if (isData(before) && isData(after)) {
    const names = new Set([...Object.keys(before), ...Object.keys(after)]);
    return Array.from(names, (name) => changes(before[name], after[name], `${path}${name}: `)).join('');
  }
  if (before === undefined && path === '') return yaml(after, '+ ');
  if (after === undefined && path === '') return '- all of it\n';
  const marked = (mark: string, value: unknown, others: unknown) =>
    list(value ?? [])
      .filter((each) => !Array.isArray(others) || !others.some((one) => isSame(one, each)))
      .map((each) => `${mark} ${path}${inline(each)}\n`)
      .join('');
  return marked('-', before, after) + marked('+', after, before);
}
