import { GetObjectCommand, PutObjectCommand, S3Client } from '@aws-sdk/client-s3';
import { GetSecretValueCommand, SecretsManagerClient } from '@aws-sdk/client-secrets-manager';

/**
 * A first, simple version, which the benchmark compares with: the whole file in memory, `fetch`, and one object per
 * flow that remembers it. Do not improve it.
 */
const s3 = new S3Client({});
const secrets = new SecretsManagerClient({});

let token: string | undefined;

async function getToken(): Promise<string | undefined> {
  if (!token) {
    const secret = await secrets.send(new GetSecretValueCommand({ SecretId: process.env.TOKEN_SECRET_ID }));
    token = secret.SecretString;
  }
  return token;
}

interface S3Record {
  s3: { bucket: { name: string }; object: { key: string } };
}

async function createFlow(record: S3Record): Promise<void> {
  const bucket = record.s3.bucket.name;
  const key = decodeURIComponent(record.s3.object.key.replace(/\+/g, ' '));
  const object = await s3.send(new GetObjectCommand({ Bucket: bucket, Key: key }));
  const bytes = Buffer.from(await (object.Body?.transformToByteArray() ?? []));
  const response = await fetch(`${process.env.FLOW_SERVICE_URL}/flows`, {
    method: 'POST',
    headers: { authorization: `Bearer ${await getToken()}`, 'content-type': 'application/json' },
    body: JSON.stringify({
      template: 'bytes_echo',
      inputs: [{ data: `data:${object.ContentType};base64,${bytes.toString('base64')}`, additional: { bucket, key } }],
    }),
  });
  if (!response.ok) throw new Error(`POST /flows: ${response.status}`);
  const { flow_id } = (await response.json()) as { flow_id: string };
  await s3.send(
    new PutObjectCommand({
      Bucket: process.env.LEDGER_BUCKET,
      Key: `pending/${flow_id}`,
      Body: JSON.stringify({ bucket, key }),
    }),
  );
}

export async function handler(event: { Records: { body: string }[] }) {
  await Promise.all(
    event.Records.flatMap(({ body }) => (JSON.parse(body) as { Records: S3Record[] }).Records).map(createFlow),
  );
}
