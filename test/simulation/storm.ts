import type { Settings } from '../../functions/settings/environment.ts';
import { damageEntry, damageSweepState, expireEntry } from './lost-entries.ts';
import { NEXT_INBOX, NEXT_PIPELINE, START } from './names.ts';
import { approveSome, cancelOne, makeOneAnew, retryOneFailure } from './operator.ts';
import { type Change, corrected, LOWERED_SETTINGS, type Step } from './scenario.ts';
import { scheduleHolds } from './storm-holds.ts';
import { scheduleRouteChanges } from './storm-routes.ts';
import { MINUTE, SECOND } from './timeline.ts';
import type { World } from './world.ts';

/** The tag of a flow of another pipeline. */
const OTHER_TAG = { pipeline: 'another', upload: 'a'.repeat(40), generation: 1 };

/** Does one step to the inbox. */
export async function doStep(world: World, step: Step): Promise<void> {
  const { inspector, inbox } = world;
  world.trace(`the uploader: ${step.kind} ${step.key}`);
  if (step.kind === 'delete') {
    await inspector.delete(inbox, step.key);
    return;
  }
  if (step.kind === 'copy') {
    const object = await inspector.open(inbox, step.key);
    if (object === undefined || object.body.byteLength === 0) return;
    world.copying.add(step.key);
    await inspector.put(inbox, step.key, object.body, object.mediaType ?? '');
    world.copying.delete(step.key);
    return;
  }
  const multipart = world.multipartUploads.get(step);
  if (multipart?.bucket !== inbox) {
    await inspector.put(inbox, step.key, step.content, step.mediaType);
    return;
  }
  world.completing.set(step.key, multipart.begunAt);
  await inspector.completeMultipart(multipart, step.content);
  world.completing.delete(step.key);
}

/** Runs everything at once: uploads, both functions, faults, new tokens, deployments, people and neighbours. */
export async function runStorm(world: World): Promise<void> {
  const { timeline, scenario, invocations, faultPlan } = world;
  // The first tick of a deployment marks its first day. A storm does not test it.
  await invocations.collect({});
  // The deployment began by the clock of a process, which may be ahead by 140 seconds.
  await world.pass(3 * MINUTE);
  await beginMultipartUploads(world);
  faultPlan.isClear = false;
  for (const step of scenario.steps) {
    timeline.schedule(world.stormStart + step.at, () => void doStep(world, step));
  }
  scheduleRotations(world);
  const { busyGapMs } = scenario;
  if (busyGapMs !== undefined) {
    world.repeat(busyGapMs, world.stormStart + scenario.chaosMs, () => void world.neighbours.createFlow(OTHER_TAG));
  }
  await timeline.run(() => false, world.stormStart - 1);
  const end = timeline.now() + scenario.chaosMs;
  scheduleInvocations(world, end);
  scheduleTroubles(world);
  scheduleHolds(world, world.stormStart, end);
  scheduleRouteChanges(world, world.stormStart);
  if (scenario.areRetried) world.repeat({ min: 2 * MINUTE, max: 8 * MINUTE }, end, () => retryOneFailure(world));
  if (scenario.isOperated) {
    world.repeat({ min: MINUTE, max: 6 * MINUTE }, end, () => cancelOne(world));
    world.repeat({ min: MINUTE, max: 6 * MINUTE }, end, () => makeOneAnew(world));
  }
  if (scenario.isReviewed) world.repeat({ min: 20 * SECOND, max: 3 * MINUTE }, end, () => approveSome(world));
  if (scenario.hasNeighbours) {
    world.repeat({ min: 30 * SECOND, max: 5 * MINUTE }, end, () => world.neighbours.create());
  }
  await timeline.run(() => false, end);
}

/** Begins the multipart uploads of all steps, a second apart. Their objects appear later, with these dates. */
export async function beginMultipartUploads(world: World): Promise<void> {
  const { scenario, inspector, inbox, multipartUploads } = world;
  for (const step of scenario.steps) {
    if (step.kind !== 'put' || !step.isMultipart) continue;
    const begun = await inspector.beginMultipart(inbox, step.key, step.mediaType);
    multipartUploads.set(step, { ...begun, begunAt: world.timeline.now() });
    await world.pass(SECOND);
  }
}

/** New tokens. The secret gets each one a while before or after the service does. */
function scheduleRotations(world: World): void {
  const { timeline, scenario, observed, service, randoms } = world;
  for (const { at, secretAt } of scenario.rotations) {
    const token = `fake-token-${randoms.ids.hex(16)}`;
    timeline.schedule(world.stormStart + at, () => {
      if (world.isHealing) return;
      world.trace('the service takes another token');
      service.setTokens([token]);
      observed.tokens.push(token);
    });
    timeline.schedule(world.stormStart + secretAt, () => {
      if (!world.isHealing) world.secret = token;
    });
  }
}

function scheduleInvocations(world: World, end: number): void {
  const { scenario, invocations } = world;
  world.repeat({ min: SECOND, max: 20 * SECOND }, end, () => invocations.deliver());
  for (let index = 0; index < scenario.collectors; index += 1) {
    const collector = { index, of: scenario.collectors };
    world.repeat(scenario.tickGapMs, end, () => void invocations.startCollect({ collector }));
  }
  if (scenario.isLossy) world.repeat(scenario.sweepGapMs, end, () => void invocations.startCollect({ sweep: {} }));
}

function scheduleTroubles(world: World): void {
  const { timeline, scenario, invocations } = world;
  for (const { at, what } of scenario.changes) timeline.schedule(world.stormStart + at, () => deploy(world, what));
  // An entry is kept for longer than a key counts.
  const areKeysHonoured = (scenario.variation.idempotencyHours ?? 0) > 0;
  for (const at of areKeysHonoured ? [] : scenario.expiriesAt) {
    timeline.schedule(world.stormStart + at, () => void expireEntry(world));
  }
  if (scenario.damageAt !== undefined) {
    timeline.schedule(world.stormStart + scenario.damageAt, () => void damageEntry(world));
  }
  if (scenario.sweepDamageAt !== undefined) {
    timeline.schedule(world.stormStart + scenario.sweepDamageAt, () => void damageSweepState(world));
  }
  for (const at of scenario.backfillsAt) {
    const since = new Date(START).toISOString();
    timeline.schedule(world.stormStart + at, () => void invocations.startCollect({ sweep: { since } }));
  }
}

/** Deploys both functions with other settings. */
function deploy(world: World, what: Change): void {
  world.trace(`the operator: deploy ${what}`);
  world.observed.deployedAt.set(what, world.timeline.now());
  const change: Record<Change, Partial<Settings>> = {
    route: { routes: corrected(world.settings.routes) },
    pipeline: { pipeline: NEXT_PIPELINE },
    inbox: { inboxBucket: NEXT_INBOX },
    limits: LOWERED_SETTINGS,
  };
  world.settings = { ...world.settings, ...change[what] };
  world.processes.replaceAll();
}
