import { isDeepStrictEqual } from 'node:util';
import { RemovalPolicy, Stack, Tags } from 'aws-cdk-lib';
import { type Grant, type IGrantable, PermissionsBoundary } from 'aws-cdk-lib/aws-iam';
import type { IFunction } from 'aws-cdk-lib/aws-lambda';
import { RetentionDays } from 'aws-cdk-lib/aws-logs';
import type { IBucket } from 'aws-cdk-lib/aws-s3';
import type { ISecret } from 'aws-cdk-lib/aws-secretsmanager';
import type { ITopic } from 'aws-cdk-lib/aws-sns';
import type { IQueue } from 'aws-cdk-lib/aws-sqs';
import type { Construct } from 'constructs';
import { ConfigurationError } from '../functions/base/validation.ts';
import { issuesOfBuckets } from '../functions/settings/buckets.ts';
import type { Context } from '../functions/settings/context.ts';
import type { Env } from '../functions/settings/environment.ts';
import { OWN_COMMAND } from '../functions/settings/own-command.ts';
import { proxyAt, variablesOf } from '../functions/settings/proxies.ts';
import { shortOf } from '../functions/settings/service.ts';
import { type PipelineSettings, SETTINGS_DEFAULT } from '../functions/settings/settings.ts';
import { aliasFolderOf } from '../functions/uploads/results-key-pattern.ts';
import { CollectOutputs } from './constructs/collect-outputs.ts';
import { CompletionEvents } from './constructs/completion-events.ts';
import { CreateFlow } from './constructs/create-flow.ts';
import { allowLogging } from './constructs/encryption.ts';
import { Grants } from './constructs/grants.ts';
import { Inbox } from './constructs/inbox.ts';
import { Ledger } from './constructs/ledger.ts';
import { functionSecurityGroup, type NetworkProps } from './constructs/network.ts';
import { Notifications } from './constructs/notifications.ts';
import type { Parts } from './constructs/parts.ts';
import { Results } from './constructs/results.ts';
import { Token } from './constructs/token.ts';
import { RoundQueue, UploadQueue } from './constructs/upload-queue.ts';
import { PIPELINE_TAG } from './deployment.ts';
import { type CheckedProps, checkProps, type FlowPipelineProps } from './flow-pipeline-props.ts';
import { Alarms, type AlarmsByName } from './monitoring/alarms.ts';
import { PipelineDashboard } from './monitoring/dashboard.ts';
import { MeasuredPipeline } from './monitoring/measured-pipeline.ts';
import { SavedQueries } from './monitoring/queries.ts';
import { isBeside, isSameInApp } from './same-in-app.ts';
import {
  checkAccessLogsBucket,
  checkKeys,
  checkRegions,
  RUNBOOK_IN_PACKAGE,
  warnOfExampleHost,
  warnOfRoutes,
  warnOfUnheardAlarms,
} from './warnings.ts';

const SECURITY_GROUP = 'SecurityGroup';

/** Turns each file that is put into the inbox into a flow. Its outputs and a receipt appear in the results bucket. */
export class FlowPipeline extends MeasuredPipeline {
  readonly pipelineName: string;
  /** Bucket that files are put into. */
  readonly inboxBucket: IBucket;
  /** Bucket of outputs and receipts. */
  readonly resultsBucket: IBucket;
  /** Bucket of the pipeline's own records: one entry for each upload. */
  readonly ledgerBucket: IBucket;
  /** Secret that holds the token of the flow service. */
  readonly tokenSecret: ISecret;
  /** ARN of that secret, or its name if the ARN is not known. Secrets Manager takes either. */
  readonly tokenSecretId: string;
  /** Queue of uploads for the function that creates flows. */
  readonly queue: IQueue;
  /** Queue of uploads that could not be started. */
  readonly deadLetterQueue: IQueue;
  /** Function that creates one flow for each upload. */
  readonly createFlowFunction: IFunction;
  /** Function that fetches the outputs of ended flows. */
  readonly collectOutputsFunction: IFunction;
  /** The alarms by name, such as `alarms['flows-failed']`. */
  readonly alarms: AlarmsByName;
  readonly #parts: Parts;
  readonly #createFlow: CreateFlow;
  readonly #collectOutputs: CollectOutputs;
  readonly #notifications: Notifications;
  readonly #alarmTopics: readonly ITopic[];

