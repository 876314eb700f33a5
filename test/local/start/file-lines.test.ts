import { describe, expect, it } from 'vitest';
import type { ChainReport, Receipt } from '../../../functions/publish/report-schemas.ts';
import { chainLine, endLines, Waits } from '../../../local/start/file-lines.ts';
import type { Wait } from '../../../operations/upload-view.ts';

const facts = { upload: { key: 'a.png' }, generation: 1, assets: [], failedOutputs: [] };
const asset = (name: string) => ({ path: `/home/results/a.png/flow/${name}`, bytes: 7_700 });

const there = { receiptPath: '/home/results/a.png/receipt.json', assets: [asset('1.glb')] };

function linesOf(
  ended: object,
  files: Pick<Parameters<typeof endLines>[0], 'receiptPath' | 'assets'> = there,
  told = new Map<string, number>(),
  again?: string,
) {
  const receipt = { ...facts, ...ended } as unknown as Receipt;
  const progress = { kind: 'ended', key: 'a.png', versionId: undefined, receipt, ...files } as const;
  return endLines(progress, { since: undefined, cwd: '/home', told, again });
}

describe('the lines about the end of a file', () => {
  const failure = { code: 'flow-failed', message: 'no fox', advice: 'Feed it. A retry can help.' };

  it('are one for a success, with the place of the results', () => {
    const success = { status: 'succeeded' };
    expect(linesOf(success)).toEqual(['a.png  done: 1 asset  ./results/a.png/flow/1.glb  7.7 KB']);
    expect(linesOf(success, { ...there, assets: [asset('1.glb'), asset('2.glb')] })).toEqual([
      'a.png  done: 2 assets  ./results/a.png',
    ]);
    expect(linesOf({ ...success, failedOutputs: [{ id: 'x', code: 'y', message: 'too large' }] })).toEqual([
      'a.png  done: 1 asset  ./results/a.png/flow/1.glb  7.7 KB; 1 missing: too large',
    ]);
  });

  it('say below a failure what to do', () => {
    expect(linesOf({ status: 'failed', failure })).toEqual([
      'a.png  failed: no fox  ./results/a.png/receipt.json',
      '    Feed it. A retry can help.',
    ]);
    const failedOutputs = [{ id: 'x', code: 'undeclared-word', message: 'a word' }];
    const missing = linesOf({ status: 'failed', failure: { ...failure, message: 'No fox.' }, failedOutputs });
    expect(missing[0]).toContain('failed: No fox; 1 missing: a word');
    const helped = linesOf({ status: 'failed', failure: { ...failure, retry: 'flowdrop retry 1' } });
    expect(helped[1]).toBe('    Feed it. A retry can help. To retry: flowdrop retry 1');
    const old = { code: failure.code, message: failure.message };
    expect(linesOf({ status: 'failed', failure: old })).toHaveLength(1);
  });

  it('say of a file that gave way to a newer one that it is replaced, and nothing to do', () => {
    const message = 'A newer file was put at a.png before this stage was sent.';
    const replaced = { code: 'superseded', message, advice: 'Nothing: the newer file has a flow of its own.' };
    expect(linesOf({ status: 'failed', failure: replaced })).toEqual([
      `a.png  replaced: ${message}  ./results/a.png/receipt.json`,
    ]);
  });

  it('say what to do only once if several files fail alike', () => {
    const told = new Map<string, number>();
    const ended = { status: 'failed', failure: { ...failure, retry: 'flowdrop retry 1' } };
    const first = 'a.png  failed: no fox  ./results/a.png/receipt.json';
    expect(linesOf(ended, there, told)).toHaveLength(2);
    expect(linesOf(ended, there, told)).toEqual([
      first,
      '    To retry all that failed like this: npm run -s flowdrop -- retry --failed --code flow-failed',
    ]);
    expect(linesOf(ended, there, told)).toEqual([first]);
    expect(linesOf({ status: 'failed', failure: { ...failure, message: 'other' } }, there, told)).toHaveLength(2);
    linesOf({ status: 'succeeded' }, there, told);
    expect(linesOf(ended, there, told)[1]).toContain('To retry: flowdrop retry 1');
  });

  it('name the command that sends the file again, if the run keeps nothing of it', () => {
    const again = 'npm start -- ./a.png';
    const linesAfter = (code: string) =>
      linesOf({ status: 'failed', failure: { ...failure, code } }, there, new Map(), again).slice(1);
    expect(linesAfter('flow-failed')).toEqual([
      '    Feed it. A retry can help.',
      '    This run keeps nothing. To pay for the file again, from its first stage on: npm start -- ./a.png',
    ]);
    expect(linesAfter('upload-gone')).toEqual(['    Feed it. A retry can help.']);
  });

  it('say that a newer version has the receipt', () => {
    const given = { receiptPath: undefined, assets: [asset('1.glb'), asset('2.glb')] };
    expect(linesOf({ status: 'succeeded' }, given)).toEqual([
      'a.png  done: 2 assets  ./results/a.png/flow; the receipt is that of a newer version of the file',
    ]);
    expect(linesOf({ status: 'failed', failure }, given)[0]).toBe(
      'a.png  failed: no fox; the receipt is that of a newer version of the file',
    );
  });
});

