import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { copyFile, mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { CopyObjectCommand, GetObjectCommand } from '@aws-sdk/client-s3';
import { describe, expect, it, vi } from 'vitest';
import { INBOX_BUCKET } from '../../local/pipeline.ts';
import { Operated } from '../operations/support.ts';
import { PATIENCE } from '../support/patience.ts';
import { list, remove } from '../support/s3-calls.ts';

const ROBOT = fileURLToPath(new URL('../../examples/robot.png', import.meta.url));
const ROUTES = [{ name: 'photos', input: 'file', template: 'bytes_echo', prefixes: ['photos/'] }] as const;
/** What a client renames its file to. */
const PHOTO = 'photos/b c+é.png';

/** A pipeline, with what create-flow says of the uploads that it skips. */
async function start() {
  const skipped: string[] = [];
  const operated = await Operated.forTest({
    routes: ROUTES,
    onLog: (name, line) => {
      if (name === 'create-flow' && line.includes('nothing is sent of it')) skipped.push(line);
    },
  });
  const { pipeline } = operated;
  const keysBelow = (Prefix: string) => list({ client: pipeline.s3, Bucket: INBOX_BUCKET }, { Prefix });
  /** The number of flows, once create-flow has seen all uploads. */
  const flows = async () => {
    await vi.waitFor(() => expect(pipeline.queue.counts()).toEqual({ visible: 0, inFlight: 0, delayed: 0 }), PATIENCE);
    return pipeline.standIn?.flows.length;
  };
  return { operated, pipeline, skipped, keysBelow, flows };
}

it('sends a file once that is renamed by a copy, and nothing when its metadata are changed by a copy', async () => {
  const { operated, pipeline, skipped, flows } = await start();
  const at = { client: pipeline.s3, Bucket: INBOX_BUCKET, Key: 'new.png' };
  const copy = (from: string, Key: string, more: object = {}) => {
    const CopySource = `${INBOX_BUCKET}/${encodeURIComponent(from)}`;
    return pipeline.s3.send(new CopyObjectCommand({ Bucket: INBOX_BUCKET, Key, CopySource, ...more }));
  };
  await operated.upload(at.Key, 'a picture');
  await copy(at.Key, PHOTO);
  await remove(at);
  await operated.becomes(PHOTO, 'succeeded');
  await copy(PHOTO, PHOTO, { MetadataDirective: 'REPLACE', Metadata: { seen: '1' } });
  await vi.waitFor(() => expect(skipped).toHaveLength(1), PATIENCE);
  expect(await flows()).toBe(1);
});

const AWS = 'aws --endpoint-url "$AWS_ENDPOINT_URL_S3" s3';
const RCLONE_INBOX = `:s3,provider=Other,env_auth,endpoint='$AWS_ENDPOINT_URL_S3':inbox`;
const S3CMD_HOST = '"$' + '{AWS_ENDPOINT_URL_S3#http://}"';
const S3CMD = `s3cmd --no-ssl --host=${S3CMD_HOST} --host-bucket=${S3CMD_HOST}`;

/** The words of a shell, for the clients of Debian. `$1` is a key, and `$2` another one. */
const CLIENTS = {
  aws: {
    move: `${AWS} mv "s3://inbox/$1" "s3://inbox/$2"`,
    change: `${AWS} cp "s3://inbox/$1" "s3://inbox/$1" --metadata-directive REPLACE --metadata seen=1`,
    sync: `${AWS} sync many s3://inbox/new/`,
    clear: `${AWS} rm --recursive s3://inbox/new/`,
  },
  rclone: {
    move: `rclone moveto "${RCLONE_INBOX}/$1" "${RCLONE_INBOX}/$2"`,
    change: `touch -d 2001-02-03 robot.png && rclone copyto robot.png "${RCLONE_INBOX}/$1"`,
    sync: `rclone sync many "${RCLONE_INBOX}/new"`,
    clear: `rclone purge "${RCLONE_INBOX}/new"`,
  },
  s3cmd: {
    move: `${S3CMD} mv "s3://inbox/$1" "s3://inbox/$2"`,
    change: `${S3CMD} modify --add-header=x-amz-meta-seen:1 "s3://inbox/$1"`,
    sync: `${S3CMD} sync many/ s3://inbox/new/`,
    clear: `${S3CMD} del -r s3://inbox/new/`,
  },
} as const;

/** Above 8 MiB, the AWS CLI sends and copies a file in parts. */
const LARGE_BYTES = 8 * 1024 ** 2 + 1;

/** Where packages of a system put programs. */
const FOLDERS = ['/usr/local/bin', '/usr/bin', '/bin'];

describe.each(Object.entries(CLIENTS))('the client %s of the system', (program, client) => {
  it.skipIf(!FOLDERS.some((folder) => existsSync(join(folder, program))))(
    'puts, renames, changes, synchronises and deletes with what flowdrop credentials prints',
    async () => {
      const { operated, pipeline, skipped, keysBelow, flows } = await start();
      const { directory } = operated;
      const { output: exports, errors } = await operated.run('credentials');
      const printed = errors.split('\n').find((line) => line.startsWith(`  ${program} `));
      const env = { PATH: FOLDERS.join(':'), HOME: directory, LANG: 'C.UTF-8' };
      const run = (script: string, ...words: readonly string[]) =>
        promisify(execFile)('/bin/sh', ['-ec', `${exports}\n${script}`, 'sh', ...words], { cwd: directory, env });

      await copyFile(ROBOT, join(directory, 'robot.png'));
      await run(printed?.replace('FILE', 'robot.png') ?? 'false');
      await run(client.move, 'robot.png', PHOTO);
      await operated.becomes(PHOTO, 'succeeded');
      await run(client.change, PHOTO);
      await vi.waitFor(() => expect(skipped).toHaveLength(1), PATIENCE);

      await mkdir(join(directory, 'many'));
      const large = Buffer.alloc(LARGE_BYTES, 'large');
      for (const name of ['one é.bin', 'two.bin']) await writeFile(join(directory, 'many', name), large);
      await run(client.sync);
      await run(client.move, 'new/one é.bin', 'new/three+.bin');
      expect(await keysBelow('new/')).toEqual(['new/three+.bin', 'new/two.bin']);
      const moved = new GetObjectCommand({ Bucket: INBOX_BUCKET, Key: 'new/three+.bin' });
      const bytes = await (await pipeline.s3.send(moved)).Body?.transformToByteArray();
      expect(Buffer.compare(bytes ?? Buffer.alloc(0), large)).toBe(0);
      await run(client.clear);
      expect(await keysBelow('')).toEqual([PHOTO]);
      expect(await flows()).toBe(1);
    },
  );
});
