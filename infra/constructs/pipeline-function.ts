import { Annotations, ArnFormat, Duration, RemovalPolicy, Stack, StringConcat, Token, Tokenization } from 'aws-cdk-lib';
import { Effect, Policy, PolicyStatement, Role, ServicePrincipal } from 'aws-cdk-lib/aws-iam';
import type { IKey } from 'aws-cdk-lib/aws-kms';
import { Architecture, Function as LambdaFunction, Runtime, RuntimeFamily } from 'aws-cdk-lib/aws-lambda';
import { LogGroup, type RetentionDays } from 'aws-cdk-lib/aws-logs';
import { Construct } from 'constructs';
import type { Env } from '../../functions/settings/environment.ts';
import { BUNDLE_HANDLER, type FunctionName } from '../bundle/bundle.ts';
import { MEMORY_MIB } from '../function-limits.ts';
import { acknowledgeWildcards } from './acknowledge.ts';
import { functionCode, ROUTES_BESIDE_BUNDLE } from './function-code.ts';
import type { Grants } from './grants.ts';
import type { NetworkProps } from './network.ts';
import { allow } from './permissions.ts';

/**
 * Lambda's maximum. At the speed that {@link MEMORY_MIB} buys, the largest asset of the default settings, 20 GiB, takes
 * a third of it. A slow service takes longer. Unused time costs nothing.
 */
export const FUNCTION_TIMEOUT = Duration.minutes(15);

/**
 * Lambda's limit on all names and values together.
 * @see https://docs.aws.amazon.com/lambda/latest/dg/gettingstarted-limits.html
 */
const ENVIRONMENT_BYTES_MAX = 4096;

/** Assumed length of a value that is known only after deployment. The ARNs and URLs of a pipeline are shorter. */
const UNKNOWN_VALUE_BYTES = 256;

/** `Runtime.NODEJS_24_X`, which an older CDK, such as 2.220, does not have. */
const NODEJS_24 = new Runtime('nodejs24.x', RuntimeFamily.NODEJS);

/** Settings that both functions share. */
export interface FunctionSettings {
  readonly environment: Env;
  readonly network: NetworkProps | undefined;
  readonly logRetention: RetentionDays;
  readonly encryptionKey: IKey | undefined;
}

export interface PipelineFunctionProps extends FunctionSettings {
  readonly entry: FunctionName;
  readonly functionName: string;
  readonly description: string;
}

/** One of the two functions. Its role can write the function's log, and nothing else until it is granted more. */
export class PipelineFunction extends Construct {
  readonly function: LambdaFunction;
  readonly role: Role;
  readonly logGroup: LogGroup;
  /** Undefined if the function is in no VPC. */
  readonly networkPolicy: Policy | undefined;

  constructor(scope: Construct, id: string, props: PipelineFunctionProps) {
    super(scope, id);
    const { entry, functionName, description, network, logRetention, encryptionKey } = props;
    this.logGroup = new LogGroup(this, 'Logs', {
      logGroupName: `/aws/lambda/${functionName}`,
      retention: logRetention,
      encryptionKey,
      removalPolicy: RemovalPolicy.DESTROY,
    });
    this.role = new Role(this, 'Role', { assumedBy: new ServicePrincipal('lambda.amazonaws.com'), description });
    allow(this.role, {
      actions: ['logs:CreateLogStream', 'logs:PutLogEvents'],
      resources: [this.logGroup.logGroupArn],
    });
    this.networkPolicy = network && this.#newNetworkPolicy(functionName);
    const { environment, routes } = this.#fitted(props.environment);
    this.function = new LambdaFunction(this, 'Function', {
      functionName,
      description,
      runtime: NODEJS_24,
      architecture: Architecture.ARM_64,
      handler: BUNDLE_HANDLER,
      code: functionCode(entry, routes),
      memorySize: MEMORY_MIB,
      timeout: FUNCTION_TIMEOUT,
      environment: { ...environment },
      role: this.role,
      logGroup: this.logGroup,
      ...network,
    });
    // The function refers to its role but not to the role's policy. Without this, it could run before it has
    // permissions.
    this.function.node.addDependency(this.role, ...(this.networkPolicy ? [this.networkPolicy] : []));
  }

