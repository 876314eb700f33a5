import { counted, quoted } from '../functions/base/printable.ts';
import { createdReader, flowReader, outputPageReader, type Reader } from '../functions/flow-service/answers.ts';
import { missingOf } from '../functions/flow-service/flow-listing.ts';
import { PAGE_BYTES_MAX, parseJson, UnfitAnswerError } from '../functions/flow-service/json-answer.ts';
import { at, type Member, membersOf } from '../functions/flow-service/json-pointer.ts';
import { isLink, type LinkedResults, linkedOutputsReader, listOf } from '../functions/flow-service/linked-outputs.ts';
import { said } from '../functions/flow-service/pages.ts';
import { redact } from '../functions/flow-service/redact.ts';
import {
  ANSWER_DEPTH_MAX,
  type Pointers,
  type ServiceDescription,
} from '../functions/flow-service/service-description.ts';
import type { Outcome } from './checks.ts';

/** Largest file with a sample, in bytes. A page of a listing has no more. */
export const SAMPLE_BYTES_MAX = PAGE_BYTES_MAX;

/** Longest value that a line shows, in characters. */
const VALUE_CHARS_MAX = 80;

/** Outputs, and places of a member, that are named. */
const NAMED_MAX = 5;

/** An answer of the service that a sample may hold. */
export type Part = 'create' | 'state' | 'outputs';

/** What an answer must have for its part. */
export interface Reading {
  /** What the pointers find, one a line. */
  readonly lines: readonly string[];
  /** The members that are missing, or are not understood. */
  readonly issues: readonly string[];
  /** What to change in the description. */
  readonly todo: string;
  /** False if nothing of this part is in the answer. */
  readonly isThere: boolean;
}

/** Answers that were copied from the documentation of a service. */
export interface Sample {
  /** Where they stand, such as `answer.json`. */
  readonly source: string;
  readonly text: string;
}

/**
 * Shows what the pointers of a description find in an answer, with the code that reads the service's answers. Nothing is
 * asked for.
 * @param sample one answer; or an object whose members `create`, `state` and `outputs` are the answers to these requests.
 * @param token which no line may show.
 */
export function examineSample(
  part: Part,
  { source, text }: Sample,
  service: ServiceDescription,
  token: string | undefined,
): Outcome {
  let json: unknown;
  try {
    json = parseJson(redact(text, token), service.answerDepthMax ?? ANSWER_DEPTH_MAX);
  } catch (error) {
    const why = error instanceof SyntaxError ? 'it is no JSON' : (error as Error).message;
    return { severity: 'fault', what: `${source} cannot be read: ${why}.`, todo: `Correct ${source}.` };
  }
  const parts = partsOf(json);
  if (parts !== undefined && parts[part] === undefined) return { notChecked: `${source} has no member "${part}"` };
  const { lines, issues, todo, isThere } = readingOf(part, parts === undefined ? json : parts[part], service);
  // One answer need not have all three.
  const isAnother = parts === undefined && Object.values(READERS).some((read) => read(json, service).isThere);
  if (!isThere && isAnother) return { notChecked: `nothing of it is in ${source}: ${issues.join(' ')}` };
  if (issues.length === 0) return { good: lines.join('\n') };
  return { severity: isThere ? 'warning' : 'fault', what: [...lines, ...issues].join('\n'), todo };
}

/** What the pointers of a description find in an answer. */
export const readingOf = (part: Part, json: unknown, service: ServiceDescription): Reading =>
  READERS[part](json, service);

/** The answers by their parts. Undefined if the file is one answer: one that has outputs may have that member too. */
function partsOf(json: unknown): Partial<Record<Part, unknown>> | undefined {
  if (typeof json !== 'object' || json === null || Array.isArray(json)) return undefined;
  const isAnswer = (value: unknown): boolean => typeof value === 'object' && value !== null;
  const members = Object.entries(json);
  const areParts = members.every(([name, value]) => name in READERS && isAnswer(value));
  return areParts && members.some(([name]) => name !== 'outputs') ? json : undefined;
}

const READERS: Readonly<Record<Part, (json: unknown, service: ServiceDescription) => Reading>> = {
  create: readCreation,
  state: readState,
  outputs: readOutputs,
};

/** What a reader makes of an answer, or why the answer does not fit. */
function readOrWhy<T>(reader: Reader<T>, json: unknown): T | UnfitAnswerError {
  try {
    return reader(json);
  } catch (error) {
    if (error instanceof UnfitAnswerError) return error;
    throw error;
  }
}

/** What a reader makes of an answer. Undefined if the answer does not fit. */
function readBy<T>(reader: Reader<T>, json: unknown): T | undefined {
  const read = readOrWhy(reader, json);
  return read instanceof UnfitAnswerError ? undefined : read;
}

function readCreation(json: unknown, service: ServiceDescription): Reading {
  const { id } = service.create;
  if (typeof id === 'object' && 'header' in id) {
    return { lines: [`The header ${id.header} has the id.`], issues: [], todo: '', isThere: true };
  }
  const lines = linesOf(json, 'id', id);
  const read = readOrWhy(createdReader(id, service), json);
  const isThere = !(read instanceof UnfitAnswerError);
  const issue = !isThere && read.isOwnError === false ? `For Flowdrop, ${read.message}.` : 'No id of a flow is found.';
  return {
    lines: isThere ? [...lines, `The id of the flow is ${quoted(read.flowId)}.`] : lines,
    issues: isThere ? [] : [issue],
    todo: advice(
      '"create": {"id": …}',
      placesIn(json, ({ name }) => /(?:^|_)id$|Id$|uuid/.test(name)),
    ),
    isThere,
  };
}

