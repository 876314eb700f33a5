import type { Certificate } from '../certificate.ts';
import { answerCalls } from '../child.ts';
import { FlowService } from './flow-service.ts';
import { serveWire } from './wire.ts';

const service = new FlowService();

const calls = {
  async listen(certificate: Certificate): Promise<{ plain: number; tls: number }> {
    const [plain, tls] = [await serveWire(service.handle), await serveWire(service.handle, certificate)];
    return { plain: plain.port, tls: tls.port };
  },
  setPollMs({ pollMs }: { pollMs: number }): void {
    service.pollMs = pollMs;
  },
  takeCounts: () => service.takeCounts(),
};
export type FlowServiceCalls = typeof calls;

answerCalls(calls);
