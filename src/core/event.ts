/**
 * event — everything that happens, as one typed union. Told to listeners, never needed for
 * correctness.
 */

import type { Millis } from './duration.ts';
import type { Because } from './entry.ts';
import type { Failure } from './failure.ts';
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
  | (AboutMessage & AboutAttempt & DeliveredDetails)
  | (AboutMessage & AboutAttempt & DeferredDetails)
  | (AboutMessage & AboutAttempt & BouncedDetails)
  | (AboutMessage & AboutAttempt & { readonly kind: 'held'; readonly because: Because })
  | (AboutMessage & AboutAttempt & { readonly kind: 'announced' })
  | (AboutMessage & AboutAttempt & { readonly kind: 'released' })
  | (AboutMessage & AboutAttempt & { readonly kind: 'lease-lost' })
  | (AboutMessage & AboutAttempt & { readonly kind: 'stale' })
  | (AboutMessage & { readonly kind: 'policy-unknown'; readonly policy: string })
  | (AboutMessage & { readonly kind: 'handler-missing' })
  | {
      readonly at: Millis;
      readonly kind: 'operator';
      readonly action: string;
      readonly by: string;
      readonly ids: readonly string[];
    }
  | { readonly at: Millis; readonly kind: 'paused' | 'resumed'; readonly topic: string }
  | { readonly at: Millis; readonly kind: 'engine-started' | 'engine-stopped' }
  | { readonly at: Millis; readonly kind: 'clock-jumped'; readonly byMs: number }
  | {
      readonly at: Millis;
      readonly kind: 'swept';
      readonly forgotten: number;
      readonly orphans: number;
    }
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

/** The name of an event. */
export type EventKind = SpoolEvent['kind'];

/** Every kind of event; written as a record, so that one that is forgotten does not compile. */
const KINDS: Readonly<Record<EventKind, true>> = {
  accepted: true,
  duplicate: true,
  claimed: true,
  started: true,
  delivered: true,
  deferred: true,
  bounced: true,
  held: true,
  announced: true,
  released: true,
  'lease-lost': true,
  stale: true,
  'policy-unknown': true,
  'handler-missing': true,
  operator: true,
  paused: true,
  resumed: true,
  'engine-started': true,
  'engine-stopped': true,
  'clock-jumped': true,
  swept: true,
  trouble: true,
};

/** What can be listened to: every kind of event, and `'*'` for all of them. */
export const LISTENED: readonly (EventKind | '*')[] = ['*', ...(Object.keys(KINDS) as EventKind[])];

/** The event of a name. */
export type EventOf<K extends EventKind> = Extract<SpoolEvent, { readonly kind: K }>;
