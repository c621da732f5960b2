/**
 * shared — what the cases of the entry store suite have in common: the world of a case, short ways
 * to claim, change and list, and comparisons that say which entry differs.
 */

import assert from 'node:assert/strict';
import type { Millis } from '../../core/duration.ts';
import type { Entry, Status } from '../../core/entry.ts';
import { type ErrorCode, isRespoolError } from '../../core/errors.ts';
import { STATES } from '../../core/state.ts';
import type {
  Change,
  ClaimFilter,
  ClaimRequest,
  EntryStore,
  ListQuery,
} from '../../ports/entry-store.ts';
import { SAMPLE_AT, SAMPLE_LEASE_MS } from '../samples.ts';

/** What a case gets: an opened store and the ways its maker knows. */
export interface EntryWorld {
  readonly store: EntryStore;
  readonly reopen: () => Promise<EntryStore>;
  readonly second: () => Promise<EntryStore>;
  readonly damage: (id: string) => Promise<void>;
  /** How many entries stand in the way in the load cases. */
  readonly crowd: number;
}

/** What a case needs beyond a store. */
export type SampleNeed =
  | 'reopen'
  | 'share'
  | 'damage'
  | 'expireLost'
  | 'search'
  | 'noSearch'
  | 'order'
  | 'noOrder';

/** A case before its store is made. */
export interface EntryCase {
  readonly name: string;
  readonly needs?: readonly SampleNeed[];
  readonly run: (world: EntryWorld) => Promise<void>;
}

/** Every claimable entry of the delivery lane. */
export const DELIVERY: ClaimFilter = {
  lane: 'delivery',
  states: ['deferred', 'incoming', 'active'],
};

/** Every claimable entry of the notice lane. */
export const NOTICE: ClaimFilter = { lane: 'notice', states: ['bounce', 'active'] };

let claims = 0;

/** A claim of up to 100 due deliveries at SAMPLE_AT, under a holder of its own. */
export function claimRequest(store: EntryStore, parts: Partial<ClaimRequest> = {}): ClaimRequest {
  claims += 1;
  return {
    ...DELIVERY,
    max: 100,
    now: SAMPLE_AT,
    leaseMs: SAMPLE_LEASE_MS,
    holder: `${store.instance}:${claims}`,
    ...parts,
  };
}

/** Claims as `claimRequest` says. */
export function claim(
  store: EntryStore,
  parts: Partial<ClaimRequest> = {},
): Promise<readonly Entry[]> {
  return store.claim(claimRequest(store, parts));
}

/** The ids a claim takes, in its order. */
export async function claimIds(
  store: EntryStore,
  parts: Partial<ClaimRequest> = {},
): Promise<readonly string[]> {
  return sampleIds(await claim(store, parts));
}

/** The one entry a claim takes; fails when there is none. */
export async function claimOne(
  store: EntryStore,
  parts: Partial<ClaimRequest> = {},
): Promise<Entry> {
  const [entry] = await claim(store, { ...parts, max: 1 });
  assert.ok(entry !== undefined, 'nothing was claimed');
  return entry;
}

/** The next status of an entry: one revision on, without holder, with these fields. */
export function steppedStatus(entry: Entry, parts: Partial<Status> = {}): Status {
  const { holder: _holder, claimedFrom: _claimedFrom, ...rest } = entry.status;
  return { ...rest, revision: entry.status.revision + 1, ...parts };
}

/** The guarded write that takes an entry to a status. */
export function entryChange(
  entry: Entry,
  to: Status | 'remove',
  parts: Partial<Change> = {},
): Change {
  const { holder, revision } = entry.status;
  return {
    id: entry.envelope.id,
    revision,
    ...(holder === undefined ? {} : { holder }),
    to,
    ...parts,
  };
}

/** Inserts, and insists that all of it was new. */
export async function put(store: EntryStore, ...entries: readonly Entry[]): Promise<void> {
  const results = await store.insert(entries);
  assert.deepEqual(
    results,
    entries.map(() => 'stored'),
  );
}

/** What the store holds under an id; fails when there is nothing. */
export async function got(store: EntryStore, id: string): Promise<Entry> {
  const entry = await store.get(id);
  assert.ok(entry !== undefined, `there is no entry "${id}"`);
  return entry;
}

/** Compares envelope, status and bytes; a store may hand out any kind of Uint8Array. */
export function assertSameEntry(actual: Entry | undefined, expected: Entry): void {
  const { id } = expected.envelope;
  assert.ok(actual !== undefined, `there is no entry "${id}"`);
  assert.deepEqual(actual.envelope, expected.envelope, `the envelope of "${id}" differs`);
  assert.deepEqual(actual.status, expected.status, `the status of "${id}" differs`);
  assertSameBytes(actual.inlineBody, expected.inlineBody, `the inline body of "${id}" differs`);
}

/** Compares bytes, whatever view they come in. */
export function assertSameBytes(
  actual: Uint8Array | undefined,
  expected: Uint8Array | undefined,
  text: string,
): void {
  const plain = (bytes: Uint8Array | undefined) => (bytes === undefined ? null : [...bytes]);
  assert.deepEqual(plain(actual), plain(expected), text);
}

/** Insists on a RespoolError of this code. */
export async function assertRefused(doing: () => Promise<unknown>, code: ErrorCode): Promise<void> {
  await assert.rejects(doing, (error: unknown) => {
    assert.ok(isRespoolError(error, code), `expected ${code}, got ${String(error)}`);
    return true;
  });
}

/** Every entry of a list, page by page. */
export async function listEverything(
  store: EntryStore,
  query: Partial<ListQuery> = {},
): Promise<readonly Entry[]> {
  const entries: Entry[] = [];
  let after = query.after;
  for (let page = 0; page < PAGES_MAX; page += 1) {
    const asked = { limit: 500, ...query, ...(after === undefined ? {} : { after }) };
    const { entries: found, next } = await store.list(asked);
    entries.push(...found);
    if (next === undefined) return entries;
    after = next;
  }
  return assert.fail(`the list did not end within ${PAGES_MAX} pages`);
}

const PAGES_MAX = 10_000;

/** The ids of a list, in its order. */
export async function listIds(
  store: EntryStore,
  query: Partial<ListQuery> = {},
): Promise<readonly string[]> {
  return sampleIds(await listEverything(store, query));
}

export function sampleIds(entries: readonly Entry[]): readonly string[] {
  return entries.map(({ envelope }) => envelope.id);
}

/** A little later than SAMPLE_AT. */
export function later(ms: number): Millis {
  return SAMPLE_AT + ms;
}

/** How many entries are in each state, zeros left out. */
export async function stateCounts(store: EntryStore): Promise<Readonly<Record<string, number>>> {
  const rows = await store.tally('state', {});
  const counts: Record<string, number> = {};
  for (const state of STATES) {
    const count = rows.find(({ key }) => key === state)?.count ?? 0;
    if (count > 0) counts[state] = count;
  }
  return counts;
}
