/**
 * goqueue-aliases — the three metrics of GoQueue, of consumers.
 *
 * Its level of a retry is the number of the attempt that failed: 1 for the first retry.
 */

import { ALIAS_BOUNDS_S } from './alias-bounds.ts';
import { type HistogramFamily, type NumberFamily, observe } from './families.ts';
import type { Ground, LabelOf } from './context.ts';
import { createLabels } from './labels.ts';
import type { Watchable } from './types.ts';

/** Levels with a label of their own; more attempts than that are `other`. */
const LEVELS_MAX = 100;

const OF_LEVEL = ['queue', 'retry_level'] as const;

/** Counts retries and dead letters. */
export class GoqueueAliases {
  readonly #ground: Ground;
  readonly #levelOf: LabelOf = createLabels(LEVELS_MAX);
  readonly #retried: NumberFamily;
  readonly #dead: NumberFamily;
  readonly #delays: HistogramFamily;

  constructor(ground: Ground) {
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
