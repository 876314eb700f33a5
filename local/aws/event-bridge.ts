import { randomUUID } from 'node:crypto';
import * as z from 'zod/mini';
import { AwsError, operation, serveAwsJson } from './aws-json.ts';
import { type AwsEndpoint, type EndpointAccess, LOCAL_ACCOUNT, REGION } from './endpoint.ts';

const publishedEvent = z.object({
  Source: z.string(),
  DetailType: z.string(),
  Detail: z.string(),
  EventBusName: z.optional(z.string()),
  Resources: z.optional(z.array(z.string())),
});
export type PublishedEvent = z.infer<typeof publishedEvent>;

/** An event as a target of a rule gets it. */
export interface DeliveredEvent {
  readonly version: '0';
  readonly id: string;
  readonly 'detail-type': string;
  readonly source: string;
  readonly account: string;
  readonly time: string;
  readonly region: string;
  readonly resources: readonly string[];
  readonly detail: Readonly<Record<string, unknown>>;
}

/** A rule on the bus, with its one target. */
export interface EventRule {
  readonly name: string;
  readonly targetArn: string;
  readonly deadLettersArn: string;
  matches(event: DeliveredEvent): boolean;
  deliver(event: DeliveredEvent): void;
}

/** EventBridge in memory. It keeps the events that were published, and gives them to its rules. */
export class EventBus {
  readonly published: PublishedEvent[] = [];
  readonly rules: readonly EventRule[];

  constructor(rules: readonly EventRule[] = []) {
    this.rules = rules;
  }

  /** Returns the id of the event. @param detail that of the event, parsed. */
  publish(event: PublishedEvent, detail: DeliveredEvent['detail']): string {
    const id = randomUUID();
    this.published.push(event);
    const delivered: DeliveredEvent = {
      ...{ version: '0', id, 'detail-type': event.DetailType, source: event.Source, account: LOCAL_ACCOUNT },
      time: new Date().toISOString().replace(/\.\d+Z$/, 'Z'),
      ...{ region: REGION, resources: event.Resources ?? [], detail },
    };
    for (const rule of this.rules) if (rule.matches(delivered)) rule.deliver(delivered);
    return id;
  }
}

const ENTRIES_MAX = 10;
/** All entries of a request together. https://docs.aws.amazon.com/eventbridge/latest/userguide/eb-putevents.html */
const ENTRIES_BYTES_MAX = 262_144;

/** Serves an event bus to the SDK's EventBridge client. */
export function serveEvents(bus: EventBus, access: EndpointAccess): Promise<AwsEndpoint> {
  return serveAwsJson({
    version: '1.1',
    target: 'AWSEvents',
    service: 'events',
    ...access,
    operations: {
      DescribeRule: operation(z.object({ Name: z.string() }), ({ Name }) => {
        const { name } = ruleOf(bus, Name);
        return { Name: name, State: 'ENABLED' };
      }),
      ListTargetsByRule: operation(z.object({ Rule: z.string() }), ({ Rule }) => {
        const { targetArn, deadLettersArn } = ruleOf(bus, Rule);
        return { Targets: [{ Id: 'Target0', Arn: targetArn, DeadLetterConfig: { Arn: deadLettersArn } }] };
      }),
      PutEvents: operation(z.object({ Entries: z.array(publishedEvent) }), ({ Entries }) => putEvents(bus, Entries)),
    },
  });
}

function putEvents(bus: EventBus, entries: readonly PublishedEvent[]): object {
  const bytes = entries.reduce(
    (sum, { Source, DetailType, Detail }) => sum + Buffer.byteLength(Source + DetailType + Detail),
    0,
  );
  if (entries.length < 1 || entries.length > ENTRIES_MAX || bytes > ENTRIES_BYTES_MAX) {
    throw new AwsError('ValidationException', `1 to ${ENTRIES_MAX} entries, ${ENTRIES_BYTES_MAX} bytes together`);
  }
  const answers = entries.map((entry) => {
    const detail = jsonObject(entry.Detail);
    if (detail === undefined) return { ErrorCode: 'MalformedDetail', ErrorMessage: 'Detail is malformed.' };
    return { EventId: bus.publish(entry, detail) };
  });
  return { FailedEntryCount: answers.filter((answer) => 'ErrorCode' in answer).length, Entries: answers };
}

/** @throws {AwsError} there is no such rule. */
function ruleOf({ rules }: EventBus, wanted: string): EventRule {
  const rule = rules.find(({ name }) => name === wanted);
  if (rule !== undefined) return rule;
  throw new AwsError('ResourceNotFoundException', `Rule ${wanted} does not exist on EventBus default.`);
}

/** Undefined if the text is no JSON object. */
function jsonObject(json: string): DeliveredEvent['detail'] | undefined {
  try {
    const value: unknown = JSON.parse(json);
    const isObject = typeof value === 'object' && value !== null && !Array.isArray(value);
    return isObject ? (value as DeliveredEvent['detail']) : undefined;
  } catch {
    return undefined;
  }
}
