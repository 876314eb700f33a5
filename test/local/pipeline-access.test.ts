import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { request as httpRequest } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { ListObjectsV2Command, PutObjectCommand } from '@aws-sdk/client-s3';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { INBOX_BUCKET, LEDGER_BUCKET, type Pipeline, startPipeline, TOKEN_SECRET } from '../../local/pipeline.ts';

/** Functions that answer with their environment, so that the test knows every address that they get. */
const REVEALING = 'export const handler = async () => process.env;';

let dir: string;
let pipeline: Pipeline;
let env: Record<string, string>;
beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), 'flowdrop-access-'));
  for (const name of ['create-flow', 'collect-outputs']) {
    await mkdir(join(dir, name));
    await writeFile(join(dir, name, 'index.mjs'), REVEALING);
  }
  pipeline = await startPipeline({
    bundleDir: dir,
    stateDir: join(dir, 'state'),
    routes: [{ name: 'all', input: 'file', template: 'bytes_echo' }],
    tickIntervalMs: 3_600_000,
    standIn: { flowMs: 0 },
  });
  env = (await pipeline.functions['create-flow'].invoke({})) as Record<string, string>;
  await put(LEDGER_BUCKET, 'uploads/abc.json', '{"entry":1}');
  await put(INBOX_BUCKET, 'private.txt', 'private');
});
afterAll(async () => {
  await pipeline.close();
  await rm(dir, { recursive: true, force: true });
});

const put = (Bucket: string, Key: string, Body: string) =>
  pipeline.s3.send(new PutObjectCommand({ Bucket, Key, Body, ContentLength: Body.length }));

interface Sent {
  readonly method?: string;
  readonly headers?: Record<string, string>;
  readonly body?: string;
}

function send(url: string, { method = 'GET', headers = {}, body = '' }: Sent = {}) {
  return new Promise<{ status: number; body: string }>((resolve, reject) => {
    const { hostname, port, pathname, search } = new URL(url);
    const sent = httpRequest(
      { hostname, port, method, path: pathname + search, headers, timeout: 5_000, agent: false },
      (response) => {
        const chunks: Buffer[] = [];
        response.on('data', (chunk) => chunks.push(chunk));
        response.on('error', reject);
        response.on('end', () => resolve({ status: response.statusCode ?? 0, body: Buffer.concat(chunks).toString() }));
      },
    );
    sent.on('timeout', () => sent.destroy(new Error('No answer')));
    sent.on('error', reject);
    sent.end(body);
  });
}

async function keys(Bucket: string): Promise<(string | undefined)[]> {
  const { Contents = [] } = await pipeline.s3.send(new ListObjectsV2Command({ Bucket }));
  return Contents.map(({ Key }) => Key);
}

describe('another user of the machine', () => {
  it("cannot read the flow service's token", async () => {
    const answer = await send(env.AWS_ENDPOINT_URL_SECRETS_MANAGER ?? '', {
      method: 'POST',
      headers: { 'x-amz-target': 'secretsmanager.GetSecretValue' },
      body: JSON.stringify({ SecretId: TOKEN_SECRET }),
    });
    expect(answer.status).toBe(400);
    expect(answer.body).not.toContain('SecretString');
  });

  it('cannot list the ledger', async () => {
    const answer = await send(`${pipeline.s3Endpoint}/${LEDGER_BUCKET}?list-type=2`);
    expect(answer.status).toBe(403);
    expect(answer.body).not.toContain('abc.json');
  });

  it('cannot read an object of the inbox', async () => {
    const answer = await send(`${pipeline.s3Endpoint}/${INBOX_BUCKET}/private.txt`);
    expect(answer.status).toBe(403);
    expect(answer.body).not.toContain('private<');
  });

  it('cannot put a file that would be sent and paid for', async () => {
    const path = `/${INBOX_BUCKET}/stranger.png`;
    const answer = await send(`${pipeline.s3Endpoint}${path}`, {
      method: 'PUT',
      headers: { 'content-length': '3' },
      body: 'abc',
    });
    expect(answer.status).toBe(403);
    expect(await keys(INBOX_BUCKET)).toEqual(['private.txt']);
  });

  it('cannot use the flow service with a token that is the same in every run', async () => {
    const answer = await send(`${env.FLOW_SERVICE_URL}/flows`, { headers: { authorization: 'Bearer stand-in-token' } });
    expect(answer.status).toBe(401);
  });

  it('cannot steal an event from the runtime API, or freeze a function', async () => {
    const answer = await send(`http://${env.AWS_LAMBDA_RUNTIME_API}/2018-06-01/runtime/invocation/next`);
    expect(answer.status).toBe(403);
    expect(await pipeline.functions['create-flow'].invoke({})).toMatchObject({
      AWS_LAMBDA_FUNCTION_NAME: 'create-flow',
    });
  });
});

describe('a web page in the browser', () => {
  it('cannot delete a ledger entry with a form', async () => {
    const body = '<Delete><Object><Key>uploads/abc.json</Key></Object><!--=--></Delete>';
    const answer = await send(`${pipeline.s3Endpoint}/${LEDGER_BUCKET}?delete`, {
      method: 'POST',
      headers: {
        'content-type': 'text/plain',
        'content-length': String(body.length),
        origin: 'http://evil.example',
        'sec-fetch-site': 'cross-site',
      },
      body,
    });
    expect(answer.status).toBe(403);
    expect(await keys(LEDGER_BUCKET)).toContain('uploads/abc.json');
  });

  it('cannot read through DNS rebinding', async () => {
    const { port } = new URL(pipeline.s3Endpoint);
    const answer = await send(`${pipeline.s3Endpoint}/${INBOX_BUCKET}/private.txt`, {
      headers: { host: `evil.example:${port}` },
    });
    expect(answer).toMatchObject({ status: 403, body: expect.not.stringContaining('private<') });
  });
});
