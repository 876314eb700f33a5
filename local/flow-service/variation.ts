/** `served`, or the status of the answer if the service lacks the operation. */
export type Served = 'served' | 404 | 405 | 501;

/**
 * The ways in which services of this interface may differ: what the specification does not show, or what its sources
 * describe differently. The first value of each type is the default, the documented behaviour of the public service. A
 * change while the service runs applies from the next request. Any other answer is a `Fault`.
 */
export interface Variation {
  /** Path of the outputs listing: `/flows/{id}/outputs` or `/{id}/outputs`. */
  outputsPath: 'flows' | 'root';
  /** The state of a flow. After the flow's end, it may be forgotten (404), or lead on to the outputs (303). */
  getFlow: Served | 'forgotten' | 'leading-on';
  listFlows: Served;
  /** `PATCH /flows/{id}`, which aborts. */
  changeFlow: Served;

  flowIdName: 'flow_id' | 'id';
  assetIdName: 'asset_id' | 'id';
  /** Form of the outputs listing: an object with `outputs`, or a bare list. */
  outputsShape: 'object' | 'bare';
  /**
   * The answer to an outputs listing before the flow's terminal state: 409, 404, an empty listing, or a listing in
   * which all outputs are `pending`. A download before that is answered with 409, or with 404 for `not-found`.
   */
  earlyOutputs: 'conflict' | 'not-found' | 'empty' | 'pending';

  /**
   * Paging of `GET /flows`: by number (`?page=`, from 1), by a `next` cursor that hides an offset (`?cursor=`), by the
   * next page's URL in a `Link` header, which names the last flow, or `none`: all flows in one answer.
   */
  paging: 'page' | 'cursor' | 'link' | 'none';
  /** Flows on a page, and the maximum for a client's `page_size`. */
  pageSize: number;
  order: 'descending' | 'ascending';
  /** Delay until a new flow appears in the listing, in milliseconds. */
  listingDelayMs: number;

  /**
   * For how long a key in `Idempotency-Key` is honoured, in hours: a second request with it gets the answer of the first,
   * also if that was a refusal; 409 while the first is not answered; and 422 if its body is another.
   */
  idempotencyHours: number;

  /** Form of an asset: its bytes, or `{"data":"data:<type>;base64,..."}`. */
  assetForm: 'raw' | 'json';
  /** How an asset's answer ends: by its `Content-Length` or by chunks. */
  assetLength: 'content-length' | 'chunked';
}

export const DEFAULT_VARIATION: Readonly<Variation> = {
  outputsPath: 'flows',
  getFlow: 'served',
  listFlows: 'served',
  changeFlow: 'served',
  flowIdName: 'flow_id',
  assetIdName: 'asset_id',
  outputsShape: 'object',
  earlyOutputs: 'conflict',
  paging: 'page',
  pageSize: 50,
  order: 'descending',
  listingDelayMs: 0,
  idempotencyHours: 0,
  assetForm: 'raw',
  assetLength: 'content-length',
};
