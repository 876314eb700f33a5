import { GetObjectCommand } from '@aws-sdk/client-s3';
import { expect, it } from 'vitest';
import { AWS_CLIENT } from '../../functions/lambda/lambda.ts';
import { s3Client } from '../../functions/s3/client.ts';
import { web } from '../support/servers.ts';

it('a body from AWS that stops in its middle ends at a time limit', async () => {
  const { origin } = await web((_, response) => {
    response.writeHead(200, { 'content-length': '4' });
    response.write('ab');
  });
  const { requestHandler } = AWS_CLIENT;
  // A hundredth of each limit.
  const limits = Object.entries(requestHandler).filter(([name]) => name.endsWith('Timeout'));
  const short = Object.fromEntries(
    limits.map(([name, value]) => [name, typeof value === 'number' ? value / 100 : value]),
  );
  const s3 = s3Client({
    endpoint: origin,
    forcePathStyle: true,
    region: 'us-east-1',
    credentials: { accessKeyId: 'fake', secretAccessKey: 'fake' },
    requestHandler: { ...requestHandler, ...short },
  });
  try {
    const { Body } = await s3.send(new GetObjectCommand({ Bucket: 'b', Key: 'k' }));
    await expect(Body?.transformToString()).rejects.toThrow('of inactivity');
  } finally {
    s3.destroy();
  }
});
