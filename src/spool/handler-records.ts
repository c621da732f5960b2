/**
 * handler-records — which topics the processes of a store handle, as records that they all read.
 *
 * A started process with handlers writes the patterns of its handlers: at its start, when they
 * change, and then hourly. Replicas and restarts share one record, whose key is made of the
 * patterns. Nothing is removed at a stop: a process that is down for a deployment still handles its
 * topics, for a day.
 *
 * The caretaker renews them, and asks before it holds a message. Promise: no delivery waits for
 * them, and a write that fails is reported as trouble.
 */

import { createHash } from 'node:crypto';
import { DAY_MS, HOUR_MS, type Millis, MINUTE_MS, SECOND_MS } from '../core/duration.ts';
import { topicMatches } from '../core/topic.ts';
import type { Routes } from '../engine/handler-slots.ts';
import type { Clock } from '../ports/clock.ts';
import type { EntryStore } from '../ports/entry-store.ts';
import type { KeyedRecord } from '../ports/record-store.ts';
import type { SpoolSource } from './source.ts';

/** The kind of the records, one for each set of patterns. */
const HANDLERS_KIND = 'handlers';
/** A record counts this long after it was written; then it is removed. */
const COUNTS_FOR_MS: number = DAY_MS;
/** A process writes its record again after this long. */
const RENEWED_AFTER_MS: number = HOUR_MS;
/** How long after a change of the handlers they are written: several changes make one record. */
const CHANGED_AFTER_MS: number = SECOND_MS;
/** The shortest time between records of two changes, for handlers that come and go all the time. */
const CHANGES_APART_MS: number = MINUTE_MS;
/** Maximum number of records; beyond it the oldest are removed. */
const RECORDS_MAX = 1_000;
/**
 * Maximum size of the patterns in a record; more are recorded as `#`, and nothing is held. Also
 * sealed it fits into a message of the smallest NATS server that `respool doctor` finds good.
 */
const PATTERNS_MAX_BYTES: number = 64 * 1024;

/** What the records need. */
interface HandlerRecordsOptions {
  readonly entries: EntryStore;
  readonly source: Pick<SpoolSource, 'now'>;
  readonly routes: Routes;
  readonly clock: Clock;
  /** Hears of a write that failed. */
  readonly trouble: (error: unknown) => void;
}

interface HandlerRecord {
  readonly key: string;
  readonly patterns: readonly string[];
  readonly at: Millis;
}

/** Writes what this process handles, and reads what all do. */
export class HandlerRecords {
  readonly #parts: HandlerRecordsOptions;
  #isRunning = false;
  /** What is in the store, as far as this process knows. */
  #written: Pick<HandlerRecord, 'key' | 'at'> | undefined;
  #writing: Promise<void> | undefined;
  #cancel: (() => void) | undefined;
  /** When a change was last written, on the clock that only grows. */
  #changedAt = -Infinity;

  constructor(parts: HandlerRecordsOptions) {
    this.#parts = parts;
  }

  /** Called when the engine runs; the write is not awaited. */
  start(): void {
    this.#isRunning = true;
    this.#written = undefined;
    void this.renew();
  }

  /** Writes no more; waits for what is on its way. */
  async stop(): Promise<void> {
    this.#isRunning = false;
    this.#cancel?.();
    this.#cancel = undefined;
    await this.#writing;
  }

  /** A handler was registered or taken away. */
  changed(): void {
    if (!this.#isRunning || !this.#isShared || this.#cancel !== undefined) return;
    const { clock } = this.#parts;
    const apartMs = this.#changedAt + CHANGES_APART_MS - clock.monotonic();
    this.#cancel = clock.after(Math.max(CHANGED_AFTER_MS, apartMs), () => {
      this.#cancel = undefined;
      this.#changedAt = clock.monotonic();
      void this.renew();
    });
  }

  /** Writes what this process handles, if that is not in the store or is not new enough. */
  renew(): Promise<void> {
    this.#writing ??= this.#renew()
      .catch((error: unknown) => this.#parts.trouble(error))
      .finally(() => {
        this.#writing = undefined;
      });
    return this.#writing;
  }

  /** Those of the topics that no process has recorded a handler for. */
  async without(topics: readonly string[]): Promise<readonly string[]> {
    if (!this.#isShared || topics.length === 0) return topics;
    const patterns = new Set((await this.#read()).flatMap((record) => record.patterns));
    const list = [...patterns];
    return topics.filter(
      (topic) => !patterns.has(topic) && !list.some((pattern) => topicMatches(pattern, topic)),
    );
  }

  /** A store of one process has no other process to tell. */
  get #isShared(): boolean {
    return this.#parts.entries.traits.processes === 'many';
  }

  async #renew(): Promise<void> {
    const { entries, source, routes } = this.#parts;
    // Again for what changed while it was written.
    while (this.#isRunning && this.#isShared) {
      const patterns = patternsOf(routes);
      const now = source.now();
      const key = keyOf(patterns);
      const isNew = ({ key: one, at }: Pick<HandlerRecord, 'key' | 'at'>): boolean =>
        one === key && Math.abs(now - at) < RENEWED_AFTER_MS;
      if (patterns.length === 0 || (this.#written && isNew(this.#written))) return;
      const present = (await this.#read()).find(isNew);
      if (present === undefined)
        await entries.records.put(HANDLERS_KIND, key, { patterns, at: now });
      this.#written = present ?? { key, at: now };
    }
  }

  /** The records that count; the others are removed. */
  async #read(): Promise<readonly HandlerRecord[]> {
    const { source, entries } = this.#parts;
    const all: HandlerRecord[] = [];
    for (const record of await entries.records.list(HANDLERS_KIND)) {
      // A record whose key cannot be fetched now is no error in a list, but is one in a get.
      const isReadable = readRecord(record) !== undefined;
      const read = isReadable ? record : await entries.records.get(HANDLERS_KIND, record.key);
      if (read !== undefined) all.push(readRecord(read) ?? { key: read.key, patterns: [], at: 0 });
    }
    const now = source.now();
    const recent = all.toSorted((one, other) => other.at - one.at).slice(0, RECORDS_MAX);
    // n.b. Also what was written by a clock that has gone back by a day since.
    const counted = recent.filter(({ at }) => Math.abs(now - at) < COUNTS_FOR_MS);
    const kept = new Set(counted);
    for (const record of all) {
      if (!kept.has(record)) await entries.records.remove(HANDLERS_KIND, record.key);
    }
    return counted;
  }
}

/** The patterns of the handlers, each once and in order. */
function patternsOf(routes: Routes): readonly string[] {
  const patterns = [...new Set(routes.of('delivery').map(({ pattern }) => pattern))].sort();
  if (patterns.includes('#')) return ['#'];
  return Buffer.byteLength(JSON.stringify(patterns)) > PATTERNS_MAX_BYTES ? ['#'] : patterns;
}

function keyOf(patterns: readonly string[]): string {
  return createHash('sha256').update(JSON.stringify(patterns)).digest('hex').slice(0, 32);
}

function readRecord({ key, value }: KeyedRecord): HandlerRecord | undefined {
  const { patterns, at } = (value ?? {}) as Partial<HandlerRecord>;
  if (!Array.isArray(patterns) || typeof at !== 'number') return undefined;
  return { key, patterns: patterns.filter((one) => typeof one === 'string'), at };
}
