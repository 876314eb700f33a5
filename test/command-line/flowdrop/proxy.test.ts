import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import { resolve } from 'node:path';
import { expect, it } from 'vitest';
import { folderWith } from '../../support/folder.ts';
import { refusing, serveProxy } from '../../support/proxy.ts';
import { web } from '../../support/servers.ts';

const FLOWDROP = resolve('command-line/flowdrop.ts');
const KEYS = { AWS_ACCESS_KEY_ID: 'fake-id', AWS_SECRET_ACCESS_KEY: 'fake-secret' };

const DEPLOYMENT = { resultsBucket: 'their-results', region: 'eu-central-1' };
const ROUTES = [{ name: 'all', template: 'any' }];
const CONFIGURATION = {
  'cdk.json': {
    context: { flowdrop: { baseUrl: 'https://flows.example.com', routes: ROUTES, deployment: DEPLOYMENT } },
  },
};

/** Runs the command in a process of its own, because a proxy is set for a whole process. */
const flowdrop = (words: readonly string[], variables: Record<string, string>, cwd?: string) =>
  new Promise<string>((done) => {
    const env = { PATH: process.env.PATH, ...KEYS, AWS_MAX_ATTEMPTS: '1', ...variables };
    execFile(process.execPath, [FLOWDROP, ...words], { env, cwd }, (_, output, errors) => done(output + errors));
  });

it('the requests to AWS go through the proxy of the environment, with its login', async () => {
  const proxy = await serveProxy(refusing('403 Forbidden'));
  const url = `http://user:fake@${proxy.url.host}`;
  const said = await flowdrop(['status', '--stack', 'flowdrop', '--region', 'eu-central-1'], {
    HTTPS_PROXY: url,
    HTTP_PROXY: 'socks5://proxy.example.com',
  });
  expect(proxy.asked[0]).toEqual({
    target: 'cloudformation.eu-central-1.amazonaws.com:443',
    authorization: `Basic ${Buffer.from('user:fake').toString('base64')}`,
  });
  expect(said).toContain('cloudformation.eu-central-1.amazonaws.com could not be reached: Proxy response (403)');
});

it('the clients of the SDK use it too', async () => {
  const proxy = await serveProxy(refusing('403 Forbidden'));
  const directory = folderWith(CONFIGURATION);
  // The one service that the doctor asks first, and that it needs to ask the others.
  const identity = await web((_, response) => {
    const [account, arn] = ['111122223333', 'arn:aws:iam::111122223333:user/fake'];
    const result = `<GetCallerIdentityResult><Account>${account}</Account><Arn>${arn}</Arn></GetCallerIdentityResult>`;
    response.end(`<GetCallerIdentityResponse>${result}</GetCallerIdentityResponse>`);
  });
  const variables = { https_proxy: proxy.url.host, AWS_ENDPOINT_URL_STS: identity.origin };
  await flowdrop(['doctor', '--before-deployment'], variables, directory);
  expect(proxy.asked.map(({ target }) => target)).toContain('their-results.s3.eu-central-1.amazonaws.com:443');
});

it('so does the single sign-on that gives the credentials', async () => {
  const proxy = await serveProxy(refusing('403 Forbidden'));
  const start = 'https://login.example.com/start';
  const profile = { start_url: start, region: 'nowhere-1', account_id: '111122223333', role_name: 'fake' };
  const lines = Object.entries(profile).map(([name, value]) => `sso_${name} = ${value}`);
  const HOME = folderWith({
    '.aws/config': ['[profile team]', ...lines, ''].join('\n'),
    [`.aws/sso/cache/${createHash('sha1').update(start).digest('hex')}.json`]: {
      accessToken: 'obviously-fake',
      expiresAt: '2999-01-01T00:00:00Z',
    },
  });
  const variables = { HOME, AWS_PROFILE: 'team', AWS_ACCESS_KEY_ID: '', AWS_SECRET_ACCESS_KEY: '' };
  const words = ['status', '--stack', 'flowdrop', '--region', 'nowhere-1'];
  await flowdrop(words, { ...variables, HTTPS_PROXY: proxy.url.href });
  expect(proxy.asked.map(({ target }) => target)).toEqual(['portal.sso.nowhere-1.amazonaws.com:443']);
});

it('what NO_PROXY names, and all names below it, is reached without the proxy', async () => {
  const proxy = await serveProxy(refusing('403 Forbidden'));
  const variables = { HTTPS_PROXY: proxy.url.href, NO_PROXY: 'other.example.com,nowhere.invalid' };
  const words = ['status', '--function', 'collect', '--region', 'nowhere-1'];
  await flowdrop(words, { ...variables, AWS_ENDPOINT_URL_LAMBDA: 'https://lambda.nowhere.invalid' });
  expect(proxy.asked).toEqual([]);
});

const SOCKS = 'socks5://user:fake@proxy.example.com:1080';

it('a variable that names no proxy is refused in words', async () => {
  const variables = { HTTPS_PROXY: SOCKS };
  const said = await flowdrop(['status', '--stack', 'flowdrop', '--region', 'eu-central-1'], variables);
  expect(said).toMatch(/^HTTPS_PROXY: expected the address of an HTTP proxy such as http:\S+, got socks5:/);
  expect(said).not.toContain('fake@');
});

it('such a variable ends no command that asks nothing of AWS, and the doctor tells of it', async () => {
  const variables = { HTTPS_PROXY: SOCKS, AWS_ENDPOINT_URL: 'http://127.0.0.1:9' };
  expect(await flowdrop(['status'], variables, folderWith({}))).toMatch(/^Name the deployment with --stack NAME/);
  const told = await flowdrop(['doctor', '--before-deployment'], variables, folderWith(CONFIGURATION));
  expect(told).toMatch(/^ {2}the proxy: fault\n {4}HTTPS_PROXY: expected /m);
  expect(told).toMatch(/^ {2}the account: not checked, because HTTPS_PROXY: expected /m);
});
