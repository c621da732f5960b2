/**
 * claim — due entries made active, each for one claimer among all processes.
 *
 * The catalog names candidates in their order; the server decides by the sequence each is expected
 * to have. The loser reads what is there and looks again. Processes that keep losing to each other
 * choose from a larger number of candidates, each in its own order, until they no longer collide.
 */

import type { Entry } from '../../core/entry.ts';
import { claimedStatus } from '../../core/next-status.ts';
import type { ClaimRequest } from '../../ports/entry-store.ts';
import type { Row } from './catalog.ts';
import { entryOf, hashNumber } from './row.ts';
import type { EntryWrites } from './entry-writes.ts';

/** How many rounds a claim makes to replace what others took; then it returns what it has. */
const ROUNDS_MAX = 20;

/**
 * A store that met no other in this many claims takes the first ones again. Also in
 * test/stores/nats/rivalry.test.ts.
 */
const CALM_CLAIMS = 16;

/** Whether others are after the same entries; one per store. */
export class ClaimContention {
  readonly #instance: string;
  #calmAfter = 0;

  constructor(instance: string) {
    this.#instance = instance;
  }

  /** A number per id that differs from store to store; undefined while there is no contention. */
  get spread(): ((id: string) => number) | undefined {
    if (this.#calmAfter === 0) return undefined;
    return (id) => hashNumber(this.#instance + id);
  }

  note(lost: number): void {
    this.#calmAfter = lost > 0 ? CALM_CLAIMS : Math.max(0, this.#calmAfter - 1);
  }
}

/** Claims as asked; `caughtUp` brings the catalog up to the stream. */
export async function claimDue(
  writes: EntryWrites,
  request: ClaimRequest,
  {
    caughtUp,
    contention,
  }: { readonly caughtUp: () => Promise<void>; readonly contention: ClaimContention },
): Promise<readonly Entry[]> {
  const taken: Entry[] = [];
  let trouble: PromiseRejectedResult | undefined;
  for (let round = 0; round < ROUNDS_MAX && trouble === undefined; round += 1) {
    await caughtUp();
    const wanted = request.max - taken.length;
    const rows = writes.catalog.take(request, request.now, wanted, contention.spread);
    if (rows.length === 0) break;
    const results = await Promise.allSettled(rows.map((row) => claimOne(writes, row, request)));
    let lost = 0;
    for (const result of results) {
      if (result.status === 'rejected') trouble = result;
      else if (result.value === undefined) lost += 1;
      else taken.push(result.value);
    }
    contention.note(lost);
    if (lost === 0) break;
  }
  // What was claimed is ours and must be returned; the rest is due again after its lease.
  if (trouble !== undefined && taken.length === 0) throw trouble.reason;
  return taken;
}

async function claimOne(
  writes: EntryWrites,
  row: Row,
  request: ClaimRequest,
): Promise<Entry | undefined> {
  const { id, seq } = row;
  try {
    const content = writes.cache.get(id, seq) ?? (await writes.contentAt(id, seq));
    if (content !== undefined) {
      const next = { ...content, status: claimedStatus(content.status, request) };
      if ((await writes.write(writes.encode(next), seq)) !== undefined) return entryOf(next);
    }
    await writes.read(id);
    return undefined;
  } finally {
    writes.catalog.release(id);
  }
}
