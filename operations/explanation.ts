import type { PlannedStage } from '../functions/uploads/chain-routes.ts';
import type { HoldView } from './holds.ts';

/** What Flowdrop would do with a file, and what the service would get. */
export interface Explanation {
  readonly key: string;
  readonly bytes: number;
  readonly mediaType: string;
  /** True if it is a file of this machine, and not an object in the inbox. */
  readonly isFile: boolean;
  readonly routes: readonly { readonly name: string; readonly takesIt: boolean; readonly why: string }[];
  /** Why it would not be sent, although a route may want it. */
  readonly issue: string | undefined;
  /** Present if the file is a job file that can be used. */
  readonly job?: { readonly inputs: readonly JobInputView[]; readonly deadlineSeconds: number } | undefined;
  /** The body of the request for a flow, with its data shortened. Undefined if nothing would be sent. */
  readonly request: object | undefined;
  /** Method and path of that request, below the address of the service. */
  readonly sentTo?: string | undefined;
  /** Its headers. In place of the token is `[token]`. */
  readonly headers?: Readonly<Record<string, string>> | undefined;
  /** The requests of the later stages of its chain, without the assets that are their inputs. */
  readonly stages?: readonly ExplainedStage[] | undefined;
  /** What holds its route, or the pipeline. */
  readonly hold?: HoldView | undefined;
}

/** A later stage of a chain, and its request for each asset, or for all of them. */
export interface ExplainedStage extends PlannedStage, Required<Pick<Explanation, 'sentTo' | 'headers'>> {
  readonly request: object;
}

/** An input of a job, as it is now. */
export interface JobInputView {
  /** Undefined if the input is a text of the job file. */
  readonly key?: string | undefined;
  readonly text?: string | undefined;
  readonly isOptional: boolean;
  /** Undefined if the file is not there. */
  readonly bytes?: number | undefined;
  /** Why it could not be sent, or which file is easily taken for it. */
  readonly issue?: string | undefined;
}
