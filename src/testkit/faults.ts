/**
 * faults — stores that fail as planned, by script or by seeded chance: before a call has its
 * effect, after it, or late. Without a plan they only count. Listeners (`watch` and the like) are
 * left alone.
 *
 * The interesting fault is `after`: the work is done, and the caller gets an error.
 */

import { RespoolError } from '../core/errors.ts';
import type { BodyStore } from '../ports/body-store.ts';
import type { Clock, Dice } from '../ports/clock.ts';
import type { EntryStore } from '../ports/entry-store.ts';
import type { RecordStore } from '../ports/record-store.ts';
import { systemClock } from '../system/clock.ts';
import { sleep } from '../system/wait.ts';

/**
 * What becomes of a call. `before`: it fails and nothing happened. `after`: it happened, and the
 * caller gets `store.unavailable`. `delayMs`: it happens late. `answerLateMs`: it happens at once,
 * the answer comes late.
 */
export type Fault =
  | 'ok'
  | 'before'
  | 'after'
  | { readonly delayMs: number }
  | { readonly answerLateMs: number };

/** Decides on the nth call (1, 2, …) of an operation, such as `insert` or `records.put`. */
export type FaultPlan = (operation: string, n: number) => Fault;

/** How a store is made faulty. */
export interface FaultyOptions {
  /** What becomes of each call; default: all is well. */
  readonly plan?: FaultPlan;
  /** Measures delays; default: the machine's clock. */
  readonly clock?: Clock;
}

/** Counts calls and carries out the plan; its plan can be exchanged while it runs. */
export class Faults {
  plan: FaultPlan;
  readonly #clock: Clock;
  readonly #calls = new Map<string, number>();

  constructor({ plan = () => 'ok', clock = systemClock }: FaultyOptions = {}) {
    this.plan = plan;
    this.#clock = clock;
  }

