/**
 * order-keys — messages of one order key stand in a line, in the order they were inserted.
 *
 * Only the first of a line is filed among what may be claimed, so that a claim never meets one that
 * waits for its turn, however many there are.
 */

import type { Entry } from '../../core/entry.ts';
import type { State } from '../../core/state.ts';
import type { KeyHead } from '../../ports/entry-store.ts';
import { Heap } from '../shared/heap.ts';
import type { KeyPosition, Row } from './due-flows.ts';

/**
 * Maximum number of messages behind the first of a key that are counted: promised by `KeyHead`.
 * Also in docs/reference/http-api.md.
 */
const BEHIND_TOLD_MAX = 1_000;

const NONE: readonly Row[] = [];

/** In lane delivery; as BLOCKING_KEYS of shared/sql-row.ts. */
const BLOCKING: readonly State[] = ['incoming', 'active', 'deferred', 'hold'];

/** The lines of a store. */
export class OrderKeys {
  readonly #lines = new Map<string, Heap<KeyPosition>>();

  /** Whether its turn has come: it is the first of its line, or stands in none. */
  isFirst({ line }: Row): boolean {
    return line === undefined || this.#lines.get(line.key)?.first() === line;
  }

  /**
   * Puts a row where it belongs after its entry changed, or was removed. Returns the others whose
   * turn came or went by it.
   */
  update(row: Row, isGone = false): readonly Row[] {
    const key = isGone ? undefined : lineOf(row.entry);
    if (row.line?.key === key) return NONE;
    return [...this.#leave(row), ...this.#join(row, key)];
  }

  /** The first ones of lines in which others wait; those that hold them up for long first. */
  heads(max: number): readonly KeyHead[] {
    const firsts: Row[] = [];
    for (const line of this.#lines.values()) {
      const first = line.first();
      if (first !== undefined && line.size > 1) firsts.push(first.row);
    }
    firsts.sort((one, other) => standingOf(one) - standingOf(other) || one.seq - other.seq);
    return firsts.slice(0, max).map((row) => this.#headOf(row));
  }

  #leave(row: Row): readonly Row[] {
    const place = row.line;
    const line = place === undefined ? undefined : this.#lines.get(place.key);
    if (place === undefined || line === undefined) return NONE;
    const wasFirst = line.first() === place;
    line.remove(place);
    row.line = undefined;
    const first = line.first();
    if (first === undefined) this.#lines.delete(place.key);
    return wasFirst && first !== undefined ? [first.row] : NONE;
  }

  #join(row: Row, key: string | undefined): readonly Row[] {
    if (key === undefined) return NONE;
    let line = this.#lines.get(key);
    if (line === undefined) this.#lines.set(key, (line = new Heap(isBefore)));
    const former = line.first();
    row.line = { key, row, place: -1 };
    line.add(row.line);
    const isAhead = former !== undefined && line.first() === row.line;
    return isAhead ? [former.row] : NONE;
  }

  #headOf({ id, entry: { status }, line }: Row): KeyHead {
    const orderKey = line?.key ?? '';
    const behind = (this.#lines.get(orderKey)?.size ?? 1) - 1;
    const { state, dueAt } = status;
    return { orderKey, id, state, dueAt, behind: Math.min(behind, BEHIND_TOLD_MAX) };
  }
}

/** The key in whose line an entry stands, if it stands in one. */
function lineOf({ envelope: { orderKey }, status }: Entry): string | undefined {
  if (orderKey === undefined || status.lane !== 'delivery') return undefined;
  return BLOCKING.includes(status.state) ? orderKey : undefined;
}

/** What is held or deferred comes before what may go any time, and that before what is going. */
function standingOf({ entry: { status } }: Row): number {
  if (status.state === 'active') return 2;
  return status.state === 'incoming' ? 1 : 0;
}

function isBefore(one: KeyPosition, other: KeyPosition): boolean {
  return one.row.seq < other.row.seq;
}
