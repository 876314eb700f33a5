import { createFlows } from './batch.ts';
import { createPorts } from './ports.ts';
import { lambda } from './runtime.ts';

/** Uploads, from the queue or from S3 itself, become flows. */
export const handler = lambda(createPorts, createFlows);
