import type { StandInOptions } from '../../../local/flow-service/flow-service.ts';
import { StillClock } from '../../flow-service/scripted.ts';
import { serveStandIn } from '../../support/servers.ts';

export const TOKEN = 'fake-token';

export const handClock = () => new StillClock(Date.UTC(2030, 0, 1));

export interface Called {
  readonly status: number;
  readonly headers: Headers;
  readonly text: string;
  // biome-ignore lint/suspicious/noExplicitAny: The tests check the shapes.
  readonly json: any;
}

/** A stand-in over HTTP, for one test. By default its flows end at once. */
export async function standIn(options: StandInOptions = {}) {
  const { service, url } = await serveStandIn({ tokens: [TOKEN], flowMs: 0, ...options });
  const request = (method: string, path: string, init: RequestInit = {}) =>
    fetch(url + path, {
      method,
      redirect: 'manual',
      ...init,
      headers: { authorization: `Bearer ${TOKEN}`, 'content-type': 'application/json', ...init.headers },
    });
  const call = async (method: string, path: string, body?: unknown): Promise<Called> => {
    const response = await request(method, path, body === undefined ? {} : { body: JSON.stringify(body) });
    const text = await response.text();
    const isJson = response.headers.get('content-type') === 'application/json';
    return { status: response.status, headers: response.headers, text, json: isJson ? JSON.parse(text) : undefined };
  };
  const create = async (body: object = echo('hello')): Promise<string> => {
    const { status, json, text } = await call('POST', '/flows', body);
    if (status !== 201) throw new Error(`${status} ${text}`);
    return json.flow_id;
  };
  /** Downloads an output of a flow. */
  const download = (id: string, n = 0): Promise<Response> => {
    const assetId = service.flows.find((flow) => flow.id === id)?.outputs[n]?.assetId;
    return request('GET', `/flows/${id}/outputs/${assetId}`);
  };
  return { service, url, request, call, create, download };
}

export function echo(text: string, parameters: object = {}): object {
  return {
    template: 'bytes_echo',
    parameters,
    inputs: [{ data: dataUri('application/octet-stream', Buffer.from(text)), additional: { from: 'a test' } }],
  };
}

export function dataUri(mediaType: string, bytes: Uint8Array): string {
  return `data:${mediaType};base64,${Buffer.from(bytes).toString('base64')}`;
}
