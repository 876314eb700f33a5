import { expect, it } from 'vitest';
import { folderWith } from '../support/folder.ts';
import { issuesOf } from '../support/json-schema.ts';
import { runFlowdrop } from './support.ts';

/** A service that takes one input, and has the template in its path. */
const SERVICE = {
  from: 'flows',
  create: {
    path: '/run/{template}',
    body: {
      ...{ template: null, parameters: null, additional: null, inputs: null },
      ...{ '...': '{parameters}', image: '{input}', note: '{additional}' },
    },
  },
};

const ROUTES = [
  { name: 'pictures', mediaTypes: ['image/png'], template: 'maker/to-model', parameters: { faces: 9 } },
  { name: 'optimised', after: 'pictures', mediaTypes: ['model/gltf-binary'], template: 'smaller' },
];
const PACKED = { name: 'packed', after: 'optimised', inputs: 'all', template: 'zip' };

/** Explains a picture of this machine, without a pipeline. */
const explained = (words: readonly string[], routes: readonly object[] = ROUTES, service: unknown = SERVICE) =>
  runFlowdrop(['explain', 'robot.png', ...words], {
    directory: folderWith({
      'cdk.json': { context: {} },
      'flowdrop.json': { baseUrl: 'http://127.0.0.1:9', routes, service },
      'robot.png': 'x',
    }),
  });

it('explain shows the request as the described service gets it', async () => {
  const answer = JSON.parse((await explained(['--json'])).output);
  expect(issuesOf('explain', answer)).toBe('');
  expect(answer).toMatchObject({
    sentTo: 'POST /run/maker/to-model',
    request: { faces: 9, image: 'data:image/png;base64,eA==', note: { flowdrop: { generation: 1 } } },
  });
  expect(answer.request).not.toHaveProperty('inputs');
});

it('explain shows the headers of the request, without the token', async () => {
  const create = { idempotency: { header: 'X-Once', hours: 1 } };
  const headers = { Prefer: 'respond-async' };
  const service = { from: 'flows', token: { header: 'X-Api-Key', scheme: null }, headers, create };
  const answer = JSON.parse((await explained(['--json'], ROUTES, service)).output);
  expect(answer.headers).toMatchObject({
    ...{ 'X-Api-Key': '[token]', 'X-Once': `${'0'.repeat(24)}-…-1-1` },
    ...{ Prefer: 'respond-async', 'Content-Type': 'application/json' },
  });
  expect(answer.stages[0].headers).toMatchObject({ 'X-Api-Key': '[token]', Prefer: 'respond-async' });
  const { output } = await explained([], ROUTES, service);
  expect(output).toContain('POST /flows with\n  Accept: application/json\n');
  expect(output).toContain('\n  Prefer: respond-async\n');
  expect((await explained([], ROUTES, 'flows')).output).toContain('\n  Authorization: Bearer [token]\n');
});

it('explain shows no address of a file that the service fetches', async () => {
  const create = { body: { inputs: null, image: '{inputUrl}' } };
  const answer = JSON.parse((await explained(['--json'], ROUTES, { from: 'flows', create })).output);
  expect([answer, ...answer.stages]).toMatchObject(Array(2).fill({ request: { image: '{inputUrl}' } }));
});

it('explain shows the requests of the later stages too', async () => {
  const { stages } = JSON.parse((await explained(['--json'])).output);
  expect(stages).toMatchObject([{ route: 'optimised', after: 'pictures', sentTo: 'POST /run/smaller' }]);
  expect(stages[0].request.image).toBe('data:model/gltf-binary;base64,…');
  const { output } = await explained([], [...ROUTES, PACKED], 'flows');
  expect(output).toContain('The request would be POST /flows with\n');
  expect(output).toContain('For each asset of pictures that the route optimised takes, it would be POST /flows with\n');
  expect(output).toContain('For all assets of optimised that the route packed takes, it would be POST /flows with\n');
});
