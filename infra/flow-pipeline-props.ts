import { Duration, type RemovalPolicy, Token } from 'aws-cdk-lib';
import type { ISecurityGroup, IVpc, SubnetSelection } from 'aws-cdk-lib/aws-ec2';
import type { IEventBus } from 'aws-cdk-lib/aws-events';
import type { IManagedPolicy } from 'aws-cdk-lib/aws-iam';
import type { IKey } from 'aws-cdk-lib/aws-kms';
import type { RetentionDays } from 'aws-cdk-lib/aws-logs';
import type { IBucket } from 'aws-cdk-lib/aws-s3';
import type { ISecret } from 'aws-cdk-lib/aws-secretsmanager';
import type { ITopic } from 'aws-cdk-lib/aws-sns';
import type { Construct } from 'constructs';
import * as z from 'zod/mini';
import type { JsonObject } from '../functions/base/json.ts';
import type { Monitoring } from '../functions/base/telemetry.ts';
import { ConfigurationError, check } from '../functions/base/validation.ts';
import { inputUrlSeconds, type ServiceDescription } from '../functions/flow-service/service-description.ts';
import type { EncryptionHeader } from '../functions/s3/encryption.ts';
import { ALARM_NAMES } from '../functions/settings/alarm-names.ts';
import { type Context, parseContext } from '../functions/settings/context.ts';
import type { PipelineSettings } from '../functions/settings/settings.ts';
import type { Budget } from '../functions/uploads/budget.ts';
import type { Route } from '../functions/uploads/route.ts';
import { encryptionHeaderSchema, OWN_LIFECYCLE, proxySchema } from './deployment.ts';
import { type Separated, separateLater, shown } from './later-values.ts';
import type { AlarmChanges } from './monitoring/alarms.ts';
import { type NotifyTarget, notifySchema } from './notify.ts';
import {
  BATCH_WINDOW_SECONDS,
  COLLECTORS,
  MAX_CONCURRENCY,
  MAX_CONCURRENCY_DEFAULT,
  type Range,
  RESULTS_RETENTION_DAYS,
  RUNBOOK_URL_MAX,
  VERSION_RETENTION_DAYS,
} from './ranges.ts';

/** A budget. Without `timezone`, its days begin in UTC. */
export type BudgetProps = Omit<Budget, 'timezone'> & Partial<Pick<Budget, 'timezone'>>;

/** A route. Without `input`, it takes files. */
export type RouteProps = Omit<Route, 'input' | 'budget'> &
  Partial<Pick<Route, 'input'>> & { readonly budget?: BudgetProps };

/** Settings that differ from the defaults. */
export type SettingsProps = Omit<Partial<PipelineSettings>, 'budget'> & {
  readonly budget?: BudgetProps | 'unlimited';
};

/** How the service speaks: the name of a description, a whole one, or what differs from one. */
export type ServiceProps = string | ServiceDescription | (JsonObject & { readonly from: string });

