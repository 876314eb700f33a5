import { answerCalls } from '../child.ts';
import { FlowService } from './flow-service.ts';
import { wireServer } from './wire.ts';

const service = new FlowService();

const calls = {
  ...wireServer(service.handle),
  endAtOnce: (how: { bytes?: number }) => service.endAtOnce(how),
  takeCounts: () => service.takeCounts(),
};
export type FlowServiceCalls = typeof calls;

answerCalls(calls);
