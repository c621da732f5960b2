/**
 * events — `GET /v1/events`: what happens, as server-sent events, to a few listeners at once.
 */

import { z } from '@hono/zod-openapi';
import type { SerializedEvent } from '../../spool/operator/operator.ts';
import { RespoolError } from '../../core/errors.ts';
import { type EventKind, LISTENER_KINDS } from '../../core/event.ts';
import { checkOneOf } from '../../core/limits.ts';
import type { Clock } from '../../ports/clock.ts';
import { withTimeout } from '../../system/wait.ts';
import { type App, addEndpoint } from '../server/endpoint.ts';

/**
 * Interval of a comment line while nothing happens, so that proxies and clients keep the
 * connection. Below QUIET_MS of web/client/client.ts. Also in docs/reference/http-api.md.
 */
const HEARTBEAT_MS = 15_000;
const KINDS_MAX_CHARS = 1_000;

/** What listening needs. */
interface EventRouteOptions {
  readonly clock: Clock;
  /** Maximum number of listeners at once. */
  readonly max: number;
  /** Fires when the service stops. */
  readonly signal: AbortSignal;
}

/** Adds it to the app. */
export function addEventRoutes(app: App, parts: EventRouteOptions): void {
  let listeners = 0;
  addEndpoint(app, {
    method: 'get',
    path: '/v1/events',
    summary: 'What happens from now on, as server-sent events.',
    role: 'read',
    query: z.strictObject({
      kinds: z
        .string()
        .min(1)
        .max(KINDS_MAX_CHARS)
        .optional()
        .describe('Kinds of events, with commas between.'),
    }),
    answers: {
      200: {
        description: 'One event each, with its kind as event and JSON as data.',
        schema: z.string(),
        type: 'text/event-stream',
      },
    },
    answer: ({ query, operator, signal: gone }) => {
      const kinds = kindsOf(query.kinds);
      if (listeners >= parts.max) throw tooMany(parts.max);
      listeners += 1;
      const over = new AbortController();
      const signal = AbortSignal.any([over.signal, parts.signal, gone]);
      const events = operator.events({ signal, ...(kinds === undefined ? {} : { kinds }) });
      const leave = (): void => {
        if (over.signal.aborted) return;
        listeners -= 1;
        over.abort();
      };
      return new Response(streamOf(events, { clock: parts.clock, signal, leave }), {
        headers: { 'content-type': 'text/event-stream; charset=utf-8', 'x-accel-buffering': 'no' },
      });
    },
  });
}

/** Pulled by the listener: one that is slow makes nothing grow here. */
function streamOf(
  events: AsyncIterable<SerializedEvent>,
  {
    clock,
    signal,
    leave,
  }: { readonly clock: Clock; readonly signal: AbortSignal; readonly leave: () => void },
): ReadableStream<Uint8Array> {
  const parts = events[Symbol.asyncIterator]();
  const encoder = new TextEncoder();
  // Asked for at once: an iterator that was never asked does not clean up after itself.
  let coming: Promise<IteratorResult<SerializedEvent>> | undefined = parts.next();
  const stop = (): void => {
    leave();
    void parts.return?.();
  };
  signal.addEventListener('abort', stop, { once: true });
  return new ReadableStream(
    {
      start: (controller) => controller.enqueue(encoder.encode(': listening\n\n')),
      async pull(controller) {
        coming ??= parts.next();
        const step = await orHeartbeat(coming, clock);
        if (step === undefined) {
          controller.enqueue(encoder.encode(': still here\n\n'));
          return;
        }
        coming = undefined;
        if (step.done === true) {
          stop();
          controller.close();
          return;
        }
        // JSON has no line breaks: the data is always one line.
        const data = JSON.stringify(step.value);
        controller.enqueue(encoder.encode(`event: ${step.value.kind}\ndata: ${data}\n\n`));
      },
      cancel: stop,
    },
    { highWaterMark: 1 },
  );
}

function orHeartbeat<T>(coming: Promise<T>, clock: Clock): Promise<T | undefined> {
  return withTimeout(clock, HEARTBEAT_MS, coming, () => undefined);
}

function kindsOf(text: string | undefined): EventKind[] | undefined {
  const known = LISTENER_KINDS.filter((kind): kind is EventKind => kind !== '*');
  return text?.split(',').map((kind) => checkOneOf('kinds', kind.trim(), known));
}

function tooMany(max: number): RespoolError {
  return new RespoolError(
    'store.unavailable',
    `${max} clients listen to events already (serve.limits.events); try again later`,
  );
}
