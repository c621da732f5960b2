/**
 * metrics — what a sweep that goes on counts, for Prometheus. This file is loaded, and the library
 * with it, when somebody listens.
 *
 * Promise: at most 500 queues have labels of their own; what comes then is counted as `other`.
 */

import { Counter, Gauge, Histogram, Registry } from '@prometheus-io/client';
import { createLabels } from '../../observe/metrics/labels.ts';
import type { SweepRun } from './run.ts';

/** Queues with a label of their own, at the most. */
export const LABELS_MAX = 500;
/** From a look at empty queues to an hour of moving. */
const BUCKETS_S = [0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3_600];

/** Counts runs. */
export interface SweepMetrics {
  count(run: SweepRun): void;
  /** As Prometheus reads it. */
  text(): Promise<{ readonly type: string; readonly text: string }>;
}

/** Counts from nothing. */
export function createMetrics(): SweepMetrics {
  const registry = new Registry();
  const registers = [registry];
  const runs = new Counter({
    name: 'respool_sweep_runs_total',
    help: 'Runs of the sweep, by how they ended.',
    labelNames: ['result'],
    registers,
  });
  const messages = new Counter({
    name: 'respool_sweep_messages_total',
    help: 'Messages that were moved to the target.',
    labelNames: ['queue'],
    registers,
  });
  const leftBehind = new Gauge({
    name: 'respool_sweep_left',
    help: 'Messages that the last run saw and left where they are.',
    labelNames: ['queue'],
    registers,
  });
  const lastSuccess = new Gauge({
    name: 'respool_sweep_last_success_timestamp_seconds',
    help: 'When a run last ended without any failure, in seconds since the epoch; 0: never.',
    registers,
  });
  const duration = new Histogram({
    name: 'respool_sweep_duration_seconds',
    help: 'How long a run took.',
    buckets: BUCKETS_S,
    registers,
  });
  // Both are there from the beginning: a rate over a series that appears late misses its start.
  for (const result of ['succeeded', 'failed']) runs.inc({ result }, 0);
  const labelOf = createLabels(LABELS_MAX);
  return {
    count({ isWell, endedAt, tookMs, reports, error }) {
      runs.inc({ result: isWell ? 'succeeded' : 'failed' });
      duration.observe(tookMs / 1_000);
      if (isWell) lastSuccess.set(endedAt / 1_000);
      // A queue that is gone leaves nothing; a run that could not begin knows of none.
      if (error === undefined) leftBehind.reset();
      for (const { queue, moved, left, seen, error: why } of reports) {
        const label = { queue: labelOf(queue) };
        messages.inc(label, moved);
        // Added, not set: the queues called `other` are many. One that was not seen tells nothing.
        if (why === undefined || seen > 0) leftBehind.inc(label, left);
      }
    },
    text: async () => ({ type: registry.contentType, text: await registry.metrics() }),
  };
}
