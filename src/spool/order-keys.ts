/**
 * order-keys — messages of one order key, one at a time: what a spool adds to what its store
 * promises.
 */

import { RespoolError } from '../core/errors.ts';
import type { EntryStore, KeyHead } from '../ports/entry-store.ts';

/** The first ones of order keys behind which others wait. */
export async function keyHeads(entries: EntryStore, max: number): Promise<readonly KeyHead[]> {
  if (entries.keyHeads === undefined)
    throw orderError('tell the heads of order keys', entries.name);
  return entries.keyHeads(max);
}

/** Why a message that should be due was not given to a caller that asked for it by its id. */
export async function whyNotGiven(entries: EntryStore, id: string): Promise<string> {
  const entry = await entries.get(id);
  const { orderKey } = entry?.envelope ?? {};
  const state = entry?.status.state;
  const isWaiting = orderKey !== undefined && (state === 'incoming' || state === 'deferred');
  return isWaiting
    ? `it waits for its turn behind another message of order key "${orderKey}", and goes by ` +
        'itself once that has ended; keyHeads() names the first of each key'
    : 'it has just been claimed; read it again with get()';
}

/** The refusal where the store would not keep the order. */
export function orderError(doing: string, store: string): RespoolError {
  return new RespoolError(
    'config.invalid',
    `cannot ${doing}: store "${store}" keeps no order; stores that do are memory, sqlite and ` +
      'postgres',
  );
}
