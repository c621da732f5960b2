/** client-heads — the first ones of order keys, as a service tells them. */

import type { KeyHead } from '../../ports/entry-store.ts';
import { fields, type Form, id, list, number, orNull, state, text } from './answers.ts';
import type { ServiceClient } from './http.ts';

const headsForm: Form<{ heads: KeyHead[] }> = fields<{ heads: KeyHead[] }>({
  heads: list(
    fields<KeyHead>({ orderKey: text, id, state, dueAt: orNull(number), behind: number }),
  ),
});

/** Asks for so many, or for as many as the service tells unasked. */
export async function askHeads(
  client: ServiceClient,
  max: number | undefined,
): Promise<readonly KeyHead[]> {
  const query = new URLSearchParams(max === undefined ? {} : { max: String(max) });
  return (await client.ask('/v1/order-keys', headsForm, { query })).heads;
}
