/**
 * setup — a service on a free port of this machine, over a spool in memory, and the ways to talk
 * to it: fetch, and a bare socket for what no client would send.
 */
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { createSpool, type Logger, type Spool, type SpoolOptions } from 'respool';
import type { ServiceOperator } from '../../src/spool/operator/operator.ts';
import { createMemoryData, memory, memoryBodies } from 'respool/stores/memory';
import { faultyBodies, faultyStore, SimClock } from 'respool/testkit';
import type { FaultyBodies, FaultyStore } from 'respool/testkit';
import { onTestFinished } from 'vitest';
import { internalsOf } from '../../src/spool/internals.ts';
import { createServiceOperator } from '../../src/spool/operator/spool-operator.ts';
import { createService, type Service, type ServiceOptions } from '../../src/web/server/service.ts';
import type { ServeSettings, TokenRole } from '../../src/web/server/settings.ts';

export type { ServeSettings, TokenRole };

export const SETTINGS: ServeSettings = {
  host: '127.0.0.1',
  port: 0,
  stopWithin: '2s',
  limits: { connections: 100, events: 3, requestsPerSecond: 1_000, requestTimeout: '5m' },
};

export const BODY_MAX_BYTES = 1_000_000;

export interface WorldOptions {
  readonly settings?: Partial<ServeSettings>;
  readonly spool?: SpoolOptions;
  readonly parts?: Partial<ServiceOptions>;
  /** What of the operator is otherwise. */
  readonly operator?: (operator: ServiceOperator) => Partial<ServiceOperator>;
  /** Listens unless this is false. */
  readonly isListening?: boolean;
}

export interface World {
  readonly service: Service;
  readonly spool: Spool;
  /** Moves the service's time; the spool has its own. */
  readonly clock: SimClock;
  readonly store: FaultyStore;
  readonly bodies: FaultyBodies;
  readonly logs: string[];
  readonly url: string;
  readonly port: number;
  /** A request over the wire. */
  readonly ask: (path: string, init?: RequestInit) => Promise<Response>;
  /** The same with a JSON body. */
  readonly post: (path: string, json?: unknown, init?: RequestInit) => Promise<Response>;
}

/** Makes a service; everything ends with the test. */
export async function setup(options: WorldOptions = {}): Promise<World> {
  const { isListening = true, settings = {}, parts = {} } = options;
  const clock = new SimClock();
  const data = createMemoryData();
  const store = faultyStore(memory({ shared: data }), { clock });
  const bodies = faultyBodies(memoryBodies({ shared: data, clock }), { clock });
  const spool = createSpool({
    entries: store,
    bodies,
    clock,
    limits: { bodyBytes: BODY_MAX_BYTES },
    ...options.spool,
  });
  await spool.start();
  const logs: string[] = [];
  const service = createService({
    operator: (by) => {
      const operator = createServiceOperator(internalsOf(spool), { by });
      return { ...operator, ...options.operator?.(operator) };
    },
    settings: { ...SETTINGS, ...settings },
    bodyMaxBytes: BODY_MAX_BYTES,
    logger: loggerInto(logs),
    isReady: () => true,
    version: '1.2.3',
    clock,
    ...parts,
  });
  const { url, port } = isListening ? await service.listen() : { url: 'http://localhost', port: 0 };
  onTestFinished(async () => {
    service.beginStop();
    await Promise.all([service.stop(), clock.advance('1m')]);
    await Promise.all([spool.stop(), clock.advance('1m')]);
  });
  const ask: World['ask'] = (path, init) =>
    isListening ? fetch(`${url}${path}`, init) : service.fetch(new Request(`${url}${path}`, init));
  const post: World['post'] = (path, json, init = {}) =>
    ask(path, {
      method: 'POST',
      ...init,
      ...(json === undefined ? {} : { body: JSON.stringify(json) }),
      headers: {
        ...(json === undefined ? {} : { 'content-type': 'application/json' }),
        ...(init.headers as Record<string, string> | undefined),
      },
    });
  return { service, spool, clock, store, bodies, logs, url, port, ask, post };
}

/** A logger whose every word can be looked through. */
function loggerInto(logs: string[]): Logger {
  const line =
    (level: string) =>
    (fields: object, text: string): void =>
      void logs.push(JSON.stringify({ level, ...fields, text }));
  return { debug: line('debug'), info: line('info'), warn: line('warn'), error: line('error') };
}

/** The JSON of an answer. */
export async function json<T = Record<string, unknown>>(
  answer: Response | Promise<Response>,
): Promise<T> {
  return (await (await answer).json()) as T;
}

/** Status and code of a refusal. */
export async function refusal(answer: Response | Promise<Response>): Promise<unknown[]> {
  const { status } = await answer;
  const { error } = await json<{ error: { code: string; reason?: string } }>(answer);
  return [status, error.code, ...(error.reason === undefined ? [] : [error.reason])];
}

/** A connection without manners. */
export interface Wire {
  readonly socket: Socket;
  /** Everything that came back so far. */
  received: string;
  /** Waits until something like this has come back. */
  readonly until: (pattern: RegExp) => Promise<string>;
  /** Waits until the other side has closed. */
  readonly closed: Promise<void>;
}

/** Opens a bare connection and sends this. */
export async function openWire(port: number, text: string): Promise<Wire> {
  const socket = connect(port, '127.0.0.1');
  onTestFinished(() => void socket.destroy());
  socket.on('error', () => undefined);
  const wire: Wire = {
    socket,
    received: '',
    until: async (pattern) => {
      while (!pattern.test(wire.received)) await once(socket, 'data');
      return wire.received;
    },
    closed: new Promise((resolve) => socket.once('close', () => resolve())),
  };
  socket.on('data', (bytes: Buffer) => {
    wire.received += bytes.toString('latin1');
  });
  await once(socket, 'connect');
  socket.write(text, 'latin1');
  return wire;
}

/** Moves the clock, a little at a time, until the work is done that waits for it. */
export async function moving<T>(clock: SimClock, work: Promise<T>): Promise<T> {
  const progress = { isDone: false };
  const done = work.finally(() => {
    progress.isDone = true;
  });
  while (!progress.isDone) {
    await new Promise((resolve) => setImmediate(resolve));
    await clock.advance(10);
  }
  return done;
}
