import { createFlows } from './batch.ts';
import { lambda } from './runtime.ts';

/** Uploads, from the queue or from S3 itself, become flows. */
export const handler = lambda(createFlows);
