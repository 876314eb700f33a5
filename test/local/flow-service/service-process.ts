import { StandInFlowService } from '../../../local/flow-service/flow-service.ts';
import { serveFlowService } from '../../../local/flow-service/http.ts';

/*
 * A stand-in in a process of its own, so that its memory can be measured. It tells its address, then, whenever it is
 * asked, its flows and the most memory that it ever used, and ends with its parent.
 */
const service = new StandInFlowService({ tokens: ['fake-token'], flowMs: 0 });
const server = await serveFlowService(service);
process.on('message', () => process.send?.({ flows: service.flows, peakKiB: process.resourceUsage().maxRSS }));
process.once('disconnect', async () => {
  await server.close();
  service.close();
});
process.send?.({ url: server.url });
