/**
 * events — emits events to listeners (`Events`), as an async iterator (`eventStream`), and to a
 * logger (`logEvent`). Never needed for correctness: a listener that fails harms nothing. Without
 * listeners the events that every message has are not built.
 */

import type { Millis } from '../core/duration.ts';
import type { Envelope, Status } from '../core/entry.ts';
import { codeIn, unreachable } from '../core/errors.ts';
import {
  type EventKind,
  type EventOf,
  LISTENER_KINDS,
  type SpoolEvent,
  type StreamedEvent,
  type StreamOptions,
} from '../core/event.ts';
import { checkOneOf } from '../core/limits.ts';
import { createRedactor } from '../core/redact.ts';
import type { Verdict } from '../core/verdict.ts';
import type { Logger, LogLevel } from '../ports/logger.ts';
import type { Claim, Source } from '../ports/source.ts';

/** Called with events of one kind, or with all. */
type Listener<E extends SpoolEvent = SpoolEvent> = (event: E) => void;

/** The listeners of one spool or consumer. */
export class Events {
  readonly #byKind = new Map<EventKind | '*', Set<Listener>>();

  /** Adds a listener; the returned function removes it. */
  on<K extends EventKind>(kind: K | '*', listener: Listener<EventOf<K>>): () => void {
    const listeners = this.#byKind.get(kind) ?? new Set();
    listeners.add(listener as Listener);
    this.#byKind.set(kind, listeners);
    return () => {
      listeners.delete(listener as Listener);
      if (listeners.size === 0 && this.#byKind.get(kind) === listeners) this.#byKind.delete(kind);
    };
  }

  /** Whether this has a listener; check before building an event on a hot path. */
  hears(kind: EventKind): boolean {
    return this.#byKind.size > 0 && (this.#byKind.has(kind) || this.#byKind.has('*'));
  }

  /** Calls all listeners; ignores what they throw. */
  emit(event: SpoolEvent): void {
    if (this.#byKind.size === 0) return;
    this.#call(this.#byKind.get(event.kind), event);
    this.#call(this.#byKind.get('*'), event);
  }

  #call(listeners: ReadonlySet<Listener> | undefined, event: SpoolEvent): void {
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

/** Reports that a message has come to be archived, if it has; call it once that is on record. */
export function emitArchived(
  events: Events,
  { id, topic }: Pick<Envelope, 'id' | 'topic'>,
  to: Status | 'remove',
): void {
  if (to === 'remove' || to.state !== 'archived' || !events.hears('archived')) return;
  const { updatedAt: at, ending = 'removed' } = to;
  events.emit({ at, kind: 'archived', id, topic, ending });
}

const KIND_OF: Readonly<Record<Verdict['kind'], EventKind>> = {
  ack: 'delivered',
  defer: 'deferred',
  bounce: 'bounced',
  hold: 'held',
  release: 'released',
};

/** Emits the event of a settled verdict; builds it only if there is a listener. */
export function emitVerdict(
  { events, source }: { readonly events: Events; readonly source: Source },
  claim: Claim,
  verdict: Verdict,
  tookMs: number,
): void {
  const isAnnounced = verdict.kind === 'ack' && claim.lane === 'notice';
  // A listener that counts deliveries must not have every deferral built as well.
  if (!events.hears(isAnnounced ? 'announced' : KIND_OF[verdict.kind])) return;
  const about = {
    at: source.now(),
    id: claim.id,
    topic: claim.envelope.topic,
    lane: claim.lane,
    attempt: claim.attempt,
  };
  switch (verdict.kind) {
    case 'ack':
      if (isAnnounced) events.emit({ ...about, kind: 'announced' });
      else {
        // A clock that was set back must not make a message younger than new.
        const ageMs = Math.max(0, about.at - claim.envelope.enqueuedAt);
        events.emit({ ...about, kind: 'delivered', tookMs, ageMs });
      }
      return;
    case 'defer': {
      // Not computed from the current time: that is later than when it was written.
      const dueAt = source.deferredTo?.(claim) ?? about.at + verdict.delayMs;
      const { because, failure } = verdict;
      events.emit({
        ...about,
        kind: 'deferred',
        dueAt,
        because,
        ...(failure === undefined ? {} : { failure }),
      });
      return;
    }
    case 'bounce': {
      const { because, spent, failure } = verdict;
      events.emit({
        ...about,
        kind: 'bounced',
        because,
        spent,
        ...(failure === undefined ? {} : { failure }),
      });
      return;
    }
    case 'hold':
      events.emit({ ...about, kind: 'held', because: verdict.because });
      return;
    case 'release':
      events.emit({ ...about, kind: 'released' });
      return;
    default:
      unreachable(verdict);
  }
}

// Events as an async iterator with limited memory.
//
// Promise: it has all events since the call, also those before the first read; events that a slow
// reader misses are counted, and the count is reported.

/**
 * Maximum number of events that wait for a slow reader; more are counted as missed. Also in
 * docs/reference/events.md.
 */
const WAITING_MAX = 1_000;

/** A stream of events from now on, until the signal fires or the loop is left. */
export function eventStream(
  events: Pick<Events, 'on'>,
  now: () => Millis,
  { signal, kinds }: StreamOptions = {},
): AsyncIterableIterator<StreamedEvent> {
  const heard = kinds === undefined ? (['*'] as const) : [...new Set(kinds)];
  for (const kind of heard) checkOneOf('kinds', kind, LISTENER_KINDS);
  return new EventStream(events, now, { heard, signal });
}

interface StreamFilter {
  readonly heard: readonly (SpoolEvent['kind'] | '*')[];
  readonly signal: AbortSignal | undefined;
}

class EventStream implements AsyncIterableIterator<StreamedEvent> {
  readonly #now: () => Millis;
  readonly #signal: AbortSignal | undefined;
  readonly #stops: (() => void)[];
  #waiting: StreamedEvent[] = [];
  #missed = 0;
  #isOver = false;
  /** Readers that wait for the next event. */
  #readers: ((result: IteratorResult<StreamedEvent>) => void)[] = [];

  constructor(events: Pick<Events, 'on'>, now: () => Millis, { heard, signal }: StreamFilter) {
    this.#now = now;
    this.#signal = signal;
    this.#stops = heard.map((kind) => events.on(kind, (event) => this.#add(event)));
    signal?.addEventListener('abort', this.#end, { once: true });
    if (signal?.aborted === true) this.#end();
  }

  [Symbol.asyncIterator](): AsyncIterableIterator<StreamedEvent> {
    return this;
  }

  next(): Promise<IteratorResult<StreamedEvent>> {
    const event = this.#isOver ? undefined : this.#take();
    if (event !== undefined) return Promise.resolve({ done: false, value: event });
    if (this.#isOver) return Promise.resolve({ done: true, value: undefined });
    return new Promise((resolve) => this.#readers.push(resolve));
  }

  /** The loop is left. */
  return(): Promise<IteratorResult<StreamedEvent>> {
    this.#end();
    return Promise.resolve({ done: true, value: undefined });
  }

  #add(event: SpoolEvent): void {
    const reader = this.#readers.shift();
    if (reader !== undefined) reader({ done: false, value: event });
    else if (this.#waiting.length >= WAITING_MAX) this.#missed += 1;
    else this.#waiting.push(...this.#takeMissed(), event);
  }

  #take(): StreamedEvent | undefined {
    return this.#waiting.shift() ?? this.#takeMissed()[0];
  }

  /** The number of missed events as an event; it comes before the next event. */
  #takeMissed(): readonly StreamedEvent[] {
    if (this.#missed === 0) return [];
    const count = this.#missed;
    this.#missed = 0;
    return [{ at: this.#now(), kind: 'missed', count }];
  }

  readonly #end = (): void => {
    this.#isOver = true;
    this.#waiting = [];
    this.#signal?.removeEventListener('abort', this.#end);
    for (const stop of this.#stops.splice(0)) stop();
    for (const reader of this.#readers.splice(0)) reader({ done: true, value: undefined });
  };
}

// One line per event to an injected logger: stable keys, never a body or a header.
//
// Called for spools, consumers and relays. The keys of each kind are in docs/reference/logs.md; a
// test compares the two.
/** The fields of an event that decide its log level. */
interface LoggedEvent {
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
  'cleaned-up': 'debug',
};

/** The log level of an event; `info` unless stated above. */
export function levelOf({ kind, phase, state, error }: LoggedEvent): LogLevel {
  if (kind === 'relay') return state === 'open' ? 'warn' : 'info';
  if (kind === 'alert') return phase === 'fired' ? 'warn' : 'info';
  if (kind === 'sweep') return error === undefined ? 'info' : 'error';
  return (Object.hasOwn(LEVEL_OF, kind) ? LEVEL_OF[kind] : undefined) ?? 'info';
}

const redactor = createRedactor();

/**
 * Writes an event to the logger at its level. Returns what the logger returned: if that is a
 * promise, the caller handles its failure.
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
