/**
 * told-events — a spool's events as a stream that a slow listener cannot make grow.
 */

import type { SpoolEvent } from '../core/event.ts';
import type { Spool } from '../spool/spool.ts';
import type { EventOptions, ToldEvent } from './control.ts';

/** Events that wait for a slow listener, at the most; what is more is counted as missed. */
const WAITING_MAX = 1_000;

/** What happens from now on, until the signal fires. */
export function toldEvents(spool: Spool, options: EventOptions): AsyncIterable<ToldEvent> {
  const { signal, kinds } = options;
  const waiting: ToldEvent[] = [];
  let missed = 0;
  let wake: (() => void) | undefined;
  const hear = (event: SpoolEvent): void => {
    if (waiting.length < WAITING_MAX) waiting.push(told(event));
    else missed += 1;
    wake?.();
  };
  // Listens from the call on, not from the first look: what happens in between is heard.
  const stops = (kinds ?? (['*'] as const)).map((kind) => spool.on(kind, hear));
  const onAbort = (): void => wake?.();
  signal.addEventListener('abort', onAbort, { once: true });
  return (async function* () {
    try {
      while (!signal.aborted) {
        const event = waiting.shift();
        if (event !== undefined) yield event;
        else if (missed > 0) {
          const count = missed;
          missed = 0;
          yield { at: spool.now(), kind: 'missed', count };
        } else {
          await new Promise<void>((resolve) => {
            wake = resolve;
          });
        }
      }
    } finally {
      signal.removeEventListener('abort', onAbort);
      for (const stop of stops) stop();
    }
  })();
}

/** An event as another process can read it. */
export function told(event: SpoolEvent): ToldEvent {
  return event.kind === 'trouble' ? { ...event, error: event.error.message } : event;
}
