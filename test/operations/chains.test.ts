import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import {
  DeleteObjectCommand,
  GetObjectCommand,
  ListObjectsV2Command,
  ListObjectVersionsCommand,
  PutObjectCommand,
} from '@aws-sdk/client-s3';
import { afterAll, afterEach, beforeAll, describe, expect, it, vi } from 'vitest';
import { showUpload } from '../../command-line/flowdrop/show.ts';
import { INBOX_BUCKET, LEDGER_BUCKET, RESULTS_BUCKET } from '../../local/pipeline.ts';
import type { ChainNode, ChainView } from '../../operations/chains.ts';
import { explain } from '../../operations/explain.ts';
import { tracesOf } from '../../operations/forget.ts';
import { status, type UploadStatus } from '../../operations/status.ts';
import { issuesOf } from '../support/json-schema.ts';
import { PATIENCE } from '../support/patience.ts';
import { Operated, signal } from './support.ts';

vi.mock('../../operations/wait.ts', () => import('./quick-wait.ts'));

const ECHO = { input: 'file', template: 'bytes_echo' } as const;
const HOUR_MS = 3_600_000;

let operated: Operated;
/** So many new flows end at once. Those after them run for an hour. */
let quickFlows = Number.POSITIVE_INFINITY;
function flowMs(): number {
  quickFlows -= 1;
  return quickFlows < 0 ? HOUR_MS : 0;
}
beforeAll(async () => {
  const routes = [
    { ...ECHO, name: 'copied', parameters: { copies: 2 }, suffixes: ['.png'], overrides: true },
    { ...ECHO, name: 'checked', after: 'copied' },
    { ...ECHO, name: 'packed', after: 'checked', inputs: 'all' },
    { ...ECHO, name: 'split', parameters: { copies: 12 }, suffixes: ['.txt'] },
    { ...ECHO, name: 'read', after: 'split' },
    { ...ECHO, name: 'alone', suffixes: ['.bin'] },
  ] as const;
  operated = await Operated.start({ routes, standIn: { flowMs } });
});
afterEach(() => {
  operated.refuse(undefined);
  quickFlows = Number.POSITIVE_INFINITY;
});
afterAll(() => operated[Symbol.asyncDispose]());

/** The keys of the results bucket that begin so. */
async function keysBelow(Prefix: string): Promise<readonly string[]> {
  const list = new ListObjectsV2Command({ Bucket: RESULTS_BUCKET, Prefix });
  return ((await operated.pipeline.s3.send(list)).Contents ?? []).map(({ Key = '' }) => Key);
}

const flows = (): number => operated.standIn.flows.length;

/** Waits until a chain is in a state. */
const chainBecomes = (key: string, state: ChainView['state']): Promise<ChainView> =>
  vi.waitFor(async () => {
    const found = await status(key, operated.deployment, signal);
    if (found.kind === 'upload' && found.chain?.state === state) return found.chain;
    const states = operated.standIn.flows.map((flow) => flow.state).join(', ');
    throw new Error(`The chain of ${key} is not ${state} yet, with flows ${states}: ${JSON.stringify(found)}`);
  }, PATIENCE);

async function putChain(key: string, state: ChainView['state']): Promise<ChainView> {
  await operated.upload(key, `content of ${key}`);
  return chainBecomes(key, state);
}

describe('a file with the key of a later stage', () => {
  const said = 'Its key has the form of a later stage of a chain';

  it('is no upload: explain, status and put say so', async () => {
    const key = `free.bin/chain/alone/${'0'.repeat(40)}`;
    const folder = join(operated.directory, 'free.bin/chain/alone');
    mkdirSync(folder, { recursive: true });
    writeFileSync(join(folder, '0'.repeat(40)), 'x');
    writeFileSync(join(operated.directory, 'free.bin/taken.bin'), 'x');
    const put = await operated.run('put', 'free.bin', '--yes');
    expect(put).toMatchObject({ code: 1, errors: expect.stringContaining(`${key}: not uploaded, because no route`) });
    expect(put.errors).toContain(said);
    rmSync(join(operated.directory, 'free.bin'), { recursive: true });
    await operated.upload(key, 'x');
    expect((await operated.run('status', key)).output).toContain(said);
    const explained = await operated.run('explain', key);
    expect(explained.output).toContain(said);
    expect(explained.output).not.toContain('takes it');
  });

  it('does not hide the later stage itself, and get fetches nothing of it', async () => {
    const chain = await putChain('hidden.png', 'succeeded');
    const key = chain.root.uploads[0]?.key as string;
    await operated.upload(key, 'another');
    expect((await operated.run('status', key)).output).toContain('began with an asset of hidden.png');
    await operated.upload('hidden.png/chain/other.bin', 'of another upload');
    await operated.becomes('hidden.png/chain/other.bin', 'succeeded');
    const { output } = await operated.run('get', 'hidden.png', '--to', 'hidden');
    expect(output.match(/^hidden\.png( › \w+)?: succeeded/gm)).toHaveLength(4);
    expect(output).not.toContain('other.bin');
    expect((await operated.run('get', 'hidden.png/chain/other.bin', '--to', 'hidden')).code).toBe(0);
  });
});

