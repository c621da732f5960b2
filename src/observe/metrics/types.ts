/**
 * types — what metrics are made with, what they watch, and what they are.
 *
 * What is watched is asked for by its shape, and by no more of it than is read: a spool, a
 * consumer, a relay, or something that looks like one.
 */

import type { Millis } from '../../core/duration.ts';
import type { EventKind, EventOf } from '../../core/event.ts';
import type { Forecast } from '../../core/forecast.ts';
import type { EngineLoad } from '../../engine/parts.ts';
import type { Consumer } from '../../rabbit/consume/consumer.ts';
import type { Publisher } from '../../rabbit/publish/publisher.ts';
import type { Spool } from '../../spool/spool.ts';

/** A source of events: a spool, a consumer, a relay. */
export interface Watchable {
  on<K extends EventKind>(kind: K, listener: (event: EventOf<K>) => void): () => void;
}

/** Whatever has an engine at work. */
export interface LoadSource {
  readonly load: EngineLoad;
}

/** A forecast, as far as metrics read it. */
export type WatchedForecast = Pick<Forecast, 'drainsInMs' | 'fullInMs'>;

/** Where a rule of the alerts stands. */
export interface WatchedAlert {
  readonly rule: string;
  readonly isFiring: boolean;
}

/** What a scrape answers. */
export interface MetricsText {
  /** The content type. */
  readonly type: string;
  readonly text: string;
}

// Consumers, publishers, relays and outboxes as far as metrics read them, and what
// may be said about each. An outbox is known by its shape only: its room is not seen from here.

/** A consumer, as far as metrics read it. */
export type WatchedConsumer = Watchable & Pick<Consumer, 'queue' | 'load' | 'plan' | 'stats'>;

/** A publisher, as far as metrics read it. */
export type WatchedPublisher = Pick<Publisher, 'load'>;

/** A relay, as far as metrics read it. */
export interface WatchedRelay extends Watchable {
  readonly load: EngineLoad & {
    /** Since when the target does not answer; none: it does. */
    readonly downSince?: Millis;
    /** Routing keys that an operator has paused. */
    readonly paused: readonly string[];
  };
}

/** The source of the backlog: an outbox, or anything that has a spool over its messages. */
export interface WatchedOutbox {
  readonly spool: Spool;
}

/** What a run of a sweep came to, as `sweepQueues` of `respool/rabbit` and `dlq sweep` know it. */
export interface SweepCount {
  readonly endedAt: Millis;
  readonly tookMs: number;
  /** Whether every queue was gone through as it should. */
  readonly isWell: boolean;
  readonly reports: readonly {
    readonly queue: string;
    readonly moved: number;
    readonly left: number;
    readonly seen: number;
    readonly error?: string;
  }[];
  /** Why nothing could be swept at all. */
  readonly error?: unknown;
}
