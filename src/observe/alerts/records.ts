/**
 * records — what alerts keep in the records of a store: the lease of the process that evaluates
 * the rules, the state of each rule, and the counts of every process.
 *
 * Promises: a state that exists in memory only is kept until another process writes; a write of
 * ours that the store reported as failed is recognised later, so a notification is not sent
 * twice. The counts of a process that has ended stay for as long as the window goes back, so a
 * rate survives a restart.
 */

import { createHash } from 'node:crypto';
import { isDeepStrictEqual } from 'node:util';
import { formatDuration, type Millis, SECOND_MS } from '../../core/duration.ts';
import { RespoolError } from '../../core/errors.ts';
import { printCondition } from './condition.ts';
import type { WindowRates } from './measures.ts';
import { type AlertState, alertStateOf, quietSince } from './state.ts';
import type { AlertOptions, AlertRule } from './types.ts';
import type { Clock } from '../../ports/clock.ts';
import type { KeyedRecord, RecordStore } from '../../ports/record-store.ts';
import {
  type LeaseRecord,
  type OwnedRecord,
  releaseLease,
  takeLease,
} from '../../spool/record-lease.ts';
import { withTimeout } from '../../system/wait.ts';

/** What is asked of others takes no longer. Also in docs/reference/alerts.md. */
export const WITHIN_MS: number = 10 * SECOND_MS;

/** The result of the work; `store.unavailable` when it takes too long. */
export async function withinTime<T>(
  clock: Clock,
  work: () => Promise<T>,
  withinMs: number = WITHIN_MS,
): Promise<T> {
  return withTimeout(clock, withinMs, work(), () => {
    const text = `there was no answer within ${formatDuration(withinMs)}`;
    throw new RespoolError('store.unavailable', text);
  });
}

// The lease is called the turn in texts and in its record. The kinds of all records are stored.

const TURN_KIND = 'alert.turn';
const TURN_KEY = 'rounds';
/**
 * The lease lasts for this many rounds; measures have two (`#read` of evaluate.ts). Also in
 * docs/reference/alerts.md.
 */
const LEASE_ROUNDS = 3;

/** Who looks at the rules. */
export interface AlertLease {
  readonly by: string;
  /** Others wait until then. */
  readonly until: Millis;
  /** When the last round began. */
  readonly at: Millis;
  /** The fingerprint of the rules it evaluates; see `fingerprintOf`. */
  readonly rules?: string;
}

/** What a turn is taken with. */
interface AlertLeaseOptions {
  readonly by: string;
  readonly now: Millis;
  readonly everyMs: number;
  readonly rules: string;
}

/** Length of the leader's lease, without a heartbeat. */
export function leaseMsOf(everyMs: number): number {
  return LEASE_ROUNDS * everyMs;
}

/** Tells one set of rules from another. */
export function fingerprintOf(rules: readonly AlertRule[]): string {
  const text = JSON.stringify(rules.map(({ name, when }) => [name, printCondition(when)]));
  return createHash('sha256').update(text).digest('hex').slice(0, 16);
}

/** Acquires the lease for a round; `lastAt`: the time of the previous evaluation. */
export async function takeAlertLease(
  records: RecordStore,
  { by, now, everyMs, rules }: AlertLeaseOptions,
): Promise<'elsewhere' | { readonly lastAt: Millis | undefined }> {
  const lease: LeaseRecord<AlertLease | undefined> = {
    ...leaseOf(records, by),
    leaseMs: leaseMsOf(everyMs),
    now: () => now,
    hold: (_, until) => ({ by, until, at: now, rules }),
  };
  const taken = await takeLease(lease);
  return taken === undefined ? 'elsewhere' : { lastAt: taken.before?.at };
}

/** Lets another process go on at once. */
export async function giveAlertLease(records: RecordStore, by: string): Promise<void> {
  await releaseLease(leaseOf(records, by));
}

