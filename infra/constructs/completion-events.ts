import { Stack } from 'aws-cdk-lib';
import type { IEventBus } from 'aws-cdk-lib/aws-events';
import type { IRole } from 'aws-cdk-lib/aws-iam';
import { Construct } from 'constructs';
import { EVENT_SOURCE } from '../../functions/publish/completion-event.ts';
import { allow } from './permissions.ts';

/** The event bus that is told how each upload ended. */
export class CompletionEvents extends Construct {
  readonly busArn: string;

  /** @param eventBus where the events go; the account's default bus without one. */
  constructor(scope: Construct, id: string, eventBus: IEventBus | undefined) {
    super(scope, id);
    const bus = { service: 'events', resource: 'event-bus', resourceName: 'default' };
    this.busArn = eventBus?.eventBusArn ?? Stack.of(this).formatArn(bus);
  }

  /** Lets a function put events of ours on the bus, and of nobody else. */
  grantPut(role: IRole): void {
    allow(role, {
      actions: ['events:PutEvents'],
      resources: [this.busArn],
      conditions: { StringEquals: { 'events:source': EVENT_SOURCE } },
    });
  }
}