  /** How often an operation was called; without a name: all of them together. */
  count(operation?: string): number {
    if (operation !== undefined) return this.#calls.get(operation) ?? 0;
    let total = 0;
    for (const calls of this.#calls.values()) total += calls;
    return total;
  }

  /** Counts one call and decides on it. */
  next(operation: string): Fault {
    const n = this.count(operation) + 1;
    this.#calls.set(operation, n);
    return this.plan(operation, n);
  }

  /** Does a piece of work under the plan. */
  async run<T>(operation: string, work: () => Promise<T>): Promise<T> {
    const fault = this.next(operation);
    if (fault === 'before') throw failed(operation, 'before it was done');
    if (typeof fault === 'object' && 'delayMs' in fault) await this.wait(fault.delayMs);
    const result = await work();
    if (fault === 'after') throw failed(operation, 'after it was done');
    if (typeof fault === 'object' && 'answerLateMs' in fault) await this.wait(fault.answerLateMs);
    return result;
  }

  /** Waits by the clock of the plan. */
  wait(ms: number): Promise<void> {
    return sleep(this.#clock, ms);
  }
}

/** What a planned failure looks like from outside: like any store that is away. */
function failed(operation: string, when: string): RespoolError {
  return new RespoolError(
    'store.unavailable',
    `cannot ${operation}: a planned fault came ${when}; try again`,
  );
}

/** How often each fault comes, 0 to 1, drawn from dice. */
export interface FaultRates {
  readonly dice: Dice;
  readonly before?: number;
  readonly after?: number;
  /** Work that is done late, by up to `delayMaxMs`. */
  readonly delay?: number;
  /** Answers that come late, by up to `delayMaxMs`. */
  readonly answerLate?: number;
  /** Default 1,000 ms. */
  readonly delayMaxMs?: number;
  /** The operations that may fail; default: all but open and close. */
  readonly only?: readonly string[];
}

/** A plan by chance: the same dice and the same calls make the same faults. */
export function randomFaults(rates: FaultRates): FaultPlan {
  const { dice, only, delayMaxMs = 1_000 } = rates;
  const { before = 0, after = 0, delay = 0, answerLate = 0 } = rates;
  return (operation) => {
    const isSpared = operation === 'open' || operation === 'close';
    if (only === undefined ? isSpared : !only.includes(operation)) return 'ok';
    let throwLeft = dice.random();
    const hits = (rate: number): boolean => {
      throwLeft -= rate;
      return throwLeft < 0;
    };
    if (hits(before)) return 'before';
    if (hits(after)) return 'after';
    if (hits(delay)) return { delayMs: Math.ceil(dice.random() * delayMaxMs) };
    if (hits(answerLate)) return { answerLateMs: Math.ceil(dice.random() * delayMaxMs) };
    return 'ok';
  };
}

/** An entry store with its faults. */
export interface FaultyStore extends EntryStore {
  /** The plan, to be exchanged, and the counts of calls. */
  readonly faults: Faults;
}

/** A body store with its faults. */
export interface FaultyBodies extends BodyStore {
  /** The plan, to be exchanged, and the counts of calls. */
  readonly faults: Faults;
}

/** Puts planned faults in front of an entry store; operations are named as in the port. */
export function faultyStore(store: EntryStore, options: FaultyOptions = {}): FaultyStore {
  const faults = new Faults(options);
  const now = store.now?.bind(store);
  const expireLost = store.expireLost?.bind(store);
  const watch = store.watch?.bind(store);
  const keyHeads = store.keyHeads?.bind(store);
  const announce = store.announce?.bind(store);
  const onOperation = store.onOperation?.bind(store);
  const onTrouble = store.onTrouble?.bind(store);
  return {
    name: store.name,
    // Read when asked for: a store may know its instance only once it is open.
    get instance() {
      return store.instance;
    },
    traits: store.traits,
    faults,
    open: () => faults.run('open', () => store.open()),
    close: () => faults.run('close', () => store.close()),
    insert: (entries) => faults.run('insert', () => store.insert(entries)),
    claim: (request) => faults.run('claim', () => store.claim(request)),
    nextDueAt: (filter) => faults.run('nextDueAt', () => store.nextDueAt(filter)),
    commit: (changes, how) => faults.run('commit', () => store.commit(changes, how)),
    flush: () => faults.run('flush', () => store.flush()),
    get: (id) => faults.run('get', () => store.get(id)),
    list: (query) => faults.run('list', () => store.list(query)),
    tally: (by, query) => faults.run('tally', () => store.tally(by, query)),
    // What a store cannot do, its faulty twin cannot either.
    ...(now === undefined ? {} : { now: () => faults.run('now', now) }),
    ...(expireLost === undefined
      ? {}
      : {
          expireLost: (at: number) => faults.run('expireLost', () => expireLost(at)),
        }),
    ...(watch === undefined ? {} : { watch }),
    ...(keyHeads === undefined
      ? {}
      : { keyHeads: (max: number) => faults.run('keyHeads', () => keyHeads(max)) }),
    ...(announce === undefined
      ? {}
      : {
          announce: (address: string) => faults.run('announce', () => announce(address)),
        }),
    ...(onTrouble === undefined ? {} : { onTrouble }),
    // Reports what reached the store, not the faults in front of it.
    ...(onOperation === undefined ? {} : { onOperation }),
    records: faultyRecords(() => store.records, faults),
  };
}

/**
 * Puts planned faults in front of a body store. A `get` that fails `before` gives no byte; one that
 * fails `after` gives them all and then fails, where a reader that trusts the end must notice. One
 * that is late, in either way, begins late.
 *
 * @example
 * import { createSpool } from 'respool';
 * import { memory, memoryBodies } from 'respool/stores/memory';
 * import { faultyBodies } from 'respool/testkit';
 * const bodies = faultyBodies(memoryBodies());
 * const broken = createSpool({ entries: memory(), bodies });
 */
export function faultyBodies(bodies: BodyStore, options: FaultyOptions = {}): FaultyBodies {
  const faults = new Faults(options);
  const onOperation = bodies.onOperation?.bind(bodies);
  const wasSettled = bodies.wasSettled?.bind(bodies);
  return {
    name: bodies.name,
    traits: bodies.traits,
    faults,
    open: () => faults.run('open', () => bodies.open()),
    close: () => faults.run('close', () => bodies.close()),
    put: (ref, stream) => faults.run('put', () => bodies.put(ref, stream)),
    get: (ref) => faultyStream('get', () => bodies.get(ref), faults),
    remove: (refs, settledAs) => faults.run('remove', () => bodies.remove(refs, settledAs)),
    refs: (writtenBefore) => faultyStream('refs', () => bodies.refs(writtenBefore), faults),
    ...(wasSettled === undefined
      ? {}
      : { wasSettled: (ref) => faults.run('wasSettled', () => wasSettled(ref)) }),
    ...(onOperation === undefined ? {} : { onOperation }),
  };
}

function faultyRecords(records: () => RecordStore, faults: Faults): RecordStore {
  return {
    append: (kind, record) => faults.run('records.append', () => records().append(kind, record)),
    read: (kind, after, max) => faults.run('records.read', () => records().read(kind, after, max)),
    trim: (kind, upTo) => faults.run('records.trim', () => records().trim(kind, upTo)),
    put: (kind, key, value, revision) =>
      faults.run('records.put', () => records().put(kind, key, value, revision)),
    get: (kind, key) => faults.run('records.get', () => records().get(kind, key)),
    list: (kind) => faults.run('records.list', () => records().list(kind)),
    remove: (kind, key) => faults.run('records.remove', () => records().remove(kind, key)),
  };
}

async function* faultyStream<T>(
  operation: string,
  open: () => AsyncIterable<T>,
  faults: Faults,
): AsyncGenerator<T> {
  const fault = faults.next(operation);
  if (fault === 'before') throw failed(operation, 'before the first item');
  if (typeof fault === 'object') {
    await faults.wait('delayMs' in fault ? fault.delayMs : fault.answerLateMs);
  }
  yield* open();
  if (fault === 'after') throw failed(operation, 'after the last item');
}
