/**
 * seal-query — lists and counts of a sealed store (`SealedQueries`), and filters by destination
 * (`SealedDestinations`).
 *
 * Codes, fingerprints and destinations are stored as tokens, and a token depends on the key: the
 * same code has one token per key, and is plain in entries from before the seal. So a count queries
 * each of these forms in turn and adds up. A list cannot, because of its order: it goes through the
 * entries page by page, compares tokens, and opens only entries that match. For a destination, a
 * store takes all forms in one query; it is compared here only if keys come from a function, so
 * that not all of them are known. Headers and texts cannot be searched at all.
 */

import type { Entry, Status } from '../core/entry.ts';
import { RespoolError } from '../core/errors.ts';
import { PAGE_MAX } from '../core/limits.ts';
import type {
  ClaimFilter,
  EntryQuery,
  EntryStore,
  ListPage,
  ListQuery,
  TallyBy,
  TallyRow,
} from '../ports/entry-store.ts';
import { isToken, setWithLimit, type MissingKeys, type SealCipher } from './seal-cipher.ts';
import {
  envelopeKeyOf,
  isReasonUnsealed,
  keyIdsOf,
  type SealOpener,
  statusKeyOf,
} from './seal-entry.ts';

/** What queries need of the sealed store. */
interface QueryOptions {
  readonly inner: EntryStore;
  readonly cipher: SealCipher;
  readonly opener: SealOpener;
  readonly destinations: SealedDestinations;
  /** The ids of all keys; undefined if they come from a function. */
  readonly keyIds: readonly string[] | undefined;
}

/** Maximum number of pages that one list reads before it returns an empty page with a `next`. */
const SCAN_PAGES_MAX = 20;
/** Maximum number of tokens that one count looks up; the others are returned as tokens. */
const LOOK_UPS_MAX = 500;
/** Maximum number of cached values of tokens. */
const TOKEN_VALUES_MAX = 10_000;

/** Lists and counts of a sealed store. */
export class SealedQueries {
  readonly #parts: QueryOptions;
  /** What tokens of fingerprints and destinations stand for. */
  readonly #tokenValues = new Map<string, string>();

  constructor(parts: QueryOptions) {
    this.#parts = parts;
  }

  async list(query: ListQuery): Promise<ListPage> {
    refuseSearch(query);
    const { code, fingerprint, destination, ...rest } = query;
    const { inner, keyIds } = this.#parts;
    const isAskable = destination === undefined || keyIds !== undefined;
    const below = isAskable ? { ...rest, ...(await this.#destinationForms(query)) } : rest;
    const isPlain = code === undefined && fingerprint === undefined && isAskable;
    // The store refuses an invalid limit.
    if (isPlain || !isPageLimit(query.limit)) return this.#openPage(await inner.list(below));
    return this.#scan(below, query);
  }

  async tally(by: TallyBy, query: EntryQuery): Promise<readonly TallyRow[]> {
    refuseSearch(query);
    const rows = new Map<string, TallyRow>();
    let lookUpsLeft = LOOK_UPS_MAX;
    for (const form of await this.#forms(query)) {
      for (const row of await this.#parts.inner.tally(by, form)) {
        let { key } = row;
        if ((by === 'fingerprint' || by === 'destination') && isToken(key)) {
          if (!this.#tokenValues.has(key) && lookUpsLeft > 0) {
            lookUpsLeft -= 1;
            await this.#lookUp(by, key, form);
          }
          key = this.#tokenValues.get(key) ?? key;
        }
        rows.set(key, addedRow(rows.get(key), { ...row, key }));
      }
    }
    return [...rows.values()];
  }

  /** Pages of the store, filtered here; short pages and empty ones with a next are allowed. */
  async #scan(rest: ListQuery, query: ListQuery): Promise<ListPage> {
    const { limit } = query;
    let size = PAGE_MAX;
    let at = rest;
    const corrupt: ListPage['corrupt'][number][] = [];
    for (let pages = 1; ; ) {
      const page = await this.#parts.inner.list({ ...at, limit: size });
      const fitting = await this.#filterEntries(page.entries, query);
      const past = fitting[limit];
      if (past !== undefined) {
        // Too many match. A shorter page of the store ends where ours must, with the right `next`.
        size = page.entries.indexOf(past);
        continue;
      }
      const opened = await this.#openPage({ ...page, entries: fitting });
      corrupt.push(...opened.corrupt);
      const isOver = page.next === undefined || pages >= SCAN_PAGES_MAX;
      if (opened.entries.length > 0 || isOver) return { ...opened, corrupt };
      at = { ...rest, after: page.next };
      size = PAGE_MAX;
      pages += 1;
    }
  }

  async #filterEntries(entries: readonly Entry[], query: EntryQuery): Promise<readonly Entry[]> {
    const { cipher } = this.#parts;
    const missing = await cipher.loadKeys(entries.flatMap(keyIdsOf));
    return entries.filter(
      (entry) =>
        matchesStatus(entry.status, query, cipher, missing) &&
        matchesDestination(entry, query, cipher, missing),
    );
  }

