/*
 * Makes the clock of a process coarse: it shows whole seconds only. Whatever happens within a second then has the same
 * time, as on a machine that is fast enough. A test that takes one of two such things for the newer fails.
 *
 *   NODE_OPTIONS="--require $PWD/test/support/coarse-time.cjs" npm test
 */
'use strict';

const FineDate = Date;
const now = () => Math.floor(FineDate.now() / 1_000) * 1_000;

globalThis.Date = new Proxy(FineDate, {
  construct(target, args, newTarget) {
    return Reflect.construct(target, args.length === 0 ? [now()] : args, newTarget);
  },
  apply: () => new FineDate(now()).toString(),
  get: (target, name) => (name === 'now' ? now : Reflect.get(target, name)),
});
