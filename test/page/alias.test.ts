import { expect, it } from 'vitest';
import { Operated } from '../operations/support.ts';
import { messageOf, serve, Visitor } from './support.ts';

const ROUTES = [
  { name: 'named', input: 'file', template: 'bytes_echo', prefixes: ['named/'], alias: 'models/{folder}/{name}{ext}' },
  { name: 'others', input: 'file', template: 'bytes_echo' },
] as const;

it('an alias is told with its bytes, and shows another generation if a visitor wants', async () => {
  const operated = await Operated.forTest({ routes: ROUTES });
  const { url } = await serve(operated.deployment, {});
  const visitor = await Visitor.open(url);
  const detail = async (id: string) => (await visitor.ask(`/api/uploads/${id}`)).json;
  const { id } = await operated.put('named/oak.txt', 'succeeded', 'the first');
  const before = await detail(id);
  const first = before.upload.flow.id;
  expect(before.alias).toMatchObject({
    pattern: 'models/{folder}/{name}{ext}',
    flow: first,
    objects: [{ key: 'models/named/oak.txt', bytes: 9 }],
  });
  expect((await visitor.ask(before.alias.objects[0].url)).text).toBe('the first');

  await operated.run('again', 'named/oak.txt', '--yes');
  await operated.becomes('named/oak.txt', 'succeeded');
  const after = await detail(id);
  expect(after.upload.generation).toBe(2);
  expect(after.alias.flow).toBe(after.upload.flow.id);
  const moved = await visitor.post('/api/alias', { upload: id, flow: first });
  expect([moved.status, moved.json]).toMatchObject([200, { id, isDone: true, result: 'shown' }]);
  expect((await detail(id)).alias.flow).toBe(first);

  // It would have the same alias.
  const second = await operated.put('named/oak.text', 'succeeded');
  const taken = await detail(second.id);
  expect(taken.alias).toMatchObject({ flow: taken.upload.flow.id, objects: [], missing: ['models/named/oak.txt'] });
  expect(taken.receipt.aliasIssue).toContain('is an object of something else');

  const other = await operated.put('plain.txt', 'succeeded');
  const { upload: plain, alias } = await detail(other.id);
  expect(alias).toBeUndefined();
  for (const [request, status, message] of [
    [{ upload: id, flow: 'nope' }, 409, 'no such flow'],
    [{ upload: other.id, flow: plain.flow.id }, 409, 'without an alias'],
    [{ upload: 'plain.txt', flow: 'nope' }, 404, 'no such upload'],
    [{ upload: second.id, flow: taken.upload.flow.id }, 409, 'is an object of something else'],
    [{ upload: id }, 400, 'flow'],
  ] as const) {
    const refused = await visitor.post('/api/alias', request);
    expect([refused.status, messageOf(refused)]).toEqual([status, expect.stringContaining(message)]);
  }
  expect((await detail(id)).alias.flow).toBe(first);
});
