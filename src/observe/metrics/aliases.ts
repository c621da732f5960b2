/**
 * aliases — the same numbers under the names of other systems, so that dashboards and alerts
 * written for those keep working. Off unless asked for: each costs its own additions.
 *
 *   aliasesOf(ground) ─▶ Aliases, or undefined when none are wanted
 *
 * docs/reference/metrics.md says which of ours each one equals; a test compares them.
 */

import { isRespoolError } from '../../core/errors.ts';
import type { EventOf } from '../../core/event.ts';
import { createLabels, type MetricsContext, type LabelOf } from './context.ts';
import { type HistogramFamily, type NumberFamily, observe } from './families.ts';
import type { Watchable, WatchedConsumer } from './types.ts';

// Buckets of histograms that other systems have: theirs, and what goes beyond.

/** The defaults of the libraries for Go and Python together; then up to a day, as retries wait. */
const ALIAS_BOUNDS_S: readonly number[] = [
  0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 30, 60, 300, 900,
  3_600, 14_400, 86_400,
];

// The three metrics of GoQueue, of consumers.
//
// Its level of a retry is the number of the attempt that failed: 1 for the first retry.

/**
 * Levels with a label of their own, the first that occur; further ones are `other`. Also in
 * docs/reference/metrics.md.
 */
const LEVELS_MAX = 100;

const OF_LEVEL = ['queue', 'retry_level'] as const;

/** Counts retries and dead letters. */
class GoqueueAliases {
  readonly #ground: MetricsContext;
  readonly #levelOf: LabelOf = createLabels(LEVELS_MAX);
  readonly #retried: NumberFamily;
  readonly #dead: NumberFamily;
  readonly #delays: HistogramFamily;

  constructor(ground: MetricsContext) {
    const { families } = ground;
    const prefix = 'goqueue';
    this.#ground = ground;
    this.#retried = families.counter({
      name: 'messages_retried_total',
      help: 'Attempts after which a message waits for the next one.',
      labels: OF_LEVEL,
      prefix,
    });
    this.#dead = families.counter({
      name: 'messages_dlq_total',
      help: 'Messages that went to the dead queue, by the code of the reason.',
      labels: ['queue', 'reason'],
      prefix,
    });
    this.#delays = families.histogram({
      name: 'retry_delay_seconds',
      help: 'How long a message waits for its next attempt.',
      labels: OF_LEVEL,
      bounds: ALIAS_BOUNDS_S,
      prefix,
    });
  }

  watchConsumer(consumer: Watchable & { readonly queue: string }): () => void {
    const { queueOf, codeOf } = this.#ground;
    const queue = queueOf(consumer.queue);
    const stops = [
      consumer.on('deferred', ({ attempt, at, dueAt }) => {
        const level = this.#levelOf(String(attempt));
        this.#retried.row(queue, level).value += 1;
        observe(this.#delays.row(queue, level), (dueAt - at) / 1_000);
      }),
      consumer.on('bounced', ({ because }) => {
        this.#dead.row(queue, codeOf(because.code)).value += 1;
      }),
    ];
    return () => {
      for (const stop of stops) stop();
    };
  }
}

// The eleven metrics of the Python outbox: five of its relay, six of its worker.
//
// Counted with the words of the original: an attempt that raised has `failed`, also when it was the
// last one; `rejected` is what the handler itself gave up.

/** Delays with a label of their own, the first that occur. Also in docs/reference/metrics.md. */
const DELAYS_MAX = 100;
/** What a decoder or a schema refuses. */
const UNREADABLE = 'body.invalid';
/** How a consumer's report of an unpublished retry begins: rabbit/consume/settle.ts. */
const PASSING = 'passing on message';

const OF_EXCHANGE = ['exchange_name'] as const;
const OF_QUEUE = ['queue', 'exchange_name'] as const;

/** Counts what a relay sends and what consumers handle. */
class OutboxAliases {
  readonly #ground: MetricsContext;
  readonly #delayOf: LabelOf = createLabels(DELAYS_MAX);
  readonly #all: ReturnType<typeof familiesOf>;

  constructor(ground: MetricsContext) {
    this.#ground = ground;
    this.#all = familiesOf(ground);
  }

  watchRelay(relay: Watchable, exchange: string): () => void {
    const published = this.#all.published.row(exchange);
    const ages = this.#all.ages.row(exchange);
    const polls = this.#all.polls.row(exchange);
    const failed = ({ because }: EventOf<'deferred'> | EventOf<'bounced'>): void => {
      this.#failure(exchange, 'main', because.code);
    };
    return together([
      relay.on('delivered', ({ ageMs }) => {
        published.value += 1;
        observe(ages, ageMs / 1_000);
      }),
      relay.on('ended', ({ tookMs }) => observe(polls, tookMs / 1_000)),
      relay.on('deferred', failed),
      relay.on('bounced', failed),
    ]);
  }

  watchConsumer(consumer: WatchedConsumer, exchange: string): () => void {
    const queue = this.#ground.queueOf(consumer.queue);
    const received = this.#all.received.row(queue, exchange);
    const durations = this.#all.durations.row(queue, exchange);
    for (const status of STATUSES) this.#all.processed.row(queue, exchange, status);
    const count = (status: Status): void => {
      this.#all.processed.row(queue, exchange, status).value += 1;
    };
    return together([
      consumer.on('ended', ({ tookMs }) => {
        received.value += 1;
        observe(durations, tookMs / 1_000);
      }),
      consumer.on('delivered', () => count('success')),
      consumer.on('deferred', ({ at, dueAt }) => {
        count('failed');
        const delay = this.#delayOf(secondsOf(dueAt - at, consumer.plan.waitsMs));
        this.#all.retries.row(queue, delay).value += 1;
      }),
      consumer.on('bounced', (event) => count(statusOf(event))),
      consumer.on('held', () => count('rejected')),
      consumer.on('trouble', ({ doing, error }) => {
        if (!doing.startsWith(PASSING)) return;
        this.#failure(exchange, 'retry', isRespoolError(error) ? error.code : error.name);
      }),
    ]);
  }