  async #openPage(page: ListPage): Promise<ListPage> {
    const { opener, inner } = this.#parts;
    const { entries, unopened } = await opener.open(page.entries);
    if (unopened.length === 0) return { ...page, entries };
    const corrupt = unopened.map(({ stored: { envelope }, error }) => ({
      id: envelope.id,
      where: `${inner.name} "${envelope.id}"`,
      reason: error.message,
      ...(error.code === 'store.corrupt' ? {} : { code: error.code }),
    }));
    // Reported on its own page, also after the first: nothing else reports it.
    return { ...page, entries, corrupt: [...page.corrupt, ...corrupt] };
  }

  /** One query for each form in which the code and fingerprint may be stored. */
  async #forms(query: EntryQuery): Promise<readonly EntryQuery[]> {
    const { code, fingerprint } = query;
    const below = { ...query, ...(await this.#destinationForms(query)) };
    if (code === undefined && fingerprint === undefined) return [below];
    const { cipher } = this.#parts;
    const tokens = (await this.#availableKeyIds()).map((id) => ({
      ...below,
      ...(code === undefined ? {} : { code: cipher.token('code', code, id) }),
      ...(fingerprint === undefined
        ? {}
        : { fingerprint: cipher.token('fingerprint', fingerprint, id) }),
    }));
    return [below, ...tokens];
  }

  /** The destination of a query, in every form in which it may be stored. */
  async #destinationForms({ destination }: EntryQuery): Promise<Pick<EntryQuery, 'destination'>> {
    if (destination === undefined) return {};
    await this.#availableKeyIds();
    return { destination: this.#parts.destinations.formsOf(destination) };
  }

  /** The ids of all keys that are known and can be fetched. */
  async #availableKeyIds(): Promise<readonly string[]> {
    const { cipher, keyIds = [] } = this.#parts;
    const ids = new Set([cipher.primary, ...keyIds, ...cipher.used]);
    const missing = await cipher.loadKeys(ids);
    return [...ids].filter((id) => !missing.has(id));
  }

  async #lookUp(
    by: 'fingerprint' | 'destination',
    token: string,
    query: EntryQuery,
  ): Promise<void> {
    const { inner, opener } = this.#parts;
    const page = await inner.list({ ...query, [by]: token, limit: 1 });
    const [found] = (await opener.open(page.entries)).entries;
    const meaning =
      by === 'destination' ? found?.envelope.destination : found?.status.lastFailure?.fingerprint;
    if (meaning !== undefined) setWithLimit(this.#tokenValues, token, meaning, TOKEN_VALUES_MAX);
  }
}

function refuseSearch({ header, text }: EntryQuery): void {
  if (header === undefined && text === undefined) return;
  throw new RespoolError(
    'config.invalid',
    `cannot search by ${header === undefined ? 'text' : 'header'}: the store is sealed, so ` +
      'headers and texts cannot be read in it; ask by id, topic, destination, state, time, code ' +
      'or fingerprint',
  );
}

