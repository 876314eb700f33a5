import { firstClaim } from '../../functions/ledger/entry.ts';
import { uploadId } from '../../functions/uploads/upload.ts';

const object = { bucket: 'inbox', key: 'a.png', versionId: 'v1', etag: 'e', lastModified: 1_000 };

/** What an entry is made of. */
export const upload = { id: uploadId(object), ...object, bytes: 5, mediaType: 'image/png' };
export const route = { name: 'pictures', input: 'file', template: 't' } as const;
export const claim = firstClaim(upload, route, {
  claimedAt: 10_000,
  deadline: 70_000,
  pipeline: 'mine',
  keyScope: '3f1b90aa',
});
export const flow = { id: 'flow-1', createdAt: 20_000 };
export const asset = {
  id: 'a',
  bucket: 'results',
  key: 'a.png/flow-1/a.glb',
  etag: 'e',
  bytes: 1,
  mediaType: 'model/gltf-binary',
  sha256: '00',
};
export const failure = { code: 'rejected', message: 'No.' } as const;
export const wait = { reason: 'throttled', message: 'Slow down', notBefore: 99_000, counted: false } as const;
export const later = { claimedAt: 100_000, deadline: 160_000, pipeline: 'mine', keyScope: '3f1b90aa' };
