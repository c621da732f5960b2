/**
 * stores — the shared disk as one process sees it: an EntryStore and a BodyStore behind a
 * connection with faults. What changes entries or removes bodies goes through the observer.
 */

import { RespoolError } from '../../core/errors.ts';
import type { BodyStore } from '../../ports/body-store.ts';
import type { EntryStore, EntryStoreTraits } from '../../ports/entry-store.ts';
import type { RecordStore } from '../../ports/record-store.ts';
import { AUDIT_KIND } from '../../spool/actions.ts';
import { PAUSE_KIND } from '../../spool/pauses.ts';
import type { Asker } from './checks/writes.ts';
import type { CallKind, SimFaults, StoreLine } from './connection.ts';
import type { Observer } from './observer.ts';
import type { SimPlan } from './plan.ts';

/** What a simulated body store is made of. */
interface SimBodiesOptions {
  readonly line: StoreLine;
  readonly observer: Observer;
  readonly faults: SimFaults;
}

/** A body store for one process of a simulated world. */
export function simBodies({ line, observer, faults }: SimBodiesOptions): BodyStore {
  const { bodyDisk } = observer.scene;
  return {
    name: 'simulated',
    traits: { durability: 'power-loss' },
    open: () => line.call({ name: 'open the bodies', isWrite: false }, () => undefined),
    close: () => line.idle(),
    async put(ref, stream) {
      const parts: Uint8Array[] = [];
      for await (const part of stream) parts.push(Uint8Array.from(part));
      const bytes = Buffer.concat(parts);
      return line.call({ name: 'put a body', isWrite: true }, () => {
        if (bodyDisk.put(ref, bytes, observer.scene.storeNow()) === 'taken') {
          throw new RespoolError('message.duplicate', `cannot put body "${ref}": it is there`);
        }
        return { size: bytes.byteLength };
      });
    },
    async *get(ref) {
      const bytes = await line.call({ name: 'get a body', isWrite: false }, () => {
        const fault = faults.bodyFault();
        const found = fault === 'missing' ? undefined : bodyDisk.get(ref);
        if (found === undefined) {
          throw new RespoolError('body.missing', `cannot read body "${ref}": it does not exist`);
        }
        const copy = Uint8Array.from(found);
        if (fault === 'corrupt') copy[0] = (copy[0] ?? 0) ^ 1;
        return copy;
      });
      const half = bytes.length >> 1;
      if (half > 0) yield bytes.subarray(0, half);
      if (bytes.length > 0) yield bytes.subarray(half);
    },
    async remove(refs) {
      const asked = [...refs];
      await line.call({ name: 'remove bodies', isWrite: true }, () => observer.removeBodies(asked));
    },
    async *refs(writtenBefore) {
      const found = await line.call({ name: 'list bodies', isWrite: false }, () =>
        bodyDisk.refs(writtenBefore),
      );
      yield* found;
    },
  };
}

/** What a simulated store is made of. */
interface SimStoreOptions {
  readonly line: StoreLine;
  readonly observer: Observer;
  readonly faults: SimFaults;
  readonly plan: Pick<SimPlan, 'site' | 'wakes'>;
  /** Registers a listener for other processes' writes. */
  readonly watch: (onDue: () => void) => () => void;
}

/** Maximum time a server takes to return its time. */
const TELL_TIME_MAX_MS = 1_000;

/** Carries something out at the data; with `by`, it is durable when it is answered. */
type Call = <T>(kind: CallKind, execute: () => T, by?: string) => Promise<T>;

