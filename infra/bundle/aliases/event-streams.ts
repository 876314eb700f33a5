/**
 * Stands in for `@smithy/core/event-streams` in the bundles: no operation that the functions use has an event stream.
 * The SDK imports the codec dynamically, which makes esbuild keep all of every module that the codec touches.
 */
export const eventStreamSerdeProvider = () => undefined;

export const resolveEventStreamSerdeConfig = <T>(config: T): T => config;

export class EventStreamSerde {
  constructor() {
    throw new Error('Operations with event streams are left out of the bundle');
  }
}
