/** An operation that a service has, or the status that it answers with where it has none. */
export type Served = 'served' | 404 | 405 | 501;

/**
 * All in which services that speak this interface may differ. The first value named is the default, which is how the
 * public service is documented. What is set while the service runs holds from the next request on.
 */
export interface Variation {
  /** Where the outputs listing is: `/flows/{id}/outputs`, `/{id}/outputs`, or both. */
  outputsPath: 'flows' | 'root' | 'both';
  getFlow: Served;
  listFlows: Served;
  /** `PATCH /flows/{id}`: start and abort. */
  changeFlow: Served;
  deleteFlow: Served;
  /** `POST /flows/{id}/inputs`. */
  addInput: Served;
  listTemplates: Served;

  /** Status of an answer to `POST /flows`. */
  createStatus: 201 | 200 | 202;
  /** Status of an answer to a body that is not JSON. */
  invalidJsonStatus: 422 | 400;
  /** Status of an answer to a token that is missing or not accepted. */
  wrongTokenStatus: 401 | 403;

  flowIdName: 'flow_id' | 'id';
  assetIdName: 'asset_id' | 'id';
  /** Whether the outputs come as an object with `outputs`, or as a bare list. */
  outputsShape: 'object' | 'bare';
  /** The same for the flows and the templates. Where a page must say what follows, it is an object all the same. */
  listShape: 'object' | 'bare';
  /** Whether an output tells its `status`. */
  outputStatus: boolean;
  /**
   * How the outputs of a flow are cut into pages: not at all; by a cursor for `?cursor=`, in the body as `next`; or by
   * number (`?page=`, from 1), the body telling the `total`.
   */
  outputsPaging: 'none' | 'next' | 'total';
  /** Outputs on a page. */
  outputsPageSize: number;
  /**
   * How the outputs of a flow that is not in a terminal state are answered: 409, 404, an empty listing, or a listing
   * in which all are `pending`. Downloads of such outputs are answered with 409, or 404.
   */
  earlyOutputs: 'conflict' | 'not-found' | 'empty' | 'pending';

  /**
   * How `GET /flows` is cut into pages: by number (`?page=`, from 1); by a cursor for `?cursor=`, in the body as
   * `next` or `next_cursor`; by the next page's address, in the body as `next` or in a `Link` header; not at all, all
   * flows being in one answer; or not at all, the first page being all that one ever gets.
   */
  paging: 'page' | 'next' | 'next_cursor' | 'next_url' | 'link' | 'none' | 'first-only';
  /** Flows on a page, and the most that a client may ask for with `page_size` or `limit`. */
  pageSize: number;
  order: 'descending' | 'ascending';
  /** What the listing is in the order of: when a flow was created, or when its state changed last. */
  listSort: 'created' | 'changed';
  /** Whether the listing leaves out flows that have ended. */
  listActiveOnly: boolean;
  /** How the listing tells what was attached to a flow: as it came, not at all, or as the text of its JSON. */
  listAdditional: 'object' | 'none' | 'string';
  /** How long after its creation a flow becomes visible in the listing, in milliseconds. */
  listingDelayMs: number;

  /** Whether an asset comes as its bytes, or as `{"data":"data:<type>;base64,..."}`. */
  assetForm: 'raw' | 'json';
  /** Whether an asset's answer says how long it is, or comes chunked. */
  assetLength: 'content-length' | 'chunked';
  /** Whether every download of an asset has other bytes than the one before: they end in `#` and a number. */
  assetVaries: boolean;
  /** Where an asset is to be downloaded from instead: the answer is then 302. */
  assetRedirect: ((flowId: string, assetId: string) => string) | undefined;
  /** Other members before `data`, one of which bears a `data` of its own. */
  jsonMembersBefore: boolean;
  jsonMembersAfter: boolean;
  jsonWhiteSpace: boolean;
  /** Slashes in strings are written `\/`. */
  jsonEscapedSlashes: boolean;
  /** A line break, written `\n`, after every 76 characters of base64. */
  jsonLineBreaks: boolean;
  /** No `=` at the end of the base64. */
  jsonUnpadded: boolean;
}

export const DEFAULT_VARIATION: Readonly<Variation> = {
  outputsPath: 'flows',
  getFlow: 'served',
  listFlows: 'served',
  changeFlow: 'served',
  deleteFlow: 'served',
  addInput: 'served',
  listTemplates: 'served',
  createStatus: 201,
  invalidJsonStatus: 422,
  wrongTokenStatus: 401,
  flowIdName: 'flow_id',
  assetIdName: 'asset_id',
  outputsShape: 'object',
  listShape: 'object',
  outputStatus: true,
  outputsPaging: 'none',
  outputsPageSize: 2,
  earlyOutputs: 'conflict',
  paging: 'page',
  pageSize: 50,
  order: 'descending',
  listSort: 'created',
  listActiveOnly: false,
  listAdditional: 'object',
  listingDelayMs: 0,
  assetForm: 'raw',
  assetLength: 'content-length',
  assetVaries: false,
  assetRedirect: undefined,
  jsonMembersBefore: false,
  jsonMembersAfter: false,
  jsonWhiteSpace: false,
  jsonEscapedSlashes: false,
  jsonLineBreaks: false,
  jsonUnpadded: false,
};
