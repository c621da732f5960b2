/**
 * accept — from a checked message to a durable entry: body first, entry second (invariant 4).
 *
 * When this process's engine has a free slot and nothing older is due, the entry goes in already
 * claimed (hand-off): one write less. Never with an order key: whose turn it is the store knows.
 */

import type { Millis } from '../core/duration.ts';
import type { Entry } from '../core/entry.ts';
import { handedOff, initialStatus } from '../core/next-status.ts';
import type { Engine } from '../engine/engine.ts';
import type { Reservation } from '../engine/load.ts';
import type { Events } from '../engine/events.ts';
import type { BodyStore } from '../ports/body-store.ts';
import type { EntryStore } from '../ports/entry-store.ts';
import type { StoredOrInlineBody } from './body.ts';
import { SpoolClaim } from './claim.ts';
import { type CheckedMessage, withBody } from './message.ts';
import type { SpoolSource } from './source.ts';
import type { Unserved } from './unserved.ts';

/** What became of an enqueue. */
export interface Enqueued {
  /** The message's id; for a duplicate, the first one's. */
  readonly id: string;
  readonly duplicate: boolean;
}

/** What accepting needs. */
export interface AcceptParts {
  readonly entries: EntryStore;
  readonly bodies: BodyStore;
  readonly source: SpoolSource;
  readonly engine: Engine;
  readonly events: Events;
  readonly unserved: Pick<Unserved, 'accepted'>;
  /** Whether a new message starts at once, or is found at the next look. */
  readonly isImmediate: boolean;
}

/** A message whose body is kept. */
export interface ReadyMessage {
  readonly message: CheckedMessage;
  readonly body: StoredOrInlineBody;
}

/** The same for one, with fewer steps: a single enqueue is what most callers do. */
export function acceptOne(
  parts: AcceptParts,
  ready: ReadyMessage,
  now: Millis = parts.source.now(),
): Promise<Enqueued> {
  const prepared = prepare(parts, ready, now);
  return insertOne(parts, prepared).then(
    ([answer = 'stored']) => {
      if (answer === 'stored') return begin(parts, prepared);
      const enqueued = skip(parts, prepared, answer.duplicateOf);
      const { ref, place } = prepared.entry.envelope.body;
      if (place !== 'store') return enqueued;
      return parts.bodies.remove([ref]).then(() => enqueued);
    },
    (error: unknown) => {
      release(parts, [prepared]);
      throw error;
    },
  );
}

/** A store that throws where it should reject must not keep the slot. */
function insertOne(parts: AcceptParts, prepared: Prepared): ReturnType<EntryStore['insert']> {
  try {
    return parts.entries.insert([prepared.entry]);
  } catch (error) {
    release(parts, [prepared]);
    throw error;
  }
}

/** Inserts messages whose bodies are kept; resolves when they are durable. */
export async function accept(
  parts: AcceptParts,
  ready: readonly ReadyMessage[],
): Promise<Enqueued[]> {
  const now = parts.source.now();
  const prepared = ready.map((one) => prepare(parts, one, now));
  let answers: Awaited<ReturnType<EntryStore['insert']>>;
  try {
    answers = await parts.entries.insert(prepared.map((one) => one.entry));
  } catch (error) {
    release(parts, prepared);
    throw error;
  }
  const superfluous: string[] = [];
  const enqueued = prepared.map((one, at) => {
    const answer = answers[at] ?? 'stored';
    if (answer === 'stored') return begin(parts, one);
    const { ref, place } = one.entry.envelope.body;
    // This body was written under a ref of its own; the first message keeps its own body.
    if (place === 'store') superfluous.push(ref);
    return skip(parts, one, answer.duplicateOf);
  });
  if (superfluous.length > 0) await parts.bodies.remove(superfluous);
  return enqueued;
}

interface Prepared {
  readonly entry: Entry;
  readonly plain: Uint8Array | undefined;
  readonly reservation: Reservation | undefined;
}

/**
 * The write failed. What is stored under an unknown outcome stays: its body may have an entry.
 * Orphans are swept.
 */
function release({ engine }: AcceptParts, prepared: readonly Prepared[]): void {
  for (const { reservation } of prepared) {
    if (reservation !== undefined) engine.unreserve(reservation);
  }
}

function prepare(parts: AcceptParts, ready: ReadyMessage, now: number): Prepared {
  const { engine, source, isImmediate } = parts;
  const { message, body } = ready;
  const envelope = withBody(message.envelope, body.info);
  const status = initialStatus({ now, dueAt: message.dueAt, policy: message.policy });
  const inline = body.inline === undefined ? undefined : { inlineBody: body.inline };
  const reservation =
    isImmediate &&
    status.state === 'incoming' &&
    message.dueAt <= source.earliest() &&
    envelope.orderKey === undefined &&
    source.isDry(now)
      ? engine.reserve(envelope)
      : undefined;
  const { plain } = body;
  if (reservation === undefined) {
    return { entry: { envelope, status, ...inline }, plain, reservation };
  }
  const claim = { now, leaseMs: source.leaseFrom(now), holder: source.holder() };
  return { entry: { envelope, status: handedOff(status, claim), ...inline }, plain, reservation };
}

/** It was there already: nothing of it stays. */
function skip(
  { engine, events }: AcceptParts,
  { entry, reservation }: Prepared,
  duplicateOf: string,
): Enqueued {
  if (reservation !== undefined) engine.unreserve(reservation);
  if (events.hears('duplicate')) {
    const { topic, id, enqueuedAt } = entry.envelope;
    events.emit({ at: enqueuedAt, kind: 'duplicate', id, topic, duplicateOf });
  }
  return { id: duplicateOf, duplicate: true };
}

/** It is ours: tell of it, and start it or note when it is due. */
function begin(parts: AcceptParts, { entry, plain, reservation }: Prepared): Enqueued {
  const { envelope, status } = entry;
  if (reservation === undefined) parts.unserved.accepted(envelope);
  if (parts.events.hears('accepted')) {
    const { id, topic, enqueuedAt } = envelope;
    const { dueAt } = status;
    // What was handed over is due now; its status has the end of its lease there.
    const about =
      status.state === 'active' || dueAt === null
        ? { state: 'incoming' as const, dueAt: enqueuedAt }
        : { state: status.state, dueAt };
    parts.events.emit({ at: enqueuedAt, kind: 'accepted', id, topic, ...about });
  }
  if (reservation !== undefined)
    parts.engine.beginReserved(reservation, new SpoolClaim(entry, plain));
  else if (parts.isImmediate) parts.source.noteDue(status.dueAt ?? status.updatedAt);
  return { id: envelope.id, duplicate: false };
}
