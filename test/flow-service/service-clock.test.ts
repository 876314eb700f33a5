import { expect, it } from 'vitest';
import { Pacer } from '../../functions/flow-service/pacer.ts';
import { exhaustedMs } from '../../functions/flow-service/rate-limit-headers.ts';
import { VirtualTime } from '../support/virtual-time.ts';

const answer = (status: number, headers = {}) =>
  ({ status, headers, body: (async function* () {})(), destroy() {}, sent: 'all' }) as never;

/** Answered requests a minute under a limit of 20 in 10 s, told by epoch resets of a clock that differs by `skewMs`. */
async function perMinute(skewMs: number): Promise<number> {
  const clock = new VirtualTime();
  const pacer = new Pacer(clock);
  let window = -1;
  let used = 0;
  let done = 0;
  const send = async () => {
    await clock.sleep(50);
    const now = clock.now();
    const w = Math.floor(now / 10_000);
    if (w !== window) [window, used] = [w, 0];
    const headers = {
      date: new Date(now + skewMs).toUTCString(),
      'x-ratelimit-remaining': String(Math.max(0, 20 - used - 1)),
      'x-ratelimit-reset': String(Math.ceil(((w + 1) * 10_000 + skewMs) / 1000)),
    };
    if (used >= 20) return answer(429, headers);
    used += 1;
    done += 1;
    return answer(200, headers);
  };
  await clock.during(async () => {
    const stop = new AbortController();
    const worker = async (n: number) => {
      for (let i = 0; !stop.signal.aborted; i += 1) {
        await pacer.send('other', { rank: 0, subject: `${n}-${i}` }, stop.signal, send).catch(() => clock.sleep(1_000));
      }
    };
    const workers = Array.from({ length: 16 }, (_, n) => worker(n));
    await clock.sleep(10 * 60_000);
    stop.abort(new Error('over'));
    await Promise.all(workers);
  });
  return done / 10;
}

it('a clock that is a minute ahead costs little of the allowance', async () => {
  const [same, ahead] = [await perMinute(0), await perMinute(60_000)];
  expect(ahead).toBeGreaterThan(same / 1.5);
});

it('a reset in milliseconds since the epoch is not taken for a wait of a day', () => {
  const now = Date.now();
  const headers = { 'x-ratelimit-remaining': '0', 'x-ratelimit-reset': String(now + 5_000) };
  expect(exhaustedMs({ headers }, now)).toBeLessThan(60_000);
});

it('a service clock that is a minute ahead does not stretch the windows', () => {
  const now = Date.now();
  const theirs = now + 60_000;
  const headers = {
    date: new Date(theirs).toUTCString(),
    'x-ratelimit-remaining': '0',
    'x-ratelimit-reset': String(Math.ceil(theirs / 1000) + 5),
  };
  expect(exhaustedMs({ headers }, now)).toBeLessThan(10_000);
});
