import { RemovalPolicy, Validations } from 'aws-cdk-lib';
import type { IRole } from 'aws-cdk-lib/aws-iam';
import type { IKey } from 'aws-cdk-lib/aws-kms';
import { type ISecret, Secret } from 'aws-cdk-lib/aws-secretsmanager';
import { Construct } from 'constructs';
import { allow, allowKey } from './permissions.ts';

export interface TokenProps {
  readonly existing: ISecret | undefined;
  readonly pipeline: string;
  readonly encryptionKey: IKey | undefined;
}

/** The secret that holds the flow service's token. */
export class Token extends Construct {
  readonly secret: ISecret;

  constructor(scope: Construct, id: string, { existing, pipeline, encryptionKey }: TokenProps) {
    super(scope, id);
    this.secret = existing ?? this.#newSecret(pipeline, encryptionKey);
  }

  /** Holds chance until somebody puts the token in. The service refuses that, and uploads wait. */
  #newSecret(pipeline: string, encryptionKey: IKey | undefined): ISecret {
    const secret = new Secret(this, 'Secret', {
      description: `Token of the flow service for the pipeline ${pipeline}: as it is, or as JSON with "token"`,
      encryptionKey,
      // It can be made anew at the service, and a token that outlives its user is a risk.
      removalPolicy: RemovalPolicy.DESTROY,
    });
    Validations.of(secret).acknowledge({
      id: 'AwsSolutions-SMG4',
      reason:
        'Only the flow service can issue a token, and it offers no operation for that; a new one is used at once.',
    });
    return secret;
  }

  /** Lets a function read it. */
  grantRead(role: IRole): void {
    // Of a secret given by its name alone, the six characters that end its ARN are not known.
    const arn = this.secret.secretFullArn ?? `${this.secret.secretArn}-??????`;
    allow(role, { actions: ['secretsmanager:GetSecretValue'], resources: [arn] });
    allowKey(role, this.secret.encryptionKey, 'read', 'secretsmanager');
  }
}
