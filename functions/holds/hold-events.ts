import { iso } from '../base/clock.ts';
import { amountOf } from '../base/money.ts';
import type { CompletionEvent } from '../publish/completion-event.ts';
import { type Budget, capOf, periodEnd, type Spent } from '../uploads/budget.ts';
import type { Failing } from './holds.ts';

/** A budget, and how much of it is spent. */
export interface SpentBudget {
  /** Undefined for the budget of the pipeline. */
  readonly route: string | undefined;
  readonly budget: Budget;
  readonly spent: Spent;
  readonly percent: number;
}

/**
 * The event for a share of a budget that is spent. It may be sent more than once, always with the same id.
 * @param reached the share, in percent.
 */
export function budgetEvent(
  pipeline: string,
  { route, budget, spent }: SpentBudget,
  reached: number,
  now: number,
): CompletionEvent {
  const { period, flows, micros } = spent;
  const detail = {
    id: JSON.stringify([pipeline, route ?? null, period, reached, capOf(budget)]),
    pipeline,
    route,
    percent: reached,
    budget,
    spent: {
      period,
      flows,
      ...(budget.currency !== undefined && { amount: amountOf(micros), currency: budget.currency }),
    },
    endsAt: iso(periodEnd(budget, now)),
  };
  return { detailType: 'Budget Reached', detail: JSON.stringify(detail) };
}

/**
 * The event for a route whose last files failed alike.
 * @param pause the command that pauses the route.
 */
export function alikeEvent(pipeline: string, route: string, failing: Failing, pause: string): CompletionEvent {
  const { code, message, since, customers, moreCustomers } = failing;
  const detail = {
    id: JSON.stringify([pipeline, route, since]),
    pipeline,
    route,
    code,
    message,
    since: iso(since),
    customers,
    moreCustomers,
    pause,
  };
  return { detailType: 'Failures Alike', detail: JSON.stringify(detail) };
}
