import type { Json, JsonObject } from './json.ts';

/** Which uploads become flows of which template. A route matches where every condition that it has is met. */
export interface Route {
  readonly name: string;
  /** The key starts with one of these. Compared without regard to case, as are the next two. */
  readonly prefixes?: readonly string[];
  /** The key ends with one of these. */
  readonly suffixes?: readonly string[];
  /** The upload's media type is one of these; `image/*` stands for all of a kind. */
  readonly mediaTypes?: readonly string[];
  /** How the upload is given to the flow: as a file (a data URI) or as the text itself. */
  readonly input: 'file' | 'text';
  readonly template: string;
  readonly parameters?: Json;
  readonly additional?: JsonObject;
  /** Whether an object's own metadata may replace template, parameters and additional. Off unless said. */
  readonly overrides?: boolean;
}

/** What an entry keeps of its route, so that a later deployment does not change work under way. */
export interface RouteSnapshot {
  readonly name: string;
  readonly input: 'file' | 'text';
  readonly template: string;
  readonly parameters?: Json | undefined;
  readonly additional?: JsonObject | undefined;
}
