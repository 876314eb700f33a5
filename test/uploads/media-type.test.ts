import { describe, expect, it } from 'vitest';
import { mediaTypeOf } from '../../functions/uploads/media-type.ts';

describe('mediaTypeOf', () => {
  it.each([
    ['image/png', 'a.txt', 'image/png'],
    ['Image/PNG; charset=x', 'a.txt', 'image/png'],
    [undefined, 'a.png', 'image/png'],
    [undefined, 'A.PNG', 'image/png'],
    ['', 'a.webp', 'image/webp'],
    ['binary/octet-stream', 'a.tiff', 'image/tiff'],
    ['application/octet-stream', 'dir.with.dots/a.glb', 'model/gltf-binary'],
    ['application/octet-stream', 'a.txt', 'text/plain'],
    [undefined, 'dir.png/a', 'application/octet-stream'],
    [undefined, 'png', 'application/octet-stream'],
    [undefined, 'a.b/c.d/png', 'application/octet-stream'],
    [' image/png ; charset=x', 'a.txt', 'image/png'],
    ['BINARY/octet-stream', 'a.png', 'image/png'],
    ['x image/png', 'a.jpg', 'image/jpeg'],
    ['image/png x', 'a.jpg', 'image/jpeg'],
    [undefined, 'a.unheard-of', 'application/octet-stream'],
    ['nonsense', 'a.jpg', 'image/jpeg'],
    ['a/b/c', 'a.jpg', 'image/jpeg'],
    ['image/', 'a.jpg', 'image/jpeg'],
    ['image/gif; charset="a;b\\""', 'a.jpg', 'image/gif'],
    ['*/*', 'a.jpg', '*/*'],
    ['image/png,evil', 'a.jpg', 'image/jpeg'],
  ])('Content-Type %s of %s is %s', (contentType, key, expected) => {
    expect(mediaTypeOf(contentType, key)).toBe(expected);
  });
});
