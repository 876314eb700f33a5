import { createHash } from 'node:crypto';
import { BLOB_MEMORY_BYTES_MAX, type Blob, type Content, generatedContent } from './blob.ts';
import { isGlb, quadGlb } from './glb.ts';

const COPIES_MAX = 100_000;

/** An input that has been received whole. */
export interface Input {
  readonly mediaType: string;
  readonly blob: Blob;
  readonly additional: unknown;
}

export interface Made {
  readonly mediaType: string;
  readonly content: Content;
  readonly additional: unknown;
  /** Why there is nothing to download. */
  readonly error?: string;
}

/** What comes of a flow; known when it starts, told when its time has passed. */
export interface Work {
  readonly outputs: readonly Made[];
  /** The flow ends as failed, for this reason. */
  readonly error?: string;
  /** So many of the outputs are there even if the flow fails or is aborted. */
  readonly partial: number;
}

type Parameter =
  | { readonly type: 'integer'; readonly minimum?: number; readonly maximum?: number }
  | { readonly type: 'boolean' }
  | { readonly type: 'string'; readonly enum: readonly string[] };

export interface Template {
  readonly id: string;
  readonly name: string;
  readonly description: string;
  readonly parameters: Readonly<Record<string, Parameter>>;
  /** All that are accepted; any where there are none. */
  readonly inputTypes: readonly string[];
  readonly outputTypes: readonly string[];
  work(inputs: readonly Input[], parameters: Readonly<Record<string, unknown>>): Work;
}

const GLB = 'model/gltf-binary';
const MODEL_PARAMETERS = {
  quality: { type: 'string', enum: ['low', 'high'] },
  seed: { type: 'integer' },
  texture: { type: 'boolean' },
} as const;

export const TEMPLATES: readonly Template[] = [
  template({
    name: 'model_generate_fromprompt',
    description: 'Makes a model of what a text says.',
    parameters: MODEL_PARAMETERS,
    inputTypes: ['text/plain'],
    outputTypes: [GLB],
    work: (inputs, parameters) => ofEach(inputs, (input) => glb(promptGlb(input.blob, parameters))),
  }),
  template({
    name: 'model_generate_fromimage',
    description: 'Makes a model of what a picture shows.',
    parameters: MODEL_PARAMETERS,
    inputTypes: ['image/png', 'image/jpeg', 'image/tiff', 'image/webp'],
    outputTypes: [GLB],
    work: (inputs, parameters) => ofEach(inputs, (input) => glb(pictureGlb(input, parameters))),
  }),
  template({
    name: 'model_optimize',
    description: 'Gives a model back as it came.',
    parameters: { polygon_count: { type: 'integer', minimum: 1 } },
    inputTypes: [GLB],
    outputTypes: [GLB],
    work: (inputs) =>
      ofEach(inputs, ({ blob }) => {
        if (!isGlb(blob.head)) throw new UnusableInputError('is not a binary glTF');
        return glb(blob);
      }),
  }),
  template({
    name: 'text',
    description: 'Gives a text back as it came.',
    parameters: {},
    inputTypes: ['text/plain'],
    outputTypes: ['text/plain'],
    work: (inputs) => ofEach(inputs, ({ blob, mediaType }) => ({ mediaType, content: blob })),
  }),
  template({
    name: 'bytes_echo',
    description: 'Gives any bytes back under the media type they came with, or others instead of them. For tests.',
    parameters: {
      copies: { type: 'integer', minimum: 0, maximum: COPIES_MAX },
      bytes: { type: 'integer', minimum: 0 },
      fail: { type: 'boolean' },
      partial: { type: 'integer', minimum: 0 },
      failed_outputs: { type: 'integer', minimum: 0 },
    },
    inputTypes: [],
    outputTypes: [],
    work: (inputs, { copies = 1, bytes, fail = false, partial = 0, failed_outputs = 0 }) => {
      const outputs = inputs.flatMap((input) =>
        Array.from({ length: Number(copies) }, () => ({
          mediaType: input.mediaType,
          content: bytes === undefined ? input.blob : generatedContent(Number(bytes)),
          additional: input.additional,
        })),
      );
      return {
        outputs: outputs.map((made, i) =>
          i < Number(failed_outputs) ? { ...made, error: `Output ${i} could not be made.` } : made,
        ),
        ...(fail === true && { error: 'The flow was asked to fail.' }),
        partial: Number(partial),
      };
    },
  }),
];

