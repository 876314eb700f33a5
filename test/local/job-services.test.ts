import { readFileSync } from 'node:fs';
import { expect, it } from 'vitest';
import type { Json } from '../../functions/base/json.ts';
import { merged, type ServiceDescription } from '../../functions/flow-service/service-description.ts';
import { SERVICES } from '../../functions/flow-service/services.ts';
import { SHAPES, shapeFor } from '../../local/flow-service/shapes.ts';
import { Operated } from '../operations/support.ts';

const PICTURE = readFileSync(new URL('../../examples/robot.png', import.meta.url));

it.each(Object.keys(SHAPES))('the local run of %s makes the assets of a file at its stand-in', async (name) => {
  const speaks = SERVICES[name] as ServiceDescription;
  const operated = await Operated.forTest({
    speaks,
    routes: [
      {
        name: 'pictures',
        input: 'file',
        template: name === 'fal' ? 'fal-ai/hunyuan3d' : 'any',
        mediaTypes: ['image/*'],
      },
      { name: 'texts', input: 'text', template: 'text_to_model', suffixes: ['.txt'] },
    ],
  });
  expect(operated.pipeline.standIn).toBeUndefined();
  const [key, body] = name === 'tripo' ? ['a.txt', 'a robot'] : ['a.png', PICTURE];
  await operated.upload(key, body);
  await operated.becomes(key, 'succeeded');
  const { output } = await operated.run('status', key, '--json');
  expect(JSON.parse(output)).toMatchObject({
    upload: { assets: expect.arrayContaining([expect.objectContaining({ key: expect.stringMatching(/\.glb$/) })]) },
  });
  expect(operated.pipeline.standInJobs?.jobs).toHaveLength(1);
});

it('a description that differs a little from a shipped one has the same stand-in', () => {
  const changed = merged(SERVICES.meshy as unknown as Json, { outputs: { addresses: ['/model_urls/glb'] } });
  expect(shapeFor(changed as unknown as ServiceDescription)).toBe('meshy');
  expect(shapeFor(SERVICES.flows)).toBeUndefined();
  expect(shapeFor(undefined)).toBeUndefined();
});