  /** Allows the grantee to read the log. */
  grantReadLog(grants: Grants): void {
    grants.add({ actions: ['logs:FilterLogEvents'], resources: [this.logGroup.logGroupArn] });
  }

  /** The environment within Lambda's limit. Routes that do not fit go into a file beside the bundle. */
  #fitted(environment: Env): { readonly environment: Env; readonly routes: string | undefined } {
    const inline = bytesOf(environment);
    const fits = inline <= ENVIRONMENT_BYTES_MAX;
    const fitted = fits ? environment : { ...environment, ROUTES: ROUTES_BESIDE_BUNDLE };
    const bytes = bytesOf(fitted);
    const known = bytesOf(fitted, 0);
    if (known > ENVIRONMENT_BYTES_MAX) {
      throw new Error(
        `${this.node.path}: the environment takes ${known} bytes even without routes, and Lambda allows ${ENVIRONMENT_BYTES_MAX}`,
      );
    }
    if (bytes > ENVIRONMENT_BYTES_MAX) {
      Annotations.of(this).addWarningV2(
        'flowdrop:environment-length',
        `Lambda allows an environment of ${ENVIRONMENT_BYTES_MAX} bytes. If the values that are known only at deployment take more than ` +
          `${ENVIRONMENT_BYTES_MAX - known} of them together, the deployment fails, and changes nothing.`,
      );
    }
    Annotations.of(this).addInfo(
      `The environment takes at most ${bytes} of ${ENVIRONMENT_BYTES_MAX} bytes` +
        (fits ? '.' : `; with the routes it would take ${inline}, so they are in a file beside the bundle.`),
    );
    return { environment: fitted, routes: fits ? undefined : environment.ROUTES };
  }

  /**
   * Allows Lambda to connect the function to the VPC, and denies the same to the function's own code.
   *
   * This is a policy of its own. If a deployment takes the function out of the VPC, CloudFormation changes policies
   * before the function, but deletes what is gone after it. Without the permission, the network interfaces would stay.
   * @see https://docs.aws.amazon.com/lambda/latest/dg/configuration-vpc.html#configuration-vpc-permissions
   * @see https://github.com/aws/aws-cdk/issues/34400
   */
  #newNetworkPolicy(functionName: string): Policy {
    const actions = [
      'ec2:CreateNetworkInterface',
      'ec2:DescribeNetworkInterfaces',
      'ec2:DescribeSubnets',
      'ec2:DeleteNetworkInterface',
      'ec2:AssignPrivateIpAddresses',
      'ec2:UnassignPrivateIpAddresses',
    ];
    const resources = ['*'];
    const resource = { service: 'lambda', resource: 'function', resourceName: functionName };
    const functionArn = Stack.of(this).formatArn({ ...resource, arnFormat: ArnFormat.COLON_RESOURCE_NAME });
    const conditions = { ArnEquals: { 'lambda:SourceFunctionArn': functionArn } };
    const denied = new PolicyStatement({ effect: Effect.DENY, actions, resources, conditions });
    const policy = new Policy(this, 'Network', { statements: [denied, new PolicyStatement({ actions, resources })] });
    // By the role: if others make it, CDK leaves the policy out.
    this.role.attachInlinePolicy(policy);
    acknowledgeWildcards(
      policy,
      resources,
      'Lambda checks for these permissions on every network interface before it attaches a function to a VPC.',
    );
    return policy;
  }
}

/** @param unknownBytes assumed length of a value that is known only after deployment. */
const bytesOf = (environment: Env, unknownBytes = UNKNOWN_VALUE_BYTES): number =>
  Object.entries(environment).reduce(
    (sum, [name, value]) => sum + name.length + bytesOfValue(value, unknownBytes, LATER_NAME.test(name)),
    0,
  );

/** Variables that the app makes, of as many values and texts as it likes. One of ours has at most one such value. */
const LATER_NAME = /^(?:TEXT|NUMBER)_/;

function bytesOfValue(value: string, unknownBytes: number, countsEach: boolean): number {
  if (!Token.isUnresolved(value)) return Buffer.byteLength(value);
  if (!countsEach) return unknownBytes;
  const fragments = Tokenization.reverseString(value).mapTokens({ mapToken: () => '?'.repeat(unknownBytes) });
  return Buffer.byteLength(fragments.join(new StringConcat()));
}
