/** A relay over memory and virtual time: what its store is asked, and what its sink is sent. */

import type {
  EntryStore,
  OutgoingMessage,
  RetryPolicy,
  Sink,
  Spool,
  SpoolEvent,
  Status,
} from 'respool';
import { createSpool, exponential } from 'respool';
import { createMemoryData, memory, memoryBodies } from 'respool/stores/memory';
import { seededDice, SimClock } from 'respool/testkit';
import { noBodies } from '../../src/outbox/message.ts';
import type { OutboxParts } from '../../src/outbox/parts.ts';
import type { Relay, RelayOptions, RelayTarget } from 'respool/outbox';
import { createRelay } from '../../src/outbox/relay.ts';

export type Answers = Awaited<ReturnType<Sink['send']>>;

/** The policy of outboxes. */
export const POLICY: RetryPolicy = exponential({ first: '1s', max: '5m', attempts: 20 });

/** A sink that keeps what it is sent, and answers as told. */
export class TestSink implements Sink {
  readonly name = 'tin';
  readonly sends: (readonly OutgoingMessage[])[] = [];
  isClosed = false;
  answer: (parcels: readonly OutgoingMessage[]) => Answers | Promise<Answers> = confirmed;
  /** Set where the sink says when it is back. */
  onBack?: (call: () => void) => () => void;

  async send(parcels: readonly OutgoingMessage[]): Promise<Answers> {
    this.sends.push(parcels);
    return this.answer(parcels);
  }

  async close(): Promise<void> {
    this.isClosed = true;
  }

  /** The ids of all that were sent, in order. */
  get ids(): string[] {
    return this.sends.flat().map(({ id }) => id);
  }
}

export function confirmed(parcels: readonly OutgoingMessage[]): Answers {
  return parcels.map(() => 'confirmed' as const);
}

/** A relay and everything around it. */
export interface RelayWorld {
  readonly relay: Relay;
  readonly clock: SimClock;
  /** Over the same data, never started: puts messages down, and looks. */
  readonly spool: Spool;
  readonly events: SpoolEvent[];
  /** How often the relay asked its store for this. */
  readonly count: (operation: string) => number;
  readonly status: (id: string) => Promise<Status>;
  readonly parts: OutboxParts;
}

/** Makes a relay that is not started. */
export function relayWorld(
  to: RelayTarget,
  options: Partial<RelayOptions> = {},
  more: Partial<OutboxParts> = {},
): RelayWorld {
  const clock = new SimClock();
  const data = createMemoryData();
  const calls: string[] = [];
  const parts: OutboxParts = {
    name: 'the outbox in memory',
    makeStore: () => spied(memory({ shared: data }), calls),
    makeBodies: noBodies,
    policies: { default: POLICY },
    backoffs: {},
    maxBytes: 1024 * 1024,
    deleteExpiredKeys: () => Promise.resolve(0),
    logger: undefined,
    clock,
    dice: seededDice(1),
    ...more,
  };
  const relay = createRelay(parts, { to, ...options });
  const events: SpoolEvent[] = [];
  relay.on('*', (event) => events.push(event));
  const spool = createSpool({
    entries: memory({ shared: data }),
    bodies: memoryBodies(),
    dice: seededDice(2),
    clock,
  });
  return {
    relay,
    clock,
    spool,
    events,
    parts,
    count: (operation) => calls.filter((call) => call === operation).length,
    status: async (id) => {
      const entry = await spool.get(id);
      if (entry === undefined) throw new Error(`message "${id}" is gone`);
      return entry.status;
    },
  };
}

/** Puts so many messages down; their ids. */
export async function put(spool: Spool, count: number, topic = 'order.new'): Promise<string[]> {
  const messages = Array.from({ length: count }, (_, at) => ({ topic, body: { at } }));
  return (await spool.enqueueMany(messages)).map(({ id }) => id);
}

function spied(store: EntryStore, calls: string[]): EntryStore {
  return new Proxy(store, {
    get(target, name) {
      const value: unknown = Reflect.get(target, name);
      if (typeof value !== 'function') return value;
      return (...args: unknown[]) => {
        calls.push(String(name));
        return (value as (...given: unknown[]) => unknown).apply(target, args);
      };
    },
  });
}
