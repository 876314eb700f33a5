import { PutObjectCommand } from '@aws-sdk/client-s3';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { keepRoutes } from '../../functions/operator/kept-routes.ts';
import type { Settings } from '../../functions/settings/environment.ts';
import { listenOnLoopback } from '../../local/loopback.ts';
import { LEDGER_BUCKET } from '../../local/pipeline.ts';
import { act, plan } from '../../operations/act.ts';
import { connectFunction, connectStack, issueOfConnection } from '../../operations/deployment.ts';
import { explain } from '../../operations/explain.ts';
import { status } from '../../operations/status.ts';
import { World } from '../page/world.ts';
import { PATIENCE } from '../support/patience.ts';
import { checkOf, Operated, signal } from './support.ts';

vi.mock('../../operations/wait.ts', () => import('./quick-wait.ts'));

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

it('S3 that refuses to answer, as with credentials that have expired meanwhile, is told in a sentence', async () => {
  const world = await World.start();
  world.isDown = true;
  const said = async (what: string | undefined) =>
    issueOfConnection(await status(what, world.deployment, signal).catch((error) => error));
  const advice = 'Your credentials may have expired, or do not allow it.';
  expect(await said('photo.png')).toBe(`AWS refused a request (it did not say why). ${advice}`);
  expect(await said(undefined)).toBe(`AWS refused a request (AccessDenied: Access Denied). ${advice}`);
});

describe('with more routes than the environment of a function holds', () => {
  const routes = [
    { name: 'pictures', input: 'file', template: 'bytes_echo', prefixes: ['pictures/'] },
    { name: 'copied', input: 'file', template: 'bytes_echo', after: 'pictures' },
    ...Array.from({ length: 198 }, (_, at) => {
      return { name: `customer-${at}`, input: 'file', template: 'bytes_echo', prefixes: [`customer-${at}/`] } as const;
    }),
  ] as const;

  /** Connects to the pipeline as to a deployed one, whose routes are in a file beside the code. */
  async function connect(operated: Operated, modifiedAt = Date.now() - 60_000) {
    const environment = await operated.deployment.collecting.configuration(signal);
    const Variables = { ...environment.environment, ROUTES: 'file:routes.json' };
    const LastModified = new Date(modifiedAt).toISOString().replace('Z', '+0000');
    const { operator } = operated.pipeline;
    const lambda = await listenOnLoopback(async (request, response) => {
      if (request.url?.endsWith('/configuration')) {
        response.end(JSON.stringify({ LastModified, Environment: { Variables } }));
        return;
      }
      let body = '';
      for await (const chunk of request) body += chunk;
      // The function itself has its routes.
      const answer = await operated.deployment.collecting.invoke(JSON.parse(body), signal);
      response.end(JSON.stringify(answer));
    });
    const deployment = await connectFunction(
      {
        function: operator.collectFunction,
        region: operator.region,
        credentials: async () => operator.credentials,
        endpoints: { ...operator.endpoints, lambda: lambda.url },
      },
      signal,
    );
    const close = () => {
      deployment.close();
      return lambda.close();
    };
    return { deployment, [Symbol.asyncDispose]: close };
  }
  /** What the first tick of a process does. */
  const tick = ({ deployment, pipeline: { s3 } }: Operated) =>
    keepRoutes({ s3, settings: { ...deployment.settings, areRoutesBeside: true } as Settings }, signal);

  it('all of them are known to the operator, from the first tick after the deployment on', async () => {
    const operated = await Operated.forTest({ routes });
    {
      await using before = await connect(operated);
      expect(before.deployment).toMatchObject({ areRoutesKnown: false, settings: { routes: [] } });
      expect((await checkOf('templates of the routes', before.deployment))?.result).toBe('not checked');
    }
    await tick(operated);
    await using after = await connect(operated);
    const { deployment } = after;
    expect(deployment.areRoutesKnown).toBe(true);
    expect(deployment.settings.routes).toEqual(routes);

    const explained = await explain({ path: 'nowhere', key: 'customer-197/a.png' }, deployment, signal).catch(
      (error) => error,
    );
    expect(String(explained)).not.toContain('do not fit into its environment');
    expect((await checkOf('templates of the routes', deployment))?.result).toBe('good');
    await operated.upload('unwanted.bin', 'x');
    expect(await status('unwanted.bin', deployment, signal)).toMatchObject({
      issue: expect.stringContaining('No route wants it'),
    });
    const { id } = await operated.put('pictures/a.png', 'succeeded');
    await vi.waitFor(async () => {
      expect(await status('pictures/a.png', deployment, signal)).toMatchObject({ chain: { state: 'succeeded' } });
    }, PATIENCE);
    const stage = await plan({ action: 'again', from: 'copied' }, { words: ['pictures/a.png'] }, deployment, signal);
    expect(stage).toMatchObject({ stages: [{ id }], left: [] });
    expect(await act(stage, deployment, signal)).toMatchObject([{ isDone: true }]);
  });

  it('those of an earlier deployment are not, and neither is what another program wrote', async () => {
    const operated = await Operated.forTest({ routes });
    await tick(operated);
    {
      await using newer = await connect(operated, Date.now() + 60_000);
      expect(newer.deployment.areRoutesKnown).toBe(false);
    }
    for (const Body of ['{', '{"routes":[]}', '[]']) {
      await operated.pipeline.s3.send(new PutObjectCommand({ Bucket: LEDGER_BUCKET, Key: 'state/routes.json', Body }));
      await using damaged = await connect(operated);
      expect(damaged.deployment.areRoutesKnown).toBe(false);
    }
  });
});
