import { randomUUID } from 'node:crypto';
import * as z from 'zod/mini';
import { act, costsOf, heldFlows, listedFor, plan } from '../../operations/act.ts';
import { type Asked, type Left, type PlannedStage, viewOrReason } from '../../operations/actions.ts';
import type { Deployment } from '../../operations/deployment.ts';
import { readEntries } from '../../operations/listing.ts';
import { jsonSchema } from '../../operations/put-body.ts';
import { isUploadId } from '../../operations/stored-bytes.ts';
import { type UploadView, uploadName } from '../../operations/upload-view.ts';
import type { ActAnswer, PlannedAction } from '../api.ts';
import { invalid, notFound, PageError } from './answers.ts';
import { jsonBody } from './json-body.ts';
import type { Call } from './router.ts';

/** Time for which a plan can be carried out, in milliseconds. */
const PLAN_MAX_MS = 10 * 60_000;

/** Maximum number of plans kept. The oldest is dropped first. */
const PLANS_MAX = 100;

const UPLOADS_MAX = 10_000;

/** Uploads that are changed by one invocation. If it fails, it is unknown what became of them. */
const AT_ONCE = 100;

const planSchema = z.object({
  action: z.enum(['retry', 'again', 'approve', 'cancel', 'collect']),
  uploads: z.optional(z.array(z.string()).check(z.maxLength(UPLOADS_MAX))),
  query: z.optional(
    z.object({
      state: z.enum(['failed', 'waiting', 'undecided', 'running']),
      code: z.optional(z.string()),
      since: z.optional(
        z.string().check(z.refine((text) => !Number.isNaN(Date.parse(text)), { error: 'expected a time' })),
      ),
      route: z.optional(z.string()),
    }),
  ),
  chain: z.optional(z.string()),
  from: z.optional(z.string()),
  parameters: z.optional(jsonSchema),
});

interface Kept extends Asked {
  readonly uploads: readonly UploadView[];
  /** With `from`, in place of uploads. */
  readonly stages?: readonly PlannedStage[] | undefined;
  readonly endsAt: number;
}

const shownLeft = ({ key, why }: Left): PlannedAction['skipped'][number] => ({ name: uploadName(key), reason: why });

/** What visitors have been shown that an action would do. Nothing else is done. */
export class Plans {
  readonly #deployment: Deployment;
  readonly #kept = new Map<string, Kept>();

  constructor(deployment: Deployment) {
    this.#deployment = deployment;
  }