  /** @throws {ConfigurationError} naming every issue of the props. */
  constructor(scope: Construct, id: string, props: FlowPipelineProps) {
    super(scope, id);
    const checked = checkProps(props, this);
    const { context } = checked;
    this.pipelineName = context.pipeline;
    checkRegions(this, props);
    checkKeys(this, props);
    checkAccessLogsBucket(this, props.accessLogsBucket, `${this.node.path}/`);

    this.#parts = this.#newParts(props, context);
    this.inboxBucket = this.#parts.inbox.bucket;
    this.resultsBucket = this.#parts.results.bucket;
    this.ledgerBucket = this.#parts.ledger.bucket;
    this.tokenSecret = this.#parts.token.secret;
    this.tokenSecretId = this.#parts.token.secretId;
    this.queue = this.#parts.uploads.queue;
    this.deadLetterQueue = this.#parts.uploads.deadLetters;
    this.#checkBuckets(context);
    this.#checkEncryption(props);
    this.#checkOthers();

    const { createFlow, collectOutputs } = this.#newFunctions(props, checked);
    this.#createFlow = createFlow;
    this.#collectOutputs = collectOutputs;
    this.createFlowFunction = createFlow.function;
    this.collectOutputsFunction = collectOutputs.function;
    this.#notifications = new Notifications(this, 'Notifications', {
      pipeline: context.pipeline,
      targets: props.notify ?? [],
      eventBus: props.eventBus,
      encryptionKey: props.encryptionKey,
    });
    this.#alarmTopics = [...new Set([props.alarmTopic, props.ticketTopic])].filter((topic) => topic !== undefined);
    this.alarms = this.#newMonitoring(props, checked);

    if (props.permissionsBoundary !== undefined) PermissionsBoundary.of(this).apply(props.permissionsBoundary);
    Tags.of(this).add(PIPELINE_TAG, context.pipeline);
    if (props.monitoring !== 'none') warnOfUnheardAlarms(this, props.alarmTopic, props.runbookUrl);
    warnOfExampleHost(this, context.baseUrl);
    warnOfRoutes(this, context.routes, context.settings.budget);
  }

  /**
   * Allows the grantee to put files into the inbox, and nothing else. This grant and the others are no success, and
   * warn at synth, if a statement is missing in a policy that this app cannot change.
   */
  grantUpload(grantee: IGrantable): Grant {
    return this.#grant('grantUpload', grantee, (grants) => this.#parts.inbox.grantUpload(grants));
  }

  /** Allows the grantee to list and read the results, and nothing else. */
  grantReadResults(grantee: IGrantable): Grant {
    return this.#grant('grantReadResults', grantee, (grants) => this.#parts.results.grantRead(grants));
  }

  /**
   * Allows the grantee what `flowdrop` needs to show things: uploads, results, records, the stack's outputs, the
   * settings, the logs, how long the queues are, the policies of the queue and of its key, the rule on the events of an
   * existing inbox, and the alarms of the account and region. It changes nothing, and asks the flow service nothing.
   * @throws {ConfigurationError} the grantee is of another account. The same holds for the other grants below.
   */
  grantView(grantee: IGrantable): Grant {
    return this.#grant('grantView', grantee, (grants) => this.#view(grants));
  }

  /**
   * Allows the grantee what {@link grantView} does, to put files, and to have the collecting function retry, collect,
   * cancel, sweep, pause and resume, and to try the targets of `notify`. That function has the token, and the right to
   * write to the ledger. The grantee has neither.
   */
  grantOperate(grantee: IGrantable): Grant {
    return this.#grant('grantOperate', grantee, (grants) => {
      this.#view(grants);
      this.#parts.inbox.grantUpload(grants);
      grants.add({ actions: ['lambda:InvokeFunction'], resources: [this.collectOutputsFunction.functionArn] });
      this.#notifications.grantTest(grants, this.#parts.events.busArn);
    });
  }

  /**
   * Allows the grantee, besides {@link grantView}, to delete every trace of an upload for good. An upload without its
   * entry may be paid for again, so this is a grant of its own.
   */
  grantForget(grantee: IGrantable): Grant {
    return this.#grant('grantForget', grantee, (grants) => {
      this.#view(grants);
      const { inbox, results, ledger } = this.#parts;
      for (const part of [inbox, results, ledger]) part.grantForget(grants);
    });
  }

  #grant(method: string, grantee: IGrantable, give: (grants: Grants) => void): Grant {
    const grants = new Grants(this, method, grantee);
    give(grants);
    return grants.end();
  }

  #view(grants: Grants): void {
    const { inbox, results, ledger, uploads } = this.#parts;
    for (const part of [inbox, results, ledger, uploads]) part.grantView(grants);
    for (const each of [this.#createFlow, this.#collectOutputs]) each.grantReadLog(grants);
    grants.add({ actions: ['cloudformation:DescribeStacks'], resources: [Stack.of(this).stackId] });
    const resources = [this.collectOutputsFunction.functionArn];
    grants.add({ actions: ['lambda:GetFunctionConfiguration'], resources });
    grants.add({
      actions: ['cloudwatch:DescribeAlarms'],
      resources: [Stack.of(this).formatArn({ service: 'cloudwatch', resource: 'alarm:*' })],
      // See "Actions, resources, and condition keys for Amazon CloudWatch".
      wildcardReason: 'A listing of alarms is of all alarms.',
    });
    for (const { topicArn } of this.#alarmTopics) {
      grants.add({ actions: ['sns:GetTopicAttributes'], resources: [topicArn] });
    }
  }

  #newParts(props: FlowPipelineProps, { pipeline, settings }: Context): Parts {
    const { encryptionKey, accessLogsBucket, s3Events = false, removalPolicy = RemovalPolicy.RETAIN } = props;
    const common = { encryptionKey, removalPolicy, accessLogsBucket };
    const uploads = new UploadQueue(this, 'Queue', { encryptionKey, batchWindow: props.batchWindow });
    return {
      uploads,
      rounds: new RoundQueue(this, 'Rounds', { encryptionKey }),
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
        versionRetention: props.versionRetention,
        retention: props.resultsRetention,
        canaryKey: settings.canaryKey,
      }),
      ledger: new Ledger(this, 'Ledger', {
        ...common,
        existing: props.ledgerBucket,
        retentionDays: settings.ledgerRetentionDays,
        versionRetention: props.versionRetention,
      }),
      events: new CompletionEvents(this, 'Events', props.eventBus),
      token: new Token(this, 'Token', { existing: props.tokenSecret, pipeline, encryptionKey }),
    };
  }

  /** Rejects buckets that would make an upload of every result. */
  #checkBuckets({ settings }: Context): void {
    const issues = issuesOfBuckets({
      inboxBucket: this.inboxBucket.bucketName,
      resultsBucket: this.resultsBucket.bucketName,
      ledgerBucket: this.ledgerBucket.bucketName,
      inboxPrefix: settings.inboxPrefix,
      resultsPrefix: settings.resultsPrefix,
    });
    if (issues.length > 0) throw new ConfigurationError(issues.map((issue) => `${this.node.path}: ${issue}`));
  }

  /** Rejects a header that would leave out the key of a bucket, or make S3 take a key of this account instead. */
  #checkEncryption({ encryptionHeader }: FlowPipelineProps): void {
    if (encryptionHeader === undefined) return;
    const issues = (['inboxBucket', 'resultsBucket', 'ledgerBucket'] as const).flatMap((name) => {
      const { encryptionKey, env } = this[name];
      const hasKey = encryptionKey !== undefined;
      if (encryptionHeader === 'AES256') {
        return hasKey ? [`expected aws:kms or aws:kms:dsse, because the ${name} has a key, got AES256`] : [];
      }
      if (hasKey || env.account === Stack.of(this).account) return [];
      const keyArn = name.replace('Bucket', 'KeyArn');
      return [
        `expected the key of the ${name} as well (deployment.${keyArn}), because S3 would take one of this account, ` +
          `which the owner of the bucket may not use, got ${encryptionHeader}`,
      ];
    });
    if (issues.length > 0)
      throw new ConfigurationError(issues.map((issue) => `${this.node.path}.encryptionHeader: ${issue}`));
  }

  /** Rejects a name or a ledger that another pipeline of the app has already. */
  #checkOthers(): void {
    const issues = this.node.root.node.findAll().flatMap((other) => {
      if (!(other instanceof FlowPipeline) || other === this) return [];
      const ofName =
        `${this.node.path}.name: expected a name that no other pipeline of the account and region has, got ` +
        `${this.pipelineName}, which ${other.node.path} has. Change one, or give their stacks different environments (env)`;
      const ofLedger = `${this.node.path}.ledgerBucket: expected a ledger of its own, got that of ${other.node.path}`;
      const hasName = isSameInApp(this.pipelineName, other.pipelineName) && isBeside(this, other);
      const hasLedger = isSameInApp(this.ledgerBucket.bucketName, other.ledgerBucket.bucketName);
      return [...(hasName ? [ofName] : []), ...(hasLedger ? [ofLedger] : [])];
    });
    if (issues.length > 0) throw new ConfigurationError(issues);
  }

  #newFunctions(props: FlowPipelineProps, checked: CheckedProps) {
    const { context, maxConcurrency, batchWindow, collectors } = checked;
    const { encryptionKey } = props;
    const { uploadConcurrency, canaryKey } = context.settings;
    const shared = {
      parts: this.#parts,
      environment: this.#environment(checked, props),
      expire: props.resultsRetention !== undefined,
      network: this.#network(props, context.baseUrl),
      logRetention: props.logRetention ?? RetentionDays.ONE_MONTH,
      encryptionKey,
    };
    const batching = { uploadConcurrency, maxConcurrency, batchWindow };
    const hasChains = context.routes.some(({ after }) => after !== undefined);
    const afterSuccess = new Set(context.routes.map((route) => route.afterSuccess));
    const aliasFolders = new Set(context.routes.flatMap(({ alias }) => (alias ? [aliasFolderOf(alias)] : [])));
    const tagsFiles = afterSuccess.has('tag');
    const createFlow = new CreateFlow(this, 'CreateFlow', { ...shared, ...batching, hasChains, tagsFiles, canaryKey });
    const collectOutputs = new CollectOutputs(this, 'CollectOutputs', {
      ...shared,
      ...{ collectors, afterSuccess, aliasFolders },
    });
    allowLogging(this, encryptionKey, `/aws/lambda/${context.pipeline}-`);
    // The group is deleted before the policies, which Lambda needs to remove the network interfaces of the group.
    const policies = [createFlow, collectOutputs].flatMap(({ networkPolicy }) => networkPolicy ?? []);
    this.node.tryFindChild(SECURITY_GROUP)?.node.addDependency(...policies);
    return { createFlow, collectOutputs };
  }

  #environment(
    { context, serviceUrl, laterValues }: CheckedProps,
    { proxy, monitoring, resultsRetention, encryptionHeader }: FlowPipelineProps,
  ): Env {
    const { pipeline, routes, settings, service } = context;
    const described = shortOf(service);
    const changed = Object.entries(settings).filter(
      ([name, value]) => !isDeepStrictEqual(value, SETTINGS_DEFAULT[name as keyof PipelineSettings]),
    );
    const keyOf = (name: keyof Env, { encryptionKey }: IBucket) => encryptionKey && { [name]: encryptionKey.keyArn };
    return {
      PIPELINE: pipeline,
      FLOW_SERVICE_URL: serviceUrl,
      TOKEN_SECRET_ID: this.tokenSecretId,
      INBOX_BUCKET: this.inboxBucket.bucketName,
      RESULTS_BUCKET: this.resultsBucket.bucketName,
      LEDGER_BUCKET: this.ledgerBucket.bucketName,
      QUEUE_URL: this.queue.queueUrl,
      ROUND_QUEUE_URL: this.#parts.rounds.queue.queueUrl,
      // Chosen here, because the environment of a function cannot refer to the function itself.
      COLLECT_FUNCTION: `${pipeline}-collect-outputs`,
      COMMAND: OWN_COMMAND,
      EVENT_BUS: this.#parts.events.busArn,
      ROUTES: JSON.stringify(routes),
      ...laterValues,
      SETTINGS: JSON.stringify(Object.fromEntries(changed)),
      ...(described !== undefined && { SERVICE: JSON.stringify(described) }),
      ...(monitoring !== undefined && { MONITORING: monitoring }),
      ...(resultsRetention && { RESULTS_RETENTION_DAYS: String(resultsRetention.toDays()) }),
      ...(encryptionHeader && {
        ENCRYPTION_HEADER: encryptionHeader,
        ...keyOf('INBOX_KEY', this.inboxBucket),
        ...keyOf('RESULTS_KEY', this.resultsBucket),
        ...keyOf('LEDGER_KEY', this.ledgerBucket),
      }),
      ...(proxy && variablesOf({ https: proxyAt(proxy.url), except: proxy.noProxy })),
    };
  }

  #network({ vpc, vpcSubnets, securityGroups = [], proxy }: FlowPipelineProps, baseUrl: URL): NetworkProps | undefined {
    if (vpc === undefined) return undefined;
    if (securityGroups.length > 0) return { vpc, vpcSubnets, securityGroups };
    const access = { baseUrl, proxy: proxy && proxyAt(proxy.url) };
    return { vpc, vpcSubnets, securityGroups: [functionSecurityGroup(this, SECURITY_GROUP, vpc, access)] };
  }

  #newMonitoring(props: FlowPipelineProps, { context, collectors }: CheckedProps) {
    const { monitoring = 'full', runbookUrl = RUNBOOK_IN_PACKAGE, alarmTopic, ticketTopic = alarmTopic } = props;
    if (monitoring === 'none') return {};
    const monitored = {
      pipeline: context.pipeline,
      queue: this.queue,
      deadLetterQueue: this.deadLetterQueue,
      notifyDeadLetters: this.#notifications.deadLetters,
      createFlowFunction: this.createFlowFunction,
      collectOutputsFunction: this.collectOutputsFunction,
      collectors,
      flowAgeMaxSeconds: context.settings.flowAgeMaxSeconds,
      canaryKey: context.settings.canaryKey,
      hasBudgets: context.settings.budget !== 'unlimited' || context.routes.some(({ budget }) => budget !== undefined),
    };
    const { all, byName } = new Alarms(this, 'Alarms', {
      ...monitored,
      changes: props.alarms,
      runbookUrl,
      topics: { page: alarmTopic, ticket: ticketTopic },
    });
    if (monitoring === 'full') new PipelineDashboard(this, 'Dashboard', { ...monitored, alarms: all });
    new SavedQueries(this, 'Queries', {
      pipeline: context.pipeline,
      logs: { 'create-flow': this.#createFlow.logGroup, 'collect-outputs': this.#collectOutputs.logGroup },
    });
    return byName;
  }
}
