import { afterAll, describe, expect, it } from 'vitest';
import { EventBus } from '../../../../local/aws/event-bridge/event-bus.ts';
import { serveEvents } from '../../../../local/aws/event-bridge/http.ts';
import { signedHeaders } from '../../../support/sigv4.ts';

describe('the event bus', async () => {
  const bus = new EventBus();
  const credentials = { accessKeyId: 'fake', secretAccessKey: 'fake' };
  const served = await serveEvents(bus, { credentials: [credentials] });
  afterAll(() => served.close());
  const put = async (Entries: object[]) => {
    const body = JSON.stringify({ Entries });
    const headers = { 'x-amz-target': 'AWSEvents.PutEvents', 'content-type': 'application/x-amz-json-1.1' };
    const request = { method: 'POST', path: '/', headers, body };
    const signed = await signedHeaders(request, { endpoint: served.endpoint, service: 'events', credentials });
    const response = await fetch(served.endpoint, { method: 'POST', headers: signed, body });
    return { status: response.status, body: await response.json() };
  };
  const event = { Source: 'flowdrop', DetailType: 'Flow Succeeded', Detail: '{"n":1}' };

  it('keeps the published events, and fails an entry whose detail is not a JSON object', async () => {
    const { body } = await put([event, { ...event, Detail: 'nonsense' }]);
    expect(body).toMatchObject({ FailedEntryCount: 1, Entries: [{}, { ErrorCode: 'MalformedDetail' }] });
    expect(bus.published).toEqual([event]);
  });

  it('refuses a request of more than 262,144 bytes or ten entries', async () => {
    const large = { ...event, Detail: JSON.stringify({ text: 'x'.repeat(262_144) }) };
    expect(await put([large])).toMatchObject({ status: 400, body: { __type: 'ValidationException' } });
    expect(await put(Array.from({ length: 11 }, () => event))).toMatchObject({ status: 400 });
  });
});
