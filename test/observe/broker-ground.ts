/** broker-ground — metrics whose next look is the test's to decide, and consumers to watch. */

import { createMetrics, type Metrics, type MetricsOptions } from 'respool/observe';
import { SimClock } from 'respool/testkit';
import { onTestFinished } from 'vitest';
import { failed, failure, held, ladder } from 'respool';
import type { Consumer, ConsumerOptions } from 'respool/rabbit';
import { consume, nextEvent } from '../rabbit/ground.ts';
import { type Scrape, scrapeOf } from './metrics-ground.ts';

const EVERY_MS = 1_000;

/** Metrics, and a scrape for which stores and brokers are asked anew. */
export interface Bench {
  readonly metrics: Metrics;
  readonly clock: SimClock;
  readonly scrape: () => Promise<Scrape>;
}

export async function bench(options: MetricsOptions = {}): Promise<Bench> {
  const clock = new SimClock();
  const metrics = await createMetrics({ clock, every: EVERY_MS, ...options });
  onTestFinished(() => metrics.close());
  const scrape = async (): Promise<Scrape> => {
    await clock.advance(EVERY_MS);
    return scrapeOf(metrics);
  };
  return { metrics, clock, scrape };
}

/** What the handler below is told to do. */
export type Fate = 'deliver' | 'retry' | 'reject' | 'hold';

const KINDS = {
  deliver: 'delivered',
  retry: 'deferred',
  reject: 'bounced',
  hold: 'held',
} as const;

/** A consumer that does as the body of a message says; retries wait for an hour. */
export function obedient(options: Partial<ConsumerOptions> & { queue: string }): Promise<Consumer> {
  return consume({ policy: ladder(['1h', '2h']), waits: [], ...options }, async (delivery) => {
    const { fate } = (await delivery.json()) as { readonly fate: Fate };
    switch (fate) {
      case 'retry':
        return failed(failure('transient', 'shop.closed', 'closed'));
      case 'reject':
        return failed(failure('permanent', 'shop.gone', 'gone'));
      case 'hold':
        return held('to be looked at');
      default:
        return undefined;
    }
  });
}

/** Resolves when the consumer has done so. */
export function obeyed(consumer: Consumer, fate: Fate): Promise<unknown> {
  return nextEvent(consumer, KINDS[fate]);
}
