/**
 * outbox-aliases — the eleven metrics of the Python outbox: five of its relay, six of its worker.
 *
 * Counted with the words of the original: an attempt that raised has `failed`, also when it was the
 * last one; `rejected` is what the handler itself gave up.
 */

import type { EventOf } from '../../core/event.ts';
import { isRespoolError } from '../../core/errors.ts';
import { ALIAS_BOUNDS_S } from './alias-bounds.ts';
import type { WatchedConsumer } from './broker-types.ts';
import { type HistogramFamily, type NumberFamily, observe } from './families.ts';
import type { Ground, LabelOf } from './context.ts';
import { createLabels } from './labels.ts';
import type { Watchable } from './types.ts';

/** Delays with a label of their own. */
const DELAYS_MAX = 100;
/** What a decoder or a schema refuses. */
const UNREADABLE = 'body.invalid';
/** How a consumer begins to tell that a retry could not be published. */
const PASSING = 'passing on message';

const OF_EXCHANGE = ['exchange_name'] as const;
const OF_QUEUE = ['queue', 'exchange_name'] as const;

/** Counts what a relay sends and what consumers handle. */
export class OutboxAliases {
  readonly #ground: Ground;
  readonly #delayOf: LabelOf = createLabels(DELAYS_MAX);
  readonly #all: ReturnType<typeof familiesOf>;

  constructor(ground: Ground) {
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

function familiesOf({ families }: Ground) {
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
