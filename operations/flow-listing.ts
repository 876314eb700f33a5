import * as z from 'zod/mini';
import { systemClock } from '../functions/base/clock.ts';
import { counted, quoted } from '../functions/base/printable.ts';
import { downloadAsset } from '../functions/flow-service/asset-download.ts';
import { createFlowService } from '../functions/flow-service/client.ts';
import { httpTransport } from '../functions/flow-service/http-transport.ts';
import { keyHonouredMs, type ListDescription } from '../functions/flow-service/service-description.ts';
import type { Transport } from '../functions/flow-service/transport.ts';
import type { FlowService, ListingSample } from '../functions/flow-service/types.ts';
import { listingAnswer } from '../functions/operator/questions.ts';
import type { Context } from '../functions/settings/context.ts';
import type { PipelineSettings } from '../functions/settings/settings.ts';
import type { Outcome } from './checks.ts';
import type { Service } from './service-check.ts';

const answerSchema = z.union([
  z.object({
    listing: z.object({
      flows: z.number(),
      hasMore: z.boolean(),
      isNewestFirst: z.boolean(),
      showsAdditional: z.boolean(),
      showsEnded: z.boolean(),
    }),
  }),
  z.object({ issue: z.object({ code: z.string(), message: z.string() }) }),
]);

/** Codes of errors that say that there is no listing, rather than that it cannot be read now. */
const UNLISTED = ['not-found', 'not-served', 'rejected', 'forbidden'];

/**
 * A client of a service that no deployment serves yet.
 * @param tapped what looks at its requests and answers. Default: nothing does.
 */
export function clientOf(
  { url, token, speaks, proxies }: Service,
  settings: PipelineSettings,
  tapped = (transport: Transport) => transport,
): FlowService {
  const given = async () => token;
  return createFlowService({
    download: downloadAsset,
    ...settings,
    service: speaks,
    baseUrl: new URL(url),
    token: { get: given, renew: given },
    clock: systemClock,
    transport: tapped(httpTransport({ clock: systemClock, proxies })),
  });
}

/** Asks such a service for its listing. It costs nothing. */
export async function examineListing(
  service: Service,
  settings: PipelineSettings,
  signal: AbortSignal,
): Promise<Outcome> {
  return outcomeOfListing(service.speaks.list?.order, await listingAnswer(clientOf(service, settings), signal));
}

type Order = ListDescription['order'];

/**
 * Compares what the description says of the listing of flows with what it shows.
 * @param declared its order. Undefined if the description has no listing.
 * @param answer to the question for the listing, as the collecting function gives it.
 */
export function outcomeOfListing(declared: Order | undefined, answer: unknown): Outcome {
  const parsed = answerSchema.parse(answer);
  const fits = (value: Order | undefined) =>
    `In the description of the service, set "list" to ${value === undefined ? 'null' : `{"order": "${value}"}`}.`;
  const isNone = declared === undefined;
  if ('issue' in parsed) {
    const { code, message } = parsed.issue;
    if (code === 'unintelligible-answer') {
      const what = `The listing of flows cannot be read: ${message}`;
      return { severity: 'warning', what, todo: 'Correct "list" in the description of the service.' };
    }
    if (!UNLISTED.includes(code)) return { notChecked: `the service does not answer for its flows: ${code}` };
    if (isNone) return 'good';
    const what = `The service does not list its flows (${message}), although its description says so.`;
    return { severity: 'warning', what, todo: `${fits(undefined)} Then settings.inDoubt decides about lost answers.` };
  }
  const { flows, hasMore, isNewestFirst, showsAdditional, showsEnded } = parsed.listing;
  if (flows === 0) return 'good'; // It contradicts nothing.
  const missing = [
    ...(showsAdditional ? [] : ['the `additional` of a flow, by which a flow is found']),
    ...(showsEnded ? [] : ['a flow that has ended']),
  ];
  if (missing.length > 0) {
    if (isNone) return 'good';
    const what = `The first ${counted(flows, 'flow')} of the listing ${flows === 1 ? 'does' : 'do'} not show ${missing.join(', nor ')}.`;
    return { severity: 'note', what, todo: `If the service never shows it: ${fits(undefined)}` };
  }
  if (declared === 'newest-first' && !isNewestFirst) {
    const what = 'The listing of flows is not newest first, although the description of the service says so.';
    return { severity: 'warning', what, todo: `${fits('any-order')} Or let its "query" sort it.` };
  }
  const better = isNewestFirst && hasMore ? 'newest-first' : 'any-order';
  if (declared === better || declared === 'newest-first') return 'good';
  const order = isNewestFirst ? 'looks newest first' : 'is in another order than newest first';
  const what = `The listing of flows ${order}, and shows ended flows and the \`additional\` of flows.`;
  return { severity: 'note', what, todo: `If that is so on all its pages: ${fits(better)}` };
}

/** The words and pages that the listing shows, and which of them are not declared. */
export function outcomeOfWords({ flows, pages, words, unreadMore, unnamed = 0 }: ListingSample): Outcome {
  if (unnamed > 0) {
    const what = `No usable id is found in ${unnamed} of its entries.`;
    return { severity: 'warning', what, todo: 'Correct "id" of "list" in the description of the service.' };
  }
  if (flows === 0) return { notChecked: 'the listing shows no flows' };
  const shown = (isDeclared: boolean): string =>
    words
      .filter((each) => each.isDeclared === isDeclared)
      .map(({ word, state, flows }) => `${quoted(word ?? null)} ${isDeclared ? `as ${state} ` : ''}(${flows})`)
      .join(', ');
  const seen = `${counted(flows, 'flow')} on ${counted(pages, 'page')}.`;
  const lines = [`It shows ${seen}`, ...(shown(true) === '' ? [] : [`Declared words: ${shown(true)}.`])];
  const undeclared = shown(false);
  if (undeclared === '' && unreadMore === undefined) return { good: lines.join('\n') };
  return {
    severity: 'warning',
    what: [
      ...lines,
      ...(undeclared === '' ? [] : [`Not declared, so they count as running: ${undeclared}.`]),
      ...(unreadMore === undefined ? [] : [`It is not read to its end: ${unreadMore}.`]),
    ].join('\n'),
    todo: [
      ...(undeclared === ''
        ? []
        : [
            'Add the words to "completed", "failed", "aborted" or "running" of "state" in the description of the service.',
          ]),
      ...(unreadMore === undefined ? [] : ['Declare "pages" of "list" in the description of the service.']),
    ].join(' '),
  };
}

/** What it costs if the answer to a creation is lost. */
export function outcomeOfLostAnswer({ service, settings }: Pick<Context, 'service' | 'settings'>): Outcome {
  const keyMs = keyHonouredMs(service);
  if (keyMs > 0) {
    const { hours = 0 } = service.create.idempotency ?? {};
    return {
      good: `It costs nothing: for ${counted(hours, 'hour')} the same request is sent again with the same key.`,
    };
  }
  if (service.list !== undefined) return { good: 'It costs nothing: the flow is found in the listing of the service.' };
  const why = 'the service lists no flows, and honours no idempotency key.';
  return settings.inDoubt === 'ask'
    ? {
        severity: 'note',
        what: `The file waits for your decision: ${why}`,
        todo: 'If it may rather be paid for twice, set settings.inDoubt to "retry".',
      }
    : {
        severity: 'note',
        what: `The file is sent again, and may be paid for twice: ${why}`,
        todo: 'If it should rather wait for your decision, set settings.inDoubt to "ask".',
      };
}
