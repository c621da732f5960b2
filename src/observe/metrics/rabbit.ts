/**
 * rabbit — the numbers of consumers and publishers of RabbitMQ.
 *
 *   new RabbitMetrics(ground) ─▶ watchConsumer(consumer, { management? }) ─▶ stop
 *                             └▶ watchPublisher(publisher, { name })      ─▶ stop
 *
 * Queues are examined at scrapes, at most once in `every`, over the consumer's own connection and,
 * where it is given, the management API; forecasts go by these looks. Promise: while a depth is
 * unknown there is no series of it, never an old one; no message is taken to be looked at.
 */

import { SECOND_MS } from '../../core/duration.ts';
import { RespoolError } from '../../core/errors.ts';
import { Trend, TREND_WINDOW_MS } from '../../core/forecast.ts';
import type { EngineLoad } from '../../engine/parts.ts';
import type { ConsumerLoad } from '../../rabbit/consume/consumer.ts';
import { createManagement, type Management } from '../../rabbit/management/management.ts';
import type { ManagementOptions } from '../../rabbit/management/http.ts';
import type { QueueStats, StatsReport } from '../../rabbit/admin/reports.ts';
import type { Aliases } from './aliases.ts';
import {
  checkWatchNames,
  WATCH_CONSUMER_OPTIONS,
  WATCH_PUBLISHER_OPTIONS,
  type WatchConsumerOptions,
  type WatchPublisherOptions,
} from './options.ts';
import type { WatchedConsumer, WatchedPublisher } from './types.ts';
import type { NumberFamily } from './families.ts';
import type { MetricsContext } from './context.ts';
import { growthOf, recordEvents, recordLoad, recordSettled } from './source-rows.ts';

interface Watched {
  readonly consumer: WatchedConsumer;
  readonly management: Management | undefined;
  readonly exchange: string;
  /** The last report, and whether the consumer was connected then; undefined without a source. */
  last: { readonly report: StatsReport; readonly wasUp: boolean } | undefined;
  /** How the depth of each queue went, by its name. */
  readonly courses: Map<string, Trend>;
}

interface Source {
  readonly consumers: Set<WatchedConsumer>;
  readonly stop: () => void;
}

