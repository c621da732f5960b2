/**
 * record-store — the interface for small durable facts that are not messages: audit, pauses, which
 * topics have handlers, notes on groups, replays, alerts. Entry stores implement it
 * (`EntryStore.records`).
 *
 * Two forms: a log per kind (append, read, trim) and a map per kind (put, get, list, remove).
 */

/** One line of a log. */
export interface LogRecord {
  /** Increases per kind; never reused. */
  readonly sequence: number;
  readonly record: unknown;
}

/** One value of a map. */
export interface KeyedRecord {
  readonly key: string;
  readonly value: unknown;
  /** 1 for a new key, raised by one on every put. */
  readonly revision: number;
}

/**
 * Every write is durable when it resolves. Kinds and keys: 1 to 255 printable characters; others
 * are refused. What JSON does not have, such as `undefined`, is kept as `null`.
 */
export interface RecordStore {
  append(kind: string, record: unknown): Promise<number>;
  /** Records with a sequence above `after`, oldest first, at most `max` (1 to 1,000). */
  read(kind: string, after: number, max: number): Promise<readonly LogRecord[]>;
  /** Forgets records up to and including this sequence. */
  trim(kind: string, upTo: number): Promise<void>;
  /** With a revision: only if the present one matches (0: only if there is none). */
  put(kind: string, key: string, value: unknown, revision?: number): Promise<'done' | 'stale'>;
  get(kind: string, key: string): Promise<KeyedRecord | undefined>;
  /** All of a kind, by key. */
  list(kind: string): Promise<readonly KeyedRecord[]>;
  remove(kind: string, key: string): Promise<void>;
}
