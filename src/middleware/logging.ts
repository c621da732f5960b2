/**
 * logging — middleware that logs each attempt: one line when it starts (debug), one when it ends.
 * Promise: no body, header or note is ever in a line.
 */

import { unreachable } from '../core/errors.ts';
import type { Option } from '../core/option-table.ts';
import type { Outcome } from '../core/verdict.ts';
import { redact } from '../core/redact.ts';
import type { Clock } from '../ports/clock.ts';
import type { Middleware } from '../ports/handler.ts';
import type { Logger } from '../ports/logger.ts';
import { systemClock } from '../system/clock.ts';
import { checkMethods, checkMiddlewareOptions, CLOCK } from './options.ts';
import { returnOrRethrow, withoutThrowing, resultOf } from './run.ts';

const LOGGING = {
  logger: {
    kind: 'code',
    ts: 'Logger',
    required: true,
    about: 'takes fields first and text second, as pino does',
  },
  clock: CLOCK,
} as const;

/** Every option of `logging()`. */
export const LOGGING_OPTIONS: Readonly<Record<keyof LoggingOptions, Option>> = LOGGING;

/** What `logging()` takes. */
export interface LoggingOptions {
  // Written by `npm run options`: edit the table of options instead.
  /** Takes fields first and text second, as pino does. */
  readonly logger: Logger;
  /** Time; the machine's unless given, a test gives its virtual one. */
  readonly clock?: Clock;
}

/**
 * Logs how each attempt ended: delivered and postponed as info, a transient failure as warn, a
 * permanent one and a held message as error; its start as debug.
 */
export function logging(options: LoggingOptions): Middleware {
  checkMiddlewareOptions('logging', options, LOGGING);
  const { logger, clock = systemClock } = options;
  checkMethods('logger', logger, ['debug', 'info', 'warn', 'error']);
  return async ({ id, topic, lane, attempt }, next) => {
    const about = { id, topic, lane, attempt };
    withoutThrowing(() => logger.debug(about, 'attempt started'));
    const startedAt = clock.monotonic();
    const result = await resultOf(next);
    const tookMs = Math.round(clock.monotonic() - startedAt);
    const { outcome } = result;
    const fields = redact({ ...about, outcome: outcome.kind, tookMs, ...detailsOf(outcome) });
    withoutThrowing(() => logger[levelOf(outcome)](fields, `attempt ended: ${outcome.kind}`));
    return returnOrRethrow(result);
  };
}

function levelOf(outcome: Outcome): 'info' | 'warn' | 'error' {
  switch (outcome.kind) {
    case 'delivered':
    case 'postponed':
      return 'info';
    case 'failed':
      return outcome.failure.permanence === 'transient' ? 'warn' : 'error';
    case 'held':
      return 'error';
    default:
      return unreachable(outcome);
  }
}

function detailsOf(outcome: Outcome): object {
  switch (outcome.kind) {
    case 'delivered':
      return {};
    case 'failed': {
      const { permanence, code, reason } = outcome.failure;
      return { permanence, code, reason };
    }
    case 'postponed':
      return { delayMs: outcome.delayMs, code: outcome.code, reason: outcome.reason };
    case 'held':
      return { code: outcome.code, reason: outcome.reason };
    default:
      return unreachable(outcome);
  }
}
