import type { Settings } from '../../functions/settings/environment.ts';
import type { PipelineSettings } from '../../functions/settings/settings.ts';
import type { Budget } from '../../functions/uploads/budget.ts';
import type { Route } from '../../functions/uploads/route.ts';
import type { Caps } from './hold-watch.ts';
import type { Random } from './random.ts';
import { corrected, putStep, type Scenario } from './scenario.ts';
import { NEEDS } from './storm-needs.ts';
import { CUSTOMER, firstNameOf } from './storm-routes.ts';
import { MINUTE, SECOND } from './timeline.ts';
import type { World } from './world.ts';

/** Share of storms in which uploads are held. */
const SHARE = 0.35;

/** Number of steps above which a storm has no holds: they would make it too long. */
const STEPS_MAX = 16;

/** Ends of days: also of days with 23 and 25 hours, and of one at whose end the clocks change. */
const MIDNIGHTS = [
  ['UTC', Date.UTC(2030, 0, 2)],
  ['Europe/Berlin', Date.UTC(2030, 2, 30, 23)],
  ['Europe/Berlin', Date.UTC(2030, 2, 31, 22)],
  ['Europe/Berlin', Date.UTC(2030, 9, 27, 23)],
  ['America/Havana', Date.UTC(2030, 2, 10, 5)],
] as const;

/** Number of files of a customer whose files are bad. After twenty of them their route is failing. */
const BAD_COUNT = 40;

/** The folder of this customer. */
const BAD_FOLDER = 'bad-customer';

/** A cap that nothing reaches. */
const CAP_AFTER = 1_000;

/** What holds uploads in a storm. Times are in milliseconds from its beginning. */
export interface StormHolds {
  readonly timezone: string;
  /** When the world begins. A day ends while its storm lasts. */
  readonly startsAt: number;
  readonly caps: readonly Caps[];
  readonly pauses: readonly { readonly at: number; readonly until: number; readonly route?: string | undefined }[];
  /**
   * A customer all of whose files are bad for some minutes. Then the service rejects every creation, and the operator
   * retries what has failed by then.
   */
  readonly badCustomer: { readonly from: number; readonly to: number; readonly route: string } | undefined;
}

/** A storm with budgets, pauses and a customer whose files are bad. What it draws comes from random numbers of its own. */
export function withHolds(storm: Scenario, random: Random, beforeMs: number): Scenario {
  const { focus } = storm.faultPlan;
  const isNeeded = focus !== undefined && NEEDS[focus.call]?.areHeld === true;
  if (storm.steps.length > STEPS_MAX || (!random.chance(SHARE) && !isNeeded)) return storm;
  // Twenty files of this customer must have failed, and come again, while the service still rejects them.
  const isBad = random.chance(0.4);
  const chaosMs = storm.chaosMs + (isBad ? 12 : 4) * MINUTE;
  const [timezone, midnight] = random.pick(MIDNIGHTS);
  const startsAt = midnight - beforeMs - random.int(MINUTE, chaosMs - MINUTE);
  const names = ['echo', 'two', ...(storm.routes.some(({ name }) => name === 'jobs') ? ['jobs'] : [])];
  const bad = { from: 0.1 * chaosMs, to: random.pick([0.7, 0.9]) * chaosMs, route: random.pick(['echo', 'two']) };
  const badCustomer = isBad ? bad : undefined;
  // A file that waits for its budget is not rejected.
  const isSpare = isBad && random.chance(0.9);
  // Without a budget, nothing is written before a request.
  const isCapped = !isSpare && random.chance(0.65);
  const [first, ...later] = [0, ...random.some([0.3, 0.5, 0.7], 0.5)].map((share) =>
    capsOf(random, isSpare ? [] : names, isCapped, share * chaosMs),
  );
  const holds: StormHolds = {
    ...{ timezone, startsAt },
    caps: [first as Caps, ...later],
    pauses: random.some([0.1, 0.4, 0.6], isBad ? 0.1 : 0.4).map((share) => ({
      at: share * chaosMs,
      until: (share + random.pick([0.05, 0.2, 0.5])) * chaosMs,
      route: random.pick([undefined, ...names]),
    })),
    badCustomer,
  };
  // Keys that are put once, so that no newer file takes their places, and a few for the route whose template is misspelt.
  const own = [...Array(random.int(2, 6)).keys()].map((n) => {
    const folder = random.pick(['echo', 'two']);
    // Customers have folders of their own.
    return `${folder}/${n % 3 === 2 ? `${CUSTOMER}/` : ''}held${n}.bin`;
  });
  const misspelt = [...Array(random.pick([0, 0, 3])).keys()].map((n) => `bad/held${n}.bin`);
  const steps = [...own, ...misspelt].map((key) =>
    putStep(random.int(0, chaosMs / 2), key, `${key} ${random.hex(20)}`),
  );
  for (let n = 0; badCustomer !== undefined && n < BAD_COUNT; n += 1) {
    const key = `${badCustomer.route}/${BAD_FOLDER}/${n}.bin`;
    steps.push(putStep(badCustomer.from + random.int(0, MINUTE), key, `${key} ${random.hex(20)}`));
  }
  return {
    ...storm,
    ...withCaps(storm, holds.caps[0] as Caps, timezone),
    areRetried: storm.areRetried || badCustomer !== undefined,
    steps: [...storm.steps, ...steps].sort((a, b) => a.at - b.at),
    chaosMs,
    holds,
  };
}

