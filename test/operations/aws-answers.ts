import { systemClock } from '../../functions/base/clock.ts';
import type { Deployment } from '../../operations/deployment.ts';
import { web } from '../support/servers.ts';

export interface AnsweredDeployment {
  readonly deployment: Deployment;
  /** The operation and the body of each request. An API without operations has the method instead. */
  readonly asked: string[];
}

/**
 * A deployment whose services of AWS are one server, which answers a request by its body and its number, from 1 on. It
 * ends with the test.
 */
export async function deploymentAt(
  answer: (body: string, count: number) => string | { readonly status: number; readonly body: string },
): Promise<AnsweredDeployment> {
  const asked: string[] = [];
  const { origin } = await web(async (request, response) => {
    let sent = '';
    for await (const chunk of request) sent += chunk;
    asked.push(`${request.headers['x-amz-target'] ?? request.method} ${sent}`.trim());
    const answered = answer(sent, asked.length);
    const { status, body } = typeof answered === 'string' ? { status: 200, body: answered } : answered;
    response.writeHead(status).end(body);
  });
  const credentials = async () => ({ accessKeyId: 'AKIAEXAMPLE', secretAccessKey: 'obviously-fake' });
  const services = ['monitoring', 'sns', 'sqs', 'kms', 'logs', 'lambda'];
  const endpoints = Object.fromEntries(services.map((service) => [service, origin]));
  const access = { region: 'eu-central-1', credentials, endpoints };
  const settings = { pipeline: 'flowdrop', queueUrl: 'https://sqs.eu-central-1.amazonaws.com/123456789012/uploads' };
  const deployment = { access, settings, clock: systemClock, name: 'stack any' };
  return { deployment: deployment as unknown as Deployment, asked };
}
