import * as z from 'zod/mini';
import { compareMembers, matching, quotingItself, strictObject } from '../functions/base/validation.ts';
import { isHttpsOrLoopback } from '../functions/flow-service/addresses.ts';
import { EVENT_NAMES, NOTIFY_MAX } from '../functions/publish/completion-event.ts';
import { withoutSecrets } from '../functions/settings/service-address.ts';

/** Who is told of events. This file needs no CDK: the local run reads it too. */

/** The header that has the secret of a target. */
export const SECRET_HEADER = 'Authorization';

/** The header that a target without a secret gets, because EventBridge demands one. It names the pipeline. */
export const PIPELINE_HEADER = 'X-Flowdrop-Pipeline';

/** @see https://docs.aws.amazon.com/eventbridge/latest/APIReference/API_CreateApiDestination.html */
const URL_CHARACTERS_MAX = 2_048;

/** Returns what is wrong with the address of a target, if anything is. It quotes no secret. */
function issueOfUrl(value: string): string | undefined {
  const url = URL.parse(value);
  if (url === null || !isHttpsOrLoopback(url)) {
    return `expected https://..., or in a local run http:// on a loopback host, got ${withoutSecrets(value)}`;
  }
  if (url.username !== '' || url.password !== '') return 'expected no user name or password: use headerSecret';
  if (url.hash !== '') return 'expected a URL without a fragment';
  // EventBridge would take an asterisk for a parameter of the path.
  if (!/^[\w().~!';/?:@&=+$,%-]+$/.test(value)) return 'expected a URL in ASCII without *, percent-encoded';
  if (value.length > URL_CHARACTERS_MAX) return `expected at most ${URL_CHARACTERS_MAX} characters`;
  return undefined;
}

const address = z
  .string({ error: 'expected a URL such as https://hooks.example.com/flows' })
  .check(quotingItself(issueOfUrl));

const eventName = z.enum(EVENT_NAMES, { error: `expected one of ${EVENT_NAMES.join(', ')}` });

/** @internal */
export const notifyTargetSchema = strictObject({
  /** The events that it is told of. Default: all. */
  events: z.optional(
    z
      .array(eventName, { error: 'expected a list of events' })
      .check(z.minLength(1, { error: 'expected at least one event, or no events for all' })),
  ),
  /** The https address to which each event is posted as JSON. */
  url: z.optional(address),
  /** Whole ARN of the secret whose value the header `Authorization` gets. It is read when the target is deployed. */
  headerSecret: z.optional(
    matching(
      'the whole ARN of a secret, with its suffix',
      /^arn:[\w-]+:secretsmanager:[\w-]+:\d{12}:secret:[\w/+=.@-]{1,512}-[A-Za-z0-9]{6}$/,
    ),
  ),
  /** ARN of a standard queue that gets each event. */
  queueArn: z.optional(
    matching('the ARN of a standard queue (not .fifo)', /^arn:[\w-]+:sqs:[\w-]+:\d{12}:[\w-]{1,80}$/),
  ),
}).check(
  compareMembers((target, isSound, refuse) => {
    if (!isSound('url') || !isSound('queueArn')) return;
    if ((target.url === undefined) === (target.queueArn === undefined)) refuse([], 'expected either url or queueArn');
    else if (target.url === undefined && target.headerSecret !== undefined)
      refuse([], 'expected headerSecret only with url');
  }),
);

/** @internal */
export const notifySchema = z
  .array(notifyTargetSchema, { error: 'expected a list of targets' })
  .check(z.maxLength(NOTIFY_MAX, { error: `expected at most ${NOTIFY_MAX} targets` }));

/** Who is told of which events: an address, or a queue. */
export interface NotifyTarget {
  /**
   * The events that it is told of, such as `Flow Failed`.
   * @default - all
   */
  readonly events?: readonly string[] | undefined;
  /** The https address to which each event is posted as JSON. */
  readonly url?: string | undefined;
  /**
   * Whole ARN of the secret whose value the header `Authorization` gets. It is read when the target is deployed.
   * @default - none. The header `X-Flowdrop-Pipeline` names the pipeline.
   */
  readonly headerSecret?: string | undefined;
  /** ARN of a standard queue that gets each event. */
  readonly queueArn?: string | undefined;
}
