/**
 * due-lower-bound — where the live rows of each slot begin, for a server that may not take dead
 * ones away.
 *
 * While somebody holds a transaction open, every row that was settled since stays in the index, in
 * front of those that are due, and each look for work wades through all of them. When looks take
 * unusually long we remember from where on there was anything, and begin there.
 *
 * A row that comes in before its floor — of a transaction that was open for long, or under a lease
 * that is shorter than ours — is found by the next look from the very beginning, 5 to 30 s later,
 * and `nextDueAt` may tell another one that is due than the one that is due for longest.
 * Where looks are quick there are no floors, and nothing is found late.
 */

import type { Clock } from '../../ports/clock.ts';
import { ARCHIVED_KEY, isActiveKey, type StateKey, stateKeyOf } from '../shared/sql-row.ts';
import type { Names } from './names.ts';
import type { Ask } from './connection.ts';

/**
 * Two looks in a row that take so long tell of dead rows, and a quick full one tells of none: long
 * in any case, or beside the quickest one, which shows how far away the server is.
 */
const COSTLY_MS = 50;
const COSTLY_FACTOR = 4;
const COSTLY_MORE_MS = 5;
const COSTLY_LOOKS = 2;
/** A look from the very beginning every this often: this many times what the last one took. */
const FULL_FACTOR = 20;
const FULL_EVERY_MIN_MS = 5_000;
const FULL_EVERY_MAX_MS = 30_000;
/** Rows that come may be so much older than the last claim. */
const MARGIN_MS = 2_000;

/** What can be claimed. */
const SLOTS: readonly StateKey[] = [
  stateKeyOf('incoming', 'delivery'),
  stateKeyOf('active', 'delivery'),
  stateKeyOf('deferred', 'delivery'),
  stateKeyOf('active', 'notice'),
  stateKeyOf('bounce', 'notice'),
];

/** The floors of one store. */
export class DueLowerBounds {
  readonly #names: Names;
  readonly #clock: Clock;
  readonly #dueAt = new Map<StateKey, number>();
  #quickestMs = Number.POSITIVE_INFINITY;
  #costlyLooks = 0;
  #isCostly = false;
  #fullAgainAt = Number.NEGATIVE_INFINITY;
  /** When the last claim was made, and for how long. */
  #last: { readonly now: number; readonly leaseMs: number } | undefined;

  constructor(names: Names, clock: Clock) {
    this.#names = names;
    this.#clock = clock;
  }

  /** The condition for rows of a slot; nothing where all are looked at. */
  sql(slot: StateKey): string {
    const floor = this.#isCostly ? this.#dueAt.get(slot) : undefined;
    return floor === undefined ? '' : ` AND due_at >= ${Math.floor(floor)}`;
  }

  /** Whether dead rows are in the way. */
  get isRaised(): boolean {
    return this.#isCostly;
  }

  noteClaim(now: number, leaseMs: number): void {
    this.#last = { now, leaseMs };
  }

  /** A look for what is due next took so long. */
  noteLook(tookMs: number): void {
    this.#quickestMs = Math.min(this.#quickestMs, tookMs);
    if (this.#isCostly) return;
    this.#costlyLooks = tookMs > this.#costlyMs ? this.#costlyLooks + 1 : 0;
    this.#isCostly = this.#costlyLooks >= COSTLY_LOOKS;
  }

  /** Finds where live rows begin; does nothing where looks are quick. */
  async raise(ask: Ask): Promise<void> {
    const last = this.#last;
    if (!this.#isCostly || last === undefined) return;
    const beganAt = this.#clock.monotonic();
    const isFull = beganAt >= this.#fullAgainAt;
    if (isFull) this.#dueAt.clear();
    const [firsts = []] = await ask(
      `SELECT ${SLOTS.map((slot) => this.#firstSql(slot)).join(', ')}`,
    );
    for (const [at, slot] of SLOTS.entries()) {
      const first = (firsts[at] as number | null) ?? Number.POSITIVE_INFINITY;
      const comingAt = last.now - MARGIN_MS + (isActiveKey(slot) ? last.leaseMs : 0);
      this.#dueAt.set(slot, Math.min(first, comingAt));
    }
    if (isFull) this.#noteFull(beganAt);
  }

  get #costlyMs(): number {
    return Math.min(COSTLY_MS, COSTLY_FACTOR * this.#quickestMs + COSTLY_MORE_MS);
  }

  #noteFull(beganAt: number): void {
    const now = this.#clock.monotonic();
    const tookMs = now - beganAt;
    const everyMs = Math.max(FULL_EVERY_MIN_MS, FULL_FACTOR * tookMs);
    this.#fullAgainAt = now + Math.min(FULL_EVERY_MAX_MS, everyMs);
    if (tookMs > this.#costlyMs) return;
    this.#isCostly = false;
    this.#costlyLooks = 0;
    this.#dueAt.clear();
    this.#fullAgainAt = Number.NEGATIVE_INFINITY;
  }

  #firstSql(slot: StateKey): string {
    return `(SELECT min(e.due_at) FROM generate_series(0, 9) AS p(n) CROSS JOIN LATERAL (
  SELECT due_at FROM ${this.#names.table.entries}
  WHERE slot = ${slot} AND slot < ${ARCHIVED_KEY} AND priority = p.n::int2${this.sql(slot)}
  ORDER BY due_at, id LIMIT 1
) e)`;
  }
}
