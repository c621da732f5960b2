/** metrics — the endpoint that Prometheus scrapes. */

import { z } from '@hono/zod-openapi';
import type { MetricsText } from '../../observe/metrics/types.ts';
import type { Clock } from '../../ports/clock.ts';
import { addEndpoint, type App, errorSchema } from '../server/endpoint.ts';
import { HttpRefusal } from '../server/refusal.ts';
import { SharedText } from '../server/shared-reads.ts';

type Read = () => Promise<MetricsText>;

/** A text is good for this many times as long as it took: scrapes have a tenth of the time. */
const REST_FACTOR = 10;
const REST_MAX_MS = 10_000;

/** Adds it to the app; without metrics it says that they are off. */
export function addMetricsRoute(app: App, given: Read | undefined, clock: Clock): void {
  const read = given === undefined ? undefined : rested(given, clock);
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
      if (read === undefined) throw off();
      return (await read()).answer(request);
    },
  });
}

/** One text for all who ask while it is made, and for a while after. */
function rested(read: Read, clock: Clock): () => Promise<SharedText> {
  let last: { readonly text: Promise<SharedText>; goodUntil: number } | undefined;
  return () => {
    const now = clock.monotonic();
    if (last !== undefined && now < last.goodUntil) return last.text;
    const text = read().then((made) => new SharedText(made.text, made.type));
    const made = { text, goodUntil: Number.POSITIVE_INFINITY };
    last = made;
    made.text.then(
      () => {
        const ended = clock.monotonic();
        made.goodUntil = ended + Math.min(REST_MAX_MS, REST_FACTOR * (ended - now));
      },
      () => {
        made.goodUntil = now;
      },
    );
    return made.text;
  };
}

function off(): HttpRefusal {
  return new HttpRefusal(
    404,
    'route.unknown',
    'there are no metrics: they are off in the configuration; set metrics.enabled to true',
  );
}
