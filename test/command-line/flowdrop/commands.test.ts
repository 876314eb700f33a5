import { copyFileSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, it, vi } from 'vitest';
import { Operated, ROUTES, runFlowdrop } from '../../operations/support.ts';
import { PATIENCE } from '../../support/patience.ts';

vi.mock('../../../operations/wait.ts', () => import('../../operations/quick-wait.ts'));

const PAGE = fileURLToPath(new URL('../../../docs/commands.md', import.meta.url));
const UPDATE = 'To write the commands: npx vitest run test/command-line/flowdrop/commands.test.ts --update';
const MARK = '<!-- commands -->\n';
/** Examples with their heading. Only the help shows them, where the reader can try them. */
const EXAMPLES = /\n[^\n]+\n(?: {2}\$ .*\n?)+/g;

const help = async (...words: readonly string[]): Promise<string> => {
  const { code, output } = await runFlowdrop([...words, '--help'], { directory: '.' });
  expect(code).toBe(0);
  return output.trimEnd();
};

/** The names of all commands, in the order of the help. */
const NAMES = Array.from((await help()).matchAll(/^ {2}(\w+)(?: \S.*| {2,}\S.*)$/gm), ([, name = '']) => name).filter(
  (name, index, all) => name !== 'help' && all.indexOf(name) === index,
);

/** A command in two lines. Its help says what each word and option means, and has examples. */
const section = async (name: string): Promise<string> => {
  const [text = ''] = (await help(name)).split('\nGlobal Options:\n');
  const [, words = '', meaning = ''] = /^Usage: flowdrop \w+ \[options\](.*)\n\n((?:.+\n)+)/.exec(`${text}\n`) ?? [];
  const options = Array.from(text.matchAll(/^ {2}(--\S+(?: <\w+>)?)/gm), ([, option]) => ` [${option}]`).join('');
  return `### ${name}\n\n\`flowdrop ${name}${words}${options}\`: ${meaning.trimEnd().replaceAll('\n', ' ')}.\n`;
};

it('docs/commands.md says what the commands say, and has every command', async () => {
  expect(NAMES.length).toBeGreaterThan(3);
  const [before = ''] = readFileSync(PAGE, 'utf8').split(MARK);
  const sections = await Promise.all(NAMES.map(section));
  const program = (await help()).replace(/\nCommands:\n(?: {2}.*\n)+/, '').replaceAll(EXAMPLES, '');
  const page = `${before}${MARK}\n\`\`\`\n${program}\n\`\`\`\n\n${sections.join('\n')}`;
  await expect(page, UPDATE).toMatchFileSnapshot(PAGE);
});

describe('every example', () => {
  it('works against a running pipeline', async () => {
    const jobs = { name: 'views', input: 'file', template: 'bytes_echo', jobs: 'multiview/' } as const;
    await using operated = await Operated.start({ routes: [jobs, ...ROUTES] });
    const sample = fileURLToPath(new URL('../../../examples/robot.png', import.meta.url));
    for (const folder of ['photos', 'chair']) mkdirSync(join(operated.directory, folder));
    writeFileSync(join(operated.directory, 'chair', 'job.json'), '{"inputs":["front.png"]}');
    for (const path of ['robot.png', 'photos/castle.png', 'chair/front.png'])
      copyFileSync(sample, join(operated.directory, path));
    await operated.put('photos/robot.png', 'succeeded');
    const flowdrop = { baseUrl: 'https://flows.example.org', routes: [{ name: 'all', template: 'any' }] };
    writeFileSync(join(operated.directory, 'cdk.json'), JSON.stringify({ context: { flowdrop } }));
    const helps = await Promise.all([help(), ...NAMES.map((name) => help(name))]);
    const examples = Array.from(helps.join('\n').matchAll(/^ {2}\$ flowdrop (.*)$/gm), ([, line = '']) =>
      line.replace(/ {2,}.*$/, ''),
    );
    expect(examples.length).toBeGreaterThan(8);
    for (const line of new Set(examples)) {
      if (line.includes('--watch') || line.includes('--stack')) continue; // Endless, or of an account.
      const words = Array.from(line.matchAll(/"([^"]*)"|(\S+)/g), ([, quoted, word = '']) => quoted ?? word);
      const ran = await vi.waitFor(async () => {
        const tried = await operated.run(...words);
        // The receipt of the command before may be still under way, or the file that it had sent.
        expect(tried.errors).not.toContain('Try again in a minute');
        if (tried.code !== 0) expect(tried.output).not.toMatch(/ being sent$/m);
        return tried;
      }, PATIENCE);
      // Some have nothing to do here, as a retry of a file that succeeded, or a cancel of one that ends meanwhile. Or they
      // name a time that comes later today. None is misunderstood, and none breaks.
      const isFine =
        ran.code === 0 ||
        /nothing is done|Cancel it first|is not held|no such flow|not come yet|ended already/.test(
          ran.errors + ran.output,
        );
      expect(isFine, `flowdrop ${line}: ${ran.code}\n${ran.output}${ran.errors}`).toBe(true);
    }
  });
});
