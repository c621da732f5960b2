/**
 * types — what metrics are made with, what they watch, and what they are.
 *
 * What is watched is asked for by its shape, and by no more of it than is read: a spool, a
 * consumer, a relay, or something that looks like one.
 */

import type { Registry } from '@prometheus-io/client';
import type { Duration, Millis } from '../../core/duration.ts';
import type { EventKind, EventOf } from '../../core/event.ts';
import type { Forecast } from '../../core/forecast.ts';
import type { EngineLoad } from '../../engine/parts.ts';
import type { Clock } from '../../ports/clock.ts';
import type { Management } from '../../rabbit/management/management.ts';
import type { ManagementOptions } from '../../rabbit/management/http.ts';
import type { Consumer } from '../../rabbit/consume/consumer.ts';
import type { Publisher } from '../../rabbit/publish/publisher.ts';
import type { Spool } from '../../spool/spool.ts';

/** Names that other systems know the same numbers by. */
export const METRIC_ALIASES = ['goqueue', 'outbox'] as const;
/** A system whose metric names are written as well. */
export type MetricAlias = (typeof METRIC_ALIASES)[number];

/** How metrics are kept. */
export interface MetricsOptions {
  /** Where they are registered; default a registry of their own. */
  readonly registry?: Registry;
  /** What every name begins with, without the `_`; default `respool`. */
  readonly prefix?: string;
  /** Names of other systems to give the same numbers under, besides; default none. */
  readonly aliases?: readonly MetricAlias[];
  /** Topics with a label of their own, 1 to 10,000, default 100; the rest is `other`. */
  readonly topicsMax?: number;
  /** Queues with a label of their own, 1 to 10,000, default 500; the rest is `other`. */
  readonly queuesMax?: number;
  /** How old what a store or a broker was asked may be, 1s to 1h, default 15s. */
  readonly every?: Duration;
  /** Whether memory, CPU, event loop and garbage collection of Node are reported; default false. */
  readonly processMetrics?: boolean;
  /** For tests. */
  readonly clock?: Clock;
}

/** A source of events: a spool, a consumer, a relay. */
export interface Watchable {
  on<K extends EventKind>(kind: K, listener: (event: EventOf<K>) => void): () => void;
}

/** Whatever has an engine at work. */
export interface LoadSource {
  readonly load: EngineLoad;
}

/** How what is watched is called, and who knows more of it. */
export interface WatchOptions {
  /** The label `source`; default `spool`. Two of one name cannot be watched at once. */
  readonly source?: string;
  /** The forecast of the backlog at the present rates; undefined: unknown. Default none. */
  readonly forecast?: (backlog: number) => WatchedForecast | undefined;
  /** Where every rule of the alerts stands, asked at most once in `every`; default none. */
  readonly alerts?: () => Promise<readonly WatchedAlert[]>;
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

/** Whom to ask about queues besides the consumer's own connection. */
export interface WatchConsumerOptions {
  /** Your own client, or its address; without it only depths and consumers are reported. */
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

/** The source of the backlog: an outbox, or anything that has a spool over its messages. */
export interface WatchedOutbox {
  readonly spool: Spool;
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
