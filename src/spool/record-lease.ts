/**
 * record-lease — the right to do something, kept in a record: one process has it at a time. Used by
 * replays and rules of dead letters, and by alerts.
 *
 *   take ─▶ held ─beat─▶ held for longer ─release─▶ free
 *             └─ no beat got through in time, or another process has it ─▶ lost
 *
 * Promise: every write is a compare-and-swap of what was just read, so what others write into the
 * same record stays. A holder that cannot renew its lease learns that from `lost` and `isHeld`
 * before another process can take it.
 */

import type { Millis } from '../core/duration.ts';
import { RespoolError } from '../core/errors.ts';
import type { Clock } from '../ports/clock.ts';
import type { KeyedRecord, RecordStore } from '../ports/record-store.ts';

/** Tries of a compare-and-swap; others write to the same record, but not as often. */
const TRIES_MAX = 100;

/** A record by its place. */
export interface RecordPlace {
  readonly records: RecordStore;
  readonly kind: string;
  readonly key: string;
  /** For errors: `replay "r1"`. */
  readonly what: string;
}

/** A record that a lease is kept in, for a process that has it. */
export interface OwnedRecord<V> extends RecordPlace {
  /** Who takes the lease. */
  readonly name: string;
  /** The value of a record; throws where it has to be there and is not. */
  readonly read: (record: KeyedRecord | undefined) => V;
  /** Who took it last, whether the lease has run out or not. */
  readonly holderOf: (value: V) => string | undefined;
  /** Whether the lease has not run out. */
  readonly isHeld: (value: V, now: Millis) => boolean;
  /** The value without a lease. */
  readonly free: (value: V) => V;
}

/** The same, for a process that takes it. */
export interface LeaseRecord<V> extends OwnedRecord<V> {
  readonly leaseMs: number;
  readonly now: () => Millis;
  /** The value with our own lease until this time. */
  readonly hold: (value: V, until: Millis) => V;
}

/** A lease that renews itself. */
export interface LeaseOptions<V> extends LeaseRecord<V> {
  readonly clock: Clock;
  readonly beatMs: number;
  /** This long before its end the lease counts as lost. */
  readonly marginMs: number;
  /** What is written with each beat. */
  readonly beat?: (value: V) => V;
  /** Hears of each beat that got through. */
  readonly onBeat?: (value: V) => void;
  readonly lostError: () => Error;
}

/** Writes what the change makes of the record, or nothing for undefined; may ask several times. */
export async function changeRecord<V>(
  { records, kind, key, what }: RecordPlace,
  change: (record: KeyedRecord | undefined) => V,
): Promise<V> {
  for (let tries = 0; tries < TRIES_MAX; tries += 1) {
    const record = await records.get(kind, key);
    const changed = change(record);
    if (changed === undefined) return changed;
    const answer = await records.put(kind, key, changed, record?.revision ?? 0);
    if (answer === 'done') return changed;
  }
  throw new RespoolError(
    'store.unavailable',
    `cannot change ${what}: others changed it ${TRIES_MAX} times meanwhile; try again`,
  );
}

/** Takes or renews the lease; undefined: another process has it. The change may refuse, too. */
export async function takeLease<V>(
  lease: LeaseRecord<V>,
  change: (value: V) => V = (value) => value,
): Promise<{ readonly before: V } | undefined> {
  const { name, leaseMs, now } = lease;
  let before: { readonly before: V } | undefined;
  const taken = await changeRecord(lease, (record) => {
    const value = lease.read(record);
    const changed = change(value);
    if (lease.holderOf(value) !== name && lease.isHeld(value, now())) return undefined;
    before = { before: value };
    return lease.hold(changed, now() + leaseMs);
  });
  return taken === undefined ? undefined : before;
}

/**
 * Gives the lease back, with a last change; undefined: it was not ours any more. Callers wait for
 * its end before they take the lease again under the same name: it would free the new one.
 */
