/**
 * metrics — counts what happens, for Prometheus; at `/metrics` of the service, or in a registry of
 * the user's.
 *
 * Promises: an event costs a listener an addition, whatever there is to scrape. A scrape waits at
 * most 2 s for stores and brokers and never fails because of one. No label takes more values than
 * its limit. The library is loaded when metrics are made, not when this is imported.
 */

import type { Registry } from '@prometheus-io/client';
import { RespoolError } from '../../core/errors.ts';
import type { Spool } from '../../spool/spool.ts';
import { aliasesOf } from './aliases.ts';
import { createLabels, createSources, makeCoreFamilies, type MetricsContext } from './context.ts';
import { DeadLetterMetrics } from './dead-letter-metrics.ts';
import { Families } from './families.ts';
import {
  type CheckedMetricsOptions,
  checkMetricsOptions,
  checkWatchNames,
  type MetricsOptions,
  WATCH_OPTIONS,
  type WatchConsumerOptions,
  type WatchOptions,
  type WatchPublisherOptions,
  type WatchRelayOptions,
} from './options.ts';
import { OutboxMetrics } from './outbox.ts';
import { RabbitMetrics } from './rabbit.ts';
import { watchSpool } from './spool.ts';
import type {
  MetricsText,
  SweepCount,
  Watchable,
  WatchedConsumer,
  WatchedOutbox,
  WatchedPublisher,
  WatchedRelay,
} from './types.ts';
import { readVersion } from '../../system/version.ts';

/** Both also in docs/reference/metrics.md. */
const CODES_MAX = 50;
const WORDS_MAX = 200;

/** Counts from nothing, and goes on until it is closed. */
export interface Metrics extends Omit<BrokerMetrics, 'hearPasses'> {
  /** The user's, or one of its own. */
  readonly registry: Registry;
  /** Counts what a spool does from now on; returns the way to stop. */
  watch(spool: Spool, options?: WatchOptions): () => void;
  /** As Prometheus reads it. */
  text(): Promise<MetricsText>;
  /** Watches nothing any more, and takes its metrics out of the registry. */
  close(): void;
}

/** Makes metrics; they are registered at once, and move when something is watched. */
export async function createMetrics(options: MetricsOptions = {}): Promise<Metrics> {
  const settings = checkMetricsOptions(options);
  const { Registry: OwnRegistry, processMetrics } = await import('./process-metrics.ts');
  const { registry = new OwnRegistry() } = options;
  const { ground, broker } = register(settings, registry);
  const closers = new Set<() => void>();
  let isClosed = false;
  if (settings.processMetrics) closers.add(processMetrics(registry));
  /** Begins, and keeps the way to stop, for `close`; stopping twice is stopping once. */
  const watched = (begin: () => () => void): (() => void) => {
    if (isClosed) throw closed();
    const stop = begin();
    const once = (): void => {
      if (closers.delete(once)) stop();
    };
    closers.add(once);
    return once;
  };
  return {
    registry,
    watch(spool, value = {}) {
      checkWatchNames('watch', value, WATCH_OPTIONS);
      return watched(() => {
        const stops = [watchSpool(ground, spool, value), broker.hearPasses(spool)];
        return () => {
          for (const stop of stops) stop();
        };
      });
    },
    watchConsumer: (...value) => watched(() => broker.watchConsumer(...value)),
    watchPublisher: (...value) => watched(() => broker.watchPublisher(...value)),
    watchRelay: (...value) => watched(() => broker.watchRelay(...value)),
    sweep: (run) => broker.sweep(run),
    text: async () => ({ type: registry.contentType, text: await registry.metrics() }),
    close() {
      isClosed = true;
      for (const close of closers) close();
      closers.clear();
      ground.families.close();
    },
  };
}

/** All families, or none: a name that is taken leaves nothing of ours in the registry. */
function register(
  settings: CheckedMetricsOptions,
  registry: Registry,
): { readonly ground: MetricsContext; readonly broker: BrokerMetrics } {
  const { prefix, everyMs, clock } = settings;
  const families = new Families({ registry, prefix, everyMs, clock });
  try {
    const ground = groundOf(settings, families);
    return { ground, broker: brokerMetrics(ground) };
  } catch (error) {
    families.close();
    throw error;
  }
}

function groundOf(settings: CheckedMetricsOptions, families: Families): MetricsContext {
  const { aliases, topicsMax, queuesMax, clock } = settings;
  const core = makeCoreFamilies(families);
  core.info.row(readVersion()).value = 1;
  return {
    families,
    core,
    topicOf: createLabels(topicsMax),
    queueOf: createLabels(queuesMax),
    codeOf: createLabels(CODES_MAX),
    wordOf: createLabels(WORDS_MAX),
    aliases,
    clock,
    takeSource: createSources(),
  };
}

function closed(): RespoolError {
  return new RespoolError('config.invalid', 'cannot watch more: these metrics are closed');
}

/** The metrics of brokers, outboxes and dead letters. */
interface BrokerMetrics {
  /** Counts under the source `queue:<name>`, and reports the depth of its queues at a scrape. */
  watchConsumer(consumer: WatchedConsumer, options?: WatchConsumerOptions): () => void;
  watchPublisher(publisher: WatchedPublisher, options: WatchPublisherOptions): () => void;
  /** Counts under the source `relay`; with the outbox, its backlog and lag too. */
  watchRelay(relay: WatchedRelay, outbox?: WatchedOutbox, options?: WatchRelayOptions): () => void;
  /** Counts a run of a sweep. */
  sweep(run: SweepCount): void;
  /** Counts the sweeps and replays that a spool reports. */
  hearPasses(source: Watchable): () => void;
}

/** Registers their families. */
function brokerMetrics(ground: MetricsContext): BrokerMetrics {
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
