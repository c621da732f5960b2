/**
 * app — all endpoints in one app, with the document that describes them. Loaded with the first
 * request or when the service begins to listen: schemas take their time.
 */

import { OpenAPIHono, z } from '@hono/zod-openapi';
import type { Control } from '../control/control.ts';
import type { MetricsText } from '../observe/metrics/types.ts';
import type { Clock } from '../ports/clock.ts';
import { addActionRoutes } from './action-routes.ts';
import { addBulkRoutes } from './bulk-routes.ts';
import { addEndpoint, type App, errorSchema } from './endpoint.ts';
import { addEventRoutes } from './event-routes.ts';
import { addLetterRoutes } from './letter-routes.ts';
import { addLookRoutes } from './look-routes.ts';
import { addMessageRoutes } from './message-routes.ts';
import { addMetricsRoute } from './metrics-route.ts';
import { addRecordRoutes } from './record-routes.ts';
import { Refusal, refusedOf } from './refusal.ts';
import { addRekeyRoutes } from './rekey-routes.ts';
import { SharedReads } from './shared-reads.ts';
import { JSON_TYPE, SAFE_HEADERS } from './writing.ts';

/** How many consumers of a broker are connected, of how many. */
export interface ConsumerHealth {
  readonly connected: number;
  readonly all: number;
}

/** What the relay of an outbox is doing. */
export interface RelayHealth {
  /** `waiting` for its database, or `sending` whenever there is something to send. */
  readonly state: 'waiting' | 'sending' | 'stopped';
  /** Whether its target answers: `shut` while it does not, `probing` while one message asks. */
  readonly target: 'open' | 'shut' | 'probing';
  /** Since when the target does not answer, in milliseconds since the epoch. */
  readonly downSince?: number;
}

/** What the app needs. */
export interface AppParts {
  readonly control: Control;
  readonly clock: Clock;
  readonly bodyMaxBytes: number;
  readonly eventsMax: number;
  readonly version: string;
  /** Fires when the service stops. */
  readonly signal: AbortSignal;
  isReady(): boolean;
  /** How many consumers of a broker are connected; undefined: there are none. */
  consumers?(): ConsumerHealth | undefined;
  /** What the relay of an outbox is doing; undefined: there is none. */
  relay?(): RelayHealth | undefined;
  /** What `/metrics` answers; undefined: metrics are off. */
  readonly metrics?: (() => Promise<MetricsText>) | undefined;
  /** The disk was full a moment ago, and nothing was put down since. */
  isFull(): boolean;
  /** Hears of what fails. */
  onError(error: unknown, path: string): void;
}

/** A store that takes longer to answer is not ready. */
const READY_WITHIN_MS = 2_000;

/** Builds it. */
export function createApp(parts: AppParts): App {
  const app: App = new OpenAPIHono({ strict: true });
  app.onError((error, context) => {
    parts.onError(error, context.req.path);
    return answerTo(error);
  });
  app.notFound((context) => answerTo(unknownRoute(app, context.req.method, context.req.path)));
  const shared = new SharedReads(parts.clock);
  app.use('*', async ({ req }, next) => {
    await next();
    if (req.method !== 'GET' && req.path !== '/v1/messages') shared.clear();
  });
  addMessageRoutes(app, parts);
  addActionRoutes(app);
  addBulkRoutes(app, parts);
  addLookRoutes(app, shared);
  addRekeyRoutes(app, parts);
  addLetterRoutes(app);
  addRecordRoutes(app);
  addEventRoutes(app, { clock: parts.clock, max: parts.eventsMax, signal: parts.signal });
  addHealth(app, parts);
  addMetricsRoute(app, parts.metrics);
  addDocument(app, parts.version);
  return app;
}

/** An error as an answer of the fetch API. */
function answerTo(thrown: unknown): Response {
  const { status, headers, text } = refusedOf(thrown);
  return new Response(text, {
    status,
    headers: { ...SAFE_HEADERS, 'content-type': JSON_TYPE, ...headers },
  });
}

