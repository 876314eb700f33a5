import { Annotations, SecretValue, Stack, Token } from 'aws-cdk-lib';
import {
  ApiDestination,
  Authorization,
  Connection,
  type IEventBus,
  type IRuleTarget,
  Rule,
} from 'aws-cdk-lib/aws-events';
import { ApiDestination as ApiDestinationTarget } from 'aws-cdk-lib/aws-events-targets';
import {
  AccountPrincipal,
  type Conditions,
  type IPrincipal,
  PolicyStatement,
  Role,
  ServicePrincipal,
} from 'aws-cdk-lib/aws-iam';
import type { IKey } from 'aws-cdk-lib/aws-kms';
import { Queue, QueueEncryption } from 'aws-cdk-lib/aws-sqs';
import { Construct } from 'constructs';
import { ConfigurationError } from '../../functions/base/validation.ts';
import { SUPERSEDED } from '../../functions/ledger/terminal-states.ts';
import { EVENT_NAMES, EVENT_SOURCE, notifyRuleName, TEST_EVENT } from '../../functions/publish/completion-event.ts';
import { type NotifyTarget, PIPELINE_HEADER, SECRET_HEADER } from '../notify.ts';
import { differs } from '../warnings.ts';
import { acknowledge } from './acknowledge.ts';
import { allowSending } from './encryption.ts';
import type { Grants } from './grants.ts';
import { allow, keyActions, printed, viaService } from './permissions.ts';
import { MESSAGE_RETENTION } from './upload-queue.ts';

const EVENTS = 'events.amazonaws.com';

export interface NotificationsProps {
  readonly pipeline: string;
  readonly targets: readonly NotifyTarget[];
  readonly eventBus: IEventBus | undefined;
  readonly encryptionKey: IKey | undefined;
}

/** Who is told of events: for each target a rule on the event bus, and a queue of what could not be delivered. */
export class Notifications extends Construct {
  /** The dead-letter queue of each target, in the order of the targets. */
  readonly deadLetters: readonly Queue[];
  readonly #rules: readonly Rule[];
  readonly #props: NotificationsProps;

