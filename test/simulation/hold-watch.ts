import type { Entry } from '../../functions/ledger/entry.ts';
import type { Settings } from '../../functions/settings/environment.ts';
import type { Route } from '../../functions/uploads/route.ts';
import { demand } from './demand.ts';
import type { tagInRequest } from './flow-tag.ts';
import type { Lambda } from './lambda.ts';
import type { CompletedCall } from './s3.ts';
import type { Timeline } from './timeline.ts';

/** A hold, as it is in the ledger. */
interface HeldScope {
  readonly paused?: object;
  readonly spent?: { readonly period: string; readonly flows: number };
  readonly earlier?: readonly { readonly flows: number }[];
  readonly failing?: { readonly since: number; readonly triedAt?: number };
}

/** What the ledger says of the holds, as far as the invariants look at it. */
export interface HoldState {
  readonly pipeline: HeldScope;
  readonly routes: Readonly<Record<string, HeldScope>>;
  /** By day, and then by route, prefix and currency. */
  readonly costs: Readonly<Record<string, Readonly<Record<string, { readonly flows: number }>>>>;
}

/** A request for a flow of which the service got the beginning. */
export interface Post {
  /** When the process began with it. */
  readonly at: number;
  /** `<upload id>.<generation>`. */
  readonly key: string;
  /** The route that the entry named then. */
  readonly route: string;
  /** True if it was submitted in bulk. */
  readonly isLate: boolean;
  /** True if it was in doubt whether it had a flow. */
  readonly isInDoubt: boolean;
  readonly upload: Entry['upload'] | undefined;
  /** The routes that its process knows. */
  readonly routes: readonly Route[];
  /** True if its process knows a cap for it. */
  readonly isCapped: boolean;
  readonly lambda: Lambda;
  endedAt?: number;
  status?: number;
}

/** Caps that were deployed. */
export interface Caps {
  readonly at: number;
  /** The names of the routes that were deployed. */
  readonly names: readonly string[];
  /** Undefined if there is none. */
  readonly pipeline: number | undefined;
  readonly routes: Readonly<Record<string, number>>;
}

/** Watches what S3 is told of the holds, and which requests for flows the service gets meanwhile. */
export class HoldWatch {
  readonly states: { readonly at: number; readonly state: HoldState }[] = [];
  readonly posts: Post[] = [];
  readonly caps: Caps[] = [];
  readonly #timeline: Timeline;
  readonly #entries = new Map<string, Pick<Post, 'route' | 'isLate' | 'isInDoubt' | 'upload'>>();
  readonly #settings = new WeakMap<Lambda, Pick<Settings, 'routes' | 'budget'>>();

  constructor(timeline: Timeline) {
    this.#timeline = timeline;
  }

  /** The present state. */
  get state(): HoldState {
    return this.states.at(-1)?.state ?? { pipeline: {}, routes: {}, costs: {} };
  }

  /** True for a request of a route whose last files failed alike. */
  isOfFailingRoute(post: Post | undefined): boolean {
    return post !== undefined && this.state.routes[post.route]?.failing !== undefined;
  }

  /** A process starts, with the configuration of that moment. */
  starts(lambda: Lambda, settings: Pick<Settings, 'routes' | 'budget'>): void {
    this.#settings.set(lambda, settings);
  }

  /** A call of S3 took effect. */
  sees({ kind, body }: CompletedCall): void {
    if (kind === 'entry.create' || kind === 'entry.replace') {
      const entry = JSON.parse(body) as Entry;
      const { upload, route, late = false } = entry;
      const isHeld = entry.state === 'waiting' && entry.reason === 'failing';
      demand(late || !isHeld, 'a live file is held because others failed', entry);
      this.#entries.set(upload.id, {
        ...{ upload, route: route.name, isLate: late, isInDoubt: entry.doubt !== undefined },
      });
    } else if (kind === 'hold.put') {
      this.states.push({ at: this.#timeline.now(), state: JSON.parse(body) as HoldState });
    }
  }

  /** A process sends the first bytes of a request for a flow of an upload. */
  seesPost(lambda: Lambda, { upload, generation }: NonNullable<ReturnType<typeof tagInRequest>>, at: number): Post {
    const unknown = { route: '', isLate: false, isInDoubt: true, upload: undefined };
    const { routes = [], budget } = this.#settings.get(lambda) ?? {};
    const known = this.#entries.get(upload) ?? unknown;
    const own = routes.find(({ name }) => name === known.route);
    const isCapped = budget !== 'unlimited' || own?.budget !== undefined;
    const post: Post = { ...{ at, key: `${upload}.${generation}`, lambda, routes, isCapped }, ...known };
    this.posts.push(post);
    lambda.onDeath(() => {
      post.endedAt ??= this.#timeline.now();
    });
    return post;
  }
}
