import type { Json } from '../functions/base/json.ts';
import type { TerminalState } from '../functions/ledger/terminal-states.ts';
import type { Receipt } from '../functions/publish/report-schemas.ts';
import type { HeldFlows } from '../operations/act.ts';
import type { Action } from '../operations/actions.ts';
import type { AliasView, Shown } from '../operations/alias.ts';
import type { Branch } from '../operations/chain-tree.ts';
import type { ChainView } from '../operations/chains.ts';
import type { Diagnosis } from '../operations/checks.ts';
import type { Generation } from '../operations/compare.ts';
import type { ExpectedCosts } from '../operations/cost-texts.ts';
import type { RecentCosts } from '../operations/costs.ts';
import type { HoldChange } from '../operations/holds.ts';
import type { ListedState } from '../operations/list.ts';
import type { ShownState } from '../operations/shown-state.ts';
import type { PipelineStatus } from '../operations/status.ts';
import type { OfferedTemplate } from '../operations/templates.ts';
import type { UploadView, Wait } from '../operations/upload-view.ts';

/**
 * What the page's server (`page/server/`) and its app (`page/app/`) say to each other. Types only: both halves import
 * them, and nothing of this file runs. All paths are below `/api`, all bodies are JSON, all times are in ISO 8601.
 * Every text that comes from a service or from a file name is plain text, and must be shown as text.
 */

/**
 * What a proof says, by HMAC-SHA-256 with the key of the page, in base64url.
 *
 * - `server <nonce> <port>`: the server at this port has the key. The page asks for it before each of its requests.
 * - `page`: the page has the key. In {@link ProofHeader}.
 * - `GET <path>`: the server gave this address to the page. In {@link ProofParameter} of its query.
 */
export type ProofSubject = `server ${string} ${string | number}` | 'page' | `GET ${string}`;

/** Header of the proof `page`, which opens the whole API. */
export type ProofHeader = 'x-flowdrop-proof';

/** Member of the query with a proof that opens one address, for what the browser loads without a header. */
export type ProofParameter = 'proof';

/**
 * `GET /api/proof?nonce=`, for everybody: the proofs `server` of all keys that open the page. A nonce has 22 to 64
 * characters of base64url.
 */
export interface ServerProof {
  readonly proofs: readonly string[];
}

/** `POST /api/enter`, with the proof `page` of any key that opens the page: the key of this run of the server. */
export interface EnterAnswer {
  readonly key: string;
}

/** Body of every answer that is an error. `message` is a sentence for a person. */
export interface ApiError {
  readonly error: { readonly code: ErrorCode; readonly message: string };
}

export type ErrorCode =
  /** 401: no proof, or the wrong one. */
  | 'no-access'
  /** 403: another site. */
  | 'forbidden'
  /** 404: no such address, upload or asset. */
  | 'not-found'
  /** 405 */
  | 'wrong-method'
  /** 400: the message names what was expected. */
  | 'invalid'
  /** 409: the state of the upload or the configuration does not allow it. */
  | 'not-possible'
  /** 410: the plan was used, or is older than ten minutes. */
  | 'plan-ended'
  /** 411: a file needs a Content-Length. */
  | 'length-required'
  /** 413: a body of JSON is too large. */
  | 'too-large'
  /** 416: the range is outside of the object. */
  | 'invalid-range'
  /** 421: the wrong `Host`. */
  | 'wrong-host'
  /** 502: AWS or the collecting function answered with an error, which the message quotes. */
  | 'failed'
  /** 503: the service lists no templates, too many pages are open, or the server stops or cannot connect. */
  | 'unavailable';

/** `GET /api/about` */
export interface About {
  /** For a person: `the local run`, `stack flowdrop in eu-central-1`. */
  readonly deployment: string;
  readonly pipeline: string;
  readonly isLocal: boolean;
  /** Address of the events, with a query. */
  readonly eventsUrl: string;
  readonly inbox: { readonly bucket: string; readonly prefix: string };
  readonly resultsBucket: string;
  readonly resultsPrefix: string;
  /** Empty if they are not known. */
  readonly routes: readonly AboutRoute[];
  readonly areRoutesKnown: boolean;
  /** True if a route lets a file replace its template and parameters. */
  readonly canOverride: boolean;
  /** Maximum size of an input, in bytes. A larger file fails in the pipeline. */
  readonly inputBytesMax: number;
}

