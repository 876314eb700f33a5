import { execFileSync } from 'node:child_process';
import { ListObjectsV2Command, S3Client } from '@aws-sdk/client-s3';
import { beforeAll, expect, it } from 'vitest';
import { Operated, runFlowdrop } from './support.ts';

let operated: Operated;
beforeAll(async () => {
  operated = await Operated.start();
  return () => operated[Symbol.asyncDispose]();
});

it('prints what lets a client into the buckets of the local run', async () => {
  await operated.upload('a.png', 'x');
  const { code, output } = await operated.run('credentials', '--json');
  expect(code).toBe(0);
  const { endpoint, region, accessKeyId, secretAccessKey, buckets } = JSON.parse(output);
  expect(buckets).toEqual({ inbox: 'inbox', results: 'results', ledger: 'ledger' });
  const s3 = new S3Client({ endpoint, region, credentials: { accessKeyId, secretAccessKey } });
  const { Contents } = await s3.send(new ListObjectsV2Command({ Bucket: buckets.inbox }));
  expect(Contents?.map(({ Key }) => Key)).toEqual(['a.png']);
  s3.destroy();
});

it('prints commands that set the same in a shell, and what to do with them beside these', async () => {
  const { output, errors } = await operated.run('credentials');
  const { endpoint, region, ...keys } = JSON.parse((await operated.run('credentials', '--json')).output);
  const shown = 'echo "$AWS_ENDPOINT_URL_S3 $AWS_REGION $AWS_DEFAULT_REGION $AWS_ACCESS_KEY_ID $AWS_SECRET_ACCESS_KEY"';
  const script = `${output}\n${shown}; echo "$AWS_SESSION_TOKEN"`;
  const env = { PATH: process.env.PATH, AWS_SESSION_TOKEN: 'another-fake-token' };
  const set = execFileSync('/bin/sh', ['-ec', script], { env, encoding: 'utf8' });
  expect(set).toBe(`${endpoint} ${region} ${region} ${keys.accessKeyId} ${keys.secretAccessKey}\n\n`);
  for (const client of ['aws', 'rclone', 's3cmd']) expect(errors).toContain(`  ${client} `);
});

it.each([
  ['--stack', { words: ['--stack', 'flowdrop'], env: {} }],
  ['--function', { words: ['--function', 'collect'], env: {} }],
  ['FLOWDROP_STACK', { words: [], env: { FLOWDROP_STACK: 'flowdrop' } }],
])(
  'says that it is for a local run, without a request to AWS, if %s names another pipeline',
  async (_, { words, env }) => {
    const { directory } = operated;
    const { code, output, errors } = await runFlowdrop(['credentials', ...words], { directory, env });
    expect([code, output]).toEqual([2, '']);
    expect(errors).toContain('credentials is for a local run only');
  },
);

it('takes the local run although FLOWDROP_STACK names a stack, with --local', async () => {
  const { directory } = operated;
  const env = { FLOWDROP_STACK: 'flowdrop' };
  expect(await runFlowdrop(['credentials', '--local'], { directory, env })).toMatchObject({ code: 0 });
});
