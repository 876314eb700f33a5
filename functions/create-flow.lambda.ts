import { createFlows } from './create-flow/batch.ts';
import { lambda } from './lambda/lambda.ts';
import { createPorts } from './lambda/ports.ts';

/** Uploads, from the queue or from S3 itself, become flows. */
export const handler = lambda(createPorts, createFlows);