/** The broker metrics of one `createMetrics`. */
export class RabbitMetrics {
  readonly #ground: MetricsContext;
  readonly #aliases: Aliases | undefined;
  readonly #families: ReturnType<typeof familiesOf>;
  readonly #watched = new Set<Watched>();
  readonly #sources = new Map<string, Source>();
  readonly #publishers = new Set<{
    readonly publisher: WatchedPublisher;
    readonly label: string;
  }>();

  constructor(ground: MetricsContext, aliases?: Aliases) {
    this.#ground = ground;
    this.#aliases = aliases;
    this.#families = familiesOf(ground);
    ground.families.atScrape(() => this.#collect());
  }

  /** Counts its events under `queue:<name>` and reports its queues; returns a function to stop. */
  watchConsumer(consumer: WatchedConsumer, options: WatchConsumerOptions = {}): () => void {
    checkWatchNames('watchConsumer', options, WATCH_CONSUMER_OPTIONS);
    const { management, exchange = '' } = options;
    const { client, close } = clientOf(management);
    const courses = new Map<string, Trend>();
    const watched: Watched = { consumer, management: client, exchange, last: undefined, courses };
    const source = `queue:${this.#ground.queueOf(consumer.queue)}`;
    const failures = this.#ground.core.scrapeFailures.row(source);
    const look = this.#ground.families.look({
      read: async () => {
        try {
          await read(watched);
        } finally {
          noteCourses(watched, this.#ground.clock.monotonic());
        }
      },
      onFailure: () => {
        failures.value += 1;
      },
    });
    this.#watched.add(watched);
    const stops = [
      recordEvents(this.#ground, consumer, source),
      this.#addLoad(source, consumer),
      recordSettled(this.#ground, consumer, source),
      this.#aliases?.watchConsumer(consumer, exchange),
    ];
    return () => {
      for (const stop of stops) stop?.();
      look.stop();
      this.#watched.delete(watched);
      void close();
    };
  }

  /** Tells what it has on its way; returns the end. */
  watchPublisher(publisher: WatchedPublisher, options: WatchPublisherOptions): () => void {
    checkWatchNames('watchPublisher', options, WATCH_PUBLISHER_OPTIONS);
    const { name } = options;
    if (typeof name !== 'string' || name === '') {
      throw new RespoolError('config.invalid', 'cannot watch a publisher: give it a "name"');
    }
    const { queueOf, families } = this.#ground;
    const label = queueOf(name);
    const watched = { publisher, label };
    const fellBack = this.#families.fellBack.row(label);
    const grow = growthOf(() => publisher.load.fellBack, fellBack);
    const stop = families.atScrape(grow);
    this.#publishers.add(watched);
    return () => {
      grow();
      stop();
      this.#publishers.delete(watched);
    };
  }

  /** Several consumers of one queue, and all without a label of their own, are reported as one. */
  #addLoad(name: string, consumer: WatchedConsumer): () => void {
    const source = this.#sources.get(name) ?? this.#newSource(name);
    source.consumers.add(consumer);
    return () => {
      source.consumers.delete(consumer);
      if (source.consumers.size > 0) return;
      source.stop();
      this.#sources.delete(name);
    };
  }

  #newSource(name: string): Source {
    const consumers = new Set<WatchedConsumer>();
    const together = {
      get load() {
        return sumOf([...consumers].map(({ load }) => load));
      },
    };
    const source = { consumers, stop: recordLoad(this.#ground, together, name) };
    this.#sources.set(name, source);
    return source;
  }

  #collect(): void {
    this.#aliases?.clearQueues();
    this.#collectConsumers();
    this.#collectQueues();
    this.#collectPublishers();
  }

  #collectConsumers(): void {
    const { connected, paused, blocked, buffered, publishing } = this.#families.consumer;
    for (const family of Object.values(this.#families.consumer)) family.clear();
    for (const { consumer, exchange } of this.#watched) {
      const label = this.#ground.queueOf(consumer.queue);
      const { load } = consumer;
      connected.row(label).value += Number(isConnected(load));
      paused.row(label).value += Number(load.isPaused);
      blocked.row(label).value += Number(load.isBlocked);
      buffered.row(label).value += load.buffered;
      publishing.row(label).value += load.publishing;
      this.#aliases?.consumers(label, exchange, Number(load.isConnected));
    }
  }

  #collectQueues(): void {
    for (const family of Object.values(this.#families.queue)) family.clear();
    const seen = new Set<string>();
    for (const { consumer, management, last, courses } of this.#watched) {
      if (last === undefined) continue;
      // What was reported before the connection was lost is no longer known.
      const isLost = last.wasUp && !consumer.load.isUp;
      if (isLost && management === undefined) continue;
      for (const queue of last.report.queues) {
        // Two consumers of one queue look at the same.
        const key = JSON.stringify([consumer.queue, queue.name]);
        if (seen.has(key)) continue;
        seen.add(key);
        this.#tellQueue(consumer.queue, queue, courses.get(queue.name)?.endsInMs ?? null);
      }
    }
  }

  #tellQueue(mainQueue: string, queue: QueueStats, drainsInMs: number | null): void {
    const { messages, unacked, leaving, consumers, oldest, drain } = this.#families.queue;
    const { queueOf } = this.#ground;
    const main = queueOf(mainQueue);
    const labels = [queueOf(queue.name), queue.role, main] as const;
    // Added: the queues called `other` are many.
    const add = (family: NumberFamily, value: number | undefined): void => {
      if (value !== undefined) family.row(...labels).value += value;
    };
    add(messages, queue.ready);
    add(unacked, queue.unacked);
    add(leaving, queue.deadLettering);
    add(consumers, queue.consumers);
    const most = (family: NumberFamily, ms: number): void => {
      const row = family.row(...labels);
      row.value = Math.max(row.value, ms / SECOND_MS);
    };
    if (queue.oldestAgeMs !== undefined) most(oldest, queue.oldestAgeMs);
    if (drainsInMs !== null) most(drain, drainsInMs);
    if (queue.role === 'dead') this.#aliases?.deadLetters(main, queue.ready);
  }

  #collectPublishers(): void {
    const { publisher } = this.#families;
    for (const family of Object.values(publisher)) family.clear();
    for (const { publisher: one, label } of this.#publishers) {
      const { load } = one;
      publisher.inFlight.row(label).value += load.inFlight;
      publisher.waiting.row(label).value += load.waiting;
      publisher.connected.row(label).value += Number(load.isConnected);
      publisher.blocked.row(label).value += Number(load.isBlocked);
    }
  }
}

/**
 * Asks; until an answer comes, nothing is known. A management API that is slow or away takes
 * with it only what it alone tells, and its failure is reported.
 */
