/**
 * with-redaction — a logger whose lines hold no secrets: fields and text pass through `redact`
 * before they reach the one that was given. For the lines of your own; ours pass through it anyway.
 */

import { textOf } from '../../core/errors.ts';
import { createRedactor, type RedactOptions } from '../../core/redact.ts';
import type { Logger, LogLevel } from '../../ports/logger.ts';

/** The logger, without what must not be seen. Only the logger itself can throw. */
export function withRedaction(logger: Logger, options: RedactOptions = {}): Logger {
  const redactor = createRedactor(options);
  const isEnabled = (level: LogLevel): boolean => logger.isLevelEnabled?.(level) ?? true;
  const at =
    (level: LogLevel): Logger[LogLevel] =>
    (fields, text) => {
      if (!isEnabled(level)) return;
      // pino takes a text alone too, and no compiler stands between it and every program.
      const isObject = typeof fields === 'object' && fields !== null;
      const said: unknown = isObject ? text : fields;
      logger[level](isObject ? redactor.fields(fields) : {}, redactor.text(textOf(said ?? '')));
    };
  return {
    debug: at('debug'),
    info: at('info'),
    warn: at('warn'),
    error: at('error'),
    isLevelEnabled: isEnabled,
  };
}
