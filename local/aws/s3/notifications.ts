import { type Call, demand, EMPTY, type S3Response, type Service, xmlResponse } from './call.ts';
import { opaqueId } from './database.ts';
import { S3Error } from './errors.ts';
import { REGION } from './events.ts';
import { receiveXml } from './incoming.ts';
import { childrenNamed, childText, type XmlElement, type XmlNode } from './xml.ts';

/*
 * The notification configuration of a bucket is checked, stored and answered as in S3, and nothing is delivered to the
 * destinations in it: they are ARNs of queues, topics and functions that do not exist here. So S3's check that they
 * exist is left out, as with `x-amz-skip-destination-validation`, and no test event is sent. What is delivered does not
 * depend on the configuration: `onEvent` of S3Options gets every object that is created or removed.
 */

/** The kinds of destination, in the order in which S3 lists them. */
const KINDS = [
  { element: 'TopicConfiguration', destination: 'Topic', arn: /^arn:aws[\w-]*:sns:([\w-]+):\d{12}:[\w.-]+$/ },
  { element: 'QueueConfiguration', destination: 'Queue', arn: /^arn:aws[\w-]*:sqs:([\w-]+):\d{12}:[\w.-]+$/ },
  {
    element: 'CloudFunctionConfiguration',
    destination: 'CloudFunction',
    arn: /^arn:aws[\w-]*:lambda:([\w-]+):\d{12}:function:[\w$:.-]+$/,
  },
] as const;
type Kind = (typeof KINDS)[number];

const FILTERS = ['Prefix', 'Suffix'] as const;
type Filter = (typeof FILTERS)[number];

/** What is sent to one destination. */
interface Target {
  readonly element: Kind['element'];
  readonly id: string;
  readonly arn: string;
  /** Names of events such as `s3:ObjectCreated:Put` or `s3:ObjectCreated:*`. */
  readonly events: readonly string[];
  readonly filters: readonly { readonly name: Filter; readonly value: string }[];
}

export interface NotificationConfiguration {
  readonly targets: readonly Target[];
  readonly eventBridge: boolean;
}

/** "Each bucket can have up to 100 event notification configurations." */
const TARGETS_MAX = 100;
const ID_CHARACTERS_MAX = 255;
const FILTER_BYTES_MAX = 1024;

/** @see https://docs.aws.amazon.com/AmazonS3/latest/userguide/notification-how-to-event-types-and-destinations.html */
const EVENTS = new Set([
  ...eventsOf('ObjectCreated', ['*', 'Put', 'Post', 'Copy', 'CompleteMultipartUpload']),
  ...eventsOf('ObjectRemoved', ['*', 'Delete', 'DeleteMarkerCreated']),
  ...eventsOf('ObjectRestore', ['*', 'Post', 'Completed', 'Delete']),
  ...eventsOf('Replication', ['*', 'OperationFailedReplication', 'OperationMissedThreshold']),
  ...eventsOf('Replication', ['OperationReplicatedAfterThreshold', 'OperationNotTracked']),
  ...eventsOf('LifecycleExpiration', ['*', 'Delete', 'DeleteMarkerCreated']),
  ...eventsOf('ObjectTagging', ['*', 'Put', 'Delete']),
  ...['s3:ReducedRedundancyLostObject', 's3:LifecycleTransition', 's3:IntelligentTiering', 's3:ObjectAcl:Put'],
]);

function eventsOf(type: string, operations: readonly string[]): string[] {
  return operations.map((operation) => `s3:${type}:${operation}`);
}

/** Replaces the whole configuration. An empty one removes it. */
export async function putBucketNotification(service: Service, call: Call): Promise<S3Response> {
  demand(service, call, 's3:PutBucketNotification');
  service.catalog.bucket(call.bucket);
  const request = await receiveXml(call, 'NotificationConfiguration');
  const configuration = parse(request, (index) => opaqueId(`notification ${call.requestId}`, index));
  service.catalog.setNotification(call.bucket, configuration);
  return { status: 200, headers: {}, body: EMPTY };
}

export function getBucketNotification(service: Service, call: Call): S3Response {
  demand(service, call, 's3:GetBucketNotification');
  const { notification } = service.catalog.bucket(call.bucket);
  const targets = KINDS.flatMap(({ element, destination }) =>
    (notification?.targets ?? [])
      .filter((target) => target.element === element)
      .map((target) => targetElement(target, destination)),
  );
  const eventBridge: XmlElement | undefined = notification?.eventBridge ? ['EventBridgeConfiguration', ''] : undefined;
  return xmlResponse(['NotificationConfiguration', [...targets, eventBridge]]);
}

function targetElement({ element, id, arn, events, filters }: Target, destination: string): XmlElement {
  const rules = filters.map(({ name, value }): XmlElement => {
    return [
      'FilterRule',
      [
        ['Name', name],
        ['Value', value],
      ],
    ];
  });
  return [
    element,
    [
      ['Id', id],
      [destination, arn],
      ...events.map((event): XmlElement => ['Event', event]),
      rules.length === 0 ? undefined : ['Filter', [['S3Key', rules]]],
    ],
  ];
}

