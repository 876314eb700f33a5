import { ModelViewerElement } from '@google/model-viewer';

/** Where the page serves the decoders. The viewer would fetch them from another host. */
const DECODERS = '/assets/decoders/';
/** Nothing is there. */
const NOT_FETCHED = '/assets/not-fetched';

// Only the decoders are fetched, whatever a model names: the model itself is in memory, and holds its textures. An
// address of this page's API would be answered, because the browser sends the visitor's cookie.
ModelViewerElement.mapURLs((url) => {
  const { origin, pathname, protocol } = new URL(url, location.href);
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
