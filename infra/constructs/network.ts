import { type ISecurityGroup, type IVpc, Port, SecurityGroup, type SubnetSelection } from 'aws-cdk-lib/aws-ec2';
import type { Construct } from 'constructs';
import { portOf } from '../../functions/flow-service/proxy.ts';

const HTTPS_PORT = 443;

/** The VPC that the functions run in. */
export interface NetworkProps {
  readonly vpc: IVpc;
  readonly vpcSubnets: SubnetSelection | undefined;
  readonly securityGroups: ISecurityGroup[];
}

/** A security group that allows traffic out to AWS, the flow service and the proxy, and none in. */
export function functionSecurityGroup(
  scope: Construct,
  id: string,
  vpc: IVpc,
  { baseUrl, proxy }: { readonly baseUrl: URL; readonly proxy: URL | undefined },
): ISecurityGroup {
  const group = new SecurityGroup(scope, id, {
    vpc,
    // A change of this text would replace the deployed group.
    description: 'Functions of the pipeline: out to AWS and the flow service, nothing in',
    allowAllOutbound: false,
  });
  for (const port of new Set([HTTPS_PORT, portOf(baseUrl), ...(proxy ? [portOf(proxy)] : [])])) {
    group.connections.allowToAnyIpv4(Port.tcp(port), 'AWS and the flow service');
  }
  return group;
}
