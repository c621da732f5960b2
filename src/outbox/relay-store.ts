/** relay-store — the store of an outbox as its relay sees it. */

import type { Entry } from '../core/entry.ts';
import type { EntryStore } from '../ports/entry-store.ts';

/**
 * The same store; messages that do not say when they expire do so this long after their emit, or
 * after their eta: before that nobody could have sent them.
 */
export function withExpiry(store: EntryStore, expiresMs: number): EntryStore {
  const claim: EntryStore['claim'] = async (request) =>
    (await store.claim(request)).map((entry) => expiring(entry, expiresMs));
  return new Proxy(store, {
    get(target, name) {
      if (name === 'claim') return claim;
      const value: unknown = Reflect.get(target, name, target);
      return typeof value === 'function' ? (value.bind(target) as unknown) : value;
    },
  });
}

/** One that an operator sent on its way again goes without: it would be over at once. */
function expiring(entry: Entry, expiresMs: number): Entry {
  const { envelope, status } = entry;
  if (envelope.expiresAt !== undefined || status.replays > 0) return entry;
  const { enqueuedAt, eta = enqueuedAt } = envelope;
  return { ...entry, envelope: { ...envelope, expiresAt: Math.max(enqueuedAt, eta) + expiresMs } };
}
