/**
 * turns — whether a store has ever had a message with an order key, and letting the next one go.
 *
 * The sequence `turns` says so: it is drawn from by every insert that has a key, before that can be
 * seen by anybody, and never goes back. So a statement that finds it untouched, in the same breath,
 * has no keys to think of; stores without keys pay next to nothing for those with. It also counts
 * what was let go, so that other processes notice.
 */

import { textArray } from './arrays.ts';
import type { Names } from './names.ts';
import { DUE_KEYS_SQL, firstSql, letGoSql } from './order-keys.ts';
import type { Ask } from './connection.ts';

/** What one store knows of its keys. */
export class Turns {
  readonly #names: Names;
  #isOrdered = false;
  #lastNow: number | null = null;

  constructor(names: Names) {
    this.#names = names;
  }

  /** Whether there are keys, as far as is known here; once true it stays so. */
  get isOrdered(): boolean {
    return this.#isOrdered;
  }

  /** When the last claim was made, by the clock of those who claim. */
  get lastNow(): number | null {
    return this.#lastNow;
  }

  noteClaim(now: number): void {
    this.#lastNow = Math.max(now, this.#lastNow ?? now);
  }

  note(): void {
    this.#isOrdered = true;
  }

  /** Asks whether there are keys. */
  async learn(ask: Ask): Promise<boolean> {
    if (this.#isOrdered) return true;
    const [[isCalled] = []] = await ask(`SELECT is_called FROM ${this.#names.turns}`);
    this.#isOrdered = isCalled === true;
    return this.#isOrdered;
  }

  /**
   * True in a statement of a store that has no keys. n.b. Asked by a function: one more table in a
   * statement has to be planned for. It is volatile, so it belongs where it is asked once. That
   * costs a claim of one message a hundredth of its time, half of what a sub-select would.
   * (PostgreSQL 15, 2026-11-16)
   */
  get noneSql(): string {
    return `pg_sequence_last_value('${this.#names.turns}'::regclass) IS NULL`;
  }

  /**
   * Lets the first of each key go: again, with a new snapshot, after the commit that ended the one
   * ahead. How many can be claimed now; others are made to notice.
   */
  async letGo(ask: Ask, keys: readonly string[]): Promise<number> {
    const names = this.#names;
    const ids = `SELECT id FROM heads WHERE behind`;
    const [[count] = []] = await ask(
      `WITH lazy AS MATERIALIZED (SELECT set_config('synchronous_commit', 'off', true)),
heads AS MATERIALIZED (
  SELECT h.* FROM lazy, unnest($1::text[]) AS k(key) CROSS JOIN LATERAL (
    ${firstSql(names, 'k.key')}
  ) h WHERE h.slot IN (${DUE_KEYS_SQL})
), woken AS (${letGoSql(names, ids, '$2::int8')} RETURNING 1)
SELECT n, CASE WHEN n > 0 THEN nextval('${names.turns}') END FROM (
  SELECT count(*)::int4 AS n FROM heads WHERE (SELECT count(*) FROM woken) >= 0
) c`,
      [textArray(keys), this.#lastNow],
    );
    return Number(count);
  }
}
