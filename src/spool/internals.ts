/**
 * internals — what this package needs of a spool beyond its public methods.
 *
 * The operator, metrics, alerts, the relay and the commands read clocks, counts and records of a
 * spool and report events through it. Users do not: no subpath exports this file.
 *
 * Also the id of a store, by which a service and a process know that they have the same one.
 */

import type { Millis } from '../core/duration.ts';
import type { Entry } from '../core/entry.ts';
import { RespoolError } from '../core/errors.ts';
import {
  type EventKind,
  type EventOf,
  LISTENER_KINDS,
  type SpoolEvent,
  type StreamedEvent,
  type StreamOptions,
} from '../core/event.ts';
import { checkOneOf, checkRecordKind } from '../core/limits.ts';
import type { RetryPolicy } from '../core/policy.ts';
import { type State, STATES } from '../core/state.ts';
import { eventStream } from '../engine/events.ts';
import type { EngineLoad } from '../engine/parts.ts';
import type { KeyHead, ListPage, TallyBy, TallyRow } from '../ports/entry-store.ts';
import type { RecordStore } from '../ports/record-store.ts';
import type { StoreOperation } from '../ports/store-operation.ts';
import { randomName } from '../system/ids.ts';
import * as actions from './actions.ts';
import type { AuditRecord } from './actions.ts';
import { readBody } from './body.ts';
import { Enqueuer } from './enqueue.ts';
import {
  checkTallyBy,
  listAll,
  type ListFilter,
  type ListOptions,
  type PageOptions,
  pageQueryOf,
  queryOf,
} from './list.ts';
import { keyHeads } from './order-keys.ts';
import type { Pause } from './pauses.ts';
import type { Runtime } from './runtime.ts';

/**
 * Heads of order keys in one answer, unless more or fewer are asked for. Also in
 * docs/reference/http-api.md and test/spool/order.test.ts.
 */
const KEY_HEADS_DEFAULT = 100;

const INTERNALS = new WeakMap<object, SpoolInternals>();

/** What this package needs of a spool that `createSpool` made. */
export function internalsOf(spool: object): SpoolInternals {
  const internals = INTERNALS.get(spool);
  if (internals !== undefined) return internals;
  throw new RespoolError(
    'config.invalid',
    'cannot use this as a spool: pass what createSpool() of the same respool package returned',
  );
}

/** The records of a spool, for the kinds of `checkRecordKind`; others are `config.invalid`. */
function recordsOf(runtime: Runtime): RecordStore {
  const of = async (kind: string): Promise<RecordStore> => {
    checkRecordKind(kind);
    await runtime.ready();
    return runtime.entries.records;
  };
  return {
    append: async (kind, record) => (await of(kind)).append(kind, record),
    read: async (kind, after, max) => (await of(kind)).read(kind, after, max),
    trim: async (kind, upTo) => (await of(kind)).trim(kind, upTo),
    put: async (kind, key, value, revision) => (await of(kind)).put(kind, key, value, revision),
    get: async (kind, key) => (await of(kind)).get(kind, key),
    list: async (kind) => (await of(kind)).list(kind),
    remove: async (kind, key) => (await of(kind)).remove(kind, key),
  };
}

/** From now on `internalsOf(spool)` is this. */
export function setInternals(spool: object, internals: SpoolInternals): void {
  INTERNALS.set(spool, internals);
}

/** What the data plane (spool.ts) and the control plane (operator/) of a spool share. */
export class SpoolInternals {
  readonly runtime: Runtime;
  readonly enqueuer: Enqueuer;

  constructor(runtime: Runtime) {
    this.runtime = runtime;
    this.enqueuer = new Enqueuer(runtime);
  }

  /** Whether the stores are open: from the first call that needs them until a stop. */
  get isOpen(): boolean {
    return this.runtime.isOpen;
  }

  /** What the engine of this process is doing now. */
  get load(): EngineLoad {
    return this.runtime.engine.load;
  }

  /** Small durable facts beside the messages; only kinds that begin with `dlq.` or `alert.`. */
  get records(): RecordStore {
    return recordsOf(this.runtime);
  }

  /** The policies that messages can name; `default` is always among them. */
  get policies(): ReadonlyMap<string, RetryPolicy> {
    const { defaultPolicy, policies } = this.runtime.settings;
    return new Map([['default', defaultPolicy], ...policies]);
  }

  /** The store's clock. */
  now(): Millis {
    return this.runtime.now();
  }

  /** Opens the stores if they are not; a store that another process owns is refused here. */
  open(): Promise<void> {
    return this.runtime.ready();
  }

  /**
   * Whether this process has a handler for the topic; undefined when it has no handler at all and
   * does not deliver, or leaves other topics to other processes: then nothing is known of it.
   */
  hasHandler(topic: string): boolean | undefined {
    const { delivery, settings } = this.runtime;
    if (delivery === undefined) return undefined;
    const { routes, engine } = delivery;
    if (routes.serves('delivery', topic)) return true;
    const isKnown = engine.isRunning || routes.of('delivery').length > 0;
    return isKnown && settings.unhandled === 'hold' ? false : undefined;
  }

