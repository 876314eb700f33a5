import { expect, it } from 'vitest';
import { inputFailure } from '../../functions/create-flow/admission.ts';
import { FLOWS } from '../../functions/flow-service/services.ts';
import type { OpenedUpload } from '../../functions/uploads/opened-upload.ts';

it.each([
  ['file', 10, undefined],
  ['file', 11, 'The file has 11 bytes, and at most 10 are sent as file.'],
  ['text', 5, undefined],
  ['text', 6, 'The file has 6 bytes, and at most 5 are sent as text.'],
  ['text', 11, 'The file has 11 bytes, and at most 5 are sent as text.'],
] as const)('a file on a route for a %s, of %i bytes, cannot be sent because: %s', (input, bytes, message) => {
  const object = { upload: { key: 'a' }, inputs: [{ key: 'a', source: { bytes } }] } as unknown as OpenedUpload;
  expect(inputFailure({ inputBytesMax: 10, textBytesMax: 5, service: FLOWS }, object, input)?.message).toBe(message);
});
