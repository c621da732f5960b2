/** healthGate — middleware that postpones deliveries while a health check does not pass. */

import type { Duration } from '../core/duration.ts';
import type { Option } from '../core/option-table.ts';
import type { Clock } from '../ports/clock.ts';
import type { Middleware } from '../ports/handler.ts';
import { systemClock } from '../system/clock.ts';
import { withTimeout } from '../system/wait.ts';
import { checkFunction, checkMiddlewareOptions, CLOCK } from './options.ts';
import { postponedOutcome } from './run.ts';

const HEALTH_GATE = {
  isHealthy: {
    kind: 'code',
    ts: '() => boolean | Promise<boolean>',
    required: true,
    about: 'only `true` is healthy; a throw, or no answer within `timeout`, is not',
  },
  every: {
    kind: 'duration',
    max: '1h',
    default: '5s',
    about: 'an answer is reused for this long before it is asked again',
  },
  timeout: {
    kind: 'duration',
    min: '1ms',
    max: '1m',
    default: '2s',
    about: 'no answer for this long counts as unhealthy',
  },
  postpone: {
    kind: 'duration',
    min: '1ms',
    max: '1d',
    default: '30s',
    about: 'a delivery that finds it unhealthy comes back after this',
  },
  clock: CLOCK,
} as const;

/** Every option of `healthGate()`. */
export const HEALTH_GATE_OPTIONS: Readonly<Record<keyof HealthGateOptions, Option>> = HEALTH_GATE;

/** What `healthGate()` takes. */
export interface HealthGateOptions {
  // Written by `npm run options`: edit the table of options instead.
  /** Only `true` is healthy; a throw, or no answer within `timeout`, is not. */
  readonly isHealthy: () => boolean | Promise<boolean>;
  /** An answer is reused for this long before it is asked again. Up to 1h; default 5s. */
  readonly every?: Duration;
  /** No answer for this long counts as unhealthy. 1ms to 1m; default 2s. */
  readonly timeout?: Duration;
  /** A delivery that finds it unhealthy comes back after this. 1ms to 1d; default 30s. */
  readonly postpone?: Duration;
  /** Time; the machine's unless given, a test gives its virtual one. */
  readonly clock?: Clock;
}

/** Postpones deliveries, at no cost of an attempt, while `isHealthy()` is not true. */
export function healthGate(options: HealthGateOptions): Middleware {
  const { everyMs, timeoutMs, postponeMs } = checkMiddlewareOptions(
    'healthGate',
    options,
    HEALTH_GATE,
  );
  const { isHealthy, clock = systemClock } = options;
  checkFunction('isHealthy', isHealthy);
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
    return postponedOutcome(postponeMs, 'health.down', 'what this delivery needs is not healthy');
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
