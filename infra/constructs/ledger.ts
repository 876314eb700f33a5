import { Duration, type RemovalPolicy } from 'aws-cdk-lib';
import type { IRole } from 'aws-cdk-lib/aws-iam';
import type { IKey } from 'aws-cdk-lib/aws-kms';
import type { Bucket, IBucket } from 'aws-cdk-lib/aws-s3';
import { Construct } from 'constructs';
import { RUNNING_PREFIX, STATE_PREFIX, UPLOADS_PREFIX, WAITING_PREFIX } from '../../functions/ledger/keys.ts';
import type { PipelineSettings } from '../../functions/settings/settings.ts';
import { pipelineBucket } from './bucket.ts';
import { allow, allowKey } from './permissions.ts';

const READ_AND_WRITE = ['s3:GetObject', 's3:PutObject'];
const PUT_AND_DELETE = ['s3:PutObject', 's3:DeleteObject'];

export interface LedgerProps {
  readonly retentionDays: PipelineSettings['ledgerRetentionDays'];
  readonly encryptionKey: IKey | undefined;
  readonly removalPolicy: RemovalPolicy;
  readonly accessLogsBucket: IBucket | undefined;
}

/** Where entries and markers are: the pipeline's own, and nobody else's. */
export class Ledger extends Construct {
  readonly bucket: Bucket;

  constructor(scope: Construct, id: string, props: LedgerProps) {
    super(scope, id);
    // By default nothing in it expires: an entry that is gone would let its upload be paid for again.
    this.bucket = pipelineBucket(this, 'Bucket', props);
    if (props.retentionDays === 'forever') return;
    this.bucket.addLifecycleRule({ prefix: UPLOADS_PREFIX, expiration: Duration.days(props.retentionDays) });
  }

  /** What claiming an upload, and recording what became of the claim, takes. */
  grantCreate(role: IRole): void {
    this.#grant(role, READ_AND_WRITE, UPLOADS_PREFIX);
    this.#grant(role, PUT_AND_DELETE, RUNNING_PREFIX);
    this.#grant(role, ['s3:PutObject'], WAITING_PREFIX);
    this.#grantList(role);
  }

  /** What a tick takes: its own state, every marker, and the entries that they are of. */
  grantCollect(role: IRole): void {
    this.#grant(role, READ_AND_WRITE, UPLOADS_PREFIX, STATE_PREFIX);
    this.#grant(role, PUT_AND_DELETE, RUNNING_PREFIX, WAITING_PREFIX);
    this.#grantList(role);
  }

  #grant(role: IRole, actions: readonly string[], ...prefixes: readonly string[]): void {
    allow(role, {
      actions,
      resources: prefixes.map((prefix) => this.bucket.arnForObjects(`${prefix}*`)),
      wildcardReason: 'Keys in the ledger go on with ids and times; the prefix says what they are.',
    });
  }

  /** To list markers, and to be told of an absent entry that it is absent, where S3 would else say forbidden. */
  #grantList(role: IRole): void {
    allow(role, { actions: ['s3:ListBucket'], resources: [this.bucket.bucketArn] });
    allowKey(role, this.bucket.encryptionKey, 'write', 's3');
  }
}