describe('status', () => {
  it('draws the chain of a file as a tree, also if an upload of a later stage is named', async () => {
    const chain = await putChain('whole.png', 'succeeded');
    const { code, output } = await operated.run('status', 'whole.png');
    const time = String.raw`\d\d:\d\d:\d\d \S+`;
    const drawn = [
      String.raw`the chain of whole\.png: succeeded at ${time}`,
      String.raw`  copied \w{8} +succeeded  ${time}  2 results`,
      String.raw`  ├─ checked \w{8} +succeeded  ${time}  1 result`,
      String.raw`  └─ checked \w{8} +succeeded  ${time}  1 result`,
      String.raw`     └─ packed \w{8} +succeeded  ${time}  2 results, takes all of checked: 2 assets`,
    ];
    expect(output).toMatch(new RegExp(`\n${drawn.join('\n')}\n$`));
    expect(code).toBe(0);

    const [checked] = chain.root.uploads;
    const later = await operated.run('status', checked?.key ?? '');
    expect(later.output).toContain(`  the first file of its chain was put into the inbox: whole.png\n`.trim());
    expect(later.output).toContain('began with an asset of whole.png: 20 B');
    expect(later.output).not.toContain('replaced or deleted');
    expect(later.output).toMatch(new RegExp(`\n${drawn.join('\n')}\n$`));

    const json = JSON.parse((await operated.run('status', checked?.id ?? '', '--json')).output);
    expect(issuesOf('statusOfUpload', json)).toBe('');
    expect(json).toMatchObject({
      isCurrent: true,
      upload: { stage: { route: 'checked', first: { key: 'whole.png' }, parent: { key: 'whole.png', generation: 1 } } },
      chain: { state: 'succeeded', withheld: [], root: { route: 'copied' } },
    });
  });

  it('tells why an upload of the chain failed, which stage was withheld, and how to go on', async () => {
    operated.refuseAfter(2, 422);
    await putChain('broken.png', 'failed');
    const { code, output } = await operated.run('status', 'broken.png');
    expect(code).toBe(1);
    expect(output).toMatch(/^broken\.png: succeeded, but its chain failed\n/);
    expect(output).toMatch(/the chain of broken\.png: failed at /);
    expect(output).toMatch(/[├└]─ checked \w{8} +failed +\S+ \S+ +rejected: .*422/);
    expect(output).toMatch(
      /└─ packed +withheld +after checked +An upload or an output of the stages before failed\.\n/,
    );
    expect(output).toContain('which may be paid for: npm run -s flowdrop -- retry broken.png\n');
    expect(issuesOf('statusOfUpload', JSON.parse((await operated.run('status', 'broken.png', '--json')).output))).toBe(
      '',
    );
  });

  it('tells how to make a stage whose route was removed', async () => {
    const chain = await putChain('removed.png', 'succeeded');
    const found = await status('removed.png', operated.deployment, signal);
    if (found.kind !== 'upload') throw new Error('This is no upload');
    const why =
      'The configuration has no later stage packed any more. Once it is back, `flowdrop again` with --from packed makes it.';
    const failed = { ...chain, state: 'failed', withheld: [{ route: 'packed', after: 'checked', why }] } as const;
    const lines = showUpload({ ...found, chain: failed }, operated.deployment);
    expect(lines.join('\n')).toMatch(
      /packed +withheld +after checked +The configuration has no later stage packed any more\./,
    );
    expect(lines.at(-1)).toBe(
      'No upload of it failed, but packed did not begin. Once its route is back, make it, which is paid for: npm run -s flowdrop -- again removed.png --from packed',
    );
  });

  it('sums up a stage with more than ten uploads, with its failures', async () => {
    operated.refuseAfter(11, 422);
    await putChain('many.txt', 'failed');
    const { output } = await operated.run('status', 'many.txt');
    expect(output).toMatch(/└─ read +12 uploads +(10 succeeded, 2 failed|2 failed, 10 succeeded)\n/);
    expect(output.match(/[├└]─ read \w{8} +failed/g)).toHaveLength(2);
  });

  it('tells what the uploads under way do, and has no chain of a file without later stages', async () => {
    quickFlows = 1;
    await operated.upload('slow.png', 'slow');
    await vi.waitFor(async () => {
      const { output } = await operated.run('status', 'slow.png');
      expect(output).toMatch(/├─ checked \w{8} +running .*\n +└─ checked \w{8} +running /);
    }, PATIENCE);
    const found = await status('slow.png', operated.deployment, signal);
    if (found.kind !== 'upload' || found.chain === undefined) throw new Error('There is no chain');
    expect(found.chain).toMatchObject({ state: 'under way', isSample: false });
    const sample = { ...found, chain: { ...found.chain, isSample: true } };
    expect(showUpload(sample, operated.deployment).at(-1)).toBe(
      '  More uploads are under way. What they wait for was not read.',
    );
    quickFlows = Number.POSITIVE_INFINITY;
    await operated.put('plain.bin', 'succeeded');
    expect((await operated.run('status', 'plain.bin')).output).not.toContain('chain');
  });
});

