/**
 * serialize-event — a spool's events as another process can read them.
 */

import { codeIn } from '../../core/errors.ts';
import type { StreamedEvent } from '../../core/event.ts';
import type { SpoolInternals } from '../internals.ts';
import type { EventOptions, SerializedEvent } from './operator.ts';

/** What happens from now on, until the signal fires. */
export function serializedEvents(
  spool: SpoolInternals,
  options: EventOptions,
): AsyncIterable<SerializedEvent> {
  // Listens from the call on, not from the first look: what happens in between is heard.
  const stream = spool.events(options);
  return (async function* () {
    for await (const event of stream) yield serializeEvent(event);
  })();
}

/** An event as another process can read it. */
export function serializeEvent(event: StreamedEvent): SerializedEvent {
  if (event.kind !== 'trouble') return event;
  return { ...event, error: event.error.message, ...codeIn(event.error) };
}
