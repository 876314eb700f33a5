import { Annotations, ArnFormat, Duration, RemovalPolicy, Stack, Token } from 'aws-cdk-lib';
import type { ISecurityGroup, IVpc, SubnetSelection } from 'aws-cdk-lib/aws-ec2';
import { Role, ServicePrincipal } from 'aws-cdk-lib/aws-iam';
import type { IKey } from 'aws-cdk-lib/aws-kms';
import { Architecture, Function as LambdaFunction, Runtime } from 'aws-cdk-lib/aws-lambda';
import { LogGroup, type RetentionDays } from 'aws-cdk-lib/aws-logs';
import { Construct } from 'constructs';
import type { Env } from '../../functions/settings/environment.ts';
import { BUNDLE_HANDLER, type FunctionName } from '../bundle/bundle.ts';
import { functionCode, ROUTES_BESIDE_BUNDLE } from './function-code.ts';
import { allow, deny } from './permissions.ts';

/**
 * As long as Lambda allows: the largest asset that is taken by default, 20 GiB, needs a third of it at the speed
 * that {@link MEMORY_MIB} buys, a slow service needs more, and nothing is paid for time that is not used.
 */
export const FUNCTION_TIMEOUT = Duration.minutes(15);

/**
 * The functions stream, so memory is not what this buys but processor time, of which Lambda gives in proportion
 * (1,769 MB is one processor). At 512 a function moves some 67 MB/s out and more in (docs/scaling.md), and has room for
 * its buffers. Halving it makes small files slower to start and doubles the time of large ones; the price of a GiB stays
 * the same.
 * @see https://docs.aws.amazon.com/lambda/latest/dg/configuration-memory.html
 */
const MEMORY_MIB = 512;

/**
 * Names and values together. @see https://docs.aws.amazon.com/lambda/latest/dg/gettingstarted-limits.html
 */
const ENVIRONMENT_BYTES_MAX = 4096;

/** What is taken as the length of a value that is known only when it is deployed: the longest ARN or URL of ours. */
const UNKNOWN_VALUE_BYTES = 256;

export interface NetworkProps {
  readonly vpc: IVpc;
  readonly vpcSubnets: SubnetSelection | undefined;
  readonly securityGroups: ISecurityGroup[];
}

/** What is the same for both functions. */
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

/** One of the two functions, with a role that can write its log and, until it is granted more, nothing else. */
export class PipelineFunction extends Construct {
  readonly function: LambdaFunction;
  readonly role: Role;
  readonly logGroup: LogGroup;

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
    if (network !== undefined) this.#allowNetworkInterfaces(functionName);
    const { environment, routes } = this.#fitted(props.environment);
    this.function = new LambdaFunction(this, 'Function', {
      functionName,
      description,
      runtime: Runtime.NODEJS_24_X,
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
    // The function refers to its role, not to the role's policy, and could else be called before it may do anything.
    this.function.node.addDependency(this.role);
  }

  /** The environment as it fits: routes that are too long for it go into a file beside the bundle. */
  #fitted(environment: Env): { readonly environment: Env; readonly routes: string | undefined } {
    const inline = bytesOf(environment);
    const fits = inline <= ENVIRONMENT_BYTES_MAX;
    const fitted = fits ? environment : { ...environment, ROUTES: ROUTES_BESIDE_BUNDLE };
    const bytes = bytesOf(fitted);
    if (bytes > ENVIRONMENT_BYTES_MAX) {
      throw new Error(
        `${this.node.path}: the environment needs ${bytes} of ${ENVIRONMENT_BYTES_MAX} bytes without routes`,
      );
    }
    Annotations.of(this).addInfo(
      `The environment takes at most ${bytes} of ${ENVIRONMENT_BYTES_MAX} bytes` +
        (fits ? '.' : `; with the routes it would take ${inline}, so they are in a file beside the bundle.`),
    );
    return { environment: fitted, routes: fits ? undefined : environment.ROUTES };
  }

  /**
   * Lets Lambda connect the function to the VPC, and keeps the function's own code from doing the same.
   * @see https://docs.aws.amazon.com/lambda/latest/dg/configuration-vpc.html#configuration-vpc-permissions
   */
  #allowNetworkInterfaces(functionName: string): void {
    const actions = [
      'ec2:CreateNetworkInterface',
      'ec2:DescribeNetworkInterfaces',
      'ec2:DescribeSubnets',
      'ec2:DeleteNetworkInterface',
      'ec2:AssignPrivateIpAddresses',
      'ec2:UnassignPrivateIpAddresses',
    ];
    const resource = { service: 'lambda', resource: 'function', resourceName: functionName };
    const functionArn = Stack.of(this).formatArn({ ...resource, arnFormat: ArnFormat.COLON_RESOURCE_NAME });
    deny(this.role, {
      actions,
      resources: ['*'],
      conditions: { ArnEquals: { 'lambda:SourceFunctionArn': functionArn } },
    });
    allow(this.role, {
      actions,
      resources: ['*'],
      wildcardReason:
        'Lambda checks for these permissions on every network interface before it attaches a function to a VPC.',
    });
  }
}

function bytesOf(environment: Env): number {
  return Object.entries(environment).reduce(
    (sum, [name, value]) =>
      sum + name.length + (Token.isUnresolved(value) ? UNKNOWN_VALUE_BYTES : Buffer.byteLength(value)),
    0,
  );
}
