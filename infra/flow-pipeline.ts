import { Duration, RemovalPolicy, Tags, Validations } from 'aws-cdk-lib';
import type { IAlarm } from 'aws-cdk-lib/aws-cloudwatch';
import { type ISecurityGroup, type IVpc, Port, SecurityGroup, type SubnetSelection } from 'aws-cdk-lib/aws-ec2';
import type { IEventBus } from 'aws-cdk-lib/aws-events';
import { type Grant, type IGrantable, type IManagedPolicy, PermissionsBoundary } from 'aws-cdk-lib/aws-iam';
import type { IKey } from 'aws-cdk-lib/aws-kms';
import type { IFunction } from 'aws-cdk-lib/aws-lambda';
import { RetentionDays } from 'aws-cdk-lib/aws-logs';
import type { IBucket } from 'aws-cdk-lib/aws-s3';
import type { ISecret } from 'aws-cdk-lib/aws-secretsmanager';
import { CfnSubscription, type ITopic, Topic } from 'aws-cdk-lib/aws-sns';
import type { IQueue } from 'aws-cdk-lib/aws-sqs';
import { Construct } from 'constructs';
import { ConfigurationError, together } from '../functions/base/validation.ts';
import { COLLECTORS_MAX } from '../functions/collect-outputs/collect-event.ts';
import { issuesOfBuckets } from '../functions/settings/buckets.ts';
import { type Context, parseContext } from '../functions/settings/context.ts';
import type { Env } from '../functions/settings/environment.ts';
import { type PipelineSettings, SETTINGS_DEFAULT } from '../functions/settings/settings.ts';
import type { Route } from '../functions/uploads/routes.ts';
import { CollectOutputs } from './constructs/collect-outputs.ts';
import { CompletionEvents } from './constructs/completion-events.ts';
import { CreateFlow } from './constructs/create-flow.ts';
import { allowLogging } from './constructs/encryption.ts';
import { Inbox } from './constructs/inbox.ts';
import { Ledger } from './constructs/ledger.ts';
import type { Parts } from './constructs/parts.ts';
import type { NetworkProps } from './constructs/pipeline-function.ts';
import { Results } from './constructs/results.ts';
import { Token } from './constructs/token.ts';
import { UploadQueue } from './constructs/upload-queue.ts';
import { Alarms } from './monitoring/alarms.ts';
import { PipelineDashboard } from './monitoring/dashboard.ts';

/** What cdk.json has until somebody says where the flows are to be made. */
const EXAMPLE_HOST = 'flows.example.com';

const RUNBOOK_IN_PACKAGE = 'docs/runbook.md';

/** Whole numbers, both ends among them. */
export interface Range {
  readonly min: number;
  readonly max: number;
}

/** Of the event source's maximum concurrency. @see https://docs.aws.amazon.com/lambda/latest/dg/services-sqs-scaling.html */
export const MAX_CONCURRENCY: Range = { min: 2, max: 1_000 };
export const MAX_CONCURRENCY_DEFAULT = 5;

/** Of the event source's batching window. @see https://docs.aws.amazon.com/lambda/latest/dg/services-sqs-configure.html */
export const BATCH_WINDOW_SECONDS: Range = { min: 0, max: 300 };

export const COLLECTORS: Range = { min: 1, max: COLLECTORS_MAX };

