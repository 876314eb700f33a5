import type { IncomingMessage, ServerResponse } from 'node:http';
import type { StoredAsset } from '../../functions/ledger/entry.ts';
import { aliasOf } from '../../operations/alias.ts';
import { chainTree } from '../../operations/chain-tree.ts';
import { chainOf } from '../../operations/chains.ts';
import { FunctionFailedError } from '../../operations/collecting-function.ts';
import { expectedCosts, recentCosts } from '../../operations/costs.ts';
import { type Deployment, issueOfConnection } from '../../operations/deployment.ts';
import { doctor } from '../../operations/doctor.ts';
import { sentRequest } from '../../operations/explain.ts';
import { ServiceQuestions } from '../../operations/service-answer.ts';
import { pipelineStatus } from '../../operations/status.ts';
import { entryOf, inputsOf, openInput, openResult } from '../../operations/stored-bytes.ts';
import { TemplatesUnknownError, templates } from '../../operations/templates.ts';
import { shownState } from '../../operations/upload-view.ts';
import type { About, ChainAnswer, ServiceAnswer, UploadsPage } from '../api.ts';
import type { Access } from './access.ts';
import { changeAlias } from './alias-changes.ts';
import { invalid, notFound, PageError, sendError } from './answers.ts';
import { sendBytes } from './bytes.ts';
import { detailOf } from './detail.ts';
import { sendEvents } from './events.ts';
import { Feed, type FeedPace } from './feed.ts';
import { putFile, routeFiles } from './files.ts';
import { changeHolds } from './hold-changes.ts';
import { olderRow } from './older.ts';
import { Plans } from './plans.ts';
import { type Call, Router } from './router.ts';
import { countsOf, ROW_STATES } from './rows.ts';

const LIMIT_DEFAULT = 200;
const LIMIT_MAX = 1_000;

export interface PageOptions {
  /** How often the feed looks at the ledger. Default: by the kind of the deployment. */
  readonly pace?: FeedPace | undefined;
}

interface OpenOptions extends PageOptions {
  /** Makes the addresses of bytes and events. */
  readonly access: Access;
  /** Aborts when the server closes. */
  readonly signal: AbortSignal;
  readonly onClose?: (() => void) | undefined;
}

/** Answers requests to the API of visitors that have access. */
export class Page {
  readonly #deployment: Deployment;
  readonly #options: OpenOptions;
  readonly #feed: Feed;
  readonly #plans: Plans;
  readonly #questions: ServiceQuestions;
  readonly #router: Router;
  readonly #underWay = new Set<Promise<void>>();

  constructor(deployment: Deployment, options: OpenOptions) {
    this.#deployment = deployment;
    this.#options = options;
    this.#feed = new Feed(deployment, options.signal, options.pace);
    this.#plans = new Plans(deployment);
    const { signal } = options;
    this.#questions = new ServiceQuestions(deployment, signal);
    this.#router = new Router({
      'GET /api/about': () => aboutOf(deployment, options.access),
      'GET /api/status': (call) => pipelineStatus(deployment, call.signal),
      'GET /api/costs': (call) => recentCosts(deployment, call.signal),
      'GET /api/uploads': (call) => this.#list(call),
      'GET /api/uploads/:id': (call) => this.#detail(call),
      'GET /api/uploads/:id/chain': (call) => this.#chain(call),
      'GET /api/uploads/:id/request': async (call) => sentRequest(await this.#entry(call), deployment, call.signal),
      'GET /api/uploads/:id/service': (call) => this.#service(call),
      'GET /api/uploads/:id/inputs/:index': (call) => this.#input(call),
      'GET /api/uploads/:id/previous/:index': (call) => this.#previous(call),
      'GET /api/uploads/:id/assets/:index': (call) => this.#asset(call),
      'GET /api/uploads/:id/aliases/:index': (call) => this.#alias(call),
      'GET /api/events': (call) => sendEvents(call, this.#feed),
      'GET /api/templates': (call) => templates(deployment, call.signal),
      'POST /api/route': (call) => routeFiles(call, deployment),
      'PUT /api/files/:key': (call) => putFile(call, deployment),
      'POST /api/plan': (call) => this.#plans.make(call),
      'POST /api/act': (call) => this.#plans.carryOut(call, signal),
      'POST /api/alias': (call) => changeAlias(call, deployment),
      'POST /api/hold': (call) => this.#feed.during(changeHolds(call, deployment)),
      'POST /api/doctor': (call) => doctor(deployment, call.signal),
    });
  }

  /** Answers a request in any case. */
  answer(request: IncomingMessage, response: ServerResponse): void {
    const answered = this.#answer(request, response).finally(() => this.#underWay.delete(answered));
    this.#underWay.add(answered);
  }

