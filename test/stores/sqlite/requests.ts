/** Requests that tests and their programs make. */

import type { ClaimRequest, EntryStore } from '../../../src/ports/entry-store.ts';
import { SAMPLE_AT } from '../../../src/testkit/samples.ts';

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
