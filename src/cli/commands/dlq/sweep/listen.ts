/**
 * listen — `--listen host:port` of what runs until a signal: /healthz, /readyz and /metrics.
 *
 * The listener is that of the service. The answers are not: nothing can be changed here, no token
 * is asked for, and what is judged is a run of the work, where the service judges its store. So it
 * listens on this machine unless another address is named. The paths are also in sweep.ts,
 * dlq/dlq.ts, docs/how-to/sweep-dead-queues.md and ops/prometheus-alerts.yml.
 */

import type { IncomingMessage, ServerResponse } from 'node:http';
import { asError, RespoolError, textOf } from '../../../../core/errors.ts';
import { PORT_MAX } from '../../../../core/limits.ts';
import type { Clock } from '../../../../ports/clock.ts';
import { CommandError } from '../../../exit-codes.ts';

/** Where to listen. */
export interface Listen {
  readonly host: string;
  readonly port: number;
}

/** What is answered. */
export interface HealthAnswers {
  /** Why it is not ready; none: it is. */
  readonly reasons: () => readonly string[];
  readonly metrics: () => Promise<{ readonly type: string; readonly text: string }>;
}

/** A running listener. */
interface Listening {
  readonly url: string;
  close(): Promise<void>;
}

const LOOPBACK = '127.0.0.1';
/**
 * No events are streamed, and nothing is posted. The listener reads `connections` and
 * `requestTimeout`; its type wants the other two.
 */
const LIMITS = { connections: 64, events: 0, requestsPerSecond: 0, requestTimeout: '10s' } as const;

/** Reads `host:port`, `[::1]:port`, `:port` or `port`. */
export function listenOf(text: string): Listen {
  const [, host, port = ''] = /^(?:(\[[^\]]+\]|[^:[\]]*):)?(\d{1,5})$/.exec(text) ?? [];
  const number = port === '' ? Number.NaN : Number(port);
  if (number >= 0 && number <= PORT_MAX) {
    return { host: host?.replace(/^\[(.*)\]$/, '$1') || LOOPBACK, port: number };
  }
  throw new CommandError(
    'usage.invalid',
    `cannot use "${text}" as --listen: allowed is host:port or port, such as 127.0.0.1:9419`,
  );
}

/** Listens, and answers until it is closed. */
export async function startListening(
  { host, port }: Listen,
  answers: HealthAnswers,
  clock: Clock,
): Promise<Listening> {
  const settings = { host, port, stopWithin: '1s', limits: LIMITS } as const;
  const { Listener } = await import('../../../../web/server/listener.ts');
  const listener = new Listener(settings, {
    clock,
    onRequest: (request, response) => {
      answer(request, response, answers).catch((error: unknown) => {
        // The caller that asks hears of it; the work goes on.
        json(response, 500, { error: textOf(error) });
      });
    },
  });
  try {
    const { url } = await listener.listen();
    return { url, close: () => listener.close(0) };
  } catch (error) {
    throw cannotListen(asError(asError(error).cause ?? error), host, port);
  }
}

async function answer(
  { method, url = '/' }: IncomingMessage,
  response: ServerResponse,
  { reasons, metrics }: HealthAnswers,
): Promise<void> {
  const [path] = url.split('?');
  if (method !== 'GET' && method !== 'HEAD') {
    response.setHeader('allow', 'GET, HEAD');
    json(response, 405, { error: `cannot ${method}: allowed is GET` });
  } else if (path === '/healthz') json(response, 200, { status: 'ok' });
  else if (path === '/readyz') {
    const why = reasons();
    const isReady = why.length === 0;
    json(
      response,
      isReady ? 200 : 503,
      isReady ? { status: 'ok' } : { status: 'no', reasons: why },
    );
  } else if (path === '/metrics') {
    const { type, text } = await metrics();
    response.writeHead(200, { 'content-type': type }).end(text);
  } else json(response, 404, { error: 'there is /healthz, /readyz and /metrics' });
}

function json(response: ServerResponse, status: number, value: object): void {
  response.writeHead(status, { 'content-type': 'application/json' });
  response.end(`${JSON.stringify(value)}\n`);
}

function cannotListen(error: NodeJS.ErrnoException, host: string, port: number): RespoolError {
  const why = error.code === 'EADDRINUSE' ? 'another process listens there' : textOf(error);
  return new RespoolError(
    'config.invalid',
    `cannot listen on ${host}:${port}: ${why}; choose another with --listen`,
    { cause: error },
  );
}
