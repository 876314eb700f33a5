import type { Certificate } from '../certificate.ts';
import { answerCalls } from '../child.ts';
import { FlowService } from './flow-service.ts';
import { delayed, serveWire } from './wire.ts';

const service = new FlowService();
let answerMs = 0;
const handle = delayed(service.handle, () => answerMs);

const calls = {
  async listen(certificate: Certificate): Promise<{ plain: number; tls: number }> {
    const [plain, tls] = [await serveWire(handle), await serveWire(handle, certificate)];
    return { plain: plain.port, tls: tls.port };
  },
  setPollMs({ pollMs }: { pollMs: number }): void {
    service.pollMs = pollMs;
  },
  /** Delays every answer from now on. */
  setAnswerMs(argument: { answerMs: number }): void {
    answerMs = argument.answerMs;
  },
  takeCounts: () => service.takeCounts(),
};
export type FlowServiceCalls = typeof calls;

answerCalls(calls);
