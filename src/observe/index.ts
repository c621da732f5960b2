/** index — metrics, traces, logs and health of a spool, a consumer or a relay. */

export type {
  AttemptSpan,
  Sending,
  SendSpan,
  SendResult,
  SettleSpan,
  TracedPlace,
  Tracer,
} from '../ports/tracer.ts';
export {
  type Comparison,
  type Condition,
  type Measure,
  type MeasureName,
  printCondition,
  type MeasureTarget,
  type Unit,
} from './alerts/condition.ts';
export { parseCondition } from './alerts/parse.ts';
export type {
  MetricsText,
  SweepCount,
  Watchable,
  WatchedAlert,
  WatchedConsumer,
  WatchedForecast,
  WatchedOutbox,
  WatchedPublisher,
  WatchedRelay,
} from './metrics/types.ts';
export type {
  MetricAlias,
  MetricsOptions,
  WatchConsumerOptions,
  WatchOptions,
  WatchPublisherOptions,
  WatchRelayOptions,
} from './metrics/options.ts';
export { createMetrics, type Metrics } from './metrics/metrics.ts';
export {
  openTelemetry,
  type OpenTelemetryApiOptions,
  type OpenTelemetryOptions,
} from './tracing/open-telemetry.ts';
export { FIRST_ATTEMPT_NOTE } from './tracing/api.ts';
export { redact, type RedactOptions } from '../core/redact.ts';
export type { Logger, LogLevel } from '../ports/logger.ts';
export {
  health,
  type Health,
  type HealthCheck,
  type HealthCode,
  type HealthNeed,
  type HealthOptions,
  type HealthReason,
  type HealthSpool,
} from './health.ts';
export { prettyLogger, type PrettyOptions, withRedaction } from './logs/pretty.ts';
