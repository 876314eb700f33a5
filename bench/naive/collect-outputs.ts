import {
  DeleteObjectCommand,
  GetObjectCommand,
  ListObjectsV2Command,
  PutObjectCommand,
  S3Client,
} from '@aws-sdk/client-s3';
import { GetSecretValueCommand, SecretsManagerClient } from '@aws-sdk/client-secrets-manager';

/** The other function of the simple version: see `create-flow.ts`. Do not improve it. */
const s3 = new S3Client({});
const secrets = new SecretsManagerClient({});

let token: string | undefined;

async function get(path: string): Promise<Response> {
  if (!token) {
    const secret = await secrets.send(new GetSecretValueCommand({ SecretId: process.env.TOKEN_SECRET_ID }));
    token = secret.SecretString;
  }
  const response = await fetch(`${process.env.FLOW_SERVICE_URL}${path}`, {
    headers: { authorization: `Bearer ${token}` },
  });
  if (!response.ok) throw new Error(`GET ${path}: ${response.status}`);
  return response;
}

async function collect(pendingKey: string): Promise<void> {
  const flowId = pendingKey.slice('pending/'.length);
  const flow = (await (await get(`/flows/${flowId}`)).json()) as { state: string };
  if (flow.state !== 'completed') return;
  const pending = await s3.send(new GetObjectCommand({ Bucket: process.env.LEDGER_BUCKET, Key: pendingKey }));
  const { key } = JSON.parse((await pending.Body?.transformToString()) ?? '') as { key: string };
  const { outputs } = (await (await get(`/flows/${flowId}/outputs`)).json()) as { outputs: { asset_id: string }[] };
  for (const { asset_id } of outputs) {
    const response = await get(`/flows/${flowId}/outputs/${asset_id}`);
    let bytes: Buffer;
    let mediaType = response.headers.get('content-type') ?? '';
    if (mediaType.startsWith('application/json')) {
      const { data } = (await response.json()) as { data: string };
      const comma = data.indexOf(',');
      mediaType = data.slice('data:'.length, comma).split(';')[0] ?? '';
      bytes = Buffer.from(data.slice(comma + 1), 'base64');
    } else {
      bytes = Buffer.from(await response.arrayBuffer());
    }
    await s3.send(
      new PutObjectCommand({
        Bucket: process.env.RESULTS_BUCKET,
        Key: `${key}/${flowId}/${asset_id}`,
        Body: bytes,
        ContentType: mediaType,
      }),
    );
  }
  await s3.send(new DeleteObjectCommand({ Bucket: process.env.LEDGER_BUCKET, Key: pendingKey }));
}

export async function handler() {
  let next: string | undefined;
  do {
    const page = await s3.send(
      new ListObjectsV2Command({
        Bucket: process.env.LEDGER_BUCKET,
        Prefix: 'pending/',
        ContinuationToken: next,
      }),
    );
    await Promise.all((page.Contents ?? []).map(({ Key }) => collect(Key ?? '')));
    next = page.NextContinuationToken;
  } while (next);
}
