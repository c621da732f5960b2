/** claim — a claimed entry of a spool, as the engine holds it; keeps up with its heartbeats. */

import type { Entry, Envelope, Headers, Status } from '../core/entry.ts';
import type { Failure } from '../core/failure.ts';
import type { ClaimableState, Lane } from '../core/state.ts';
import type { Change } from '../ports/entry-store.ts';
import type { Claim } from '../ports/source.ts';
import { goingBody } from './body-record.ts';

/** An active entry under our holder. */
export class SpoolClaim implements Claim {
  /** The entry as the store has it now. */
  entry: Entry;
  /** A heartbeat on its way to the store. */
  extending: Promise<unknown> | undefined;
  /** Its verdict is on its way to the store. */
  isSettling = false;
  /** The verdict that was last sent to the store. */
  sent: Status | 'remove' | undefined;
  /** A write was not answered, so what the store has may be one step ahead of `entry`. */
  isUnsure = false;
  /** Its whole body, hashed in this process a moment ago and not out of memory since. */
  readonly plain: Uint8Array | undefined;
  readonly #fencedAt: number;

  constructor(entry: Entry, plain?: Uint8Array) {
    this.entry = entry;
    this.plain = plain;
    this.#fencedAt = entry.status.revision;
  }

  get fence(): string {
    return `${this.id}:${this.#fencedAt}`;
  }

  get id(): string {
    return this.entry.envelope.id;
  }
  get envelope(): Envelope {
    return this.entry.envelope;
  }
  get lane(): Lane {
    return this.entry.status.lane;
  }
  get attempt(): number {
    const { lane, attempts, notices } = this.entry.status;
    return lane === 'delivery' ? attempts : notices;
  }
  get lost(): number {
    return this.entry.status.lost;
  }
  get claimedFrom(): ClaimableState {
    return this.entry.status.claimedFrom ?? 'incoming';
  }
  get policy(): string | null {
    return this.entry.status.policy;
  }
  get lastFailure(): Failure | undefined {
    return this.entry.status.lastFailure;
  }
  get notes(): Headers {
    return this.entry.status.notes;
  }

  /** A heartbeat got through. */
  advance(status: Status): void {
    this.entry = { ...this.entry, status };
  }
}

/** The guarded write that brings a claimed entry to its next status. */
export function changeOf(entry: Entry, to: Status | 'remove', letsGoOfBody: boolean): Change {
  const { envelope, status } = entry;
  const change: Change = {
    id: envelope.id,
    revision: status.revision,
    to,
    ...(status.holder === undefined ? {} : { holder: status.holder }),
    ...(status.state === 'active' && status.dueAt !== null ? { leaseEndsAt: status.dueAt } : {}),
    ...(letsGoOfBody || to === 'remove' ? goingBody(envelope) : undefined),
  };
  if (!letsGoOfBody) return change;
  return { ...change, envelope: { ...envelope, body: { ...envelope.body, place: 'none' } } };
}
