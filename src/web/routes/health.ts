/**
 * health — `/healthz` and `/readyz`: whether the process is alive, whether it takes and delivers
 * messages, and why not, without a token; and `/metrics`, which Prometheus scrapes.
 */

import { z } from '@hono/zod-openapi';
import type { Operator } from '../../spool/operator/operator.ts';
import {
  answersWithin,
  type ConsumerHealth,
  type Health,
  judgeHealth,
  type RelayHealth,
} from '../../observe/health.ts';
import type { MetricsText } from '../../observe/metrics/types.ts';
import type { Clock } from '../../ports/clock.ts';
import { addEndpoint, type App, errorSchema } from '../server/endpoint.ts';
import { HttpRefusal, refusedOf } from '../server/refusal.ts';
import { SharedText } from '../server/shared-reads.ts';
import { STORE_HEADER } from '../http-values.ts';

/** What health is found out from. */
export interface HealthRouteOptions {
  readonly operator: Operator;
  readonly clock: Clock;
  /** Fires when the service stops. */
  readonly signal: AbortSignal;
  isReady(): boolean;
  /** The id of its store; undefined while it is not known. */
  storeId?(): string | undefined;
  /** How many consumers of a broker are connected; undefined: there are none. */
  consumers?(): ConsumerHealth | undefined;
  /** What the relay of an outbox is doing; undefined: there is none. */
  relay?(): RelayHealth | undefined;
  /** The disk was full a moment ago, and nothing was stored since. */
  isFull(): boolean;
  /** The store did not take a message a moment ago, and has taken none since. */
  isRefusing(): boolean;
}

/**
 * A store that takes longer to answer is not ready. Also in docs/reference/health.md and
 * docs/reference/http-api.md.
 */
const READY_WITHIN_MS = 2_000;

const reasons = z.array(z.object({ code: z.string(), text: z.string() }));
const checks = z.array(z.object({ name: z.string(), ok: z.boolean() }));
const ready = z.object({ ok: z.literal(true), checks, notes: reasons });
const unready = z.object({
  error: z.object({ code: z.string(), message: z.string(), reason: z.literal('not-ready') }),
  ok: z.literal(false),
  checks,
  reasons,
  notes: reasons,
});
const alive = z.object({
  ok: z.literal(true),
  consumers: z.object({ connected: z.number(), all: z.number() }).optional(),
  relay: z
    .object({
      state: z.enum(['waiting', 'sending', 'stopped']),
      target: z.enum(['closed', 'open', 'half-open']),
      downSince: z.number().optional(),
    })
    .optional(),
});

/** Adds `/healthz` and `/readyz` to the app. */
export function addHealth(app: App, parts: HealthRouteOptions): void {
  const isStoreAnswering = storeCheck(parts);
  addEndpoint(app, {
    method: 'get',
    path: '/healthz',
    summary: 'Is the process alive?',
    answers: { 200: { description: 'Yes; consumers and relay if any.', schema: alive } },
    // Whether a broker can be reached is no reason to kill the process: it is only reported.
    answer: () => {
      const storeId = parts.storeId?.();
      return Response.json(
        { ok: true, consumers: parts.consumers?.(), relay: parts.relay?.() },
        { headers: storeId === undefined ? {} : { [STORE_HEADER]: storeId } },
      );
    },
  });
  addEndpoint(app, {
    method: 'get',
    path: '/readyz',
    summary: 'Does it take and deliver messages? Not while starting, stopping, or on a full disk.',
    answers: {
      200: { description: 'Yes; what was looked at.', schema: ready },
      503: { description: 'Not now, and why.', schema: unready },
    },
    answer: async () => answerOf(await lookAt(parts, isStoreAnswering)),
  });
}

async function lookAt(parts: HealthRouteOptions, ask: () => Promise<boolean>): Promise<Health> {
  const isStopping = parts.signal.aborted;
  const engine = isStopping ? 'stopping' : parts.isReady() ? 'running' : 'starting';
  return judgeHealth({
    engine,
    // While it starts or stops, the store may not be open.
    isStoreAnswering: engine === 'running' ? await ask() : undefined,
    isFull: parts.isFull(),
    isRefusing: parts.isRefusing(),
    consumers: parts.consumers?.(),
    relay: parts.relay?.(),
  });
}

function answerOf({ ready: isReady, checks: looked, reasons: why, notes }: Health): Response {
  if (isReady) return Response.json({ ok: true, checks: looked, notes });
  const isFull = why.some(({ code }) => code === 'store.full');
  const text = why.map((one) => one.text).join('; ');
  const {
    status,
    headers,
    text: error,
  } = refusedOf(
    new HttpRefusal(503, 'not-ready', text, {
      code: isFull ? 'store.full' : 'store.unavailable',
      // Space has to be freed first.
      headers: { 'retry-after': isFull ? '5' : '1' },
    }),
  );
  const refusal = JSON.parse(error) as object;
  const body = { ...refusal, ok: false, checks: looked, reasons: why, notes };
  return Response.json(body, { status, headers });
}

/** Asks the store, once for all requests at the same time. */
function storeCheck({ operator, clock }: HealthRouteOptions): () => Promise<boolean> {
  let asking: Promise<boolean> | undefined;
  return () => {
    asking ??= answersWithin(() => operator.page({ limit: 1 }), READY_WITHIN_MS, clock).finally(
      () => {
        asking = undefined;
      },
    );
    return asking;
  };
}

// Metrics

type ReadMetrics = () => Promise<MetricsText>;

/**
 * A text is reused for this many times as long as it took, at most METRICS_REUSE_MAX_MS: so scrapes
 * of up to a second use less than a tenth of the time.
 */
const METRICS_REUSE_FACTOR = 10;
const METRICS_REUSE_MAX_MS = 10_000;

/** Adds `/metrics` to the app; without metrics it answers that they are off. */
export function addMetricsRoute(app: App, metrics: ReadMetrics | undefined, clock: Clock): void {
  const read = metrics === undefined ? undefined : throttledMetrics(metrics, clock);
  addEndpoint(app, {
    method: 'get',
    path: '/metrics',
    summary: 'Counts and times, as Prometheus reads them.',
    role: 'read',
    answers: {
      200: { description: 'The text format 0.0.4.', schema: z.string(), type: 'text/plain' },
      404: { description: 'Metrics are off.', schema: errorSchema },
    },
    answer: async ({ request }) => {
      if (read === undefined) throw metricsOff();
      return (await read()).answer(request);
    },
  });
}

/** One text for all requests while it is made, and for a while after. */
function throttledMetrics(read: ReadMetrics, clock: Clock): () => Promise<SharedText> {
  let last: { readonly text: Promise<SharedText>; goodUntil: number } | undefined;
  return () => {
    const now = clock.monotonic();
    if (last !== undefined && now < last.goodUntil) return last.text;
    const text = read().then((result) => new SharedText(result.text, result.type));
    const made = { text, goodUntil: Number.POSITIVE_INFINITY };
    last = made;
    made.text.then(
      () => {
        const ended = clock.monotonic();
        made.goodUntil =
          ended + Math.min(METRICS_REUSE_MAX_MS, METRICS_REUSE_FACTOR * (ended - now));
      },
      () => {
        made.goodUntil = now;
      },
    );
    return made.text;
  };
}

function metricsOff(): HttpRefusal {
  return new HttpRefusal(
    404,
    'route.unknown',
    'there are no metrics: they are off in the configuration; set metrics.enabled to true',
  );
}
