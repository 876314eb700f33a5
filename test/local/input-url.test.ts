import { readFileSync } from 'node:fs';
import { expect, it, vi } from 'vitest';
import { MESHY } from '../../functions/flow-service/job-services.ts';
import { Operated } from '../operations/support.ts';
import { PATIENCE } from '../support/patience.ts';

const PICTURE = readFileSync(new URL('../../examples/robot.png', import.meta.url));

it('a service on this machine fetches the file of each stage, by an address that no answer shows', async () => {
  const lines: string[] = [];
  const operated = await Operated.forTest({
    speaks: { ...MESHY, create: { ...MESHY.create, body: { '...': '{parameters}', image_url: '{inputUrl}' } } },
    routes: [
      { name: 'pictures', input: 'file', template: 'image-to-3d', suffixes: ['.png'] },
      { name: 'again', after: 'pictures', input: 'file', template: 'image-to-3d', mediaTypes: ['model/*'] },
    ],
    onLog: (_, line) => lines.push(line),
  });
  await operated.upload('a.png', PICTURE);
  await operated.becomes('a.png', 'succeeded');
  const { standInJobs } = operated.pipeline;
  await vi.waitFor(async () => {
    const { code, output } = await operated.run('status', 'a.png', '--json');
    expect([code, JSON.parse(output).chain?.state]).toEqual([0, 'succeeded']);
  }, PATIENCE);
  const { output } = await operated.run('status', 'a.png', '--json');
  expect(standInJobs?.jobs.map(({ input }) => input.mediaType)).toEqual(['image/png', 'model/gltf-binary']);
  expect(standInJobs?.jobs[0]?.input.blob.memory?.equals(PICTURE)).toBe(true);
  expect(lines.join()).toContain('a.png');
  for (const text of [output, ...lines]) expect(text).not.toContain('X-Amz-');
});
