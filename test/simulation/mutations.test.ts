import { globSync, readFileSync } from 'node:fs';
import { stripTypeScriptTypes } from 'node:module';
import { describe, expect, it } from 'vitest';
import { SECOND_FLOW_LINES } from './invariants/flows.ts';
import { MUTATIONS, type Mutation } from './mutations.ts';
import { FUNCTIONS, PlaceError, planted, textOf } from './plant.ts';

const filesOf = ({ changes }: Mutation): readonly string[] => [...new Set(changes.map(({ file }) => file))];

describe('a mutation', () => {
  it.each(MUTATIONS)('finds its places in functions/: $name', (mutation) => {
    for (const file of filesOf(mutation)) {
      const text = textOf(mutation, file);
      const changed = planted(mutation, file, text);
      expect(changed).not.toBe(text);
      expect(() => stripTypeScriptTypes(changed)).not.toThrow(); // The mutated code parses.
    }
  });

  const change = {
    file: 'collect-outputs/collector.ts',
    in: 'Lease.take',
    replace: 'await lease.write(signal)',
    with: '',
  };
  const source = (body: string): string => `class Lease { static async take(): Promise<{ a: 1 }> { ${body} } }`;
  const one = (replace: string, instead = ''): Mutation => ({
    name: 'one',
    changes: [{ ...change, replace, with: instead }],
    seedsMax: 1,
  });

  it.each([
    ['in other white space', 'await lease.write(signal)', 'await lease\n  .write( signal );', ';'],
    [
      'among comments',
      'await lease.write(signal)',
      'await /* now */ lease.write(signal) // and then\n',
      ' // and then\n',
    ],
    ['with a trailing comma', 'write(lease, signal)', 'write(\n lease,\n signal,\n)', ''],
    // biome-ignore lint/suspicious/noTemplateCurlyInString: It is source text.
    ['with any arguments', 'write(…)', 'write({ a: f(1), b: `${")"}` }, /\\)/)', ''],
  ])('finds its code %s', (_, replace, body, left) => {
    expect(planted(one(replace), 'collect-outputs/collector.ts', source(body))).toBe(source(left));
  });

  it('can keep the code that it finds', () => {
    const changed = planted(one('write(…)', 'read(), $&'), 'collect-outputs/collector.ts', source('write(1)'));
    expect(changed).toBe(source('read(), write(1)'));
  });

  it('finds nothing in another place of the file', () => {
    const text = `${source('')} function other() { write(1); }`;
    expect(() => planted(one('write(1)'), 'collect-outputs/collector.ts', text)).toThrow(PlaceError);
  });

  it.each([
    [
      'is gone',
      'no.such(code)',
      /"one" must find this code once in Lease\.take of collect-outputs\/collector\.ts, and finds it 0 times/,
    ],
    ['is there twice', 'write()', /finds it 2 times/],
    ['is elsewhere', 'return this.#lost;', /The same code is in: Lease\.isLost of collect-outputs\/collector\.ts/],
    [
      'has its place elsewhere',
      'no.such(code)',
      /Places of that name: .*Lease\.take of collect-outputs\/collector\.ts/,
    ],
  ])('says so if its code %s', (_, replace, message) => {
    expect(() => planted(one(replace), 'collect-outputs/collector.ts', source('write(); write();'))).toThrow(message);
  });

  it('says so if its file is gone', () => {
    const gone = { ...one('write()'), changes: [{ ...change, file: 'ledger/gone.ts' }] };
    expect(() => textOf(gone, 'ledger/gone.ts')).toThrow(/once in Lease\.take of ledger\/gone\.ts/);
  });
});

describe('a log line that an invariant counts', () => {
  it.each(Object.values(SECOND_FLOW_LINES))('is written by the functions: %s', (line) => {
    const files = globSync('**/*.ts', { cwd: FUNCTIONS });
    const count = files.filter((file) => readFileSync(new URL(file, FUNCTIONS), 'utf8').includes(`'${line}`)).length;
    expect(count).toBe(1);
  });
});
