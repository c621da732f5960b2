/** log-lines — loggers whose lines go to the log of the service. */

import { withRedaction } from '../../../observe/logs/with-redaction.ts';
import type { Logger } from '../../../ports/logger.ts';
import { jsonLine } from '../../../observe/logs/safe-text--safe.ts';
import type { ServeLog } from './serve-log.ts';

/** What the service itself says matters when something is refused or fails. */
export function loggerOf(log: ServeLog, names: readonly string[]): Logger {
  // Hidden before it becomes a text, in which a name tells nothing any more.
  return withRedaction(
    {
      debug: () => undefined,
      info: () => undefined,
      warn: (fields, text) => log.say('warn', `${text} ${jsonLine(fields)}`, fields),
      error: (fields, text) => log.say('error', `${text} ${jsonLine(fields)}`, fields),
    },
    { names },
  );
}

/** What stores say of their servers comes once, when they open. */
export function storeLoggerOf(log: ServeLog, names: readonly string[]): Logger {
  return {
    ...loggerOf(log, names),
    info: (fields, text) => log.say('info', text, fields),
    warn: (fields, text) => log.say('warn', text, fields),
  };
}
