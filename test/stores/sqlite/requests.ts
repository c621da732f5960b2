/** Requests that tests and their programs make. */

import type { ClaimRequest, EntryStore } from 'respool';
import { SAMPLE_AT } from 'respool/testkit';

export function claimOf(store: EntryStore, parts: Partial<ClaimRequest> = {}): ClaimRequest {
  return {
    lane: 'delivery',
    states: ['deferred', 'incoming', 'active'],
    max: 10,
    now: SAMPLE_AT,
    leaseMs: 60_000,
    holder: `${store.instance}:1`,
    ...parts,
  };
}
