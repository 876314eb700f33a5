/** Names that the servers, the functions' environment and the rows share. All values are fake. */
export const BUCKETS = { inbox: 'inbox', results: 'results', ledger: 'ledger' } as const;
export const TOKEN = 'obviously-fake-token';
/** What the processes under test sign their requests with. */
export const CREDENTIALS = { accessKeyId: 'fake', secretAccessKey: 'fake' } as const;
export const TOKEN_SECRET = 'benchmark/token';
export const PIPELINE = 'benchmark';

/** Every file in the inbox has this one version. */
export const FILE_VERSION = 'the-only-version';
export const FILE_ETAG = '00000000000000000000000000000000';
/** The start of today: a file older than two days would cost one more request. */
export const FILE_MODIFIED = new Date(Math.floor(Date.now() / 86_400_000) * 86_400_000).toUTCString();
