import { ModelViewerElement } from '@google/model-viewer';

/** Where the page serves the decoders. The viewer would fetch them from another host. */
const DECODERS = '/assets/decoders/';
/** Nothing is there. */
const NOT_FETCHED = '/assets/not-fetched';
const MODEL_SCHEME = 'model:';

/** What the viewer gets in place of a model that nobody shows any more. */
const EMPTY_MODEL = 'data:application/json,{"asset":{"version":"2.0"},"scenes":[{}]}';

/** By the address that the viewer is given: where a model is in memory. */
const models = new Map<string, string>();
let given = 0;

/** Returns an address of a model for the viewer alone. It is good until `forgetModel`. */
export function giveModel(model: Uint8Array<ArrayBuffer>): string {
  given += 1;
  const address = `${MODEL_SCHEME}${given}`;
  models.set(address, URL.createObjectURL(new Blob([model])));
  return address;
}

/**
 * Frees the memory of a model. The viewer may begin to fetch it even later, because it waits for a decoder first and
 * goes on if its element is gone. It then gets an empty model. What it has begun to fetch, it gets whole.
 */
export function forgetModel(address: string): void {
  URL.revokeObjectURL(models.get(address) ?? '');
  models.delete(address);
}

// Only the decoders are fetched, whatever a model names: the model itself is in memory, and holds its textures.
ModelViewerElement.mapURLs((url) => {
  const { origin, pathname, protocol } = new URL(url, location.href);
  if (protocol === MODEL_SCHEME) return models.get(url) ?? EMPTY_MODEL;
  const isOwn = origin === location.origin && pathname.startsWith(DECODERS);
  return isOwn || protocol === 'blob:' || protocol === 'data:' ? url : NOT_FETCHED;
});
// The constructor of model-viewer reads the decoder locations from this global. It overwrites locations set on the
// class.
Object.assign(self, {
  ModelViewerElement: {
    dracoDecoderLocation: DECODERS,
    // The decoder itself is in this bundle. The viewer wants the address of a script all the same.
    meshoptDecoderLocation: `${DECODERS}meshopt.js`,
    ktx2TranscoderLocation: DECODERS,
  },
});
