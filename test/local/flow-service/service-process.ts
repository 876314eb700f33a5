import { StandInFlowService } from '../../../local/flow-service/flow-service.ts';
import { serveFlowService } from '../../../local/flow-service/http.ts';
import { peakKib } from '../../support/peak-memory.ts';

/*
 * A stand-in in its own process, so that its memory can be measured. It sends its URL, then answers every message with
 * its flows and its peak memory. It ends with its parent.
 */
const service = new StandInFlowService({ tokens: ['fake-token'], flowMs: 0 });
const server = await serveFlowService(service);
process.on('message', () => process.send?.({ flows: service.flows, peakKiB: peakKib() }));
process.once('disconnect', async () => {
  await server.close();
  service.close();
});
process.send?.({ url: server.url });
