import type { CallKind, Fault } from './faults.ts';
import type { Lambda } from './lambda.ts';
import { MINUTE, SECOND } from './timeline.ts';
import type { World } from './world.ts';

/** Number of times that the SDK tries a call. */
const ATTEMPTS_MAX = 3;

/** The IAM action and resource of each call of another AWS service than S3. */
const PERMISSIONS = {
  'secret.read': { action: 'secretsmanager:GetSecretValue', resource: 'token' },
  'queue.send': { action: 'sqs:SendMessage', resource: 'uploads' },
  'queue.ask': { action: 'sqs:GetQueueAttributes', resource: 'uploads' },
  'event.send': { action: 'events:PutEvents', resource: 'default' },
} as const;

interface AwsCall<T> {
  readonly kind: CallKind & keyof typeof PERMISSIONS;
  readonly signal: AbortSignal | undefined;
  /** Takes effect, and returns the answer. */
  readonly effect: () => T;
}

/** Calls Secrets Manager, SQS or EventBridge from a process. These calls have neither body nor stream. */
export async function callAws<T>(world: World, lambda: Lambda, call: AwsCall<T>): Promise<T> {
  const { kind, signal } = call;
  const { faultPlan, randoms } = world;
  world.onCall?.({ by: lambda.function, ...PERMISSIONS[kind] });
  let fault: Fault | undefined;
  for (let attempt = 1; ; attempt += 1) {
    if (fault === undefined || !faultPlan.stays()) fault = world.poisonOf(kind, {}) ?? faultPlan.draw(kind);
    try {
      return await tryOnce(world, lambda, call, fault);
    } catch (error) {
      if (attempt === ATTEMPTS_MAX || signal?.aborted) throw error;
    }
    await lambda.clock.sleep(randoms.network.int(20, SECOND));
  }
}

function tryOnce<T>(
  world: World,
  lambda: Lambda,
  { kind, signal, effect }: AwsCall<T>,
  fault: Fault | undefined,
): Promise<T> {
  const { timeline } = world;
  const random = world.randoms.network;
  return new Promise((resolve, reject) => {
    if (lambda.isDead) return;
    world.noteCall(lambda, kind, fault);
    if (fault === 'killed before') return world.kill(lambda);
    const fail = (why: string) => reject(Object.assign(new Error(`Simulated: ${why}`), { name: why }));
    const onAbort = (): void => fail('AbortError');
    if (signal?.aborted) return onAbort();
    const forget = lambda.whenAborted(signal, onAbort);
    const answer = (how: () => void): void => {
      lambda.after(random.int(1, 30), 'answer', () => {
        forget();
        how();
      });
    };
    const travelMs = fault === 'slow' ? random.int(5_000, 50_000) : random.int(1, 40);
    const isLate = fault === 'late';
    if (isLate) lambda.after(MINUTE, 'timer', () => fail('TimeoutError'));
    timeline.schedule(timeline.now() + travelMs + (isLate ? random.int(MINUTE, 4 * MINUTE) : 0), () => {
      if (fault === 'refused' || fault === 'throttled') return answer(() => fail(fault));
      const result = effect();
      if (fault === 'killed after') return world.kill(lambda);
      answer(() => (fault === 'lost' ? fail('ECONNRESET') : resolve(result)));
    });
  });
}