describe('the name of a later stage', () => {
  it('stands wherever a command names an upload, in place of its key', async () => {
    operated.refuseAfter(2, 422);
    await putChain('named.png', 'failed');
    operated.refuse(undefined);
    const { output: listed } = await operated.run('list', '--failed', '--route', 'checked', '--json');
    const [failed] = JSON.parse(listed).uploads.filter(({ key }: { key: string }) => key.startsWith('named.png/'));
    for (const command of [
      ['cancel', failed.id, '--yes'],
      ['collect', failed.id],
      ['explain', failed.id],
      ['logs', failed.id],
      ['forget', failed.id, '--yes'],
      ['status', failed.id],
      ['retry', failed.id, '--yes'],
    ]) {
      const { output, errors } = await operated.run(...command);
      // The address of the receipt is an address.
      const said = (output + errors).replace(/receipt: s3:.*/, '');
      expect(said, command.join(' ')).not.toContain(failed.key);
      if (command[0] !== 'logs') expect(said, command.join(' ')).toContain('named.png › checked');
    }
    await chainBecomes('named.png', 'succeeded');
    const { output } = await operated.run('get', 'named.png', '--to', 'named');
    expect(output.match(/^named\.png › \w+: succeeded, receipt in/gm)).toHaveLength(3);
  });

  it('is taken in place of a key, and means all uploads of the stage', async () => {
    const chain = await putChain('meant.png', 'succeeded');
    const packed = chain.root.uploads.find(({ route }) => route === 'packed');
    const name = 'meant.png › packed';
    const one = JSON.parse((await operated.run('status', name, '--json')).output);
    expect(one).toMatchObject({ id: packed?.id, upload: { stage: { route: 'packed' } } });
    expect((await operated.run('explain', name)).output).toContain('meant.png › packed: ');
    expect((await operated.run('get', name, '--to', 'meant')).output).toMatch(/^meant\.png › packed: succeeded/);
    expect((await operated.run('collect', name)).output).toMatch(/^meant\.png › packed {2}begun/);
    expect((await operated.run('forget', name, '--yes')).errors).toContain('belongs to the chain of meant.png');

    const ids = chain.root.uploads.flatMap(({ id, route }) => (route === 'checked' ? [id] : [])).sort();
    const all = JSON.parse((await operated.run('status', 'meant.png › checked', '--json')).output);
    expect(all.uploads.map(({ id }: { id: string }) => id).sort()).toEqual(ids);
    const { output } = await operated.run('status', 'meant.png › checked');
    expect(output).toMatch(/^2 uploads of "meant\.png › checked": 2 succeeded\n/);
    for (const id of ids) expect(output).toContain(id);
    const { code, errors } = await operated.run('explain', 'meant.png › checked');
    expect({ code, errors }).toEqual({
      code: 1,
      errors: expect.stringContaining('is the name of 2 uploads. Name one'),
    });
    expect((await operated.run('status', 'meant.png › no such stage')).output).toContain('No upload has a key');
  });

  it('is a key, if a file has it', async () => {
    await operated.upload('meant.bin › packed.bin', 'x');
    await operated.becomes('meant.bin › packed.bin', 'succeeded');
    expect((await operated.run('status', 'meant.bin › packed.bin')).output).toContain('packed.bin: succeeded');
  });
});