const capsOf = (random: Random, names: readonly string[], isCapped: boolean, at: number): Caps => ({
  at,
  names,
  pipeline: isCapped ? random.pick([1, 2, 3, 5]) : undefined,
  routes: Object.fromEntries(random.some(names, 0.4).map((name) => [name, random.int(0, 3)])),
});

/** Settings and routes with these caps. */
function withCaps(
  { settings, routes }: { readonly settings: PipelineSettings; readonly routes: readonly Route[] },
  caps: Caps,
  timezone: string,
): Pick<Scenario, 'settings' | 'routes'> {
  const budget = (flows: number | undefined): Budget | undefined =>
    flows === undefined ? undefined : { flows, per: 'day', timezone };
  return {
    settings: { ...settings, budget: budget(caps.pipeline) ?? 'unlimited' },
    routes: routes.map((route) => ({ ...route, budget: budget(caps.routes[firstNameOf(route.name)]) })),
  };
}

/** Schedules what the operator and the service do. @param start when the storm begins, in milliseconds since the epoch. */
export function scheduleHolds(world: World, start: number, end: number): void {
  const { timeline, scenario, invocations, holdWatch } = world;
  if (scenario.holds === undefined || holdWatch === undefined) return;
  const [first, ...later] = scenario.holds.caps;
  holdWatch.caps.push({ ...(first as Caps), at: 0, names: scenario.routes.map(({ name }) => name) });
  for (const caps of later) timeline.schedule(start + caps.at, () => deployCaps(world, caps));
  for (const { at, until, route } of scenario.holds.pauses) {
    timeline.schedule(start + at, () => void invocations.startCollect({ hold: { action: 'pause', route } }));
    timeline.schedule(start + until, () => void invocations.startCollect({ hold: { action: 'resume', route } }));
  }
  const { badCustomer } = scenario.holds;
  if (badCustomer === undefined) return;
  world.repeat({ min: 30 * SECOND, max: 2 * MINUTE }, Math.min(end, start + badCustomer.to), () => retryBulk(world));
  world.repeat({ min: MINUTE, max: 9 * MINUTE }, end, () => {
    for (const route of failingRoutes(world)) void invocations.startCollect({ hold: { action: 'resume', route } });
  });
}

/** Retries all files of the bad customer that have failed. From 21 on they are a bulk. */
async function retryBulk(world: World): Promise<void> {
  const failed = (await world.entries()).filter(
    ({ state, upload }) => state === 'failed' && upload.key.includes(`/${BAD_FOLDER}/`),
  );
  if (failed.length <= 20) return;
  world.trace(`the operator: retry ${failed.length} files`);
  void world.invocations.startCollect({ retry: failed.map(({ upload }) => upload.id) });
}

/** Deploys caps, or other routes with the caps that there are. */
export function deployCaps(world: World, caps = world.holdWatch?.caps.at(-1), present = world.settings.routes): void {
  const { timezone = 'UTC' } = world.scenario.holds ?? {};
  if (caps === undefined) return;
  const deployed = { ...caps, at: world.timeline.now(), names: present.map(({ name }) => name) };
  world.trace(`the operator: deploy the caps ${JSON.stringify(deployed)}`);
  world.holdWatch?.caps.push(deployed);
  const { settings, routes } = withCaps({ settings: world.settings, routes: present }, caps, timezone);
  world.settings = { ...world.settings, ...settings, routes } satisfies Settings;
  world.observed.routings.push(routes);
  world.processes.replaceAll();
}

const failingRoutes = ({ holdWatch }: World): readonly string[] =>
  Object.entries(holdWatch?.state.routes ?? {}).flatMap(([name, { failing }]) => (failing === undefined ? [] : [name]));

/** True if the service rejects every creation now. */
export function isRejecting({ scenario, timeline, isHealing, stormStart }: World): boolean {
  const at = timeline.now() - stormStart;
  const { from = 0, to = 0 } = scenario.holds?.badCustomer ?? {};
  return !isHealing && from <= at && at < to;
}

/** Nothing but a pause is a reason to hold uploads any more: the caps are high, and the routes are right. */
export function endHolds(world: World): void {
  const { holdWatch, observed } = world;
  if (holdWatch === undefined) return;
  world.settings = { ...world.settings, routes: corrected(world.settings.routes) };
  observed.deployedAt.set('route', world.timeline.now());
  const routes = Object.fromEntries(world.settings.routes.map(({ name }) => [firstNameOf(name), CAP_AFTER]));
  deployCaps(world, { at: 0, names: [], pipeline: CAP_AFTER, routes });
}

/**
 * The operator ends each pause, and has the bulk of each failing route go on. A pause may take effect late, after its end:
 * the invocation that writes it can be frozen for minutes.
 */
export async function releaseHeld(world: World): Promise<void> {
  const { holdWatch, invocations } = world;
  if (holdWatch === undefined) return;
  const { pipeline, routes } = holdWatch.state;
  const scopes = [[undefined, pipeline] as const, ...Object.entries(routes)];
  for (const [route, { paused, failing }] of scopes) {
    if ((paused ?? failing) !== undefined) await invocations.collect({ hold: { action: 'resume', route } });
  }
}
