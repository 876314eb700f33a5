import { expect, it, vi } from 'vitest';
import { PATIENCE } from '../support/patience.ts';
import { Operated } from './support.ts';

// An upload of a later stage that waits to be approved, as the command shows and approves it.

const ROUTES = [
  { name: 'preview', input: 'file', template: 'bytes_echo' },
  { name: 'refined', after: 'preview', input: 'file', template: 'bytes_echo', review: true },
].map((route) => ({ ...route, price: { amount: 0.8, currency: 'EUR' } })) as never;

it('flowdrop shows what waits to be approved, says what it costs, and has it sent', async () => {
  const operated = await Operated.forTest({ routes: ROUTES, standIn: { flowMs: 0 }, tickIntervalMs: 100 });
  const none = await operated.run('approve', '--all', '--yes');
  expect(none).toMatchObject({ code: 0, output: expect.stringContaining('There is nothing to do.') });
  await operated.upload('robot.png', 'x');
  await vi.waitFor(async () => {
    const { output } = await operated.run('list', '--waiting', '--code', 'review');
    expect(output).toMatch(/robot\.png › refined .*It waits for somebody to look at its inputs/);
  }, PATIENCE);
  const { output: status } = await operated.run('status', 'robot.png › refined');
  expect(status).toMatch(/To have it sent: .* approve [0-9a-f]{40}\. To end it: .* cancel/);
  expect(status).not.toContain('next try');
  const dry = await operated.run('approve', '--all', '--route', 'refined', '--dry-run');
  expect(`${dry.output}${dry.errors}`).toMatch(/1 upload would be approved and sent, and may be paid for: .*0\.80 EUR/);
  const retried = await operated.run('retry', 'robot.png › refined', '--yes');
  expect(`${retried.output}${retried.errors}`).toContain('it waits to be approved');
  const { output } = await operated.run('approve', 'robot.png', '--yes');
  expect(output).toMatch(/approved/);
  await vi.waitFor(async () => {
    const { output: tree } = await operated.run('status', 'robot.png › refined');
    expect(tree).toContain('succeeded');
  }, PATIENCE);
});
