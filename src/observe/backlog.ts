/**
 * backlog — what still has to be delivered or sent, by state, and the age of the oldest message
 * of an outbox that is due: since its emit or its eta. A message that waits for its eta is not
 * late; one that waits for a retry is.
 */

import type { Millis } from '../core/duration.ts';
import type { Entry } from '../core/entry.ts';
import type { State } from '../core/state.ts';
import { internalsOf, type SpoolInternals } from '../spool/internals.ts';
import type { PageOptions } from '../spool/list.ts';
import type { WatchedOutbox } from './metrics/types.ts';

/** Neither at its end nor held nor given up. */
const PENDING: ReadonlySet<string> = new Set<State>(['incoming', 'active', 'deferred']);

/** The sum over the states that are still to be delivered. */
export function backlogOf(counts: Iterable<readonly [state: string, count: number]>): number {
  let sum = 0;
  for (const [state, count] of counts) if (PENDING.has(state)) sum += count;
  return sum;
}

/** Of those that wait to be tried again, this many are looked at for the oldest. */
const LOOKED_AT_MAX = 100;

/** What the tables told. */
export interface OutboxBacklog {
  readonly counts: ReadonlyMap<string, number>;
  readonly lagMs: number;
}

/** Asks the tables. */
export async function askOutbox(outbox: WatchedOutbox): Promise<OutboxBacklog> {
  const spool = internalsOf(outbox.spool);
  const rows = await spool.tally('state');
  const counts = new Map(rows.map(({ key, count }) => [key, count]));
  const now = spool.now();
  const has = (state: State): boolean => (counts.get(state) ?? 0) > 0;
  const found: readonly (readonly Seen[])[] = await Promise.all([
    // Those that were never tried are due since their emit or their eta.
    has('incoming') ? first(spool, { state: 'incoming', dueBefore: now, limit: 1 }) : [],
    // By their ids those that came first, whose next try may be far; by their times what is due.
    has('deferred') ? first(spool, { state: 'deferred', order: 'id', limit: LOOKED_AT_MAX }) : [],
    has('deferred') ? first(spool, { state: 'deferred', limit: LOOKED_AT_MAX }) : [],
    has('active') ? first(spool, { state: 'active', limit: LOOKED_AT_MAX }) : [],
  ]);
  const since = found.flat().map(({ envelope }) => envelope.eta ?? envelope.enqueuedAt);
  const oldest = since.reduce<Millis>((least, at) => Math.min(least, at), now);
  return { counts, lagMs: now - oldest };
}

type Seen = Pick<Entry, 'envelope'>;

async function first(spool: SpoolInternals, query: PageOptions): Promise<readonly Seen[]> {
  return (await spool.page({ order: 'dueAt', ...query })).entries;
}
