/** Names that the servers, the functions' environment and the rows have in common. All values are made up. */
export const BUCKETS = { inbox: 'inbox', results: 'results', ledger: 'ledger' } as const;
export const TOKEN = 'obviously-fake-token';
export const TOKEN_SECRET = 'benchmark/token';
export const PIPELINE = 'benchmark';

/** Every file in the inbox is the same version of itself. */
export const FILE_ETAG = '00000000000000000000000000000000';
export const FILE_MODIFIED = 'Thu, 01 Jan 2026 00:00:00 GMT';
