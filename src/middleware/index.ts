/** respool/middleware — ready-made wrappers around handlers, for spools and consumers alike. */

export { circuitBreaker } from './circuit-breaker.ts';
export type { CircuitBreakerOptions, CircuitChange } from './circuit-breaker.ts';
export { guard, type GuardAnswer, type GuardOptions } from './guard.ts';
export { healthGate, type HealthGateOptions } from './health-gate.ts';
export { inBatches } from './in-batches.ts';
export type { BatchAnswer, BatchHandler, InBatchesOptions } from './in-batches.ts';
export type { KeyBy } from './per-key.ts';
export { logging, type LoggingOptions } from './logging.ts';
export { type ErrorMap, mapErrors, when } from './when-and-map-errors.ts';
export { metrics, type MetricsHook } from './metrics.ts';
export { rateLimit, type RateLimitOptions } from './rate-limit.ts';
export { retryBudget, type RetryBudgetOptions } from './retry-budget.ts';
export { type MiddlewareSpan, tracing, type TracingHook } from './tracing.ts';
export type { Middleware } from '../ports/handler.ts';
