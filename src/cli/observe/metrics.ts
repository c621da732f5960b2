/**
 * metrics — what `respool serve` counts and answers at `/metrics`, as `metrics.*` of the
 * configuration says. The library is loaded when they are on.
 */

import type { LoadedConfig } from '../../connect/load-config.ts';
import type { ConfiguredConsumer } from '../../connect/open-consumers.ts';
import type { OpenRelay } from '../../connect/open-outbox.ts';
import type { Metrics } from '../../observe/metrics/metrics.ts';
import type { Spool } from '../../spool/spool.ts';
import type { CommandContext } from '../spec.ts';
import { watchConsumers, watchRelay } from './broker-metrics.ts';

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
    watchConsumers: (made) => watchConsumers(metrics, config, made, atEnd),
    watchRelay: (made) => watchRelay(metrics, config, made),
  };
}
