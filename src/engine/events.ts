/**
 * events — tells listeners what happened. Never needed for correctness: a failing listener harms
 * nothing, and when nobody listens nothing is even built.
 */

import type { EventKind, EventOf, SpoolEvent } from '../core/event.ts';

/** Hears of one kind of event, or of all with `'*'`. */
export type Listener<E extends SpoolEvent = SpoolEvent> = (event: E) => void;

/** The listeners of one spool or consumer. */
export class Events {
  readonly #byKind = new Map<EventKind | '*', Set<Listener>>();

  /** Adds a listener; the returned function takes it away again. */
  on<K extends EventKind>(kind: K | '*', listener: Listener<EventOf<K>>): () => void {
    const listeners = this.#byKind.get(kind) ?? new Set();
    listeners.add(listener as Listener);
    this.#byKind.set(kind, listeners);
    return () => {
      listeners.delete(listener as Listener);
      if (listeners.size === 0 && this.#byKind.get(kind) === listeners) this.#byKind.delete(kind);
    };
  }

  /** Whether anybody would hear this; ask before building an event on a hot path. */
  hears(kind: EventKind): boolean {
    return this.#byKind.size > 0 && (this.#byKind.has(kind) || this.#byKind.has('*'));
  }

  /** Tells all listeners; what they throw is theirs. */
  emit(event: SpoolEvent): void {
    if (this.#byKind.size === 0) return;
    this.#tell(this.#byKind.get(event.kind), event);
    this.#tell(this.#byKind.get('*'), event);
  }

  #tell(listeners: ReadonlySet<Listener> | undefined, event: SpoolEvent): void {
    if (listeners === undefined) return;
    for (const listener of listeners) {
      try {
        const answer: unknown = listener(event);
        if (answer instanceof Promise) answer.catch(() => undefined);
      } catch {
        // Swallowed on purpose: a listener that fails must not decide what happens to a message.
      }
    }
  }
}