  /** Calls the listener with events of a kind, or of all with `'*'`. Returns the way to stop. */
  on<K extends EventKind>(kind: K | '*', listener: (event: EventOf<K>) => void): () => void {
    return this.runtime.events.on(checkOneOf('kind', kind, LISTENER_KINDS) as K | '*', listener);
  }

  /** Reports to listeners what was done beside this spool: a sweep, a replay, an alert. */
  emit(event: SpoolEvent): void {
    checkOneOf('kind', (event as SpoolEvent | undefined)?.kind, LISTENER_KINDS);
    this.runtime.events.emit(event);
  }

  /** What happens from now on, for `for await`. */
  events(options: StreamOptions = {}): AsyncIterableIterator<StreamedEvent> {
    return eventStream(this.runtime.events, () => this.now(), options);
  }

  /** Reports each store operation that goes to disk or server. Returns the way to stop. */
  onStoreOperation(hear: (operation: StoreOperation) => void): () => void {
    return this.runtime.onStoreOperation(hear);
  }

  async get(id: string): Promise<Pick<Entry, 'envelope' | 'status'> | undefined> {
    await this.runtime.ready();
    const entry = await this.runtime.entries.get(id);
    return entry === undefined ? undefined : { envelope: entry.envelope, status: entry.status };
  }

  async body(id: string): Promise<AsyncIterable<Uint8Array>> {
    await this.runtime.ready();
    return readBody(await actions.needEntry(this.runtime, id), this.runtime);
  }

  list(options: ListOptions = {}): AsyncGenerator<Pick<Entry, 'envelope' | 'status'>> {
    return listAll((page) => this.page(page), options);
  }

  async page(options: PageOptions = {}): Promise<ListPage> {
    await this.runtime.ready();
    return this.runtime.entries.list(pageQueryOf(options, this.now()));
  }

  async count(): Promise<Record<State, number>> {
    const rows = await this.tally('state');
    const counts = Object.fromEntries(STATES.map((state) => [state, 0])) as Record<State, number>;
    for (const { key, count } of rows) counts[key as State] = count;
    return counts;
  }

  /** Counts by state, topic, destination or failure fingerprint. */
  async tally(by: TallyBy, filter: ListFilter = {}): Promise<readonly TallyRow[]> {
    await this.runtime.ready();
    return this.runtime.entries.tally(checkTallyBy(by), queryOf(filter, this.now()));
  }

  async keyHeads(max: number = KEY_HEADS_DEFAULT): Promise<readonly KeyHead[]> {
    await this.runtime.ready();
    return keyHeads(this.runtime.entries, max);
  }

  /** When the next waiting message is due, past or future; null when none waits. */
  async nextDueAt(): Promise<Millis | null> {
    await this.runtime.ready();
    const states = ['incoming', 'deferred'] as const;
    return this.runtime.entries.nextDueAt({ lane: 'delivery', states });
  }

  async pauses(): Promise<readonly Pause[]> {
    await this.runtime.ready();
    return this.runtime.pauses.list();
  }

  /** Writes a line to the audit record; durable when it resolves. */
  async appendAudit(record: Omit<AuditRecord, 'at'>): Promise<void> {
    await this.runtime.ready();
    await actions.audit(this.runtime, record);
  }

  /** Leaves the address of a service for other processes on this store; resolves to its id. */
  async announce(address: string): Promise<string> {
    await this.runtime.ready();
    const { entries, dice } = this.runtime;
    await entries.announce?.(address);
    const isInMemory = entries.traits.durability === 'none';
    return makeStoreId(entries.records, `${isInMemory ? IN_MEMORY : ''}${randomName(dice)}`);
  }

  /** The id of the store; undefined before a service has announced itself there. */
  async storeId(): Promise<string | undefined> {
    await this.runtime.ready();
    return storeIdOf(this.runtime.entries.records);
  }
}

// The id of a store: by it a service, and a command beside it, can tell whether they
// have the same store open. Made when a service announces itself for the first time.

const KIND = 'store';
const KEY = 'id';
/** What the id of a store begins with that ends with its process. */
export const IN_MEMORY = 'memory-';

/** The id; undefined before a service has had the store open. */
export async function storeIdOf(records: RecordStore): Promise<string | undefined> {
  const value = (await records.get(KIND, KEY))?.value;
  return typeof value === 'string' ? value : undefined;
}

/** The id, which is `name` if the store has none yet. */
async function makeStoreId(records: RecordStore, name: string): Promise<string> {
  const known = await storeIdOf(records);
  if (known !== undefined) return known;
  // Of several services that begin at the same moment, the first names it.
  await records.put(KIND, KEY, name, 0);
  return (await storeIdOf(records)) ?? name;
}
