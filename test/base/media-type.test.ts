import { describe, expect, it } from 'vitest';
import {
  codingsOf,
  extensionOf,
  isTelling,
  mediaTypeOf,
  registeredType,
  typeByExtension,
  typeOfName,
} from '../../functions/base/media-type.ts';

/** Types of uploads and of assets that say nothing of the bytes. */
const SAYING_NOTHING = [
  ...['application/octet-stream', 'binary/octet-stream', 'application/x-octet-stream', 'application/binary'],
  ...['application/x-www-form-urlencoded', 'application/force-download', 'application/x-force-download'],
  ...['application/download', 'application/x-download', 'application/unknown', 'unknown/unknown'],
  ...['application/octetstream', 'content/unknown', 'binary/x-octet-stream'],
];

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
    ['*/*', 'a.jpg', 'image/jpeg'],
    ['image/*', 'a.jpg', 'image/jpeg'],
    ['*/*', 'a', 'application/octet-stream'],
    ['image/pjpeg', 'a.jfif', 'image/jpeg'],
    ['image/jpg', 'a.jpg', 'image/jpeg'],
    [undefined, 'a.jfif', 'image/jpeg'],
    [undefined, 'A.JFIF', 'image/jpeg'],
    [undefined, 'a.ply', 'model/ply'],
    ['model/gltf+binary', 'a', 'model/gltf-binary'],
    ['multipart/form-data; boundary=x', 'a.png', 'multipart/form-data'],
    ['image/png,evil', 'a.jpg', 'image/jpeg'],
    // As Windows and its browsers name them.
    ['application/x-zip-compressed', 'a.zip', 'application/zip'],
    ['audio/mp3', 'a.mp3', 'audio/mpeg'],
    ['application/vnd.ms-pki.stl', 'a.stl', 'model/stl'],
    ['application/x-tgif', 'a.obj', 'model/obj'],
    ['image/x-ms-bmp', 'a', 'image/bmp'],
    ['video/avi', 'a', 'video/x-msvideo'],
    // Names from before a type was registered.
    ['audio/x-wav', 'a', 'audio/wav'],
    ['audio/x-mpeg', 'a', 'audio/mpeg'],
    ['audio/x-flac', 'a', 'audio/flac'],
    ['application/x-gzip', 'a', 'application/gzip'],
    ['text/x-markdown', 'a', 'text/markdown'],
    // Other names of a type, from before it was registered or of one maker.
    ['image/x-windows-bmp', 'a', 'image/bmp'],
    ['image/x-icon', 'a', 'image/vnd.microsoft.icon'],
    ['image/svg-xml', 'a', 'image/svg+xml'],
    ['image/x-jpg', 'a', 'image/jpeg'],
    ['audio/wave', 'a', 'audio/wav'],
    ['audio/x-pn-wav', 'a', 'audio/wav'],
    ['audio/m4a', 'a', 'audio/mp4'],
    ['audio/x-m4a', 'a', 'audio/mp4'],
    ['application/x-photoshop', 'a', 'image/vnd.adobe.photoshop'],
    ['video/msvideo', 'a', 'video/x-msvideo'],
    ['video/mkv', 'a', 'video/x-matroska'],
    ['application/x-zip-compressed', 'a', 'application/zip'],
    ['application/acrobat', 'a', 'application/pdf'],
    ['application/gltf-buffer', 'a', 'model/gltf-binary'],
    ['application/x-tgif', 'a', 'model/obj'],
    ['application/vnd.ms-pki.stl', 'a', 'model/stl'],
    ['model/x.stl-binary', 'a', 'model/stl'],
    [undefined, 'a.HDR', 'image/vnd.radiance'],
    [undefined, 'a.flac', 'audio/flac'],
    [undefined, 'a.aiff', 'audio/aiff'],
    ['video/x-matroska', 'a', 'video/x-matroska'],
    ['application/x-7z-compressed', 'a', 'application/x-7z-compressed'],
    ['application/x-nobody-knows', 'a.zip', 'application/x-nobody-knows'],
  ])('Content-Type %s of %s is %s', (contentType, key, expected) => {
    expect(mediaTypeOf(contentType, key)).toBe(expected);
  });
});