/** A store for one process of a simulated world. */
export function simStore(parts: SimStoreOptions): EntryStore {
  const { line, observer, faults } = parts;
  const { disk } = observer.scene;
  const { reader } = disk;
  const { process } = line;
  let isOpen = false;
  /** How often the power had gone when the first lazy commit since the last flush was made. */
  let lazySince: number | undefined;
  const call: Call = async (kind, execute, by) => {
    if (!isOpen) throw notOpen();
    let position = 0;
    const run = (): ReturnType<typeof execute> => {
      const answer = execute();
      position = disk.position;
      return answer;
    };
    return line.call(kind, run, by === undefined ? undefined : () => disk.harden(position, by));
  };
  const look = async <T>(kind: CallKind, execute: () => Promise<T>): Promise<T> =>
    (await call(kind, () => begun(execute()))).answer;
  const asker = (): Asker => ({
    process,
    askedAt: observer.scene.storeNow(),
    askedAtMs: observer.scene.timeline.nowMs,
  });
  return {
    name: 'simulated',
    instance: process.instance,
    traits: traitsOf(parts.plan),
    open: () =>
      line.call(read('open the store'), () => {
        isOpen = true;
      }),
    async close() {
      isOpen = false;
      await line.idle();
    },
    async insert(entries) {
      const by = asker();
      return call(write('insert'), () => observer.insert(by, entries), 'insert');
    },
    async claim(request) {
      const by = asker();
      return call(write('claim'), () => observer.claim(by, request));
    },
    nextDueAt: (filter) =>
      call(read('look for the next due time'), () => observer.nextDueAt(filter)),
    async commit(changes, { durable = true } = {}) {
      const by = asker();
      const run = (): readonly ('done' | 'stale')[] => {
        if (!durable) lazySince ??= faults.powerCuts;
        return observer.commit(by, changes);
      };
      return call(write('commit'), run, durable ? 'commit' : undefined);
    },
    flush: () =>
      call(
        write('flush'),
        () => {
          const since = lazySince;
          lazySince = undefined;
          // The power was cut since: what was committed lazily may be lost.
          if (since !== undefined && since !== faults.powerCuts) throw lost();
        },
        'flush',
      ),
    get: (id) => look(read('get'), () => reader.get(id)),
    list: (query) => look(read('list'), () => reader.list(query)),
    tally: (by, query) => look(read('tally'), () => reader.tally(by, query)),
    keyHeads: (max) =>
      look(
        read('look for the first of each key'),
        async () => (await reader.keyHeads?.(max)) ?? [],
      ),
    records: simRecords({ call, look, asker, observer }),
    ...abilities(parts, call, asker),
  };
}

/** What only some sites have: a watch, a lifetime lock, a clock of its own. */
function abilities(
  { line, observer, plan, watch }: SimStoreOptions,
  call: Call,
  asker: () => Asker,
): Partial<EntryStore> {
  const { timeline } = observer.scene;
  const tellTime = async (): Promise<number> => {
    const askedAtMs = timeline.nowMs;
    const kind = { ...read('tell the time'), slowestMs: TELL_TIME_MAX_MS };
    const now = await call(kind, () => observer.scene.storeNow());
    line.process.clockErrorMs = (timeline.nowMs - askedAtMs) / 2 + 1;
    return now;
  };
  return {
    ...(plan.wakes ? { watch } : {}),
    ...(plan.site === 'server' ? { now: tellTime } : {}),
    ...(plan.site === 'machine'
      ? {
          expireLost: (now) =>
            call(write('free the dead'), () => observer.expireLost(asker(), now)),
        }
      : {}),
  };
}

function simRecords({
  call,
  look,
  asker,
  observer,
}: {
  readonly call: Call;
  readonly look: <T>(kind: CallKind, execute: () => Promise<T>) => Promise<T>;
  readonly asker: () => Asker;
  readonly observer: Observer;
}): RecordStore {
  const { records } = observer.scene.disk.reader;
  const keep = async <T>(name: string, execute: () => Promise<T>): Promise<T> =>
    (await call(write(name), () => begun(execute()), 'record')).answer;
  return {
    append: (kind, record) =>
      keep('append a record', () => {
        if (kind === AUDIT_KIND) observer.audited(asker(), record);
        return records.append(kind, record);
      }),
    read: (kind, after, max) => look(read('read records'), () => records.read(kind, after, max)),
    trim: (kind, upTo) => keep('trim records', () => records.trim(kind, upTo)),
    put: (kind, key, value, revision) =>
      keep('put a record', () => {
        if (kind === PAUSE_KIND) observer.paused(asker(), key);
        return records.put(kind, key, value, revision);
      }),
    get: (kind, key) => look(read('get a record'), () => records.get(kind, key)),
    list: (kind) => look(read('list records'), () => records.list(kind)),
    remove: (kind, key) =>
      keep('remove a record', () => {
        if (kind === PAUSE_KIND) observer.resumed(asker(), key);
        return records.remove(kind, key);
      }),
  };
}

function traitsOf({ site, wakes }: Pick<SimPlan, 'site' | 'wakes'>): EntryStoreTraits {
  return {
    processes: site === 'one' ? 'one' : 'many',
    wakes,
    ordered: true,
    inlineMaxBytes: 64 * 1024,
    durability: site === 'server' ? 'server' : 'power-loss',
  };
}

/** What is carried out already and only answered later; an error waits for its caller. */
function begun<T>(answer: Promise<T>): { readonly answer: Promise<T> } {
  answer.catch(() => undefined);
  return { answer };
}

function read(name: string): CallKind {
  return { name, isWrite: false };
}

function write(name: string): CallKind {
  return { name, isWrite: true };
}

function lost(): RespoolError {
  return new RespoolError(
    'store.unavailable',
    'cannot flush: the server restarted since, and what was not durable may be lost',
  );
}

function notOpen(): RespoolError {
  return new RespoolError(
    'store.unavailable',
    'cannot use the simulated store: it is not open; call open() first',
  );
}
