/**
 * log — one line per event to an injected logger: stable keys, id first, never a body or a header.
 */

import type { SpoolEvent } from '../core/event.ts';
import type { Logger } from '../ports/logger.ts';

/** Writes an event to the logger at the level it deserves. */
export function logEvent(logger: Logger, event: SpoolEvent): void {
  const { kind, ...fields } = event;
  switch (kind) {
    case 'trouble':
      logger.error({ ...fields, error: event.error.message }, `trouble ${event.doing}`);
      return;
    case 'bounced':
    case 'held':
    case 'stale':
    case 'lease-lost':
    case 'policy-unknown':
    case 'handler-missing':
    case 'clock-jumped':
      logger.warn(fields, kind);
      return;
    case 'claimed':
    case 'started':
    case 'ended':
    case 'accepted':
    case 'duplicate':
      logger.debug(fields, kind);
      return;
    default:
      logger.info(fields, kind);
  }
}
