/**
 * http-load — N keep-alive connections, one post after the other on each. A few lines over sockets:
 * a client library would take as much of the machine as the server that is measured.
 */

import { connect, type Socket } from 'node:net';
import { percentile, type Sample } from './measure.ts';
import { WARM_UP_SHARE } from './ours.ts';

/** What is posted, where, how often at once and for how long. */
export interface HttpLoad {
  readonly port: number;
  readonly path: string;
  readonly connections: number;
  readonly bodyBytes: number;
  readonly forMs: number;
}

/** Answers per second after the warm-up; anything but 201 ends the bench. */
export async function postRate(load: HttpLoad): Promise<Sample> {
  const request = requestOf(load);
  const beganAt = performance.now();
  const countsFrom = beganAt + load.forMs * WARM_UP_SHARE;
  const endsAt = beganAt + load.forMs;
  const latencies: number[] = [];
  const one = async (): Promise<void> => {
    const post = await poster(load.port, request);
    for (;;) {
      const startedAt = performance.now();
      if (startedAt >= endsAt) break;
      await post.once();
      if (startedAt >= countsFrom) latencies.push(performance.now() - startedAt);
    }
    post.close();
  };
  await Promise.all(Array.from({ length: load.connections }, one));
  return {
    value: latencies.length / ((endsAt - countsFrom) / 1_000),
    p50Ms: percentile(latencies, 0.5),
    p99Ms: percentile(latencies, 0.99),
  };
}

function requestOf({ port, path, bodyBytes }: HttpLoad): Buffer {
  const head = [
    `POST ${path} HTTP/1.1`,
    `Host: 127.0.0.1:${port}`,
    'Content-Type: application/octet-stream',
    `Content-Length: ${bodyBytes}`,
  ];
  return Buffer.concat([Buffer.from(`${head.join('\r\n')}\r\n\r\n`), Buffer.alloc(bodyBytes, 'x')]);
}

interface Poster {
  once(): Promise<void>;
  close(): void;
}

async function poster(port: number, request: Buffer): Promise<Poster> {
  const socket: Socket = connect({ port, host: '127.0.0.1', noDelay: true });
  await new Promise<void>((resolve, reject) => {
    socket.once('connect', resolve);
    socket.once('error', reject);
  });
  let answer = '';
  let done: (() => void) | undefined;
  let fail: ((error: Error) => void) | undefined;
  socket.setEncoding('latin1');
  socket.on('data', (part: string) => {
    answer += part;
    const headEnd = answer.indexOf('\r\n\r\n');
    if (headEnd < 0) return;
    const length = Number(/content-length: (\d+)/i.exec(answer)?.[1] ?? Number.NaN);
    if (answer.length < headEnd + 4 + length) return;
    const line = answer.slice(0, answer.indexOf('\r\n'));
    const text = answer;
    answer = '';
    if (line.startsWith('HTTP/1.1 201')) done?.();
    else fail?.(new Error(`the server answered: ${text}`));
  });
  socket.on('close', () => fail?.(new Error('the server closed the connection')));
  return {
    once: () =>
      new Promise((resolve, reject) => {
        done = resolve;
        fail = reject;
        socket.write(request);
      }),
    close: () => socket.destroy(),
  };
}