function matchesStatus(
  status: Status,
  { code, fingerprint }: EntryQuery,
  cipher: SealCipher,
  missing: MissingKeys,
): boolean {
  const { because, lastFailure } = status;
  const keyId = statusKeyOf(status);
  const isShown = keyId === undefined;
  // Without its key only the seal's own reason for holding it is readable.
  const canTell = isShown || !missing.has(keyId);
  const form = (what: 'code' | 'fingerprint', value: string): string =>
    isShown ? value : cipher.token(what, value, keyId);
  if (code !== undefined) {
    const isHeldFor = because?.code === code && (isShown || isReasonUnsealed(status));
    const isCode = (text: string | undefined): boolean =>
      canTell && text !== undefined && text === form('code', code);
    if (!isHeldFor && !isCode(lastFailure?.code) && !isCode(because?.code)) return false;
  }
  if (fingerprint === undefined) return true;
  return canTell && lastFailure?.fingerprint === form('fingerprint', fingerprint);
}

function matchesDestination(
  { envelope }: Entry,
  { destination: asked }: EntryQuery,
  cipher: SealCipher,
  missing: MissingKeys,
): boolean {
  const { destination } = envelope;
  if (asked === undefined || destination === undefined) return asked === undefined;
  const wanted = [asked].flat();
  const keyId = envelopeKeyOf(envelope);
  // Unchanged if an earlier version sealed only the headers, or nothing was sealed.
  if (wanted.includes(destination)) return true;
  if (keyId === undefined || missing.has(keyId)) return false;
  return wanted.some((one) => cipher.token('destination', one, keyId) === destination);
}

function addedRow(sum: TallyRow | undefined, row: TallyRow): TallyRow {
  if (sum === undefined) return row;
  const isKnown = sum.oldestAt !== null && row.oldestAt !== null;
  return {
    ...sum,
    ...row,
    count: sum.count + row.count,
    oldestAt: isKnown ? Math.min(sum.oldestAt, row.oldestAt) : null,
  };
}

function isPageLimit(limit: number): boolean {
  return Number.isInteger(limit) && limit >= 1 && limit <= PAGE_MAX;
}

// The forms in which a destination may be stored in a sealed store.
//
//   'mx.example' ─▶ 'mx.example', sealed.<under k2>, sealed.<under k1>
//
// Under the seal a destination is a token, a different one for each key; entries from before the
// seal have it plain. A filter that excludes a destination has to name all forms. Forms of a key
// that is not loaded yet are missing in the filter: a claim of such an entry loads the key for the
// next filter, and a message whose destination is full waits for room in the engine in any case.
//
// Why: docs/decisions/0044-a-seal-hides-destinations-as-tokens.md

/** Destinations as a sealed store has them. */
export class SealedDestinations {
  readonly #cipher: SealCipher;
  readonly #keyIds: readonly string[];

  /** `keyIds`: the ids of all keys, if they are known. */
  constructor(cipher: SealCipher, keyIds: readonly string[] = []) {
    this.#cipher = cipher;
    this.#keyIds = keyIds;
  }

  /** All forms of some destinations, with the keys that are loaded. */
  formsOf(destinations: string | readonly string[]): readonly string[] {
    const cipher = this.#cipher;
    const ids = new Set([cipher.primary, ...this.#keyIds, ...cipher.used]);
    const there = [...ids].filter((id) => cipher.has(id));
    return [destinations]
      .flat()
      .flatMap((one) => [one, ...there.map((id) => cipher.token('destination', one, id))]);
  }

  /** The filter for the store; the same object if it excludes no destination. */
  filter<T extends ClaimFilter>(filter: T): T {
    const { exceptDestinations } = filter;
    if (exceptDestinations === undefined || exceptDestinations.length === 0) return filter;
    return { ...filter, exceptDestinations: this.formsOf(exceptDestinations) };
  }
}