export interface FlowPipelineProps {
  /** Base address of the flow service, `https://...`. */
  readonly baseUrl: string;
  /** Which uploads become flows of which template. The first that matches wins. */
  readonly routes: readonly RouteProps[];
  /**
   * Name of the pipeline: of its tags at the service, and first in the names of functions, alarms and dashboard. Each
   * pipeline of an account and region needs its own.
   * @default 'flowdrop'
   */
  readonly name?: string;
  /**
   * Settings of the functions that differ from the defaults.
   * @default - see {@link PipelineSettings}
   */
  readonly settings?: Partial<PipelineSettings>;
  /**
   * A bucket that files are already dropped into. It must send its events to EventBridge; its other notifications are
   * left alone. The key of a bucket from elsewhere is known only where it is imported with it, by `fromBucketAttributes`.
   * @default - a new bucket
   */
  readonly inboxBucket?: IBucket;
  /**
   * A bucket for the results. It may be the inbox where `settings` has an `inboxPrefix` and a `resultsPrefix`.
   * @default - a new bucket
   */
  readonly resultsBucket?: IBucket;
  /**
   * A secret that holds the token: the token itself, or JSON with `token`.
   * @default - a new secret, into which the token is put after deploying
   */
  readonly tokenSecret?: ISecret;
  /**
   * Event bus that is told how each upload ended: `Flow Succeeded` or `Flow Failed`, from `flowdrop`.
   * @default - the account's default bus
   */
  readonly eventBus?: IEventBus;
  /**
   * Key for everything that is made here and holds data: buckets, queues, secret, logs. A key of this app gets the
   * statements that it needs; of another, a warning at synth says them.
   * @default - keys that AWS manages
   */
  readonly encryptionKey?: IKey;
  /**
   * VPC to run the functions in. They need a way out to the flow service and to S3, SQS, Secrets Manager and
   * EventBridge.
   * @default - no VPC
   */
  readonly vpc?: IVpc;
  /** @default - the VPC's private subnets */
  readonly vpcSubnets?: SubnetSelection;
  /** @default - one that lets out what goes to port 443 and to the flow service's port, and lets nothing in */
  readonly securityGroups?: ISecurityGroup[];
  /**
   * Boundary of every role that is made here.
   * @default - none
   */
  readonly permissionsBoundary?: IManagedPolicy;
  /**
   * Bucket for the access logs of the buckets that are made here.
   * @default - no access logs
   */
  readonly accessLogsBucket?: IBucket;
  /**
   * Whether the buckets that are made here also send their events to EventBridge, for uses of one's own.
   * @default false
   */
  readonly s3Events?: boolean;
  /** @default one month */
  readonly logRetention?: RetentionDays;
  /**
   * What becomes of the buckets with the stack; all else goes with it. Even with `DESTROY`, CloudFormation removes a
   * bucket only once it is empty.
   * @default RemovalPolicy.RETAIN
   */
  readonly removalPolicy?: RemovalPolicy;
  /**
   * How many invocations send files at a time, each of them up to `settings.uploadConcurrency`. A service that limits
   * requests sets the pace itself; `settings.requestsPerSecond` is a ceiling for each invocation. From 2 to 1,000.
   * @default 5
   */
  readonly maxConcurrency?: number;
  /**
   * How long a batch waits for more files, up to 5 minutes. Without it a file is sent at once, and a batch has at most
   * 10; with it a batch may have all of `settings.uploadConcurrency`, which takes fewer invocations for many small files.
   * @default - none
   */
  readonly batchWindow?: Duration;
  /**
   * How many collectors divide the running flows among them. One is enough for thousands.
   * @default 1
   */
  readonly collectors?: number;
  /**
   * Where alarms are sent to, and where it is said that they are over. A warning at synth says so where a topic of this
   * app has no subscription.
   * @default - nowhere: alarms are seen on the dashboard only, and a warning at synth says so
   */
  readonly alarmTopic?: ITopic;
  /**
   * Address of the runbook, where every alarm has its heading.
   * @default - the runbook's place in this package, docs/runbook.md: a warning at synth says so where alarms are sent
   */
  readonly runbookUrl?: string;
}

/** A route, with `input` left out where it is a file. */
export type RouteProps = Omit<Route, 'input'> & Partial<Pick<Route, 'input'>>;

/** Drop a file into the inbox; find what the flow service made of it, with a receipt, in the results. */
export class FlowPipeline extends Construct {
  readonly inboxBucket: IBucket;
  readonly resultsBucket: IBucket;
  readonly ledgerBucket: IBucket;
  readonly tokenSecret: ISecret;
  /** Uploads on their way to the creating function. */
  readonly queue: IQueue;
  /** Uploads that could not even be started. */
  readonly deadLetterQueue: IQueue;
  readonly createFlowFunction: IFunction;
  readonly collectOutputsFunction: IFunction;
  readonly alarms: readonly IAlarm[];
  readonly #parts: Parts;