  clearQueues(): void {
    this.#all.dead.clear();
    this.#all.consumers.clear();
  }

  deadLetters(queue: string, count: number | undefined): void {
    if (count !== undefined) this.#all.dead.row(queue).value += count;
  }

  consumers(queue: string, exchange: string, count: number): void {
    this.#all.consumers.row(queue, exchange).value += count;
  }

  clearBacklogs(): void {
    this.#all.backlog.clear();
  }

  backlog(exchange: string, count: number): void {
    this.#all.backlog.row(exchange).value += count;
  }

  #failure(exchange: string, type: 'main' | 'retry', code: string): void {
    this.#all.failures.row(exchange, type, this.#ground.codeOf(code)).value += 1;
  }
}

const STATUSES = ['success', 'failed', 'rejected', 'deserialization_failed'] as const;
type Status = (typeof STATUSES)[number];

function statusOf({ because, spent }: EventOf<'bounced'>): Status {
  if (because.code === UNREADABLE) return 'deserialization_failed';
  return spent ? 'failed' : 'rejected';
}

/** The wait queue's time: some milliseconds go by between the decision and its event. */
function secondsOf(delayMs: number, waitsMs: readonly number[]): string {
  const distance = (waitMs: number): number => Math.abs(waitMs - delayMs);
  const nearest = waitsMs.reduce(
    (best, waitMs) => (distance(waitMs) < distance(best) ? waitMs : best),
    0,
  );
  return String(nearest / 1_000);
}

function together(stops: readonly (() => void)[]): () => void {
  return () => {
    for (const stop of stops) stop();
  };
}

function familiesOf({ families }: MetricsContext) {
  const prefix = 'outbox';
  const counter = (name: string, help: string, labels: readonly string[]): NumberFamily =>
    families.counter({ name, help, labels, prefix });
  const gauge = (name: string, help: string, labels: readonly string[]): NumberFamily =>
    families.gauge({ name, help, labels, prefix });
  const histogram = (name: string, help: string, labels: readonly string[]): HistogramFamily =>
    families.histogram({ name, help, labels, prefix, bounds: ALIAS_BOUNDS_S });
  return {
    published: counter('messages_published_total', 'Messages that a relay sent.', OF_EXCHANGE),
    failures: counter('publish_failures_total', 'Sends that failed.', [
      ...OF_EXCHANGE,
      'failure_type',
      'error_type',
    ]),
    ages: histogram('message_age_seconds', 'From the emit to the send.', OF_EXCHANGE),
    polls: histogram('poll_duration_seconds', 'How long a relay took to send one.', OF_EXCHANGE),
    backlog: gauge('table_backlog', 'Messages that are not sent yet.', OF_EXCHANGE),
    received: counter('messages_received_total', 'Attempts of a consumer.', OF_QUEUE),
    processed: counter('messages_processed_total', 'Attempts by what came of them.', [
      ...OF_QUEUE,
      'status',
    ]),
    retries: counter('retry_attempts_total', 'Retries by the time they wait.', [
      'queue',
      'delay_seconds',
    ]),
    durations: histogram('message_processing_duration_seconds', 'Time in the handler.', OF_QUEUE),
    dead: gauge('dlq_messages', 'Messages in the dead queue.', ['queue']),
    consumers: gauge('active_consumers', 'Consumers that are subscribed.', OF_QUEUE),
  };
}

/** Every alias that is wanted. */
export class Aliases {
  readonly #goqueue: GoqueueAliases | undefined;
  readonly #outbox: OutboxAliases | undefined;

  constructor(ground: MetricsContext) {
    const { aliases } = ground;
    this.#goqueue = aliases.includes('goqueue') ? new GoqueueAliases(ground) : undefined;
    this.#outbox = aliases.includes('outbox') ? new OutboxAliases(ground) : undefined;
  }

  watchConsumer(consumer: WatchedConsumer, exchange: string): () => void {
    const stops = [
      this.#goqueue?.watchConsumer(consumer),
      this.#outbox?.watchConsumer(consumer, exchange),
    ];
    return () => {
      for (const stop of stops) stop?.();
    };
  }

  watchRelay(relay: Watchable, exchange: string): () => void {
    return this.#outbox?.watchRelay(relay, exchange) ?? (() => undefined);
  }

  /** Values of queues are rebuilt at each scrape. */
  clearQueues(): void {
    this.#outbox?.clearQueues();
  }

  deadLetters(queue: string, count: number | undefined): void {
    this.#outbox?.deadLetters(queue, count);
  }

  consumers(queue: string, exchange: string, count: number): void {
    this.#outbox?.consumers(queue, exchange, count);
  }

  /** As of queues. */
  clearBacklogs(): void {
    this.#outbox?.clearBacklogs();
  }

  backlog(exchange: string, count: number): void {
    this.#outbox?.backlog(exchange, count);
  }
}

/** undefined: none are wanted. */
export function aliasesOf(ground: MetricsContext): Aliases | undefined {
  return ground.aliases.length === 0 ? undefined : new Aliases(ground);
}
