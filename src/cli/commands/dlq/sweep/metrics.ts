/**
 * metrics — what a repeated sweep counts, for Prometheus. Loaded by sweep.ts, and only with
 * `--listen`.
 *
 * Promise: at most 500 queues have labels of their own; what comes then is counted as `other`.
 */

import type { MetricsText, SweepCount } from '../../../../observe/metrics/types.ts';
import { Families } from '../../../../observe/metrics/families.ts';
import { createLabels } from '../../../../observe/metrics/context.ts';
import { Registry } from '../../../../observe/metrics/process-metrics.ts';
import { SweepRows } from '../../../../observe/metrics/dead-letter-metrics.ts';
import { systemClock } from '../../../../system/clock.ts';

/** Maximum number of queues with a label of their own. */
export const LABELS_MAX = 500;

/** Counts runs. */
interface SweepMetrics {
  count(run: SweepCount): void;
  /** As Prometheus reads it. */
  text(): Promise<MetricsText>;
}

/** Counts from nothing. */
export function createSweepMetrics(): SweepMetrics {
  const registry = new Registry();
  // Nothing is asked for a scrape: there is no span to keep.
  const families = new Families({ registry, prefix: 'respool', everyMs: 0, clock: systemClock });
  const rows = new SweepRows(families, createLabels(LABELS_MAX));
  rows.begin();
  return {
    count: (run) => rows.count(run),
    text: async () => ({ type: registry.contentType, text: await registry.metrics() }),
  };
}
