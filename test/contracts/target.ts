import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import {
  AbortMultipartUploadCommand,
  DeleteObjectsCommand,
  GetBucketVersioningCommand,
  ListMultipartUploadsCommand,
  ListObjectVersionsCommand,
  S3Client,
  type S3ClientConfig,
} from '@aws-sdk/client-s3';
import type { S3EventRecord } from '../../local/aws/s3/events.ts';
import { serveS3 } from '../../local/aws/s3/http.ts';
import { EmbeddedS3 } from '../../local/aws/s3/s3.ts';

export type BucketKind = 'unversioned' | 'Enabled' | 'Suspended';

/** The S3 to test: the embedded one, or a real bucket. */
interface Target {
  readonly client: S3Client;
  /** Makes such a client in another process. */
  readonly clientConfig: S3ClientConfig;
  /** Its user may read objects and not list the bucket. Undefined for a real bucket, unless a profile is given. */
  readonly clientWithoutListBucket: S3Client | undefined;
  /** A bucket of a kind, or the reason why there is none. */
  bucket(kind: BucketKind | 'any'): { readonly name: string } | { readonly missing: string };
  /** Prefix of all keys of the suite. */
  readonly prefix: string;
  /** All events so far. Undefined for a real bucket. */
  readonly events: readonly S3EventRecord[] | undefined;
  /** Makes the next conditional write meet a conflict. Undefined for a real bucket. */
  readonly provokeConflict: (() => void) | undefined;
  /** Lets time pass for S3. */
  passTime(ms: number): Promise<void>;
  close(): Promise<void>;
}

/** The bucket named in the environment by `run.ts`, else the embedded S3. */
export async function openTarget(): Promise<Target> {
  const name = process.env.S3_BEHAVIOUR_BUCKET;
  return name === undefined ? embedded() : given(name, process.env.S3_BEHAVIOUR_PREFIX ?? '');
}

async function embedded(): Promise<Target> {
  const events: S3EventRecord[] = [];
  let conflicts = 0;
  let passedMs = 0;
  const s3 = new EmbeddedS3({
    clock: { now: () => Date.now() + passedMs },
    onEvent: (event) => {
      events.push(event);
    },
    conflict: () => conflicts-- > 0,
    authorize: ({ accessKeyId, action }) => accessKeyId !== 'AKIDWITHOUTLIST' || action !== 's3:ListBucket',
  });
  s3.createBucket('unversioned');
  s3.createBucket('enabled', { versioning: 'Enabled' });
  s3.createBucket('suspended', { versioning: 'Suspended' });
  const ids = { all: 'AKIDEXAMPLE', withoutList: 'AKIDWITHOUTLIST' };
  const credentialsOf = (accessKeyId: string) => ({ accessKeyId, secretAccessKey: 'not-a-secret' });
  const server = await serveS3(s3, { credentials: Object.values(ids).map(credentialsOf) });
  const configOf = (accessKeyId: string) => ({
    endpoint: server.endpoint,
    region: 'us-east-1',
    credentials: credentialsOf(accessKeyId),
    maxAttempts: 1,
  });
  const clientConfig = configOf(ids.all);
  const client = new S3Client(clientConfig);
  const clientWithoutListBucket = new S3Client(configOf(ids.withoutList));
  return {
    client,
    clientConfig,
    clientWithoutListBucket,
    bucket: (kind) => ({ name: kind === 'any' ? 'unversioned' : kind.toLowerCase() }),
    prefix: `behaviour-${randomUUID()}/`,
    events,
    provokeConflict: () => {
      conflicts = 1;
    },
    async passTime(ms) {
      passedMs += ms;
    },
    async close() {
      client.destroy();
      clientWithoutListBucket.destroy();
      await server.close();
      s3.close();
    },
  };
}

async function given(name: string, prefixGiven: string): Promise<Target> {
  const clientConfig = {};
  const client = new S3Client(clientConfig);
  const profile = process.env.S3_BEHAVIOUR_PROFILE_WITHOUT_LIST;
  const clientWithoutListBucket = profile === undefined ? undefined : new S3Client({ profile });
  const { Status } = await client.send(new GetBucketVersioningCommand({ Bucket: name }));
  const has: BucketKind = Status ?? 'unversioned';
  const prefix = `${prefixGiven}behaviour-${randomUUID()}/`;
  return {
    client,
    clientConfig,
    clientWithoutListBucket,
    bucket: (kind) =>
      kind === 'any' || kind === has ? { name } : { missing: `the versioning of ${name} is ${has}, not ${kind}` },
    prefix,
    events: undefined,
    provokeConflict: undefined,
    passTime: (ms) => sleep(ms),
    async close() {
      await removeAll(client, name, prefix);
      client.destroy();
      clientWithoutListBucket?.destroy();
    },
  };
}

/** Removes every version, delete marker and unfinished upload under the prefix. */
async function removeAll(client: S3Client, Bucket: string, Prefix: string): Promise<void> {
  for (;;) {
    const { Versions = [], DeleteMarkers = [] } = await client.send(new ListObjectVersionsCommand({ Bucket, Prefix }));
    const Objects = [...Versions, ...DeleteMarkers].map(({ Key, VersionId }) => ({ Key, VersionId }));
    if (Objects.length === 0) break;
    const { Errors = [] } = await client.send(
      new DeleteObjectsCommand({ Bucket, Delete: { Objects: Objects.slice(0, 1000), Quiet: true } }),
    );
    if (Errors.length > 0) throw new Error(`Could not clean up under ${Prefix}: ${Errors[0]?.Code}`);
  }
  const { Uploads = [] } = await client.send(new ListMultipartUploadsCommand({ Bucket, Prefix }));
  for (const { Key, UploadId } of Uploads)
    await client.send(new AbortMultipartUploadCommand({ Bucket, Key, UploadId }));
}