/** A target without an id gets one from `idOf`. Throws MalformedXML, InvalidArgument. */
function parse({ children }: XmlNode, idOf: (index: number) => string): NotificationConfiguration {
  const targets: Target[] = [];
  let eventBridge = false;
  for (const node of children) {
    const kind = KINDS.find(({ element }) => element === node.name);
    if (kind !== undefined) targets.push(parseTarget(node, kind, idOf(targets.length)));
    else if (node.name === 'EventBridgeConfiguration') eventBridge = true;
    else throw new S3Error('MalformedXML');
  }
  if (targets.length > TARGETS_MAX) {
    throw invalid(`A bucket cannot have more than ${TARGETS_MAX} notification configurations`);
  }
  targets.forEach((target, index) => {
    for (const other of targets.slice(0, index)) checkPair(other, target);
  });
  return { targets, eventBridge };
}

function parseTarget(node: XmlNode, { element, destination, arn: pattern }: Kind, newId: string): Target {
  const arn = childText(node, destination);
  const events = [...new Set(childrenNamed(node, 'Event').map(({ text }) => text))];
  if (arn === undefined || events.length === 0) throw new S3Error('MalformedXML');
  const region = pattern.exec(arn)?.[1];
  if (region === undefined) throw invalid('The ARN is not well formed', destination, arn);
  if (region !== REGION) {
    const message = 'The notification destination service region is not valid for the bucket location constraint';
    throw invalid(message, destination, arn);
  }
  const unknown = events.find((event) => !EVENTS.has(event));
  if (unknown !== undefined) throw invalid('The event is not supported for notifications', 'Event', unknown);
  const id = childText(node, 'Id') || newId;
  if (id.length > ID_CHARACTERS_MAX) throw invalid('The ID is longer than 255 characters', 'Id', id);
  const rules = childrenNamed(node, 'Filter')
    .flatMap((filter) => childrenNamed(filter, 'S3Key'))
    .flatMap((key) => childrenNamed(key, 'FilterRule'));
  return { element, id, arn, events, filters: parseFilters(rules) };
}

function parseFilters(rules: readonly XmlNode[]): Target['filters'] {
  const filters = rules.map((rule) => {
    const given = childText(rule, 'Name') ?? '';
    const value = childText(rule, 'Value');
    const name = FILTERS.find((known) => known.toLowerCase() === given.toLowerCase());
    if (value === undefined) throw new S3Error('MalformedXML');
    if (name === undefined) {
      throw invalid('filter rule name must be either prefix or suffix', 'FilterRule.Name', given);
    }
    if (Buffer.byteLength(value) > FILTER_BYTES_MAX) {
      const message = `Size of filter rule value cannot exceed ${FILTER_BYTES_MAX} bytes in UTF-8 representation`;
      throw invalid(message, 'FilterRule.Value', value);
    }
    return { name, value };
  });
  for (const name of FILTERS) {
    if (filters.filter((filter) => filter.name === name).length < 2) continue;
    throw invalid(`Cannot specify more than one ${name.toLowerCase()} rule in a filter.`, 'FilterRule.Name', name);
  }
  return filters;
}

/** S3 sends an event to one destination at most. Throws InvalidArgument if both would get it, or share an id. */
function checkPair(one: Target, other: Target): void {
  if (one.id === other.id) {
    throw invalid('Same ID used for multiple configurations. IDs must be unique', 'Id', one.id);
  }
  const [event] = one.events.filter((event) => other.events.some((also) => includesEvent(event, also)));
  const prefixes = [one, other].map((target) => filterOf(target, 'Prefix')) as [string, string];
  const suffixes = [one, other].map((target) => filterOf(target, 'Suffix')) as [string, string];
  const overlap =
    (prefixes[0].startsWith(prefixes[1]) || prefixes[1].startsWith(prefixes[0])) &&
    (suffixes[0].endsWith(suffixes[1]) || suffixes[1].endsWith(suffixes[0]));
  if (event === undefined || !overlap) return;
  const filtered = one.filters.length + other.filters.length > 0;
  const message = filtered
    ? 'Configuration is ambiguously defined. Cannot have overlapping suffixes in two rules if the prefixes are overlapping for the same event type.'
    : 'Configurations overlap. Configurations on the same bucket cannot share a common event type.';
  throw invalid(message, 'Event', event);
}

/** `s3:ObjectCreated:*` includes `s3:ObjectCreated:Put`, whichever comes first. */
function includesEvent(one: string, other: string): boolean {
  const covers = (general: string, special: string) =>
    general.endsWith(':*') && special.startsWith(general.slice(0, -1));
  return one === other || covers(one, other) || covers(other, one);
}

function filterOf({ filters }: Target, name: Filter): string {
  return filters.find((filter) => filter.name === name)?.value ?? '';
}

function invalid(message: string, ArgumentName = 'NotificationConfiguration', ArgumentValue = ''): S3Error {
  return new S3Error('InvalidArgument', { message, details: { ArgumentName, ArgumentValue } });
}