/** Settings, numbers, durations and addresses must be known at synth, unless their description says otherwise. */
export interface FlowPipelineProps {
  /**
   * Base URL of the flow service, `https://...`. It may be known only at deployment, such as the value of a parameter.
   * With `vpc`, `securityGroups` must be set then.
   */
  readonly baseUrl: string;
  /**
   * The routes: each says which uploads become flows of its template. The first route that matches wins.
   *
   * `name`, `after`, `template`, `parameters`, `additional` and `revision` may be known only at deployment. The functions
   * check them when they start. The others must be known at synth: they are compared with each other, and permissions
   * are made from them.
   */
  readonly routes: readonly RouteProps[];
  /**
   * Name of the pipeline. It is in the tags of its flows at the service, and the names of its functions, alarms and
   * dashboard start with it. Each pipeline of an account and region needs a name of its own. It may be
   * known only at deployment.
   * @default 'flowdrop'
   */
  readonly name?: string;
  /**
   * Settings of the functions that differ from the defaults. They must be known at synth.
   * @default - see {@link PipelineSettings}
   */
  readonly settings?: SettingsProps;
  /**
   * How the flow service speaks: the name of a description that ships with Flowdrop, a whole description, or one with
   * some members changed: `{ from: 'flows', state: { completed: ['succeeded'] } }`. `null` removes a member.
   * @default 'flows'
   */
  readonly service?: ServiceProps;
  /**
   * An existing bucket for the uploads. It must send its events to EventBridge. Its other notifications stay as they
   * are. If it is encrypted with a key, or belongs to another account, import the bucket together with that key and
   * that account, by `Bucket.fromBucketAttributes`. The same holds for the other buckets.
   * @default - a new bucket
   */
  readonly inboxBucket?: IBucket;
  /**
   * An existing bucket for the results. It may be the inbox bucket if `settings` has an `inboxPrefix` and a
   * `resultsPrefix`.
   * @default - a new bucket
   */
  readonly resultsBucket?: IBucket;
  /**
   * The ledger of an earlier deployment of the same pipeline. Its entries keep the uploads that it knows from being
   * paid for again. No other pipeline may use it. Its lifecycle rules stay as they are.
   * @default - a new bucket
   */
  readonly ledgerBucket?: IBucket;
  /**
   * An existing secret that holds the token of the flow service: the token itself, or JSON with the field `token`.
   * @default - a new secret. Store the token in it after the deployment.
   */
  readonly tokenSecret?: ISecret;
  /**
   * Event bus that gets one event per ended upload: `Flow Succeeded` or `Flow Failed`, from the source `flowdrop`. For
   * each ended chain it gets one more: `Chain Succeeded` or `Chain Failed`.
   * @default - the account's default bus
   */
  readonly eventBus?: IEventBus;
  /**
   * Who is told of which events: an https address, with the secret of its header `Authorization`, or an existing queue.
   * For a queue of this app, add a rule to the bus instead.
   * @default - nobody
   */
  readonly notify?: readonly NotifyTarget[];
  /**
   * Key that encrypts the new resources that hold data: buckets, queues, secret and logs of the functions. If the key
   * belongs to this app, its policy gets the statements that it needs. If not, a warning at synth lists them.
   * @default - keys that AWS manages
   */
  readonly encryptionKey?: IKey;
  /**
   * The encryption that each write to a bucket names in its header `x-amz-server-side-encryption`, for a policy that
   * demands it. With `aws:kms` and `aws:kms:dsse`, a write names the key of the bucket too, if that has one. It must be
   * known at synth.
   * @default - none: S3 takes the default encryption of the bucket
   */
  readonly encryptionHeader?: EncryptionHeader;
  /**
   * VPC to run the functions in. They must be able to reach the flow service, S3, SQS, Secrets Manager and EventBridge.
   * @default - no VPC
   */
  readonly vpc?: IVpc;
  /**
   * Subnets of `vpc` to run the functions in.
   * @default - the VPC's private subnets
   */
  readonly vpcSubnets?: SubnetSelection;
  /**
   * Security groups of the functions, if they run in a VPC.
   * @default - a new group. It allows traffic out to port 443 and to the ports of the flow service and of the proxy, and
   * none in.
   */
  readonly securityGroups?: ISecurityGroup[];
  /**
   * Proxy between the functions and the flow service: its address without user and password, and what goes past it. No
   * request to AWS goes through it.
   * @default - none
   */
  readonly proxy?: { readonly url: string; readonly noProxy?: string[] };
  /**
   * Permissions boundary of every new role.
   * @default - none
   */
  readonly permissionsBoundary?: IManagedPolicy;
  /**
   * Bucket for the access logs of the new buckets, in the account and region of the stack, encrypted with SSE-S3. If it
   * is imported, a warning at synth lists the statement that its policy needs.
   * @default - no access logs
   */
  readonly accessLogsBucket?: IBucket;
  /**
   * True if the new buckets also send their events to EventBridge, for rules of your own.
   * @default false
   */
  readonly s3Events?: boolean;
  /**
   * How long the functions' logs are kept.
   * @default RetentionDays.ONE_MONTH
   */
  readonly logRetention?: RetentionDays;
  /**
   * What happens to the new buckets when the stack is deleted. Everything else is deleted with it. Even with `DESTROY`,
   * CloudFormation deletes a bucket only if it is empty.
   * @default RemovalPolicy.RETAIN
   */
  readonly removalPolicy?: RemovalPolicy;
  /**
   * How long the new ledger and the new results bucket keep replaced and deleted objects, in whole days up to 3,650.
   * Both buckets are then versioned. In the ledger that is true of entries only: old versions of markers and of state
   * are kept for one day. If the pipeline is at work already, pause it for 15 minutes: see docs/backup-and-restore.md.
   * @default - the two buckets have no versions: what is replaced or deleted is gone
   */
  readonly versionRetention?: Duration;
  /**
   * Age at which assets in the new results bucket expire, in whole days up to 3,650. Receipts, aliases and what a chain
   * that has not ended may still take stay. So do assets that were stored without this.
   * @default - assets stay
   */
  readonly resultsRetention?: Duration;
  /**
   * Maximum number of invocations that send files at the same time, from 2 to 1,000. Each sends up to
   * `settings.uploadConcurrency` files. If the service limits requests, the functions adapt to its pace by themselves.
   * `settings.requestsPerSecond` is a ceiling for each invocation.
   * @default 5
   */
  readonly maxConcurrency?: number;
  /**
   * How long a batch waits for more files, up to 5 minutes. With a window, a batch holds up to
   * `settings.uploadConcurrency` files, so many small files take fewer invocations. Without one, a file is sent at once
   * and a batch holds at most 10.
   * @default - no window
   */
  readonly batchWindow?: Duration;
  /**
   * Number of collectors that share the running flows, from 1 to 64. One is enough for thousands of flows.
   * @default 1
   */
  readonly collectors?: number;
  /**
   * What monitors the pipeline. `full`: alarms, the saved queries of the runbook, and a dashboard. `alarms`: no dashboard,
   * and of the functions' metrics only those that alarms read. `none`: nothing, and no metrics.
   * @default 'full'
   */
  readonly monitoring?: Monitoring;
  /**
   * Topic that is notified when an alarm starts. If the topic belongs to this app and has no
   * subscription, a warning at synth says so. If an imported topic has a policy of its own, that must let
   * `cloudwatch.amazonaws.com` publish.
   * @default - none. Alarms show in the console only, and a warning at synth says so.
   */
  readonly alarmTopic?: ITopic;
  /**
   * Topic for the alarms that can wait until morning. Their description says `Severity: ticket`.
   * @default alarmTopic
   */
  readonly ticketTopic?: ITopic;
  /**
   * Changes of alarms, by name: `{ 'flows-failed': false, 'uploads-delayed': { threshold: 7200, severity: 'page' } }`.
   * `false` leaves an alarm out.
   * @default - all alarms, as the runbook describes them
   */
  readonly alarms?: AlarmChanges;
  /**
   * URL of the runbook. It has one heading for each alarm.
   * @default - docs/runbook.md in this package. If there is an `alarmTopic`, a warning at synth asks for a URL.
   */
  readonly runbookUrl?: string;
}

