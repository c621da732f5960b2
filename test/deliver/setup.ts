/** setup — a server to deliver to, a delivery to give to a handler, a folder for scripts. */
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { chmod, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import type { Delivery, Handler, Outcome } from 'respool';
import { onTestFinished } from 'vitest';

/** One request as the server got it. */
export interface Seen {
  readonly method: string;
  readonly url: string;
  readonly headers: IncomingMessage['headers'];
  readonly body: Buffer;
}

/** A server on loopback that remembers what it got. */
export interface Receiver {
  readonly url: string;
  readonly port: number;
  readonly seen: Seen[];
  readonly server: Server;
  /** How many connections it took. */
  readonly connections: () => number;
}

type Answering = (request: IncomingMessage, response: ServerResponse) => void;

/** Answers with a status, headers and text after the whole request has come. */
export function answer(
  status: number,
  text = '',
  headers: Readonly<Record<string, string>> = {},
): Answering {
  return (_request, response) => response.writeHead(status, headers).end(text);
}

/** A receiver that reads every request whole before it answers. */
export async function receiver(answering: Answering = answer(200)): Promise<Receiver> {
  const seen: Seen[] = [];
  const base = await rawReceiver((request, response) => {
    const parts: Buffer[] = [];
    request.on('data', (part: Buffer) => parts.push(part));
    request.on('error', () => undefined);
    request.on('end', () => {
      const { method = '', url = '', headers } = request;
      seen.push({ method, url, headers, body: Buffer.concat(parts) });
      answering(request, response);
    });
  });
  return { ...base, seen };
}

/** A receiver that reads what it likes. */
export async function rawReceiver(answering: Answering): Promise<Receiver> {
  const server = createServer(answering);
  let connections = 0;
  server.on('connection', () => {
    connections += 1;
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  onTestFinished(async () => {
    server.closeAllConnections();
    server.close();
    await once(server, 'close');
  });
  const { port } = server.address() as AddressInfo;
  const url = `http://127.0.0.1:${port}/hook`;
  return { url, port, seen: [], server, connections: () => connections };
}

/** How a delivery differs from the usual one. */
export interface DeliveryParts {
  readonly body?: Uint8Array | string;
  /** In place of a body in memory; the size is said apart. */
  readonly stream?: () => AsyncIterable<Uint8Array>;
  readonly size?: number;
  readonly headers?: Readonly<Record<string, string>>;
  readonly destination?: string;
  readonly attempt?: number;
  readonly lane?: 'delivery' | 'notice';
  readonly lastFailure?: Delivery['lastFailure'];
  readonly signal?: AbortSignal;
}

/** A delivery by hand, and what was noted with it. */
export interface HandMade {
  readonly delivery: Delivery;
  readonly notes: Record<string, string>;
}

/** A delivery without an engine, of a message of topic `webhook.new`. */
export function makeDelivery(parts: DeliveryParts = {}): HandMade {
  const bytes = Buffer.from(parts.body ?? '{"hello":1}');
  const size = parts.size ?? bytes.length;
  const notes: Record<string, string> = {};
  const stream =
    parts.stream ??
    (async function* () {
      yield bytes;
    } as () => AsyncIterable<Uint8Array>);
  const headers = parts.headers ?? {};
  const delivery: Delivery = {
    id: 'message-1',
    topic: 'webhook.new',
    envelope: {
      id: 'message-1',
      topic: 'webhook.new',
      headers,
      enqueuedAt: Date.UTC(2026, 0, 2, 3, 4, 5),
      priority: 5,
      ...(parts.destination === undefined ? {} : { destination: parts.destination }),
      body: {
        ref: '',
        place: 'inline',
        size,
        storedSize: size,
        digest: `sha256:${createHash('sha256').update(bytes).digest('hex')}`,
        encodings: [],
      },
    },
    headers,
    lane: parts.lane ?? 'delivery',
    attempt: parts.attempt ?? 1,
    fence: 'message-1:1',
    lastFailure: parts.lastFailure,
    notes: {},
    signal: parts.signal ?? new AbortController().signal,
    body: async () => {
      const all: Uint8Array[] = [];
      for await (const part of stream()) all.push(part);
      return Buffer.concat(all);
    },
    stream,
    text: async () => bytes.toString(),
    json: async () => JSON.parse(bytes.toString()) as unknown,
    note: (name, value) => {
      notes[name] = value;
    },
  };
  return { delivery, notes };
}

/** What a handler makes of a delivery; nothing returned is delivered. */
export async function run(handler: Handler, parts: DeliveryParts = {}): Promise<Outcome> {
  return (await handler(makeDelivery(parts).delivery)) ?? { kind: 'delivered' };
}

/** The same in one line: kind or permanence, code, reason. */
export async function brief(handler: Handler, parts: DeliveryParts = {}): Promise<string> {
  const outcome = await run(handler, parts);
  switch (outcome.kind) {
    case 'failed':
      return `${outcome.failure.permanence} ${outcome.failure.code}: ${outcome.failure.reason}`;
    case 'held':
      return `held ${outcome.code}: ${outcome.reason}`;
    default:
      return outcome.kind;
  }
}

/** A folder that is gone after the test. */
export async function folder(): Promise<string> {
  const dir = await mkdtemp(path.join(tmpdir(), 'respool-deliver-'));
  onTestFinished(() => rm(dir, { recursive: true, force: true }));
  return dir;
}

/** A program in a folder of its own. */
export async function script(text: string, name = 'command.sh'): Promise<string> {
  const file = path.join(await folder(), name);
  await writeFile(file, text.startsWith('#!') ? text : `#!/bin/sh\n${text}\n`);
  await chmod(file, 0o755);
  return file;
}

/** A body of many parts that is never in memory as a whole. */
export function largeBody(bytes: number, partBytes = 65_536): () => AsyncIterable<Uint8Array> {
  const part = Buffer.alloc(partBytes, 'respool ');
  return async function* () {
    for (let rest = bytes; rest > 0; rest -= partBytes) yield part.subarray(0, rest);
  };
}
