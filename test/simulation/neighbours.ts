import type { FlowView } from '../../local/flow-service/flow.ts';
import { inOneChunk } from '../support/in-process-transport.ts';
import { type FlowTag, flowTagOf } from './flow-tag.ts';
import { NEXT_PIPELINE, PIPELINE } from './names.ts';
import type { World } from './world.ts';

/** Other users of the same account of the service. */
export class Neighbours {
  readonly #world: World;

  constructor(world: World) {
    this.#world = world;
  }

  /** Creates a flow that may look much like one of ours. */
  create(): void {
    const random = this.#world.randoms.main;
    void this.#world.entries().then((entries) => {
      const like = entries.length > 0 && random.chance(0.5) ? random.pick(entries) : undefined;
      const tag = like && { pipeline: 'another', upload: like.upload.id, generation: like.generation };
      void this.createFlow(tag);
    });
  }

  /** Creates a flow, with a tag or without one. */
  createFlow(flowdrop?: FlowTag): Promise<unknown> {
    const inputs = [{ data: 'data:text/plain;base64,AAAA', additional: {} }];
    const body = { template: 'bytes_echo', additional: flowdrop && { flowdrop }, inputs };
    return this.#send('POST', '/flows', Buffer.from(JSON.stringify(body)));
  }

  /** Deletes an ended flow while we read the listing, so that the flows after it move up. */
  deleteSoon(): void {
    const { randoms, service, timeline } = this.#world;
    const random = randoms.neighbours;
    if (!random.chance(0.5)) return;
    const ended = service.flows.filter((flow) => !flow.deleted && flow.finishedAt !== undefined && !isOurs(flow));
    if (ended.length === 0) return;
    const { id } = random.pick(ended);
    timeline.schedule(timeline.now() + random.int(1, 500), () => {
      void this.#send('DELETE', `/flows/${encodeURIComponent(id)}`, Buffer.alloc(0));
    });
  }

  #send(method: string, url: string, body: Buffer): Promise<unknown> {
    const { service, observed } = this.#world;
    return service.handle({
      method,
      url,
      headers: {
        authorization: `Bearer ${observed.tokens.at(-1)}`,
        'content-type': 'application/json',
        'content-length': String(body.byteLength),
      },
      body: inOneChunk(body),
    });
  }
}

function isOurs(flow: FlowView): boolean {
  const pipeline = flowTagOf(flow)?.pipeline;
  return pipeline === PIPELINE || pipeline === NEXT_PIPELINE;
}
