/** Limits of the deployed functions and their queue. The local pipeline has others for time. This file loads no CDK. */

/**
 * Memory of a function, in MiB. The functions stream, so this buys processor time rather than memory: Lambda gives one
 * processor with 1,769 MB, and less in proportion. With 512 MiB a function moves some 67 MB/s out and more in
 * (docs/performance.md), and has room for its buffers. With half of it, small files start slower, and large ones take twice
 * the time at the same price per GiB.
 * @see https://docs.aws.amazon.com/lambda/latest/dg/configuration-memory.html
 */
export const MEMORY_MIB = 512;

/**
 * A received message stays hidden for the batching window, the function's timeout and this, in seconds. A claim
 * outlives its invocation by a minute. A message that came back sooner would find its own claim and could only wait.
 * The second minute covers the time between receiving a message and starting the function. An upload that waits for its
 * turn at a service that limits creations waits within its invocation, so it adds nothing.
 *
 * AWS advises six times the function's timeout, for functions that are throttled. Here a file whose function crashed
 * would then wait for an hour and a half. {@link RECEIVES_MAX} covers throttling instead.
 * @see https://docs.aws.amazon.com/lambda/latest/dg/services-sqs-configure.html
 */
export const HIDDEN_BEYOND_TIMEOUT_SECONDS = 120;

/**
 * Receives after which a message becomes a dead letter. Uploads wait in the ledger, so a message comes back only if the
 * function crashes, is throttled or runs out of time, if AWS refuses or fails its requests, or if the message names no
 * upload. With this many receives, that may last for more than five hours. It exceeds the default number of attempts of
 * a file. So a file that crashes the function ends with a receipt.
 */
export const RECEIVES_MAX = 20;
