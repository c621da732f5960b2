/**
 * broker — everything that metrics tell besides a spool: consumers, publishers, relays, passes over
 * dead letters, and the names that other systems have for it.
 *
 *   brokerMetrics(ground) ─▶ { watchConsumer, watchPublisher, watchRelay, sweep, hearPasses }
 *
 * `createMetrics` makes one and hands its methods on.
 */

import { aliasesOf } from './aliases.ts';
import type {
  SweepCount,
  Watchable,
  WatchConsumerOptions,
  WatchedConsumer,
  WatchedOutbox,
  WatchedPublisher,
  WatchedRelay,
  WatchPublisherOptions,
  WatchRelayOptions,
} from './types.ts';
import type { MetricsContext } from './context.ts';
import { OutboxMetrics } from './outbox.ts';
import { DeadLetterMetrics } from './dead-letter-metrics.ts';
import { RabbitMetrics } from './rabbit.ts';

/** What metrics tell of brokers, outboxes and dead letters. */
export interface BrokerMetrics {
  /** Counts under the source `queue:<name>`, and tells the depth of its queues at a scrape. */
  watchConsumer(consumer: WatchedConsumer, options?: WatchConsumerOptions): () => void;
  watchPublisher(publisher: WatchedPublisher, options: WatchPublisherOptions): () => void;
  /** Counts under the source `relay`; with the outbox, its backlog and lag are told. */
  watchRelay(relay: WatchedRelay, outbox?: WatchedOutbox, options?: WatchRelayOptions): () => void;
  /** Counts a run of a sweep. */
  sweep(run: SweepCount): void;
  /** Counts the sweeps and replays that a spool tells of. */
  hearPasses(source: Watchable): () => void;
}

/** Registers their families. */
export function brokerMetrics(ground: MetricsContext): BrokerMetrics {
  const aliases = aliasesOf(ground);
  const rabbit = new RabbitMetrics(ground, aliases);
  const outbox = new OutboxMetrics(ground, aliases);
  const passes = new DeadLetterMetrics(ground);
  return {
    watchConsumer: (consumer, options) => rabbit.watchConsumer(consumer, options),
    watchPublisher: (publisher, options) => rabbit.watchPublisher(publisher, options),
    watchRelay: (relay, box, options) => outbox.watchRelay(relay, box, options),
    sweep: (run) => passes.sweeps.count(run),
    hearPasses: (source) => passes.watch(source),
  };
}
