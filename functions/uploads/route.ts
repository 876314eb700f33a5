import type { Json, JsonObject } from '../base/json.ts';
import type { Budget, Price } from './budget.ts';
import type { Conditions } from './route-conditions.ts';

/** A route: uploads that meet its conditions become flows of its template. */
export interface Route extends Conditions {
  /** Its name in receipts and logs, unique among the routes. */
  readonly name: string;
  /** How the flow receives the upload: as a file (a data URI), or as the text itself. */
  readonly input: 'file' | 'text';
  /** Id or name of the template at the service. */
  readonly template: string;
  /** Parameters of the flow: an object, given to the service unchanged. */
  readonly parameters?: Json | undefined;
  /** `additional` of the flow, given to the service unchanged. Flowdrop adds its own tag. */
  readonly additional?: JsonObject | undefined;
  /**
   * True if an object's own metadata may replace template, parameters and additional, and a job file parameters.
   * Default: false.
   */
  readonly overrides?: boolean | undefined;
  /**
   * The deployment's name for what the route says, such as a Git commit or the version of a model. Receipts tell it. A
   * new name makes a new revision, even if the route says the same.
   */
  readonly revision?: string | undefined;
  /**
   * Name of the route before: this one is a later stage of a chain, and works on the assets of that one. Without it, the
   * route takes uploads of the inbox.
   */
  readonly after?: string | undefined;
  /**
   * In a later stage: `each` asset starts a flow of its own, or `all` assets of the stage before start one. Default
   * `each`.
   */
  readonly inputs?: 'each' | 'all' | undefined;
  /** With `inputs: "all"`: `partial` starts the flow although outputs of the stage before failed. */
  readonly allow?: 'partial' | undefined;
  /**
   * A prefix that the route owns. Each `job.json` below it is a job, whose inputs are files in its folder. No other
   * route takes a file there. Without it, each file is an upload of its own.
   */
  readonly jobs?: string | undefined;
  /** How long a job waits for its inputs, in seconds. Default: an hour. */
  readonly deadlineSeconds?: number | undefined;
  /**
   * Seconds for which the key of a file must not change before it is sent. An earlier version is not sent then. Default:
   * 0.
   */
  readonly settleSeconds?: number | undefined;
  /**
   * True in a later stage that is sent only after the operator has looked at its inputs and approved them. Default: false.
   */
  readonly review?: boolean | undefined;
  /** Hours after which such an upload is cancelled if nobody has approved it. Default: never. */
  readonly reviewHours?: number | undefined;
  /**
   * Media types of what the template makes, such as `model/*`. A file of any other type is no asset. Without it, an asset
   * may be anything but a document that stands in place of one, such as HTML, JSON or XML.
   */
  readonly makes?: readonly string[] | undefined;
  /**
   * What becomes of a file of the inbox once its whole chain has ended: `tag` sets its tag `flowdrop`, and `delete` deletes
   * it after a success. Default: nothing.
   */
  readonly afterSuccess?: 'tag' | 'delete' | undefined;
  /**
   * True if a flow is deleted at the service some minutes after its upload, and the whole chain, has ended as succeeded.
   * Default: false.
   */
  readonly deleteFlow?: boolean | undefined;
  /**
   * The key below `resultsPrefix` to which the newest success of a file is copied, such as `models/{folder}/{name}{ext}`.
   * Default: none.
   */
  readonly alias?: string | undefined;
  /** What one flow of the route costs. */
  readonly price?: Price | undefined;
  /** Cap on the flows of the route. What it has no room for waits. */
  readonly budget?: Budget | undefined;
  /**
   * The setting `skippedNames`, which a configuration does not write into its routes. Default: `SKIPPED_NAMES`.
   * @internal
   */
  readonly skippedNames?: readonly string[] | undefined;
}

/** A route for jobs. */
export type JobsRoute = Route & { readonly jobs: string };

/** What is wrong with a member of one route, beside its other members or other routes. */
export interface RouteIssue {
  readonly index: number;
  readonly member: keyof Route;
  readonly message: string;
  /** Sentences that follow the value in a message. */
  readonly hint?: string;
}