/** Something is wrong with the input that shows only when it is worked on. */
class UnusableInputError extends Error {
  override readonly name = 'UnusableInputError';
}

function template(parts: Omit<Template, 'id'>): Template {
  return { ...parts, id: createHash('sha256').update(parts.name).digest('hex').slice(0, 24) };
}

function ofEach(inputs: readonly Input[], make: (input: Input) => Omit<Made, 'additional'>): Work {
  const outputs: Made[] = [];
  for (const [i, input] of inputs.entries()) {
    try {
      outputs.push({ ...make(input), additional: input.additional });
    } catch (error) {
      if (!(error instanceof UnusableInputError)) throw error;
      return { outputs: [], error: `Input ${i} ${error.message}.`, partial: 0 };
    }
  }
  return { outputs, partial: 0 };
}

function glb(content: Content): Omit<Made, 'additional'> {
  return { mediaType: GLB, content };
}

function promptGlb(blob: Blob, parameters: Readonly<Record<string, unknown>>): Content {
  if (blob.memory === undefined) throw new UnusableInputError(`is longer than ${BLOB_MEMORY_BYTES_MAX} bytes`);
  const prompt = blob.memory.toString('utf8');
  if (prompt.trim() === '') throw new UnusableInputError('is empty');
  return quadGlb({ extras: { ...parameters, prompt }, colour: colourOf(blob) });
}

function pictureGlb({ mediaType, blob }: Input, parameters: Readonly<Record<string, unknown>>): Content {
  const type = essence(mediaType);
  if (pictureType(blob.head) !== type) throw new UnusableInputError(`is not what ${type} looks like`);
  // glTF knows PNG, JPEG and, with an extension, WebP. It cannot carry a TIFF, so that one only gives its colour.
  return type === 'image/png' || type === 'image/jpeg' || type === 'image/webp'
    ? parameters.texture === false
      ? quadGlb({ extras: parameters, colour: colourOf(blob) })
      : quadGlb({ extras: parameters, colour: [1, 1, 1, 1], picture: { mediaType: type, content: blob } })
    : quadGlb({ extras: parameters, colour: colourOf(blob) });
}

/** Told from the first bytes, as these formats' specifications give them. */
function pictureType(head: Buffer): string | undefined {
  const start = head.toString('latin1');
  if (start.startsWith('\x89PNG\r\n\x1a\n')) return 'image/png';
  if (start.startsWith('\xff\xd8\xff')) return 'image/jpeg';
  if (start.startsWith('RIFF') && start.slice(8, 12) === 'WEBP') return 'image/webp';
  if (start.startsWith('II*\0') || start.startsWith('MM\0*')) return 'image/tiff';
  return undefined;
}

function colourOf({ sha256 }: Blob): [number, number, number, number] {
  const channel = (at: number) => Number.parseInt(sha256.slice(at, at + 2), 16) / 255;
  return [channel(0), channel(2), channel(4), 1];
}

/** A media type without its parameters, in lower case. */
export function essence(mediaType: string): string {
  return (mediaType.split(';')[0] ?? '').trim().toLowerCase();
}

/** @returns what is wrong with the parameters: a name, or undefined for the whole, and a sentence. */
export function parameterProblems(template: Template, parameters: unknown): { name?: string; message: string }[] {
  if (parameters === undefined || parameters === null) return [];
  if (typeof parameters !== 'object' || Array.isArray(parameters)) return [{ message: 'must be an object' }];
  return Object.entries(parameters).flatMap(([name, value]) => {
    const parameter = Object.hasOwn(template.parameters, name) ? template.parameters[name] : undefined;
    const message = parameter === undefined ? 'is not a parameter of this template' : problemOf(parameter, value);
    return message === undefined ? [] : [{ name, message }];
  });
}

function problemOf(parameter: Parameter, value: unknown): string | undefined {
  switch (parameter.type) {
    case 'boolean':
      return typeof value === 'boolean' ? undefined : 'must be a boolean';
    case 'string':
      return parameter.enum.includes(value as string) ? undefined : `must be one of ${parameter.enum.join(', ')}`;
    case 'integer': {
      const { minimum = Number.MIN_SAFE_INTEGER, maximum = Number.MAX_SAFE_INTEGER } = parameter;
      if (!Number.isSafeInteger(value)) return 'must be an integer';
      return Number(value) >= minimum && Number(value) <= maximum ? undefined : `must be ${minimum} to ${maximum}`;
    }
  }
}
