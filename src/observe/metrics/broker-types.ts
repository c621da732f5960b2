/**
 * broker-types — consumers, publishers, relays and outboxes as far as metrics read them, and what
 * may be said about each. An outbox is known by its shape only: its room is not seen from here.
 */

import type { Millis } from '../../core/duration.ts';
import type { EngineLoad } from '../../engine/load.ts';
import type { Consumer } from '../../rabbit/consume/consumer.ts';
import type { Management } from '../../rabbit/admin/management/index.ts';
import type { ManagementOptions } from '../../rabbit/admin/management/options.ts';
import type { Publisher } from '../../rabbit/publish/publisher.ts';
import type { Spool } from '../../spool/spool.ts';
import type { Watchable } from './types.ts';

/** A consumer, as far as metrics read it. */
export type WatchedConsumer = Watchable & Pick<Consumer, 'queue' | 'load' | 'plan' | 'stats'>;

/** A publisher, as far as metrics read it. */
export type WatchedPublisher = Pick<Publisher, 'load'>;

/** Whom to ask about queues besides the consumer's own connection. */
export interface WatchConsumerOptions {
  /** A client of yours, or where one is made; without it depths and consumers only are told. */
  readonly management?: Management | ManagementOptions;
  /** The label `exchange_name` of the alias `outbox`; default: none. */
  readonly exchange?: string;
}

/** How a publisher is called. */
export interface WatchPublisherOptions {
  /** The label `publisher`. */
  readonly name: string;
}

/** A relay, as far as metrics read it. */
export interface WatchedRelay extends Watchable {
  readonly load: EngineLoad & {
    /** Since when the target does not answer; none: it does. */
    readonly downSince?: Millis;
    /** Routing keys that an operator has paused. */
    readonly paused: readonly string[];
  };
}

/** What tells the backlog: an outbox, or whatever has a spool over its messages. */
export interface WatchedOutbox {
  readonly spool: Pick<Spool, 'tally' | 'page' | 'now'>;
}

/** How a relay is called. */
export interface WatchRelayOptions {
  /** The label `source`; default `relay`. Two of one name cannot be watched at once. */
  readonly source?: string;
  /** The label `exchange_name` of the alias `outbox`; default: none. */
  readonly exchange?: string;
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
