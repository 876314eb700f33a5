// Programs that use it are bundled, and the stand-in for node:fs in a bundle has less.
const { existsSync, readFileSync } = process.getBuiltinModule('node:fs');

/**
 * The largest resident set of this process so far, in KiB. On Linux, `maxRSS` may be that of the process that this one
 * was forked from.
 */
export function peakKib(): number {
  const status = '/proc/self/status';
  if (!existsSync(status)) return process.resourceUsage().maxRSS;
  return Number(/VmHWM:\s*(\d+)/.exec(readFileSync(status, 'utf8'))?.[1]);
}
