/**
 * metrics — what `respool serve` counts and answers at `/metrics`, as `metrics.*` of the
 * configuration says. The library is loaded when they are on.
 */

import { brokerAt, tlsOfRabbit } from '../../connect/brokers.ts';
import type { LoadedConfig } from '../../connect/load-config.ts';
import type { ConfiguredConsumer } from '../../connect/open-consumers.ts';
import type { OpenRelay } from '../../connect/open-outbox.ts';
import type { Metrics } from '../../observe/metrics/metrics.ts';
import type { Spool } from '../../spool/spool.ts';
import type { CommandContext } from '../spec.ts';

/** Metrics of a service. */
export interface ServeMetrics extends Pick<Metrics, 'text'> {
  /** All consumers of the configuration, in its order. */
  readonly watchConsumers: (made: readonly ConfiguredConsumer[]) => Promise<void>;
  readonly watchRelay: (made: OpenRelay) => void;
}

/** Begins to count what the spool does; undefined: metrics are off. */
export async function startMetrics(
  { io, atEnd }: CommandContext,
  { config }: LoadedConfig,
  spool: Spool,
): Promise<ServeMetrics | undefined> {
  const { enabled, aliases, topicsMax, queuesMax, every } = config.metrics;
  if (!enabled) return undefined;
  const { createMetrics } = await import('../../observe/metrics/metrics.ts');
  const metrics = await createMetrics({
    aliases,
    topicsMax,
    queuesMax,
    every,
    processMetrics: true,
    clock: io.clock,
  });
  atEnd(() => metrics.close());
  metrics.watch(spool);
  return {
    text: () => metrics.text(),
    watchConsumers: async (made) => {
      const tls = await tlsOfRabbit(config.rabbit);
      for (const [at, { consumer }] of made.entries()) {
        const management = managementOf(config, at);
        const secured = management && { ...management, ...(tls === undefined ? {} : { tls }) };
        metrics.watchConsumer(consumer, secured === undefined ? {} : { management: secured });
      }
    },
    watchRelay: ({ relay, outbox }) => {
      metrics.watchRelay(relay, outbox);
    },
  };
}

/** Asked only where the configuration names it: a guess would fail at every scrape. */
function managementOf(
  { consumers, rabbit }: LoadedConfig['config'],
  at: number,
): { readonly url: string; readonly vhost: string } | undefined {
  const effective = consumers[at];
  if (effective === undefined) return undefined;
  const { isManagementNamed, managementUrl, vhost } = brokerAt(effective.url, [effective], rabbit);
  return isManagementNamed ? { url: managementUrl, vhost } : undefined;
}
