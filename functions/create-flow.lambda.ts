import { createFlowsOrPutCanary } from './create-flow/create-event.ts';
import { lambda } from './lambda/lambda.ts';
import { createFlowPorts } from './lambda/ports.ts';

/** Makes flows of uploads, which come from the queue or from S3 itself. */
export const handler = lambda(createFlowPorts, createFlowsOrPutCanary);
