/** logging — one line per attempt, when it ends. No body, no header, no note is ever in it. */

import { unreachable } from '../core/errors.ts';
import type { Outcome } from '../core/verdict.ts';
import { redact } from '../core/redact.ts';
import type { Clock } from '../ports/clock.ts';
import type { Middleware } from '../ports/handler.ts';
import type { Logger } from '../ports/logger.ts';
import { systemClock } from '../system/clock.ts';
import { checkMethods, checkOptions } from './options.ts';
import { asItWas, harmlessly, resultOf } from './run.ts';

/** What `logging()` takes. */
export interface LoggingOptions {
  /** Fields first, text second, as pino has it. */
  readonly logger: Logger;
  /** The machine's unless given; a test gives its virtual one. */
  readonly clock?: Clock;
}

/**
 * Logs how each attempt ended: delivered and postponed as info, a transient failure as warn, a
 * permanent one and a held message as error; its start as debug.
 */
export function logging(options: LoggingOptions): Middleware {
  checkOptions('logging', options, ['logger', 'clock']);
  const { logger, clock = systemClock } = options;
  checkMethods('logger', logger, ['debug', 'info', 'warn', 'error']);
  return async ({ id, topic, lane, attempt }, next) => {
    const about = { id, topic, lane, attempt };
    harmlessly(() => logger.debug(about, 'attempt started'));
    const startedAt = clock.monotonic();
    const result = await resultOf(next);
    const tookMs = Math.round(clock.monotonic() - startedAt);
    const { outcome } = result;
    const fields = redact({ ...about, outcome: outcome.kind, tookMs, ...detailsOf(outcome) });
    harmlessly(() => logger[levelOf(outcome)](fields, `attempt ended: ${outcome.kind}`));
    return asItWas(result);
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
