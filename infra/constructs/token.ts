import { RemovalPolicy } from 'aws-cdk-lib';
import type { IRole } from 'aws-cdk-lib/aws-iam';
import type { IKey } from 'aws-cdk-lib/aws-kms';
import { type ISecret, Secret } from 'aws-cdk-lib/aws-secretsmanager';
import { Construct } from 'constructs';
import { acknowledge } from './acknowledge.ts';
import { allow, allowKey } from './permissions.ts';

export interface TokenProps {
  readonly existing: ISecret | undefined;
  readonly pipeline: string;
  readonly encryptionKey: IKey | undefined;
}

/** The secret that holds the flow service's token. */
export class Token extends Construct {
  readonly secret: ISecret;
  /**
   * Names the secret in requests to Secrets Manager, by its ARN or its name. It is never an ARN without its suffix: if
   * the name ends in a hyphen and six characters, Secrets Manager takes these for the suffix, and finds no secret.
   * @see https://docs.aws.amazon.com/secretsmanager/latest/apireference/API_GetSecretValue.html
   */
  readonly secretId: string;

  constructor(scope: Construct, id: string, { existing, pipeline, encryptionKey }: TokenProps) {
    super(scope, id);
    this.secret = existing ?? this.#newSecret(pipeline, encryptionKey);
    const { secretFullArn, secretArn } = this.secret;
    // Not `secretName`, from which CDK cuts such an end of the name.
    this.secretId = secretFullArn ?? secretArn.slice(secretArn.lastIndexOf(':') + 1);
  }

  /**
   * Holds a random placeholder until the operator stores the token. Until then the service rejects it, and uploads
   * wait.
   */
  #newSecret(pipeline: string, encryptionKey: IKey | undefined): ISecret {
    const secret = new Secret(this, 'Secret', {
      description: `Token of the flow service for the pipeline ${pipeline}: the token itself, or JSON with the field "token"`,
      encryptionKey,
      // The operator can get a new token from the service. A token that outlives its pipeline is a risk.
      removalPolicy: RemovalPolicy.DESTROY,
    });
    acknowledge(secret, {
      id: 'AwsSolutions-SMG4',
      reason: 'Only the flow service can issue a token, and it has no operation for that. A new token is used at once.',
    });
    return secret;
  }

  /** Allows the role to read the secret. */
  grantRead(role: IRole): void {
    // The ARN of a secret ends in six random characters. They are unknown if the secret is given by its name alone.
    const arn = this.secret.secretFullArn ?? `${this.secret.secretArn}-??????`;
    allow(role, { actions: ['secretsmanager:GetSecretValue'], resources: [arn] });
    allowKey(role, this.secret.encryptionKey, 'read', 'secretsmanager');
  }
}
