import { collect } from './collect-outputs.ts';
import { lambda } from './runtime.ts';

/** On schedule: one tick. With `{"retry": ["<upload id>"]}`: failed and held uploads are sent on their way again. */
export const handler = lambda(collect);