describe('put --wait', () => {
  it('tells how each upload of the later stages ends, and waits for the end of the chain', async () => {
    writeFileSync(join(operated.directory, 'waited.png'), 'waited');
    const { code, output, errors } = await operated.run('put', 'waited.png', '--yes', '--wait', '--json');
    const answer = JSON.parse(output);
    expect(issuesOf('put', answer)).toBe('');
    expect(answer.chains).toMatchObject([{ first: { key: 'waited.png' }, state: 'succeeded' }]);
    expect(errors.split('\n').toSorted()).toEqual([
      '',
      'waited.png › checked  succeeded, with 1 result',
      'waited.png › checked  succeeded, with 1 result',
      'waited.png › packed  succeeded, with 2 results',
    ]);
    expect(code).toBe(0);
    const chain = await keysBelow('waited.png/chain.json');
    expect(chain).toHaveLength(1);
  });

  it('exits with 1 if a later stage failed or was withheld', async () => {
    writeFileSync(join(operated.directory, 'unlucky.png'), 'unlucky');
    operated.refuseAfter(2, 422);
    const { code, output, errors } = await operated.run('put', 'unlucky.png', '--yes', '--wait');
    expect({ code, output }).toEqual({
      code: 1,
      output:
        'unlucky.png  succeeded, with 2 results\n' +
        'unlucky.png  chain failed: copied, checked (2 uploads, 1 failed), ' +
        'packed did not begin: An upload or an output of the stages before failed.\n',
    });
    expect(errors).toMatch(/^unlucky\.png › checked {2}failed: rejected: .*422.*$/m);
  });

  it('stops if all that is left of the chain waits for the operator', async () => {
    writeFileSync(join(operated.directory, 'locked.png'), 'locked');
    operated.refuseAfter(1, 401);
    const { code, output } = await operated.run('put', 'locked.png', '--yes', '--wait');
    expect({ code, output }).toEqual({
      code: 1,
      output:
        'locked.png  succeeded, with 2 results\nlocked.png  chain under way: copied, checked (2 uploads, 2 waiting)\n',
    });
    operated.refuse(undefined);
    // Else they would be sent a minute later, among the flows of another test.
    expect(await operated.run('retry', 'locked.png › checked', '--yes', '--wait')).toMatchObject({ code: 0 });
    await chainBecomes('locked.png', 'succeeded');
  });
});

it('get fetches the results of all stages of a file', async () => {
  await putChain('fetched.png', 'succeeded');
  const { code, output } = await operated.run('get', 'fetched.png', '--json');
  const { receipts, files } = JSON.parse(output);
  expect([code, receipts.length]).toEqual([0, 1 + 2 + 1]);
  expect(files.map(({ key }: { key: string }) => key).sort()).toEqual(
    (await keysBelow('fetched.png/')).filter((key) => !key.endsWith('.json')).sort(),
  );
});

