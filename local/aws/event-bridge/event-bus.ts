import * as z from 'zod/mini';

export const publishedEvent = z.object({
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