describe('a media type that says nothing', () => {
  it.each(SAYING_NOTHING)('is judged by the extension: %s', (type) => {
    for (const each of [type, type.toUpperCase(), `${type};charset=utf-8`]) {
      expect(isTelling(each)).toBe(false);
      expect(mediaTypeOf(each, 'a.glb')).toBe('model/gltf-binary');
      expect(mediaTypeOf(each, 'a')).toBe('application/octet-stream');
      expect(registeredType(each)).toBe('application/octet-stream');
    }
  });

  it.each([
    ...['text/plain', 'application/json', 'application/zip', 'multipart/form-data', 'application/x-nobody-knows'],
    ...['x-application/octet-stream', 'application/octet-stream-of-ours'],
  ])('is not %s', (type) => {
    expect(isTelling(type)).toBe(true);
  });
});

describe('the extension of a media type', () => {
  it.each([
    ['audio/mpeg', '.mp3'],
    ['audio/mp3', '.mp3'],
    ['audio/x-wav', '.wav'],
    ['audio/vnd.wave', '.wav'],
    ['audio/ogg', '.ogg'],
    ['audio/flac', '.flac'],
    ['audio/mp4', '.m4a'],
    ['audio/aac', '.aac'],
    ['video/quicktime', '.mov'],
    ['video/mp4', '.mp4'],
    ['video/mpeg', '.mpg'],
    ['image/jpeg', '.jpg'],
    ['image/jpg', '.jpg'],
    ['image/pjpeg', '.jpg'],
    ['image/x-png', '.png'],
    ['image/svg+xml', '.svg'],
    ['model/gltf-binary', '.glb'],
    ['model/gltf+binary', '.glb'],
    ['model/gltf+json', '.gltf'],
    ['audio/aiff', '.aiff'],
    ['image/vnd.radiance', '.hdr'],
    ['model/fbx', '.fbx'],
    ['model/ply', '.ply'],
    ['model/x-ply', '.ply'],
    ['application/ply', '.ply'],
    ['application/sla', '.stl'],
    ['model/vnd.usdz+zip', '.usdz'],
    ['text/plain; charset=utf-8', '.txt'],
    ['application/octet-stream', '.bin'],
    ['application/x-nobody-knows', ''],
    ['constructor', ''],
    ['', ''],
  ])('is the one that people use: %s is %s', (mediaType, extension) => {
    expect(extensionOf(mediaType)).toBe(extension);
  });

  it('leads back to the type', () => {
    for (const type of ['audio/mpeg', 'video/quicktime', 'image/jpeg', 'model/ply', 'audio/ogg']) {
      expect(typeOfName(`a${extensionOf(type)}`)).toBe(type);
    }
  });
});

describe('the type whose extension is a subtype', () => {
  it.each([
    ['image/jpg', 'image/jpeg'],
    ['image/x-jpg', 'image/jpeg'],
    ['model/glb', 'model/gltf-binary'],
    ['image/jpeg', undefined],
    ['model/fbx', undefined],
    ['audio/png', undefined],
    ['image', undefined],
    ['', undefined],
  ])('of %s is %s', (type, meant) => {
    expect(typeByExtension(type)).toBe(meant);
  });
});

describe('the codings of a Content-Encoding', () => {
  it.each<[string | undefined, readonly string[]]>([
    ['gzip', ['gzip']],
    ['GZip', ['gzip']],
    ['x-gzip', ['x-gzip']],
    ['br', ['br']],
    ['br, gzip', ['br', 'gzip']],
    ['zstd', ['zstd']],
    ['deflate', ['deflate']],
    ['aws-chunked, gzip', ['gzip']],
    ['gzip,aws-chunked', ['gzip']],
    ['bzip', ['bzip']],
    ['bzip2', ['bzip2']],
    ['gzipped', []],
    ['my-gzip', []],
    ['utf-8', []],
    ['UTF-8', []],
    ['aws-chunked', []],
    ['identity', []],
    ['binary', []],
    ['base64', []],
    ['', []],
    [undefined, []],
  ])('are those that change the bytes: %s', (contentEncoding, codings) => {
    expect(codingsOf(contentEncoding)).toEqual(codings);
  });
});