describe('retry', () => {
  it('of the first file sends what failed in its chain and nothing else, and says how many flows that is', async () => {
    operated.refuseAfter(2, 422);
    await putChain('again.png', 'failed');
    operated.refuse(undefined);
    const paid = flows();
    const unasked = await operated.run('retry', 'again.png');
    expect(unasked).toMatchObject({
      code: 2,
      errors: expect.stringContaining('1 upload of later stages would be sent again, and may be paid for: 2 flows.'),
    });
    expect(flows()).toBe(paid);

    const forbidden = await operated.run('retry', 'again.png', '--parameters', '{}', '--yes');
    expect(forbidden.errors).toMatch(/^again\.png › checked: nothing is done: its route does not allow/);
    const { code, output, errors } = await operated.run('retry', 'again.png', '--yes', '--wait');
    expect({ code, errors }).toEqual({ code: 0, errors: 'again.png › packed  succeeded, with 2 results\n' });
    expect(output).toMatch(
      /^again\.png › checked {2}succeeded, with 1 result\nagain\.png {2}chain done: copied, checked \(2 uploads\), packed\n$/,
    );
    await chainBecomes('again.png', 'succeeded');
    // The upload itself, and the stage after it.
    expect(flows()).toBe(paid + 2);
    expect(await operated.run('retry', 'again.png', '--yes')).toMatchObject({
      code: 1,
      errors: 'again.png: nothing is done: no upload of its chain has failed\n',
    });
  });

  it('sends the first file again if it has failed', async () => {
    await operated.putRefused('never.png');
    expect(await operated.run('retry', 'never.png', '--yes', '--wait')).toMatchObject({
      code: 0,
      output: 'never.png  succeeded, with 2 results\nnever.png  chain done: copied, checked (2 uploads), packed\n',
    });
    await chainBecomes('never.png', 'succeeded');
  });

  it('makes a stage anew, and those after it, after it has said what that begins', async () => {
    const before = await putChain('anew.png', 'succeeded');
    const paid = flows();
    const unasked = await operated.run('again', 'anew.png', '--from', 'checked');
    expect(unasked).toMatchObject({
      code: 2,
      errors: expect.stringContaining(
        'The stage checked of anew.png would be made anew, and may be paid for: 3 flows. ',
      ),
    });
    expect(flows()).toBe(paid);

    const ran = await operated.run('again', 'anew.png', '--from', 'checked', '--yes', '--wait', '--json');
    const answer = JSON.parse(ran.output);
    expect(issuesOf('change', answer)).toBe('');
    expect(answer.results).toEqual(
      before.root.uploads.slice(0, 2).map(({ id, key }) => expect.objectContaining({ id, key, result: 'resubmitted' })),
    );
    const after = await vi.waitFor(async () => {
      const chain = await chainBecomes('anew.png', 'succeeded');
      expect(chain.generation).toBe(2);
      return chain;
    }, PATIENCE);
    expect(after.root.uploads.map(({ route }) => route)).toEqual(['checked', 'checked', 'packed']);
    expect(flows()).toBe(paid + 3);
    expect((await operated.run('status', 'anew.png')).output).toContain('with stages made anew or added 1 time\n');
  });

  it('says in words why a stage is not made anew', async () => {
    operated.refuseAfter(2, 422);
    await putChain('held.png', 'failed');
    operated.refuse(undefined);
    await operated.put('lonely.bin', 'succeeded');
    quickFlows = 1;
    await operated.upload('busy.png', 'busy');
    const busy = await chainBecomes('busy.png', 'under way');
    const stage = busy.root.uploads[0]?.key ?? '';
    // The chain names an upload before it begins.
    await vi.waitFor(async () => expect((await operated.run('status', stage)).code).toBe(0), PATIENCE);
    for (const [key, from, why] of [
      ['held.png', 'packed', 'the stage packed would be withheld. An upload or an output of the stages before failed.'],
      ['held.png', 'chequed', 'there is no stage chequed. Its stages: copied, checked, packed'],
      ['held.png', 'read', 'its chain has no stage read. Its stages: copied, checked, packed'],
      ['lonely.bin', 'checked', 'its chain has no stage checked. Its stages: alone'],
      ['busy.png', 'checked', 'an upload of the stage checked, or of a stage after it, is under way'],
      ['busy.png', 'packed', 'the stage before packed has not ended'],
      [stage, 'checked', 'it belongs to the chain of busy.png: name that file'],
    ] as const) {
      expect(await operated.run('again', key, '--from', from, '--yes')).toMatchObject({
        code: 1,
        errors: `${key === stage ? 'busy.png › checked' : key}: nothing is done: ${why}\n`,
      });
    }
    for (const words of [
      ['held.png', '--only-if-changed'],
      ['held.png', '--parameters', '{}'],
    ]) {
      expect(await operated.run('again', ...words, '--from', 'checked')).toMatchObject({
        code: 2,
        errors: '--from does not go with --parameters, --template or --only-if-changed.\n',
      });
    }
  });
});

