/**
 * Stands in for `@smithy/core/event-streams` in the bundles. No operation that the functions use has an event stream.
 * The SDK imports the codec dynamically, so esbuild would keep all of every module that the codec imports.
 */
export const eventStreamSerdeProvider = () => undefined;

export const resolveEventStreamSerdeConfig = <T>(config: T): T => config;

export class EventStreamSerde {
  constructor() {
    throw new Error('This bundle has no support for operations with event streams');
  }
}
