import type { Chain, ChainUpload } from './chain-schema.ts';

/**
 * Maximum size of the object of a chain, in bytes. It is read and written whole, and parsed it takes some twenty times as
 * much memory. {@link CHAIN_UPLOADS_MAX} uploads fit, unless their routes have long names.
 */
export const CHAIN_BYTES_MAX = 4 * 1024 * 1024;

/** Maximum number of uploads of one chain. */
export const CHAIN_UPLOADS_MAX = 10_000;

/** What an upload takes at most in the leanest form of a chain, in bytes, without the name of its route. */
const LEAN_UPLOAD_BYTES_MAX = 350;

/** Kept free for what a chain may say later of stages that are withheld or complete, in bytes. */
const REMAINDER_BYTES = 64 * 1024;

/** Stands in the place of a failure's message that is left out. */
const SEE_RECEIPT = 'See its receipt.';

export const TOO_MANY_UPLOADS = `A chain has at most ${CHAIN_UPLOADS_MAX} uploads.`;
export const TOO_LARGE = `The object of a chain has at most ${CHAIN_BYTES_MAX / 1024 / 1024} MiB.`;

const bytesOf = (value: unknown): number => Buffer.byteLength(JSON.stringify(value));

/** The number of an upload's assets, of which the chain may not hold all. */
export const assetCountOf = ({ assets, assetCount = assets.length }: ChainUpload): number => assetCount;

/** What uploads of a stage that may begin add to a chain. */
interface Addition {
  readonly route: string;
  /** Number of the uploads. */
  readonly uploads: number;
  /** What the chain keeps of an upload that takes all assets of a stage. */
  readonly gathered?: Chain['gathered'][number];
}

/** Why a chain has no room for further uploads, whatever becomes of those that it has. Undefined if it has room. */
export function whyNoRoom({ uploads, gathered, ...head }: Chain, addition: Addition): string | undefined {
  if (uploads.length + addition.uploads > CHAIN_UPLOADS_MAX) return TOO_MANY_UPLOADS;
  const names = new Map<string, number>();
  const bytesFor = (route: string): number => {
    const known = names.get(route) ?? bytesOf(route);
    names.set(route, known);
    return LEAN_UPLOAD_BYTES_MAX + known;
  };
  const lean = uploads.reduce((sum, { route }) => sum + bytesFor(route), 0);
  const added = addition.uploads * bytesFor(addition.route) + bytesOf([addition.gathered]);
  const bytes = bytesOf(head) + bytesOf(gathered) + lean + added + REMAINDER_BYTES;
  return bytes > CHAIN_BYTES_MAX ? TOO_LARGE : undefined;
}

/** A stage that takes all assets of a stage, and has not begun. */
export interface Gathering {
  /** Name of its route. */
  readonly route: string;
  /** The uploads whose assets it takes. */
  readonly from: readonly ChainUpload[];
  readonly takes: (asset: ChainUpload['assets'][number]) => boolean;
}

/**
 * The chain in a form of at most {@link CHAIN_BYTES_MAX}. If it is larger, it loses what its entries and receipts say
 * too, step by step: the assets that no stage waits for, then the words of failures, the ids of flows and what was
 * sent. At last no stage that waits for assets can begin.
 * @param inputsMax maximum number of assets that one stage takes.
 */
export function fitted(chain: Chain, gatherings: readonly Gathering[], inputsMax: number): Chain {
  if (bytesOf(chain) <= CHAIN_BYTES_MAX) return chain;
  const taken = gatherings.map((each) => ({
    ...each,
    assets: each.from.flatMap((upload) => upload.assets.filter(each.takes)),
  }));
  const waiting = taken.filter(({ assets }) => assets.length <= inputsMax);
  const needed = new Set(waiting.flatMap(({ assets }) => assets));
  const overfull = taken.filter((each) => !waiting.includes(each));
  const lean = withAssets(withOverfull(chain, overfull), needed);
  if (bytesOf(lean) <= CHAIN_BYTES_MAX) return lean;
  const leaner = { ...lean, uploads: lean.uploads.map(withoutWords) };
  if (bytesOf(leaner) <= CHAIN_BYTES_MAX) return leaner;
  return withAssets(withOverfull(leaner, waiting), new Set());
}

/** The chain with these assets, and with the number of all. */
const withAssets = (chain: Chain, kept: ReadonlySet<ChainUpload['assets'][number]>): Chain => ({
  ...chain,
  uploads: chain.uploads.map((upload) => {
    const assets = upload.assets.filter((asset) => kept.has(asset));
    return assets.length === upload.assets.length ? upload : { ...upload, assets, assetCount: assetCountOf(upload) };
  }),
});

function withoutWords({ flow: _, sent: __, ...upload }: ChainUpload): ChainUpload {
  const { failure } = upload;
  return failure === undefined ? upload : { ...upload, failure: { ...failure, message: SEE_RECEIPT } };
}

/** Notes stages whose inputs the chain does not hold. */
const withOverfull = (chain: Chain, stages: readonly Pick<Gathering, 'route'>[]): Chain =>
  stages.length === 0
    ? chain
    : { ...chain, overfull: [...new Set([...(chain.overfull ?? []), ...stages.map(({ route }) => route)])] };