export interface AboutRoute {
  readonly name: string;
  /** Name of the route whose assets it takes. Absent if it takes files. */
  readonly after?: string | undefined;
  readonly input: 'file' | 'text';
  readonly template: string;
  readonly parameters?: Json | undefined;
  /** What one flow of it costs, and those that come after it. */
  readonly costs: ExpectedCosts;
  /** True if a file may replace template and parameters. */
  readonly isOverridable: boolean;
  /** The prefix below which each `job.json` is a job. */
  readonly jobs?: string | undefined;
  readonly prefixes?: readonly string[] | undefined;
  readonly suffixes?: readonly string[] | undefined;
  readonly mediaTypes?: readonly string[] | undefined;
}

/** `GET /api/status`, and the data of the event `status`. */
export type Status = PipelineStatus;

/** `GET /api/costs`: what the flows cost, by route, as `flowdrop costs` tells it. Days are in UTC. */
export type Costs = RecentCosts;
export type { CostRow } from '../operations/costs.ts';

/** See `shownState` in `operations/shown-state.ts`. */
export type RowState = ShownState;

/**
 * One upload of the list, and the data of the event `upload`: some members of an upload, as `docs/json.schema.json` has
 * it. The list is sorted by `arrivedAt`, newest first.
 */
export interface UploadRow
  extends Pick<UploadView, 'id' | 'key' | 'bytes' | 'mediaType' | 'route' | 'state' | 'arrivedAt' | 'endedAt'> {
  readonly wait?: Pick<Wait, 'reason' | 'message' | 'until' | 'askedUntil'> | undefined;
  readonly obstacle?: UploadView['obstacle'];
  readonly failure?: Pick<NonNullable<UploadView['failure']>, 'code' | 'message'> | undefined;
  /** Number of assets that are stored. */
  readonly assetCount: number;
  /** The first file of its chain, if it belongs to a later stage. */
  readonly first?: ChainView['first'] | undefined;
  /** How the chain stands that it begins. Absent if it begins none. */
  readonly chain?: ChainView['state'] | undefined;
  readonly thumbnail?: Thumbnail | undefined;
}

/** Paths of what the list can show in a small picture: the first of each among the results and the inputs. */
export interface Thumbnail {
  /** The picture of a model is made when it is opened. */
  readonly model?: string | undefined;
  readonly picture?: string | undefined;
}

/** `GET /api/uploads?state=&name=&before=&limit=`. `name` is a part of the key, in any case. */
export interface UploadsPage {
  readonly uploads: readonly UploadRow[];
  /** Opaque: `before` of the next page. Absent on the last page. */
  readonly next?: string | undefined;
  /** Uploads that pass the filter. */
  readonly total: number;
  /** Uploads by state that pass `name`, whatever `state` is. */
  readonly counts: Readonly<Record<RowState, number>>;
  /**
   * False while the server still reads older uploads at its start. An event `reset` comes when it has read them all.
   */
  readonly isComplete: boolean;
  /** Uploads that came to the inbox before this time are listed only if they are under way or failed lately. */
  readonly since: string;
  /** Entries of the ledger that cannot be read. */
  readonly unreadable: number;
  /** The last event that the list contains. `GET /api/events?after=` this goes on from there. */
  readonly lastEvent: string;
}