it('the line about the end of a chain names its stages, and says of each what was not one success', () => {
  const lineOf = (status: string, stages: readonly object[]) => {
    const report = { status, stages } as unknown as ChainReport;
    return chainLine(
      { kind: 'chain', key: 'a.png', versionId: undefined, report, path: '/home/results/c.json' },
      '/home',
    );
  };
  const stage = (route: string, ...ends: string[]) => ({ route, uploads: ends.map((status) => ({ status })) });
  expect(lineOf('succeeded', [stage('pictures', 'succeeded'), stage('optimised', 'succeeded', 'succeeded')])).toBe(
    'a.png  chain done: pictures, optimised (2 uploads)  ./results/c.json',
  );
  const withheld = { route: 'sheet', status: 'withheld', why: 'An upload failed.', uploads: [] };
  const failed = [stage('pictures', 'failed'), stage('optimised', 'succeeded', 'failed', 'failed'), withheld];
  expect(lineOf('failed', failed)).toBe(
    'a.png  chain failed: pictures (failed), optimised (3 uploads, 2 failed), sheet did not begin: An upload failed.' +
      '  ./results/c.json',
  );
  const replaced = { route: 'optimised', uploads: [{ status: 'failed', failure: { code: 'superseded' } }] };
  expect(lineOf('failed', [stage('pictures', 'succeeded'), replaced, withheld])).toBe(
    'a.png  chain replaced: pictures, optimised (replaced), sheet did not begin: An upload failed.  ./results/c.json',
  );
  const broken = { route: 'pictures', uploads: [{ status: 'failed', failure: { code: 'rejected' } }] };
  expect(lineOf('failed', [broken, replaced])).toContain('chain failed: pictures (failed), optimised (replaced)');
});

