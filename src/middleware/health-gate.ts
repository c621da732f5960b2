/** healthGate — no delivery while what it needs says that it is not well. */

import { DAY_MS, type Duration, durationMs, HOUR_MS, MINUTE_MS } from '../core/duration.ts';
import type { Clock } from '../ports/clock.ts';
import type { Middleware } from '../ports/handler.ts';
import { systemClock } from '../system/clock.ts';
import { withTimeout } from '../system/wait.ts';
import { checkFunction, checkOptions } from './options.ts';
import { notNow } from './run.ts';

/** What `healthGate()` takes. */
export interface HealthGateOptions {
  /** Only `true` is healthy; a throw, or no answer within `timeout`, is not. */
  readonly isHealthy: () => boolean | Promise<boolean>;
  /** An answer is believed for so long before it is asked again, `'5s'` unless given. */
  readonly every?: Duration;
  /** No answer for so long counts as unhealthy, `'2s'` unless given. */
  readonly timeout?: Duration;
  /** A delivery that finds it unhealthy comes back after this, `'30s'` unless given. */
  readonly postpone?: Duration;
  /** The machine's unless given; a test gives its virtual one. */
  readonly clock?: Clock;
}

/** Postpones deliveries, at no cost of an attempt, while `isHealthy()` is not true. */
export function healthGate(options: HealthGateOptions): Middleware {
  checkOptions('healthGate', options, ['isHealthy', 'every', 'timeout', 'postpone', 'clock']);
  const { isHealthy, every = '5s', timeout = '2s', postpone = '30s' } = options;
  const { clock = systemClock } = options;
  checkFunction('isHealthy', isHealthy);
  const everyMs = durationMs(every, 'every', { maxMs: HOUR_MS });
  const timeoutMs = durationMs(timeout, 'timeout', { minMs: 1, maxMs: MINUTE_MS });
  const postponeMs = durationMs(postpone, 'postpone', { minMs: 1, maxMs: DAY_MS });
  let asking: Promise<boolean> | undefined;
  let last: { readonly isHealthy: boolean; readonly endsAt: number } | undefined;

  async function askAnew(): Promise<boolean> {
    const answer = await answerWithin(clock, timeoutMs, isHealthy);
    last = { isHealthy: answer, endsAt: clock.monotonic() + everyMs };
    asking = undefined;
    return answer;
  }

  return async (_, next) => {
    const isKnown = last !== undefined && clock.monotonic() < last.endsAt;
    // Many deliveries that come while it is asked wait for the one answer.
    const answer = isKnown && last !== undefined ? last.isHealthy : await (asking ??= askAnew());
    if (answer) return next();
    return notNow(postponeMs, 'health.down', 'what this delivery needs is not healthy');
  };
}

/** Its answer, or false when there is none in time. */
function answerWithin(
  clock: Clock,
  timeoutMs: number,
  isHealthy: HealthGateOptions['isHealthy'],
): Promise<boolean> {
  const no = (): boolean => false;
  // In a function of its own, so that a synchronous throw is a rejection like any other.
  const ask = async (): Promise<unknown> => isHealthy();
  return withTimeout(
    clock,
    timeoutMs,
    ask().then((answer) => answer === true, no),
    no,
  );
}