/** `GET /api/uploads/:id` */
export interface UploadDetail {
  readonly row: UploadRow;
  readonly upload: UploadView;
  /**
   * False if another file is at its key by now, or none is. Its input may be gone then. For a later stage: at the key of
   * the first file.
   */
  readonly isCurrent: boolean;
  /** What ends its wait sooner, in a sentence. */
  readonly sooner?: string | undefined;
  /** The inputs and the assets, with the addresses of their bytes. A later stage has assets as its inputs. */
  readonly inputs: readonly StoredObject[];
  readonly assets: readonly (StoredObject & { readonly id: string; readonly sha256: string })[];
  /** Oldest first. */
  readonly timeline: readonly Step[];
  /** Present once the upload has ended, and the receipt is this upload's. */
  readonly receipt?: Receipt | undefined;
  /** Shell commands that do the same without the page. */
  readonly command: {
    /** Fetches the results of the upload. */
    readonly get: string;
    /** Shows the upload. */
    readonly status: string;
  };
  /** The actions that the state of the upload allows. */
  readonly actions: readonly Action[];
  /** True if its route lets `again` take other parameters. */
  readonly takesOthers: boolean;
  /** Copies of the newest success at keys that stay. Absent if its route makes none. */
  readonly alias?: (Omit<AliasView, 'files'> & { readonly objects: readonly StoredObject[] }) | undefined;
  /**
   * Earlier generations, the latest last: with what each was made, and its first results. In a later stage, those of other
   * uploads too: each generation of the parent begins another.
   */
  readonly previous: readonly (Generation & {
    readonly objects: readonly StoredObject[];
    /** Only of another upload: the generation that it was made from, such as `robot.png, generation 1`. */
    readonly from?: string | undefined;
  })[];
}

/** `GET /api/uploads/:id/chain`: the chain that an upload belongs to. */
export interface ChainAnswer {
  /** Absent if it is part of none. While the first file is under way, nothing of its chain has begun. */
  readonly chain?: ShownChain | undefined;
}

export interface ShownChain extends Pick<ChainView, 'first' | 'state' | 'endedAt' | 'generation' | 'isSample'> {
  /** The routes of its stages. The first one is that of the file. */
  readonly stages: readonly string[];
  /** Its lines, that of the first file with all others below it. */
  readonly tree: Branch;
}

/** `GET /api/uploads/:id/request` */
export type { SentRequest } from '../operations/explain.ts';

/** `GET /api/uploads/:id/service`: the service is asked, unless it was asked a few seconds ago. */
export type { ServiceAnswer } from '../operations/service-answer.ts';

/** An object of the inbox or of the results. */
export interface StoredObject {
  readonly key: string;
  readonly bytes: number;
  readonly mediaType: string;
  /** Path of its bytes on this server. `?download` saves them. */
  readonly url: string;
  /** True if the bytes are served with their media type. False: only as a download. */
  readonly isShown: boolean;
}

export type StepKind =
  | 'put'
  | 'arrived'
  | 'waiting'
  | 'claimed'
  | 'running'
  | 'outputs'
  | TerminalState
  | 'replaced'
  | 'receipt';

/** One line of the timeline. */
export interface Step {
  readonly kind: StepKind;
  /** Absent if the ledger does not hold the time. */
  readonly at?: string | undefined;
  /** Plain text, at most a few sentences. May quote the service. */
  readonly text: string;
  /** Claim: latest time at which it ends. Wait: time at which the next attempt is due. */
  readonly until?: string | undefined;
  /** True for the step at which the upload is. */
  readonly isNow?: boolean | undefined;
}

/**
 * `GET /api/events?after=<id>`, an event stream. Each event has an id. `Last-Event-ID` goes before `after`. Without
 * both, the stream begins with the next event.
 */
export interface Events {
  readonly upload: UploadRow;
  readonly removed: { readonly id: string };
  readonly status: Status;
  /** The server cannot go on from there: it does not know the event, or the gap is too long. Fetch the list again. */
  readonly reset: { readonly reason: string };
}

/** `POST /api/route` */
export interface RouteRequest {
  /** At most 10,000. Files of one job belong into one request. */
  readonly files: readonly {
    readonly key: string;
    readonly bytes: number;
    readonly mediaType?: string | undefined;
    /** The content of a job file, unless it is too large. */
    readonly job?: string | undefined;
  }[];
}