it('cancel of the first file ends what runs in its chain', async () => {
  quickFlows = 1;
  await operated.upload('stop.png', 'stop');
  await vi.waitFor(async () => {
    const { stages } = await chainBecomes('stop.png', 'under way');
    expect(stages.find(({ route }) => route === 'checked')?.counts).toEqual({ running: 2 });
  }, PATIENCE);
  expect((await operated.run('cancel', 'stop.png')).errors).toContain('2 uploads would end as failed.');
  const { code, output } = await operated.run('cancel', 'stop.png', '--yes');
  expect(code).toBe(0);
  expect(output.match(/^stop\.png › checked {2}cancelled, the service stops its flow$/gm)).toHaveLength(2);
  await chainBecomes('stop.png', 'failed');
  expect(await operated.run('cancel', 'stop.png', '--yes')).toMatchObject({
    code: 1,
    errors: 'stop.png: nothing is done: no upload of its chain waits or runs\n',
  });
});

describe('forget', () => {
  /** The keys of a bucket, all versions included, that hold one of these texts. */
  async function keysWith(Bucket: string, texts: readonly string[]): Promise<readonly string[]> {
    const { Versions = [] } = await operated.pipeline.s3.send(new ListObjectVersionsCommand({ Bucket }));
    return Versions.map(({ Key = '' }) => Key).filter((key) => texts.some((text) => key.includes(text)));
  }
  const idsOf = ({ id, uploads }: ChainNode): readonly string[] => [id, ...uploads.flatMap(idsOf)];

  it('of the first file deletes its whole chain, what a stage made anew has replaced too, and nothing else', async () => {
    operated.refuseAfter(2, 422);
    const first = await putChain('gone.png', 'failed');
    operated.refuse(undefined);
    await operated.run('retry', 'gone.png', '--yes', '--wait');
    const second = await chainBecomes('gone.png', 'succeeded');
    await operated.run('again', 'gone.png', '--from', 'packed', '--yes', '--wait');
    const third = await vi.waitFor(async () => {
      const chain = await chainBecomes('gone.png', 'succeeded');
      expect(chain.generation).toBe(2);
      return chain;
    }, PATIENCE);
    const ids = [...new Set([first, second, third].flatMap(({ root }) => idsOf(root)))];
    // The first file, two uploads that check its copies, and two that pack these.
    expect(ids).toHaveLength(5);
    await putChain('gone.png.png', 'succeeded');

    const later = third.root.uploads[0];
    expect(await operated.run('forget', later?.key ?? '', '--yes')).toMatchObject({
      code: 1,
      errors: `gone.png › checked belongs to the chain of gone.png. Forget the whole chain: npm run -s flowdrop -- forget gone.png\n`,
    });
    const asked = await operated.run('forget', 'gone.png');
    expect(asked.errors).toContain('gone.png, with 4 uploads of later stages: the upload, ');
    const { output } = await operated.run('forget', 'gone.png', '--yes', '--json');
    const answer = JSON.parse(output);
    expect(issuesOf('forget', answer)).toBe('');
    expect(answer.results).toContain('gone.png/chain.json');
    expect([answer.results.at(-1), answer.ledger.slice(-2)]).toEqual([
      'gone.png/receipt.json',
      [`uploads/${answer.id}.json`, `chains/${answer.id}.json`],
    ]);
    const records = await keysWith(LEDGER_BUCKET, ids);
    // A tick drops a waiting marker when it is due, within the hour.
    expect(records.filter((key) => !key.startsWith('waiting/'))).toEqual([]);
    expect(await keysWith(RESULTS_BUCKET, ['gone.png/'])).toEqual([]);
    expect(await keysWith(INBOX_BUCKET, ['gone.png'])).toEqual(['gone.png.png']);
    expect((await chainBecomes('gone.png.png', 'succeeded')).root.uploads).toHaveLength(3);
  });

  it('ends what was stopped before the chain was deleted, by the id of the file', async () => {
    const { root } = await putChain('almost.png', 'succeeded');
    await vi.waitFor(() => tracesOf(root.id, operated.deployment, signal), PATIENCE);
    const Key = `chains/${root.id}.json`;
    const { Body } = await operated.pipeline.s3.send(new GetObjectCommand({ Bucket: LEDGER_BUCKET, Key }));
    const chain = await Body?.transformToByteArray();
    expect(await operated.run('forget', 'almost.png', '--yes')).toMatchObject({ code: 0 });
    await operated.pipeline.s3.send(new PutObjectCommand({ Bucket: LEDGER_BUCKET, Key, Body: chain }));
    expect(await operated.run('forget', root.id, '--yes')).toMatchObject({
      code: 0,
      output: expect.stringMatching(/^almost\.png: 0 objects of its results, 1 record deleted\./),
    });
    expect(await operated.run('forget', root.id, '--yes')).toMatchObject({
      code: 1,
      errors: `There is no upload ${root.id}.\n`,
    });
  });

  it('refuses a chain that is under way', async () => {
    quickFlows = 1;
    await operated.upload('moving.png', 'moving');
    await chainBecomes('moving.png', 'under way');
    const refused = await vi.waitFor(async () => {
      const ran = await operated.run('forget', 'moving.png', '--yes');
      expect(ran.errors).not.toContain('Try again in a minute');
      return ran;
    }, PATIENCE);
    expect(refused).toMatchObject({
      code: 1,
      errors: 'The chain of moving.png is under way. Cancel it first: npm run -s flowdrop -- cancel moving.png\n',
    });
  });
});

