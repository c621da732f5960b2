/**
 * sweeper — what a process that died in an insert left behind: entries whose key never came, keys
 * that point to nothing.
 *
 * Nobody's clock is trusted: what looks left behind is remembered, and goes when it looks the same
 * ten minutes later. An insert that took so long makes sure of its entry before it answers.
 */

import type { Clock } from '../../ports/clock.ts';
import type { Catalog } from './catalog.ts';
import type { PendingTombstone } from './tombstones.ts';

/** How long something has to look left behind. */
export const PENDING_INSERT_KEPT_MS: number = 10 * 60_000;

/** Looks every ten minutes. */
export class Sweeper {
  readonly #catalog: Catalog;
  readonly #clock: Clock;
  readonly #bury: (burials: readonly PendingTombstone[]) => void;
  #suspects = new Map<string, number>();
  #cancel: (() => void) | undefined;

  constructor(
    catalog: Catalog,
    clock: Clock,
    bury: (burials: readonly PendingTombstone[]) => void,
  ) {
    this.#catalog = catalog;
    this.#clock = clock;
    this.#bury = bury;
  }

  /** Begins anew: sequences of before mean nothing any more. */
  start(): void {
    this.stop();
    this.#suspects = new Map(orphansIn(this.#catalog));
    this.#cancel = this.#clock.after(PENDING_INSERT_KEPT_MS, () => this.#sweep());
  }

  stop(): void {
    this.#cancel?.();
    this.#cancel = undefined;
  }

  #sweep(): void {
    const present = new Map(orphansIn(this.#catalog));
    const burials: PendingTombstone[] = [];
    for (const [name, seq] of present) {
      if (this.#suspects.get(name) !== seq) continue;
      burials.push({ name, seq });
      present.delete(name);
    }
    this.#bury(burials);
    this.#suspects = present;
    this.#cancel = this.#clock.after(PENDING_INSERT_KEPT_MS, () => this.#sweep());
  }
}

function* orphansIn(catalog: Catalog): Generator<[string, number]> {
  for (const [key, { id, seq }] of catalog.keys) {
    const row = catalog.rows.get(id);
    const isHeld = row !== undefined && (row.key === key || row.damage !== undefined);
    if (!isHeld) yield [`d${key}`, seq];
  }
  for (const row of catalog.rows.values()) {
    if (row.isUnborn && !catalog.isLive(row)) yield [`e${row.id}`, row.seq];
  }
}
