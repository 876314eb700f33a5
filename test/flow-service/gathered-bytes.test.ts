import { expect, it } from 'vitest';
import { GatheredBytes } from '../../functions/flow-service/json-answer.ts';

it('bytes that are gathered leave no garbage: what was copied and what was read is freed at once', () => {
  const gathered = new GatheredBytes(10);
  const seen: Buffer[] = [];
  for (const chunk of ['abcd', 'e', 'fghi', 'j']) {
    expect(gathered.add(Buffer.from(chunk))).toBe(true);
    seen.push(gathered.bytes);
  }
  expect(gathered.bytes.toString()).toBe('abcdefghij');
  expect(gathered.add(Buffer.from('k'))).toBe(false);
  expect(gathered.bytes.toString()).toBe('abcdefghij');
  gathered.clear();
  expect(gathered.length).toBe(0);
  expect(seen.map(({ byteLength }) => byteLength)).toEqual([0, 0, 0, 0]);
  expect(gathered.add(Buffer.from('again'))).toBe(true);
  expect(gathered.bytes.toString()).toBe('again');
});
