import { randomUUID } from 'node:crypto';
import * as z from 'zod/mini';
import { type AwsCall, AwsError, operation, type Served, serveAwsJson } from './aws-json.ts';

const ENTRIES_MAX = 10;
/** All entries of one request together. https://docs.aws.amazon.com/eventbridge/latest/userguide/eb-putevents.html */
const REQUEST_BYTES_MAX = 262_144;

const entry = z.object({
  Source: z.string(),
  DetailType: z.string(),
  Detail: z.string(),
  EventBusName: z.optional(z.string()),
  Resources: z.optional(z.array(z.string())),
});
export type PublishedEvent = z.infer<typeof entry>;

/** EventBridge in memory: it remembers what was put, and has no rules. */
export class EventBus {
  readonly published: PublishedEvent[] = [];
}

/** Serves an event bus to the SDK's EventBridge client. */
export function serveEvents(bus: EventBus, onCall?: (call: AwsCall) => void): Promise<Served> {
  return serveAwsJson({
    version: '1.1',
    target: 'AWSEvents',
    service: 'events',
    onCall,
    operations: {
      PutEvents: operation(z.object({ Entries: z.array(entry) }), ({ Entries }) => {
        const bytes = Entries.reduce(
          (sum, { Source, DetailType, Detail }) => sum + Buffer.byteLength(Source + DetailType + Detail),
          0,
        );
        if (Entries.length < 1 || Entries.length > ENTRIES_MAX || bytes > REQUEST_BYTES_MAX) {
          throw new AwsError('ValidationException', `1 to ${ENTRIES_MAX} entries, ${REQUEST_BYTES_MAX} bytes together`);
        }
        const answers = Entries.map((one) => {
          if (!isObject(one.Detail)) return { ErrorCode: 'MalformedDetail', ErrorMessage: 'Detail is malformed.' };
          bus.published.push(one);
          return { EventId: randomUUID() };
        });
        return { FailedEntryCount: answers.filter((answer) => 'ErrorCode' in answer).length, Entries: answers };
      }),
    },
  });
}

function isObject(json: string): boolean {
  try {
    const value: unknown = JSON.parse(json);
    return typeof value === 'object' && value !== null && !Array.isArray(value);
  } catch {
    return false;
  }
}
