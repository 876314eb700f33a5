import type { Receipt } from '../../functions/publish/report-schemas.ts';

export const asset = {
  id: 'a1',
  bucket: 'results',
  key: 'a.png/f1/a1.glb',
  etag: 'e',
  bytes: 5,
  mediaType: 'model/gltf-binary',
  sha256: '00'.repeat(32),
};

/** The receipt of a success. */
export const receipt = {
  receipt: 1 as const,
  status: 'succeeded' as const,
  upload: {
    id: 'ab'.repeat(20),
    bucket: 'inbox',
    key: 'a.png',
    versionId: 'v1',
    etag: 'e',
    bytes: 9,
    mediaType: 'image/png',
    lastModified: '2026-01-01T00:00:00.000Z',
  },
  route: 'pictures',
  template: 'model_generate_fromimage',
  generation: 1,
  flow: { id: 'f1', createdAt: '2026-01-01T00:00:01.000Z' },
  endedAt: '2026-01-01T00:01:00.000Z',
  assets: [asset],
  failedOutputs: [],
} satisfies Receipt;

/** What the receipt of a failure says instead. */
export const failed = {
  status: 'failed',
  failure: { code: 'rejected', message: 'No.', advice: 'Correct the file.', retry: 'flowdrop retry' },
} as const;
