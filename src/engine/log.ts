/**
 * log — one line per event to an injected logger: stable keys, never a body or a header.
 *
 * Called for spools, consumers and relays. The keys of each kind are in docs/reference/logs.md; a
 * test compares the two.
 */

import { codeIn } from '../core/errors.ts';
import type { EventKind, SpoolEvent } from '../core/event.ts';
import { createRedactor } from '../core/redact.ts';
import type { Logger, LogLevel } from '../ports/logger.ts';

/** What tells how much an event matters. */
interface Happened {
  readonly kind: EventKind | 'missed';
  readonly phase?: unknown;
  readonly state?: unknown;
  readonly error?: unknown;
}

const LEVEL_OF: Readonly<Partial<Record<EventKind | 'missed', LogLevel>>> = {
  trouble: 'error',
  bounced: 'warn',
  held: 'warn',
  stale: 'warn',
  'lease-lost': 'warn',
  'policy-unknown': 'warn',
  'handler-missing': 'warn',
  'clock-jumped': 'warn',
  missed: 'warn',
  claimed: 'debug',
  started: 'debug',
  ended: 'debug',
  accepted: 'debug',
  duplicate: 'debug',
  archived: 'debug',
  swept: 'debug',
};

/** How much an event matters; what is not said above is `info`. */
export function levelOf({ kind, phase, state, error }: Happened): LogLevel {
  if (kind === 'relay') return state === 'shut' ? 'warn' : 'info';
  if (kind === 'alert') return phase === 'fired' ? 'warn' : 'info';
  if (kind === 'sweep') return error === undefined ? 'info' : 'error';
  return (Object.hasOwn(LEVEL_OF, kind) ? LEVEL_OF[kind] : undefined) ?? 'info';
}

const redactor = createRedactor();

/**
 * Writes an event to the logger at the level it deserves. Gives what the logger answers: of one
 * that is written async, the caller that calls takes the failure.
 */
export function logEvent(logger: Logger, event: SpoolEvent): unknown {
  const level = levelOf(event);
  if (logger.isLevelEnabled?.(level) === false) return undefined;
  if (event.kind === 'trouble') {
    const { error, ...fields } = event;
    const line = redactor.fields({ ...fields, error: error.message, ...codeIn(error) });
    return logger[level](line, redactor.text(`trouble ${event.doing}`));
  }
  return logger[level](redactor.fields(event), event.kind);
}
