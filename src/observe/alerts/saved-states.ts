/**
 * saved-states — where rules stand, in memory and on record.
 *
 * Promise: what is in memory only is kept while nobody else has written, and a write of our own
 * that the store called a failure is known again: what was told meanwhile is not told again.
 */

import { isDeepStrictEqual } from 'node:util';
import type { Millis } from '../../core/duration.ts';
import type { KeyedRecord } from '../../ports/record-store.ts';
import { withinTime } from './with-timeout.ts';
import { type AlertState, isAlertState, quietSince } from './state.ts';
import type { AlertParts } from './types.ts';

/** The kind of record that the state of rules is. */
export const STATE_KIND = 'alert.state';
/** Writes of unknown outcome that are remembered, at the most. */
const TRIED_MAX = 8;

/** Where one rule stands. */
export interface SavedState {
  state: AlertState;
  revision: number;
  /** Not on record yet. */
  isDirty: boolean;
  /** What was to be written on top of this revision, and may be. */
  tried: unknown[];
}

/** Where all rules stand, those that are in no configuration any more as well. */
export class SavedStates {
  readonly #parts: Pick<AlertParts, 'records' | 'clock' | 'rules'>;
  readonly #known = new Map<string, SavedState>();

  constructor(parts: Pick<AlertParts, 'records' | 'clock' | 'rules'>) {
    this.#parts = parts;
  }

  /** Reads the record. */
  async load(now: Millis): Promise<void> {
    const { records, clock, rules } = this.#parts;
    const list = await withinTime(clock, () => records.list(STATE_KIND));
    const found = new Map(list.map((one) => [one.key, one]));
    for (const name of new Set([...rules.map((rule) => rule.name), ...found.keys()])) {
      const record = found.get(name);
      const revision = record?.revision ?? 0;
      const known = this.#known.get(name);
      // What happened while the store was away is ours to write, unless somebody else went on.
      const isOurs = known?.revision === revision || isOwnWrite(known, record);
      if (known?.isDirty === true && isOurs) known.revision = revision;
      else this.#known.set(name, fresh(record, now));
    }
  }

  /** Where a rule stands; quiet, if nothing is known. */
  of(name: string, now: Millis): SavedState {
    const known = this.#known.get(name) ?? fresh(undefined, now);
    this.#known.set(name, known);
    return known;
  }

  get(name: string): SavedState | undefined {
    return this.#known.get(name);
  }

  /** Of rules that are in no configuration any more. */
  get gone(): readonly string[] {
    const names = new Set(this.#parts.rules.map(({ name }) => name));
    return [...this.#known.keys()].filter((name) => !names.has(name));
  }

  clear(): void {
    this.#known.clear();
  }

  /** Puts the state on record; false: another process was quicker, and goes on. */
  async save(name: string, known: SavedState): Promise<boolean> {
    const { records, clock } = this.#parts;
    const { state } = known;
    for (let left = 2; left > 0; left -= 1) {
      known.tried = [...known.tried.slice(1 - TRIED_MAX), JSON.parse(JSON.stringify(state))];
      const put = () => records.put(STATE_KIND, name, state, known.revision);
      if ((await withinTime(clock, put)) !== 'stale') {
        known.revision += 1;
        known.isDirty = false;
        known.tried = [];
        return true;
      }
      const record = await withinTime(clock, () => records.get(STATE_KIND, name));
      if (record === undefined || !isOwnWrite(known, record)) break;
      known.revision = record.revision;
    }
    this.#known.delete(name);
    return false;
  }
}

function fresh(
  record: Pick<KeyedRecord, 'value' | 'revision'> | undefined,
  now: Millis,
): SavedState {
  // n.b. Others can write these records: what is no state is taken for none.
  const state = isAlertState(record?.value) ? record.value : quietSince(now);
  return { state, revision: record?.revision ?? 0, isDirty: false, tried: [] };
}

function isOwnWrite(
  known: SavedState | undefined,
  record: Pick<KeyedRecord, 'value' | 'revision'> | undefined,
): boolean {
  if (known === undefined || record?.revision !== known.revision + 1) return false;
  return known.tried.some((one) => isDeepStrictEqual(one, record.value));
}
