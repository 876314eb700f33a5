import { GetQueueAttributesCommand, SQSClient } from '@aws-sdk/client-sqs';
import { expect, it } from 'vitest';
import { sendToAws } from '../../operations/aws-requests.ts';
import { signal } from './support.ts';

const credentials = async () => ({ accessKeyId: 'AKIAEXAMPLE', secretAccessKey: 'obviously-fake' });

/** The host that the SDK asks in a region. Nothing is sent. */
async function hostOfSdk(region: string): Promise<string> {
  let host = '';
  const client = new SQSClient({ region, credentials, useQueueUrlAsEndpoint: false });
  client.middlewareStack.add(
    () => async (args) => {
      host = (args.request as { hostname: string }).hostname;
      throw new Error('not sent');
    },
    { step: 'finalizeRequest', priority: 'low' },
  );
  await expect(client.send(new GetQueueAttributesCommand({ QueueUrl: 'q' }))).rejects.toThrow();
  return host;
}

it.each(['eu-central-1', 'ap-southeast-7', 'us-gov-west-1', 'cn-north-1', 'cn-northwest-1', 'eusc-de-east-1'])(
  'a request without a client of the SDK goes to the host that the SDK would ask, in %s',
  async (region) => {
    const asked: string[] = [];
    const fetch = async ({ url }: Request) => {
      asked.push(new URL(url).host);
      return new Response('{}');
    };
    await sendToAws({ service: 'sqs', method: 'GET', path: '/' }, { region, credentials, fetch }, signal);
    expect(asked).toEqual([await hostOfSdk(region)]);
  },
);
