/**
 * metrics — what `respool serve` counts and answers at `/metrics`, as `metrics.*` of the
 * configuration says. The library is loaded when they are on.
 */

import type { LoadedConfig } from '../../connect/load-config.ts';
import type { Metrics } from '../../observe/metrics/metrics.ts';
import type { Spool } from '../../spool/spool.ts';
import type { CommandContext } from '../spec.ts';

/** Begins to count what the spool does; undefined: metrics are off. */
export async function startMetrics(
  { io, atEnd }: CommandContext,
  { config }: LoadedConfig,
  spool: Spool,
): Promise<Metrics | undefined> {
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
  return metrics;
}
