/**
 * seal — an entry store in which headers, destinations, notes, failures, reasons, names of policies
 * and records cannot be read without a key.
 *
 *   spool ─ plain entries ─▶ seal ─ sealed entries ─▶ any entry store
 *
 * What a store works with is not encrypted: ids, topics, times, sizes, dedupe and order keys,
 * priorities, states, counts of attempts, holders, and which key sealed an entry. Nor are bodies,
 * also those inline: encrypt.ts. Of destinations, codes and fingerprints it shows which are equal.
 * Lengths are visible too. Entries from before the seal stay readable and are sealed when they are
 * next written; so someone who may write to the store can still insert plain entries, or restore an
 * older status of a message. More: docs/reference/threats.md.
 *
 * Also seals the records of the store (`createSealedRecords`).
 */

import type { Entry, Envelope } from '../core/entry.ts';
import { textOf } from '../core/errors.ts';
import { SEALED_NAME } from '../core/reserved-headers.ts';
import type { Change, EntryStore } from '../ports/entry-store.ts';
import type { RecordStore } from '../ports/record-store.ts';
import { KeyRing } from './key-ring.ts';
import { checkSealOptions, type SealOptions } from './options.ts';
import {
  setWithLimit,
  keyIdOf,
  type MissingKeys,
  SealCipher,
  type SealPlace,
} from './seal-cipher.ts';
import { EntrySealer, SealOpener, unopenedError } from './seal-entry.ts';
import { SealedDestinations, SealedQueries } from './seal-query.ts';

/** A store whose entries are sealed. */
export interface SealedStore extends EntryStore {
  /**
   * Whether an entry that this store returned (the same object) is stored differently from how it
   * would be written now: with another key, or not sealed at all. A commit of it, unchanged and
   * with its envelope, seals it again.
   */
  isSealOld(entry: Entry): boolean;
}

/** Maximum number of remembered envelopes that should be sealed with the next write. */
const OLD_ENVELOPES_MAX = 10_000;

/**
 * Seals an entry store. Lists and counts by header or text are refused with `config.invalid`. An
 * entry whose key is missing, or that does not open, is never returned: a claim holds it, `get`
 * throws, a list names it. One whose key cannot be fetched now is claimed again later.
 */
export function seal(entries: EntryStore, options: SealOptions): SealedStore {
  checkSealOptions(options);
  const cipher = new SealCipher(KeyRing.forWriting('the seal', options), undefined, options.clock);
  const form = new EntrySealer(cipher);
  const opener = new SealOpener(entries, cipher, form);
  const keyIds = typeof options.keys === 'function' ? undefined : Object.keys(options.keys);
  const destinations = new SealedDestinations(cipher, keyIds);
  const queries = new SealedQueries({ inner: entries, cipher, opener, destinations, keyIds });
  const renewals = new Renewals(form);

  return {
    get name() {
      return entries.name;
    },
    get instance() {
      return entries.instance;
    },
    get traits() {
      return entries.traits;
    },
    async open() {
      // First the keys: without them the store could not be used.
      await cipher.open();
      // Other keys too, if they come soon: filters need them. Missing ones are reported when an
      // entry needs them.
      await cipher.loadKeysSoon(keyIds ?? []);
      await entries.open();
    },
    close: () => entries.close(),
    insert: async (fresh) => entries.insert(fresh.map((entry) => form.sealEntry(entry))),
    claim: async (request) => renewals.track(await opener.claim(destinations.filter(request))),
    nextDueAt: async (filter) => entries.nextDueAt(destinations.filter(filter)),
    commit: async (changes, how) =>
      entries.commit(
        changes.map((change) => sealChange(renewals.withEnvelope(change), form)),
        how,
      ),
    flush: () => entries.flush(),
    async get(id) {
      const stored = await entries.get(id);
      if (stored === undefined) return undefined;
      const { entries: found, unopened } = await opener.open([stored]);
      for (const one of unopened) throw unopenedError(one);
      return renewals.track(found)[0];
    },
    async list(query) {
      const page = await queries.list(query);
      renewals.track(page.entries);
      return page;
    },
    tally: (by, query) => queries.tally(by, query),
    ...optionalParts(entries),
    records: createSealedRecords(() => entries.records, cipher),
    isSealOld: (entry) => form.isOutdated(entry),
  };
}

/** The optional methods that the inner store has. */
function optionalParts(
  inner: EntryStore,
): Pick<
  EntryStore,
  'now' | 'expireLost' | 'watch' | 'keyHeads' | 'announce' | 'onOperation' | 'onTrouble'
> {
  const now = inner.now?.bind(inner);
  const expireLost = inner.expireLost?.bind(inner);
  const watch = inner.watch?.bind(inner);
  const keyHeads = inner.keyHeads?.bind(inner);
  const announce = inner.announce?.bind(inner);
  const onOperation = inner.onOperation?.bind(inner);
  const onTrouble = inner.onTrouble?.bind(inner);
  return {
    ...(now === undefined ? {} : { now }),
    ...(expireLost === undefined ? {} : { expireLost }),
    ...(watch === undefined ? {} : { watch }),
    ...(keyHeads === undefined ? {} : { keyHeads }),
    ...(announce === undefined ? {} : { announce }),
    ...(onOperation === undefined ? {} : { onOperation }),
    ...(onTrouble === undefined ? {} : { onTrouble }),
  };
}

/**
 * The envelopes of entries from before the seal, or of an older key. A step writes only the status;
 * the first one after such an entry was returned also writes its envelope, sealed.
 */
class Renewals {
  readonly #form: EntrySealer;
  readonly #outdated = new Map<
    string,
    { readonly revision: number; readonly envelope: Envelope }
  >();