/** The answer is a list of these, in the order of the files. */
export interface RoutedFile {
  /** As it would stand in the inbox, with its prefix. The folder of a job goes below the prefix of its route. */
  readonly key: string;
  /** Keys of the jobs that the file is an input of. Absent from an upload of its own. */
  readonly inputOf?: readonly string[] | undefined;
  /** Names of the inputs of a job that are neither among the files nor in the inbox. Present in every job. */
  readonly missing?: readonly string[] | undefined;
  /** A sentence for each of them that is easily taken for a file that is there. */
  readonly hints?: readonly string[] | undefined;
  /** Absent if no route takes the file, or the routes are not known. */
  readonly route?: string | undefined;
  readonly template?: string | undefined;
  /** What will be paid for if the file is sent. Absent from an input, unless a job of the inbox begins with it. */
  readonly costs?: ExpectedCosts | undefined;
  /** Why the file would not become a flow. Absent if all is well. */
  readonly reason?: string | undefined;
}

/**
 * `PUT /api/files/<key in encodeURIComponent>`: the body is the file. Headers: `content-type`, and `content-length`,
 * which a browser sets; `x-flowdrop-template` and `x-flowdrop-parameters` (JSON), both in encodeURIComponent.
 */
export interface PutFile {
  readonly id: string;
  readonly key: string;
}

/** `POST /api/plan`. Changes nothing. */
export interface PlanRequest {
  readonly action: Action;
  /** Either ids, at most 10,000, or `query`, or `chain`. */
  readonly uploads?: readonly string[] | undefined;
  readonly query?: PlanQuery | undefined;
  /** Id of the first file of a chain: a retry is for all that failed in it, a cancellation for all that waits or runs. */
  readonly chain?: string | undefined;
  /** Only for `again` of a chain: the route of the stage that is made anew, with those after it. */
  readonly from?: string | undefined;
  /** Only for `again` of uploads: in place of what the route says. */
  readonly parameters?: Json | undefined;
}

/** All uploads in a state. */
export interface PlanQuery {
  readonly state: ListedState;
  readonly code?: string | undefined;
  /** ISO 8601. */
  readonly since?: string | undefined;
  readonly route?: string | undefined;
}

export interface PlannedAction {
  /** For `POST /api/act`. Used once, and for ten minutes. */
  readonly plan: string;
  /** Flows that will be paid for. */
  readonly costs: ExpectedCosts;
  /** Uploads that may have a flow already, and may be paid for twice. */
  readonly inDoubt: number;
  /** Uploads that will be changed. */
  readonly uploads: number;
  /** Only for `again` with `from`: true if no chain has the stage yet, so that it begins. */
  readonly isAdded?: true | undefined;
  /** By their names: see `uploadName`. */
  readonly skipped: readonly { readonly name: string; readonly reason: string }[];
  /** What holds flows of a retry. */
  readonly held: readonly HeldFlows[];
}

/** `POST /api/act` */
export interface ActRequest {
  readonly plan: string;
}

export interface ActAnswer {
  readonly results: readonly {
    readonly id: string;
    readonly name: string;
    readonly isDone: boolean;
    readonly message?: string | undefined;
  }[];
}

/**
 * `POST /api/hold`, with a {@link HoldRequest}: pauses the pipeline or a route, ends that, or lets one file of a held
 * route through. 409 if there is nothing to end, or no such route.
 */
export type HoldAnswer = HoldChange;
export type { BudgetView, HoldRequest, HoldView } from '../operations/holds.ts';
export type { Wait } from '../operations/upload-view.ts';

/** `POST /api/alias`: has the aliases of an upload's file show one of its flows. 409 if they cannot. */
export interface AliasRequest {
  readonly upload: string;
  readonly flow: string;
}
export type AliasAnswer = Shown;

/** `GET /api/templates`. 503 if the service does not list them. */
export type Templates = readonly OfferedTemplate[];

/** `POST /api/doctor` */
export type DoctorAnswer = Diagnosis;
