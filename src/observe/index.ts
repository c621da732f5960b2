/** observe — metrics, traces and alerts: what can be seen of a spool, a consumer, a relay. */

export type { Tracer } from '../ports/tracer.ts';
export { createMetrics, type Metrics } from './metrics/metrics.ts';
export type {
  MetricAlias,
  MetricsOptions,
  MetricsText,
  Watchable,
  WatchedSpool,
  WatchOptions,
} from './metrics/types.ts';
