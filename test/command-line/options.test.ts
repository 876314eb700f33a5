import { describe, expect, it } from 'vitest';
import { parseOptions, UsageError, wholeNumber } from '../../command-line/options.ts';

const SYNTAX = {
  command: 'npm run paint',
  options: {
    colour: { type: 'string', default: 'red' },
    frame: { type: 'boolean', default: true },
    help: { type: 'boolean', short: 'h' },
    json: { type: 'boolean' },
  },
  allowNegative: true,
} as const;

const parse = (args: string[], env: NodeJS.ProcessEnv = {}) => parseOptions(SYNTAX, { args, env }).values;

describe('the options of a command', () => {
  it('have their values and defaults', () => {
    expect(parse([])).toEqual({ colour: 'red', frame: true });
    expect(parse(['--colour', 'blue', '--no-frame', '-h'])).toEqual({ colour: 'blue', frame: false, help: true });
    expect(parse(['--colour=-1'])).toMatchObject({ colour: '-1' });
  });

  it.each([
    [['--color', 'blue'], 'There is no option --color. Did you mean --colour?'],
    [['--no-fram'], 'There is no option --no-fram. Did you mean --no-frame?'],
    [['-x'], 'There is no option -x'],
    [['--colour'], '--colour needs a value'],
    [['--colour', '--json'], '--colour needs a value'],
    [['--json=1'], '--json takes no value'],
    [['wall'], '"wall" is one argument too many'],
    [[''], 'An argument or the value of an option is empty. Was a variable not set?'],
  ])('are refused in a sentence: %j', (args, sentence) => {
    expect(() => parse(args)).toThrow(new UsageError(sentence));
  });

  it.each([
    ['--servce', 'service'],
    ['--sevrice', 'service'],
    ['--Service', 'service'],
    ['--result', 'results'],
    ['--res', 'results'],
    ['--skipcheck', 'skip-check'],
    ['--hlep', 'help'],
    ['--verbose', undefined],
    ['-x', undefined],
  ])('are guessed if they are mistyped: %s', (mistyped, name) => {
    const options = Object.fromEntries(
      ['inbox', 'results', 'service', 'skip-check', 'help'].map((each) => [each, { type: 'boolean' }] as const),
    );
    const guess = name === undefined ? '' : `. Did you mean --${name}?`;
    expect(() => parseOptions({ command: 'npm start', options }, { args: [mistyped], env: {} })).toThrow(
      new UsageError(`There is no option ${mistyped}${guess}`),
    );
  });

  it('that npm swallowed are named, but not those that npm has itself', () => {
    expect(() => parse(['blue'], { npm_config_colour: 'true' })).toThrow('npm run paint -- --colour blue');
    expect(() => parse([], { npm_config_frame: '' })).toThrow('npm run paint -- --no-frame');
    expect(parse([], { npm_config_json: 'true' })).toEqual({ colour: 'red', frame: true });
  });

  it('that are whole numbers are checked', () => {
    expect([wholeNumber('seeds', '0'), wholeNumber('times', '2', 1)]).toEqual([0, 2]);
    for (const text of ['-1', '1.5', 'many'])
      expect(() => wholeNumber('seeds', text)).toThrow(`--seeds needs a whole number, not ${text}`);
    expect(() => wholeNumber('times', '0', 1)).toThrow('--times needs a whole number from 1 on, not 0');
  });
});