function leaseOf(records: RecordStore, by: string): OwnedRecord<AlertLease | undefined> {
  return {
    records,
    kind: TURN_KIND,
    key: TURN_KEY,
    what: 'the turn of the alerts',
    name: by,
    read: (record) => record?.value as AlertLease | undefined,
    holderOf: (turn) => turn?.by,
    // n.b. One that began far in the future is of a clock that went back, and would never end.
    isHeld: (turn, now) =>
      turn !== undefined && turn.until > now && turn.at - now <= turn.until - turn.at,
    free: (turn) => turn && { ...turn, until: 0 },
  };
}

/** The process of the last evaluation; undefined if there was none. */
export async function readAlertLease(records: RecordStore): Promise<AlertLease | undefined> {
  return (await records.get(TURN_KIND, TURN_KEY))?.value as AlertLease | undefined;
}

/** The kind of record that the state of rules is. */
export const STATE_KIND = 'alert.state';
/** Maximum number of writes of unknown outcome that are remembered. */
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
  readonly #parts: Pick<AlertOptions, 'records' | 'clock' | 'rules'>;
  readonly #known = new Map<string, SavedState>();

  constructor(parts: Pick<AlertOptions, 'records' | 'clock' | 'rules'>) {
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
      // What happened while the store was away is ours to write, unless another process continued.
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
  async save(name: string, savedState: SavedState): Promise<boolean> {
    const { records, clock } = this.#parts;
    const { state } = savedState;
    for (let left = 2; left > 0; left -= 1) {
      savedState.tried = [
        ...savedState.tried.slice(1 - TRIED_MAX),
        JSON.parse(JSON.stringify(state)),
      ];
      const put = () => records.put(STATE_KIND, name, state, savedState.revision);
      if ((await withinTime(clock, put)) !== 'stale') {
        savedState.revision += 1;
        savedState.isDirty = false;
        savedState.tried = [];
        return true;
      }
      const record = await withinTime(clock, () => records.get(STATE_KIND, name));
      if (record === undefined || !isOwnWrite(savedState, record)) break;
      savedState.revision = record.revision;
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
  const state = alertStateOf(record?.value) ?? quietSince(now);
  return { state, revision: record?.revision ?? 0, isDirty: false, tried: [] };
}

function isOwnWrite(
  state: SavedState | undefined,
  record: Pick<KeyedRecord, 'value' | 'revision'> | undefined,
): boolean {
  if (state === undefined || record?.revision !== state.revision + 1) return false;
  return state.tried.some((one) => isDeepStrictEqual(one, record.value));
}

const RATES_KIND = 'alert.flow';

interface RatesRecord {
  readonly flows: WindowRates;
  /** Then the longest of its windows has passed over all that was counted. */
  readonly until: Millis;
}

type SharedRatesOptions = Pick<AlertOptions, 'measures' | 'records' | 'name'>;

/** Stores the counts of this process, and reads those of others. */
export class SharedRates {
  readonly #parts: SharedRatesOptions;
  /** Not the name: keys of records are not encrypted by a seal, and a name may be sensitive. */
  readonly #key: string;
  #shared = '';

  constructor(parts: SharedRatesOptions) {
    this.#parts = parts;
    this.#key = createHash('sha256').update(parts.name).digest('hex').slice(0, 16);
  }

  /** Stores what was counted here, if that has changed; nothing where no rule is about rates. */
  async share(now: Millis): Promise<void> {
    const { measures, records } = this.#parts;
    const counted = measures.rates?.();
    if (counted === undefined) return;
    const { rates, longestMs } = counted;
    const text = JSON.stringify(rates);
    if (text === this.#shared) return;
    const record: RatesRecord = { flows: rates, until: now + longestMs };
    await records.put(RATES_KIND, this.#key, record);
    this.#shared = text;
  }

  /** Tells the measures what others have counted, and forgets what is over. */
  async hear(now: Millis): Promise<void> {
    const { measures, records } = this.#parts;
    if (measures.rates?.() === undefined) return;
    const others: WindowRates[] = [];
    for (const { key, value } of await records.list(RATES_KIND)) {
      const { until, flows } = value as RatesRecord;
      if (key === this.#key) continue;
      if (now > until) await records.remove(RATES_KIND, key);
      else others.push(flows);
    }
    measures.hearOthers?.(others);
  }
}
