import { describe, expect, it } from 'vitest';
import { type LinkedOutput, linkedOutputsSchema } from '../../functions/flow-service/answers.ts';

/** The results that an answer links at these pointers. */
const linked = (answer: unknown, addresses: readonly string[] = ['/output']): readonly LinkedOutput[] =>
  linkedOutputsSchema({ addresses, isWhole: true }).parse(answer);

const idsOf = (links: readonly LinkedOutput[]): readonly string[] => links.map(({ assetId }) => assetId);

describe('the results that an answer links', () => {
  it('are the addresses in lists and objects at the declared places', () => {
    const output = ['https://cdn.example/a.glb', { preview: 'data:image/png;base64,AA==', seed: 'none' }];
    expect(linked({ output })).toMatchObject([
      { assetId: 'output-0', pointer: '/output/0', address: 'https://cdn.example/a.glb', error: undefined },
      { assetId: 'output-1-preview', pointer: '/output/1/preview', address: 'data:image/png;base64,AA==' },
    ]);
  });

  it('have an id each, also if the names of their places read alike', () => {
    const output = { 'a-b': 'https://cdn.example/1', a: { b: 'https://cdn.example/2' } };
    expect(idsOf(linked({ output }))).toEqual(['output-a-b', 'output/a/b']);
  });

  it('count once if two declared places hold them', () => {
    expect(idsOf(linked({ output: { a: 'https://cdn.example/1' } }, ['/output', '/output/a']))).toEqual(['output-a']);
  });

  it.each([
    ['no URL', { output: 'https://[cdn' }, ['/output'], 'It is no address, but "https://[cdn"'],
    ['a text', { output: 'soon' }, ['/output'], 'It is no address, but "soon"'],
    ['a number', { output: 7 }, ['/output'], 'It is no address, but 7'],
    ['a name that no key can have', { '..': 'https://cdn.example/1' }, [''], 'under an unusable id: ..'],
    [
      'a very long name',
      { output: { ['n'.repeat(300)]: 'https://cdn.example/1' } },
      ['/output'],
      'an unusable id: output-n',
    ],
  ])('have failed if there is %s in their place', (_, answer, addresses, error) => {
    expect(linked(answer, addresses)).toEqual([
      expect.objectContaining({ address: undefined, error: expect.stringContaining(error) }),
    ]);
  });
});