  /** @throws {ConfigurationError} naming everything in the props that cannot be. */
  constructor(scope: Construct, id: string, props: FlowPipelineProps) {
    super(scope, id);
    const { name, baseUrl, routes, settings } = props;
    // By way of JSON, as it reaches the functions: what is undefined there is absent here.
    const { maxConcurrency = MAX_CONCURRENCY_DEFAULT, batchWindow = Duration.seconds(0), collectors = 1 } = props;
    const { encryptionKey } = props;
    const [context] = together(
      () => parseContext(JSON.parse(JSON.stringify({ pipeline: name, baseUrl, routes, settings })), this.node.path),
      () =>
        this.#refuseOutside([
          ['maxConcurrency', maxConcurrency, MAX_CONCURRENCY],
          ['batchWindow in seconds', batchWindow.toSeconds({ integral: false }), BATCH_WINDOW_SECONDS],
          ['collectors', collectors, COLLECTORS],
        ]),
    );

    this.#parts = this.#newParts(props, context);
    this.inboxBucket = this.#parts.inbox.bucket;
    this.resultsBucket = this.#parts.results.bucket;
    this.ledgerBucket = this.#parts.ledger.bucket;
    this.tokenSecret = this.#parts.token.secret;
    this.queue = this.#parts.uploads.queue;
    this.deadLetterQueue = this.#parts.uploads.deadLetters;
    this.#refuseLoops(context);

    const { uploadConcurrency, flowAgeMaxSeconds } = context.settings;
    const shared = {
      parts: this.#parts,
      environment: this.#environment(context),
      network: this.#network(props, context.baseUrl),
      logRetention: props.logRetention ?? RetentionDays.ONE_MONTH,
      encryptionKey,
    };
    const batching = { uploadConcurrency, maxConcurrency, batchWindow };
    const createFlow = new CreateFlow(this, 'CreateFlow', { ...shared, ...batching });
    const collectOutputs = new CollectOutputs(this, 'CollectOutputs', { ...shared, collectors });
    this.createFlowFunction = createFlow.function;
    this.collectOutputsFunction = collectOutputs.function;
    allowLogging(this, encryptionKey, `/aws/lambda/${context.pipeline}-`);

    const watched = {
      pipeline: context.pipeline,
      queue: this.queue,
      deadLetterQueue: this.deadLetterQueue,
      createFlowFunction: this.createFlowFunction,
      collectOutputsFunction: this.collectOutputsFunction,
    };
    this.alarms = new Alarms(this, 'Alarms', {
      ...watched,
      flowAgeMaxSeconds,
      runbookUrl: props.runbookUrl ?? RUNBOOK_IN_PACKAGE,
      topic: props.alarmTopic,
    }).all;
    new PipelineDashboard(this, 'Dashboard', { ...watched, alarms: this.alarms });

    if (props.permissionsBoundary !== undefined) PermissionsBoundary.of(this).apply(props.permissionsBoundary);
    Tags.of(this).add('flowdrop:pipeline', context.pipeline);
    this.#warn(context.baseUrl, props);
  }

  /** Lets somebody drop files into the inbox, and nothing else. */
  grantUpload(grantee: IGrantable): Grant {
    return this.#parts.inbox.grantUpload(grantee);
  }

  /** Lets somebody list and read the results. */
  grantReadResults(grantee: IGrantable): Grant {
    return this.#parts.results.grantRead(grantee);
  }

  #newParts(props: FlowPipelineProps, { pipeline, settings }: Context): Parts {
    const { encryptionKey, accessLogsBucket, s3Events = false, removalPolicy = RemovalPolicy.RETAIN } = props;
    const common = { encryptionKey, removalPolicy, accessLogsBucket };
    const uploads = new UploadQueue(this, 'Queue', { encryptionKey, batchWindow: props.batchWindow });
    return {
      uploads,
      inbox: new Inbox(this, 'Inbox', {
        ...common,
        existing: props.inboxBucket,
        prefix: settings.inboxPrefix,
        uploads,
        s3Events,
      }),
      results: new Results(this, 'Results', {
        ...common,
        existing: props.resultsBucket,
        prefix: settings.resultsPrefix,
        s3Events,
      }),
      ledger: new Ledger(this, 'Ledger', { ...common, retentionDays: settings.ledgerRetentionDays }),
      events: new CompletionEvents(this, 'Events', props.eventBus),
      token: new Token(this, 'Token', { existing: props.tokenSecret, pipeline, encryptionKey }),
    };
  }

  #warn(baseUrl: URL, { alarmTopic, runbookUrl }: FlowPipelineProps): void {
    if (alarmTopic === undefined) {
      Validations.of(this).addWarning(
        'flowdrop:nobody-is-told',
        'Nobody is told of alarms: give an alarmTopic (alarmEmail in the context), or look at the dashboard every day.',
      );
    }
    if (alarmTopic !== undefined) this.#warnIfUnsubscribed(alarmTopic);
    if (alarmTopic !== undefined && runbookUrl === undefined) {
      Validations.of(this).addWarning(
        'flowdrop:runbook-not-reachable',
        `Alarms that are sent name ${RUNBOOK_IN_PACKAGE}, which nobody can open from there: give a runbookUrl, where your team reads it.`,
      );
    }
    if (baseUrl.hostname === EXAMPLE_HOST) {
      Validations.of(this).addWarning(
        'flowdrop:example-host',
        `baseUrl is still the example, ${baseUrl.href}: no flow will be made before it is the address of your flow service.`,
      );
    }
  }

  /**
   * Of a topic of this app it can be told whether anybody is subscribed to it, once the app is complete; of another
   * nothing is known.
   */
  #warnIfUnsubscribed(topic: ITopic): void {
    if (!(topic instanceof Topic)) return;
    this.node.addValidation({
      validate: () => {
        const isOfTopic = ({ topicArn }: CfnSubscription) =>
          JSON.stringify(topic.stack.resolve(topicArn)) === JSON.stringify(topic.stack.resolve(topic.topicArn));
        const all = this.node.root.node.findAll();
        if (!all.some((each) => each instanceof CfnSubscription && isOfTopic(each))) {
          Validations.of(this).addWarning(
            'flowdrop:nobody-is-subscribed',
            `Nobody is told of alarms: ${topic.node.path}, to which they are sent, has no subscription in this app.`,
          );
        }
        return [];
      },
    });
  }

  #refuseLoops({ settings }: Context): void {
    const issues = issuesOfBuckets({
      inboxBucket: this.inboxBucket.bucketName,
      resultsBucket: this.resultsBucket.bucketName,
      ledgerBucket: this.ledgerBucket.bucketName,
      inboxPrefix: settings.inboxPrefix,
      resultsPrefix: settings.resultsPrefix,
    });
    if (issues.length > 0) throw new ConfigurationError(issues.map((issue) => `${this.node.path}: ${issue}`));
  }

  #refuseOutside(all: readonly (readonly [name: string, value: number, range: Range])[]): void {
    const issues = all
      .filter(([, value, { min, max }]) => !(Number.isInteger(value) && value >= min && value <= max))
      .map(([name, value, { min, max }]) => `${name}: expected a whole number from ${min} to ${max}, got ${value}`);
    if (issues.length > 0) throw new ConfigurationError(issues.map((issue) => `${this.node.path}.${issue}`));
  }

  #environment({ pipeline, baseUrl, routes, settings }: Context): Env {
    const changed = Object.entries(settings).filter(
      ([name, value]) => value !== SETTINGS_DEFAULT[name as keyof PipelineSettings],
    );
    return {
      PIPELINE: pipeline,
      FLOW_SERVICE_URL: baseUrl.href.replace(/\/$/, ''),
      TOKEN_SECRET_ID: this.tokenSecret.secretArn,
      INBOX_BUCKET: this.inboxBucket.bucketName,
      RESULTS_BUCKET: this.resultsBucket.bucketName,
      LEDGER_BUCKET: this.ledgerBucket.bucketName,
      QUEUE_URL: this.queue.queueUrl,
      // A name chosen here, because a function cannot refer to itself in its own environment.
      COLLECT_FUNCTION: `${pipeline}-collect-outputs`,
      EVENT_BUS: this.#parts.events.busArn,
      ROUTES: JSON.stringify(routes),
      SETTINGS: JSON.stringify(Object.fromEntries(changed)),
    };
  }

  #network({ vpc, vpcSubnets, securityGroups }: FlowPipelineProps, baseUrl: URL): NetworkProps | undefined {
    if (vpc === undefined) return undefined;
    return { vpc, vpcSubnets, securityGroups: securityGroups ?? [this.#securityGroup(vpc, baseUrl)] };
  }

  #securityGroup(vpc: IVpc, baseUrl: URL): ISecurityGroup {
    const group = new SecurityGroup(this, 'SecurityGroup', {
      vpc,
      description: 'Functions of the pipeline: out to AWS and the flow service, nothing in',
      allowAllOutbound: false,
    });
    for (const port of new Set([443, Number(baseUrl.port || 443)])) {
      group.connections.allowToAnyIpv4(Port.tcp(port), 'AWS and the flow service');
    }
    return group;
  }
}
