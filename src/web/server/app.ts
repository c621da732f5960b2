/**
 * app — all endpoints in one app, with the document that describes them. Loaded by service.ts when
 * it begins to listen, or with its first `fetch` that is no raw post: schemas take their time.
 */

import { OpenAPIHono, z } from '@hono/zod-openapi';
import type { MetricsText } from '../../observe/metrics/types.ts';
import { type MemoOptions, memo } from '../../system/wait.ts';
import { addActionRoutes } from '../routes/actions.ts';
import { addBulkRoutes, addRekeyRoutes } from '../routes/bulk.ts';
import { type App, addEndpoint } from './endpoint.ts';
import { addEventRoutes } from '../routes/events.ts';
import { addHealth, addMetricsRoute, type HealthRouteOptions } from '../routes/health.ts';
import { addLetterRoutes } from '../routes/letters.ts';
import { addInspectRoutes } from '../routes/inspect.ts';
import { addMessageRoutes } from '../routes/messages.ts';
import { addRecordRoutes } from '../routes/records.ts';
import { HttpRefusal, refusedOf } from './refusal.ts';
import { SharedText } from './shared-reads.ts';
import { JSON_TYPE, SAFE_HEADERS } from './writing.ts';

/**
 * Heavy and large counts, asked once for all who want them. The 5 s are also in routes/inspect.ts
 * and docs/reference/http-api.md.
 */
const COUNTS: MemoOptions = { ttlMs: 5_000, max: 8 };

/** What the app needs. */
interface AppOptions extends HealthRouteOptions {
  readonly bodyMaxBytes: number;
  readonly eventsMax: number;
  readonly version: string;
  /** What `/metrics` answers; undefined: metrics are off. */
  readonly metrics?: (() => Promise<MetricsText>) | undefined;
  /** Hears of what fails. */
  onError(error: unknown, path: string): void;
}

/** Builds it. */
export function createApp(parts: AppOptions): App {
  const app: App = new OpenAPIHono({ strict: true });
  app.onError((error, context) => {
    parts.onError(error, context.req.path);
    return answerTo(error);
  });
  app.notFound((context) => answerTo(unknownRoute(app, context.req.method, context.req.path)));
  const shared = memo(parts.clock, COUNTS);
  app.use('*', async ({ req }, next) => {
    await next();
    if (req.method !== 'GET' && req.path !== '/v1/messages') shared.clear();
  });
  addMessageRoutes(app, parts);
  addActionRoutes(app);
  addBulkRoutes(app, parts);
  addInspectRoutes(app, shared);
  addRekeyRoutes(app, parts);
  addLetterRoutes(app);
  addRecordRoutes(app);
  addEventRoutes(app, { clock: parts.clock, max: parts.eventsMax, signal: parts.signal });
  addHealth(app, parts);
  addMetricsRoute(app, parts.metrics, parts.clock);
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

function addDocument(app: App, version: string): void {
  let document: SharedText | undefined;
  addEndpoint(app, {
    method: 'get',
    path: '/openapi.json',
    summary: 'This document.',
    answers: { 200: { description: 'OpenAPI 3.1.', schema: z.looseObject({}) } },
    answer: ({ request }) => {
      document ??= new SharedText(
        JSON.stringify(
          app.getOpenAPI31Document({
            openapi: '3.1.0',
            info: { title: 'Respool', version, description: 'A durable message spool.' },
          }),
        ),
        JSON_TYPE,
      );
      return document.answer(request);
    },
  });
  app.openAPIRegistry.registerComponent('securitySchemes', 'token', {
    type: 'http',
    scheme: 'bearer',
  });
}

/** A path that exists under another method says so. */
function unknownRoute(app: App, method: string, path: string): HttpRefusal {
  const allowed = app.openAPIRegistry.definitions
    .flatMap((one) => (one.type === 'route' ? [one.route] : []))
    .filter((route) => patternOf(route.path).test(path))
    .map((route) => route.method.toUpperCase());
  if (allowed.length === 0) {
    return new HttpRefusal(
      404,
      'route.unknown',
      'there is no such path; /openapi.json lists them all',
    );
  }
  return new HttpRefusal(
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
