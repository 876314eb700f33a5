/** `served`, or the status of the answer if the service lacks the operation. */
export type Served = 'served' | 404 | 405 | 501;

/**
 * The ways in which services of this interface may differ. The first value of each type is the default: the documented
 * behaviour of the public service. A change while the service runs applies from the next request.
 */
export interface Variation {
  /** Path of the outputs listing: `/flows/{id}/outputs`, `/{id}/outputs`, or both. */
  outputsPath: 'flows' | 'root' | 'both';
  getFlow: Served;
  listFlows: Served;
  /** `PATCH /flows/{id}`: start and abort. */
  changeFlow: Served;
  deleteFlow: Served;
  /** `POST /flows/{id}/inputs`. */
  addInput: Served;
  listTemplates: Served;

  /** Status of the answer to `POST /flows`. */
  createStatus: 201 | 200 | 202;
  /** Status of the answer to a body that is not JSON. */
  invalidJsonStatus: 422 | 400;
  /** Status of the answer to a missing or invalid token. */
  wrongTokenStatus: 401 | 403;

  flowIdName: 'flow_id' | 'id';
  assetIdName: 'asset_id' | 'id';
  /** Form of the outputs listing: an object with `outputs`, or a bare list. */
  outputsShape: 'object' | 'bare';
  /** The same for flows and templates. A page with a `next` member is always an object. */
  listShape: 'object' | 'bare';
  /** True if an output has a `status`. */
  outputStatus: boolean;
  /**
   * Paging of a flow's outputs: none; by cursor (`?cursor=`, given in the body as `next`); or by number (`?page=`, from
   * 1, with the `total` in the body).
   */
  outputsPaging: 'none' | 'next' | 'total';
  /** Outputs on a page. */
  outputsPageSize: number;
  /**
   * The answer to an outputs listing before the flow's terminal state: 409, 404, an empty listing, or a listing in
   * which all outputs are `pending`. A download before that is answered with 409, or with 404 for `not-found`.
   */
  earlyOutputs: 'conflict' | 'not-found' | 'empty' | 'pending';

  /**
   * Paging of `GET /flows`: by number (`?page=`, from 1); by cursor (`?cursor=`), given in the body as `next`, which
   * names the last flow, or as `next_cursor`, which hides an offset; by the next page's URL, in the body as `next` or in
   * a `Link` header; or `none`: all flows in one answer.
   */
  paging: 'page' | 'next' | 'next_cursor' | 'next_url' | 'link' | 'none';
  /** Flows on a page, and the maximum for a client's `page_size` or `limit`. */
  pageSize: number;
  order: 'descending' | 'ascending';
  /** Delay until a new flow appears in the listing, in milliseconds. */
  listingDelayMs: number;

  /** Form of an asset: its bytes, or `{"data":"data:<type>;base64,..."}`. */
  assetForm: 'raw' | 'json';
  /** How an asset's answer ends: by its `Content-Length` or by chunks. */
  assetLength: 'content-length' | 'chunked';
  /** True if every download of an asset returns different bytes: they end in `#` and a number. */
  assetVaries: boolean;
  /** Redirects (302) the download of an asset to this URL. */
  assetRedirect: ((flowId: string, assetId: string) => string) | undefined;
  /** Adds members before `data`. One of them has a nested `data`. */
  jsonMembersBefore: boolean;
  jsonMembersAfter: boolean;
  jsonWhiteSpace: boolean;
  /** Writes slashes in strings as `\/`. */
  jsonEscapedSlashes: boolean;
  /** Writes a line break, as `\n`, after every 76 characters of base64. */
  jsonLineBreaks: boolean;
  /** Omits the `=` at the end of the base64. */
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