async function read(watched: Watched): Promise<void> {
  const { consumer, management } = watched;
  watched.last = undefined;
  const plain = consumer.stats().then((report) => {
    watched.last ??= reportOf(consumer, report);
  });
  if (management === undefined) return plain;
  const full = consumer.stats({ management }).then((report) => {
    watched.last = reportOf(consumer, report);
  });
  const [, answer] = await Promise.allSettled([plain, full]);
  if (answer.status === 'rejected') throw answer.reason;
}

/** Records the reported depths; a queue that left the plan has no forecast. */
function noteCourses({ last, courses }: Watched, now: number): void {
  if (last === undefined) return;
  const depths = new Map(last.report.queues.map(({ name, ready }) => [name, ready]));
  for (const name of courses.keys()) if (!depths.has(name)) courses.delete(name);
  for (const [name, ready] of depths) {
    if (ready === undefined) continue;
    const course = courses.get(name) ?? new Trend(TREND_WINDOW_MS);
    course.add(now, ready);
    courses.set(name, course);
  }
}

function reportOf(consumer: WatchedConsumer, report: StatsReport): Watched['last'] {
  return { report, wasUp: consumer.load.isUp };
}

/** A consumer that is paused, or blocked by the broker, has lost nothing. */
function isConnected({ isUp, isConnected: isSubscribed, isPaused, isBlocked }: ConsumerLoad) {
  return isSubscribed || (isUp && (isPaused || isBlocked));
}

function clientOf(management: Management | ManagementOptions | undefined): {
  readonly client: Management | undefined;
  readonly close: () => Promise<void>;
} {
  const nothing = (): Promise<void> => Promise.resolve();
  if (management === undefined) return { client: undefined, close: nothing };
  if ('queue' in management) return { client: management, close: nothing };
  const client = createManagement(management);
  return { client, close: () => client.close() };
}

function sumOf(loads: readonly EngineLoad[]): EngineLoad {
  const sum = (read: (load: EngineLoad) => number): number =>
    loads.reduce((all, load) => all + read(load), 0);
  return {
    isRunning: loads.some(({ isRunning }) => isRunning),
    concurrency: sum(({ concurrency }) => concurrency),
    running: sum(({ running }) => running),
    waiting: sum(({ waiting }) => waiting),
    settling: sum(({ settling }) => settling),
    settled: sum(({ settled }) => settled),
  };
}

function familiesOf({ families }: MetricsContext) {
  const ofQueue = (name: string, help: string): NumberFamily =>
    families.gauge({ name: `rabbit_queue_${name}`, help, labels: ['queue', 'role', 'main'] });
  const ofConsumer = (name: string, help: string): NumberFamily =>
    families.gauge({ name: `rabbit_consumer_${name}`, help, labels: ['queue'] });
  const ofPublisher = (name: string, help: string): NumberFamily =>
    families.gauge({ name: `rabbit_publisher_${name}`, help, labels: ['publisher'] });
  return {
    queue: {
      messages: ofQueue('messages', 'Messages that are ready in a queue of a consumer.'),
      unacked: ofQueue('unacked_messages', 'Messages in the hands of consumers.'),
      leaving: ofQueue(
        'leaving_messages',
        'Dead-lettered messages that the queue they go to has not confirmed.',
      ),
      consumers: ofQueue('consumers', 'Consumers of the queue, of all processes.'),
      oldest: ofQueue(
        'oldest_age_seconds',
        'Since the message at the head was published, where the broker tells.',
      ),
      drain: ofQueue(
        'forecast_drain_seconds',
        'Until the queue is empty, at the present rate; absent while it does not get emptier.',
      ),
    },
    consumer: {
      connected: ofConsumer(
        'connected',
        'Consumers of this process that are subscribed, or are still though connected.',
      ),
      paused: ofConsumer('paused', 'Paused consumers of this process.'),
      blocked: ofConsumer('blocked', 'Consumers that wait since the broker accepts no messages.'),
      buffered: ofConsumer('buffered', 'Deliveries that wait here for a slot.'),
      publishing: ofConsumer(
        'publishing',
        'Messages on their way to a wait, dead or parked queue.',
      ),
    },
    publisher: {
      inFlight: ofPublisher('in_flight', 'Messages that are published and not yet confirmed.'),
      waiting: ofPublisher('waiting', 'Messages that wait for the broker or for room.'),
      connected: ofPublisher('connected', 'Publishers that are connected.'),
      blocked: ofPublisher('blocked', 'Publishers that the broker accepts no messages from.'),
    },
    fellBack: families.counter({
      name: 'rabbit_publisher_fell_back_total',
      help: 'Messages that went to the fallback.',
      labels: ['publisher'],
    }),
  };
}
