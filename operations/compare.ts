import type { UploadView } from './upload-view.ts';

/** What one generation of an upload was made with, and what came of it. Times are in ISO 8601. */
export type Generation = Pick<
  UploadView,
  'generation' | 'state' | 'template' | 'parameters' | 'revision' | 'price' | 'arrivedAt' | 'endedAt'
> & {
  /** The id of its flow. */
  readonly flow?: string | undefined;
  /** Its results; of an earlier generation, the first ones. */
  readonly assets: readonly { readonly key: string; readonly bytes: number }[];
  /** Number of all results, and their size in bytes. */
  readonly assetCount: number;
  readonly bytes: number;
};

/** All generations of an upload that had a flow, and the present one, the first one first. */
export function generationsOf({ previous = [], ...view }: UploadView): readonly Generation[] {
  const { generation, state, template, parameters, revision, price, arrivedAt, endedAt, assets } = view;
  const bytes = assets.reduce((sum, asset) => sum + asset.bytes, 0);
  const present = { flow: view.flow?.id, assets, assetCount: assets.length, bytes };
  return [
    ...previous.map(({ status, ...end }) => ({ ...end, state: status })),
    { generation, state, template, parameters, revision, price, arrivedAt, endedAt, ...present },
  ];
}
