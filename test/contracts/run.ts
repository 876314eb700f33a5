import { fileURLToPath } from 'node:url';
import { startVitest } from 'vitest/node';
import { commandOptions } from '../../command-line/options.ts';

/** Time limit of a test, in milliseconds. A test sends up to 10 MiB, and the bucket may be far away. */
const NETWORK_TIMEOUT_MS = 180_000;

const HELP = `Checks that a bucket behaves as the ledger relies on (see docs/s3-behaviour.md), and as the embedded S3 does.

  npm run test:s3 -- --bucket NAME [--prefix PREFIX] [--profile-without-list PROFILE]

  --bucket NAME    the bucket to ask; without it, the embedded S3
  --prefix PREFIX  put all objects under this prefix
  --profile-without-list PROFILE
                   also ask with this profile of your AWS configuration. It has s3:GetObject and s3:GetObjectVersion
                   for the objects, and neither s3:ListBucket nor s3:ListBucketVersions
  --help           show this

Credentials, region and endpoint are the SDK's usual ones: AWS_PROFILE, AWS_REGION, AWS_ENDPOINT_URL_S3, ...
All keys begin with a unique prefix and are deleted at the end, with all their versions.
The credentials need s3:GetObject, s3:GetObjectVersion, s3:PutObject, s3:DeleteObject, s3:DeleteObjectVersion,
s3:AbortMultipartUpload, s3:ListBucket, s3:ListBucketVersions, s3:ListBucketMultipartUploads, s3:GetBucketVersioning,
and s3:GetObjectTagging, s3:PutObjectTagging, s3:DeleteObjectTagging, also of versions. Tests that the bucket's versioning, or a bucket alone, does not allow are skipped, with the
reason.
`;

const {
  bucket,
  prefix,
  'profile-without-list': profile,
} = commandOptions(
  {
    command: 'npm run test:s3',
    options: { bucket: { type: 'string' }, prefix: { type: 'string' }, 'profile-without-list': { type: 'string' } },
  },
  HELP,
).values;

if (bucket !== undefined) process.env.S3_BEHAVIOUR_BUCKET = bucket;
if (prefix !== undefined) process.env.S3_BEHAVIOUR_PREFIX = prefix;
if (profile !== undefined) process.env.S3_BEHAVIOUR_PROFILE_WITHOUT_LIST = profile;
process.env.S3_BEHAVIOUR_PROCESSES = '64';
const vitest = await startVitest('test', [fileURLToPath(new URL('.', import.meta.url))], {
  watch: false,
  reporters: ['verbose'],
  testTimeout: NETWORK_TIMEOUT_MS,
  hookTimeout: NETWORK_TIMEOUT_MS,
  root: fileURLToPath(new URL('../..', import.meta.url)),
});
await vitest.close();
