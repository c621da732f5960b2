/**
 * setup — a fresh spool in memory and virtual time for each test, with its store under a spy and
 * under planned faults. Used by the tests of engine, spool and control.
 */
import { type EntryStore, createSpool, type EntryStoreTraits, isRespoolError } from 'respool';
import type { ErrorCode, Handler, Spool, SpoolEvent, SpoolOptions, Status } from 'respool';
import { createMemoryData, memory, type MemoryData, memoryBodies } from 'respool/stores/memory';
import { faultyBodies, faultyStore, seededDice, SimClock } from 'respool/testkit';
import type { FaultyBodies, FaultyStore } from 'respool/testkit';

export const SECOND = 1_000;
export const MINUTE: number = 60 * SECOND;
export const HOUR: number = 60 * MINUTE;
export const DAY: number = 24 * HOUR;

/** One call of the entry store. */
export interface Call {
  readonly operation: string;
  readonly args: readonly unknown[];
}

/** How a world differs from the usual one. */
export interface WorldOptions extends SpoolOptions {
  /** Started unless this is false. */
  readonly isStarted?: boolean;
  /** Data and clock of another world, to share them. */
  readonly with?: World;
  readonly traits?: Partial<EntryStoreTraits>;
  /** What the store can do besides, such as `now` or `expireLost`. */
  readonly extras?: (store: EntryStore) => Partial<EntryStore>;
}

/** A spool and everything around it. */
export interface World {
  readonly spool: Spool;
  readonly clock: SimClock;
  readonly data: MemoryData;
  /** The entry store as the spool has it, with its plan of faults. */
  readonly store: FaultyStore;
  readonly bodies: FaultyBodies;
  /** Every event so far. */
  readonly events: SpoolEvent[];
  /** Every call of the entry store so far. */
  readonly calls: Call[];
  /** The status of a message that must be there. */
  readonly status: (id: string) => Promise<Status>;
  /** The kinds of events so far, of one message or of all. */
  readonly kinds: (id?: string) => string[];
  /** How often the store was called for this. */
  readonly count: (operation: string) => number;
}

/** Makes a spool on memory stores; the next step of time is the test's. */
export async function setup(options: WorldOptions = {}): Promise<World> {
  const { isStarted = true, with: other, traits, extras, ...rest } = options;
  const clock = other?.clock ?? new SimClock();
  const data = other?.data ?? createMemoryData();
  const plain = memory({ shared: data });
  const changed: EntryStore = {
    ...plain,
    ...extras?.(plain),
    traits: { ...plain.traits, ...traits },
  };
  const store = faultyStore(changed, { clock });
  const bodies = faultyBodies(memoryBodies({ shared: data, clock }), { clock });
  const calls: Call[] = [];
  const spool = createSpool({
    entries: spied(store, calls),
    bodies,
    // Spools on the same data and clock must not make the same ids.
    dice: seededDice(other === undefined ? 1 : 2),
    ...rest,
    clock,
  });
  const events: SpoolEvent[] = [];
  spool.on('*', (event) => events.push(event));
  if (isStarted) await spool.start();
  return {
    spool,
    clock,
    data,
    store,
    bodies,
    events,
    calls,
    status: async (id) => {
      const entry = await spool.get(id);
      if (entry === undefined) throw new Error(`message "${id}" is gone`);
      return entry.status;
    },
    kinds: (id) =>
      events
        .filter((event) => id === undefined || ('id' in event && event.id === id))
        .map((event) => event.kind),
    count: (operation) => calls.filter((call) => call.operation === operation).length,
  };
}

/** The store, telling its calls; records are told as `records.append` and so on. */
function spied<T extends object>(store: T, calls: Call[], prefix = ''): T {
  return new Proxy(store, {
    get(target, name) {
      const value: unknown = Reflect.get(target, name);
      if (name === 'records') return spied(value as object, calls, 'records.');
      if (typeof value !== 'function') return value;
      return (...args: unknown[]) => {
        calls.push({ operation: `${prefix}${String(name)}`, args });
        return (value as (...given: unknown[]) => unknown)(...args);
      };
    },
  });
}

/** A handler that waits until the test opens it; counts how many run at once. */
export interface Gate {
  readonly handler: Handler;
  /** Ids in the order their handlers began. */
  readonly began: string[];
  running: number;
  mostRunning: number;
  /** Lets this one go on, or all that wait and all that come. */
  readonly open: (id?: string) => void;
}

/** Makes a closed gate. */
export function makeGate(): Gate {
  const waiting = new Map<string, () => void>();
  let isOpen = false;
  const gate: Gate = {
    began: [],
    running: 0,
    mostRunning: 0,
    handler: async ({ id }) => {
      gate.began.push(id);
      gate.running += 1;
      gate.mostRunning = Math.max(gate.mostRunning, gate.running);
      if (!isOpen) await new Promise<void>((resolve) => waiting.set(id, resolve));
      gate.running -= 1;
    },
    open(id) {
      if (id === undefined) isOpen = true;
      for (const [one, resolve] of waiting) {
        if (id !== undefined && one !== id) continue;
        waiting.delete(one);
        resolve();
      }
    },
  };
  return gate;
}

/** A handler that fails this often and then delivers; tells its attempts. */
export function failing(times: number, thrown: () => unknown = () => new Error('no')): Failing {
  const attempts: number[] = [];
  const handler: Handler = ({ attempt }) => {
    attempts.push(attempt);
    if (attempts.length <= times) throw thrown();
  };
  return { handler, attempts };
}

export interface Failing {
  readonly handler: Handler;
  readonly attempts: number[];
}

/** What a promise is rejected with. */
export async function rejection(work: Promise<unknown>): Promise<Error & { code?: string }> {
  try {
    await work;
  } catch (error) {
    return error as Error & { code?: string };
  }
  throw new Error('it was expected to fail, and did not');
}

/** The code of the RespoolError that the work fails with. */
export async function codeOf(work: Promise<unknown>): Promise<ErrorCode> {
  const error = await rejection(work);
  if (!isRespoolError(error)) throw new Error('not a RespoolError', { cause: error });
  return error.code;
}

/** The bytes of a stream, together. */
export async function bytesOf(stream: AsyncIterable<Uint8Array>): Promise<Buffer> {
  const parts: Uint8Array[] = [];
  for await (const part of stream) parts.push(part);
  return Buffer.concat(parts);
}

/** Everything an async iterable gives. */
export async function all<T>(items: AsyncIterable<T>): Promise<T[]> {
  const found: T[] = [];
  for await (const item of items) found.push(item);
  return found;
}
