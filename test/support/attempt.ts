import { randomUUID } from 'node:crypto';
import type { Attempt } from '../../functions/holds/holds.ts';

/** The first attempt to send an upload of the route `r`, for which no budget applies. */
export const attemptOf = (more: Partial<Attempt>): Attempt => ({
  ...{ routeName: 'r', prefix: '', isLate: false, isResent: false, isOfRoute: true },
  isCountedBefore: false,
  ...{ nonce: randomUUID(), pipeline: undefined, route: undefined, price: undefined },
  ...more,
});
