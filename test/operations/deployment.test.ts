import { afterEach, expect, it, vi } from 'vitest';
import { connectStack, issueOfConnection } from '../../operations/deployment.ts';

afterEach(() => vi.unstubAllEnvs());

it.each([
  [
    'the region',
    { AWS_ACCESS_KEY_ID: 'fake', AWS_SECRET_ACCESS_KEY: 'fake' },
    /^No AWS region is known\. Add --region/,
  ],
  ['the credentials', { AWS_REGION: 'eu-central-1' }, /^There are no AWS credentials\. Log in/],
])('a stack without %s of the user is not reached, and the error says what to set', async (_, env, said) => {
  for (const name of ['AWS_REGION', 'AWS_DEFAULT_REGION', 'AWS_PROFILE', 'AWS_ACCESS_KEY_ID'])
    vi.stubEnv(name, undefined);
  vi.stubEnv('AWS_CONFIG_FILE', '/dev/null');
  vi.stubEnv('AWS_SHARED_CREDENTIALS_FILE', '/dev/null');
  vi.stubEnv('AWS_EC2_METADATA_DISABLED', 'true');
  for (const [name, value] of Object.entries(env)) vi.stubEnv(name, value);
  const error = await connectStack({ stack: 'flowdrop' }, AbortSignal.timeout(10_000)).catch((each) => each);
  expect(issueOfConnection(error)).toMatch(said);
});
