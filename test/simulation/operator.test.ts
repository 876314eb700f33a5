import { describe, expect, it } from 'vitest';
import { messageFor } from '../../functions/uploads/upload-event.ts';
import { Queue } from '../../local/aws/sqs.ts';
import { VirtualTime } from '../support/virtual-time.ts';
import { Observations, type Put } from './observations.ts';
import { redrive } from './operator.ts';

const upload = (id: string, facts: { readonly key?: string; readonly versionId?: string; readonly etag?: string }) => ({
  id: id.repeat(40),
  bucket: 'inbox',
  key: 'echo/a.bin',
  etag: 'etag-1',
  bytes: 1,
  lastModified: 0,
  mediaType: 'text/plain',
  ...facts,
});

/** A notification as S3 sends it: without the upload id of our own messages. */
const notificationOf = (of: ReturnType<typeof upload>): string =>
  JSON.stringify({
    ...JSON.parse(messageFor(of)),
    Records: [{ ...JSON.parse(messageFor(of)).Records[0], flowdrop: {} }],
  });

/**
 * The messages that a redrive sends, of all these dead letters.
 * @param puts all uploads that were put, in their order.
 */
function redriven(
  letters: readonly string[],
  damaged: ReturnType<typeof upload> | undefined,
  puts = damaged === undefined ? [] : [damaged],
): readonly string[] {
  const observed = new Observations();
  observed.damaged = damaged;
  observed.puts.push(...puts.map((put) => put as unknown as Put));
  const clock = new VirtualTime();
  const deadLetters = new Queue({ name: 'dead', clock });
  const queue = new Queue({ name: 'uploads', clock });
  for (const letter of letters) deadLetters.send(letter);
  redrive({ deadLetters, queue, observed });
  return queue.receive({ max: 10 }).map(({ body }) => body);
}

describe('a redrive', () => {
  const damaged = upload('d', { versionId: 'version-1' });

  it('leaves out the messages about the upload whose entry was damaged', () => {
    expect(redriven([notificationOf(damaged), messageFor(damaged)], damaged)).toEqual([]);
  });

  it('sends the messages about the other versions of its key', () => {
    const other = upload('0', { versionId: 'version-2' });
    const letters = [notificationOf(other), messageFor(other)];
    expect(redriven(letters, damaged)).toEqual(letters);
  });

  it('tells uploads without versions by their ETag', () => {
    const unversioned = upload('d', {});
    const other = notificationOf(upload('0', { etag: 'etag-2' }));
    expect(redriven([notificationOf(unversioned), other], unversioned)).toEqual([other]);
  });

  it('sends everything if no entry was damaged', () => {
    const letters = [notificationOf(damaged)];
    expect(redriven(letters, undefined)).toEqual(letters);
  });

  describe('if the entry of a job was damaged,', () => {
    const job = upload('d', { key: 'jobs/x/job.json', versionId: 'version-1' });
    const file = (key: string): string => notificationOf(upload('f', { key, versionId: 'version-3' }));
    const below = [file('jobs/x/a.bin'), file('jobs/x/sub/a.bin')];

    it('leaves out the messages about files in its folder, which look at the entry', () => {
      expect(redriven(below, job)).toEqual([]);
    });

    it('sends the messages about other files, and about other jobs in its folder', () => {
      const letters = [file('jobs/y/a.bin'), file('jobs/a.bin'), file('jobs/x/sub/job.json')];
      expect(redriven(letters, job)).toEqual(letters);
    });

    it('sends all messages about files if a newer job file has taken its place', () => {
      expect(redriven(below, job, [job, { ...job, versionId: 'version-2' }])).toEqual(below);
    });
  });
});
