import { Stack } from 'aws-cdk-lib';
import type { IEventBus } from 'aws-cdk-lib/aws-events';
import type { IRole } from 'aws-cdk-lib/aws-iam';
import { Construct } from 'constructs';
import { EVENT_SOURCE } from '../../functions/publish/completion-event.ts';
import { allow } from './permissions.ts';

/** The event bus that gets one event per ended upload, and one per ended chain. */
export class CompletionEvents extends Construct {
  readonly busArn: string;

  /** @param eventBus the account's default bus if undefined. */
  constructor(scope: Construct, id: string, eventBus: IEventBus | undefined) {
    super(scope, id);
    const bus = { service: 'events', resource: 'event-bus', resourceName: 'default' };
    this.busArn = eventBus?.eventBusArn ?? Stack.of(this).formatArn(bus);
  }

  /** Allows the role to put events with our source on the bus, and none with another source. */
  grantPut(role: IRole): void {
    allow(role, {
      actions: ['events:PutEvents'],
      resources: [this.busArn],
      conditions: { StringEquals: { 'events:source': EVENT_SOURCE } },
    });
  }
}