it('explain says of a route of a later stage that it takes assets', async () => {
  await operated.upload('which.zip', 'x');
  const { output } = await operated.run('explain', 'which.zip');
  expect(output).toContain('route checked: takes assets of the route copied, instead of files\n');
  expect(output).toContain('No route wants it, so nothing is sent.');
});

describe('explain of an upload id', () => {
  const explained = async (id: string) => {
    const { output } = await operated.run('explain', id, '--json');
    const answer = JSON.parse(output);
    expect(issuesOf('explain', answer)).toBe('');
    return answer;
  };

  it('shows the request of the first file, and of each later stage with its own assets', async () => {
    const chain = await putChain('explained.png', 'succeeded');
    const first = await explained(chain.first.id);
    expect(first).toMatchObject({
      key: 'explained.png',
      routes: [{ name: 'copied', takesIt: true }],
      request: { parameters: { copies: 2 }, additional: { flowdrop: { upload: chain.first.id, generation: 1 } } },
    });
    const { uploads } = chain.root;
    const checked = uploads.find(({ route }) => route === 'checked') as ChainNode;
    const one = await explained(checked.id);
    expect(one.request.inputs).toEqual([
      {
        additional: { bucket: RESULTS_BUCKET, key: expect.stringMatching(/^explained\.png\/.+\.png$/) },
        data: `data:image/png;base64,${Buffer.from('content of explained.png').toString('base64')}`,
      },
    ]);
    expect(one.request.additional.flowdrop).toMatchObject({ upload: checked.id, generation: 1 });
    expect(one.routes[0].why).toBe('takes it, as input of the template bytes_echo');
    const packed = uploads.find(({ route }) => route === 'packed') as ChainNode;
    expect((await explained(packed.id)).request.inputs).toHaveLength(2);
    expect((await explained(checked.key)).request).toEqual(one.request);
  });

  it('says so if the input is gone, or has another version now', async () => {
    const { first, root } = await putChain('lost.png', 'succeeded');
    const { id } = first;
    await operated.upload('lost.png', 'another');
    expect((await explained(id)).request.inputs[0].data).toContain(Buffer.from('content of lost').toString('base64'));
    const found = (await status(id, operated.deployment, signal)) as UploadStatus;
    const [asset] = found.upload?.assets ?? [];
    await operated.pipeline.s3.send(new DeleteObjectCommand({ Bucket: RESULTS_BUCKET, Key: asset?.key }));
    const answers = await Promise.all(
      root.uploads.filter(({ route }) => route === 'checked').map((each) => explained(each.id)),
    );
    expect(answers.map(({ issue }) => issue).filter((issue) => issue !== undefined)).toEqual([
      `Its input cannot be shown: results/${asset?.key} was deleted.`,
    ]);
  });

  it('needs neither the routes of the deployment nor an id that is there', async () => {
    const { deployment } = operated;
    const chain = await putChain('unrouted.png', 'succeeded');
    const unknown = { ...deployment, areRoutesKnown: false, settings: { ...deployment.settings, routes: [] } };
    const what = { path: 'nowhere', key: chain.first.id };
    expect(await explain(what, unknown, signal)).toMatchObject({ key: 'unrouted.png', issue: undefined });
    expect(await operated.run('explain', '0'.repeat(40))).toMatchObject({
      code: 1,
      errors: expect.stringMatching(/and no upload with this id\.\n$/),
    });
  });
});
