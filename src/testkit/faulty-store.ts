/**
 * FaultyStore — any entry store, failing as planned: before the write, after the write, late.
 *
 * Tests and the simulator put it between a store and what uses it. Without a plan it only counts.
 */

import type { BodyStore } from '../ports/body-store.ts';
import type { EntryStore } from '../ports/entry-store.ts';
import type { RecordStore } from '../ports/record-store.ts';
import { failed, Faults, type FaultyOptions } from './faults.ts';

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

/** Puts planned faults in front of an entry store; operations are named as in the door. */
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
    // Tells of what reached the store, not of the faults in front of it.
    ...(onOperation === undefined ? {} : { onOperation }),
    records: faultyRecords(() => store.records, faults),
  };
}

/**
 * Puts planned faults in front of a body store. A `get` that fails `before` gives no byte; one that
 * fails `after` gives them all and then fails, where a reader that trusts the end must notice.
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
