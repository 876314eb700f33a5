import { describe, expect, it } from 'vitest';
import { InvalidJobError, parseJob } from '../../functions/uploads/job.ts';
import { publishedValidator } from './validators.ts';

const issuesOf = publishedValidator('job');
const isParsed = (job: unknown): boolean => {
  try {
    parseJob(Buffer.from(JSON.stringify(job)), 'multi/chair/job.json', undefined);
    return true;
  } catch (error) {
    if (error instanceof InvalidJobError) return false;
    throw error;
  }
};
const withName = (name: unknown) => ({ inputs: [name] });

describe('job.schema.json and the code give the same verdict', () => {
  it.each([
    {
      $schema: './job.schema.json',
      inputs: ['front.png', { name: 'back.png', optional: true }, { text: 'oak, matt' }],
    },
    {
      inputs: [{ text: '\n', additional: { material: { wood: 'oak' } } }],
      parameters: null,
      deadlineSeconds: 2_592_000,
    },
    ...['a', 'ä b.png', '.hidden', '..a', 'a..', '...', 'job.json.png', 'my-job.json', '1/2/3/4/5/6/7/8/9'].map(
      withName,
    ),
  ])('%j is a job', (job) => {
    expect([issuesOf(job), isParsed(job)]).toEqual([[], true]);
  });

  it.each([
    [],
    {},
    { inputs: [] },
    { inputs: 'a' },
    { inputs: Array.from({ length: 33 }, (_, index) => `${index}`) },
    { inputs: ['a'], deadlineSeconds: 0 },
    { inputs: ['a'], deadlineSeconds: 2_592_001 },
    { inputs: ['a'], deadlineSeconds: 1.5 },
    { inputs: ['a'], paramters: {} },
    { inputs: ['a'], $schema: 7 },
    { inputs: [{ text: '' }] },
    { inputs: [{ name: 'a', optional: 'yes' }] },
    { inputs: [{ name: 'a', additional: { flowdrop: 1 } }] },
    ...[
      '',
      '/',
      'a/',
      '/a',
      'a//b',
      '.',
      '..',
      '../a',
      'a/./b',
      'a/..',
      'job.json',
      'sub/job.json',
      'a\nb',
      '\ud800',
      7,
      null,
    ].map(withName),
    withName('1/2/3/4/5/6/7/8/9/10'),
  ])('%j is none', (job) => {
    expect([issuesOf(job).length > 0, isParsed(job)]).toEqual([true, false]);
  });
});
