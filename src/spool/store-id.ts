/**
 * store-id — the id of a store: by it a service, and a command beside it, can tell whether they
 * have the same store open. Made when a service announces itself for the first time.
 */

import type { RecordStore } from '../ports/record-store.ts';

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
export async function makeStoreId(records: RecordStore, name: string): Promise<string> {
  const known = await storeIdOf(records);
  if (known !== undefined) return known;
  // Of several services that begin at the same moment, the first names it.
  await records.put(KIND, KEY, name, 0);
  return (await storeIdOf(records)) ?? name;
}
