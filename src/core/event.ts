/**
 * event — the events of spools, consumers, relays and alerts as one typed union, the list of their
 * kinds, and the options of an event stream. For listeners; never needed for correctness.
 */

import type { Millis } from './duration.ts';
import type { Because, Ending } from './entry.ts';
import type { Failure } from './failure.ts';
import type { Outcome } from './verdict.ts';
import type { Lane, State } from './state.ts';

/** What most events say about the message. */
interface AboutMessage {
  readonly at: Millis;
  readonly id: string;
  readonly topic: string;
}

/** Everything that can happen; `kind` tells which. */
export type SpoolEvent =
  | (AboutMessage & { readonly kind: 'accepted'; readonly state: State; readonly dueAt: Millis })
  | (AboutMessage & { readonly kind: 'duplicate'; readonly duplicateOf: string })
  | (AboutMessage & AboutAttempt & { readonly kind: 'claimed' })
  | (AboutMessage & AboutAttempt & { readonly kind: 'started' })
  | (AboutMessage & AboutAttempt & EndedDetails)
  | (AboutMessage & AboutAttempt & DeliveredDetails)
  | (AboutMessage & AboutAttempt & DeferredDetails)
  | (AboutMessage & AboutAttempt & BouncedDetails)
  | (AboutMessage & AboutAttempt & { readonly kind: 'held'; readonly because: Because })
  | (AboutMessage & AboutAttempt & { readonly kind: 'announced' })
  | (AboutMessage & AboutAttempt & { readonly kind: 'released' })
  | (AboutMessage & AboutAttempt & { readonly kind: 'lease-lost' })
  | (AboutMessage & AboutAttempt & { readonly kind: 'stale' })
  | (AboutMessage & { readonly kind: 'archived'; readonly ending: Ending })
  | (AboutMessage & { readonly kind: 'removed'; readonly by: string })
  | (AboutMessage & { readonly kind: 'policy-unknown'; readonly policy: string })
  | (AboutMessage & { readonly kind: 'handler-missing' })
  | {
      readonly at: Millis;
      readonly kind: 'operator';
      readonly action: string;
      readonly by: string;
      readonly ids: readonly string[];
    }
  | { readonly at: Millis; readonly kind: 'paused'; readonly topic: string }
  | { readonly at: Millis; readonly kind: 'resumed'; readonly topic: string }
  | { readonly at: Millis; readonly kind: 'engine-started' }
  | { readonly at: Millis; readonly kind: 'engine-stopped' }
  | { readonly at: Millis; readonly kind: 'clock-jumped'; readonly byMs: number }
  | {
      readonly at: Millis;
      readonly kind: 'cleaned-up';
      readonly forgotten: number;
      readonly orphans: number;
    }
  | TopologyEvent
  | RelayEvent
  | SweepEvent
  | ReplayEvent
  | AlertEvent
  | {
      readonly at: Millis;
      readonly kind: 'trouble';
      readonly doing: string;
      readonly error: Error;
    };

interface AboutAttempt {
  readonly lane: Lane;
  readonly attempt: number;
}

interface EndedDetails {
  /** The handler has answered, or its time is over. Emitted before the verdict is stored. */
  readonly kind: 'ended';
  /** `given up`: we stop, and did not wait for it any longer. */
  readonly outcome: Outcome['kind'] | 'given up';
  /** `delivered`, or the code of the failure, postponement or hold; `released` when given up. */
  readonly code: string;
  /** Time in the handler. */
  readonly tookMs: number;
}

interface DeliveredDetails {
  readonly kind: 'delivered';
  /** Time in the handler. */
  readonly tookMs: number;
  /** Since the enqueue. */
  readonly ageMs: number;
}

interface DeferredDetails {
  readonly kind: 'deferred';
  readonly dueAt: Millis;
  readonly because: Because;
  readonly failure?: Failure;
}

interface BouncedDetails {
  readonly kind: 'bounced';
  readonly because: Because;
  readonly spent: boolean;
  readonly failure?: Failure;
}

/** A consumer has made sure of what it needs at the broker. */
interface TopologyEvent {
  readonly at: Millis;
  readonly kind: 'topology';
  readonly queue: string;
  /** What was done about it: declared, or only compared. */
  readonly act: 'applied' | 'verified';
  readonly exchanges: number;
  readonly queues: number;
  readonly bindings: number;
}

/** The circuit breaker of a relay changed its state: whether the target answers. */
interface RelayEvent {
  readonly at: Millis;
  readonly kind: 'relay';
  readonly target: string;
  readonly state: 'closed' | 'open' | 'half-open';
}

/** A dead queue was swept. */
interface SweepEvent {
  readonly at: Millis;
  readonly kind: 'sweep';
  readonly queue: string;
  readonly target: string;
  readonly moved: number;
  readonly left: number;
  /** Why it ended early. */
  readonly error?: string;
}

/** A replay has come to another state. */
interface ReplayEvent {
  readonly at: Millis;
  readonly kind: 'replay';
  readonly replay: string;
  readonly state: 'planned' | 'running' | 'paused' | 'stopped' | 'cancelled' | 'done';
  readonly by: string;
  readonly sent: number;
  readonly failed: number;
  readonly again: number;
  readonly because?: string;
}

/** A rule of the alerts has fired, or what it fired for is over. */
interface AlertEvent {
  readonly at: Millis;
  readonly kind: 'alert';
  readonly rule: string;
  readonly phase: 'fired' | 'resolved';
  /** Counts the firings of the rule, from 1; a resolution has the number of its firing. */
  readonly episode: number;
  /** What holds, in one sentence. */
  readonly text: string;
}

/** The name of an event. */
export type EventKind = SpoolEvent['kind'];

/** Every kind of event; written as a record, so that one that is forgotten does not compile. */
const KINDS: Readonly<Record<EventKind, true>> = {
  accepted: true,
  duplicate: true,
  claimed: true,
  started: true,
  ended: true,
  delivered: true,
  deferred: true,
  bounced: true,
  held: true,
  announced: true,
  released: true,
  'lease-lost': true,
  stale: true,
  archived: true,
  removed: true,
  'policy-unknown': true,
  'handler-missing': true,
  operator: true,
  paused: true,
  resumed: true,
  'engine-started': true,
  'engine-stopped': true,
  'clock-jumped': true,
  'cleaned-up': true,
  topology: true,
  relay: true,
  sweep: true,
  replay: true,
  alert: true,
  trouble: true,
};

/** What can be listened to: every kind of event, and `'*'` for all of them. */
export const LISTENER_KINDS: readonly (EventKind | '*')[] = [
  '*',
  ...(Object.keys(KINDS) as EventKind[]),
];

/** The event of a name. */
export type EventOf<K extends EventKind> = Extract<SpoolEvent, { readonly kind: K }>;

/** An event of a stream: `missed` stands for the events that a slow reader did not get. */
export type StreamedEvent = SpoolEvent | MissedEvents;

/** This many events were not reported: the reader was too slow. */
export interface MissedEvents {
  readonly at: Millis;
  readonly kind: 'missed';
  readonly count: number;
}

/** What to hear of, and until when. */
export interface StreamOptions {
  /** Ends the stream; a loop over it may also be left with `break`. */
  readonly signal?: AbortSignal;
  /** Default all. */
  readonly kinds?: readonly EventKind[];
}
