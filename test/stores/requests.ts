/** requests — what a test asks of an entry store by hand: claims and guarded changes. */
import type { Change, ClaimFilter, ClaimRequest, Entry, EntryStore, Status } from 'respool';
import { SAMPLE_AT, SAMPLE_LEASE_MS } from 'respool/testkit';

/** Every claimable entry of the delivery lane. */
export const DELIVERY: ClaimFilter = {
  lane: 'delivery',
  states: ['deferred', 'incoming', 'active'],
};

let claims = 0;

/** A claim of up to 100 due deliveries at SAMPLE_AT, under a holder of its own. */
export function claimRequest(store: EntryStore, parts: Partial<ClaimRequest> = {}): ClaimRequest {
  claims += 1;
  const holder = `${store.instance}:${claims}`;
  return { ...DELIVERY, max: 100, now: SAMPLE_AT, leaseMs: SAMPLE_LEASE_MS, holder, ...parts };
}

export function claim(
  store: EntryStore,
  parts: Partial<ClaimRequest> = {},
): Promise<readonly Entry[]> {
  return store.claim(claimRequest(store, parts));
}

/** The ids that a claim takes, in its order. */
export async function claimIds(
  store: EntryStore,
  parts: Partial<ClaimRequest> = {},
): Promise<readonly string[]> {
  return (await claim(store, parts)).map(({ envelope }) => envelope.id);
}

/** The one entry that a claim takes. */
export async function claimOne(
  store: EntryStore,
  parts: Partial<ClaimRequest> = {},
): Promise<Entry> {
  return only(await claim(store, { ...parts, max: 1 }));
}

/** The entry of an id. */
export async function got(store: EntryStore, id: string): Promise<Entry> {
  return only([await store.get(id)]);
}

/** The next status of an entry: one revision on, without holder, with these fields. */
export function steppedStatus({ status }: Entry, parts: Partial<Status> = {}): Status {
  const { holder: _holder, claimedFrom: _claimedFrom, ...rest } = status;
  return { ...rest, revision: status.revision + 1, ...parts };
}

/** The guarded write that takes an entry to a status. */
export function entryChange(
  { envelope: { id }, status: { holder, revision } }: Entry,
  to: Status | 'remove',
  parts: Partial<Change> = {},
): Change {
  return { id, revision, ...(holder === undefined ? {} : { holder }), to, ...parts };
}

/** A little later than SAMPLE_AT. */
export function later(ms: number): number {
  return SAMPLE_AT + ms;
}

function only([entry]: readonly (Entry | undefined)[]): Entry {
  if (entry === undefined) throw new Error('there is no such entry');
  return entry;
}