function addHealth(app: App, parts: AppParts): void {
  const { control, clock, signal } = parts;
  const isStoreAnswering = storeCheck(control, clock);
  const ok = { description: 'Yes.', schema: z.object({ ok: z.literal(true) }) };
  const consumers = z.object({ connected: z.number(), all: z.number() }).optional();
  const relay = z
    .object({
      state: z.enum(['waiting', 'sending', 'stopped']),
      target: z.enum(['open', 'shut', 'probing']),
      downSince: z.number().optional(),
    })
    .optional();
  const alive = z.object({ ok: z.literal(true), consumers, relay });
  addEndpoint(app, {
    method: 'get',
    path: '/healthz',
    summary: 'Is the process alive?',
    answers: { 200: { description: 'Yes; consumers and relay if any.', schema: alive } },
    // Whether a broker can be reached is no reason to kill the process: it is only told.
    answer: () =>
      Response.json({ ok: true, consumers: parts.consumers?.(), relay: parts.relay?.() }),
  });
  addEndpoint(app, {
    method: 'get',
    path: '/readyz',
    summary: 'Does it take and deliver messages? Not while starting, stopping, or on a full disk.',
    answers: { 200: ok, 503: { description: 'Not now.', schema: errorSchema } },
    answer: async () => {
      if (parts.isFull()) throw full();
      const isAnswering = !signal.aborted && parts.isReady() && (await isStoreAnswering());
      if (isAnswering) return Response.json({ ok: true });
      throw new Refusal(503, 'not-ready', 'the service is starting, stopping, or has no store', {
        code: 'store.unavailable',
        headers: { 'retry-after': '1' },
      });
    },
  });
}

function full(): Refusal {
  return new Refusal(503, 'not-ready', 'the disk is full: nothing new can be put down', {
    code: 'store.full',
    headers: { 'retry-after': '5' },
  });
}

/** Asks the store, once for all who want to know at the same time. */
function storeCheck(control: Control, clock: Clock): () => Promise<boolean> {
  let asking: Promise<boolean> | undefined;
  return () => {
    asking ??= answers(control, clock).finally(() => {
      asking = undefined;
    });
    return asking;
  };
}

function answers(control: Control, clock: Clock): Promise<boolean> {
  return new Promise((resolve) => {
    const callOff = clock.after(READY_WITHIN_MS, () => resolve(false));
    void control
      .page({ limit: 1 })
      .then(
        () => resolve(true),
        () => resolve(false),
      )
      .finally(callOff);
  });
}

function addDocument(app: App, version: string): void {
  let document: string | undefined;
  addEndpoint(app, {
    method: 'get',
    path: '/openapi.json',
    summary: 'This document.',
    answers: { 200: { description: 'OpenAPI 3.1.', schema: z.looseObject({}) } },
    answer: () => {
      document ??= JSON.stringify(
        app.getOpenAPI31Document({
          openapi: '3.1.0',
          info: { title: 'Respool', version, description: 'A durable message spool.' },
        }),
      );
      return new Response(document, { headers: { 'content-type': JSON_TYPE } });
    },
  });
  app.openAPIRegistry.registerComponent('securitySchemes', 'token', {
    type: 'http',
    scheme: 'bearer',
  });
}

/** A path that exists under another method says so. */
function unknownRoute(app: App, method: string, path: string): Refusal {
  const allowed = app.openAPIRegistry.definitions
    .flatMap((one) => (one.type === 'route' ? [one.route] : []))
    .filter((route) => patternOf(route.path).test(path))
    .map((route) => route.method.toUpperCase());
  if (allowed.length === 0) {
    return new Refusal(404, 'route.unknown', 'there is no such path; /openapi.json lists them all');
  }
  return new Refusal(
    405,
    'method.unknown',
    `this path takes ${allowed.join(', ')}, not ${method}`,
    {
      headers: { allow: allowed.join(', ') },
    },
  );
}

function patternOf(path: string): RegExp {
  return new RegExp(`^${path.replaceAll('.', '\\.').replaceAll(/\{\w+\}/g, '[^/]+')}$`);
}