describe('a wait', () => {
  const wait = { reason: 'x', message: 'create: 402: No credit left', since: '2026-01-01T10:00:00Z', before: [] };
  const until = '2026-01-01T10:02:00Z';
  const shown = (waits: Waits, key: string, more: Pick<Wait, 'ending' | 'until' | 'askedUntil'>) =>
    waits.show({
      kind: 'waiting',
      id: '0'.repeat(40),
      key,
      versionId: undefined,
      route: 'echo',
      wait: { ...wait, ...more },
    });

  it('says why, since when, when it is tried next, and what ends it sooner', () => {
    const { state, lines } = shown(new Waits(), 'a.png', { until, ending: 'retry' });
    expect(lines[0]).toMatch(/^a\.png {2}waits since 2026-01-01 \d\d:\d\d:00 \S+: create: 402: No credit left$/);
    expect(lines[1]).toMatch(/^ {4}Next try 2026-01-01 \S+ \S+\. To try now: npm run -s flowdrop -- retry a\.png$/);
    expect(state).toMatch(/^waits, next try .*: create: 402: No credit left$/);
  });

  it('says until when the service asks to wait', () => {
    const soon = new Date(Date.now() + 3_600_000).toISOString();
    const asked = shown(new Waits(), 'a.png', { askedUntil: soon, ending: 'nothing' });
    expect(asked.lines[1]).toMatch(/^ {4}The service asks to wait until \S+.*\.$/);
    expect(asked.state).toMatch(/^waits, the service asks to wait until .*: create: 402: No credit left$/);
    const both = shown(new Waits(), 'a.png', { askedUntil: soon, until: soon, ending: 'retry' });
    expect(both.lines[1]).toMatch(/The service asks to wait until .*, next try .*\. To try now: /);
    const past = shown(new Waits(), 'a.png', { askedUntil: until, ending: 'nothing' });
    expect(past.lines[1]).toBe('    It is tried every few seconds.');
  });

  it('names no command of flowdrop in a run that none reaches', () => {
    const waits = () => new Waits((key) => `npm start -- ./${key}`);
    expect(shown(waits(), 'a.png', { until, ending: 'retry' }).lines[1]).toMatch(/^ {4}Next try \S+ \S+ \S+\.$/);
    expect(shown(waits(), 'a.png', { ending: 'decide' }).lines[1]).toMatch(
      /If there is none, send it again: npm start -- \.\/a\.png$/,
    );
  });

  it('says that it goes on by itself, while the upload waits in place', () => {
    const { lines } = shown(new Waits(), 'a.png', { ending: 'nothing' });
    expect(lines[1]).toBe('    It is tried every few seconds.');
  });

  it('of a job for its inputs is told once, with its deadline, and its state says what is still missing', () => {
    const waits = new Waits();
    const of = (message: string) =>
      waits.show({
        ...{ kind: 'waiting', id: '0'.repeat(40), key: 'multi/chair/job.json', versionId: undefined },
        route: 'multi',
        wait: { ...wait, reason: 'inputs', message, until, ending: 'inputs' },
      });
    const first = of('Missing inputs: a.png, b.png.');
    expect(first.lines).toEqual([
      expect.stringMatching(/^multi\/chair\/job\.json {2}waits since .*: Missing inputs: a\.png, b\.png\.$/),
      expect.stringMatching(
        /^ {4}Fails without them 2026-01-01 \S+ \S+\. It goes on when they are in the inbox, below multi\/chair\/\.$/,
      ),
    ]);
    waits.forget('b.png');
    expect(of('Missing inputs: b.png.')).toEqual({
      state: 'waits: Missing inputs: b.png.',
      lines: [],
    });
  });

  it('that files share is told once, and again after a file went on', () => {
    const waits = new Waits();
    const linesOf = (key: string) => shown(waits, key, { until, ending: 'token' }).lines;
    expect(linesOf('a.png')[1]).toMatch(/\. Set FLOWDROP_TOKEN to a valid token, and start again\.$/);
    expect(linesOf('b.png')).toEqual([]);
    waits.forget('a.png');
    expect(linesOf('b.png')[0]).toMatch(/^b\.png {2}waits/);
  });

  it('of held files is told once for the hold, with what ends it, and again after a held file went on', () => {
    const waits = new Waits();
    const linesOf = (key: string) =>
      waits.show({
        ...{ kind: 'waiting', id: '0'.repeat(40), key, versionId: undefined, route: 'echo' },
        wait: { ...wait, reason: 'failing', message: 'The last files failed alike.', ending: 'hold' },
      });
    const { state, lines } = linesOf('a.png');
    expect(state).toBe('is held: The last files failed alike.');
    expect(lines).toEqual([
      expect.stringMatching(/^a\.png {2}is held since .*: The last files failed alike\.$/),
      '    If the route is wrong, correct it and start again. The bulk goes on after a success, or at once: npm run -s flowdrop -- resume --route echo. New files are sent as before. To stop them: npm run -s flowdrop -- pause --route echo',
    ]);
    expect(linesOf('b.png').lines).toEqual([]);
    waits.forget('other.png');
    expect(linesOf('c.png').lines).toEqual([]);
    waits.forget('b.png');
    expect(linesOf('c.png').lines).toHaveLength(2);
  });
});
