/**
 * seal — an entry store in which headers, destinations, notes, failures, reasons, names of policies
 * and records cannot be read without a key.
 *
 *   spool ─ plain entries ─▶ seal ─ sealed entries ─▶ any entry store
 *
 * What a store works with stays in the clear: ids, topics, times, sizes, dedupe and order keys,
 * priorities, states, counts of attempts, holders, and which key sealed an entry; destinations,
 * codes and fingerprints show only which are the same. Lengths show too. Entries from before the
 * seal stay readable and are sealed when they are next written; so who may write to the store can
 * still put plain entries there, or an older status of a message back.
 */

import type { Entry, Envelope } from '../core/entry.ts';
import { checkNames } from '../core/limits.ts';
import type { Clock } from '../ports/clock.ts';
import type { Change, EntryStore } from '../ports/entry-store.ts';
import type { Keys } from './key.ts';
import { KeyRing } from './key-ring.ts';
import { keep, SealCipher } from './seal-cipher.ts';
import { SealedDestinations, SealedQueries } from './seal-query.ts';
import { SealedForm, SealOpener, unreadable } from './seal-entry.ts';
import { createSealedRecords } from './seal-records.ts';

/** Which keys seal and open. */
export interface SealOptions {
  readonly keys: Keys;
  /** The id of the key that seals; needed with several keys or a function. */
  readonly primary?: string;
  /** Times how long a key may take; default: the machine's clock. */
  readonly clock?: Clock;
}

/** A store whose entries are sealed. */
export interface SealedStore extends EntryStore {
  /**
   * Whether an entry that this store handed out, the very object, lies in it otherwise than it
   * would be written now: with another key, or not sealed at all. A commit of it as it is, with its
   * envelope, seals it anew.
   */
  isSealOld(entry: Entry): boolean;
}

/** Entries handed out whose envelopes should be sealed when they are next written. */
const OLD_ENVELOPES_MAX = 10_000;

/**
 * Seals an entry store. Lists and counts by header or text are refused with `config.invalid`. An
 * entry whose key is missing, or that does not open, is never handed out: it is held. One whose key
 * cannot be had now is tried again later.
 */
export function seal(entries: EntryStore, options: SealOptions): SealedStore {
  checkNames('the seal', options, ['keys', 'primary', 'clock']);
  const cipher = new SealCipher(KeyRing.forWriting('the seal', options), undefined, options.clock);
  const form = new SealedForm(cipher);
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
      // First: a store that nobody can write to need not be opened.
      await cipher.open();
      // Those of old keys too, where they come soon: filters need them. Missing ones are told when
      // an entry needs them.
      await cipher.needSoon(keyIds ?? []);
      await entries.open();
    },
    close: () => entries.close(),
    insert: async (fresh) => entries.insert(fresh.map((entry) => form.sealEntry(entry))),
    claim: async (request) => renewals.noted(await opener.claim(destinations.filter(request))),
    nextDueAt: async (filter) => entries.nextDueAt(destinations.filter(filter)),
    commit: async (changes, how) =>
      entries.commit(
        changes.map((change) => sealChange(renewals.renewed(change), form)),
        how,
      ),
    flush: () => entries.flush(),
    async get(id) {
      const stored = await entries.get(id);
      if (stored === undefined) return undefined;
      const { entries: found, unopened } = await opener.open([stored]);
      for (const one of unopened) throw unreadable(one);
      return renewals.noted(found)[0];
    },
    async list(query) {
      const page = await queries.list(query);
      renewals.noted(page.entries);
      return page;
    },
    tally: (by, query) => queries.tally(by, query),
    ...optionalParts(entries),
    records: createSealedRecords(() => entries.records, cipher),
    isSealOld: (entry) => form.isOld(entry),
  };
}

/** What the store below can do besides, and nothing that it cannot. */
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
 * The envelopes of entries from before the seal, or of an older key. A step writes the status
 * alone; the first after such an entry was handed out takes its envelope along.
 */
class Renewals {
  readonly #form: SealedForm;
  readonly #old = new Map<string, { readonly revision: number; readonly envelope: Envelope }>();

  constructor(form: SealedForm) {
    this.#form = form;
  }

  /** Remembers those that are old. */
  noted(entries: readonly Entry[]): readonly Entry[] {
    for (const entry of entries) {
      if (!this.#form.isOld(entry)) continue;
      const { envelope, status } = entry;
      // Deleted first, so that it counts as the newest.
      this.#old.delete(envelope.id);
      const old = { revision: status.revision, envelope };
      keep(this.#old, envelope.id, old, OLD_ENVELOPES_MAX);
    }
    return entries;
  }

  /** The change, with the envelope of its entry where that should be written anew. */
  renewed(change: Change): Change {
    const old = this.#old.size === 0 ? undefined : this.#old.get(change.id);
    if (old === undefined) return change;
    this.#old.delete(change.id);
    // Of another revision, it may be another envelope.
    const isThis = old.revision === change.revision;
    const isWanted = isThis && change.to !== 'remove' && change.envelope === undefined;
    return isWanted ? { ...change, envelope: old.envelope } : change;
  }
}

function sealChange(change: Change, form: SealedForm): Change {
  const { id, to, envelope } = change;
  if (to === 'remove') return change;
  return {
    ...change,
    to: form.sealStatus(to, id),
    ...(envelope === undefined ? {} : { envelope: form.sealEnvelope(envelope) }),
  };
}
