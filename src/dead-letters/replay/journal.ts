/**
 * journal — the log of one replay: what was planned, what is about to be sent, what came of it.
 *
 *   plan, plan, …   the frozen keys, 500 at a time
 *   step            these are about to be sent · those came to this
 *   canaries        what is sent from here on is a canary, until they are proven
 *   proven          the canaries did well
 *   canary          how one of them ended, by the process that settled it
 *
 * Letters are numbers here: their place in the plan. One append per batch: results ride along with
 * the next intent, since a result that is missing costs nothing but a look after a crash.
 *
 * Why: docs/decisions/0032-possibly-sent-letters-stay-unsure.md
 */

import { type CanaryEnd, logKindOf } from '../../core/reserved-headers.ts';
import type { Clock } from '../../ports/clock.ts';
import type { RecordStore } from '../../ports/record-store.ts';
import type { Millis } from '../../core/duration.ts';
import type { ReplayLine } from '../../spool/operator/replays.ts';

/** A letter of a plan; without an id where that is the key. */
export type ReplayPlanItem = readonly [key: string, id?: string];

/** What came of letters; `back`: not sent after all, as before. */
export interface LetterOutcome {
  readonly result: ReplayLine['result'] | 'back';
  readonly to?: string;
  readonly code?: string;
  readonly reason?: string;
}

/** The same outcome of several letters. */
export interface OutcomeGroup extends LetterOutcome {
  readonly items: readonly number[];
}

/** One record of the log. */
export type JournalRecord =
  | { readonly kind: 'plan'; readonly items: readonly ReplayPlanItem[] }
  | {
      readonly kind: 'step';
      readonly at: Millis;
      readonly intent?: readonly number[];
      readonly results?: readonly OutcomeGroup[];
    }
  | { readonly kind: 'canaries'; readonly at: Millis }
  | { readonly kind: 'proven'; readonly at: Millis }
  | CanaryEnd;

const CHUNK_MAX = 500;
/** Records at once; one of a plan may have 50 KiB. */
const READ_MAX = 200;

/** Freezes what is planned. */
export async function writePlan(
  records: RecordStore,
  id: string,
  items: readonly ReplayPlanItem[],
): Promise<void> {
  for (let at = 0; at < items.length; at += CHUNK_MAX) {
    const record: JournalRecord = { kind: 'plan', items: items.slice(at, at + CHUNK_MAX) };
    await records.append(logKindOf(id), record);
  }
}

/** The log above this sequence, oldest first. */
export async function* readJournal(
  records: RecordStore,
  id: string,
  above = 0,
): AsyncIterable<{ readonly sequence: number; readonly record: JournalRecord }> {
  let after = above;
  for (;;) {
    const page = await records.read(logKindOf(id), after, READ_MAX);
    for (const { sequence, record } of page) {
      after = sequence;
      yield { sequence, record: record as JournalRecord };
    }
    if (page.length === 0) return;
  }
}

/** Forgets the log of a replay. */
export async function removeJournal(records: RecordStore, id: string): Promise<void> {
  let last = 0;
  for await (const { sequence } of readJournal(records, id)) last = sequence;
  if (last > 0) await records.trim(logKindOf(id), last);
}

/** Writes on in the log of a replay that runs. */
export class Journal {
  readonly #records: RecordStore;
  readonly #kind: string;
  readonly #clock: Clock;
  #pending = new Map<string, { readonly outcome: LetterOutcome; readonly items: number[] }>();

  constructor(records: RecordStore, id: string, clock: Clock) {
    this.#records = records;
    this.#kind = logKindOf(id);
    this.#clock = clock;
  }

  /** Remembers what came of a letter until the next step. */
  note(item: number, outcome: LetterOutcome): void {
    const { result, to, code, reason } = outcome;
    const key = `${result}\n${to}\n${code}\n${reason}`;
    const group = this.#pending.get(key);
    if (group === undefined) this.#pending.set(key, { outcome, items: [item] });
    else group.items.push(item);
  }

  /** Durable when it resolves: these are about to be sent, and all that was noted so far. */
  async step(intent: readonly number[]): Promise<void> {
    const groups = [...this.#pending.values()];
    if (intent.length === 0 && groups.length === 0) return;
    this.#pending = new Map();
    const results = groups.map(({ outcome, items }) => ({ ...outcome, items }));
    try {
      await this.#append({
        kind: 'step',
        at: this.#clock.now(),
        ...(intent.length === 0 ? {} : { intent }),
        ...(results.length === 0 ? {} : { results }),
      });
    } catch (error) {
      // The next step may get through: what is known must not become unsure.
      for (const { outcome, items } of groups) for (const item of items) this.note(item, outcome);
      throw error;
    }
  }

  /** Those that were sent so far are no canaries any more: others are sent. */
  async canariesAnew(): Promise<void> {
    await this.#append({ kind: 'canaries', at: this.#clock.now() });
  }

  /** The canaries did well: the rest may go, also after a pause. */
  async proven(): Promise<void> {
    await this.#append({ kind: 'proven', at: this.#clock.now() });
  }

  async #append(record: JournalRecord): Promise<void> {
    await this.#records.append(this.#kind, record);
  }
}