  async #answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const gone = new AbortController();
    response.once('close', () => gone.abort());
    const signal = AbortSignal.any([gone.signal, this.#options.signal]);
    try {
      await this.#router.answer(request, response, signal);
    } catch (error) {
      // Drop the body. If the connection were closed with unread data, the client could lose the answer.
      request.resume();
      if (response.headersSent) response.destroy();
      else sendError(response, this.#issueOf(error));
    }
  }

  /** Resolves when what was under way has ended: the parts of a file that was cut off are deleted by then. */
  async close(): Promise<void> {
    await Promise.all(this.#underWay);
    this.#options.onClose?.();
  }

  async #list({ query, signal }: Call): Promise<UploadsPage> {
    const state = ROW_STATES.find((each) => each === query.get('state'));
    if (query.has('state') && state === undefined) throw invalid(`The state must be one of ${ROW_STATES.join(', ')}.`);
    const limit = Number(query.get('limit') ?? LIMIT_DEFAULT);
    if (!Number.isInteger(limit) || limit < 1 || limit > LIMIT_MAX) {
      throw invalid(`The limit must be a whole number from 1 to ${LIMIT_MAX}.`);
    }
    const name = query.get('name') ?? '';
    const page = await this.#feed.list({ state, name, before: query.get('before') ?? undefined, limit });
    if (name === '' || Object.values(page.counts).some((count) => count > 0)) return page;
    const older = await olderRow(name, this.#deployment, signal);
    if (older === undefined) return page;
    const uploads = state === undefined || shownState(older) === state ? [older] : [];
    return { ...page, uploads, total: uploads.length, counts: countsOf([older]) };
  }

  async #detail(call: Call) {
    const { access } = this.#options;
    return detailOf(await this.#entry(call), this.#deployment, { access, signal: call.signal });
  }

  async #chain(call: Call): Promise<ChainAnswer> {
    const { upload } = await this.#entry(call);
    const chain = await chainOf(upload, this.#deployment, call.signal);
    if (chain === undefined) return {};
    const { first, state, endedAt, generation, isSample, stages } = chain;
    const facts = { first, state, endedAt, generation, isSample };
    return { chain: { ...facts, stages: stages.map(({ route }) => route), tree: chainTree(chain) } };
  }

  async #service(call: Call): Promise<ServiceAnswer> {
    const { upload, state } = await this.#entry(call);
    return this.#questions.ask(upload.id, state);
  }

  async #input(call: Call): Promise<void> {
    const input = indexed(inputsOf(await this.#entry(call)), call);
    if (input === undefined) throw notFound('The upload has no such input.');
    const { key, bytes, mediaType } = input;
    const open = (range: Parameters<typeof openInput>[1]) => openInput(input, range, this.#deployment, call.signal);
    await sendBytes(call, { key, bytes, mediaType, open });
  }

  async #asset(call: Call): Promise<void> {
    const entry = await this.#entry(call);
    return this.#result(indexed('assets' in entry ? entry.assets : undefined, call), call);
  }

  /** A result of an earlier generation, counted over all of these. */
  async #previous(call: Call): Promise<void> {
    const { previous = [] } = await this.#entry(call);
    return this.#result(
      indexed(
        previous.flatMap(({ assets }) => assets),
        call,
      ),
      call,
    );
  }

  async #alias(call: Call): Promise<void> {
    const alias = await aliasOf(await this.#entry(call), this.#deployment, call.signal);
    return this.#result(indexed(alias?.files, call), call);
  }

  async #result(asset: Pick<StoredAsset, 'key' | 'bytes' | 'mediaType'> | undefined, call: Call): Promise<void> {
    if (asset === undefined) throw notFound('The upload has no such result.');
    const { key, bytes, mediaType } = asset;
    const open = (range: Parameters<typeof openResult>[1]) => openResult(key, range, this.#deployment, call.signal);
    await sendBytes(call, { key, bytes, mediaType, open });
  }

  async #entry({ params: { id = '' }, signal }: Call) {
    const { entry, issue } = (await entryOf(id, this.#deployment, signal)) ?? {};
    if (entry === undefined) throw notFound(issue?.message ?? 'There is no such upload.');
    return entry;
  }

  /** Every error as a sentence. */
  #issueOf(error: unknown): PageError {
    if (error instanceof PageError) return error;
    const message = error instanceof Error ? error.message : String(error);
    const unavailable = { status: 503, code: 'unavailable' } as const;
    if (this.#options.signal.aborted) return new PageError(unavailable, 'This server has stopped.');
    if (error instanceof TemplatesUnknownError) {
      return new PageError(unavailable, message);
    }
    const failed = { status: 502, code: 'failed' } as const;
    const known = issueOfConnection(error);
    if (known !== undefined) return new PageError(failed, known);
    if (error instanceof FunctionFailedError) {
      return new PageError(failed, `The collecting function failed: ${error.errorType}: ${message}`);
    }
    return new PageError(failed, `That did not work: ${message || (error as Error).name}`);
  }
}

/** What the index in the address stands for. */
function indexed<T>(list: readonly T[] | undefined, { params: { index = '' } }: Call): T | undefined {
  return /^\d{1,6}$/.test(index) ? list?.[Number(index)] : undefined;
}

function aboutOf({ name, isLocal, settings, areRoutesKnown }: Deployment, access: Access): About {
  const { pipeline, inboxBucket, inboxPrefix, resultsBucket, resultsPrefix, routes, inputBytesMax } = settings;
  return {
    ...{ deployment: name, pipeline, isLocal, areRoutesKnown, resultsBucket, resultsPrefix, inputBytesMax },
    inbox: { bucket: inboxBucket, prefix: inboxPrefix },
    eventsUrl: access.proven('/api/events'),
    canOverride: routes.some(({ overrides }) => overrides === true),
    routes: routes.map(({ overrides, additional: _, ...route }) => ({
      ...route,
      costs: expectedCosts(routes, [{ route: route.name }]),
      isOverridable: overrides === true,
    })),
  };
}
