import { randomUUID } from 'node:crypto';
import * as z from 'zod/mini';
import { AwsError, operation, serveAwsJson } from './aws-json.ts';
import type { AwsEndpoint, EndpointAccess } from './endpoint.ts';

const publishedEvent = z.object({
  Source: z.string(),
  DetailType: z.string(),
  Detail: z.string(),
  EventBusName: z.optional(z.string()),
  Resources: z.optional(z.array(z.string())),
});
export type PublishedEvent = z.infer<typeof publishedEvent>;

/** EventBridge in memory. It keeps the events that were published; it has no rules. */
export class EventBus {
  readonly published: PublishedEvent[] = [];
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
    if (!isJsonObject(entry.Detail)) return { ErrorCode: 'MalformedDetail', ErrorMessage: 'Detail is malformed.' };
    bus.published.push(entry);
    return { EventId: randomUUID() };
  });
  return { FailedEntryCount: answers.filter((answer) => 'ErrorCode' in answer).length, Entries: answers };
}

function isJsonObject(json: string): boolean {
  try {
    const value: unknown = JSON.parse(json);
    return typeof value === 'object' && value !== null && !Array.isArray(value);
  } catch {
    return false;
  }
}
