/**
 * metrics-route — what Prometheus reads, at the path that it asks by itself.
 */

import { z } from '@hono/zod-openapi';
import type { MetricsText } from '../observe/metrics/types.ts';
import { addEndpoint, type App, errorSchema } from './endpoint.ts';
import { Refusal } from './refusal.ts';

/** Adds it to the app; without metrics it says that they are off. */
export function addMetricsRoute(app: App, read: (() => Promise<MetricsText>) | undefined): void {
  addEndpoint(app, {
    method: 'get',
    path: '/metrics',
    summary: 'Counts and times, as Prometheus reads them.',
    role: 'read',
    answers: {
      200: { description: 'The text format 0.0.4.', schema: z.string(), type: 'text/plain' },
      404: { description: 'Metrics are off.', schema: errorSchema },
    },
    answer: async () => {
      if (read === undefined) throw off();
      const { type, text } = await read();
      return new Response(text, { headers: { 'content-type': type } });
    },
  });
}

function off(): Refusal {
  return new Refusal(
    404,
    'route.unknown',
    'there are no metrics: they are off in the configuration; set metrics.enabled to true',
  );
}