  /** @throws {ConfigurationError} EventBridge cannot reach a target. */
  constructor(scope: Construct, id: string, props: NotificationsProps) {
    super(scope, id);
    this.#props = props;
    const { pipeline, targets, eventBus, encryptionKey } = props;
    this.#check(targets, eventBus);
    const made = targets.map((target, index) => {
      const own = new Construct(this, `Target${index + 1}`);
      const deadLetters = this.#deadLetterQueue(own);
      const rule = new Rule(own, 'Rule', {
        ruleName: notifyRuleName(pipeline, index + 1),
        description: `Tells ${target.url === undefined ? 'a queue' : 'an address'} of events of the pipeline ${pipeline}`,
        eventBus,
        eventPattern: {
          source: [EVENT_SOURCE],
          detailType: [...(target.events ?? EVENT_NAMES), TEST_EVENT],
          // Other pipelines may use the same bus. And nobody is woken because a newer file took a file's place.
          detail: { pipeline: [pipeline], failure: { code: [{ exists: false }, { 'anything-but': [SUPERSEDED] }] } },
        },
      });
      rule.addTarget(
        target.queueArn === undefined
          ? addressTarget(own, target, { pipeline, deadLetters })
          : queueTarget(own, target.queueArn, { rule, ruleArn: this.#ruleArn(index + 1), deadLetters }),
      );
      return { rule, deadLetters };
    });
    if (targets.length > 0) allowSending(this, encryptionKey, EVENTS);
    this.#rules = made.map(({ rule }) => rule);
    this.deadLetters = made.map(({ deadLetters }) => deadLetters);
  }

  /** Allows the grantee to try the targets, and to read what could not be delivered. */
  grantTest(grants: Grants, busArn: string): void {
    const allow = (actions: readonly string[], resources: readonly string[]) => grants.add({ actions, resources });
    const ruleArns = this.#rules.map(({ ruleArn }) => ruleArn);
    // The first name that no rule has tells where the targets end.
    allow(['events:DescribeRule'], [...ruleArns, this.#ruleArn(this.#rules.length + 1)]);
    if (this.#rules.length === 0) return;
    allow(['events:ListTargetsByRule'], ruleArns);
    grants.add({
      actions: ['events:PutEvents'],
      resources: [busArn],
      conditions: { StringEquals: { 'events:source': EVENT_SOURCE, 'events:detail-type': TEST_EVENT } },
    });
    allow(
      ['sqs:ReceiveMessage', 'sqs:GetQueueAttributes'],
      this.deadLetters.map(({ queueArn }) => queueArn),
    );
    const { encryptionKey: key } = this.#props;
    if (key === undefined) return;
    grants.add({ actions: keyActions('read'), resources: [key.keyArn], conditions: viaService(this, 'sqs') });
  }

  /** The ARN of a rule, by its name. Synth knows it, unlike that of a resource. */
  #ruleArn(number: number): string {
    const { pipeline, eventBus } = this.#props;
    const name = notifyRuleName(pipeline, number);
    const resourceName = eventBus === undefined ? name : `${eventBus.eventBusName}/${name}`;
    return Stack.of(this).formatArn({ service: 'events', resource: 'rule', resourceName });
  }

  #check(targets: readonly NotifyTarget[], eventBus: IEventBus | undefined): void {
    const { account, region } = Stack.of(this);
    const where = `${this.node.scope?.node.path}`;
    const issues = targets.flatMap(({ url = '', queueArn = '' }, index) => {
      const at = `${where}.notify[${index}]`;
      if (url.startsWith('http:'))
        return [`${at}.url: expected https://..., because EventBridge reaches no http address`];
      const ofQueue = queueArn.split(':')[3] ?? region;
      return differs(ofQueue, region)
        ? [`${at}.queueArn: expected a queue in the region ${region} of the stack, got one in ${ofQueue}`]
        : [];
    });
    const bus = eventBus?.env;
    if (targets.length > 0 && bus !== undefined && (differs(bus.account, account) || differs(bus.region, region))) {
      issues.push(
        `${where}.notify: expected an event bus in account ${account} and region ${region}, where its rules are made, ` +
          `got one in ${bus.account} and ${bus.region}`,
      );
    }
    if (issues.length > 0) throw new ConfigurationError(issues);
  }

  #deadLetterQueue(scope: Construct): Queue {
    const { encryptionKey } = this.#props;
    const queue = new Queue(scope, 'DeadLetters', {
      encryption: encryptionKey === undefined ? QueueEncryption.SQS_MANAGED : QueueEncryption.KMS,
      encryptionMasterKey: encryptionKey,
      enforceSSL: true,
      retentionPeriod: MESSAGE_RETENTION,
    });
    const reason = 'It is the dead-letter queue of a rule. EventBridge has no queue before it.';
    acknowledge(queue, { id: 'AwsSolutions-SQS3', reason });
    return queue;
  }
}

/** Allows a principal to send to a queue. */
const sending = (queueArn: string, principal: IPrincipal, conditions?: Conditions): PolicyStatement =>
  new PolicyStatement({ principals: [principal], actions: ['sqs:SendMessage'], resources: [queueArn], conditions });

/** Allows a rule to send to a queue. */
const sendingTo = (queueArn: string, ruleArn: string): PolicyStatement =>
  sending(queueArn, new ServicePrincipal(EVENTS), { ArnEquals: { 'aws:SourceArn': ruleArn } });

/**
 * An API destination. CloudFormation reads the secret when it makes or changes the connection, and EventBridge keeps a
 * copy in a secret of its own.
 */
function addressTarget(
  scope: Construct,
  { url = '', headerSecret }: NotifyTarget,
  { pipeline, deadLetters }: { readonly pipeline: string; readonly deadLetters: Queue },
): IRuleTarget {
  const connection = new Connection(scope, 'Connection', {
    authorization:
      headerSecret === undefined
        ? Authorization.apiKey(PIPELINE_HEADER, SecretValue.unsafePlainText(pipeline))
        : Authorization.apiKey(SECRET_HEADER, SecretValue.secretsManager(headerSecret)),
  });
  const destination = new ApiDestination(scope, 'Destination', { connection, endpoint: url });
  return new ApiDestinationTarget(destination, { deadLetterQueue: deadLetters });
}

/**
 * An existing queue, whose policy this app cannot change. EventBridge sends to one of its own account by itself, and to
 * one of another account with a role only.
 * @see https://docs.aws.amazon.com/eventbridge/latest/userguide/eb-service-cross-account.html
 */
function queueTarget(scope: Construct, queueArn: string, { rule, ruleArn, deadLetters }: QueueTarget): IRuleTarget {
  const { account } = Stack.of(scope);
  const owner = queueArn.split(':')[4] ?? account;
  const role = differs(owner, account) ? senderTo(scope, queueArn, owner) : undefined;
  // The policies of the own account say who in it may send.
  const [statement, user] =
    role === undefined
      ? [sendingTo(queueArn, ruleArn), EVENTS]
      : [sending(queueArn, new AccountPrincipal(account)), `the account ${account}`];
  Annotations.of(scope).addWarningV2(
    `flowdrop:queue-policy-${rule.node.addr}`,
    `This app cannot change the policy of the queue ${queueArn}. Add this statement to it: ${printed(scope, statement)}. ` +
      `If the queue has a key of KMS, that must let ${user} use it, too.` +
      (Token.isUnresolved(account)
        ? ' If the queue is of another account than the stack, set deployment.account (env of the stack).'
        : ''),
  );
  deadLetters.addToResourcePolicy(sendingTo(deadLetters.queueArn, rule.ruleArn));
  return { bind: () => ({ arn: queueArn, role, deadLetterConfig: { arn: deadLetters.queueArn } }) };
}

/** A role that EventBridge sends to the queue with. It may use the key of the queue, which is not known. */
function senderTo(scope: Construct, queueArn: string, owner: string): Role {
  const role = new Role(scope, 'Role', {
    assumedBy: new ServicePrincipal(EVENTS),
    description: `Sends to ${queueArn}`,
  });
  allow(role, { actions: ['sqs:SendMessage'], resources: [queueArn] });
  const keys = { service: 'kms', account: owner, resource: 'key', resourceName: '*' };
  allow(role, {
    actions: keyActions('write'),
    resources: [Stack.of(scope).formatArn(keys)],
    conditions: viaService(scope, 'sqs'),
    wildcardReason: 'The key of a queue of another account is not known. Its policy must let this account use it.',
  });
  return role;
}

interface QueueTarget {
  readonly rule: Rule;
  /** Its ARN as it can be pasted into a policy. */
  readonly ruleArn: string;
  readonly deadLetters: Queue;
}
