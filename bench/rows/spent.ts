import { MEMORY_MIB } from '../../infra/function-limits.ts';
import { PRICES, REQUEST_PRICES } from '../prices.ts';
import type { Stage } from '../stage.ts';
import { type Counts, spread } from '../statistics.ts';
import type { Cost } from '../subject.ts';

/** The share of a processor that a function has. Lambda gives a whole one with 1,769 MB. */
export const PROCESSOR_SHARE = MEMORY_MIB / 1769;

/** The lines START, END and REPORT that Lambda itself writes for each invocation, in bytes. */
const LAMBDA_LOG_BYTES = 300;

const GB = 1e9;

/** What was used up, and is paid for by use. */
export interface Spent {
  readonly gbSeconds: number;
  readonly invocations: number;
  /** Requests to AWS by operation: of the functions, and of S3 and the event source to the queue. */
  readonly requests: Counts;
  /** Requests to the flow service by operation, and `receivedBytes` of all of them. */
  readonly served: Counts;
  readonly loggedBytes: number;
  readonly metrics: readonly string[];
}

/** Dollars, by service. */
export interface Bill {
  readonly lambda: number;
  readonly s3: number;
  readonly queue: number;
  readonly events: number;
  readonly logs: number;
  readonly transfer: number;
}

export const NOTHING: Spent = {
  gbSeconds: 0,
  invocations: 0,
  requests: {},
  served: {},
  loggedBytes: 0,
  metrics: [],
};

/** What both took, the second so many times: -1 subtracts it. */
export function plus(one: Spent, other: Spent, times = 1): Spent {
  const sum = (a: number, b: number): number => a + times * b;
  const sums = (a: Counts, b: Counts): Counts =>
    Object.fromEntries(Object.keys({ ...a, ...b }).map((name) => [name, sum(a[name] ?? 0, b[name] ?? 0)]));
  return {
    gbSeconds: sum(one.gbSeconds, other.gbSeconds),
    invocations: sum(one.invocations, other.invocations),
    requests: sums(one.requests, other.requests),
    served: sums(one.served, other.served),
    loggedBytes: sum(one.loggedBytes, other.loggedBytes),
    metrics: [...new Set([...one.metrics, ...other.metrics])],
  };
}

/** What each of them took on average, and their median time: other programs of this machine disturb single ones. */
export function typical(all: readonly Spent[]): Spent {
  const sum = all.reduce((one, other) => plus(one, other), NOTHING);
  return { ...plus(NOTHING, sum, 1 / all.length), gbSeconds: spread(all.map(({ gbSeconds }) => gbSeconds)).median };
}

/** Forgets what was counted so far, so that {@link spentOn} counts what comes. */
export async function countAnew(stage: Stage): Promise<void> {
  for (const server of [stage.aws, stage.service]) await server.call('takeCounts');
}

/**
 * What these invocations took, with the requests since the last counting.
 * @param queue requests to the queue that others make.
 */
export async function spentOn(stage: Stage, costs: readonly Cost[], queue: Counts = {}): Promise<Spent> {
  const counted: Spent = {
    gbSeconds: costs.reduce((sum, cost) => sum + gbSecondsOf(cost), 0),
    invocations: costs.length,
    requests: await stage.aws.call('takeCounts'),
    served: await stage.service.call('takeCounts'),
    loggedBytes: costs.reduce((sum, { loggedBytes }) => sum + loggedBytes + LAMBDA_LOG_BYTES, 0),
    metrics: [...new Set(costs.flatMap(({ metrics }) => metrics))],
  };
  return plus(counted, { ...NOTHING, requests: queue });
}

/** Time without work here, and processor time at the function's share of a processor. */
const gbSecondsOf = ({ wallMs, cpuMs }: Cost): number =>
  ((MEMORY_MIB / 1024) * (Math.max(0, wallMs - cpuMs) + cpuMs / PROCESSOR_SHARE)) / 1000;

/**
 * The bill for what was spent. A process reads the token every five minutes, whatever it does, so only the bill of a month
 * has that.
 * @throws {Error} a request has no price.
 */
export function billFor({ gbSeconds, invocations, requests, served, loggedBytes }: Spent): Bill {
  const known = new Set(Object.values(REQUEST_PRICES).flatMap((prices) => Object.keys(prices)));
  const unknown = Object.keys(requests).filter((name) => !known.has(name));
  if (unknown.length > 0) throw new Error(`There is no price of ${unknown.join(', ')}: add it to prices.ts`);
  const priceOf = (service: keyof typeof REQUEST_PRICES): number =>
    Object.entries(REQUEST_PRICES[service]).reduce((sum, [name, price]) => sum + (requests[name] ?? 0) * price, 0);
  return {
    lambda: gbSeconds * PRICES.lambdaGbSecondArm64 + invocations * PRICES.lambdaRequest,
    s3: priceOf('s3'),
    queue: priceOf('queue'),
    events: priceOf('events'),
    logs: (loggedBytes / GB) * PRICES.logsGb,
    transfer: ((served.receivedBytes ?? 0) / GB) * PRICES.transferOutGb,
  };
}

export const sumOf = (bill: object): number =>
  Object.values(bill).reduce((sum: number, dollars: number) => sum + dollars, 0);