  /** `POST /api/plan` */
  async make({ request, signal }: Call): Promise<PlannedAction> {
    const { action, uploads: ids, query, chain, from, parameters } = await jsonBody(request, planSchema);
    if ([ids, query, chain].filter((each) => each !== undefined).length !== 1) {
      throw invalid('Name either uploads, or a query, or a chain.');
    }
    if (from !== undefined && (chain === undefined || action !== 'again')) {
      throw invalid('Only a stage of a chain is made anew from there.');
    }
    if (parameters !== undefined && action !== 'again') throw invalid('Parameters are only for what is made anew.');
    if (action === 'again' && query !== undefined) throw invalid('Name what is made anew.');
    if (chain !== undefined) return this.#ofWords({ action, from }, [chain], signal);
    if (action === 'again') return this.#ofWords({ action, parameters }, ids ?? [], signal);
    const skipped: PlannedAction['skipped'][number][] = [];
    const since = query?.since === undefined ? undefined : Date.parse(query.since);
    let uploads: UploadView[] = [];
    if (query !== undefined) {
      const listed = await listedFor({ action }, { ...query, since, limit: UPLOADS_MAX }, this.#deployment, signal);
      for (const each of listed.skipped) skipped.push(shownLeft(each));
      // The page shows undecided uploads as a state of their own.
      uploads = listed.uploads.filter(({ wait }) => query.state !== 'waiting' || wait?.reason !== 'undecided');
    }
    const named = [...new Set(ids)];
    const known = named.filter(isUploadId);
    for (const key of named) if (!isUploadId(key)) skipped.push(shownLeft({ key, why: 'there is no such upload' }));
    const entries = await readEntries(known, this.#deployment, signal);
    for (const [index, { entry, issue }] of entries.entries()) {
      const id = known[index] as string;
      const key = entry?.upload.key ?? id;
      const chosen = viewOrReason({ id, key, entry, issue }, { action }, this.#deployment);
      if (typeof chosen === 'string') skipped.push(shownLeft({ key, why: chosen }));
      else uploads.push(chosen);
    }
    return this.#planned({ action, uploads }, skipped, signal);
  }

  /** As the commands `retry`, `again` and `cancel` of these uploads. */
  async #ofWords(asked: Asked, words: readonly string[], signal: AbortSignal): Promise<PlannedAction> {
    if (!words.every(isUploadId)) throw notFound('There is no such upload.');
    const { uploads, stages, left } = await plan(asked, { words }, this.#deployment, signal);
    return this.#planned({ ...asked, uploads, stages }, left.map(shownLeft), signal);
  }

  async #planned(
    what: Omit<Kept, 'endsAt'>,
    skipped: PlannedAction['skipped'],
    signal: AbortSignal,
  ): Promise<PlannedAction> {
    const { action, uploads, stages = [] } = what;
    const changed = uploads.length + stages.reduce((sum, { begins }) => sum + begins.length, 0);
    const inDoubt = action === 'retry' ? uploads.filter(({ isInDoubt }) => isInDoubt).length : 0;
    const costs = costsOf(what, this.#deployment);
    const held = await heldFlows(what, this.#deployment, signal);
    const isAdded = (stages.length > 0 && stages.every((stage) => stage.isAdded)) || undefined;
    return { plan: this.#keep(what), costs, inDoubt, uploads: changed, isAdded, skipped, held };
  }

  #keep(what: Omit<Kept, 'endsAt'>): string {
    const id = randomUUID();
    this.#kept.set(id, { ...what, endsAt: performance.now() + PLAN_MAX_MS });
    const [oldest] = this.#kept.keys();
    if (this.#kept.size > PLANS_MAX && oldest !== undefined) this.#kept.delete(oldest);
    return id;
  }

  /**
   * `POST /api/act`. Goes on if the visitor leaves, and ends with the server.
   * @param closing aborts when the server closes.
   */
  async carryOut({ request }: Call, closing: AbortSignal): Promise<ActAnswer> {
    const { plan: id } = await jsonBody(request, z.object({ plan: z.string() }));
    const plan = this.#kept.get(id);
    this.#kept.delete(id);
    if (plan === undefined || plan.endsAt < performance.now()) {
      const message = 'This plan was carried out already, or is too old. Make a new one.';
      throw new PageError({ status: 410, code: 'plan-ended' }, message);
    }
    if (plan.stages !== undefined) return { results: await this.#act(plan, closing) };
    const results: ActAnswer['results'][number][] = [];
    for (let from = 0; from < plan.uploads.length; from += AT_ONCE) {
      const uploads = plan.uploads.slice(from, from + AT_ONCE);
      results.push(...(await this.#act({ ...plan, uploads }, closing)));
    }
    return { results };
  }

  /** An invocation that fails leaves the others alone: what they did is still told. */
  async #act(some: Omit<Kept, 'endsAt'>, signal: AbortSignal): Promise<ActAnswer['results']> {
    try {
      const acted = await act(some, this.#deployment, signal);
      return acted.map(({ id, key, result, isDone, isAborted, isInDoubt }) => {
        const notes = [
          ...(isDone ? [] : [`Nothing was done: ${result}.`]),
          ...(isAborted === false ? ['The service did not stop its flow, which runs to its end there.'] : []),
          ...(isInDoubt === true ? ['A flow of it may exist that is not known.'] : []),
        ];
        return { id, name: uploadName(key), isDone, message: notes.length === 0 ? undefined : notes.join(' ') };
      });
    } catch (error) {
      const message = `It is not known whether this was done: ${(error as Error).message}`;
      const { uploads, stages = [] } = some;
      return [...uploads, ...stages].map(({ id, key }) => ({ id, name: uploadName(key), isDone: false, message }));
    }
  }
}
