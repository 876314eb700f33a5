import { afterAll, describe, expect, it } from 'vitest';
import { EventBus, serveEvents } from '../../../local/aws/events.ts';

describe('the event bus', async () => {
  const bus = new EventBus();
  const served = await serveEvents(bus);
  afterAll(() => served.close());
  const put = async (Entries: object[]) => {
    const response = await fetch(served.endpoint, {
      method: 'POST',
      headers: { 'x-amz-target': 'AWSEvents.PutEvents', 'content-type': 'application/x-amz-json-1.1' },
      body: JSON.stringify({ Entries }),
    });
    return { status: response.status, body: await response.json() };
  };
  const event = { Source: 'flowdrop', DetailType: 'Flow Succeeded', Detail: '{"n":1}' };

  it('remembers what was put, and fails an entry whose detail is no JSON object', async () => {
    const { body } = await put([event, { ...event, Detail: 'nonsense' }]);
    expect(body).toMatchObject({ FailedEntryCount: 1, Entries: [{}, { ErrorCode: 'MalformedDetail' }] });
    expect(bus.published).toEqual([event]);
  });

  it('refuses more than 262,144 bytes or ten entries in a request', async () => {
    const large = { ...event, Detail: JSON.stringify({ text: 'x'.repeat(262_144) }) };
    expect(await put([large])).toMatchObject({ status: 400, body: { __type: 'ValidationException' } });
    expect(await put(Array.from({ length: 11 }, () => event))).toMatchObject({ status: 400 });
  });
});