function readState(json: unknown, { state }: ServiceDescription): Reading {
  const flow = readBy(flowReader('sample', state), json);
  const { error, progress, additional, createdAt } = state;
  const lines = [
    ...linesOf(json, 'word', state.word),
    ...Object.entries({ error, progress, additional, createdAt }).flatMap(([name, pointers]) =>
      pointers === undefined ? [] : linesOf(json, name, pointers),
    ),
  ];
  const places = placesIn(json, ({ name }) => /^(?:state|status|phase)$/i.test(name));
  if (flow === undefined) {
    const todo = advice('"state": {"word": …}', places);
    return { lines, issues: ['No word for the state of a flow is found.'], todo, isThere: false };
  }
  const { word, isDeclared, state: meaning } = flow;
  if (isDeclared) return { lines: [...lines, `The flow counts as ${meaning}.`], issues: [], todo: '', isThere: true };
  return {
    lines,
    issues: [`The word ${quoted(word)} is not declared. The flow counts as running.`],
    todo: `Add ${quoted(word)} to "completed", "failed", "aborted" or "running" of "state" in the description of the service.`,
    isThere: true,
  };
}

const NO_RESULTS: Partial<LinkedResults> & Pick<LinkedResults, 'links'> = { links: [] };

function readOutputs(json: unknown, service: ServiceDescription): Reading {
  const { outputs: described } = service;
  if ('addresses' in described) {
    const lines = linesOf(json, 'addresses', described.addresses);
    const { links, page, isRunning } = readBy(linkedOutputsReader(described, service), json) ?? NO_RESULTS;
    // What a header may say is not in a sample.
    const missing = page && described.pages === undefined ? missingOf(page, { status: 200, headers: {} }) : undefined;
    const named = links.slice(0, NAMED_MAX).map(({ assetId, error, word }) => {
      const is = word === undefined ? 'an address' : `pending, because the word is ${quoted(word)}`;
      return `output ${assetId}: ${error ?? is}`;
    });
    return {
      lines: [...lines, ...named],
      issues: [
        ...(links.length === 0 ? ['No address of an output is found.'] : links.flatMap(({ error }) => error ?? [])),
        ...(missing === undefined ? [] : [`Not all outputs are there: ${missing}.`]),
        ...(isRunning ? ['It shows the flow as running, so its outputs do not count yet.'] : []),
      ],
      todo: links.some(({ address }) => address !== undefined)
        ? 'Check "addresses" and "pages" of "outputs" in the description of the service.'
        : advice('"outputs": {"addresses": […]}', placesOfAddresses(json)),
      isThere: links.length > 0,
    };
  }
  const lines = linesOf(json, 'items', described.items);
  const page = readOrWhy(outputPageReader(described, service), json);
  if (page instanceof UnfitAnswerError) {
    const todo = advice(
      '"outputs": {"items": …}',
      placesIn(json, ({ value }) => Array.isArray(value)),
    );
    const issue = page.isOwnError ? `For Flowdrop, ${page.message}.` : 'No list of outputs is found.';
    return { lines, issues: [issue], todo, isThere: false };
  }
  const { items: outputs, signs, entries } = page;
  const { more, counted: all = 0 } = said(signs);
  const isShort = described.pages === undefined && more.length === 0 && entries < all;
  const named = outputs.slice(0, NAMED_MAX).map(({ assetId, status, error, word }) => {
    const why = error ?? (word === undefined ? '' : `the word is ${quoted(word)}`);
    return `output ${assetId === '' ? 'without an id' : quoted(assetId)}: ${status}${why === '' ? '' : `, because ${why}`}`;
  });
  const undeclared = new Set(
    outputs.flatMap(({ word, isDeclared }) => (isDeclared === false ? [quoted(word ?? 'none')] : [])),
  );
  return {
    lines: [...lines, ...(entries === 0 ? ['The list is empty.'] : named)],
    issues: [
      ...[...undeclared].map((word) => `The word ${word} is not declared. Such an output counts as pending.`),
      ...outputs.flatMap(({ error }) =>
        error !== undefined && /unusable id|no id at/.test(error) ? [`${error}.`] : [],
      ),
      ...(more.length === 0
        ? []
        : [`It says that there is more (${more.join(', ')}), in a form that is not declared.`]),
      ...(isShort ? [`It counts ${counted(all, 'output')} but shows ${entries}.`] : []),
    ],
    todo: 'Change "outputs" in the description of the service: "id", "word", "ready", "failed", "pending", "pages".',
    isThere: true,
  };
}

/** What each of some pointers finds. The first that finds something counts. */
function linesOf(json: unknown, name: string, pointers: Pointers): readonly string[] {
  return [pointers].flat().map((pointer) => {
    const value = at(json, listOf(pointer));
    const found = Array.isArray(value) ? `a list of ${counted(value.length, 'item')}` : quoted(value, VALUE_CHARS_MAX);
    return `${name}, ${pointer === '' ? 'the answer itself' : pointer}: ${value === undefined ? 'nothing' : found}`;
  });
}

/** The first places of members that fit. */
const placesIn = (json: unknown, fits: (member: Member) => boolean): readonly string[] =>
  Array.from(membersOf(json).filter(fits).take(NAMED_MAX), ({ pointer }) => pointer);

/** The first places of addresses. One within a list stands for the list: all of its addresses count. */
const placesOfAddresses = (json: unknown): readonly string[] => [
  ...new Set(placesIn(json, ({ value }) => isLink(value)).map((pointer) => pointer.replace(/\/0(?:\/.*)?$/, ''))),
];

function advice(member: string, places: readonly string[]): string {
  const where = places.length === 0 ? '' : ` The answer has ${places.join(', ')}.`;
  return `Set ${member} in the description of the service to the place where it is.${where}`;
}
