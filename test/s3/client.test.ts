import { GetObjectCommand, PutObjectCommand } from '@aws-sdk/client-s3';
import { beforeEach, describe, expect, it, onTestFinished, vi } from 'vitest';
import { s3Client } from '../../functions/s3/client.ts';
import { serveS3 } from '../../local/aws/s3/http.ts';
import { EmbeddedS3 } from '../../local/aws/s3/s3.ts';

const MIB = 1024 * 1024;
const CREDENTIALS = { accessKeyId: 'fake', secretAccessKey: 'fake' };

/** Every byte differs from the byte one slice behind it. */
const bytes = Buffer.from(Uint32Array.from({ length: (3 * MIB) / 4 + 25 }, (_, i) => Math.imul(i, 2654435761)).buffer);

/** The headers of every PUT, in their order. */
let puts: Readonly<Record<string, string | undefined>>[];
/** Number of next PUTs that fail. */
let failing: number;
let client: ReturnType<typeof s3Client>;
beforeEach(async () => {
  const embedded = new EmbeddedS3({});
  embedded.createBucket('bucket');
  puts = [];
  failing = 0;
  const handle: EmbeddedS3['handle'] = async (request) => {
    if (request.method === 'PUT') {
      puts.push(request.headers);
      if (failing > 0) {
        failing -= 1;
        for await (const _ of request.body);
        return { status: 503, headers: {}, body: new Uint8Array() };
      }
    }
    return embedded.handle(request);
  };
  const server = await serveS3({ handle } as EmbeddedS3, { credentials: [CREDENTIALS] });
  client = s3Client({
    endpoint: server.endpoint,
    forcePathStyle: true,
    region: 'us-east-1',
    credentials: CREDENTIALS,
  });
  onTestFinished(async () => {
    client.destroy();
    await server.close();
    embedded.close();
  });
});

const at = { Bucket: 'bucket', Key: 'key' };
const put = (Body: Uint8Array | string) => client.send(new PutObjectCommand({ ...at, Body }));
const stored = async () => {
  const { Body } = await client.send(new GetObjectCommand(at));
  return Buffer.from((await Body?.transformToByteArray()) ?? []);
};

describe("the functions' S3 client", () => {
  it('sends a body of bytes whole, with its length and a checksum instead of a signature over it', async () => {
    await put(bytes);
    expect(puts).toMatchObject([
      { 'content-length': String(bytes.length), 'x-amz-content-sha256': 'UNSIGNED-PAYLOAD' },
    ]);
    expect(puts[0]?.['x-amz-checksum-crc32']).toBeTruthy();
    expect((await stored()).equals(bytes)).toBe(true);
  });

  it('sends it whole again if an attempt failed', async () => {
    failing = 2;
    await put(bytes);
    expect(puts).toHaveLength(3);
    expect((await stored()).equals(bytes)).toBe(true);
  });

  it('signs a text', async () => {
    await put('text');
    expect(puts[0]?.['x-amz-content-sha256']).toMatch(/^[0-9a-f]{64}$/);
    expect((await stored()).toString()).toBe('text');
  });
});

describe('the name of a bucket', () => {
  const askedAt = async (env: Readonly<Record<string, string>>): Promise<string> => {
    for (const name of ['AWS_ENDPOINT_URL', 'AWS_ENDPOINT_URL_S3']) vi.stubEnv(name, env[name]);
    onTestFinished(() => void vi.unstubAllEnvs());
    const asking = s3Client({ region: 'eu-central-1', credentials: CREDENTIALS });
    let asked = '';
    asking.middlewareStack.add(
      () => (args) => {
        const { hostname, path } = args.request as { readonly hostname: string; readonly path: string };
        asked = `${hostname}${path}`;
        return Promise.resolve({ response: {}, output: { $metadata: {} } as never });
      },
      { step: 'finalizeRequest' },
    );
    await asking.send(new GetObjectCommand({ Bucket: 'bucket', Key: 'a.png' }));
    return asked;
  };

  it('is in the host of AWS', async () => {
    expect(await askedAt({})).toBe('bucket.s3.eu-central-1.amazonaws.com/a.png');
  });

  it.each(['AWS_ENDPOINT_URL', 'AWS_ENDPOINT_URL_S3'])('is in the path at the address in %s', async (name) => {
    expect(await askedAt({ [name]: 'http://emulator:4566' })).toBe('emulator/bucket/a.png');
  });
});
