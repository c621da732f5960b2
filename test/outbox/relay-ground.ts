/** An outbox in a schema of its own and an exchange of its own, both gone after the test. */

import { randomUUID } from 'node:crypto';
import pg from 'pg';
import type { Clock, SpoolEvent } from 'respool';
import { createOutbox, type Outbox, type Relay, type RelayOptions } from 'respool/outbox';
import { onTestFinished } from 'vitest';
import { type BrokerWorld, brokerWorld } from '../rabbit/publisher-setup.ts';
import { service } from '../services/index.ts';
import { systemClock } from '../time.ts';

/** What a test of relays stands on. */
export interface Ground {
  readonly outbox: Outbox<pg.PoolClient>;
  readonly pool: pg.Pool;
  readonly schema: string;
  /** Its queue takes what is emitted under `q.#`. */
  readonly broker: BrokerWorld;
  /** Emits and commits so many; their ids in order. */
  readonly emit: (count: number, options?: EmitPlan) => Promise<string[]>;
  /** A relay to the exchange, stopped after the test; not started. */
  readonly relay: (options?: Partial<RelayOptions>) => Relay;
  /** How many rows are in each state. */
  readonly states: () => Promise<Record<string, number>>;
}

/** What is emitted. */
export interface EmitPlan {
  readonly routingKey?: string;
  readonly key?: (at: number) => string;
  readonly eta?: string;
  readonly expires?: string;
  /** Whether relays are told; default false. */
  readonly wakes?: boolean;
}

const EMIT_MAX = 1_000;

/** Makes an outbox and an exchange with a queue. */
export async function ground({
  rabbitUrl,
  listens = false,
  clock = systemClock,
}: {
  readonly rabbitUrl?: string;
  readonly listens?: boolean;
  readonly clock?: Clock;
} = {}): Promise<Ground> {
  const url = await service('postgres');
  const schema = `t_${randomUUID().replaceAll('-', '')}`;
  const pool = new pg.Pool({ connectionString: url, max: 10 });
  pool.on('error', () => undefined);
  const outbox = createOutbox({ pool, schema, clock, ...(listens ? { listenUrl: url } : {}) });
  const broker = await brokerWorld(rabbitUrl ?? (await service('rabbitmq')));
  onTestFinished(async () => {
    await broker.dispose();
    await outbox.close();
    await pool.query(
      `SET client_min_messages = warning; DROP SCHEMA IF EXISTS "${schema}" CASCADE`,
    );
    await pool.end();
  });
  await outbox.migrate();
  const emit: Ground['emit'] = async (count, plan = {}) => {
    const { routingKey = 'q.order', key, wakes = false, ...rest } = plan;
    const messages = Array.from({ length: count }, (_, at) => ({
      ...rest,
      routingKey,
      body: { at },
      ...(key === undefined ? {} : { key: key(at) }),
    }));
    const client = await pool.connect();
    const ids: string[] = [];
    try {
      await client.query('BEGIN');
      for (let at = 0; at < count; at += EMIT_MAX) {
        const emitted = await outbox.emitMany(client, messages.slice(at, at + EMIT_MAX));
        ids.push(...emitted.map(({ id }) => id));
      }
      await client.query('COMMIT');
    } finally {
      client.release();
    }
    if (wakes) await outbox.wake();
    return ids;
  };
  const relay: Ground['relay'] = (options = {}) => {
    const to = { amqp: broker.url, exchange: broker.exchange };
    const made = outbox.relay({ to, ...options });
    onTestFinished(() => made.stop({ within: '2s' }));
    return made;
  };
  const states: Ground['states'] = async () => {
    const counts = await outbox.spool.count();
    return Object.fromEntries(Object.entries(counts).filter(([, count]) => count > 0));
  };
  return { outbox, pool, schema, broker, emit, relay, states };
}

/** The ids of what arrived, in order. */
export function idsOf(
  messages: readonly { readonly properties: { readonly messageId?: unknown } }[],
): string[] {
  return messages.map(({ properties }) => String(properties.messageId));
}

/** Resolves when so many events of a kind were told. */
export function told(relay: Relay, kind: SpoolEvent['kind'], count = 1): Promise<SpoolEvent[]> {
  return new Promise((resolve) => {
    const events: SpoolEvent[] = [];
    const undo = relay.on(kind, (event) => {
      events.push(event);
      if (events.length < count) return;
      undo();
      resolve(events);
    });
  });
}

/** Counts what is asked of the server over the pool. */
export function countQueries({ pool }: Ground): { readonly texts: string[] } {
  const counted = { texts: [] as string[] };
  pool.on('connect', (client) => watch(client));
  const seen = new WeakSet<object>();
  const watch = (client: object): void => {
    if (seen.has(client)) return;
    seen.add(client);
    const plain = Reflect.get(client, 'query') as (...args: unknown[]) => unknown;
    Reflect.set(client, 'query', (...args: unknown[]) => {
      const [first] = args;
      const text = typeof first === 'string' ? first : Reflect.get(Object(first), 'text');
      counted.texts.push(String(text));
      return plain.apply(client, args);
    });
  };
  pool.on('acquire', (client) => watch(client));
  return counted;
}

/** Whether a statement claims. */
export function isClaim(text: string): boolean {
  return /SKIP LOCKED/i.test(text);
}
