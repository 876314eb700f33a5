import { buffer } from 'node:stream/consumers';
import { afterEach, expect, it, vi } from 'vitest';
import { listenOnLoopback } from '../../local/loopback.ts';
import { connectStack } from '../../operations/deployment.ts';
import { signedHeaders } from '../support/sigv4.ts';
import { deployedAs, Operated, runFlowdrop, signal } from './support.ts';

vi.mock('../../operations/wait.ts', () => import('./quick-wait.ts'));

afterEach(() => vi.unstubAllEnvs());

/** All services of a pipeline at one address, as an emulator has them. A request names its service in its signature. */
async function emulated(operated: Operated) {
  const { endpoints, credentials, region } = operated.pipeline.operator;
  const deployed = await deployedAs('flowdrop', operated.pipeline);
  const { access } = await deployed.connect();
  const services: Readonly<Record<string, string | undefined>> = { ...access.endpoints, ...endpoints };
  const asked: string[] = [];
  const server = await listenOnLoopback(async (request, response) => {
    const { method = 'GET', url: path = '/', headers } = request;
    const [, service = ''] = /\/([\w-]+)\/aws4_request/.exec(headers.authorization ?? '') ?? [];
    asked.push(`${service} ${headers.host} ${path}`);
    const endpoint = services[service];
    if (endpoint === undefined) return void response.writeHead(501).end('{"__type":"NotImplemented"}');
    const body = await buffer(request);
    const kept = Object.entries(headers).filter(([name]) => /^(x-amz-target|content-type|if-.*|range)$/.test(name));
    // The server behind it answers only to its own host, which the signature covers.
    const signed = await signedHeaders(
      { method, path, headers: Object.fromEntries(kept) as Record<string, string>, body },
      { endpoint, service, credentials, region },
    );
    const { host: _, ...sent } = signed;
    const answer = await fetch(`${endpoint}${path}`, { method, headers: sent, ...(body.length > 0 && { body }) });
    const { 'content-encoding': __, 'transfer-encoding': ___, ...shown } = Object.fromEntries(answer.headers);
    response.writeHead(answer.status, shown).end(Buffer.from(await answer.arrayBuffer()));
  });
  const { port } = new URL(server.url);
  vi.stubEnv('AWS_ENDPOINT_URL', `http://localhost:${port}`);
  vi.stubEnv('AWS_REGION', region);
  vi.stubEnv('AWS_ACCESS_KEY_ID', credentials.accessKeyId);
  vi.stubEnv('AWS_SECRET_ACCESS_KEY', credentials.secretAccessKey);
  const close = () => Promise.all([server.close(), deployed[Symbol.asyncDispose]()]);
  return { asked, host: `localhost:${port}`, close };
}

it('an emulator is reached at AWS_ENDPOINT_URL alone, with buckets in the path, and without a warning', async () => {
  const operated = await Operated.forTest();
  await operated.put('photos/robot.png', 'succeeded');
  const { asked, host, close } = await emulated(operated);
  const warned = vi.spyOn(console, 'warn').mockReturnValue();
  try {
    const deployment = await connectStack({ stack: 'flowdrop' }, signal);
    deployment.close();
    const around = { directory: operated.directory };
    const status = await runFlowdrop(['status', '--stack', 'flowdrop'], around);
    expect(status).toMatchObject({ code: 0, errors: '', output: expect.stringMatching(/queue +0 uploads to begin/) });
    const one = await runFlowdrop(['status', 'photos/robot.png', '--stack', 'flowdrop'], around);
    expect(one).toMatchObject({ code: 0, errors: '', output: expect.stringContaining('succeeded, with 1 result') });
    expect((await runFlowdrop(['doctor', '--stack', 'flowdrop'], around)).output).toContain('the queue');
  } finally {
    await close();
  }
  expect(warned).not.toHaveBeenCalled();
  const services = new Set(asked.map((line) => line.split(' ')[0]));
  expect([...services]).toEqual(expect.arrayContaining(['cloudformation', 'lambda', 's3', 'sqs']));
  expect(asked.filter((line) => line.split(' ')[1] !== host)).toEqual([]);
  expect(asked).toContainEqual(expect.stringMatching(/^s3 \S+ \/ledger/));
});