/** The props that are checked and completed here: the context of the functions, and numbers with a range. */
export interface CheckedProps {
  readonly context: Context;
  /** `baseUrl` as the functions get it. In the context, another one stands for an address that is known only at deployment. */
  readonly serviceUrl: string;
  /** Values of the routes that are known only at deployment. */
  readonly laterValues: Separated['values'];
  readonly maxConcurrency: number;
  readonly batchWindow: Duration;
  readonly collectors: number;
}

/**
 * Checks the props and fills in defaults.
 * @param scope the construct, whose path is in the messages.
 * @throws {ConfigurationError} naming every issue of the props, not only the first.
 */
export function checkProps(props: FlowPipelineProps, scope: Construct): CheckedProps {
  const { name, baseUrl, routes, settings, service } = props;
  const where = scope.node.path;
  const {
    maxConcurrency = MAX_CONCURRENCY_DEFAULT,
    batchWindow = Duration.seconds(0),
    collectors = COLLECTORS.min,
    versionRetention = Duration.days(VERSION_RETENTION_DAYS.min),
    resultsRetention = Duration.days(RESULTS_RETENTION_DAYS.min),
  } = props;
  const [[parsed, laterValues]] = together(
    () => {
      const { json, values } = asWritten({ pipeline: name, baseUrl, routes, settings, service }, scope);
      return [parseContext(JSON.parse(json), where), values] as const;
    },
    () =>
      checkDeployment(props, scope, [
        ['maxConcurrency', maxConcurrency, MAX_CONCURRENCY],
        ['batchWindow in seconds', batchWindow.toSeconds({ integral: false }), BATCH_WINDOW_SECONDS],
        ['collectors', collectors, COLLECTORS],
        ['versionRetention in days', versionRetention.toDays({ integral: false }), VERSION_RETENTION_DAYS],
        ['resultsRetention in days', resultsRetention.toDays({ integral: false }), RESULTS_RETENTION_DAYS],
      ]),
  );
  const context = Token.isUnresolved(name) ? { ...parsed, pipeline: String(name) } : parsed;
  const isLater = Token.isUnresolved(baseUrl);
  const hasGroups = props.securityGroups !== undefined && props.securityGroups.length > 0;
  if (isLater && props.vpc !== undefined && !hasGroups) {
    throw new ConfigurationError([
      `${where}.baseUrl: expected a URL that is known at synth, because the new security group allows traffic to its port, got ${shown(scope, baseUrl)}. ` +
        'Write the URL itself, or set securityGroups to groups that allow it.',
    ]);
  }
  const later = context.routes.findIndex(({ after }) => after !== undefined);
  const isVersioned = props.versionRetention !== undefined || props.resultsBucket !== undefined;
  if (inputUrlSeconds(context.service) !== undefined && later !== -1 && !isVersioned) {
    throw new ConfigurationError([
      `${where}.routes[${later}].after: expected none, because the results bucket keeps no versions, and the service ` +
        'fetches exactly one version by its address ({inputUrl}). Set deployment.versionRetentionDays (versionRetention).',
    ]);
  }
  if (props.resultsRetention !== undefined && props.resultsBucket !== undefined) {
    throw new ConfigurationError([`${where}.resultsRetention: expected none with resultsBucket; ${OWN_LIFECYCLE}`]);
  }
  const serviceUrl = isLater ? baseUrl : context.baseUrl.href.replace(/\/$/, '');
  return { context, serviceUrl, laterValues, maxConcurrency, batchWindow, collectors };
}

