import type { Deployment } from '../../operations/deployment.ts';
import { changeHold, endOfHold, holdOn, holdRequestSchema } from '../../operations/holds.ts';
import type { HoldAnswer } from '../api.ts';
import { notPossible } from './answers.ts';
import { jsonBody } from './json-body.ts';
import type { Call } from './router.ts';

/** `POST /api/hold` @throws {PageError} */
export async function changeHolds({ request, signal }: Call, deployment: Deployment): Promise<HoldAnswer> {
  const asked = await jsonBody(request, holdRequestSchema);
  const change = await changeHold(asked, deployment, signal);
  const { route } = asked;
  if (change.result === 'unknown route') throw notPossible(`There is no route ${route}.`);
  if (change.result !== 'not held') return change;
  const what = route === undefined ? 'The pipeline' : `The route ${route}`;
  const hold = route === undefined ? undefined : holdOn(change, route, { late: true });
  const instead = hold === undefined ? '' : ` ${hold.message} ${endOfHold(hold, deployment)}`;
  throw notPossible(`${what} is not paused.${instead}`);
}
