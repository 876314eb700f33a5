import { answerCalls } from '../child.ts';
import { FlowService } from './flow-service.ts';
import { wireServer } from './wire.ts';

const service = new FlowService();

const calls = { ...wireServer(service.handle), takeCounts: () => service.takeCounts() };
export type FlowServiceCalls = typeof calls;

answerCalls(calls);