/**
 * The value through JSON, as it reaches the functions: an undefined member is absent there.
 * @throws {ConfigurationError} JSON cannot say it, or it must be known at synth and is not.
 */
function asWritten(value: object, scope: Construct): Separated {
  const where = scope.node.path;
  let separated: Separated;
  try {
    separated = separateLater(scope, value);
  } catch (cause) {
    // If it is nested too deeply, the check says where.
    parseContext(value, where);
    throw new ConfigurationError([`${where}: expected something that JSON can say: ${(cause as Error).message}`], {
      cause,
    });
  }
  if (separated.issues.length > 0) throw new ConfigurationError(separated.issues);
  return separated;
}

function checkDeployment(
  { proxy, notify = [], alarms = {}, encryptionHeader, runbookUrl = '' }: FlowPipelineProps,
  scope: Construct,
  values: readonly (readonly [name: string, value: number, range: Range])[],
): void {
  const where = scope.node.path;
  const numbers = Object.fromEntries(values.map(([name, value]) => [name, value]));
  const unknown = separateLater(scope, { ...numbers, proxy, notify, encryptionHeader }).issues;
  if (unknown.length > 0) throw new ConfigurationError(unknown);
  const ofProxy = proxy === undefined ? [] : check(proxySchema, proxy, `${where}.proxy`).issues;
  const ofRanges = values
    .filter(([, value, { min, max }]) => !(Number.isInteger(value) && value >= min && value <= max))
    .map(
      ([name, value, { min, max }]) => `${where}.${name}: expected a whole number from ${min} to ${max}, got ${value}`,
    );
  const ofNotify = check(notifySchema, notify, `${where}.notify`).issues;
  const ofHeader = check(z.optional(encryptionHeaderSchema), encryptionHeader, `${where}.encryptionHeader`).issues;
  const ofAlarms = Object.keys(alarms)
    .filter((name) => !(ALARM_NAMES as readonly string[]).includes(name))
    .map((name) => `${where}.alarms: expected the names of alarms, ${ALARM_NAMES.join(', ')}, got "${name}"`);
  const ofRunbook =
    runbookUrl.length > RUNBOOK_URL_MAX
      ? [`${where}.runbookUrl: expected at most ${RUNBOOK_URL_MAX} characters, got ${runbookUrl.length}`]
      : [];
  const issues = [...ofRanges, ...ofProxy, ...ofNotify, ...ofHeader, ...ofAlarms, ...ofRunbook];
  if (issues.length > 0) throw new ConfigurationError(issues);
}

/**
 * Runs two parsers. If both find issues, one error names the issues of both, so that the operator can correct all of
 * them at once.
 * @throws {ConfigurationError}
 */
function together<A, B>(first: () => A, second: () => B): readonly [A, B] {
  const issues: string[] = [];
  const attempt = <T>(parse: () => T): T | undefined => {
    try {
      return parse();
    } catch (error) {
      if (!(error instanceof ConfigurationError)) throw error;
      issues.push(...error.issues);
      return undefined;
    }
  };
  const values = [attempt(first), attempt(second)] as const;
  if (issues.length > 0) throw new ConfigurationError(issues);
  return values as readonly [A, B];
}
