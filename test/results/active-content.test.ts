import { expect, it } from 'vitest';
import { isActiveContent } from '../../functions/results/results.ts';

it.each([
  ...['text/html', 'TEXT/HTML;charset=utf-8', 'application/xhtml+xml', 'image/svg+xml', 'text/xml', 'application/xml'],
  ...['application/rss+xml', 'model/vnd.collada+xml', 'text/xsl', 'application/xml-external-parsed-entity'],
  ...['text/javascript', 'application/x-javascript', 'application/ecmascript', 'text/vbscript', 'multipart/related'],
  ...['message/rfc822', 'multipart/x-mixed-replace', 'application/x-mimearchive', 'application/unknown', '*/*'],
])('%s is active content', (mediaType) => {
  expect(isActiveContent(mediaType)).toBe(true);
});

it.each([
  ...['model/gltf-binary', 'image/png', 'application/json', 'text/plain', 'text/csv', 'application/pdf'],
  ...['application/octet-stream', 'application/vnd.openxmlformats-officedocument.wordprocessingml.document'],
])('%s is no active content', (mediaType) => {
  expect(isActiveContent(mediaType)).toBe(false);
});