  constructor(form: EntrySealer) {
    this.#form = form;
  }

  /** Remembers the envelopes of outdated entries; returns all entries. */
  track(entries: readonly Entry[]): readonly Entry[] {
    for (const entry of entries) {
      if (!this.#form.isOutdated(entry)) continue;
      const { envelope, status } = entry;
      // Deleted first, so that it counts as the newest.
      this.#outdated.delete(envelope.id);
      const old = { revision: status.revision, envelope };
      setWithLimit(this.#outdated, envelope.id, old, OLD_ENVELOPES_MAX);
    }
    return entries;
  }

  /** The change, with the envelope of its entry if that should be written again. */
  withEnvelope(change: Change): Change {
    const old = this.#outdated.size === 0 ? undefined : this.#outdated.get(change.id);
    if (old === undefined) return change;
    this.#outdated.delete(change.id);
    // With another revision, the envelope may have changed.
    const isThis = old.revision === change.revision;
    const isWanted = isThis && change.to !== 'remove' && change.envelope === undefined;
    return isWanted ? { ...change, envelope: old.envelope } : change;
  }
}

function sealChange(change: Change, form: EntrySealer): Change {
  const { id, to, envelope } = change;
  if (to === 'remove') return change;
  return {
    ...change,
    to: form.sealStatus(to, id),
    ...(envelope === undefined ? {} : { envelope: form.sealEnvelope(envelope) }),
  };
}

// Records whose values are sealed; kinds, keys, sequences and revisions are not.
//
// A value is bound to its kind, and in a map to its key. An attacker who may write to the store
// could reorder records within one log: the sequence is not known before the record is written.
/** A record store that seals the values of another one. */
function createSealedRecords(inner: () => RecordStore, cipher: SealCipher): RecordStore {
  const seal = (place: SealPlace, value: unknown): unknown => ({
    [SEALED_NAME]: cipher.seal(place, JSON.stringify(value) ?? 'null'),
  });

  async function openAll<T>(rows: readonly Row<T>[]): Promise<readonly Opened<T>[]> {
    const ids = rows.flatMap(({ value }) => keyIdIn(value));
    const missing = await cipher.loadKeys(ids);
    return rows.map(({ row, place, value }) => ({
      row,
      value: openValue(cipher, place, value, missing),
    }));
  }

  /** Throws while a key cannot be fetched: a placeholder might be written back or be believed. */
  async function openNow<T>(rows: readonly Row<T>[]): Promise<readonly Opened<T>[]> {
    const missing = await cipher.loadKeys(rows.flatMap(({ value }) => keyIdIn(value)));
    for (const lack of missing.values()) if (lack.code === 'store.unavailable') throw lack;
    return openAll(rows);
  }

  return {
    append: async (kind, record) => inner().append(kind, seal(logOf(kind), record)),
    async read(kind, after, max) {
      const lines = await inner().read(kind, after, max);
      const place = logOf(kind);
      const opened = await openNow(lines.map((row) => ({ row, place, value: row.record })));
      return opened.map(({ row, value }) => ({ sequence: row.sequence, record: value }));
    },
    trim: (kind, upTo) => inner().trim(kind, upTo),
    put: async (kind, key, value, revision) =>
      inner().put(kind, key, seal(mapOf(kind, key), value), revision),
    async get(kind, key) {
      const row = await inner().get(kind, key);
      if (row === undefined) return undefined;
      const [opened] = await openNow([{ row, place: mapOf(kind, key), value: row.value }]);
      return { ...row, value: opened?.value };
    },
    async list(kind) {
      const rows = await inner().list(kind);
      // Also while a key cannot be fetched: a spool must know the paused topics in order to start.
      const opened = await openAll(
        rows.map((row) => ({ row, place: mapOf(kind, row.key), value: row.value })),
      );
      return opened.map(({ row, value }) => ({ ...row, value }));
    },
    remove: (kind, key) => inner().remove(kind, key),
  };
}

interface Opened<T> {
  readonly row: T;
  readonly value: unknown;
}

interface Row<T> extends Opened<T> {
  readonly place: SealPlace;
}

function openValue(
  cipher: SealCipher,
  place: SealPlace,
  value: unknown,
  missing: MissingKeys,
): unknown {
  const sealed = sealedIn(value);
  if (sealed === undefined) return value;
  try {
    const lacking = missing.get(keyIdOf(sealed));
    if (lacking !== undefined) throw lacking;
    return JSON.parse(cipher.unseal(place, sealed)) as unknown;
  } catch (error) {
    return placeholder(textOf(error));
  }
}

/**
 * The value returned for one that does not open. A lost key must not hide the records of other
 * keys, prevent trimming a log, or undo a pause, whose topic is its key; so it is no error, and has
 * the fields that records have: who, when, what.
 */
function placeholder(why: string): unknown {
  return { at: 0, by: 'unknown', action: 'unreadable', ids: [], details: { why } };
}

function keyIdIn(value: unknown): readonly string[] {
  const sealed = sealedIn(value);
  if (sealed === undefined) return [];
  try {
    return [keyIdOf(sealed)];
  } catch {
    // No key can help; reading it reports the error.
    return [];
  }
}

function sealedIn(value: unknown): string | undefined {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return undefined;
  const sealed: unknown = Object.hasOwn(value, SEALED_NAME)
    ? (value as Record<string, unknown>)[SEALED_NAME]
    : undefined;
  return sealed === undefined || Object.keys(value).length > 1 ? undefined : textOf(sealed);
}

function logOf(kind: string): SealPlace {
  return ['log', kind];
}

function mapOf(kind: string, key: string): SealPlace {
  return ['map', kind, key];
}