export function releaseLease<V>(
  lease: OwnedRecord<V>,
  change: (value: V) => V = (value) => value,
): Promise<V | undefined> {
  return changeOwn(lease, (value) => lease.free(change(value)));
}

/** A lease in our hands. */
export class RecordLease<V> {
  /** The value as it was when the lease was taken. */
  readonly before: V;
  readonly #options: LeaseOptions<V>;
  readonly #lost = new AbortController();
  /** On the clock that only grows: until then no other process takes it. */
  #heldUntilMs: number;
  #cancel: (() => void) | undefined;
  #beating: Promise<void> = Promise.resolve();

  private constructor(options: LeaseOptions<V>, before: V, heldUntilMs: number) {
    this.before = before;
    this.#options = options;
    this.#heldUntilMs = heldUntilMs;
    this.#beatLater();
  }

  /** Takes the lease; undefined: another process has it. */
  static async take<V>(
    options: LeaseOptions<V>,
    change?: (value: V) => V,
  ): Promise<RecordLease<V> | undefined> {
    const heldUntilMs = options.clock.monotonic() + options.leaseMs;
    const taken = await takeLease(options, change);
    return taken && new RecordLease(options, taken.before, heldUntilMs);
  }

  /** Aborted when the lease is lost; the reason says why. */
  get lost(): AbortSignal {
    return this.#lost.signal;
  }

  /** Whether something may be begun under it now. */
  get isHeld(): boolean {
    if (this.lost.aborted) return false;
    if (!this.#isEnding) return true;
    this.#lose(this.#options.lostError());
    return false;
  }

  /** Changes the record and renews the lease. */
  async change(change: (value: V) => V): Promise<V> {
    const { clock, leaseMs, now, hold } = this.#options;
    const heldUntilMs = clock.monotonic() + leaseMs;
    const value = await this.#write((before) => hold(change(before), now() + leaseMs));
    this.#heldUntilMs = heldUntilMs;
    return value;
  }

  /** Gives the lease back, with a last change. */
  async release(change: (value: V) => V): Promise<V> {
    await this.drop();
    return this.#write((before) => this.#options.free(change(before)));
  }

  /** Stops the beats; the lease runs out by itself. */
  async drop(): Promise<void> {
    this.#cancel?.();
    this.#cancel = undefined;
    await this.#beating;
  }

  get #isEnding(): boolean {
    const { clock, marginMs } = this.#options;
    return clock.monotonic() >= this.#heldUntilMs - marginMs;
  }

  async #write(change: (value: V) => V): Promise<V> {
    this.lost.throwIfAborted();
    const value = await changeOwn(this.#options, change);
    if (value !== undefined) return value;
    const error = this.#options.lostError();
    this.#lose(error);
    throw error;
  }

  #lose(error: unknown): void {
    this.#cancel?.();
    this.#cancel = undefined;
    this.#lost.abort(error);
  }

  #beatLater(): void {
    const { clock, beatMs } = this.#options;
    this.#cancel = clock.after(beatMs, () => {
      this.#beating = this.#beat();
    });
  }

  async #beat(): Promise<void> {
    const { beat = (value) => value, onBeat } = this.#options;
    try {
      const value = await this.change(beat);
      onBeat?.(value);
    } catch (error) {
      // A store that is away for a moment is asked again, for as long as the lease is ours.
      if (!this.lost.aborted && this.#isEnding) this.#lose(error);
    }
    if (this.#cancel !== undefined) this.#beatLater();
  }
}

/** Changes a record whose lease is ours; undefined: it is not any more. */
function changeOwn<V>(lease: OwnedRecord<V>, change: (value: V) => V): Promise<V | undefined> {
  return changeRecord(lease, (record) => {
    const value = lease.read(record);
    // One that ran out is still ours as long as no other process has taken it.
    return lease.holderOf(value) === lease.name ? change(value) : undefined;
  });
}
